"""Sort compaction: all files of a partition of an append table become files sorted by columns, or along a curve through them.

1. sample: tasks read the columns of the order and take some rows; each partition is cut into ranges of about a file each.
2. write: tasks send rows to the range that they belong to, where they are sorted (`write/sorted_write`).

The commit replaces the files that were read and no others, so that what others append meanwhile stays (apache/paimon #7595).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.compact.compaction_plan import CompactionTask
from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Engine, Progress, phase, run_traced
from paimon_cli.jobs.rescale_job import NumberedSplit, RowsOfTable, numbered_splits
from paimon_cli.jobs.table_change import NewFiles, write_files
from paimon_cli.metadata.data_file import CommitMessage, DataFileMeta
from paimon_cli.metadata.table_mode import BucketMode
from paimon_cli.read.scan_plan import Split
from paimon_cli.read.split_reader import read_split
from paimon_cli.write.sorted_write import Keys, Sample, SortedWritePlan, SortOrder

LEAST_MAGNIFICATION = 20


def check_sortable(context: TableContext, order: SortOrder) -> None:
    """`NotSupported` for tables that Paimon does not sort either, `UsageError` for an order that their rows do not have."""
    if context.mode.has_keys or context.mode.bucket_mode is not BucketMode.UNAWARE:
        kind = "a primary key" if context.mode.has_keys else "buckets"
        raise NotSupported(
            f"cannot sort the rows of {context.address}",
            f"a table with {kind} has an order of its own",
            f"compact it without an order: paimon-cli compact {context.layout.argument}",
        )
    order.check(context.schema)
    magnification = context.options.sort_sample_magnification
    if magnification < LEAST_MAGNIFICATION:
        raise UsageError(
            f"sort-compaction.local-sample.magnification={magnification} is too small",
            "the ranges would be of very different sizes",
            f"set it to {LEAST_MAGNIFICATION} or more",
        )


def sort_partitions(
    new_files: NewFiles, tasks: Sequence[CompactionTask], order: SortOrder, memory: int | None, engine: Engine, progress: Progress
) -> list[CommitMessage]:
    """Write the rows of the tasks' files, each of a partition, in the order. When it fails, no new file stays."""
    context = new_files.context
    if memory is not None:
        context = replace(context, options=context.options.with_overrides({"write-buffer-size": f"{memory} b"}))
    splits = numbered_splits(split for task in tasks for split in _splits(context, task))
    ranges = {task.partition: max(1, -(-task.size // context.mode.target_file_size)) for task in tasks}
    bounds = _bounds(context, order, splits, ranges, engine, progress)
    plan = SortedWritePlan(
        context=context,
        incoming=OrderedRows(context, order),
        splits=splits,
        total_buckets=max(ranges.values()),
        read_snapshot_id=tasks[0].read_snapshot_id,
        file_stamp=new_files.stamp,
        order=order,
        bounds=bounds,
    )
    with new_files.deleted_on_failure():
        made: dict[bytes, list[DataFileMeta]] = {}
        for message in write_files(plan, engine, progress).messages:
            made.setdefault(message.partition, []).extend(message.new_files)
        return [_message(context, task, made.get(task.partition, [])) for task in tasks]


def _message(context: TableContext, task: CompactionTask, made: Sequence[DataFileMeta]) -> CommitMessage:
    """The exchange of the files. `PaimonError` if rows were lost or doubled."""
    vectors = load_vectors(context, task.picked)
    marked = sum(len(vector.positions) for file in task.files if (vector := vectors.of(file.file_name)) is not None)
    before, after = sum(file.row_count for file in task.files) - marked, sum(file.row_count for file in made)
    if before != after:
        raise PaimonError(f"{before} rows became {after} when they were sorted", "nothing was committed")
    return CommitMessage(
        *task.bucket_id,
        task.total_buckets,
        compact_before=task.files,
        compact_after=tuple(made),
        read_snapshot_id=task.read_snapshot_id,
    )


def _splits(context: TableContext, task: CompactionTask) -> Iterator[Split]:
    """The files of a task in portions of the size of a split."""
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
    """Where the ranges of each partition begin; none for partitions that are one range."""
    cut = [split.split for split in splits if ranges[split.split.bucket.partition] > 1]
    rows: dict[bytes, int] = {}
    for split in cut:
        rows[split.bucket.partition] = rows.get(split.bucket.partition, 0) + split.row_count
    wanted = context.options.sort_sample_magnification
    tasks = [SampleTask(split, max(1, rows[p] // (wanted * ranges[p]))) for split in cut for p in (split.bucket.partition,)]
    with phase(progress, "Taking a sample", len(tasks)) as done:
        samples = run_traced(engine, context, functools.partial(take_sample, order=order), tasks, done)
    found: dict[bytes, list[Sample]] = {}
    for task, sample in zip(tasks, samples, strict=True):
        found.setdefault(task.split.bucket.partition, []).append(sample)
    cuts = {partition: Sample.bounds(parts, ranges[partition]) for partition, parts in found.items()}
    return {partition: keys for partition, keys in cuts.items() if keys is not None}


@dataclass(frozen=True)
class SampleTask:
    """A split of which every `step`-th row is taken."""

    split: Split
    step: int


def take_sample(context: TableContext, task: SampleTask, order: SortOrder) -> Sample:
    """The keys of some rows. With `sort-compaction.range-strategy=size` a row counts as many bytes as it takes on average."""
    keys: list[list[pa.Array]] = [[] for _ in order.key]
    seen = 0
    for batch in read_split(context, task.split, order.columns):
        chosen = pa.array(np.arange(-seen % task.step, batch.num_rows, task.step))
        seen += batch.num_rows
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
    """Rows of the table with what they are sorted by; picklable, `SplitRows` of a `SortedWritePlan`."""

    context: TableContext
    order: SortOrder

    def read(self, split: NumberedSplit, tally: Tally) -> Iterator[pa.RecordBatch]:
        for batch in RowsOfTable(self.context).read(split, tally):
            yield self.order.with_key(batch, self.context.schema, self.context.options)
