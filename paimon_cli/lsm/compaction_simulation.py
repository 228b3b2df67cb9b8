"""Simulates the compaction of buckets over time, without data.

The picker is the one that real compactions use; the runs that it picks from are only figures: rows, bytes, key ranges.
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
    """The estimated result of merging the runs. Integer keys are assumed to be spread evenly over the buckets."""
    low, high = min(run.low for run in runs), max(run.high for run in runs)
    min_rows, total = _min_rows(runs), sum(run.rows for run in runs)
    key_space = _possible_keys(low, high, buckets)
    if key_space is None:
        rows = min_rows
    else:
        absent = 1.0
        key_space = max(key_space, min_rows)
        for run in runs:
            absent *= 1 - min(run.rows, key_space) / key_space
        rows = max(min_rows, min(total, round(key_space * (1 - absent))))
    size = sum(run.size for run in runs)
    return RunModel(rows, round(size * rows / total) if total else 0, low, high)


def _possible_keys(low: Key, high: Key, buckets: int) -> int | None:
    if len(low) == 1 and isinstance(low[0], int) and isinstance(high[0], int):
        return max(1, (high[0] - low[0] + 1) // max(1, buckets))
    return None


def _min_rows(runs: Sequence[RunModel]) -> int:
    """The fewest rows that a merge may leave: those of the largest run, or of disjoint runs, chosen greedily."""
    rows, reach = 0, None
    for run in sorted(runs, key=lambda run: run.high):
        if reach is None or run.low > reach:
            rows, reach = rows + run.rows, run.high
    return max(rows, *(run.rows for run in runs))


SPACE_SAMPLES = 20


class Figures(Protocol):
    """What a simulation knows of a sorted run: its rows and bytes, and what its `Merge` needs."""

    @property
    def rows(self) -> int: ...

    @property
    def size(self) -> int: ...


R = TypeVar("R", bound=Figures)
OnCommit = Callable[[], None]
Merge = Callable[[Sequence[R]], R]
"""The result of merging runs, newest first."""


@dataclass(frozen=True)
class SimulatedCommit(Generic[R]):
    """What one commit adds at `millis` (epoch millis). `flushed`: level-0 runs by bucket; `emptied`: buckets that an overwrite
    empties first.
    """

    millis: int
    flushed: Mapping[Hashable, Sequence[R]]
    emptied: frozenset[Hashable] = frozenset()


@dataclass(frozen=True)
class SimulatedWorkload(Generic[R]):
    """Commits to simulate. `begin`: the runs of each bucket before the first commit, newest first, with their levels."""

    commits: Sequence[SimulatedCommit[R]]
    merge: Merge[R]
    begin: Mapping[Hashable, Sequence[tuple[int, R]]] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulationResult:
    """What a simulation has counted.

    `write_amplification`: bytes written by flushes and compactions, divided by those of flushes. `read_amplification`,
    `most_runs`: sorted runs of a bucket after a commit that wrote to it, on average and at most. `space_amplification`,
    `space_amplification_at_end`: bytes stored, divided by bytes if fully merged, on average and at the end. `stalls`: flushes
    that would have waited at `num-sorted-run.stop-trigger`.
    """

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
    """Run the commits. Each bucket may compact once every `rounds_every` commits, and when one of its flushes stalls.

    A merge rewrites everything that is picked; a single run changes its level at no cost. `on_commit` is called after each
    commit.
    """
    state = _Simulation(workload, options, hour_of)
    space: list[float] = []
    sample_interval = max(1, len(workload.commits) // SPACE_SAMPLES)
    for number, commit in enumerate(workload.commits, start=1):
        state.take(commit)
        if number % rounds_every == 0:
            state.compact_all(commit.millis)
        if number % sample_interval == 0:
            space.append(state.space_amplification())
        if on_commit is not None:
            on_commit()
    return state.result(space)


class _Simulation(Generic[R]):
    """The current state of the buckets, and what has been counted so far."""

    def __init__(self, workload: SimulatedWorkload[R], options: TableOptions, hour_of: Callable[[int], int]) -> None:
        self._merge, self._options, self._hour_of = workload.merge, options, hour_of
        self._commits = len(workload.commits)
        self._buckets = {bucket_id: list(runs) for bucket_id, runs in workload.begin.items()}
        self._states = dict.fromkeys(self._buckets, UNKNOWN)
        self._flushed = self._compacted = self._full = self._stalls = 0
        self._depths: list[int] = []
        self._reasons: dict[str, int] = {}

    def take(self, commit: SimulatedCommit[R]) -> None:
        for bucket_id in commit.emptied:
            self._buckets[bucket_id] = []
        for bucket_id, runs in commit.flushed.items():
            bucket = self._buckets.setdefault(bucket_id, [])
            for run in runs:
                if len(bucket) > self._options.stop_trigger:
                    self._stalls += 1
                    self._compact(bucket_id, commit.millis)
                    bucket = self._buckets[bucket_id]
                bucket.insert(0, (0, run))
                self._flushed += run.size
            self._depths.append(len(bucket))

    def compact_all(self, now: int) -> None:
        for bucket_id in self._buckets:
            self._compact(bucket_id, now)

    def _compact(self, bucket_id: Hashable, now: int) -> None:
        bucket = self._buckets[bucket_id]
        max_level = max([self._options.num_levels - 1, *(level for level, _ in bucket)])
        picker = CompactionPicker.of(self._options, max_level, self._hour_of(now))
        sizes = [RunSize(level, run.size) for level, run in bucket]
        pick, self._states[bucket_id] = picker.pick(sizes, now, self._states.get(bucket_id, UNKNOWN))
        if pick is None or (pick.run_count == 1 and bucket[0][0] == pick.output_level):
            return
        picked = [run for _, run in bucket[: pick.run_count]]
        merged = picked[0]
        if len(picked) > 1:
            merged = self._merge(picked)
            self._compacted += merged.size
        self._full += pick.run_count == len(bucket)
        self._reasons[pick.reason] = self._reasons.get(pick.reason, 0) + 1
        self._buckets[bucket_id] = [(pick.output_level, merged), *bucket[pick.run_count :]]

    def space_amplification(self) -> float:
        """Bytes stored, divided by bytes if fully merged: 1.0 if no key is stored twice."""
        kept = sum(run.size for bucket in self._buckets.values() for _, run in bucket)
        fully_merged = sum(self._merge([run for _, run in bucket]).size for bucket in self._buckets.values() if bucket)
        return kept / fully_merged if fully_merged else 1.0

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
    """The shape of a synthetic workload. The same shape, including `seed`, gives the same commits.

    `update_ratio`: the share of a commit's rows whose keys exist; `skew`: 0 chooses these keys evenly, higher values prefer the
    oldest keys. Times in millis, sizes in bytes.
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
    """A run with its keys, which are distinct and ascending."""

    keys: np.ndarray
    row_bytes: int

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        return self.rows * self.row_bytes


def synthetic_workload(shape: WorkloadShape, on_commit: OnCommit | None = None) -> SimulatedWorkload[KeySetRun]:
    """A workload of this shape. `on_commit` is called after each commit that was generated."""
    random = np.random.default_rng(shape.seed)
    known, commits = 0, []
    for number in range(shape.commits):
        updates = int(shape.rows * shape.update_ratio) if known else 0
        old = (known * random.random(updates) ** (1 + shape.skew)).astype(np.int64)
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
