"""Encoders for Parquet, ORC and Avro files with one interface, and the settings that Paimon needs (FORMAT.md, section 7.2)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from paimon_cli.bucket.avro_rows import AvroRows, avro_record_field
from paimon_cli.bucket.column_statistics import ColumnStatistics, ColumnTally, footer_statistics, leaf_numbers
from paimon_cli.bucket.map_shredding import ShreddedColumns
from paimon_cli.bucket.nan_bounds import ParquetSink, floating_leaves
from paimon_cli.bucket.nanosecond_range import holds_early_digits, refuse_far_times
from paimon_cli.bucket.orc_file import orc_column, orc_schema
from paimon_cli.datatypes.data_type import MAX_NESTING, NEWER_ROOTS, SPATIAL_ROOTS, DataField, RowType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.metadata.avro_writer import AVRO_CODECS
from paimon_cli.metadata.data_file_schema import FileLayout
from paimon_cli.options.option_text import boolean, read_option
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES

ORC_DICTIONARY_THRESHOLD = 0.5
NATIVE_TIMESTAMP_PRECISION = 6
DELTA_VERSIONS = ("v2", "parquet_2_0")
MAX_INT64_DIGITS = 18
PARQUET_ONLY_ROOTS = SPATIAL_ROOTS | {"VARIANT"}

_PLAIN_CODECS = dict.fromkeys(("none", "null", "uncompressed"), "none")
PARQUET_CODECS = {**{name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli")}, **_PLAIN_CODECS}
ORC_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "zlib": "zlib",
    "gzip": "zlib",
    "deflate": "zlib",
} | dict.fromkeys(_PLAIN_CODECS, "uncompressed")
CODECS = {"parquet": PARQUET_CODECS, "orc": ORC_CODECS, "avro": AVRO_CODECS}
"""File format -> value of `file.compression` -> name of the codec in the library that writes the format."""


class FileEncoder(Protocol):
    """Encodes one file. Tables have the columns of `FileLayout.physical`; the sink stays open after `close`.

    `has_row_groups`: each table becomes a row group. Other encoders cut the rows themselves, however many they are given.
    """

    has_row_groups: bool

    def takes(self, rows: pa.RecordBatch) -> bool:
        """Whether the file can hold the rows; if not, they start the next file."""
        ...

    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None: ...

    def statistics(self, fields: Sequence[DataField]) -> list[ColumnStatistics]:
        """Statistics of these physical columns. Call it after `close`."""
        ...


def check_encodable(columns: Sequence[DataField], options: TableOptions) -> None:
    """Raise `NotSupported` for columns that the table's formats cannot hold, `UsageError` for a codec that a format lacks."""
    _check_storable(columns)
    stored = _formats_and_codecs(options)
    if options.changelog_producer.writes_files:
        stored |= _formats_and_codecs(options.of_changelog_files)
    for file_format, compression in sorted(stored):
        codec_of(file_format, compression)
    formats = {file_format for file_format, _ in stored}
    if formats != {"parquet"}:
        _refuse_variants(columns, min(formats - {"parquet"}))
    if "avro" in formats:
        for column in columns:
            avro_record_field(column.name, column.type, "record")
    if "parquet" in formats:
        wants_differences(options)
        page_rows(options)
        _refuse_mixed_timestamps(columns)
        _refuse_empty_rows(columns)


def _check_storable(columns: Sequence[DataField]) -> None:
    """Raise `NotSupported` for a column that not all readers can read back, for its type or its depth."""
    for column in columns:
        if column.type.depth > MAX_NESTING:
            why = f"its type is nested {column.type.depth} levels deep; file formats are read back to {MAX_NESTING} levels"
            raise NotSupported(f"cannot write column '{column.name}'", why, "store the value as text, such as JSON in a STRING")
        newer = next((part.root for part in column.type.parts() if part.root in NEWER_ROOTS), None)
        if newer is not None:
            raise NotSupported(f"cannot write column '{column.name}'", f"only the newest versions of Paimon can read {newer}")


