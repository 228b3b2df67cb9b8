"""The plan of a compaction at a snapshot: one decision per bucket, within the limits of a round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_cli.compact.bucket_counts import countable_partitions, decide_counts
from paimon_cli.compact.compaction_plan import FULL_STRATEGY, check_compactable, plan_bucket, sort_bucket
from paimon_cli.compact.compaction_task import (
    CompactionTask,
    Decision,
    PostponedRows,
    RegroupedPartition,
    SkippedBucket,
    left_to_expiry,
)
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import BucketFiles, LazyBuckets, bucket_files, bucket_numbers, expect_buckets
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.stale_buckets import mixed_partitions, movable_partitions, size_to_move
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import UnfinishedRescale, unfinished_rescale
from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Work
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, PickState
from paimon_cli.lsm.rent_or_buy import MergeChoice
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.maintain.expire_partitions import expiring_partitions
from paimon_cli.metadata.data_file import SOURCE_COMPACT, BucketId, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.html_text import ShownAsTable
from paimon_cli.storage.injected import moment_of_wall_clock
from paimon_cli.storage.ranged_file import requests_of

RECORD_EXPIRY = "record-level.expire-time"


@dataclass(frozen=True)
class BucketFigures:
    """Figures about the selected buckets of a table, for monitoring. Sizes are bytes; `picked`: the buckets to be compacted.

    `uncompacted_since`: creation time (epoch millis) of the oldest level-0 file, in append tables of the oldest picked
    file; None if there is none. `waiting_records`: stored records that reads do not show before a compaction. `read_requests`:
    those to an object store that fetch all data files.
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
    read_requests: int = 0

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
            sum(requests_of(file.file_size) for bucket in buckets for file in bucket.files),
        )

    @property
    def average_level_0_files(self) -> float:
        return self.level_0_files / self.buckets if self.buckets else 0


NO_BUCKETS = BucketFigures()


@dataclass(frozen=True)
class CompactionPlan(ShownAsTable):
    """The decisions for all selected buckets at one snapshot. A dry run shows them; a run carries them out.

    `mixed`: partitions with files of several bucket counts whose rows can be moved, which a service does before it compacts the
    table; `unfinished`: a rescale that was interrupted, which it finishes; `size_to_move`: the bytes that both read.
    `idle_at`: when the next partition will have been idle for `idle_time`, or the next merge will be worth it by the goal (epoch
    millis); None if none is waiting.
    """

    snapshot_id: int | None
    decisions: tuple[Decision, ...] = ()
    figures: BucketFigures = NO_BUCKETS
    idle_at: int | None = None
    mixed: tuple[bytes, ...] = ()
    unfinished: UnfinishedRescale | None = None
    size_to_move: int = 0

    def prepared(self, file_stamp: str, limits: CompactRequest) -> CompactionPlan:
        """This plan with a file stamp for its tasks, and within the limits of the request."""
        stamped = (d.stamped(file_stamp) if isinstance(d, CompactionTask) else d for d in self.decisions)
        return replace(self, decisions=apply_limits(tuple(stamped), limits))

    @property
    def tasks(self) -> list[CompactionTask]:
        return tasks_of(self.decisions)

    @property
    def postponed(self) -> list[PostponedRows]:
        """Partitions with postponed rows, which are distributed before any bucket is compacted."""
        return [decision for decision in self.decisions if isinstance(decision, PostponedRows)]

    @property
    def regrouped(self) -> list[RegroupedPartition]:
        """Partitions whose buckets are split or merged, after postponed rows are distributed."""
        return regrouped_in(self.decisions)

    @property
    def picked(self) -> int:
        """How many buckets are compacted, and partitions distributed, split or merged."""
        return sum(not isinstance(decision, SkippedBucket) for decision in self.decisions)

    @property
    def has_work(self) -> bool:
        return bool(self.tasks or self.postponed or self.regrouped or self.mixed or self.unfinished)

    @property
    def work(self) -> Work:
        parts = (self.tasks, self.postponed, self.regrouped)
        return Work.of(file for part in parts for task in part for file in task.files)


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
        from paimon_cli.jobs.sort_job import check_sortable

        check_sortable(context, request.order)
    at_snapshot = request.if_snapshot
    snapshot = context.snapshots.latest_to_plan() if at_snapshot is None else context.snapshots.get(at_snapshot)
    if snapshot is None:
        context.expect_existing()
        if not request.unknown_buckets_allowed:
            expect_buckets(context, request.bucket or (), ())
        return CompactionPlan(None)
    buckets = _chosen_buckets(context, request, snapshot)
    on_files(snapshot, buckets)
    newest = newest_data(buckets.values()) if request.idle_time is not None else {}
    expiring = expiring_partitions(context, {bucket.partition for bucket in buckets})
    wanted = {bucket_id: bucket for bucket_id, bucket in sorted(buckets.items()) if only is None or bucket_id in only}
    regrouped = _regrouped(context, request, buckets, expiring)
    left_alone = {*expiring, *regrouped}
    by_goal = request.choices(context, [bucket for bucket in wanted.values() if bucket.partition not in left_alone])

    def decide(bucket: BucketFiles) -> Decision:
        if request.order is not None:
            return sort_bucket(bucket, str(request.order), snapshot.id, file_stamp)
        strategy: str | MergeChoice = request.strategy if by_goal is None else by_goal.of.get(bucket.bucket_id, request.strategy)
        runs = count_runs(bucket.files)
        if bucket.partition in expiring:
            return left_to_expiry(bucket)
        if request.idle_time is not None:
            age = context.clock.now_millis() - newest[bucket.partition]
            if age >= request.idle_time:
                strategy = FULL_STRATEGY
            elif strategy == FULL_STRATEGY:
                return SkippedBucket(*bucket.bucket_id, runs, f"new data {age / 1000:.0f} s ago, not idle yet")
        state = (states or {}).get(bucket.bucket_id, NEVER_PICKED)
        decision = plan_bucket(context, bucket, strategy, snapshot.id, file_stamp, state, request.forces_level_0)
        return request.noting_ranges(context, decision)

    judged = (bucket for bucket in wanted.values() if bucket.partition not in regrouped or bucket.bucket < 0)
    made = sorted((*map(decide, judged), *regrouped.values()), key=lambda decision: decision.bucket_id)
    decisions = tuple(decision for decision in made if only is None or decision.bucket_id in only)
    waiting = [*(moment + (request.idle_time or 0) for moment in newest.values()), *(() if by_goal is None else by_goal.due)]
    idle_at = min((moment for moment in waiting if moment > context.clock.now_millis()), default=None)
    figures = BucketFigures.of(context, buckets.values(), decisions)
    plan = CompactionPlan(snapshot.id, apply_limits(decisions, request), figures, idle_at)
    if not request.mends_counts(context):
        return plan
    return _with_counts(context, plan, snapshot, buckets.table)


