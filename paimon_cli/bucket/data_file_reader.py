"""Reads a data file as Arrow batches in the read schema, and checks it against its metadata (FORMAT.md, sections 2 and 7).

Bytes that cannot be decoded raise `DamagedFile`, whatever the decoder raises for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.avro_rows import avro_batches
from paimon_cli.bucket.column_statistics import chunk_statistics
from paimon_cli.bucket.decoding import (
    DECODE_ERRORS,
    check_decoded,
    decoding,
    first_line,
    missing_file,
    sequences_outside_of_range,
)
from paimon_cli.bucket.deletion_vectors import live_rows, packed
from paimon_cli.bucket.nanosecond_range import checked_int96, int96_columns
from paimon_cli.bucket.orc_batches import orc_batches
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.bucket.page_selection import KeepsBlocks, SelectedRows, selected_rows
from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.bucket.schema_evolution import ReadColumns
from paimon_cli.bucket.shredded_maps import with_whole_maps
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.avro_reader import record_count, stored_names
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, FileLayout
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized
from paimon_cli.storage.ranged_file import Range, RangedFile

_DICTIONARY_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
COMPRESSION_SUFFIXES = frozenset({"gz", "zst", "snappy", "lz4", "bz2"})


def file_format(file_name: str) -> str:
    """The format of a data file, from the extension of its name. The options of the table do not matter."""
    parts = file_name.split(".")
    return parts[-2] if parts[-1] in COMPRESSION_SUFFIXES and len(parts) > 2 else parts[-1]


def read_data_file(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """All rows in file order, in batches of at most `batch_rows`, with `columns`.

    `columns`: table columns, `_SEQUENCE_NUMBER` and `_VALUE_KIND` (+I for all rows in files of append tables). `_KEY_*` columns
    may be read together with their table columns, which replace them in files without key columns.
    Raises `DamagedFile` if the file is missing, unreadable, or holds another number of rows than its metadata says.
    """
    for _, batch in read_part(context, bucket_id, file, columns, batch_rows, WHOLE):
        yield batch


KeepsGroup = Callable[[pq.ParquetFile, int], bool]
"""Whether to read a row group of a Parquet file, given by its number."""


@dataclass(frozen=True)
class FilePart:
    """The part of a data file to read: part `number` of `parts`, without row groups for which `keeps` is false, and without pages
    that `keeps_blocks` rules out.

    Files other than Parquet are read as a whole, by part 0. `omits_kinds`: batches lack the column `_VALUE_KIND` if the file's
    statistics say that none of their rows is a retraction. `deleted`: rows to leave out. `is_alone`: no other file is open at
    the same time, so that more of this one may be held in memory. `sequences`: the file is refused if its footer says that
    sequence numbers are outside of this range. `cut`: leaves out more rows, by their values; then positions are of no use.
    """

    number: int = 0
    parts: int = 1
    keeps: KeepsGroup | None = None
    keeps_blocks: KeepsBlocks | None = None
    omits_kinds: bool = False
    deleted: DeletionVector | None = None
    is_alone: bool = False
    sequences: tuple[int, int] | None = None
    cut: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None

    def groups(self, file: pq.ParquetFile) -> list[int]:
        """The numbers of the row groups to read."""
        begin, end = (file.num_row_groups * number // self.parts for number in (self.number, self.number + 1))
        return [group for group in range(begin, end) if self.keeps is None or self.keeps(file, group)]


WHOLE = FilePart()


def read_part(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, columns: Sequence[str], batch_rows: int, part: FilePart
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Like `read_data_file`, for a part of the file. Each batch comes with the position in the file of its first row, deleted
    rows counted.
    """
    path = context.data_file_path(*bucket_id, file)
    read = ReadColumns(context, file, columns, bucket_id[0])
    stored = _StoredRows(context, path, file, read.physical, batch_rows, part)
    rows = 0
    with decoding(path, read.file_schema.fields, context):
        for position, batch, kind in stored:
            rows += batch.num_rows
            check_decoded(batch)
            batch = read.tracked(with_whole_maps(batch), position)
            if part.deleted is not None:
                batch = live_rows(batch, packed(part.deleted.live_rows(batch.num_rows, position)))
            result = read.of(batch, kind, part.omits_kinds)
            if part.cut is None or (result := part.cut(result)).num_rows:
                yield position, result
    _check_rows(rows + stored.skipped, file, path)


