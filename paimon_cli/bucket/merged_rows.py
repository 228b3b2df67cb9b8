"""Reads the rows of a bucket and merges its sorted runs (FORMAT.md, section 11).

Rows that have expired by `record-level.expire-time` are removed by compactions; until then, reads show them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.combined_columns import combined_rows
from paimon_cli.bucket.data_file_reader import WHOLE, FilePart, read_part
from paimon_cli.bucket.deletion_vectors import NO_VECTORS, BucketVectors, live_rows, load_vectors, packed
from paimon_cli.bucket.recorded_ranges import recorded_sequences, within_ranges
from paimon_cli.bucket.snapshot_order import SnapshotOrder
from paimon_cli.bucket.spilled_runs import merge_in_passes
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.lsm.sorted_rows import KeepAllVersions, LowestLevel, MergeEngine, with_level
from paimon_cli.lsm.sorted_runs import Section, SortedRun, follow_each_other, key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.table_mode import check_time_field
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import will_open

MIN_EPOCH_MILLIS = 1_000_000_000_000
"""A BIGINT below this counts seconds, from here on milliseconds."""


@dataclass(frozen=True)
class RecordExpiry:
    """Removes rows whose `column` is more than `seconds` before `now` (epoch seconds). Rows with null are kept."""

    column: str
    seconds: int
    now: int

    @staticmethod
    def of(context: TableContext) -> RecordExpiry | None:
        """The expiry of the table; None if `record-level.expire-time` is not set. Raises `UsageError` without a time field."""
        millis, column = context.options.record_level_expire_time, context.options.record_level_time_field
        if millis is None:
            return None
        if column is None:
            raise UsageError("record-level.expire-time needs record-level.time-field", "it determines the age of a row")
        check_time_field(column, context.schema.field(column).type)
        return RecordExpiry(column, millis // 1000, context.clock.now_millis() // 1000)

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that have not expired."""
        old = pc.less(_epoch_seconds(rows.column(self.column)), self.now - self.seconds).fill_null(False)
        return rows.filter(pc.invert(old))


