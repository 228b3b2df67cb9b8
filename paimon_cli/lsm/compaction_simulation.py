"""Simulates the compaction of buckets over time, without data.

The picker and the steps are those of real compactions; the files that they work on are only figures: rows, bytes, key ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

import numpy as np

from paimon_cli.datatypes.key_order import Key
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, CompactionPicker
from paimon_cli.lsm.seen_runs import SeenRuns
from paimon_cli.lsm.simulated_bucket import FiguresT, Merge, Rolling, SimulatedRun, compacted
from paimon_cli.lsm.universal_compaction import RunSize
from paimon_cli.metadata.table_mode import KEYED_FILE_SIZE
from paimon_cli.options.table_options import TableOptions

MAX_PARTS = 10_000
"""The most files of a run: the sizes in a manifest may be false."""


@dataclass(frozen=True)
class RunModel:
    """One sorted run, or a file of it: rows, bytes, the first and last key, and whether it may hold deletes."""

    rows: int
    size: int
    low: Key
    high: Key
    has_deletes: bool = False

    @property
    def row_bytes(self) -> float:
        return self.size / self.rows if self.rows else 0.0

    def parts(self, size: int) -> Sequence[RunModel]:
        """Files of about `size` bytes; a single one if keys are not whole numbers, as it is not known where to divide them."""
        space = _possible_keys(self.low, self.high, 1)
        count = min(max(1, -(-self.size // size)), self.rows, space or 1, MAX_PARTS)
        if count <= 1 or space is None:
            return [self]
        low, ends = self.low[0], [number * space // count for number in range(count + 1)]
        rows, sizes = ([n * total // count for n in range(count + 1)] for total in (self.rows, self.size))
        return [
            RunModel(rows[n + 1] - rows[n], sizes[n + 1] - sizes[n], (low + ends[n],), (low + ends[n + 1] - 1,), self.has_deletes)
            for n in range(count)
        ]

    def joined(self, following: Sequence[RunModel]) -> RunModel:
        """One run with the files, which have greater keys."""
        files = (self, *following)
        rows, size = sum(file.rows for file in files), sum(file.size for file in files)
        return RunModel(rows, size, self.low, files[-1].high, any(file.has_deletes for file in files))


def merged_run(runs: Sequence[RunModel], buckets: int, overhead: int = 0) -> RunModel:
    """The estimated result of merging the runs. Integer keys are assumed to be spread evenly over the buckets.

    `overhead`: the bytes of a file besides those of its rows. Of the runs only one keeps them.
    """
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
    of_rows = sum(max(0, run.size - overhead) for run in runs)
    size = overhead + round(of_rows * rows / total) if total else 0
    return RunModel(rows, size, low, high, any(run.has_deletes for run in runs))


def _possible_keys(low: Key, high: Key, buckets: int) -> int | None:
    if len(low) == 1 and isinstance(low[0], int) and isinstance(high[0], int):
        return max(1, (high[0] - low[0] + 1) // max(1, buckets))
    return None


def _min_rows(runs: Sequence[RunModel]) -> int:
    """The fewest rows that a merge may leave: the rows of the largest run, or of disjoint runs, chosen greedily."""
    rows, reach = 0, None
    for run in sorted(runs, key=lambda run: run.high):
        if reach is None or run.low > reach:
            rows, reach = rows + run.rows, run.high
    return max(rows, *(run.rows for run in runs))


SPACE_SAMPLES = 20


OnCommit = Callable[[], None]


@dataclass(frozen=True)
class SimulatedCommit(Generic[FiguresT]):
    """What one commit adds at `millis` (epoch millis). `flushed`: level-0 runs by bucket; `emptied`: buckets that an overwrite
    empties first.
    """

    millis: int
    flushed: Mapping[Hashable, Sequence[FiguresT]]
    emptied: frozenset[Hashable] = frozenset()


@dataclass(frozen=True)
class SimulatedWorkload(Generic[FiguresT]):
    """Commits to simulate. `begin`: the runs of each bucket before the first commit, newest first, with their levels.

    `lag`: for how long (millis) readers see a commit without the compaction that follows it: 0 where writers compact, None if
    that is not known, so until the next commit.
    """

    commits: Sequence[SimulatedCommit[FiguresT]]
    merge: Merge[FiguresT]
    begin: Mapping[Hashable, Sequence[tuple[int, FiguresT]]] = field(default_factory=dict)
    lag: int | None = 0


@dataclass(frozen=True)
class SimulationResult:
    """What a simulation has counted.

    `write_amplification`: bytes written by flushes and compactions, divided by those of flushes. `read_amplification`,
    `most_runs`: sorted runs that readers find in a bucket after a commit that wrote to it, on average and at most, see
    `SeenRuns`. `space_amplification`, `space_amplification_at_end`: bytes stored, divided by bytes if fully merged, on average
    and at the end. `stalls`: flushes that would have waited at `num-sorted-run.stop-trigger`.
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
    workload: SimulatedWorkload[FiguresT],
    options: TableOptions,
    hour_of: Callable[[int], int],
    rounds_every: int = 1,
    on_commit: OnCommit | None = None,
    counted_from: int = 0,
) -> SimulationResult:
    """Run the commits. Each bucket may compact once every `rounds_every` commits, and when one of its flushes stalls.

    A compaction rewrites the files that real ones would rewrite; the others change their level at no cost. `on_commit` is called
    after each commit. The figures leave out the first `counted_from` commits, which only make the runs on which the others work.
    """
    state = _Simulation(workload, options, hour_of)
    space: list[float] = []
    sample_interval = max(1, len(workload.commits) // SPACE_SAMPLES)
    for number, commit in enumerate(workload.commits, start=1):
        state.take(commit)
        if number % rounds_every == 0:
            state.compact_all(commit.millis)
        if number == counted_from:
            state.count_anew()
        if number > counted_from and number % sample_interval == 0:
            space.append(state.space_amplification())
        if on_commit is not None:
            on_commit()
    return state.result(space)


class _Simulation(Generic[FiguresT]):
    """The current state of the buckets, and what has been counted so far."""

    def __init__(self, workload: SimulatedWorkload[FiguresT], options: TableOptions, hour_of: Callable[[int], int]) -> None:
        self._merge, self._options, self._hour_of = workload.merge, options, hour_of
        target = options.target_file_size or KEYED_FILE_SIZE
        rewrite_all = options.force_rewrite_all_files or options.record_level_expire_time is not None
        self._rolling = Rolling(target, int(target * options.small_file_ratio), rewrite_all)
        self._buckets = {
            bucket_id: [SimulatedRun(level, tuple(run.parts(target) if level else (run,))) for level, run in runs]
            for bucket_id, runs in workload.begin.items()
        }
        self._states = dict.fromkeys(self._buckets, NEVER_PICKED)
        self._lag, self._now = workload.lag, 0
        self.count_anew()

    def count_anew(self) -> None:
        self._commits = self._flushed = self._compacted = self._full = self._stalls = 0
        self._seen = SeenRuns()
        self._reasons: dict[str, int] = {}

    def take(self, commit: SimulatedCommit[FiguresT]) -> None:
        self._commits, self._now = self._commits + 1, commit.millis
        for bucket_id in commit.emptied:
            self._buckets[bucket_id] = []
            self._seen.end(bucket_id, commit.millis)
        for bucket_id, runs in commit.flushed.items():
            bucket = self._buckets.setdefault(bucket_id, [])
            for run in runs:
                if len(bucket) >= self._options.stop_trigger:  # as a writer does
                    self._stalls += 1
                    self._compact(bucket_id, commit.millis)
                    bucket = self._buckets[bucket_id]
                bucket.insert(0, SimulatedRun(0, (run,), commit.millis))
                self._flushed += run.size
            self._seen.written(bucket_id, commit.millis, len(bucket))

    def compact_all(self, now: int) -> None:
        for bucket_id in self._buckets:
            if self._compact(bucket_id, now) and self._lag is not None:
                self._seen.compacted(bucket_id, now + self._lag, len(self._buckets[bucket_id]))

    def _compact(self, bucket_id: Hashable, now: int) -> bool:
        """Do what is picked; returns whether anything was."""
        bucket = self._buckets[bucket_id]
        max_level = max([self._options.num_levels - 1, *(run.level for run in bucket)])
        picker = CompactionPicker.of(self._options, max_level, self._hour_of(now))
        sizes = [RunSize(run.level, run.size) for run in bucket]
        pick, self._states[bucket_id] = picker.pick(sizes, now, self._states.get(bucket_id, NEVER_PICKED))
        if pick is None or (pick.run_count == 1 and bucket[0].level == pick.output_level):
            return False
        done = compacted(bucket[: pick.run_count], pick.output_level, max_level, self._merge, self._rolling, now)
        self._compacted += done.written
        self._full += pick.run_count == len(bucket)
        self._reasons[pick.reason] = self._reasons.get(pick.reason, 0) + 1
        self._buckets[bucket_id] = [done.run, *bucket[pick.run_count :]]
        return True

    def space_amplification(self) -> float:
        """Bytes stored, divided by bytes if fully merged: 1.0 if no key is stored twice."""
        kept = sum(run.size for bucket in self._buckets.values() for run in bucket)
        fully_merged = sum(self._merge([run.whole for run in bucket]).size for bucket in self._buckets.values() if bucket)
        return kept / fully_merged if fully_merged else 1.0

    def result(self, space: Sequence[float]) -> SimulationResult:
        runs = self._seen.mean(self._now)  # before `most`, which it completes by the last states
        written = self._flushed + self._compacted
        return SimulationResult(
            commits=self._commits,
            flushed_bytes=self._flushed,
            compacted_bytes=self._compacted,
            compactions=sum(self._reasons.values()),
            full_compactions=self._full,
            stalls=self._stalls,
            write_amplification=round(written / self._flushed, 2) if self._flushed else 0.0,
            read_amplification=round(runs, 2),
            most_runs=self._seen.most,
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

    @property
    def low(self) -> Key:
        return (int(self.keys[0]),)

    @property
    def high(self) -> Key:
        return (int(self.keys[-1]),)

    @property
    def has_deletes(self) -> bool:
        return False

    def parts(self, size: int) -> Sequence[KeySetRun]:
        rows = max(1, size // self.row_bytes)
        return [KeySetRun(self.keys[begin : begin + rows], self.row_bytes) for begin in range(0, self.rows, rows)]

    def joined(self, following: Sequence[KeySetRun]) -> KeySetRun:
        if not following:
            return self
        return KeySetRun(np.concatenate([self.keys, *(file.keys for file in following)]), self.row_bytes)


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
        by_bucket = ((bucket, keys[keys % shape.buckets == bucket]) for bucket in range(shape.buckets))
        flushed: dict[Hashable, list[KeySetRun]] = {
            bucket: [KeySetRun(own, shape.row_bytes)] for bucket, own in by_bucket if len(own)
        }
        commits.append(SimulatedCommit[KeySetRun](number * shape.commit_interval, flushed))
        if on_commit is not None:
            on_commit()
    return SimulatedWorkload(commits, merged_keys)


def merged_keys(runs: Sequence[KeySetRun]) -> KeySetRun:
    return KeySetRun(np.unique(np.concatenate([run.keys for run in runs])), runs[0].row_bytes)
