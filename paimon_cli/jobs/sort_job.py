"""Sort compaction: rewrites a partition of an append table in the order of some columns, or along a curve through them.

1. sample: tasks read the sort columns of some rows; each partition is cut into ranges of about one file each.
2. write: tasks send each row to its range, where the rows are sorted (`write/sorted_write`).

The commit replaces only the files that were read, so rows appended in the meantime are kept (see apache/paimon #7595).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Engine, Progress, phase, run_traced
from paimon_cli.jobs.stored_rows import NumberedSplit, RowsOfTable, numbered_splits
from paimon_cli.jobs.table_change import NewFiles, write_files
from paimon_cli.metadata.data_file import CommitMessage, DataFileMeta, FileChanges
from paimon_cli.read.scan_plan import Split
from paimon_cli.read.split_reader import read_split
from paimon_cli.write.sorted_write import Keys, Sample, SortedWritePlan, SortOrder
from paimon_cli.write.write_plan import TargetBuckets

MIN_MAGNIFICATION = 20


def check_sortable(context: TableContext, order: SortOrder) -> None:
    """Raise `NotSupported` for tables that Paimon does not sort either, `UsageError` for an order that the table cannot have."""
    if context.mode.has_keys or context.mode.bucket_mode.has_buckets:
        feature = "a primary key" if context.mode.has_keys else "buckets"
        raise NotSupported(
            f"cannot sort the rows of {context.address}",
            f"a table with {feature} has its own order",
            f"compact it without --order-by: paimon-cli compact {context.layout.argument}",
        )
    if context.mode.tracks_rows:
        raise NotSupported(
            f"cannot sort the rows of {context.address}",
            "its rows have ids (row-tracking.enabled), which a sort does not carry along yet",
            f"compact it without --order-by: paimon-cli compact {context.layout.argument}",
        )
    order.check(context.schema)
    magnification = context.options.sort_sample_magnification
    if magnification < MIN_MAGNIFICATION:
        raise UsageError(
            f"sort-compaction.local-sample.magnification={magnification} is too small",
            "the ranges would be of very different sizes",
            f"set it to {MIN_MAGNIFICATION} or more",
        )


def sort_partitions(
    new_files: NewFiles, tasks: Sequence[CompactionTask], order: SortOrder, memory: int | None, engine: Engine, progress: Progress
) -> list[CommitMessage]:
    """Rewrite the files of the tasks, one task per partition, in sorted order. If it fails, no new file remains."""
    context = new_files.context
    splits = numbered_splits(split for task in tasks for split in _splits(context, task))
    ranges = {task.partition: max(1, -(-task.size // context.mode.target_file_size)) for task in tasks}
    bounds = _bounds(context, order, splits, ranges, engine, progress)
    plan = SortedWritePlan(
        context=context,
        incoming=OrderedRows(context, order),
        splits=splits,
        buckets=TargetBuckets(max(ranges.values())),
        read_snapshot_id=tasks[0].read_snapshot_id,
        file_stamp=new_files.stamp,
        order=order,
        bounds=bounds,
        memory=memory,
    )
    with new_files.deleted_on_failure():
        made: dict[bytes, list[DataFileMeta]] = {}
        for message in write_files(plan, engine, progress).messages:
            made.setdefault(message.partition, []).extend(message.append.added)
        return [_message(context, task, made.get(task.partition, [])) for task in tasks]


def _message(context: TableContext, task: CompactionTask, made: Sequence[DataFileMeta]) -> CommitMessage:
    """The message that replaces the task's files. Raises `PaimonError` if the number of rows has changed."""
    vectors = load_vectors(context, task.picked)
    marked = sum(len(vector.positions) for file in task.files if (vector := vectors.of(file.file_name)) is not None)
    before, after = sum(file.row_count for file in task.files) - marked, sum(file.row_count for file in made)
    if before != after:
        raise PaimonError(f"{before} rows became {after} when they were sorted", "nothing was committed")
    return CommitMessage(
        *task.bucket_id,
        task.total_buckets,
        compact=FileChanges(removed=task.files, added=tuple(made)),
        read_snapshot_id=task.read_snapshot_id,
    )


def _splits(context: TableContext, task: CompactionTask) -> Iterator[Split]:
    """The files of a task, grouped into splits of `split_target_size`."""
    held: list[DataFileMeta] = []
    size = 0
    for file in task.files:
        if held and size + file.file_size > context.options.split_target_size:
            yield _split(task, held)
            held, size = [], 0
        held.append(file)
        size += file.file_size
    yield _split(task, held)


def _split(task: CompactionTask, files: Sequence[DataFileMeta]) -> Split:
    return Split(BucketFiles(*task.bucket_id, task.total_buckets, tuple(files), task.index_files), needs_merge=False)


def _bounds(
    context: TableContext,
    order: SortOrder,
    splits: Sequence[NumberedSplit],
    ranges: dict[bytes, int],
    engine: Engine,
    progress: Progress,
) -> dict[bytes, Keys]:
    """The lower bounds of the ranges in each partition; partitions with a single range are left out."""
    cut = [split.split for split in splits if ranges[split.split.bucket.partition] > 1]
    rows: dict[bytes, int] = {}
    for split in cut:
        rows[split.bucket.partition] = rows.get(split.bucket.partition, 0) + split.row_count
    rows_per_range = context.options.sort_sample_magnification
    tasks = [
        SampleTask(split, max(1, rows[partition] // (rows_per_range * ranges[partition])))
        for split in cut
        for partition in (split.bucket.partition,)
    ]
    with phase(progress, "Taking a sample", len(tasks)) as done:
        samples = run_traced(engine, context, functools.partial(take_sample, order=order), tasks, done)
    by_partition: dict[bytes, list[Sample]] = {}
    for task, sample in zip(tasks, samples, strict=True):
        by_partition.setdefault(task.split.bucket.partition, []).append(sample)
    bounds = {partition: Sample.bounds(parts, ranges[partition]) for partition, parts in by_partition.items()}
    return {partition: keys for partition, keys in bounds.items() if keys is not None}


@dataclass(frozen=True)
class SampleTask:
    """A split from which every `step`-th row is sampled."""

    split: Split
    step: int


def take_sample(context: TableContext, task: SampleTask, order: SortOrder) -> Sample:
    """Sample the sort keys of a split. With `sort-compaction.range-strategy=size`, rows are weighted by their average size."""
    keys: list[list[pa.Array]] = [[] for _ in order.key]
    rows_read = 0
    for batch in read_split(context, task.split, order.columns):
        chosen = pa.array(np.arange(-rows_read % task.step, batch.num_rows, task.step))
        rows_read += batch.num_rows
        sampled = order.with_key(batch.take(chosen), context.schema, context.options)
        for name, columns in zip(order.key, keys, strict=True):
            columns.append(sampled.column(name))
    by_size = context.options.sort_range_strategy == "size"
    weight = task.step * (task.split.size / max(1, task.split.row_count) if by_size else 1)
    return Sample([_joined(columns) for columns in keys], weight)


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(columns) if columns else pa.nulls(0)


@dataclass(frozen=True)
class OrderedRows:
    """The rows of the table with their sort keys: picklable `SplitRows` for a `SortedWritePlan`."""

    context: TableContext
    order: SortOrder

    def read(self, split: NumberedSplit, tally: Tally) -> Iterator[pa.RecordBatch]:
        for batch in RowsOfTable(self.context).read(split, tally):
            yield self.order.with_key(batch, self.context.schema, self.context.options)
