"""The request for a write and its plan at the latest snapshot: what the new rows build on, and what they replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paimon_cli.bucket.hash_index import HashIndexes
from paimon_cli.bucket.postponed_files import counts_in_advance, partition_counts
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.data_conflict import check_place
from paimon_cli.compact.bucket_compactor import WriterCompaction
from paimon_cli.compact.compaction_plan import FULL_STRATEGY, MINOR_STRATEGY, why_not_compactable
from paimon_cli.errors import BadInput, NotSupported
from paimon_cli.history.live_files import CommittedState, LazyBuckets, bucket_files, committed_state
from paimon_cli.history.partition_spec import PartitionSpec, PartitionValues, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tiered_rows import expect_not_tiered
from paimon_cli.ingest.faults import RejectFile
from paimon_cli.ingest.own_buckets import OwnBuckets
from paimon_cli.ingest.row_sources import RowSource
from paimon_cli.ingest.rows import IncomingRows, RowKindFilter
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.metadata import data_file_schema
from paimon_cli.metadata.data_file import BucketId, CommitMessage, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.choices import CompactionMode, OnError
from paimon_cli.options.option_text import counted
from paimon_cli.requests.compaction import StrategyName
from paimon_cli.requests.writing import WriteOptions
from paimon_cli.write.write_plan import (
    BucketAssignment,
    CompactionWhileWriting,
    IndexAssignment,
    LookupAssignment,
    PostponingWriter,
    TargetBuckets,
    WritePlan,
)

_UPSERT, _DELETE = "upsert", "delete"


class WriteRequest(WriteOptions):
    """What to write, and how. Write-only tables are never compacted by writers. `properties`: of the snapshot; see
    `CommitIdentity`.
    """

    source: RowSource
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def static_partition(self) -> PartitionValues | None:
        """The partition that an overwrite replaces, by the values that the user typed; None for those that get rows."""
        return None if self.partition is None else self.partition[0]

    @property
    def compaction(self) -> str:
        """How the writer tasks compact when the triggers are reached."""
        return CompactionMode.NONE if self.compact == CompactionMode.AFTER else self.compact or CompactionMode.INLINE

    @property
    def reject_file(self) -> RejectFile | None:
        return RejectFile(self.on_error) if self.on_error not in (OnError.FAIL, OnError.SKIP) else None


def splits_of(context: TableContext, request: WriteRequest) -> tuple[SourceSplit, ...]:
    """The input cut into splits, which can be read repeatedly. Warns of a file that several sources name, such as two globs."""
    if (rejects := request.reject_file) is not None:
        rejects.check(request.source.paths)
    splits = tuple(request.source.plan(allow_empty=request.overwrite or request.allow_empty))
    if rejects is not None:
        rejects.check({split.path for split in splits})  # a directory or a pattern may have it among its files
    begins = [split for split in splits if request.source.paths and split.start == 0]
    met = Counter(split.path for split in begins)
    repeated = list(dict.fromkeys(split.name for split in begins if met[split.path] > 1))
    if repeated:
        others = f" and {counted(len(repeated) - 1, 'other file')}" if len(repeated) > 1 else ""
        context.cache.warn(f"named more than once, and read as often: {repeated[0]}{others}")
    return splits


def plan_write(
    context: TableContext, request: WriteRequest, commit_user: str = "", splits: tuple[SourceSplit, ...] | None = None
) -> WritePlan:
    """Plan a write at the latest snapshot. `splits`: those of the source, if they are already known."""
    if request.overwrite:
        expect_not_tiered(context, "replace rows of")
    snapshot = context.snapshots.latest_to_plan()
    check_place(context, snapshot)
    if snapshot is None:
        context.expect_existing()
    moves_rows = context.mode.bucket_mode.moves_keys
    state = bucket_files(context, None if request.overwrite and not moves_rows else snapshot)
    committed = committed_state(state)
    read_snapshot_id = _read_snapshot_id(context, snapshot, request.read_snapshot)
    file_stamp = new_stamp(context)
    return WritePlan(
        context=context,
        incoming=IncomingRows(
            context.schema,
            data_file_schema.RowKind.DELETE if request.op == "delete" else data_file_schema.RowKind.INSERT,
            request.op_column,
            request.source,
            kind_filter=RowKindFilter.of(context.schema, context.options),
            skips_bad_rows=request.on_error != OnError.FAIL,
            missing_are_null=request.missing_columns == "null",
            table=context.layout.argument,
            own_buckets=None if request.bucket is None else OwnBuckets.of(context, request.bucket, request.other_buckets),
        ),
        splits=splits_of(context, request) if splits is None else splits,
        buckets=_target_buckets(context, state, committed),
        assignment=_assignment(context, request, snapshot, committed),
        first_sequences=_first_sequences(context, committed),
        read_snapshot_id=read_snapshot_id,
        file_stamp=file_stamp,
        postponing_writer=PostponingWriter(commit_user),
        compaction=_compaction(context, request, snapshot, state, file_stamp),
        replaces_rows=request.overwrite,
        parallelism=request.parallelism,
        planned_at=snapshot.id if snapshot else None,
    )


def _compaction(
    context: TableContext, request: WriteRequest, snapshot: Snapshot | None, state: LazyBuckets, file_stamp: str
) -> CompactionWhileWriting | None:
    """How the writers compact; None if they do not."""
    moves_rows = context.mode.bucket_mode.moves_keys
    if request.compaction == CompactionMode.NONE or context.leaves_compaction or (request.overwrite and moves_rows):
        return None
    if why_not_compactable(context) is not None:
        return None
    strategy = strategy_of(context, request.commit_id)
    compact_bucket = WriterCompaction(snapshot.id if snapshot else 0, file_stamp, strategy)
    return CompactionWhileWriting(compact_bucket, state, request.compaction == CompactionMode.ASYNC)


def _assignment(
    context: TableContext, request: WriteRequest, snapshot: Snapshot | None, committed: CommittedState
) -> BucketAssignment | None:
    """How keys get their buckets, if that depends on other rows. Hash indexes start empty in an overwrite."""
    if context.mode.bucket_mode.moves_keys:
        buckets = _lookup_buckets(context, request, snapshot)
        return LookupAssignment(buckets=buckets, read_at=snapshot.id if snapshot else 0)
    if context.mode.bucket_mode.indexes_keys:
        continued = None if request.overwrite else snapshot
        return IndexAssignment(indexes=HashIndexes.at(context, continued, committed.total_buckets))
    return None


def _lookup_buckets(context: TableContext, request: WriteRequest, snapshot: Snapshot | None) -> LazyBuckets:
    """The buckets in which incoming keys may already exist, where the primary key does not determine the partition.

    Buckets that an overwrite is known to replace are left out. Raises `NotSupported` if that cannot be known in advance.
    """
    if not request.overwrite:
        return bucket_files(context, snapshot)
    if request.static_partition is not None:
        replaced = PartitionSpec.parse(context, request.static_partition)
        return bucket_files(context, snapshot, FileFilter(lambda partition: not replaced.matches(partition)))
    if not replaces_named_partitions(context):
        return bucket_files(context, None)
    if not context.mode.merge_engine.newest_wins:
        raise NotSupported(
            f"an overwrite of the partitions that get rows, in a table with merge-engine={context.mode.merge_engine.name}",
            "rows go to the partition where their key lives, so the partitions to replace are not known in advance",
            "name the partition with --partition; dynamic-partition-overwrite=false replaces the rows of all partitions",
        )
    return bucket_files(context, snapshot)


def _target_buckets(context: TableContext, state: LazyBuckets, committed: CommittedState) -> TargetBuckets:
    option = context.options.bucket
    if context.mode.batches_have_buckets:
        known = partition_counts(context, state)
        assigned = counts_in_advance(context, known)
        return TargetBuckets(option, assigned=assigned, known=known if assigned is None else None)
    if context.mode.bucket_mode.postpones:
        return TargetBuckets(option)
    totals = {partition: total for (partition, _), total in committed.total_buckets.items()}
    return TargetBuckets(option, others={partition: total for partition, total in totals.items() if total != option})


def strategy_of(context: TableContext, commit_id: int | None) -> StrategyName:
    """How a commit compacts: by the triggers of the table, or fully if `full-compaction.delta-commits` requires it.

    It does at commits whose identifier is a multiple of it, and at all commits without one, as in Paimon's batch jobs.
    """
    every = context.options.full_compaction_delta_commits
    return FULL_STRATEGY if every is not None and (commit_id is None or commit_id % every == 0) else MINOR_STRATEGY


def _first_sequences(context: TableContext, committed: CommittedState) -> dict[BucketId, int]:
    """The first sequence number of the write in each bucket; empty if files have no order, so that all writers start at 0."""
    if not context.mode.bucket_mode.has_buckets:
        return {}
    return committed.next_sequences


def _read_snapshot_id(context: TableContext, latest: Snapshot | None, given: int | None) -> int | None:
    newest = None if latest is None else latest.id
    if given is not None and given > (newest or 0):
        raise context.snapshots.missing(given)
    return newest if given is None else given


def overwritten(
    context: TableContext, messages: Sequence[CommitMessage], static_partition: PartitionValues | None, is_dynamic: bool
) -> PartitionSpec:
    """The partitions that an overwrite replaces: the static one, those that get rows (`is_dynamic`), or all.

    Raises `BadInput` if a row is outside the static partition.
    """
    with_rows = [message for message in messages if not _only_deletes(context, message)]
    if static_partition is None:
        partitions = {message.partition for message in with_rows}
        return (
            PartitionSpec.exactly(context, partitions)
            if is_dynamic and context.schema.partition_keys
            else PartitionSpec.everything()
        )
    spec = PartitionSpec.parse(context, static_partition)
    for message in with_rows:
        if not spec.matches(message.partition):
            raise BadInput(
                f"rows of partition {partition_text(context, message.partition)} are outside the partition to overwrite",
                "nothing was committed",
                "leave those rows out of the input; without --partition every partition that gets rows is replaced",
            )
    return spec


def _only_deletes(context: TableContext, message: CommitMessage) -> bool:
    """Whether the message only deletes keys that have moved to another partition."""
    moves_rows = context.mode.bucket_mode.moves_keys
    return moves_rows and all(file.delete_row_count == file.row_count for file in message.append.added)


def replaces_named_partitions(context: TableContext) -> bool:
    """Whether an overwrite without `--partition` replaces only the partitions that get rows (dynamic overwrite)."""
    return context.options.dynamic_partition_overwrite and bool(context.schema.partition_keys)
