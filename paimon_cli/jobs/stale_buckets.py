"""Moves the rows of files that were written for another bucket count into the buckets of their partition.

`repair` does it when it is asked, and a service in its rounds.

The rows go through the write path, so that they are routed by the hash of their key and numbered above the rows of their bucket:
the commit that brought them is newer than the rescale. One COMPACT snapshot adds the results and removes the stale files, because
streams have seen the rows already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import ChangedVectors
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.commit_messages import CommitKind
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import Conflict, NotSupported
from paimon_cli.history.live_files import LazyBuckets, bucket_files, committed_state
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.stale_buckets import CommittedFile, StalePartition, movable_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.compact_outcome import Outcome
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.stored_rows import RowsOfTable, numbered_splits, rows_as_written
from paimon_cli.jobs.table_change import NewFiles, Shield, write_files
from paimon_cli.metadata.data_file import BucketId, CommitMessage, DataFileMeta, FileChanges, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import Split
from paimon_cli.write.write_plan import SplitRows, TargetBuckets, WritePlan


@dataclass(frozen=True)
class MovedFile:
    """A stale file with the arrival number of its first row. `left_out`: the keys whose rows were replaced since, if any."""

    bucket_id: BucketId
    file: DataFileMeta
    first_arrival: int
    left_out: pa.Table | None

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.file.file_size


@dataclass(frozen=True)
class MovedRows:
    """The rows of stale files as written, with their row kinds: picklable `SplitRows` for a `WritePlan`."""

    context: TableContext

    def read(self, split: MovedFile, tally: Tally) -> Iterator[pa.RecordBatch]:
        """The rows of one file in `merge_schema`, in file order."""
        for rows in rows_as_written(self.context, split.bucket_id, split.file, split.first_arrival):
            kept = rows if split.left_out is None else rows.filter(_absent(rows, split.left_out))
            tally.rows += kept.num_rows
            yield kept


def movable_files(context: TableContext) -> int:
    """How many files `move_all_stale_files` would move."""
    snapshot = context.snapshots.latest()
    found = [] if snapshot is None else movable_partitions(context, snapshot)
    return sum(len(partition.stale) for partition in found)


def move_all_stale_files(context: TableContext, shield: Shield, outcome: Outcome) -> None:
    """Move what can be moved in all partitions, each in a commit of its own. Adds to `outcome` what becomes of each."""
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return
    for found in movable_partitions(context, snapshot):
        place = found.stale[0].entry.bucket_id
        try:
            with shield():
                moved = move_stale_files(context, snapshot, found)
        except Conflict as conflict:
            outcome.conflicts[place], outcome.lost_read = conflict, outcome.lost_read + found.size
        except NotSupported as refusal:
            outcome.failures[place], outcome.lost_read = refusal, outcome.lost_read + found.size
        else:
            outcome.note_moved(context, moved.snapshots)
            outcome.stale_files += len(found.stale)


def move_stale_files(context: TableContext, snapshot: Snapshot, found: StalePartition) -> CommitResult:
    """Move the rows of one partition, as of `snapshot`.

    Raises `Conflict` if another job has written to its buckets meanwhile, `NotSupported` if the rows cannot be put in order.
    """
    assert found.buckets is not None, "the plan leaves such partitions to the user"
    context = context.with_buckets(found.buckets).with_level_0()
    state = bucket_files(context, snapshot, FileFilter({found.partition}.__contains__))
    new_files = NewFiles(context, new_stamp(context))
    keyed = bool(context.schema.primary_keys)
    incoming: SplitRows = MovedRows(context) if keyed else RowsOfTable(context)
    plan = WritePlan(
        context=context,
        incoming=incoming,
        splits=_keyed_splits(context, found) if keyed else numbered_splits(_splits(found, state)),
        buckets=TargetBuckets(found.buckets),
        first_sequences=committed_state(state).next_sequences,
        read_snapshot_id=snapshot.id,
        file_stamp=new_files.stamp,
        replaces_rows=True,
    )
    with new_files.deleted_on_failure():
        written = write_files(plan, LocalEngine(), NoProgress()).messages
        messages = [
            replace(
                message, append=replace(message.append, added=()), compact=replace(message.compact, added=message.append.added)
            )
            for message in written
        ]
        messages += _removals(new_files, found.stale, state, snapshot)
    committer, identity = Committer(context), fresh_identity(context)
    return new_files.commit(messages, lambda: committer.commit(messages, identity, CommitKind.DISTRIBUTE))


def _splits(found: StalePartition, state: LazyBuckets) -> Iterator[Split]:
    """A split for each stale file of an append table, without the rows that vectors mark."""
    for file in found.stale:
        yield Split(replace(state[file.entry.bucket_id], files=(file.entry.file,)), needs_merge=False)


def _keyed_splits(context: TableContext, found: StalePartition) -> tuple[MovedFile, ...]:
    splits: list[MovedFile] = []
    arrival = 0
    for stale in found.stale:
        newer = _newer_keys(context, stale, found.written)
        splits.append(MovedFile(stale.entry.bucket_id, stale.entry.file, arrival, _left_out(context, stale, newer)))
        arrival += stale.entry.file.row_count
    return tuple(splits)


def _newer_keys(context: TableContext, stale: CommittedFile, written: Sequence[CommittedFile]) -> pa.Table | None:
    """The keys that were written to the right buckets after the commit of the stale file; None if there are none."""
    keys, tables = list(context.schema.trimmed_primary_keys), list[pa.Table]()
    for entry, snapshot_id in written:
        if (snapshot_id or 0) > (stale.snapshot_id or 0):
            read = read_data_file(context, entry.bucket_id, entry.file, keys, PIECES.batch_rows)
            tables.extend(pa.Table.from_batches([batch]) for batch in read)
    found = pa.concat_tables(tables).group_by(keys).aggregate([]) if tables else None
    return found if found is not None and found.num_rows else None


def _left_out(context: TableContext, stale: CommittedFile, newer: pa.Table | None) -> pa.Table | None:
    """The keys whose stale rows must not be moved, because they would then come after newer ones.

    Where the newest row of a key is all that counts, the older one can go. By a sequence field or as first rows they are in order
    whatever their numbers are.
    """
    options = context.options
    if newer is None or options.sequence_fields or options.merge_engine.oldest_wins:
        return None
    if options.merge_engine.newest_wins:
        return newer
    keys = list(context.schema.trimmed_primary_keys)
    for batch in read_data_file(context, stale.entry.bucket_id, stale.entry.file, keys, PIECES.batch_rows):
        if not pc.all(_absent(batch, newer)).as_py():
            partition = partition_text(context, stale.entry.partition) or context.address
            raise NotSupported(
                f"rows of {partition} that were written for another bucket count cannot be put in order",
                f"their keys were written again since, and merge-engine={options.merge_engine.name} needs both rows in order",
                "overwrite the partition with the right rows",
            )
    return None


def _absent(rows: pa.RecordBatch, keys: pa.Table) -> pa.Array:
    """Boolean mask: rows whose key is not among `keys`."""
    names = keys.column_names
    numbered = pa.Table.from_batches([rows.select(names)]).append_column("#", pa.array(np.arange(rows.num_rows)))
    left = numbered.join(keys, names, join_type="left anti").column("#").to_numpy()
    mask = np.zeros(rows.num_rows, bool)
    mask[left] = True
    return pa.array(mask)


def _removals(
    new_files: NewFiles, files: Sequence[CommittedFile], state: LazyBuckets, snapshot: Snapshot
) -> Iterator[CommitMessage]:
    """The messages that remove the stale files, and their vectors in append tables."""
    by_bucket: dict[tuple[BucketId, int], list[DataFileMeta]] = {}
    for stale in files:
        by_bucket.setdefault((stale.entry.bucket_id, stale.entry.total_buckets), []).append(stale.entry.file)
    dropped: dict[BucketId, ChangedVectors] = {}
    for (bucket_id, total), gone in by_bucket.items():
        vectors = dropped.setdefault(bucket_id, ChangedVectors(new_files.context, state[bucket_id], new_files.stamp))
        for file in gone:
            vectors.drop(file.file_name)
        yield CommitMessage(*bucket_id, total, compact=FileChanges(removed=tuple(gone)), read_snapshot_id=snapshot.id)
    for bucket_id, vectors in dropped.items():
        bucket = state[bucket_id]
        old, new = vectors.write(frozenset(file.file_name for file in bucket.files))
        if old or new:
            yield CommitMessage(
                *bucket_id,
                bucket.total_buckets,
                compact=FileChanges(removed_indexes=old, added_indexes=new),
                read_snapshot_id=snapshot.id,
            )
