"""Files of an append table put together, one after the other: without decoding where that pays (FORMAT.md, section 12).

Copied row groups stay as small as they are, and readers pay for each. So only those are copied that are worth it: of files that
writers made, so that frequent small commits are put together cheaply, already smaller ones than of files that come from a
compaction. Whatever is compacted twice has row groups of a good size in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from paimon_cli.bucket.data_file_reader import DECODE_ERRORS, decoding, file_format
from paimon_cli.bucket.data_file_writer import CopiedFile, DataFileWriter
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.file_encoders import codec_of
from paimon_cli.bucket.file_indexes import FileFilters, indexed_columns
from paimon_cli.bucket.merged_rows import unmarked_rows
from paimon_cli.bucket.stitched_files import CODECS, StoredGroups, own_frame
from paimon_cli.compact.compaction_plan import CompactionTask
from paimon_cli.compact.rewriter import Rewriter
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, DataType
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_picker import Rewrite
from paimon_cli.metadata.data_file import SOURCE_COMPACT, DataFileMeta
from paimon_cli.metadata.data_file_schema import INSERT, merge_rows
from paimon_cli.metadata.encoded_footer import FooterFrame
from paimon_cli.metadata.index_files import BloomFilter
from paimon_cli.metadata.table_mode import BucketMode
from paimon_cli.storage.storage import open_sized

LEAST_GROUP, LEAST_COMPACTED_GROUP = 64 << 10, 1 << 20
"""Mean bytes of the row groups of a file from which they are copied: if a writer made it, if a compaction did."""
LEAST_CHUNK = 2 << 10
"""Mean bytes of a column in a row group, below which the footer would grow too large."""
PARQUET = "parquet"


class AppendRewriter(Rewriter):
    """Rows of a bucket keep their order, and their numbers begin where the first file's do; without buckets they begin at
    0."""

    def __init__(self, context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool]) -> None:
        super().__init__(context, task, is_given_up)
        self._layout = context.file_layout
        self._vectors = load_vectors(context, task.picked)
        self._indexed = indexed_columns(context.schema, context.options)
        self._bound_types = _nullable(context.schema.fields)
        self._floats = [field.name for field in context.schema.fields if field.type.root in FLOATING_ROOTS]

    def _frame(self, step: Rewrite) -> FooterFrame | None:
        """The frame of our own files, or that of another writer if all files have it and can be copied without decoding."""
        options, level = self._context.options, self._task.output_level
        if options.format_at(level) != PARQUET:
            return None
        own = own_frame(self._layout, options, level)
        with self._stored(step.files[0]) as first:
            frame = own if first is None else first.frame
        if frame == own or set(frame.columns or ()) != set(self._layout.physical.names):
            return own
        return frame if all(self._has_frame(file, frame) for file in step.files) else own

    def _has_frame(self, file: DataFileMeta, frame: FooterFrame) -> bool:
        with self._stored(file, frame) as stored:
            return stored is not None and stored.frame == frame

    def _fill(self, writer: DataFileWriter, step: Rewrite) -> dict[str, Any]:
        number = 0 if self._context.mode.bucket_mode is BucketMode.UNAWARE else step.files[0].min_sequence_number
        copied = 0
        for file in step.files:
            self._check_given_up()
            if writer.frame is not None and self._is_copied(writer, writer.frame, file, number):
                copied += 1
                number += file.row_count
            else:
                number += self._decode(writer, file, number)
        return {"copied_files": copied}

    def _is_copied(self, writer: DataFileWriter, frame: FooterFrame, file: DataFileMeta, number: int) -> bool:
        """Copy the file if the frame allows that; returns whether it was copied."""
        with self._stored(file, frame) as stored:
            if stored is None or stored.frame != frame:
                return False
            filters = self._filters(file)
            if filters is None:
                return False
            with decoding(self._path(file)):
                writer.copy(CopiedFile(stored, self._without_bounds(file), filters), number)
        return True

    def _decode(self, writer: DataFileWriter, file: DataFileMeta, number: int) -> int:
        """Write the rows of the file that no deletion vector marks; returns their number."""
        schema, count = self._context.schema, 0
        for batch in unmarked_rows(self._context, self._task.bucket_id, file, schema.field_names, self._vectors):
            self._check_given_up()
            columns = dict(zip(schema.field_names, batch.columns, strict=True))
            writer.write(merge_rows(schema, columns, INSERT, number + count))
            count += batch.num_rows
        return count

    def _path(self, file: DataFileMeta) -> str:
        return self._context.data_file_path(*self._task.bucket_id, file)

    @contextmanager
    def _stored(self, file: DataFileMeta, like: FooterFrame | None = None) -> Iterator[StoredGroups | None]:
        """The row groups of the file; None if its rows have to be decoded, or if it cannot be read: decoding it says why."""
        is_like_new = file.schema_id == self._context.schema.id and file.write_cols is None
        if not is_like_new or file_format(file.file_name) != PARQUET or file.file_name in self._task.marked:
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
        if stored.rows != file.row_count or not groups or not stored.codecs <= CODECS[codec]:
            return None
        least = LEAST_COMPACTED_GROUP if file.file_source == SOURCE_COMPACT else LEAST_GROUP
        is_small = sum(group.size for group in groups) < len(groups) * max(least, LEAST_CHUNK * len(groups[0].chunks))
        target, most_rows = self._context.mode.target_file_size, options.target_file_row_num
        fits = all(group.size <= target and 0 < group.rows <= most_rows for group in groups)
        return stored if fits and not is_small else None

    def _filters(self, file: DataFileMeta) -> dict[str, BloomFilter] | None:
        """The bloom filters that new files have; None if the file lacks one, or has it in another size."""
        if not self._indexed:
            return {}
        try:
            return FileFilters(self._context, *self._task.bucket_id, file).fitting(self._indexed, self._context.options)
        except DamagedFile:
            return None

    def _without_bounds(self, file: DataFileMeta) -> list[str]:
        """Floating columns that may hold NaN, which a footer does not show: those without bounds in the file's metadata."""
        if not self._floats:
            return []
        schema, stats = self._context.schema, file.value_stats
        listed = schema.field_names if file.value_stats_cols is None else file.value_stats_cols
        places = [place for place, name in enumerate(listed) if name in self._floats]
        try:
            types = self._bound_types if file.value_stats_cols is None else _nullable(schema.fields_of(listed))
            lows, highs = (deserialize_row(row, types, places) for row in (stats.min_values, stats.max_values))
        except DECODE_ERRORS:
            return self._floats
        nulls = stats.null_counts if stats.null_counts and len(stats.null_counts) == len(listed) else [None] * len(listed)
        known = set()
        for place, low, high in zip(places, lows, highs, strict=True):
            is_bounded = low is not None and high is not None and low <= high  # which is false of NaN
            if is_bounded or nulls[place] == file.row_count:
                known.add(listed[place])
        return [name for name in self._floats if name not in known]


def _nullable(fields: Sequence[DataField]) -> list[DataType]:
    return [field.type.with_nullable(True) for field in fields]