def _refuse_variants(columns: Sequence[DataField], file_format: str) -> None:
    """Raise `NotSupported` for a VARIANT, GEOMETRY or GEOGRAPHY in a format in which no Paimon stores it."""
    for column in columns:
        if any(part.root in PARQUET_ONLY_ROOTS for part in column.type.parts()):
            why = f"Paimon stores {type_to_sql(column.type)} only in Parquet files"
            raise NotSupported(f"cannot write column '{column.name}' to {file_format} files", why, "set file.format=parquet")


def _refuse_empty_rows(columns: Sequence[DataField]) -> None:
    """Raise `NotSupported` for a ROW without fields, which Parquet cannot store."""
    for column in columns:
        if any(isinstance(part, RowType) and not part.fields for part in column.type.parts()):
            hint = "give the ROW a field, or use --option file.format=orc"
            raise NotSupported(f"cannot write column '{column.name}'", "Parquet has no ROW without fields", hint)


def _formats_and_codecs(options: TableOptions) -> set[tuple[str, str]]:
    """The formats and codecs of files at any level."""
    levels = {0, *options.file_format_per_level, *options.file_compression_per_level}
    return {(options.format_at(level), options.compression_at(level)) for level in [*levels, max(levels) + 1]}


def _refuse_mixed_timestamps(columns: Sequence[DataField]) -> None:
    if not wants_int96(columns):
        return
    wide = [f for f in columns if wants_int96([f])]
    narrow = [f for f in columns if any(p <= NATIVE_TIMESTAMP_PRECISION for p in timestamp_precisions([f]))]
    if narrow:
        raise NotSupported(
            f"cannot write column '{wide[0].name}' of type {type_to_sql(wide[0].type)} beside '{narrow[0].name}'",
            "Parquet keeps TIMESTAMP(7..9) as INT96, and Arrow's writer then uses INT96 for every timestamp of the file",
            "declare all timestamps with 7 to 9 digits or all with fewer, or set file.format=orc",
        )


def codec_of(file_format: str, compression: str) -> str:
    """The library's name of a codec. Raises `NotSupported` for formats that are not written, `UsageError` for unknown codecs."""
    codecs = CODECS.get(file_format)
    if codecs is None:
        raise NotSupported(f"file.format={file_format}", f"data files are written as {', '.join(CODECS)}")
    if compression not in codecs:
        raise UsageError(f"file.compression={compression} is not available for {file_format}", f"allowed: {', '.join(codecs)}")
    return codecs[compression]


def open_encoder(sink: BinaryIO, layout: FileLayout, options: TableOptions, level: int, sample: pa.RecordBatch) -> FileEncoder:
    """The encoder for a new file at `level`. `sample`: its first rows, which decide on dictionaries and the ORC library."""
    file_format = options.format_at(level)
    codec = codec_of(file_format, options.compression_at(level))
    if file_format == "orc":
        largest = min(options.target_file_size or PIECES.orc_stripe_bytes, options.file_block_size or PIECES.orc_stripe_bytes)
        return _OrcEncoder(sink, layout, codec, largest, sample)
    if file_format == "avro":
        return _AvroEncoder(sink, layout.fields, codec, options.zstd_level)
    return ParquetEncoder(sink, layout, options, codec, sample)


