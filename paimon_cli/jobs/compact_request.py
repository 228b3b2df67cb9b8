"""The request for a compaction and its plan at a snapshot: one decision per bucket, within the limits of a round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_cli.compact.compaction_plan import FULL_STRATEGY, check_compactable, plan_bucket, sort_bucket
from paimon_cli.compact.compaction_task import CompactionTask, Decision, PostponedRows, SkippedBucket, left_to_expiry
from paimon_cli.history.live_files import BucketFiles, LazyBuckets, bucket_files, bucket_numbers, expect_buckets
from paimon_cli.history.partition_spec import PartitionSpec, PartitionValues
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.jobs.engine import Work
from paimon_cli.jobs.sort_job import check_sortable
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, PickState
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.maintain.expire_partitions import expiring_partitions
from paimon_cli.metadata.data_file import SOURCE_COMPACT, BucketId, CommitMessage, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import OnConflict
from paimon_cli.storage.injected import moment_of_wall_clock
from paimon_cli.write.sorted_write import SortOrder

MIN_MEMORY = 1 << 20

States = dict[BucketId, PickState]
"""What a process remembers about a table's buckets from one plan to the next."""


@dataclass(frozen=True)
class RoundLimits:
    """The maximum bytes to read and buckets to compact in one round of one table; None: no limit.

    `turn_bytes`: the limit of a turn in a service while other tables wait; one bucket is compacted even if it is larger.
    """

    max_bytes: int | None = None
    max_buckets: int | None = None
    turn_bytes: int | None = None

    def after(self, messages: Sequence[CommitMessage]) -> RoundLimits:
        """What remains of the limits after postponed rows were distributed."""
        distributed = [message for message in messages if message.bucket == POSTPONE_BUCKET]
        size = sum(file.file_size for message in distributed for file in message.compact.removed)
        return replace(
            self,
            max_bytes=None if self.max_bytes is None else max(0, self.max_bytes - size),
            max_buckets=None if self.max_buckets is None else max(0, self.max_buckets - len(distributed)),
        )


UNLIMITED = RoundLimits()


@dataclass(frozen=True)
class CompactRequest:
    """The user's request; no partitions or buckets means all of them.

    `idle_millis`: partitions without new data for this long are fully compacted; others follow the strategy, or are skipped
    if it is `full` as well. `at_snapshot`: plan at this snapshot instead of the latest. `memory`: bytes for all merges of
    one process. `unknown_buckets_allowed`: ignore bucket numbers that a table lacks, for requests to several tables.
    `order`: sort the rows of whole partitions instead of following the strategy. `forces_level_0`: as for `plan_bucket`.
    """

    strategy: str = "full"
    partitions: tuple[PartitionValues, ...] = ()
    buckets: tuple[int | range, ...] = ()
    on_conflict: str = OnConflict.RETRY
    limits: RoundLimits = UNLIMITED
    idle_millis: int | None = None
    at_snapshot: int | None = None
    memory: int | None = None
    unknown_buckets_allowed: bool = False
    order: SortOrder | None = None
    forces_level_0: bool = True


