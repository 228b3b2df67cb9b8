"""Simulated trees, universal and leveled, against second implementations that work one run at a time."""

from __future__ import annotations

import functools
import itertools
import operator
import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.lsm.compaction_simulation import (
    KeySetRun,
    RunModel,
    SimulatedCommit,
    SimulatedWorkload,
    SimulationResult,
    WorkloadShape,
    merged_keys,
    merged_run,
    simulate,
    synthetic_workload,
)
from paimon_cli.lsm.leveled_compaction import FANOUT, LEVEL_0_FULL, LEVEL_OVERFLOW, simulate_leveled
from paimon_cli.lsm.simulated_bucket import Rolling, SimulatedRun, compacted
from paimon_cli.options.table_options import TableOptions
from tests.lsm.slow_picks import SlowStrategy

ROW_BYTES = 3


@dataclass(frozen=True)
class Keys:
    """A run that is a set."""

    keys: frozenset[int]

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        return ROW_BYTES * len(self.keys)

    @property
    def low(self) -> tuple[int]:
        return (min(self.keys),)

    @property
    def high(self) -> tuple[int]:
        return (max(self.keys),)

    @property
    def has_deletes(self) -> bool:
        return False

    def parts(self, size: int) -> Sequence[Keys]:
        ascending, rows = sorted(self.keys), max(1, size // ROW_BYTES)
        return [Keys(frozenset(ascending[n : n + rows])) for n in range(0, len(ascending), rows)]

    def joined(self, following: Sequence[Keys]) -> Keys:
        return united([self, *following])


def united(runs: Sequence[Keys]) -> Keys:
    return Keys(frozenset().union(*(run.keys for run in runs)))


KEYS = st.frozensets(st.integers(0, 30), min_size=1, max_size=12).map(Keys)
FLUSHES = st.dictionaries(st.integers(0, 1), st.lists(KEYS, min_size=1, max_size=3), max_size=2)
COMMITS = st.lists(st.tuples(FLUSHES, st.frozensets(st.integers(0, 1), max_size=1), st.integers(0, 9)), max_size=45)
BEGIN = st.dictionaries(st.integers(0, 1), st.lists(st.tuples(st.integers(1, 6), KEYS), max_size=1), max_size=2)


def commits_of(drawn: list[Any]) -> list[SimulatedCommit[Keys]]:
    moments = itertools.accumulate(later for _, _, later in drawn)
    return [SimulatedCommit(now, flushed, emptied) for now, (flushed, emptied, _) in zip(moments, drawn, strict=True)]


LAGS = st.one_of(st.none(), st.integers(0, 12))


class Found:
    """What readers find, a millisecond at a time: the runs of a bucket from a commit until the next one."""

    def __init__(self) -> None:
        self.changes: dict[Hashable, list[tuple[int, int]]] = {}
        self.ended: list[tuple[list[tuple[int, int]], int]] = []

    def commit(self, place: Hashable, now: int, runs: int) -> None:
        self.end(place, now)
        self.changes[place] = [(now, runs)]

    def compaction(self, place: Hashable, now: int, runs: int, lag: int | None) -> None:
        changes = self.changes.get(place, [])
        if lag is not None:
            changes.append((max([now + lag, *(since for since, _ in changes)]), runs))

    def end(self, place: Hashable, now: int) -> None:
        if place in self.changes:
            self.ended.append((self.changes.pop(place), now))

    def of(self, now: int) -> tuple[float, int]:
        """The mean and the most runs."""
        lasting = [now - changes[0][0] for changes in self.changes.values()]
        known = [end - changes[0][0] for changes, end in self.ended] or lasting
        typical = statistics.median(known) if known else 0
        open_ones = [
            (changes, changes[0][0] + max(millis, typical))
            for changes, millis in zip(self.changes.values(), lasting, strict=True)
        ]
        most, means, weights = 0, list[float](), list[float]()
        for changes, end in [*self.ended, *open_ones]:
            begin = changes[0][0]
            moments = range(begin, int(end)) or [begin]
            each = [[runs for since, runs in changes if since <= moment][-1] for moment in moments]
            most, means = max(most, *each), [*means, statistics.fmean(each)]
            weights.append(min(end - begin, 10 * typical))
        total = sum(weights) or len(weights)
        weights = weights if any(weights) else [1] * len(weights)
        return (sum(map(operator.mul, means, weights)) / total if total else 0.0), most


class SlowTree:
    """One bucket under universal compaction."""

    def __init__(self, options: dict[str, int], begin: Sequence[tuple[int, Keys]]) -> None:
        self.options, self.runs = options, list(begin)
        self.last_full: int | None = None
        self.compacted: list[tuple[int, int, bool]] = []  # bytes written, time, whether all runs took part

    def compact(self, now: int) -> None:
        top = max([self.options["levels"] - 1] + [level for level, _ in self.runs])
        line = {
            "num_levels": top + 1,
            "run_trigger": self.options["trigger"],
            "max_size_amp": self.options["amplification"],
            "size_ratio": self.options["ratio"],
            "optimization_interval_ms": self.options["interval"],
        }
        slow = SlowStrategy(line, main=True, last_full=self.last_full)
        picked = slow.pick([(level, run.size) for level, run in self.runs], now)
        self.last_full = slow.last_full
        if picked is None or (picked[1] == 1 and self.runs[0][0] == picked[0]):
            return
        level, count = picked
        made = united([run for _, run in self.runs[:count]])
        self.compacted.append((made.size if count > 1 else 0, now, count == len(self.runs)))
        self.runs[:count] = [(level, made)]


@settings(max_examples=40)
@given(
    COMMITS,
    BEGIN,
    st.fixed_dictionaries(
        {
            "trigger": st.integers(1, 4),
            "stop": st.integers(4, 6),
            "levels": st.integers(3, 5),
            "amplification": st.integers(0, 300),
            "ratio": st.integers(0, 40),
            "interval": st.integers(5, 40),
        }
    ),
    st.integers(1, 4),
    LAGS,
)
def test_universal_compaction(
    drawn: list[Any], begin: dict[Hashable, Any], options: dict[str, int], every: int, lag: int | None
) -> None:
    commits = commits_of(drawn)
    keys = {
        "trigger": "num-sorted-run.compaction-trigger",
        "stop": "num-sorted-run.stop-trigger",
        "levels": "num-levels",
        "amplification": "compaction.max-size-amplification-percent",
        "ratio": "compaction.size-ratio",
        "interval": "compaction.optimization-interval",
    }
    texts = {keys[name]: f"{value}{' ms' if name == 'interval' else ''}" for name, value in options.items()}
    calls: list[None] = []
    result = simulate(
        SimulatedWorkload(commits, united, begin, lag), TableOptions(texts), lambda _: 0, every, lambda: calls.append(None)
    )

    trees = {place: SlowTree(options, runs) for place, runs in begin.items()}
    stalls, flushed, found, space = 0, 0, Found(), []
    for number, commit in enumerate(commits, 1):
        for place in commit.emptied:
            trees.setdefault(place, SlowTree(options, ())).runs = []
            found.end(place, commit.millis)
        for place, runs in commit.flushed.items():
            tree = trees.setdefault(place, SlowTree(options, ()))
            for run in runs:
                if len(tree.runs) >= options["stop"]:
                    stalls += 1
                    tree.compact(commit.millis)
                tree.runs.insert(0, (0, run))
                flushed += run.size
            found.commit(place, commit.millis, len(tree.runs))
        if number % every == 0:
            for place, tree in trees.items():
                tree.compact(commit.millis)
                found.compaction(place, commit.millis, len(tree.runs), lag)
        if number % max(1, len(commits) // 20) == 0:
            space.append(_space([run for _, run in tree.runs] for tree in trees.values()))
    done = [one for tree in trees.values() for one in tree.compacted]
    compacted = sum(size for size, _, _ in done)
    assert len(calls) == len(commits) == result.commits
    assert (result.flushed_bytes, result.compacted_bytes, result.stalls) == (flushed, compacted, stalls)
    assert (result.compactions, result.full_compactions) == (len(done), sum(full for _, _, full in done))
    assert sum(result.reasons.values()) == len(done)
    assert result.write_amplification == (round((flushed + compacted) / flushed, 2) if flushed else 0.0)
    mean, most = found.of(commits[-1].millis if commits else 0)
    assert result.most_runs == most and result.read_amplification == pytest.approx(mean, abs=0.0051)
    assert result.space_amplification == _mean(space, 1.0)
    assert result.space_amplification_at_end == round(_space([run for _, run in tree.runs] for tree in trees.values()), 2)


def _mean(values: Sequence[float], nothing: float) -> float:
    return round(sum(values) / len(values), 2) if values else nothing


def _space(buckets: Any) -> float:
    kept = [list(runs) for runs in buckets]
    least = sum(united(runs).size for runs in kept if runs)
    return sum(run.size for runs in kept for run in runs) / least if least else 1.0


def added(runs: Sequence[RunModel]) -> RunModel:
    """The merge of runs without common keys."""
    return RunModel(sum(run.rows for run in runs), sum(run.size for run in runs), runs[0].low, runs[0].high)


def model(rows: int) -> RunModel:
    return RunModel(rows, 10 * rows, (0,), (9,))


def slow_leveled(
    commits: Sequence[SimulatedCommit[RunModel]], begin: dict[Hashable, Any], trigger: int, base: int, lag: int | None
) -> dict[str, Any]:
    """Buckets as dictionaries of levels, where level 0 is a list."""
    buckets: dict[Hashable, dict[int, Any]] = {}
    for place, runs in begin.items():
        buckets[place] = {0: []}
        if runs:
            whole = added([run for _, run in runs])
            level = next(level for level in itertools.count(1) if whole.size <= base * FANOUT ** (level - 1))
            buckets[place][level] = whole
    flushed = compacted = full = 0
    reasons: Counter[str] = Counter()
    found = Found()
    for commit in commits:
        for place in commit.emptied:
            buckets[place] = {0: []}
            found.end(place, commit.millis)
        for place, new in commit.flushed.items():
            for run in new:
                tree = buckets.setdefault(place, {0: []})
                tree[0].insert(0, run)
                flushed += run.size
            found.commit(place, commit.millis, len(tree[0]) + len(tree) - 1)
        for place, tree in buckets.items():
            if len(tree[0]) >= trigger:
                full += all(level <= 1 for level in tree)
                tree[1] = added([*tree[0], *([tree[1]] if 1 in tree else [])])
                tree[0] = []
                reasons[LEVEL_0_FULL] += 1
                compacted += tree[1].size
            for level in itertools.count(1):
                if level not in tree:
                    break
                limit = base * FANOUT ** (level - 1)
                run = tree[level]
                if run.size <= limit:
                    continue
                share = (run.size - limit) / run.size
                down = RunModel(round(run.rows * share), round(run.size * share), run.low, run.high)
                tree[level] = RunModel(round(run.rows * (1 - share)), round(run.size * (1 - share)), run.low, run.high)
                if level + 1 in tree:
                    below, merged = tree[level + 1], added([run, tree[level + 1]])
                    reasons[LEVEL_OVERFLOW] += 1
                    compacted += round(share * merged.size)
                    down = RunModel(
                        round(below.rows + share * (merged.rows - below.rows)),
                        round(below.size + share * (merged.size - below.size)),
                        run.low,
                        run.high,
                    )
                tree[level + 1] = down
            found.compaction(place, commit.millis, len(tree[0]) + len(tree) - 1, lag)
    mean, most = found.of(commits[-1].millis if commits else 0)
    return {
        "flushed_bytes": flushed,
        "compacted_bytes": compacted,
        "full_compactions": full,
        "reasons": dict(reasons),
        "most_runs": most,
        "read_amplification": pytest.approx(mean, abs=0.0051),
        "write_amplification": round((flushed + compacted) / flushed, 2) if flushed else 0.0,
    }


MODELS = st.lists(st.integers(1, 40).map(model), min_size=1, max_size=2)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 1), MODELS, max_size=2),
            st.frozensets(st.integers(0, 1), max_size=1),
        ),
        max_size=45,
    ),
    st.dictionaries(st.integers(0, 1), MODELS.map(lambda runs: [(5, run) for run in runs]), max_size=2),
    st.integers(1, 4),
    st.integers(1, 300),
    LAGS,
)
def test_leveled_compaction(drawn: list[Any], begin: dict[Hashable, Any], trigger: int, base: int, lag: int | None) -> None:
    commits = [SimulatedCommit[RunModel](number, flushed, emptied) for number, (flushed, emptied) in enumerate(drawn)]
    result = simulate_leveled(SimulatedWorkload(commits, added, begin, lag), trigger, base)
    expected = slow_leveled(commits, begin, trigger, base, lag)
    assert {name: getattr(result, name) for name in expected} == expected
    assert (result.commits, result.compactions, result.stalls) == (len(commits), sum(expected["reasons"].values()), 0)
    assert result.space_amplification == result.space_amplification_at_end == 1.0