def _with_counts(context: TableContext, plan: CompactionPlan, snapshot: Snapshot, table: FileTable) -> CompactionPlan:
    """The plan with what is to be mended of the bucket counts of the live files."""
    counts = table.bucket_counts()
    is_mixed = context.options.bucket > 0 and bool(mixed_partitions(counts))
    mixed = {found.partition: found for found in movable_partitions(context, snapshot)} if is_mixed else {}
    unfinished, size = unfinished_rescale(context, counts), sum(found.size for found in mixed.values())
    if unfinished is not None:
        moved = {partition for partition, found in mixed.items() if found.buckets == unfinished.buckets}
        size += size_to_move(table, unfinished.partitions - moved, unfinished.buckets)
    return replace(plan, mixed=tuple(mixed), unfinished=unfinished, size_to_move=size)


def _chosen_buckets(context: TableContext, request: CompactRequest, snapshot: Snapshot) -> LazyBuckets:
    chosen, numbers = PartitionSpec.parse_any(context, request.partition or ()), bucket_numbers(request.bucket)
    buckets = bucket_files(context, snapshot, FileFilter(chosen.matches, numbers))
    if numbers and not request.unknown_buckets_allowed and not numbers <= {bucket for _, bucket in buckets}:
        expect_buckets(context, request.bucket or (), bucket_files(context, snapshot).values())
    return buckets


def _regrouped(
    context: TableContext, request: CompactRequest, buckets: LazyBuckets, expiring: Collection[bytes]
) -> dict[bytes, RegroupedPartition]:
    """The partitions that should have another bucket count, as far as the limits of the request allow."""
    if not (request.may_regroup and context.mode.bucket_mode.postpones):
        return {}
    held = {key: found for key, found in countable_partitions(buckets).items() if key not in expiring}
    counts = (decision for decision in decide_counts(context, held) if decision.new_buckets != decision.buckets)
    wanted = [RegroupedPartition.of(held[count.partition], count.new_buckets, count.reason) for count in counts]
    return {decision.partition: decision for decision in regrouped_in(apply_limits(wanted, request))}


def regrouped_in(decisions: Iterable[Decision]) -> list[RegroupedPartition]:
    return [decision for decision in decisions if isinstance(decision, RegroupedPartition)]


def rows_dropped_after(context: TableContext, plan: CompactionPlan) -> str | None:
    """The age after which rows are dropped by the compactions of the plan; None if they drop none."""
    return context.options.raw.get(RECORD_EXPIRY) if plan.has_work else None


def tasks_of(plans: Iterable[Decision]) -> list[CompactionTask]:
    """The tasks, largest first, so that the longest one does not start last."""
    return sorted((plan for plan in plans if isinstance(plan, CompactionTask)), key=lambda task: -task.size)


