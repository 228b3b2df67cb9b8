"""`update`, `delete` and `merge` in tables with a primary key: one task changes the rows of one bucket.

It reads the matching rows merged, changes them (`row_change`), and writes them to level 0.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_cli.bucket.data_file_writer import DataFileWriter, changelog_writer
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.compact.bucket_compactor import WriterCompaction
from paimon_cli.errors import Refused
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.jobs.engine import Engine, Progress, Work, phase, run_traced
from paimon_cli.jobs.row_change import ChangedBucket, Edit, MetRows, changed_rows, changelog_rows
from paimon_cli.metadata.data_file import SOURCE_APPEND, BucketId, DataFileMeta, FileFilter, file_facts
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.read.pruning import Pruning
from paimon_cli.read.scan_plan import Split, plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.predicate import Predicate
from paimon_cli.write.bucket_writer import BucketTree, Compactions, InThisThread


def change_buckets(
    context: TableContext,
    snapshot: Snapshot,
    change: Edit,
    stamp: str,
    engine: Engine,
    progress: Progress,
    inline: str | None,
) -> list[ChangedBucket]:
    """Write the changed rows of each bucket to level 0, and compact the bucket by the strategy `inline`."""
    tasks = plan_update(context, snapshot, change, stamp, inline)
    if not tasks:
        return []
    engine.prepare(Work.of(file for task in tasks for split in task.splits for file in split.files), progress)
    with phase(progress, "Changing rows", len(tasks)) as done:
        sizes = [sum(split.size for split in task.splits) for task in tasks]
        return run_traced(engine, context, functools.partial(update_bucket, change=change), tasks, done, sizes)


def plan_update(
    context: TableContext, snapshot: Snapshot, change: Edit, stamp: str, inline: str | None = None
) -> list[UpdateTask]:
    """One task for each bucket of the snapshot that may hold matching rows."""
    refuse_postponed_rows(context, snapshot, change.where)
    splits: dict[BucketId, list[Split]] = {}
    for split in plan_scan(context, snapshot, change.where).splits:
        splits.setdefault(split.bucket.bucket_id, []).append(split)
    partitions = {partition for partition, _ in splits}
    whole = bucket_files(context, snapshot, FileFilter(partitions.__contains__, {bucket for _, bucket in splits}))
    return [
        UpdateTask(
            whole[bucket_id],
            tuple(parts),
            snapshot.id,
            stamp,
            None if inline is None else WriterCompaction(snapshot.id, stamp, inline),
        )
        for bucket_id, parts in splits.items()
    ]


def refuse_postponed_rows(context: TableContext, snapshot: Snapshot, where: Predicate) -> None:
    """Raise `Refused` if rows are postponed in a partition that may match: they are not read, and would undo the change."""
    if not context.mode.bucket_mode.postpones:
        return
    pruning = Pruning(context, where)
    for partition, _ in bucket_files(context, snapshot, FileFilter(pruning.keeps_partition, {POSTPONE_BUCKET})):
        raise Refused(
            f"rows of {partition_text(context, partition) or context.address} are waiting for their buckets",
            "an update does not see them, and they would later replace the rows that it changes",
            f"paimon-cli compact {context.layout.argument}",
        )


@dataclass(frozen=True)
class UpdateTask:
    """One bucket at the snapshot that is read. `compact_bucket`: how to compact it afterwards; None if not at all."""

    existing: BucketFiles
    splits: tuple[Split, ...]
    read_snapshot_id: int
    file_stamp: str
    compact_bucket: WriterCompaction | None = None

    @property
    def first_sequence(self) -> int:
        """One above the highest sequence number of the bucket."""
        return max(file.max_sequence_number for file in self.existing.files) + 1


def update_bucket(context: TableContext, task: UpdateTask, change: Edit) -> ChangedBucket:
    """Run one task. If it fails, its new files are removed. Raises `BadInput` naming the row that cannot be changed.

    Splits hold whole keys in ascending order, so the changed rows are sorted with one row per key, as a data file requires.
    """
    names, bucket_id, change = DataFileNames(context, task.file_stamp), task.existing.bucket_id, change.for_bucket(task.existing)
    writer = DataFileWriter(context, bucket_id, level=0, source=SOURCE_APPEND, names=names)
    records_input = context.mode.changelog_producer.records_input
    changelog = changelog_writer(context, bucket_id, 0, task.file_stamp) if records_input else None
    met, first_sequence = MetRows(), task.first_sequence
    may_move = any(name in change.set_columns for name in context.schema.partition_keys)
    try:
        with context.trace.timed("flush", bucket=context.bucket_path(*bucket_id), level=0) as facts:
            for split in task.splits:
                for batch in read_split(context, split, context.schema.field_names, change.where):
                    batch = met.of(change, batch)
                    if not batch.num_rows:
                        continue
                    changed = changed_rows(context, change, batch, first_sequence + met.rows)
                    met.count(changed)
                    if may_move:
                        batch, changed = met.staying(context.schema, batch, changed)
                    if not changed.num_rows:
                        continue
                    writer.write(changed)
                    if changelog is not None:
                        changelog.write(changelog_rows(context, batch, changed))
            files, changes = writer.close(), changelog.close() if changelog else ()
            facts |= file_facts("", files)
        if not files:
            return ChangedBucket(met.rows, None, sources=met.sources, moved=tuple(met.moved))
        tree = _with_new_files(replace(context, shows_level_0=False), task, files, changes)
    except BaseException:
        for opened in (writer, *((changelog,) if changelog else ())):
            opened.abort()
        raise
    unseen = sum(unseen_records(context, split) for split in task.splits)
    message = tree.message(task.read_snapshot_id)
    return ChangedBucket(met.rows, message, unseen, tree.compaction_lost, met.deleted, met.sources, tuple(met.moved))


def _with_new_files(
    context: TableContext, task: UpdateTask, files: Sequence[DataFileMeta], changelog: Sequence[DataFileMeta]
) -> BucketTree:
    """The bucket with the changed rows, compacted as a writer compacts it. Results of a failed compaction go with the job."""
    compact = task.compact_bucket
    compactions = None if compact is None else Compactions(context, compact, InThisThread())
    tree = BucketTree(context, task.existing, compactions)
    tree.make_room()
    tree.flushed(files, changelog)
    tree.compact()
    return tree


def unseen_records(context: TableContext, split: Split) -> int:
    """The stored records of a split that the change reads although ordinary reads do not show them yet."""
    return waiting_rows(replace(context, shows_level_0=False).mode, split.bucket.bucket, split.files)
