"""Combines files of an append table, copying row groups without decoding them where that pays off (FORMAT.md, section 12).

Copied row groups keep their size, and readers pay for each, so small ones are decoded and combined. The limit is lower for files
of writers, so that frequent small commits are combined cheaply, than for files of compactions: after two compactions all row
groups are reasonably large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.data_file_writer import CopiedFile, DataFileWriter
from paimon_cli.bucket.decoding import DECODE_ERRORS, decoding
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.file_encoders import codec_of
from paimon_cli.bucket.file_index import FileIndex
from paimon_cli.bucket.file_indexes import FileIndexes, IndexedColumn, indexed_columns
from paimon_cli.bucket.map_shredding import shreds_maps
from paimon_cli.bucket.merged_rows import unmarked_rows
from paimon_cli.bucket.shredded_maps import FIELD_MAPPING
from paimon_cli.bucket.shredded_variants import TYPED_VALUE
from paimon_cli.bucket.stitched_files import CODEC_NUMBERS, StoredGroups, own_frame
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.compact.rewriter import Rewriter
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, DataType
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_picker import Rewrite
from paimon_cli.metadata.data_file import SOURCE_COMPACT, DataFileMeta
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS, RowKind, merge_rows, tracked_rows
from paimon_cli.metadata.encoded_footer import FooterFrame
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized

PARQUET = "parquet"
SHREDDED_PARTS = (FIELD_MAPPING, TYPED_VALUE)
"""Columns of files that store a MAP or VARIANT in parts, which this version writes whole."""


class AppendRewriter(Rewriter):
    """Combines each pack of files into one, in order.

    Sequence numbers start with that of the first file; in tables without buckets they start at 0.
    """

    def __init__(self, context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool]) -> None:
        super().__init__(context, task, is_given_up)
        self._layout = context.file_layout
        self._vectors = load_vectors(context, task.picked)
        self._indexed = indexed_columns(context.schema, context.options)

    def _frame(self, step: Rewrite) -> FooterFrame | None:
        """The frame of files that this version writes, or the frame of another writer if all files of the step share it."""
        options, level = self._context.options, self._task.output_level
        if options.format_at(level) != PARQUET or self._context.mode.tracks_rows:  # new columns are to be added to the rows
            return None
        if shreds_maps(self._context.schema.fields, options):  # a file has one dictionary for all of its rows
            return None
        own = own_frame(self._layout, options, level)
        with self._stored(step.files[0]) as first:
            frame = own if first is None else first.frame
        if (
            frame == own
            or any(name.encode() in frame.before for name in SHREDDED_PARTS)
            or set(frame.columns or ()) != set(self._layout.physical.names)
        ):
            return own
        return frame if all(self._has_frame(file, frame) for file in step.files) else own

    def _has_frame(self, file: DataFileMeta, frame: FooterFrame) -> bool:
        with self._stored(file, frame) as stored:
            return stored is not None and stored.frame == frame

    def _fill(self, writer: DataFileWriter, step: Rewrite) -> dict[str, Any]:
        number = 0 if not self._context.mode.bucket_mode.has_buckets else step.files[0].min_sequence_number
        copied = 0
        for file in step.files:
            self._check_given_up()
            if writer.frame is not None and self._copy(writer, writer.frame, file, number):
                copied += 1
                number += file.row_count
            else:
                number += self._decode(writer, file, number)
        return {"copied_files": copied}

    def _copy(self, writer: DataFileWriter, frame: FooterFrame, file: DataFileMeta, number: int) -> bool:
        """Copy the row groups of the file if that is possible and pays off. Returns whether they were copied."""
        with self._stored(file, frame) as stored:
            if stored is None or stored.frame != frame:
                return False
            indexes = self._indexes(file)
            if indexes is None:
                return False
            with decoding(self._path(file)):
                writer.copy(CopiedFile(stored, columns_without_bounds(self._context.schema, file), indexes), number)
        return True

    def _decode(self, writer: DataFileWriter, file: DataFileMeta, number: int) -> int:
        """Write the rows of the file that no deletion vector marks. Returns their number."""
        schema, count, tracks = self._context.schema, 0, self._context.mode.tracks_rows
        names = [*schema.field_names, *(TRACKING_COLUMNS if tracks else ())]
        for batch in unmarked_rows(self._context, self._task.bucket_id, file, names, self._vectors):
            self._check_given_up()
            columns = dict(zip(names, batch.columns, strict=True))
            writer.write(tracked_rows(schema, columns) if tracks else merge_rows(schema, columns, RowKind.INSERT, number + count))
            count += batch.num_rows
        return count

    def _path(self, file: DataFileMeta) -> str:
        return self._context.data_file_path(*self._task.bucket_id, file)

    @contextmanager
    def _stored(self, file: DataFileMeta, like: FooterFrame | None = None) -> Iterator[StoredGroups | None]:
        """The row groups of the file; None if its rows must be decoded, or if it cannot be read, which decoding will report."""
        is_current = file.schema_id == self._context.schema.id and file.write_cols is None
        if not is_current or file_format(file.file_name) != PARQUET or file.file_name in self._task.marked:
            yield None
            return
        try:
            source = open_sized(self._context.storage, self._path(file), file.file_size)
        except FileNotFoundError:
            yield None
            return
        with source:
            yield self._worth_copying(file, source, like)

    def _worth_copying(self, file: DataFileMeta, source: BinaryIO, like: FooterFrame | None) -> StoredGroups | None:
        try:
            stored = StoredGroups(source, like)
        except DECODE_ERRORS:
            return None
        options, groups = self._context.options, stored.groups
        codec = codec_of(PARQUET, options.compression_at(self._task.output_level))
        if stored.rows != file.row_count or not groups or not stored.codecs <= CODEC_NUMBERS[codec]:
            return None
        min_size = PIECES.min_compacted_group_bytes if file.file_source == SOURCE_COMPACT else PIECES.min_group_bytes
        min_size = max(min_size, PIECES.min_chunk_bytes * len(groups[0].chunks))
        is_small = sum(group.size for group in groups) < len(groups) * min_size
        target, max_rows = self._context.mode.target_file_size, options.target_file_row_num
        fits = all(group.size <= target and 0 < group.rows <= max_rows for group in groups)
        return stored if fits and not is_small else None

    def _indexes(self, file: DataFileMeta) -> dict[IndexedColumn, FileIndex] | None:
        """The file's indexes; None if it lacks one that new files have, or has one with other settings."""
        if not self._indexed:
            return {}
        try:
            return FileIndexes(self._context, *self._task.bucket_id, file).fitting(self._indexed, self._context.options)
        except DamagedFile:
            return None


def columns_without_bounds(schema: TableSchema, file: DataFileMeta) -> list[str]:
    """Floating-point columns that may hold NaN, which a footer does not show: those without bounds in the file's metadata."""
    floats = [field.name for field in schema.fields if field.type.root in FLOATING_ROOTS]
    if not floats:
        return []
    stats = file.value_stats
    names = schema.field_names if file.value_stats_cols is None else file.value_stats_cols
    positions = [position for position, name in enumerate(names) if name in floats]
    try:
        types = _nullable(schema.fields_of(names))
        lows, highs = (deserialize_row(row, types, positions) for row in (stats.min_values, stats.max_values))
    except DECODE_ERRORS:
        return floats
    nulls = stats.null_counts if stats.null_counts and len(stats.null_counts) == len(names) else [None] * len(names)
    without_nan = set()
    for position, low, high in zip(positions, lows, highs, strict=True):
        is_bounded = low is not None and high is not None and low <= high  # false for NaN
        if is_bounded or nulls[position] == file.row_count:
            without_nan.add(names[position])
    return [name for name in floats if name not in without_nan]


def _nullable(fields: Sequence[DataField]) -> list[DataType]:
    return [field.type.with_nullable(True) for field in fields]
