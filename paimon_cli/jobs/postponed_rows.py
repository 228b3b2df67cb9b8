"""Distributes the rows that wait in `bucket-postpone` to their buckets: a write whose input is the table's own postponed files.

The rows go through the usual writers: routed by the hash of their key, numbered in order of arrival above the sequence numbers of
their bucket, sorted, merged and compacted. One COMPACT snapshot adds the results and removes the postponed files, so each row is
either waiting or in its bucket. Files that other jobs postpone in the meantime keep waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_cli.bucket.postponed_files import Waiting, assigned_counts, batch_bucket_count, partition_counts, waiting_files
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.compact.bucket_compactor import WriterCompaction
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import BucketFiles, LazyBuckets, bucket_files, committed_state
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import records_that_wait
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Engine, Progress, Work
from paimon_cli.jobs.process import usable_cores
from paimon_cli.jobs.stored_rows import rows_as_written
from paimon_cli.jobs.table_change import NewFiles, settled, write_files
from paimon_cli.metadata.data_file import BucketId, CommitMessage, DataFileMeta, EntryKind, FileChanges, FileFilter, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.read.pruning import Pruning
from paimon_cli.read.scan_plan import ReadPlan, column_splits
from paimon_cli.sql.predicate import Predicate
from paimon_cli.storage.whole_file import ScratchDirectory, ScratchStorage
from paimon_cli.write.table_writer import Written, write_rows
from paimon_cli.write.write_plan import CompactionWhileWriting, Tallies, TargetBuckets, WritePlan


@dataclass(frozen=True)
class WaitingFile:
    """One postponed file, with the arrival number of its first row."""

    partition: bytes
    file: DataFileMeta
    first_arrival: int

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.file.file_size


@dataclass(frozen=True)
class WaitingRows:
    """The rows of postponed files as written, with their row kinds: picklable `SplitRows` for a `WritePlan`."""

    context: TableContext

    def read(self, split: WaitingFile, tally: Tally) -> Iterator[pa.RecordBatch]:
        """The rows of one file in `merge_schema`, in file order."""
        bucket_id = BucketId(split.partition, POSTPONE_BUCKET)
        for batch in rows_as_written(self.context, bucket_id, split.file, split.first_arrival):
            tally.rows += batch.num_rows
            yield batch


def waiting_splits(files: Iterable[tuple[bytes, DataFileMeta]]) -> tuple[WaitingFile, ...]:
    """Files, each with its partition, in the order of their replay; the splits have ascending arrival numbers."""
    splits: list[WaitingFile] = []
    arrival = 0
    for partition, file in files:
        splits.append(WaitingFile(partition, file, arrival))
        arrival += file.row_count
    return tuple(splits)


def _files_of(waiting: Mapping[bytes, BucketFiles]) -> Iterator[tuple[bytes, DataFileMeta]]:
    return ((partition, file) for partition, bucket in waiting.items() for file in bucket.files)


def distribute(
    new_files: NewFiles,
    partitions: frozenset[bytes],
    snapshot: Snapshot,
    strategy: str | None,
    engine: Engine,
    progress: Progress,
) -> list[CommitMessage]:
    """Write the rows that wait in these partitions at `snapshot` to their buckets; returns the messages of one COMPACT snapshot.

    `strategy`: by which the writers compact these buckets; None if they only add to level 0, and read nothing but the rows.
    If it fails, no new file remains.
    """
    context = new_files.context
    state = bucket_files(context, snapshot, FileFilter(partitions.__contains__))
    waiting = waiting_files(state)
    sizes = {partition: Waiting.of(bucket.files) for partition, bucket in waiting.items()}
    counts = assigned_counts(context.options, partition_counts(context, state), sizes)
    splits = waiting_splits(_files_of(waiting))
    engine.prepare(Work.of(split.file for split in splits), progress)
    plan = WritePlan(
        context=context,
        incoming=WaitingRows(context),
        splits=splits,
        buckets=TargetBuckets(max(counts.values()), assigned=counts),
        first_sequences=committed_state(state).next_sequences,
        read_snapshot_id=snapshot.id,
        file_stamp=new_files.stamp,
        compaction=None
        if strategy is None
        else CompactionWhileWriting(WriterCompaction(snapshot.id, new_files.stamp, strategy), state),
    )
    with new_files.deleted_on_failure():
        written = write_files(plan, engine, progress)
        messages = [replace(message, append=FileChanges(), compact=settled(context, message)) for message in written.messages]
    return [*messages, *(_removal(bucket, snapshot) for bucket in waiting.values())]


def _removal(bucket: BucketFiles, snapshot: Snapshot) -> CommitMessage:
    """The message that removes the postponed files of one partition."""
    return CommitMessage(
        *bucket.bucket_id, bucket.total_buckets, compact=FileChanges(removed=bucket.files), read_snapshot_id=snapshot.id
    )


def write_counted(plan: WritePlan, engine: Engine, progress: Progress, tallies: Tallies) -> Written:
    """Write a batch whose size decides the bucket counts: first into temporary postponed files, which are counted.

    The temporary files are never committed; they are deleted at the end.
    """
    temporary = NewFiles(plan.context, new_stamp(plan.context))
    with temporary.deleted_on_failure():
        postponed = write_files(plan.postponing(temporary.stamp), engine, progress, tallies).messages
        written = write_postponed(plan, postponed, engine, progress)
    temporary.delete_all_but(())
    return written


def write_postponed(plan: WritePlan, postponed: Sequence[CommitMessage], engine: Engine, progress: Progress) -> Written:
    """Write the rows of temporary postponed files to their buckets. The order of messages and files is the order of arrival."""
    splits = waiting_splits((message.partition, file) for message in postponed for file in message.append.added)
    buckets, known = plan.buckets, plan.buckets.known
    if known is not None:
        waiting: dict[bytes, list[DataFileMeta]] = {}
        for split in splits:
            waiting.setdefault(split.partition, []).append(split.file)
        of = plan.context.options
        counts = {p: known.get(p) or batch_bucket_count(of, Waiting.of(files)) for p, files in waiting.items()}
        buckets = TargetBuckets(max(counts.values(), default=1), assigned=counts)
    rows = WaitingRows(plan.context)
    return write_files(replace(plan, incoming=rows, splits=splits, buckets=buckets), engine, progress)


def plan_with_waiting_rows(
    context: TableContext, snapshot: Snapshot, predicate: Predicate | None
) -> tuple[TableContext, ReadPlan]:
    """Plan a read that merges waiting rows with those in the buckets (`postpone.merge-on-read`), and the context to read with.

    The waiting rows are distributed into files on local disk, which last as long as the returned context.
    """
    pruning = Pruning(context, predicate)
    entries = context.manifests.live_entries(snapshot, pruning)
    pruning.counts.waiting_records = records_that_wait(context.mode, FileTable.of_entries(entries))
    table = FileTable.of_entries([e for e in entries if not e.is_postponed and pruning.shows_level(e.file.level)])
    waiting = waiting_files(LazyBuckets(FileTable.of_entries([e for e in entries if e.is_postponed]), {}))
    state = LazyBuckets(table, bucket_files(context, snapshot).index_files)
    sizes = {partition: Waiting.of(bucket.files) for partition, bucket in waiting.items()}
    counts = assigned_counts(context.options, partition_counts(context, state), sizes)
    ours = replace(context.with_level_0(), storage=ScratchStorage(context.storage, ScratchDirectory("postponed")))
    plan = WritePlan(
        context=ours,
        incoming=WaitingRows(context),
        splits=waiting_splits(_files_of(waiting)),
        buckets=TargetBuckets(max(counts.values(), default=1), assigned=counts),
        first_sequences=committed_state(state).next_sequences,
        replaces_rows=True,
    )
    messages = write_rows(plan, {}, threads=usable_cores()).messages
    added = [ManifestEntry(EntryKind.ADD, *m.bucket_id, m.total_buckets, file) for m in messages for file in m.append.added]
    merged = Pruning(ours, predicate)
    found = LazyBuckets(FileTable.of_entries([*table.entries(), *added]), state.index_files)
    return ours, ReadPlan(snapshot, column_splits(ours, found, merged), pruning.counts, merged.levels)


def partitions_changed_since(context: TableContext, messages: Sequence[CommitMessage]) -> frozenset[bytes]:
    """The partitions of `messages` (from `distribute`) in which another job has changed files or vectors since they were read."""
    read = min(message.read_snapshot_id or 0 for message in messages)
    partitions = {message.partition for message in messages}
    changed: set[bytes] = set()
    latest, before = context.snapshots.latest(), context.snapshots.find(read) if read else None
    for number in range(read + 1, latest.id + 1 if latest else 0):
        snapshot = context.snapshots.find(number)
        if snapshot is None or (before is None and number > 1):
            return frozenset(partitions)
        entries = context.manifests.delta_entries(snapshot)
        changed |= {entry.partition for entry in entries if not (entry.is_postponed and entry.kind == EntryKind.ADD)}
        changed |= {bucket_id.partition for bucket_id in context.manifests.changed_vectors(before, snapshot)}
        before = snapshot
    return frozenset(changed & partitions)