@dataclass(frozen=True)
class BucketFigures:
    """Figures about the selected buckets of a table, for monitoring. Sizes are bytes; `picked`: the buckets to be compacted.

    `uncompacted_since`: creation time (epoch millis) of the oldest level-0 file, in append tables of the oldest picked
    file; None if there is none. `waiting_records`: stored records that reads do not show before a compaction.
    """

    buckets: int = 0
    files: int = 0
    size: int = 0
    min_average_size: int = 0
    most_runs: int = 0
    level_0_files: int = 0
    max_level_0_files: int = 0
    uncompacted_since: int | None = None
    max_bucket_size: int = 0
    picked: int = 0
    waiting_records: int = 0

    @classmethod
    def of(cls, context: TableContext, buckets: Collection[BucketFiles], decisions: Collection[Decision]) -> BucketFigures:
        level_0 = [[file for file in bucket.files if file.level == 0] for bucket in buckets] if context.mode.has_keys else []
        sizes = [(len(bucket.files), sum(file.file_size for file in bucket.files)) for bucket in buckets]
        due = [file for files in level_0 for file in files]
        if not context.mode.has_keys:
            due = [file for task in tasks_of(decisions) for file in task.files]
        made = [file.creation_time_millis for file in due if file.creation_time_millis is not None]
        return cls(
            len(sizes),
            sum(count for count, _ in sizes),
            sum(size for _, size in sizes),
            min((size // count for count, size in sizes if count), default=0),
            max((decision.runs_before for decision in decisions), default=0),
            sum(map(len, level_0)),
            max(map(len, level_0), default=0),
            moment_of_wall_clock(min(made)) if made else None,
            max((size for _, size in sizes), default=0),
            sum(not isinstance(decision, SkippedBucket) for decision in decisions),
            sum(waiting_rows(context.mode, bucket.bucket, bucket.files) for bucket in buckets) if context.mode.hides_files else 0,
        )

    @property
    def average_level_0_files(self) -> float:
        return self.level_0_files / self.buckets if self.buckets else 0


NO_BUCKETS = BucketFigures()


@dataclass(frozen=True)
class CompactionPlan:
    """The decisions for all selected buckets at one snapshot. A dry run shows them; a run carries them out.

    `idle_at`: when the next partition will have been idle for `idle_millis` (epoch millis); None if no partition is waiting.
    """

    snapshot_id: int | None
    decisions: tuple[Decision, ...] = ()
    figures: BucketFigures = NO_BUCKETS
    idle_at: int | None = None

    def prepared(self, file_stamp: str, limits: RoundLimits) -> CompactionPlan:
        """This plan with a file stamp for its tasks, and within limits."""
        stamped = (replace(d, file_stamp=file_stamp) if isinstance(d, CompactionTask) else d for d in self.decisions)
        return replace(self, decisions=apply_limits(tuple(stamped), limits))

    @property
    def tasks(self) -> list[CompactionTask]:
        return tasks_of(self.decisions)

    @property
    def postponed(self) -> list[PostponedRows]:
        """Partitions with postponed rows, which are distributed before any bucket is compacted."""
        return [decision for decision in self.decisions if isinstance(decision, PostponedRows)]

    @property
    def has_work(self) -> bool:
        return bool(self.tasks or self.postponed)

    @property
    def work(self) -> Work:
        return Work.of(file for part in (self.tasks, self.postponed) for task in part for file in task.files)


def plan_compaction(
    context: TableContext,
    request: CompactRequest,
    file_stamp: str = "",
    states: Mapping[BucketId, PickState] | None = None,
    only: frozenset[BucketId] | None = None,
    on_files: Callable[[Snapshot, LazyBuckets], object] = lambda snapshot, buckets: None,
) -> CompactionPlan:
    """Make a decision for each selected bucket at the requested snapshot (default: the latest).

    `only`: restrict the plan to these buckets. `on_files`: receives what was read of the snapshot. Raises `NotSupported` if the
    table cannot be compacted, `UsageError` for unknown partitions or buckets.
    """
    check_compactable(context)
    if request.order is not None:
        check_sortable(context, request.order)
    at_snapshot = request.at_snapshot
    snapshot = context.snapshots.latest_to_plan() if at_snapshot is None else context.snapshots.get(at_snapshot)
    if snapshot is None:
        context.expect_existing()
        if not request.unknown_buckets_allowed:
            expect_buckets(context, request.buckets, ())
        return CompactionPlan(None)
    chosen = PartitionSpec.parse_any(context, request.partitions)
    numbers = bucket_numbers(request.buckets)
    buckets = bucket_files(context, snapshot, FileFilter(chosen.matches, numbers))
    on_files(snapshot, buckets)
    if numbers and not request.unknown_buckets_allowed and not numbers <= {bucket for _, bucket in buckets}:
        expect_buckets(context, request.buckets, bucket_files(context, snapshot).values())
    newest = newest_data(buckets.values()) if request.idle_millis is not None else {}
    expiring = expiring_partitions(context, {bucket.partition for bucket in buckets})

    def decide(bucket: BucketFiles) -> Decision:
        if request.order is not None:
            return sort_bucket(bucket, str(request.order), snapshot.id, file_stamp)
        strategy, runs = request.strategy, count_runs(bucket.files)
        if bucket.partition in expiring:
            return left_to_expiry(bucket)
        if request.idle_millis is not None:
            age = context.clock.now_millis() - newest[bucket.partition]
            if age >= request.idle_millis:
                strategy = FULL_STRATEGY
            elif strategy == FULL_STRATEGY:
                return SkippedBucket(*bucket.bucket_id, runs, f"new data {age / 1000:.0f} s ago, not idle yet")
        state = (states or {}).get(bucket.bucket_id, NEVER_PICKED)
        return plan_bucket(context, bucket, strategy, snapshot.id, file_stamp, state, request.forces_level_0)

    decisions = tuple(decide(bucket) for bucket_id, bucket in sorted(buckets.items()) if only is None or bucket_id in only)
    waiting = [moment + (request.idle_millis or 0) for moment in newest.values()]
    idle_at = min((moment for moment in waiting if moment > context.clock.now_millis()), default=None)
    figures = BucketFigures.of(context, buckets.values(), decisions)
    return CompactionPlan(snapshot.id, apply_limits(decisions, request.limits), figures, idle_at)


def tasks_of(plans: Iterable[Decision]) -> list[CompactionTask]:
    """The tasks, largest first, so that the longest one does not start last."""
    return sorted((plan for plan in plans if isinstance(plan, CompactionTask)), key=lambda task: -task.size)


def apply_limits(decisions: Sequence[Decision], limits: RoundLimits) -> tuple[Decision, ...]:
    """Turn the tasks that exceed the limits into skipped buckets.

    Buckets with the most runs come first, since reads gain most from compacting them.
    """
    picked = (d for d in decisions if not isinstance(d, SkippedBucket))
    by_urgency = sorted(picked, key=lambda task: (-task.runs_before, task.size))
    later: dict[BucketId, SkippedBucket] = {}
    size = count = 0
    for task in by_urgency:
        if limits.max_buckets is not None and count >= limits.max_buckets:
            later[task.bucket_id] = _left(task, f"this round already has {limits.max_buckets} buckets (--max-buckets)")
        elif limits.max_bytes is not None and size + task.size > limits.max_bytes:
            later[task.bucket_id] = _left(task, f"{size} + {task.size} bytes > {limits.max_bytes} (--max-bytes)")
        elif limits.turn_bytes is not None and count and size + task.size > limits.turn_bytes:
            later[task.bucket_id] = replace(_left(task, "other tables are waiting for their turn"), waits_for_turn=True)
        else:
            size, count = size + task.size, count + 1
    return tuple(later.get(decision.bucket_id, decision) for decision in decisions)


def _left(task: CompactionTask | PostponedRows, why: str) -> SkippedBucket:
    """The decision to leave a bucket for a later round."""
    reason = f"{task.reason}, but {why}"
    return SkippedBucket(task.partition, task.bucket, task.runs_before, reason, files=len(task.files), size=task.size)


def newest_data(buckets: Iterable[BucketFiles]) -> dict[bytes, int]:
    """When each partition last received data (epoch millis): its newest file, preferring files not written by a compaction."""
    newest: dict[bytes, tuple[bool, int]] = {}
    for bucket in buckets:
        for file in bucket.files:
            moment = moment_of_wall_clock(file.creation_time_millis or 0)
            candidate = (file.file_source != SOURCE_COMPACT, moment)
            newest[bucket.partition] = max(newest.get(bucket.partition, candidate), candidate)
    return {partition: moment for partition, (_, moment) in newest.items()}