def test_space_is_that_of_each_twentieth_of_the_commits() -> None:
    """Every second of 41 commits is sampled: runs of one key, never compacted, so n runs take n times the space."""
    run = RunModel(1, 10, (0,), (0,))
    commits = [SimulatedCommit[RunModel](number, {0: [run]}) for number in range(41)]
    workload = SimulatedWorkload(commits, functools.partial(merged_run, buckets=1))
    options = TableOptions({"num-sorted-run.compaction-trigger": "100"})
    for result in (simulate_leveled(workload, 100, 10), simulate(workload, options, lambda _: 0)):
        assert (result.space_amplification, result.space_amplification_at_end) == (21.0, 41.0)
        assert (result.most_runs, result.compactions) == (41, 0)


def test_the_hour_is_that_of_the_commit() -> None:
    """Two runs, the older a fifth larger: off-peak hours make them similar enough."""
    texts = {"num-sorted-run.compaction-trigger": "2", "compaction.max-size-amplification-percent": "1000"}
    texts |= {"compaction.offpeak.start.hour": "3", "compaction.offpeak.end.hour": "4", "compaction.offpeak-ratio": "30"}

    def compactions(hour: int) -> int:
        commits = [SimulatedCommit[RunModel](n, {0: [RunModel(1, size, (0,), (0,))]}) for n, size in enumerate((120, 100))]
        hours = {0: 0, 1: hour}
        workload = SimulatedWorkload(commits, added)
        return simulate(workload, TableOptions(texts), lambda millis: hours[millis]).compactions

    assert [compactions(hour) for hour in (2, 3, 4)] == [0, 1, 0]


