"""Compaction of buckets over time without data.

The picker of the real run works on runs that are only figures, under a synthetic workload.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from paimon_cli.datatypes.key_order import Key
from paimon_cli.lsm.compaction_picker import UNKNOWN, CompactionPicker
from paimon_cli.lsm.universal_compaction import RunSize
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class RunModel:
    """One sorted run: rows, bytes, and the first and last key."""

    rows: int
    size: int
    low: Key
    high: Key

    @property
    def row_bytes(self) -> float:
        return self.size / self.rows if self.rows else 0.0


def merged_run(runs: Sequence[RunModel], buckets: int) -> RunModel:
    """The result of merging the runs; integer keys are spread evenly over the buckets."""
    low, high = min(run.low for run in runs), max(run.high for run in runs)
    most, total = _disjoint_rows(runs), sum(run.rows for run in runs)
    room = _possible_keys(low, high, buckets)
    if room is None:
        rows = most
    else:
        absent = 1.0
        room = max(room, most)
        for run in runs:
            absent *= 1 - min(run.rows, room) / room
        rows = max(most, min(total, round(room * (1 - absent))))
    size = sum(run.size for run in runs)
    return RunModel(rows, round(size * rows / total) if total else 0, low, high)


def _possible_keys(low: Key, high: Key, buckets: int) -> int | None:
    if len(low) == 1 and isinstance(low[0], int) and isinstance(high[0], int):
        return max(1, (high[0] - low[0] + 1) // max(1, buckets))
    return None


def _disjoint_rows(runs: Sequence[RunModel]) -> int:
    """The least number of rows that remain: of the biggest run, or of disjoint runs, taken greedily."""
    rows, reach = 0, None
    for run in sorted(runs, key=lambda run: run.high):
        if reach is None or run.low > reach:
            rows, reach = rows + run.rows, run.high
    return max(rows, *(run.rows for run in runs))


SPACE_SAMPLES = 20


class Figures(Protocol):
    """What a sorted run is to a simulation: rows and bytes, and whatever its merge needs."""

    @property
    def rows(self) -> int: ...

    @property
    def size(self) -> int: ...


R = TypeVar("R", bound=Figures)
OnCommit = Callable[[], None]
Merge = Callable[[Sequence[R]], R]
"""The run that a merge of runs, newest first, gives."""


@dataclass(frozen=True)
class SimulatedCommit(Generic[R]):
    """What one commit brings: a level-0 run per bucket; `emptied`: buckets that an overwrite empties before. Epoch millis."""

    millis: int
    flushed: Mapping[Hashable, Sequence[R]]
    emptied: frozenset[Hashable] = frozenset()


@dataclass(frozen=True)
class SimulatedWorkload(Generic[R]):
    """`begin`: runs with their levels, newest first, that each bucket has before the first commit."""

    commits: Sequence[SimulatedCommit[R]]
    merge: Merge[R]
    begin: Mapping[Hashable, Sequence[tuple[int, R]]] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulationResult:
    """`write_amplification`: bytes written by flushes and compactions against those of flushes; `read_amplification`: sorted
    runs of a bucket that a commit has written to, on average and at most; `space_amplification`: bytes kept against bytes
    fully merged, on average and at the end; `stalls`: flushes that would have waited at `num-sorted-run.stop-trigger`."""

    commits: int
    flushed_bytes: int
    compacted_bytes: int
    compactions: int
    full_compactions: int
    stalls: int
    write_amplification: float
    read_amplification: float
    most_runs: int
    space_amplification: float
    space_amplification_at_end: float
    reasons: Mapping[str, int]


def simulate(
    workload: SimulatedWorkload[R],
    options: TableOptions,
    hour_of: Callable[[int], int],
    rounds_every: int = 1,
    on_commit: OnCommit | None = None,
) -> SimulationResult:
    """Run the commits; every `rounds_every` commits each bucket may compact once, and a flush that stalls makes its bucket do so.

    A merge rewrites all that is picked; a lone run changes its level at no cost. `on_commit` is called for each commit.
    """
    state = _Simulation(workload, options, hour_of)
    space: list[float] = []
    sampled = max(1, len(workload.commits) // SPACE_SAMPLES)
    for number, commit in enumerate(workload.commits, start=1):
        state.take(commit)
        if number % rounds_every == 0:
            state.compact_all(commit.millis)
        if number % sampled == 0:
            space.append(state.space_amplification())
        if on_commit is not None:
            on_commit()
    return state.result(space)


class _Simulation(Generic[R]):
    """The buckets as they are now, and what was counted on the way."""

    def __init__(self, workload: SimulatedWorkload[R], options: TableOptions, hour_of: Callable[[int], int]) -> None:
        self._merge, self._options, self._hour_of = workload.merge, options, hour_of
        self._commits = len(workload.commits)
        self._buckets = {place: list(runs) for place, runs in workload.begin.items()}
        self._states = dict.fromkeys(self._buckets, UNKNOWN)
        self._flushed = self._compacted = self._full = self._stalls = 0
        self._depths: list[int] = []
        self._reasons: dict[str, int] = {}

    def take(self, commit: SimulatedCommit[R]) -> None:
        for place in commit.emptied:
            self._buckets[place] = []
        for place, runs in commit.flushed.items():
            bucket = self._buckets.setdefault(place, [])
            for run in runs:
                if len(bucket) > self._options.stop_trigger:
                    self._stalls += 1
                    self._compact(place, commit.millis)
                    bucket = self._buckets[place]
                bucket.insert(0, (0, run))
                self._flushed += run.size
            self._depths.append(len(bucket))

    def compact_all(self, now: int) -> None:
        for place in self._buckets:
            self._compact(place, now)

    def _compact(self, place: Hashable, now: int) -> None:
        bucket = self._buckets[place]
        max_level = max([self._options.num_levels - 1, *(level for level, _ in bucket)])
        picker = CompactionPicker.of(self._options, max_level, self._hour_of(now))
        sizes = [RunSize(level, run.size) for level, run in bucket]
        pick, self._states[place] = picker.pick(sizes, now, self._states.get(place, UNKNOWN))
        if pick is None or (pick.run_count == 1 and bucket[0][0] == pick.output_level):
            return
        picked = [run for _, run in bucket[: pick.run_count]]
        made = picked[0]
        if len(picked) > 1:
            made = self._merge(picked)
            self._compacted += made.size
        self._full += pick.run_count == len(bucket)
        self._reasons[pick.reason] = self._reasons.get(pick.reason, 0) + 1
        self._buckets[place] = [(pick.output_level, made), *bucket[pick.run_count :]]

    def space_amplification(self) -> float:
        """1.0 where nothing is kept twice."""
        kept = sum(run.size for bucket in self._buckets.values() for _, run in bucket)
        least = sum(self._merge([run for _, run in bucket]).size for bucket in self._buckets.values() if bucket)
        return kept / least if least else 1.0

    def result(self, space: Sequence[float]) -> SimulationResult:
        written = self._flushed + self._compacted
        return SimulationResult(
            commits=self._commits,
            flushed_bytes=self._flushed,
            compacted_bytes=self._compacted,
            compactions=sum(self._reasons.values()),
            full_compactions=self._full,
            stalls=self._stalls,
            write_amplification=round(written / self._flushed, 2) if self._flushed else 0.0,
            read_amplification=round(sum(self._depths) / len(self._depths), 2) if self._depths else 0.0,
            most_runs=max(self._depths, default=0),
            space_amplification=round(sum(space) / len(space), 2) if space else 1.0,
            space_amplification_at_end=round(self.space_amplification(), 2),
            reasons=self._reasons,
        )


@dataclass(frozen=True)
class WorkloadShape:
    """`update_ratio`: share of a commit's rows whose keys exist; `skew`: 0 takes them evenly, more prefers the oldest keys.

    Times in millis, sizes in bytes. The same shape and `seed` give the same commits.
    """

    commits: int = 200
    rows: int = 10_000
    row_bytes: int = 100
    update_ratio: float = 0.5
    skew: float = 0.0
    buckets: int = 1
    commit_interval: int = 60_000
    seed: int = 0


@dataclass(frozen=True)
class KeySetRun:
    """A run that knows its keys: distinct, ascending."""

    keys: np.ndarray
    row_bytes: int

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        return self.rows * self.row_bytes


def synthetic_workload(shape: WorkloadShape, on_commit: OnCommit | None = None) -> SimulatedWorkload[KeySetRun]:
    """`on_commit` is called for each simulated commit."""
    chance = np.random.default_rng(shape.seed)
    known, commits = 0, []
    for number in range(shape.commits):
        updates = int(shape.rows * shape.update_ratio) if known else 0
        old = (known * chance.random(updates) ** (1 + shape.skew)).astype(np.int64)
        new = np.arange(known, known + shape.rows - updates)
        known += shape.rows - updates
        keys = np.unique(np.concatenate([old, new]))
        flushed: dict[Hashable, list[KeySetRun]] = {
            bucket: [KeySetRun(keys[keys % shape.buckets == bucket], shape.row_bytes)] for bucket in range(shape.buckets)
        }
        commits.append(SimulatedCommit[KeySetRun](number * shape.commit_interval, flushed))
        if on_commit is not None:
            on_commit()
    return SimulatedWorkload(commits, merged_keys)


def merged_keys(runs: Sequence[KeySetRun]) -> KeySetRun:
    return KeySetRun(np.unique(np.concatenate([run.keys for run in runs])), runs[0].row_bytes)