def _check_rows(total: int, file: DataFileMeta, path: str) -> None:
    if total != file.row_count:
        raise DamagedFile(
            f"data file {path} is damaged", f"it holds {total} rows, but its manifest says {file.row_count}", path=path
        )


def check_row_count(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> None:
    """Raise `DamagedFile` unless the file's own metadata has as many rows as its manifest says."""
    _check_rows(stored_row_count(context, bucket_id, file), file, context.data_file_path(*bucket_id, file))


def _only_value(statistics: pq.Statistics | None) -> int | None:
    """The value of all rows of a column chunk, if its statistics show that there is only one; else None."""
    if statistics is None or not statistics.has_min_max or not statistics.has_null_count or statistics.null_count:
        return None
    return statistics.min if statistics.min == statistics.max else None


def _is_encoded(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether (nearly) all values of the chunk are indices into a small dictionary.

    A footer lists PLAIN for dictionary pages and for plain values alike, so the size decides: an index takes two bytes at most.
    """
    if not chunk.has_dictionary_page or not _DICTIONARY_ENCODINGS.issuperset(chunk.encodings):
        return False
    dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    return (
        0 < dictionary <= PIECES.max_dictionary_bytes and chunk.total_uncompressed_size <= 3 * chunk.num_values + 32 * dictionary
    )


def _leaf_paths(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(leaf).path for leaf in range(len(file.schema.names))]


class _StoredRows:
    """Iterates over a part of a file in the file's own columns and types.

    Items are the position of a batch in the file, the batch, and the kind of all its rows if statistics show it; such a batch has
    no column of kinds. `physical`: the columns to read, if any. `skipped`: rows in row groups that were not read.
    """

    def __init__(
        self, context: TableContext, path: str, file: DataFileMeta, physical: list[str], batch_rows: int, part: FilePart
    ) -> None:
        self._context = context
        self._path = path
        self._file = file
        self._physical = physical
        self._batch_rows = batch_rows
        self._part = part
        self.skipped = 0

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch, int | None]]:
        form = file_format(self._file.file_name)
        if form != "parquet" and self._part.number:
            self.skipped = self._file.row_count
            return
        with self._opened() as source:
            if form == "parquet":
                yield from self._row_groups(source)
                return
            if isinstance(source, RangedFile):
                source.expect_all()
            position = 0
            for batch in self._whole_file(source, form):
                yield position, batch, None
                position += batch.num_rows

    def _opened(self) -> BinaryIO:
        return open_sized(self._context.storage, self._path, self._file.file_size)

    def _row_groups(self, source: BinaryIO) -> Iterator[tuple[int, pa.RecordBatch, int | None]]:
        buffered = {"buffer_size": PIECES.read_buffer_bytes, "pre_buffer": False, "page_checksum_verification": True}
        if isinstance(source, RangedFile) and (source.size <= PIECES.whole_file_bytes or self._reads_nearly_all(source)):
            source.expect_all()
        reader = pq.ParquetFile(source, **buffered)
        sizes = [reader.metadata.row_group(group).num_rows for group in range(reader.num_row_groups)]
        groups = self._part.groups(reader)
        self.skipped = sum(sizes) - sum(sizes[group] for group in groups)
        if self._part.sequences is not None:
            self._check_sequences(reader, groups, *self._part.sequences)
        kinds = self._uniform_kinds(reader, groups)
        selected = self._selected(source, reader, groups, kinds)
        self.skipped += sum(sizes[group] - rows.row_count for group, rows in selected.items())
        if isinstance(source, RangedFile) and not source.is_planned:
            room = PIECES.request_ahead_bytes if self._part.is_alone else 0
            ranges = (
                selected[group].extents() if group in selected else self._chunks(reader, group, kinds[group]) for group in groups
            )
            source.expect(ranges, room)
        whole = [group for group in groups if group not in selected]
        portions = {} if isinstance(source, RangedFile) else self._portions(reader, whole)
        encoded = self._encoded_texts(reader, whole) if whole else []
        if portions or encoded:
            ahead = {**buffered, "buffer_size": 0, "pre_buffer": True} if portions else buffered
            reader = pq.ParquetFile(source, metadata=reader.metadata, read_dictionary=encoded, **ahead)

        def read_together(numbered: tuple[int, int]) -> tuple[int, int | None, int | None, bool]:
            """Equal for consecutive row groups of one kind and portion that are read in the same way."""
            index, group = numbered
            return group - index, kinds[group], portions.get(group), group in selected

        for (_, kind, _, is_selected), members in itertools.groupby(enumerate(groups), read_together):
            consecutive = [group for _, group in members]
            position = sum(sizes[: consecutive[0]])
            if is_selected:
                for group in consecutive:
                    for row, batch in self._selected_batches(source, selected[group]):
                        yield position + row, batch, kind
                    position += sizes[group]
                continue
            for batch in self._batches_of(reader, consecutive, self._decoded(kind)):
                yield position, batch, kind
                position += batch.num_rows

    def _decoded(self, kind: int | None) -> list[str]:
        """The columns to decode of rows of this kind."""
        return [name for name in self._physical if kind is None or name != VALUE_KIND]

    def _selected(
        self, source: BinaryIO, reader: pq.ParquetFile, groups: list[int], kinds: dict[int, int | None]
    ) -> dict[int, SelectedRows]:
        """Row group -> the rows to read, for row groups of which page indexes rule some pages out."""
        keeps, paths = self._part.keeps_blocks, _leaf_paths(reader)
        if keeps is None:
            return {}
        leaves = [paths.index(name) for name in keeps.columns if name in paths]
        indexed = [
            group
            for group, metadata in zip(groups, map(reader.metadata.row_group, groups), strict=True)
            if any(metadata.column(leaf).has_column_index and metadata.column(leaf).has_offset_index for leaf in leaves)
        ]
        if not indexed:
            return {}
        footer = read_footer(source, reader.metadata.serialized_size)
        found = {
            group: selected_rows(
                source, footer, group, [name for name in self._decoded(kinds[group]) if name in footer.columns], keeps
            )
            for group in indexed
        }
        return {group: rows for group, rows in found.items() if rows is not None}

    def _selected_batches(self, source: BinaryIO, rows: SelectedRows) -> Iterator[tuple[int, pa.RecordBatch]]:
        if isinstance(source, RangedFile):
            yield from rows.batches(source, self._batch_rows)
        elif rows.row_count:
            with self._opened() as again:  # threads of Arrow may be using `source`
                yield from rows.batches(again, self._batch_rows)

    def _check_sequences(self, reader: pq.ParquetFile, groups: list[int], least: int, greatest: int) -> None:
        """Raise `DamagedFile` if statistics say that rows have sequence numbers outside of the range of the metadata."""
        paths = _leaf_paths(reader)
        if SEQUENCE_NUMBER not in paths:
            return
        leaf = paths.index(SEQUENCE_NUMBER)
        for group in groups:
            known = chunk_statistics(reader.metadata, group, leaf)
            if known is not None and known.has_min_max and not least <= known.min <= known.max <= greatest:
                raise sequences_outside_of_range(self._context, self._path, (known.min, known.max), (least, greatest))

    def _uniform_kinds(self, reader: pq.ParquetFile, groups: list[int]) -> dict[int, int | None]:
        """Row group -> the kind of all its rows, which then need not be decoded, or None if statistics do not show one."""
        paths = _leaf_paths(reader)
        if VALUE_KIND not in paths or VALUE_KIND not in self._physical or len(self._physical) == 1:
            return dict.fromkeys(groups)
        leaf = paths.index(VALUE_KIND)
        return {group: _only_value(chunk_statistics(reader.metadata, group, leaf)) for group in groups}

    def _portions(self, reader: pq.ParquetFile, groups: list[int]) -> dict[int, int]:
        """Row group -> number of the portion in which it is read ahead as a whole; empty if read buffers are used instead."""
        if not self._part.is_alone:
            return {}
        leaves = self._leaves(reader)
        chunks = map(reader.metadata.row_group, groups)
        stored = [sum(group.column(leaf).total_compressed_size for leaf in leaves) for group in chunks]
        if not 0 < max(stored, default=0) <= PIECES.row_groups_ahead_bytes:
            return {}
        return {
            group: end // PIECES.row_groups_ahead_bytes for group, end in zip(groups, itertools.accumulate(stored), strict=True)
        }

    def _encoded_texts(self, reader: pq.ParquetFile, groups: list[int]) -> list[str]:
        """Text columns to decode as dictionary indices, which become texts once deleted rows are left out: all of their values
        must be in small dictionaries. This saves a third of the time. Large dictionaries would be copied for each batch, and
        values outside of the dictionary looked up one by one.
        """
        paths = _leaf_paths(reader)
        if self._batch_rows < PIECES.min_encoded_rows or int96_columns(reader.schema, self._physical):
            return []  # INT96 columns are read twice, and both reads need equal batches
        chunks = [reader.metadata.row_group(group) for group in groups]
        if sum(chunk.num_rows for chunk in chunks) < PIECES.min_encoded_rows:
            return []  # to open the file again takes longer
        leaves = {name: paths.index(name) for name in self._physical if name in paths}
        texts = (name for name, leaf in leaves.items() if reader.schema.column(leaf).logical_type.type == "STRING")
        return [name for name in texts if all(_is_encoded(chunk.column(leaves[name])) for chunk in chunks)]

    def _leaves(self, reader: pq.ParquetFile, without: str | None = None) -> list[int]:
        wanted = frozenset(self._physical) - {without}
        return [leaf for leaf, path in enumerate(_leaf_paths(reader)) if path.split(".", 1)[0] in wanted]

    def _reads_nearly_all(self, source: RangedFile) -> bool:
        """Whether to fetch the file at once, footer included: it fits into the read-ahead, and no column is left out."""
        if (
            not self._part.is_alone
            or self._part.parts > 1
            or self._part.keeps is not None
            or source.size > PIECES.request_ahead_bytes
        ):
            return False
        fields = self._context.schemas.named(self._file.schema_id).fields
        return {field.name for field in fields if self._file.stores(field.name)} <= {*self._physical}

    def _chunks(self, reader: pq.ParquetFile, group: int, kind: int | None) -> Iterator[Range]:
        """The byte ranges of the column chunks of a row group that will be decoded."""
        metadata = reader.metadata.row_group(group)
        for leaf in self._leaves(reader, None if kind is None else VALUE_KIND):
            chunk = metadata.column(leaf)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                start = min(start, chunk.dictionary_page_offset)
            yield start, start + chunk.total_compressed_size

    def _batches_of(self, reader: pq.ParquetFile, groups: list[int], columns: list[str]) -> Iterator[pa.RecordBatch]:
        batches = reader.iter_batches(self._batch_rows, groups, columns=columns, use_threads=False)
        wide = int96_columns(reader.schema, columns)
        if not wide:
            yield from batches
            return
        with self._opened() as again:
            if isinstance(again, RangedFile) and again.size <= PIECES.request_ahead_bytes:
                again.expect_all()
            yield from checked_int96(batches, again, wide, self._batch_rows, groups)

    def _whole_file(self, source: BinaryIO, form: str) -> Iterator[pa.RecordBatch]:
        """The batches of an ORC or Avro file. They have a column even if none is read: it tells how many rows they have."""
        context, file = self._context, self._file
        schema = context.schemas.named(file.schema_id)
        physical = self._physical or [next(field.name for field in schema.fields if file.stores(field.name))]
        if form == "orc":
            may_lack = (*(name for name in physical if name.startswith(KEY_PREFIX)), *schema.partition_keys)
            merged = not self._part.is_alone
            yield from orc_batches(source, physical, may_lack, FileLayout.of(schema).fields, self._batch_rows, merged)
        elif form == "avro":
            yield from avro_batches(source, physical, schema, self._batch_rows)
        else:
            raise NotSupported(f"data file {self._path}", f"its format {form} is not parquet, orc or avro")


def stored_row_count(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> int:
    """The number of rows by the file's own metadata. Raises `DamagedFile` if it is missing or cannot be opened."""
    return stored_shape(context, bucket_id, file)[0]


def stored_shape(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> tuple[int, list[str]]:
    """The number of rows and the names of the columns by the file's own metadata. Raises what `stored_row_count` does."""
    path, form = context.data_file_path(*bucket_id, file), file_format(file.file_name)
    try:
        with open_sized(context.storage, path, file.file_size) as source:
            if form == "parquet":
                metadata = pq.read_metadata(source)
                return int(metadata.num_rows), metadata.schema.to_arrow_schema().names
            if form == "orc":
                orc = OrcFile(source)
                return orc.nrows, orc.schema.names
            if form == "avro":
                return record_count(source), stored_names(source)
    except FileNotFoundError as error:
        raise missing_file(path, context) from error
    except DECODE_ERRORS as error:
        raise DamagedFile(f"cannot open data file {path}", first_line(error), path=path) from error
    raise NotSupported(f"data file {path}", f"its format {form} is not parquet, orc or avro")