@pytest.mark.parametrize(
    ("runs", "buckets", "rows", "size"),
    [
        ([(10, 100, 0, 9)], 1, 10, 100),
        ([(10, 100, 0, 9), (10, 300, 0, 9)], 1, 10, 200),  # half of the bytes for half of the rows
        ([(60, 60, 0, 99), (60, 60, 0, 99)], 2, 60, 60),  # a bucket has 50 of the 100 keys, but a run of 60 shows more
        ([(20, 20, 0, 99), (20, 20, 0, 99)], 2, 32, 32),  # 50 * (1 - 0.6 * 0.6)
        ([(20, 20, 0, 99), (20, 20, 0, 99)], 0, 36, 36),  # without buckets as with one
        ([(5, 5, 0, 4), (5, 5, 4, 8)], 1, 7, 7),  # a common end is no gap between the runs
        ([(0, 0, 0, 9), (0, 0, 0, 9)], 1, 0, 0),
        ([(3, 3, 7, 7), (3, 3, 7, 7)], 5, 3, 3),
        ([(0, 0, 7, 7), (0, 0, 7, 7)], 5, 0, 0),
    ],
)
def test_merges_of_models(runs: list[tuple[int, int, int, int]], buckets: int, rows: int, size: int) -> None:
    merged = merged_run([RunModel(count, size, (low,), (high,)) for count, size, low, high in runs], buckets)
    assert (merged.rows, merged.size) == (rows, size)
    assert (merged.low, merged.high) == ((min(run[2] for run in runs),), (max(run[3] for run in runs),))


