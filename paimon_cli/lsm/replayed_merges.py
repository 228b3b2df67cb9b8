"""Replays the commits of a table once with merges by reads and once with its triggers, and says what each way would have cost.

Merges by reads save most where tables or partitions differ. Inside one bucket the triggers of the table are sometimes as good, or
better: they look at sizes, and a goal looks at ages. Which way is better depends on what is written, so it is tried: both costs
are in the bytes of the goal, those that merges read, and those that the goal would pay for each run that a read opens.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple

from paimon_cli.lsm.compaction_picker import NEVER_PICKED, CompactionPicker, PickState
from paimon_cli.lsm.compaction_simulation import SimulatedCommit
from paimon_cli.lsm.rent_or_buy import (
    HOUR_MILLIS,
    BucketMerges,
    Goal,
    MergeCandidates,
    best_merges,
    merge_options,
    runs_of_a_read,
)
from paimon_cli.lsm.simulated_bucket import FiguresT, Merge, Rolling, SimulatedFiles, SimulatedRun, compacted
from paimon_cli.lsm.universal_compaction import RunSize

LEAST_COMMITS, MOST_COMMITS = 25, 100
"""How many commits are replayed: fewer say too little, and older ones say little about those to come."""
CLEARLY = 0.98
"""Triggers are followed where they cost at most this part of what merges by reads cost: the next commits are others."""


class ReplayedCosts(NamedTuple):
    """What the same commits cost with merges by reads, and with the triggers, in bytes."""

    by_reads: float
    by_triggers: float

    @property
    def follows_triggers(self) -> bool:
        return self.by_triggers < CLEARLY * self.by_reads


@dataclass(frozen=True)
class ReplayedTable(Generic[FiguresT]):
    """What is replayed: the sorted runs of each bucket at the beginning, newest first, and the commits that follow.

    `rates`: reads an hour of each bucket. `patience`: of each bucket, see `BucketMerges`. `charge`: what rewriting a byte costs,
    in bytes.
    """

    begin: Mapping[Hashable, Sequence[SimulatedRun[FiguresT]]]
    commits: Sequence[SimulatedCommit[FiguresT]]
    merge: Merge[FiguresT]
    rates: Callable[[Hashable], float]
    max_level: int
    rolling: Rolling
    charge: float = 1.0
    patience: Callable[[Hashable], float] = lambda key: 1.0


@dataclass
class ReplayedBucket(Generic[FiguresT]):
    """A simulated bucket, with what is derived of its runs until they change. `runs`: newest first."""

    merge: Merge[FiguresT]
    rolling: Rolling
    max_level: int
    charge: float = 1.0
    runs: list[SimulatedRun[FiguresT]] = field(default_factory=list)
    state: PickState = NEVER_PICKED
    _opened: float | None = None
    _merges: BucketMerges | None = None

    @property
    def opened(self) -> float:
        """How many runs a read opens, on the average over all rows."""
        if self._opened is None:
            self._opened = runs_of_a_read((file.low, file.high, file.rows) for run in self.runs for file in run.files)
        return self._opened

    def flush(self, run: FiguresT, now: int, level: int = 0) -> None:
        """Add a run that was made at `now` (epoch millis)."""
        parts = tuple(run.parts(self.rolling.target_size)) if level else (run,)
        self.runs.insert(0, SimulatedRun(level, parts, now))
        self._changed()

    def empty(self) -> None:
        self.runs = []
        self._changed()

    def compact(self, run_count: int, output_level: int, now: int) -> int:
        """Merge the newest runs; returns the bytes that are read."""
        done = compacted(self.runs[:run_count], output_level, self.max_level, self.merge, self.rolling, now)
        self.runs[:run_count] = [done.run]
        self._changed()
        return done.read

    def compact_by_triggers(self, picker: CompactionPicker, now: int) -> int | None:
        """Do what the triggers pick, if anything; returns the bytes that are read, or None."""
        pick, self.state = picker.pick([RunSize(run.level, run.size) for run in self.runs], now, self.state)
        if pick is None or (pick.run_count == 1 and self.runs[0].level == pick.output_level):
            return None
        return self.compact(pick.run_count, pick.output_level, now)

    def merges(self, rate: float, patience: float = 1.0) -> BucketMerges:
        """The merges among which a goal chooses. `rate`: reads an hour; `patience`: see `BucketMerges`."""
        if self._merges is None:
            files = SimulatedFiles.of(self.runs, self.max_level)
            found = merge_options(
                files.runs,
                self.max_level,
                self.rolling.small_size,
                files.key_of,
                lambda meta: meta.creation_time_millis or 0,
                rewrite_all=self.rolling.rewrite_all,
                charge=lambda meta: self.charge,
            )
            self._merges = BucketMerges(found, len(self.runs))
        return replace(self._merges, rate=rate, patience=patience)

    def _changed(self) -> None:
        self._opened = self._merges = None


def replayed_costs(
    table: ReplayedTable[FiguresT],
    goal: Goal,
    picker_at: Callable[[int], CompactionPicker],
) -> ReplayedCosts:
    """Replay the table both ways. `picker_at`: its triggers, at a moment (epoch millis)."""
    return ReplayedCosts(cost_by_reads(table, goal, picker_at), cost_by_triggers(table, goal, picker_at))


def cost_by_reads(table: ReplayedTable[FiguresT], goal: Goal, picker_at: Callable[[int], CompactionPicker]) -> float:
    """What the table would have cost with the merges of the goal. Level 0 is forced where `picker_at` does."""

    def round_of(buckets: Mapping[Hashable, ReplayedBucket[FiguresT]], changed: frozenset[Hashable], now: int) -> float:
        several = [(key, bucket) for key, bucket in buckets.items() if len(bucket.runs) > 1]
        merges = [bucket.merges(table.rates(key), table.patience(key)) for key, bucket in several]
        found = MergeCandidates.of(merges)
        flat, cost, done = [option for of_bucket in merges for option in of_bucket.options], 0.0, set[Hashable]()
        for index in best_merges(found, now, goal).index.tolist():
            key, bucket = several[int(found.bucket[index])]
            done.add(key)
            cost += _price(bucket.compact(flat[index].run_count, flat[index].output_level, now), table, goal)
        picker = picker_at(now)
        for key in changed - done if picker.forced_every is not None else ():
            read = buckets[key].compact_by_triggers(picker.forcing_only(len(buckets[key].runs)), now)
            cost += 0 if read is None else _price(read, table, goal)
        return cost

    return _cost(table, goal, round_of)


def cost_by_triggers(table: ReplayedTable[FiguresT], goal: Goal, picker_at: Callable[[int], CompactionPicker]) -> float:
    """What the table would have cost with its triggers. `picker_at`: they, at a moment (epoch millis)."""

    def round_of(buckets: Mapping[Hashable, ReplayedBucket[FiguresT]], changed: frozenset[Hashable], now: int) -> float:
        picker = picker_at(now)
        found = (buckets[key].compact_by_triggers(picker, now) for key in changed)
        return sum(_price(read, table, goal) for read in found if read is not None)

    return _cost(table, goal, round_of)


def _price(read: int, table: ReplayedTable[FiguresT], goal: Goal) -> float:
    return read * table.charge + goal.bytes_per_merge


_Round = Callable[[Mapping[Hashable, ReplayedBucket[FiguresT]], frozenset[Hashable], int], float]
"""Merges in buckets of which some have changed, at a moment (epoch millis); returns what that costs."""


def _cost(table: ReplayedTable[FiguresT], goal: Goal, round_of: _Round[FiguresT]) -> float:
    """Follow each commit with a round, and add up its price and that of the runs that reads open until the next commit."""
    buckets: dict[Hashable, ReplayedBucket[FiguresT]] = {}

    def bucket_of(key: Hashable) -> ReplayedBucket[FiguresT]:
        if key not in buckets:
            runs = [*table.begin.get(key, ())]
            max_level = max([table.max_level, *(run.level for run in runs)])
            buckets[key] = ReplayedBucket(table.merge, table.rolling, max_level, table.charge, runs)
        return buckets[key]

    for key in table.begin:
        bucket_of(key)
    cost, before = 0.0, table.commits[0].millis if table.commits else 0
    for commit in table.commits:
        hours = max(0, commit.millis - before) / HOUR_MILLIS
        cost += sum(bucket.opened * table.rates(key) for key, bucket in buckets.items()) * hours * goal.bytes_per_run
        before = commit.millis
        for key in commit.emptied:
            bucket_of(key).empty()
        for key, runs in commit.flushed.items():
            for run in runs:
                bucket_of(key).flush(run, commit.millis)
        cost += round_of(buckets, frozenset(commit.flushed), commit.millis)
    return cost