class ParquetEncoder:
    """Parquet with settings that every Paimon reader accepts: page checksums and page indexes."""

    has_row_groups = True

    def __init__(self, sink: BinaryIO, layout: FileLayout, options: TableOptions, codec: str, sample: pa.RecordBatch) -> None:
        self._shredded = ShreddedColumns(layout.schema.fields, layout.physical, options, sample)
        schema = self._shredded.schema
        int96 = wants_int96(layout.schema.fields)
        self._sink = ParquetSink(sink)
        self._floating = floating_leaves(schema)
        self._groups = 0
        self._with_nan: set[tuple[int, int]] = set()
        """Row group and leaf of the chunks that hold NaN, for which Arrow's bounds are not valid."""
        self._leaves = leaf_numbers(schema)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=codec,
            compression_level=options.zstd_level if codec == "zstd" else None,
            use_dictionary=(_dictionary_allowed(options) and _repetitive_columns(schema, sample)) or False,
            column_encoding=_delta_encoded(options, schema, int96),
            store_decimal_as_integer=True,
            store_schema=False,
            data_page_version="1.0",
            version="2.6",
            write_page_checksum=True,
            write_page_index=True,
            max_rows_per_page=page_rows(options),
            write_time_adjusted_to_utc=True,
            use_deprecated_int96_timestamps=int96,
        )

    @staticmethod
    def of_table(sink: BinaryIO, layout: FileLayout, options: TableOptions, level: int, rows: pa.Table) -> ParquetEncoder:
        """The encoder for a file that will hold just these rows."""
        sample = rows.slice(0, PIECES.dictionary_sample_rows).combine_chunks().to_batches()
        empty = pa.RecordBatch.from_pylist([], schema=rows.schema)
        return ParquetEncoder(sink, layout, options, codec_of("parquet", options.compression_at(level)), [*sample, empty][0])

    def takes(self, rows: pa.RecordBatch) -> bool:
        return self._shredded.takes()

    def write(self, rows: pa.Table) -> None:
        rows = self._shredded.stored(rows)
        self._with_nan.update((self._groups, leaf.number) for leaf in self._floating if leaf.holds_nan(rows))
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._groups += 1

    def close(self) -> None:
        if self._writer.is_open and (facts := self._shredded.metadata()):
            self._writer.add_key_value_metadata(facts)
        if not self._with_nan or not self._writer.is_open:
            self._writer.close()
            return
        self._sink.hold()
        self._writer.close()
        self._sink.release(self._with_nan)

    @property
    def with_nan(self) -> list[str]:
        """The columns that hold NaN; those with NaN in the fields of a ROW are not listed."""
        leaves = {leaf for _, leaf in self._with_nan}
        return [name for name, leaf in self._leaves.items() if leaf in leaves]

    def statistics(self, fields: Sequence[DataField]) -> list[ColumnStatistics]:
        footer, with_nan = self._writer.writer.metadata, self.with_nan
        return [footer_statistics(footer, self._leaves.get(f.name), f.type, f.name in with_nan) for f in fields]


class _TalliedEncoder:
    """The base of encoders whose files have no usable statistics: they are computed from the rows that are written."""

    has_row_groups = False

    def __init__(self, fields: list[DataField]) -> None:
        self._tallies = {field.name: ColumnTally(field.type) for field in fields}

    def takes(self, rows: pa.RecordBatch) -> bool:
        return True

    def tally(self, rows: pa.Table) -> None:
        for name, tally in self._tallies.items():
            tally.add(rows.column(name))

    def statistics(self, fields: Sequence[DataField]) -> list[ColumnStatistics]:
        return [self._tallies[field.name].statistics() for field in fields]


