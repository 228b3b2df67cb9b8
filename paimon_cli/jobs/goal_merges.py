"""Which merges a goal asks for in a table: what reads have paid, what its files cost to replace, and what must be left alone.

Only merges of sorted runs are chosen. Append tables, tables whose full compactions make the changelog, and tables that compact by
a schedule keep Paimon's own triggers, and so does everything without a goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.trigger_replays import TriggerReplay, TriggerReplays
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, CompactionPicker
from paimon_cli.lsm.rent_or_buy import (
    HOUR_MILLIS,
    UNKNOWN_READS,
    BucketMerges,
    Goal,
    MergeCandidates,
    MergeChoice,
    MergeOption,
    best_merges,
    merge_options,
    patience_of,
)
from paimon_cli.lsm.sorted_runs import highest_level, sorted_runs
from paimon_cli.lsm.universal_compaction import CompactionPick, run_sizes
from paimon_cli.maintain.expire_partitions import partition_ends
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.requests.upkeep import GoalName
from paimon_cli.storage.injected import local_hour, moment_of_wall_clock

TAG_HOURS = 720.0
"""How long the files of a tag are taken to stay, if nothing else says so."""
READS_PAY, TOO_MANY_RUNS = "reads-pay", "most-runs"
"""Reasons of picks."""

ReadRates = Callable[[str, str], float]
"""How often a bucket is read in an hour: of a table, by its name and the path of the partition (empty without partitions)."""


def unknown_reads(table: str, partition: str) -> float:
    """Nothing is known, so all tables count alike."""
    return UNKNOWN_READS


def counted_reads(proportion: Callable[[str], float]) -> ReadRates:
    """The rates of a table of which it is known in proportion to the mean how often each partition is read, by its path."""

    def rate(table: str, partition: str) -> float:
        return UNKNOWN_READS * proportion(partition)

    return rate


@dataclass(frozen=True)
class GoalChoices:
    """What the goal says about each bucket. `due`: when the next merge will be worth it (epoch millis), or empty."""

    of: Mapping[BucketId, MergeChoice] = field(default_factory=dict)
    due: Sequence[int] = ()


NO_CHOICES = GoalChoices()


@dataclass(frozen=True)
class GoalMerges:
    """How a goal chooses the merges of a table. `most_bytes`: what one merge may read at most, since no budget allows more.

    `affords`: whether the budget has this many bytes now, beside what it keeps for merges that must be made. `replays`: what
    replays have found of the tables; None to decide by reads alone.
    """

    goal: Goal
    table: str = ""
    reads: ReadRates = unknown_reads
    most_bytes: float = math.inf
    affords: Callable[[int], bool] = lambda size: True
    replays: TriggerReplays | None = None

    def choices(self, context: TableContext, buckets: Collection[BucketFiles]) -> GoalChoices:
        """A choice for each bucket with sorted runs; none where the table is left to its triggers."""
        buckets = [bucket for bucket in buckets if bucket.bucket != POSTPONE_BUCKET]
        if not buckets or left_alone(context) is not None:
            return NO_CHOICES
        now, goal = context.clock.now_millis(), self.goal
        if not context.leaves_compaction:
            goal = replace(goal, most_runs=min(goal.most_runs, context.options.stop_trigger))
        charge = _Charge.of(context, goal)
        ends = partition_ends(context, {bucket.partition for bucket in buckets})
        merges = [self._merges(context, bucket, charge, ends, now) for bucket in buckets]
        found = MergeCandidates.of(merges)
        chosen = best_merges(found, now, goal, self.most_bytes)
        flat = [option for of_bucket in merges for option in of_bucket.options]
        of: dict[BucketId, MergeChoice] = {}
        for index, score, is_forced in zip(chosen.index.tolist(), chosen.score.tolist(), chosen.is_forced.tolist(), strict=True):
            number = int(found.bucket[index])
            picked = _picked(flat[index], merges[number], score, is_forced, now, goal)
            of[buckets[number].bucket_id] = replace(picked, is_affordable=self.affords(flat[index].cost))
        begin, scores = 0, found.score(now, goal).tolist()
        for bucket, of_bucket in zip(buckets, merges, strict=True):
            scored = [*zip(scores[begin : begin + len(of_bucket.options)], of_bucket.options, strict=True)]
            begin += len(scored)
            if bucket.bucket_id not in of:
                of[bucket.bucket_id] = self._not_yet(of_bucket, scored, now, goal)
        replayed = self._replayed(context, charge)
        if replayed is not None and replayed.follows_triggers:
            for bucket, of_bucket in zip(buckets, merges, strict=True):
                if of[bucket.bucket_id].score < math.inf:
                    of[bucket.bucket_id] = self._by_triggers(context, bucket, of_bucket, of[bucket.bucket_id], replayed)
            return GoalChoices(of)
        due = found.due(goal)
        coming = due[(due > now) & (found.cost <= self.most_bytes) & ~(due == math.inf)]
        return GoalChoices(of, [math.ceil(coming.min())] if len(coming) else ())

    def _merges(
        self, context: TableContext, bucket: BucketFiles, charge: _Charge, ends: Mapping[bytes, int], now: int
    ) -> BucketMerges:
        runs = sorted_runs(bucket.files, context.key_of)
        options = merge_options(
            runs,
            max(context.options.num_levels - 1, highest_level(bucket.files)),
            int(context.mode.target_file_size * context.options.small_file_ratio),
            context.key_of,
            charge.created,
            rewrite_all=context.options.force_rewrite_all_files or context.options.record_level_expire_time is not None,
            charge=charge,
        )
        rate = self._rate(context, bucket.partition)
        left = math.inf if bucket.partition not in ends else (ends[bucket.partition] - now) / HOUR_MILLIS
        return BucketMerges(options, len(runs), rate, left, patience_of(self.table, *bucket.bucket_id))

    def _replayed(self, context: TableContext, charge: _Charge) -> TriggerReplay | None:
        """What a replay has found of the table; None if there was none."""
        if self.replays is None:
            return None
        return self.replays.of(self.table, context, self.goal, lambda partition: self._rate(context, partition), charge.usual)

    def _rate(self, context: TableContext, partition: bytes) -> float:
        return self.reads(self.table, context.partition_path_of(partition).rstrip("/"))

    def _by_triggers(
        self, context: TableContext, bucket: BucketFiles, merges: BucketMerges, by_reads: MergeChoice, replayed: TriggerReplay
    ) -> MergeChoice:
        """What the triggers pick in a bucket; with a score, so that it takes its place among merges by reads."""
        runs, now = sorted_runs(bucket.files, context.key_of), context.clock.now_millis()
        max_level = max(context.options.num_levels - 1, highest_level(bucket.files))
        picker, sizes = CompactionPicker.of(context.options, max_level, local_hour(now)), run_sizes(runs)
        pick = picker.strategy.pick(sizes, now)
        if pick is None:
            return MergeChoice(None, by_reads.score, why=f"{picker.why_not(sizes, NEVER_PICKED)}; {replayed}")
        option = next((option for option in merges.options if option.run_count == pick.run_count), None)
        cost = sum(run.size for run in runs[: pick.run_count]) if option is None else option.cost
        if cost > self.most_bytes:
            return by_reads
        pick = replace(pick, arithmetic=f"{pick.arithmetic}; {replayed}")
        return MergeChoice(pick, max(1.0, by_reads.score), cost, is_affordable=self.affords(cost))

    def _not_yet(self, merges: BucketMerges, scored: Sequence[tuple[float, MergeOption]], now: int, goal: Goal) -> MergeChoice:
        if not scored:
            return MergeChoice(None, why="one run" if merges.runs == 1 else f"{merges.runs} runs, none of which can be merged")
        score, best = max(scored, key=lambda pair: pair[0])
        if best.cost > self.most_bytes and score >= 1:
            why = f"a merge reads {best.cost} bytes, more than the {int(self.most_bytes)} that the budget and caps.bytes allow"
        elif not score and math.isfinite(merges.hours_left):
            why = f"its partition expires in {merges.hours_left:.1f} h, before a merge would pay"
        else:
            why = f"score {score:.2f} < 1: {best.arithmetic(merges, now, goal)}"
        return MergeChoice(None, score, why=why)


def merges_of(goal: GoalName | None) -> GoalMerges | None:
    """How the goal of this name chooses merges; None without one, for the triggers of the tables."""
    return None if goal is None else GoalMerges(Goal.of(goal))


def _picked(option: MergeOption, merges: BucketMerges, score: float, is_forced: bool, now: int, goal: Goal) -> MergeChoice:
    said = f"score {score:.2f}: {option.arithmetic(merges, now, goal)}"
    if is_forced:
        said = f"{merges.runs} runs > {goal.most_runs}; {said}"
    pick = CompactionPick(option.output_level, option.run_count, TOO_MANY_RUNS if is_forced else READS_PAY, said)
    return MergeChoice(pick, math.inf if is_forced else score, option.cost)


def left_alone(context: TableContext) -> str | None:
    """Why the triggers of the table stay in force whatever the goal is; None if they need not."""
    options = context.options
    if not context.mode.has_keys:
        return "it has no sorted runs"
    if context.mode.changelog_producer.compares_top_levels or options.full_compaction_delta_commits is not None:
        return "its full compactions follow the commits of writers"
    if options.optimization_interval is not None or options.total_size_threshold or options.incremental_size_threshold:
        return "its options schedule full compactions"
    return None


@dataclass(frozen=True)
class _Charge:
    """What rewriting a byte of a file costs, in bytes: the file is kept until no snapshot, consumer or tag needs it any more.

    `hours`: how long for the sake of snapshots and consumers; `tag_hours`: of files that were made before `tagged_until` (epoch
    millis), which are in a tag.
    """

    hours: float
    tag_hours: float
    tagged_until: int
    storage_hours: float

    @classmethod
    def of(cls, context: TableContext, goal: Goal) -> _Charge:
        now, options = context.clock.now_millis(), context.options
        hours = options.snapshot_time_retained / HOUR_MILLIS
        # the oldest snapshot is older than the retention if a consumer lags, or if nothing expires here
        earliest = context.snapshots.earliest_id()
        oldest = None if earliest is None else context.snapshots.find(earliest)
        if oldest is not None:
            hours = max(hours, (now - oldest.time_millis) / HOUR_MILLIS)
        tag = context.tags.newest()
        if tag is None:
            return cls(hours, 0.0, 0, goal.storage_hours)
        stays = TAG_HOURS if tag.retained_millis is None else tag.retained_millis / HOUR_MILLIS
        return cls(hours, stays, tag.snapshot.time_millis, goal.storage_hours)

    @property
    def usual(self) -> float:
        """For files without a tag."""
        return 1.0 + self.hours / self.storage_hours

    def __call__(self, file: DataFileMeta) -> float:
        hours = max(self.hours, self.tag_hours) if self.created(file) <= self.tagged_until else self.hours
        return 1.0 + hours / self.storage_hours

    @staticmethod
    def created(file: DataFileMeta) -> int:
        return 0 if file.creation_time_millis is None else moment_of_wall_clock(file.creation_time_millis)