def by_urgency(decisions: Iterable[Decision]) -> list[CompactionTask | PostponedRows | RegroupedPartition]:
    """What is to be done, the most urgent first: splits and merges of buckets, then by the scores of a goal, then the buckets
    with the most runs, since reads gain most from compacting them.
    """
    picked = (d for d in decisions if not isinstance(d, SkippedBucket))
    return sorted(picked, key=lambda t: (not isinstance(t, RegroupedPartition), -(t.score or 0), -t.runs_before, t.size))


def apply_limits(decisions: Sequence[Decision], limits: CompactRequest) -> tuple[Decision, ...]:
    """Turn the tasks that exceed the limits of a request into skipped buckets; the most urgent ones come first."""
    works = by_urgency(decisions)
    later: dict[BucketId, Decision] = {}
    size, count, turn = limits.bytes_before, len(limits.distributed), 0
    owed = sum(_level_0_size(task) for task in works)
    for planned in works:
        # level 0 that readers wait for comes first: also before the deeper part of merges that are more urgent
        owed -= _level_0_size(planned)
        task = _fitting(planned, limits.budget_bytes, size, owed)
        if limits.max_buckets is not None and count >= limits.max_buckets:
            left = _left(task, f"this round already has {limits.max_buckets} buckets (--max-buckets, caps.buckets)")
            later[task.bucket_id] = replace(left, is_over_cap=True)
        elif limits.max_bytes is not None and size + task.read_size > limits.max_bytes:
            is_beyond = task.read_size > limits.max_bytes
            needs = f"; it waits until that is at least {task.read_size}b" if is_beyond else ""
            left = _left(task, f"{size} + {task.read_size} bytes > {limits.max_bytes} (--max-bytes, caps.bytes){needs}")
            later[task.bucket_id] = replace(left, is_over_cap=True, is_beyond=is_beyond)
        elif limits.budget_bytes is not None and size + task.read_size > limits.budget_bytes - _held(task, owed):
            says = limits.budget_says or f"{size} + {task.read_size} bytes > {limits.budget_bytes} that are left of --budget"
            is_beyond = limits.budget_whole is not None and task.read_size > limits.budget_whole
            if is_beyond and limits.merges is None:
                says = f"it reads {task.read_size} bytes, and the whole budget suffices for {limits.budget_whole}"
            left = _left(task, says)
            later[task.bucket_id] = replace(left, is_over_budget=True, is_beyond=is_beyond)
        elif limits.turn_bytes is not None and turn and turn + task.read_size > limits.turn_bytes:
            later[task.bucket_id] = replace(_left(task, "other tables are waiting for their turn"), waits_for_turn=True)
        else:
            size, count, turn = size + task.read_size, count + 1, turn + task.read_size
            if task is not planned:
                later[task.bucket_id] = task
    return tuple(later.get(decision.bucket_id, decision) for decision in decisions)


def _level_0_size(task: CompactionTask | PostponedRows | RegroupedPartition) -> int:
    """The bytes that must be read, because readers wait for level 0."""
    return task.level_0_size if isinstance(task, CompactionTask) else 0


def _held(task: CompactionTask | PostponedRows | RegroupedPartition, owed: int) -> int:
    """What of a budget the task leaves alone: what is `owed` to level 0 of other buckets, unless it is such a merge itself."""
    is_level_0 = isinstance(task, CompactionTask) and task.level_0_size > 0 and task.level_0_alone is None
    return 0 if is_level_0 else owed


def _fitting(
    task: CompactionTask | PostponedRows | RegroupedPartition, budget: int | None, size: int, owed: int
) -> CompactionTask | PostponedRows | RegroupedPartition:
    """The task; that for level 0 alone if the budget has not enough for it beside the `size` of others and what is `owed`."""
    if budget is None or not isinstance(task, CompactionTask) or task.level_0_alone is None:
        return task
    return task if size + task.read_size + owed <= budget else task.level_0_alone


def _left(task: CompactionTask | PostponedRows | RegroupedPartition, why: str) -> SkippedBucket:
    """The decision to leave a bucket for a later round."""
    reason = f"{task.reason}, but {why}"
    return SkippedBucket(
        task.partition, task.bucket, task.runs_before, reason, files=len(task.files), size=task.read_size, score=task.score
    )


def newest_data(buckets: Iterable[BucketFiles]) -> dict[bytes, int]:
    """When each partition last received data (epoch millis): its newest file, preferring files not written by a compaction."""
    newest: dict[bytes, tuple[bool, int]] = {}
    for bucket in buckets:
        for file in bucket.files:
            moment = moment_of_wall_clock(file.creation_time_millis or 0)
            candidate = (file.file_source != SOURCE_COMPACT, moment)
            newest[bucket.partition] = max(newest.get(bucket.partition, candidate), candidate)
    return {partition: moment for partition, (_, moment) in newest.items()}