def test_a_merge_keeps_what_is_not_of_rows_only_once() -> None:
    runs = [RunModel(10, 1_100, (0,), (9,)), RunModel(10, 1_100, (10,), (19,))]
    assert (merged_run(runs, 1, 1_000).size, merged_run(runs, 1).size) == (1_200, 2_200)
    assert merged_run([RunModel(0, 900, (0,), (9,))], 1, 1_000).size == 0


def test_models_of_keys_that_cannot_be_counted() -> None:
    """All rows of disjoint ranges stay; of overlapping ones, those of the biggest run or of the largest disjoint set."""
    runs = [RunModel(4, 8, ("a",), ("c",)), RunModel(4, 8, ("c",), ("e",)), RunModel(4, 8, ("d",), ("f",))]
    assert merged_run(runs, 1) == RunModel(8, 16, ("a",), ("f",))
    pairs = [RunModel(4, 8, (1, "a"), (1, "b")), RunModel(6, 12, (1, "b"), (9, "c"))]
    assert merged_run(pairs, 1) == RunModel(6, 12, (1, "a"), (9, "c"))
    assert RunModel(4, 10, (0,), (0,)).row_bytes == 2.5 and RunModel(0, 10, (0,), (0,)).row_bytes == 0.0


def test_a_workload_is_made_of_known_and_of_new_keys() -> None:
    calls: list[None] = []
    shape = WorkloadShape(commits=30, rows=100, row_bytes=7, update_ratio=0.25, buckets=3, commit_interval=500, seed=5)
    workload = synthetic_workload(shape, lambda: calls.append(None))
    assert len(calls) == 30 and [commit.millis for commit in workload.commits] == list(range(0, 15_000, 500))
    known: set[int] = set()
    for number, commit in enumerate(workload.commits):
        runs: list[KeySetRun] = [commit.flushed[bucket][0] for bucket in range(3)]
        for bucket, run in enumerate(runs):
            assert (run.keys % 3 == bucket).all() and (np.diff(run.keys) > 0).all()
            assert (run.rows, run.size) == (len(run.keys), 7 * len(run.keys))
        keys = set(np.concatenate([run.keys for run in runs]).tolist())
        new = keys - known
        assert new == set(range(len(known), len(known) + (75 if number else 100)))
        assert (15 <= len(keys & known) <= 25) == (number > 0)
        known |= keys
    assert known == set(range(100 + 29 * 75))
    last = workload.commits[-1].flushed[0][0].keys
    for seed, same in ((5, True), (6, False)):
        again = synthetic_workload(WorkloadShape(30, 100, 7, 0.25, 0.0, 3, 500, seed))
        assert np.array_equal(again.commits[-1].flushed[0][0].keys, last) == same