class _OrcEncoder(_TalliedEncoder):
    """ORC by Arrow, or by pyorc, row by row, for timestamps that Java would not read as Arrow writes them."""

    def __init__(self, sink: BinaryIO, layout: FileLayout, codec: str, target_bytes: int, sample: pa.RecordBatch) -> None:
        super().__init__(layout.fields)
        self._sink = sink
        self._finished = io.BytesIO()
        """What the library has written so far. It gets no direct access to the sink: an error of the store inside Arrow or pyorc
        ends the process.
        """
        self._by_rows = holds_early_digits(sample)
        stripe = min(PIECES.orc_stripe_bytes, target_bytes)
        if self._by_rows:
            from paimon_cli.bucket.orc_rows import OrcRows  # pyorc is rarely needed and slow to import

            columns = orc_schema(layout.physical)
            self._writer = OrcRows(self._finished, columns, codec, stripe, ORC_DICTIONARY_THRESHOLD)
        else:
            self._writer = orc.ORCWriter(
                self._finished, compression=codec, stripe_size=stripe, dictionary_key_size_threshold=ORC_DICTIONARY_THRESHOLD
            )

    def takes(self, rows: pa.RecordBatch) -> bool:
        return self._by_rows or not holds_early_digits(rows)

    def write(self, rows: pa.Table) -> None:
        refuse_far_times(rows, "orc")
        self.tally(rows)
        self._writer.write(pa.table([orc_column(column) for column in rows.columns], names=rows.schema.names))
        self._flush_to_sink()

    def close(self) -> None:
        self._writer.close()
        self._flush_to_sink()

    def _flush_to_sink(self) -> None:
        self._sink.write(self._finished.getvalue())
        self._finished.seek(0)
        self._finished.truncate()


class _AvroEncoder(_TalliedEncoder):
    def __init__(self, sink: BinaryIO, fields: list[DataField], codec: str, zstd_level: int) -> None:
        super().__init__(fields)
        self._rows = AvroRows(sink, fields, codec, zstd_level)

    def write(self, rows: pa.Table) -> None:
        self.tally(rows)
        self._rows.write(rows)

    def close(self) -> None:
        self._rows.close()


def wants_differences(options: TableOptions) -> bool:
    """Whether integers are stored as differences (DELTA_BINARY_PACKED). Raises `UsageError` for an unknown writer version."""
    return options.parquet_writer_version in DELTA_VERSIONS


def page_rows(options: TableOptions) -> int:
    """The maximum number of rows in a Parquet page."""
    return options.parquet_page_rows or (PIECES.lookup_page_rows if options.looks_up_keys else PIECES.page_rows)


def wants_int96(fields: Sequence[DataField]) -> bool:
    """Whether a Parquet file with these columns needs INT96, which then stores all of its timestamps."""
    return any(precision > NATIVE_TIMESTAMP_PRECISION for precision in timestamp_precisions(fields))


def timestamp_precisions(fields: Sequence[DataField]) -> set[int]:
    """Precisions of all TIMESTAMPs in the columns."""
    return {part.precision for field in fields for part in field.type.parts() if isinstance(part, TimestampType)}


def _dictionary_allowed(options: TableOptions) -> bool:
    key = "parquet.enable.dictionary"
    text = options.raw.get(key, "true")
    return text == "1" or (text != "0" and read_option(key, text, boolean))


def _delta_encoded(options: TableOptions, schema: pa.Schema, int96: bool) -> dict[str, str] | None:
    """`parquet.writer.version=v2`: whole numbers as differences of neighbours, which is smaller, and faster both ways.

    Not without being asked: Java's readers know this encoding since Paimon 1.2.
    """
    if not wants_differences(options):
        return None
    whole = [f.name for f in schema if _is_integer(f.type) and not (int96 and pa.types.is_timestamp(f.type))]
    return dict.fromkeys(whole, "DELTA_BINARY_PACKED")


def _is_integer(t: pa.DataType) -> bool:
    """Whether Parquet stores values of the type as INT32 or INT64."""
    short_decimal = pa.types.is_decimal(t) and t.precision <= MAX_INT64_DIGITS
    return short_decimal or pa.types.is_integer(t) or pa.types.is_temporal(t)


def _repetitive_columns(schema: pa.Schema, sample: pa.RecordBatch) -> list[str]:
    """Text columns whose values repeat, so that a dictionary saves space; elsewhere it only costs time."""
    rows = sample.slice(0, PIECES.dictionary_sample_rows)
    sampled = set(rows.schema.names)
    texts = [f.name for f in schema if f.name in sampled and (pa.types.is_string(f.type) or pa.types.is_binary(f.type))]
    return [name for name in texts if pc.count_distinct(rows.column(name)).as_py() * 2 < rows.num_rows]