def _epoch_seconds(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        ticks = column.view(pa.int64())
        return pc.divide(ticks, {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit])
    seconds = column.cast(pa.int64())
    return pc.if_else(pc.greater_equal(seconds, MIN_EPOCH_MILLIS), pc.divide(seconds, 1000), seconds)


ROW_NUMBER = "_ROW_NUMBER"
"""The column of a merge that says which row of which file a merged row is."""
DECODED_PER_STORED_BYTE = 4

RowFilter = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the rows of a batch that match."""
PartOf = Callable[[DataFileMeta], FilePart]
"""The part of a file to read, where files are read without merging."""


def _whole(file: DataFileMeta) -> FilePart:
    return WHOLE


def read_bucket(
    context: TableContext,
    bucket: BucketFiles,
    columns: Sequence[str],
    *,
    row_filter: RowFilter | None = None,
    keep_kinds: bool = False,
    memory: int | None = None,
    part_of: PartOf = _whole,
) -> Iterator[pa.RecordBatch]:
    """Current rows of the bucket with `columns` (also `_SEQUENCE_NUMBER`, `_VALUE_KIND`).

    Rows that are merged come in key order. Where there are deletion vectors, rows above level 0 that are not marked as deleted
    come file by file; `deletion-vectors.merge-on-read` merges them with level 0. `row_filter` is applied to merged rows and may
    use any of `columns`. `keep_kinds`: deleted keys are included, as -D or -U rows. `memory`: see `merge_section`. `part_of`:
    used only for files that are not merged with others.
    """
    if context.mode.combines_columns:
        live = combined_rows(context, bucket, columns)
    elif not context.schema.primary_keys:
        live = _appended_rows(context, bucket, columns, part_of)
    elif not context.mode.reads_merge:
        live = _unmarked_rows(context, bucket, columns, part_of)
    else:
        live = _merged_rows(context, bucket, columns, keep_kinds, memory, part_of)
    for batch in live:
        matching = batch if row_filter is None else row_filter(batch)
        if matching.num_rows:
            yield matching


def rows_by_key(context: TableContext, bucket: BucketFiles, columns: Sequence[str], memory: int) -> Iterator[pa.RecordBatch]:
    """Current rows of the bucket in key order, also where deletion vectors spare the merge. `columns` include the key and
    `_VALUE_KIND`.
    """
    if context.mode.reads_merge:
        yield from read_bucket(context, bucket, columns, memory=memory)
        return
    keys = context.schema.trimmed_primary_keys
    for section in key_sections(bucket.files, context.key_of):
        runs = [_numbered_0(read_bucket(context, replace(bucket, files=run.files), columns, memory=memory)) for run in section]
        for batch in merge_sorted_runs(runs, keys, KeepAllVersions()):
            yield batch.select(list(columns))


def _numbered_0(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches with sequence number 0 for every row, which `merge_sorted_runs` requires."""
    for batch in batches:
        numbers = pa.array(np.zeros(batch.num_rows, np.int64))
        yield batch.append_column(pa.field(SEQUENCE_NUMBER, pa.int64()), numbers)


def _merged_rows(
    context: TableContext, bucket: BucketFiles, columns: Sequence[str], keep_kinds: bool, memory: int | None, part_of: PartOf
) -> Iterator[pa.RecordBatch]:
    merge_names = merge_columns(context, columns)
    single_run_names = [VALUE_KIND, *(name for name in columns if name != VALUE_KIND)]
    vectors = load_vectors(context, bucket) if context.mode.deletion_vectors else NO_VECTORS
    sections = key_sections(bucket.files, context.key_of)
    for number, section in enumerate(sections):
        if number % max(1, PIECES.files_ahead // 2) == 0:
            upcoming = sections[number : number + PIECES.files_ahead]
            prefetch(context, bucket.bucket_id, [run.files[0] for next_section in upcoming for run in next_section])
        names = single_run_names if len(section) == 1 else merge_names
        if SEQUENCE_NUMBER not in columns and follow_each_other(section):
            names = [name for name in names if name != SEQUENCE_NUMBER]
        # A run alone has each key once, so that rows of it may be left out; elsewhere they hide older versions of their keys.
        parts = {file.file_name: part_of(file) for file in section[0].files} if len(section) == 1 else {}
        for batch in merge_section(context, bucket, section, names, memory, vectors=vectors, parts=parts):
            yield (batch if keep_kinds else without_retractions(batch)).select(list(columns))


def merge_columns(context: TableContext, columns: Iterable[str]) -> list[str]:
    """The columns that a merge must read to return `columns`: system columns, key and sequence fields come first."""
    schema = context.schema
    engine = merge_engine(context.schema, context.options)
    result = list(columns)
    merged_by = [*schema.trimmed_primary_keys, *engine.sequence_fields, *engine.columns_for(result)]
    return list(dict.fromkeys([SEQUENCE_NUMBER, VALUE_KIND, *merged_by, *result]))


def merge_section(
    context: TableContext,
    bucket: BucketFiles,
    section: Section,
    columns: Sequence[str],
    memory: int | None = None,
    expiry: RecordExpiry | None = None,
    vectors: BucketVectors = NO_VECTORS,
    level_engine: MergeEngine | None = None,
    first_numbers: Mapping[str, int] | None = None,
    parts: Mapping[str, FilePart] = MappingProxyType({}),
    compacts: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Merge the overlapping runs of one section of the bucket into one row per key. Retractions are kept.

    `columns`: at least `merge_columns`, unless the section is a single run, which is not merged; runs that `follow_each_other`
    need no sequence numbers. `memory`: decoded bytes that all runs may hold together, None for `merge_bytes`. `expiry` and
    `vectors` leave rows out before the merge. Between equal sequence numbers, of writers that did not know of each other, the
    order of the bucket's files decides. Sequence numbers in the result are those of `SnapshotOrder.in_merge`. `level_engine`:
    replaces the table's merge engine; it gets all keys, also those with one row, and the level of each row in a column LEVEL.
    `first_numbers`: adds a column ROW_NUMBER, in which the rows of each file are numbered from the number of its name on; only
    without `expiry` and `vectors`, for engines that return whole rows. `parts`: by file name, the part to merge of files that are
    not merged as a whole. `compacts`: see `batch_rows`.

    Example with merge engine deduplicate; a row is key:value@sequence, and x is a deletion:

    | run | rows |
    |---|---|
    | level 0, second write | 1:c@6 3:x@7 |
    | level 0, first write | 1:b@4 2:b@5 |
    | level 5 | 1:a@0 2:a@1 3:a@2 4:a@3 |
    | merged | 1:c@6 2:b@5 3:x@7 4:a@3 |
    """
    ages = {file.file_name: age for age, file in enumerate(bucket.files)}
    runs = sorted(section, key=lambda run: max((file.max_sequence_number, ages[file.file_name]) for file in run.files))
    order = SnapshotOrder.of(context, bucket)
    rows = batch_rows(runs, memory or PIECES.merge_bytes, len(columns), compacts)
    if level_engine is None and context.mode.lower_level_shadows and _levels_above_0(section) > 1:
        level_engine = LowestLevel(merge_engine(context.schema, context.options))

    numbers_are_read = len(section) == 1 or SEQUENCE_NUMBER in columns

    def open_run(run: SortedRun) -> Iterator[pa.RecordBatch]:
        for file in run.files:
            trusted = None if numbers_are_read else recorded_sequences(context, file)
            part = replace(parts.get(file.file_name, WHOLE), sequences=trusted)
            stored = _file_rows(context, bucket.bucket_id, file, columns, rows, vectors, part)
            batches = within_ranges(context, bucket.bucket_id, file, stored)
            for batch in batches if first_numbers is None else _numbered(batches, first_numbers[file.file_name]):
                numbered = order.in_merge(batch if expiry is None else expiry.kept(batch), file)
                yield numbered if level_engine is None else with_level(numbered, file.level)

    opened = [functools.partial(open_run, run) for run in runs]
    max_runs = max_merged_runs(context, memory or PIECES.merge_bytes)
    prefetch(context, bucket.bucket_id, [run.files[0] for run in runs[:max_runs]])
    engine = level_engine or merge_engine(context.schema, context.options)
    return merge_in_passes(opened, context.schema.trimmed_primary_keys, engine, max_runs, keys_repeat=level_engine is not None)


def _numbered(batches: Iterable[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    """The batches with a column ROW_NUMBER, counted from `first` on."""
    for batch in batches:
        numbers = pa.array(np.arange(first, first + batch.num_rows))
        yield batch.append_column(pa.field(ROW_NUMBER, pa.int64(), nullable=False), numbers)
        first += batch.num_rows


def _levels_above_0(section: Section) -> int:
    return len({file.level for run in section for file in run.files if file.level > 0})


def max_merged_runs(context: TableContext, memory: int) -> int:
    """How many runs to merge at a time: limited by `sort-spill-threshold`, and by `memory` (bytes) for their batches."""
    by_memory = max(PIECES.min_merged_runs, memory // PIECES.min_run_bytes)
    return min(by_memory, context.options.sort_spill_threshold or by_memory)


def batch_rows(runs: Sequence[SortedRun], memory: int, columns: int = 0, compacts: bool = False) -> int:
    """Rows per batch, so that the batches of all runs together fit into `memory` (decoded bytes). `columns`: their number.
    `compacts`: runs are merged to be written, in smaller batches.
    """
    rows = sum(run.row_count for run in runs)
    row_bytes = max(1, sum(run.size for run in runs) * DECODED_PER_STORED_BYTE // max(1, rows))
    most = PIECES.run_batch_bytes
    if compacts and len(runs) > 1:
        most = min(most, max(PIECES.least_run_batch_bytes, PIECES.compacted_batch_bytes // len(runs)))
    budget = min(max(most, columns * PIECES.run_column_bytes), memory // max(1, len(runs)))
    return max(PIECES.smallest_batch_rows, min(PIECES.batch_rows, budget // row_bytes))


def without_retractions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop -U and -D rows by the kind column; the delete count in the manifest is not trusted."""
    return live_rows(batch, packed((batch.column(VALUE_KIND).to_numpy() & 1) == 0))


def _unmarked_rows(
    context: TableContext, bucket: BucketFiles, columns: Sequence[str], part_of: PartOf
) -> Iterator[pa.RecordBatch]:
    vectors = load_vectors(context, bucket)
    names = [VALUE_KIND, *(name for name in columns if name != VALUE_KIND)]
    for file in _fetched_ahead(context, bucket.bucket_id, [file for file in bucket.files if file.level > 0]):
        part = replace(part_of(file), omits_kinds=VALUE_KIND not in columns, is_alone=True)
        stored = _file_rows(context, bucket.bucket_id, file, names, PIECES.batch_rows, vectors, part)
        for batch in within_ranges(context, bucket.bucket_id, file, stored):
            live = without_retractions(batch) if VALUE_KIND in batch.schema.names else batch
            yield live.select(list(columns))


def _appended_rows(
    context: TableContext, bucket: BucketFiles, columns: Sequence[str], part_of: PartOf
) -> Iterator[pa.RecordBatch]:
    vectors = load_vectors(context, bucket)
    files = sorted(bucket.files, key=lambda file: (file.min_sequence_number, file.creation_time_millis or 0))
    for file in _fetched_ahead(context, bucket.bucket_id, files):
        part = replace(part_of(file), is_alone=True)
        yield from _file_rows(context, bucket.bucket_id, file, columns, PIECES.batch_rows, vectors, part)


def _fetched_ahead(context: TableContext, bucket_id: BucketId, files: Sequence[DataFileMeta]) -> Iterator[DataFileMeta]:
    for number, file in enumerate(files):
        if number % max(1, PIECES.files_ahead // 2) == 0:
            prefetch(context, bucket_id, files[number : number + PIECES.files_ahead])
        yield file


def prefetch(context: TableContext, bucket_id: BucketId, files: Iterable[DataFileMeta]) -> None:
    """Tell the storage that these files will be read soon. An object store fetches small ones concurrently."""
    will_open(context.storage, lambda: ((context.data_file_path(*bucket_id, file), file.file_size) for file in files))


def unmarked_rows(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, columns: Sequence[str], vectors: BucketVectors
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that no deletion vector marks."""
    return _file_rows(context, bucket_id, file, columns, PIECES.batch_rows, vectors, FilePart(is_alone=True))


def _file_rows(
    context: TableContext,
    bucket_id: BucketId,
    file: DataFileMeta,
    columns: Sequence[str],
    batch_rows: int,
    vectors: BucketVectors,
    part: FilePart = WHOLE,
) -> Iterator[pa.RecordBatch]:
    """The rows of the part that are not marked as deleted."""
    without_deleted = replace(part, deleted=vectors.of(file.file_name))
    for _, batch in read_part(context, bucket_id, file, columns, batch_rows, without_deleted):
        yield batch