def test_a_shape_has_the_documented_defaults() -> None:
    assert WorkloadShape() == WorkloadShape(200, 10_000, 100, 0.5, 0.0, 1, 60_000, 0)
    commit = SimulatedCommit[RunModel](7, {})
    assert (commit.emptied, SimulatedWorkload([commit], added).begin) == (frozenset(), {})


def test_a_workload_of_updates_alone_begins_with_new_keys() -> None:
    first, second = synthetic_workload(WorkloadShape(commits=2, rows=50, update_ratio=1.0)).commits
    (run,), (updates,) = first.flushed[0], second.flushed[0]
    assert run.keys.tolist() == list(range(50)) and 0 < updates.rows < 50 and set(updates.keys) <= set(range(50))


def test_skew_prefers_the_oldest_keys() -> None:
    """A key in the lower half is drawn with probability 1/2; with skew 1, with probability sqrt(1/2)."""

    def share(skew: float) -> float:
        shape = WorkloadShape(commits=2, rows=20_000, update_ratio=1.0, skew=skew, seed=2)
        first, second = (commit.flushed[0][0].keys for commit in synthetic_workload(shape).commits)
        assert len(first) == 20_000
        return float((second < 10_000).mean())

    assert share(0.0) == pytest.approx(0.5, abs=0.02)
    assert share(1.0) > 0.53 and share(3.0) > share(1.0)


def test_merged_keys_hold_each_once() -> None:
    merged = merged_keys([KeySetRun(np.array([2, 5]), 4), KeySetRun(np.array([1, 5]), 9)])
    assert merged.keys.tolist() == [1, 2, 5] and (merged.row_bytes, merged.size) == (4, 12)


def test_nothing_at_all() -> None:
    nothing = SimulationResult(0, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 1.0, 1.0, {})
    assert simulate(SimulatedWorkload([], united), TableOptions({}), lambda _: 0) == nothing
    assert simulate_leveled(SimulatedWorkload([], added), 5, 100) == nothing


@pytest.mark.parametrize("first", [0, 100])
def test_the_files_of_a_compacted_run_ascend(first: int) -> None:
    """Files that no other overlaps stay as they are, between those that were made."""
    runs = [
        SimulatedRun(0, (Keys(frozenset({0, 10})),)),
        SimulatedRun(0, (Keys(frozenset({200, 210})),)),
        SimulatedRun(4, tuple(Keys(frozenset(range(low, low + 9))) for low in (5, first + 50, 205))),
    ]
    done = compacted(runs, 4, 5, united, Rolling(target_size=12, small_size=6))
    run, written = done.run, done.written
    lows = [file.low for file in run.files]
    assert lows == sorted(lows) and (first + 50,) in lows and len(lows) > 4
    assert sorted(key for file in run.files for key in file.keys) == sorted(
        frozenset().union(*(f.keys for r in runs for f in r.files))
    )
    assert written == ROW_BYTES * (len({0, 10, *range(5, 14)}) + len({200, 210, *range(205, 214)}))
