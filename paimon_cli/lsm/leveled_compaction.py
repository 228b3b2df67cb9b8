"""Leveled compaction as a pure model: what a table's commits would cost in a tree such as RocksDB's.

Flushed runs gather on level 0; at the trigger all of them are merged with level 1. Each deeper level is one sorted run with a
limit, ten times that of the level above. What is over its limit moves down and is merged with the part of the next level that
lies under it: of both runs the same share, since keys are taken to be spread evenly. Universal compaction merges whole runs of
similar size instead, and lets several of them stand: it rewrites less often, and readers merge more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.lsm.compaction_simulation import SPACE_SAMPLES, RunModel, SimulatedWorkload, SimulationResult

FANOUT = 10
"""How much larger the limit of a level is than that of the level above it."""
LEVEL_0_FULL, LEVEL_OVERFLOW = "level-0-full", "level-overflow"


@dataclass
class LeveledBucket:
    """Level-0 runs, newest first, and the one run of each deeper level."""

    level_0: list[RunModel] = field(default_factory=list)
    levels: dict[int, RunModel] = field(default_factory=dict)

    @property
    def runs(self) -> list[RunModel]:
        """Newest first."""
        return [*self.level_0, *(self.levels[level] for level in sorted(self.levels))]


def simulate_leveled(workload: SimulatedWorkload[RunModel], trigger: int, base_size: int) -> SimulationResult:
    """Run the commits, with a round of compaction after each. `trigger`: level-0 runs that are merged into level 1, whose limit
    is `base_size` bytes. The figures mean what they mean of a simulated universal compaction; writers never wait."""
    tree = _LeveledTree(workload, trigger, max(1, base_size))
    space: list[float] = []
    sampled = max(1, len(workload.commits) // SPACE_SAMPLES)
    for number, commit in enumerate(workload.commits, start=1):
        for place in commit.emptied:
            tree.buckets[place] = LeveledBucket()
        for place, runs in commit.flushed.items():
            for run in runs:
                tree.flush(place, run)
        for bucket in tree.buckets.values():
            tree.compact(bucket)
        if number % sampled == 0:
            space.append(tree.space_amplification())
    return tree.result(len(workload.commits), space)


class _LeveledTree:
    """The buckets as they are now, and what was counted on the way."""

    def __init__(self, workload: SimulatedWorkload[RunModel], trigger: int, base_size: int) -> None:
        self._merge, self._trigger, self._base_size = workload.merge, trigger, base_size
        self._flushed = self._compacted = self._full = 0
        self._depths: list[int] = []
        self._reasons: dict[str, int] = {}
        self.buckets: dict[Hashable, LeveledBucket] = {
            place: self._begin([run for _, run in runs]) for place, runs in workload.begin.items()
        }

    def _begin(self, runs: Sequence[RunModel]) -> LeveledBucket:
        """What a bucket holds at the beginning, as one run on the first level that it fits."""
        if not runs:
            return LeveledBucket()
        merged, level = self._merge(runs), 1
        while merged.size > self._limit(level):
            level += 1
        return LeveledBucket(levels={level: merged})

    def _limit(self, level: int) -> int:
        return self._base_size * FANOUT ** (level - 1)

    def flush(self, place: Hashable, run: RunModel) -> None:
        bucket = self.buckets.setdefault(place, LeveledBucket())
        bucket.level_0.insert(0, run)
        self._flushed += run.size
        self._depths.append(len(bucket.runs))

    def compact(self, bucket: LeveledBucket) -> None:
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
        """Move what is over the limit down; where nothing lies under it, its files only change their level."""
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
        least = sum(self._merge(runs).size for runs in kept)
        return sum(run.size for runs in kept for run in runs) / least if least else 1.0

    def result(self, commits: int, space: Sequence[float]) -> SimulationResult:
        return SimulationResult(
            commits=commits,
            flushed_bytes=self._flushed,
            compacted_bytes=self._compacted,
            compactions=sum(self._reasons.values()),
            full_compactions=self._full,
            stalls=0,
            write_amplification=round((self._flushed + self._compacted) / self._flushed, 2) if self._flushed else 0.0,
            read_amplification=round(sum(self._depths) / len(self._depths), 2) if self._depths else 0.0,
            most_runs=max(self._depths, default=0),
            space_amplification=round(sum(space) / len(space), 2) if space else 1.0,
            space_amplification_at_end=round(self.space_amplification(), 2),
            reasons=self._reasons,
        )


def _part(run: RunModel, share: float) -> RunModel:
    return replace(run, rows=round(run.rows * share), size=round(run.size * share))
