"""A model of leveled compaction: what a table's commits would cost in a tree such as RocksDB's.

Flushed runs accumulate on level 0; at the trigger all of them are merged into level 1. Each deeper level is one sorted run, whose
size limit is ten times that of the level above. The excess of a level moves down, and is merged with the overlapping part of the
next level: the same share of both runs, because keys are assumed to be spread evenly. Universal compaction instead merges whole
runs of similar size and leaves several of them: it rewrites less often, and readers merge more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.lsm.compaction_simulation import SPACE_SAMPLES, RunModel, SimulatedCommit, SimulatedWorkload, SimulationResult
from paimon_cli.lsm.seen_runs import SeenRuns

FANOUT = 10
"""The size limit of a level, divided by that of the level above."""
LEVEL_0_FULL, LEVEL_OVERFLOW = "level-0-full", "level-overflow"


@dataclass
class LeveledBucket:
    """Level-0 runs, newest first, and the one run of each deeper level."""

    level_0: list[RunModel] = field(default_factory=list)
    levels: dict[int, RunModel] = field(default_factory=dict)

    @property
    def runs(self) -> list[RunModel]:
        """All runs, newest first."""
        return [*self.level_0, *(self.levels[level] for level in sorted(self.levels))]


def simulate_leveled(workload: SimulatedWorkload[RunModel], trigger: int, base_size: int) -> SimulationResult:
    """Run the commits, with a round of compaction after each.

    `trigger`: the number of level-0 runs that are merged into level 1, whose limit is `base_size` bytes. The figures are defined
    as for universal compaction; writers never wait.
    """
    tree = _LeveledTree(workload, trigger, max(1, base_size))
    space: list[float] = []
    sample_interval = max(1, len(workload.commits) // SPACE_SAMPLES)
    for number, commit in enumerate(workload.commits, start=1):
        tree.take(commit)
        for bucket_id in tree.buckets:
            tree.compact(bucket_id, commit.millis)
        if number % sample_interval == 0:
            space.append(tree.space_amplification())
    return tree.result(len(workload.commits), space)


class _LeveledTree:
    """The current state of the buckets, and what has been counted so far."""

    def __init__(self, workload: SimulatedWorkload[RunModel], trigger: int, base_size: int) -> None:
        self._merge, self._trigger, self._base_size = workload.merge, trigger, base_size
        self._flushed = self._compacted = self._full = 0
        self._seen, self._lag, self._now = SeenRuns(), workload.lag, 0
        self._reasons: dict[str, int] = {}
        self.buckets: dict[Hashable, LeveledBucket] = {
            bucket_id: self._begin([run for _, run in runs]) for bucket_id, runs in workload.begin.items()
        }

    def _begin(self, runs: Sequence[RunModel]) -> LeveledBucket:
        """The initial content of a bucket as one run, on the first level whose limit it does not exceed."""
        if not runs:
            return LeveledBucket()
        merged, level = self._merge(runs), 1
        while merged.size > self._limit(level):
            level += 1
        return LeveledBucket(levels={level: merged})

    def _limit(self, level: int) -> int:
        return self._base_size * FANOUT ** (level - 1)

    def take(self, commit: SimulatedCommit[RunModel]) -> None:
        self._now = commit.millis
        for bucket_id in commit.emptied:
            self.buckets[bucket_id] = LeveledBucket()
            self._seen.end(bucket_id, commit.millis)
        for bucket_id, runs in commit.flushed.items():
            bucket = self.buckets.setdefault(bucket_id, LeveledBucket())
            bucket.level_0[:0] = reversed(runs)
            self._flushed += sum(run.size for run in runs)
            self._seen.written(bucket_id, commit.millis, len(bucket.runs))

    def compact(self, bucket_id: Hashable, now: int) -> None:
        bucket = self.buckets[bucket_id]
        self._compact(bucket)
        if self._lag is not None:
            self._seen.compacted(bucket_id, now + self._lag, len(bucket.runs))

    def _compact(self, bucket: LeveledBucket) -> None:
        if len(bucket.level_0) >= self._trigger:
            self._full += not bucket.levels.keys() - {1}
            merged = self._merge([*bucket.level_0, *(bucket.levels[level] for level in (1,) if level in bucket.levels)])
            self._count(LEVEL_0_FULL, merged.size)
            bucket.level_0, bucket.levels[1] = [], merged
        level = 1
        while level in bucket.levels:
            if bucket.levels[level].size > self._limit(level):
                self._overflow(bucket, level)
            level += 1

    def _overflow(self, bucket: LeveledBucket, level: int) -> None:
        """Move the excess of a level down. If the next level is empty, files only change their level."""
        run, below = bucket.levels[level], bucket.levels.get(level + 1)
        share = (run.size - self._limit(level)) / run.size
        bucket.levels[level] = _part(run, 1 - share)
        if below is None:
            bucket.levels[level + 1] = _part(run, share)
            return
        merged = self._merge([run, below])
        self._count(LEVEL_OVERFLOW, round(share * merged.size))
        rows, size = (round(old + share * (new - old)) for old, new in ((below.rows, merged.rows), (below.size, merged.size)))
        bucket.levels[level + 1] = replace(merged, rows=rows, size=size)

    def _count(self, reason: str, size: int) -> None:
        self._compacted += size
        self._reasons[reason] = self._reasons.get(reason, 0) + 1

    def space_amplification(self) -> float:
        kept = [bucket.runs for bucket in self.buckets.values() if bucket.runs]
        fully_merged = sum(self._merge(runs).size for runs in kept)
        return sum(run.size for runs in kept for run in runs) / fully_merged if fully_merged else 1.0

    def result(self, commits: int, space: Sequence[float]) -> SimulationResult:
        runs = self._seen.mean(self._now)  # before `most`, which it completes by the last states
        return SimulationResult(
            commits=commits,
            flushed_bytes=self._flushed,
            compacted_bytes=self._compacted,
            compactions=sum(self._reasons.values()),
            full_compactions=self._full,
            stalls=0,
            write_amplification=round((self._flushed + self._compacted) / self._flushed, 2) if self._flushed else 0.0,
            read_amplification=round(runs, 2),
            most_runs=self._seen.most,
            space_amplification=round(sum(space) / len(space), 2) if space else 1.0,
            space_amplification_at_end=round(self.space_amplification(), 2),
            reasons=self._reasons,
        )


def _part(run: RunModel, share: float) -> RunModel:
    return replace(run, rows=round(run.rows * share), size=round(run.size * share))
