"""Picks against Java's own answers, the article's examples, and properties that every pick must have."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.lsm.compaction_picker import CompactionPicker, PickState, forced_every, is_off_peak
from paimon_cli.lsm.universal_compaction import (
    FILE_NUMBER,
    FORCED_LEVEL_0,
    INCREMENTAL_SIZE,
    OPTIMIZATION_INTERVAL,
    SIZE_AMPLIFICATION,
    SIZE_RATIO,
    TOTAL_SIZE,
    RunSize,
    UniversalCompaction,
)
from paimon_cli.options.table_options import TableOptions
from tests.lsm.slow_picks import Runs, SlowStrategy
from tests.vectors import load


class Replay:
    """One strategy object of the vectors: the picker, and what it remembers."""

    def __init__(self, line: dict[str, Any]) -> None:
        strategy = UniversalCompaction(
            line["num_levels"] - 1,
            line["run_trigger"],
            line["max_size_amp"],
            line["size_ratio"],
            line.get("optimization_interval_ms"),
            line.get("total_size_threshold"),
            line.get("incremental_size_threshold"),
        )
        every = line.get("lookup_compact_max_interval", 1) if line.get("force_up_level0") else None
        self.picker, self.state = CompactionPicker(strategy, every), PickState()

    def pick(self, runs: Runs, now: int) -> tuple[int, int] | None:
        picked, self.state = self.picker.pick([RunSize(*run) for run in runs], now, self.state)
        return None if picked is None else (picked.output_level, picked.run_count)


def asked(line: dict[str, Any]) -> list[tuple[Runs, int]]:
    return [([(run[0], sum(run[1:])) for run in pick["runs"]], pick.get("now", 0)) for pick in line["in"]["picks"]]


def answers(line: dict[str, Any]) -> list[tuple[int, int] | None]:
    return [None if out is None else (out["output_level"], out["runs"]) for out in line["out"]]


def test_every_pick_of_the_main_branch() -> None:
    lines = load("universal_compaction_head")
    for line in lines:
        replay, slow = Replay(line["in"]), SlowStrategy(line["in"], main=True)
        assert [replay.pick(*one) for one in asked(line)] == answers(line), line["in"]
        assert [slow.pick(*one) for one in asked(line)] == answers(line), line["in"]
    assert len(lines) == 589


def test_every_pick_of_0_9_but_those_that_its_own_rules_explain() -> None:
    """The slow strategy answers all lines of 0.9 by 0.9's rules; where those of main differ, the line says which."""
    lines, reasons = load("universal_compaction"), Counter[str]()
    for line in lines:
        replay, old = Replay(line["in"]), SlowStrategy(line["in"], main=False)
        for one, expected in zip(asked(line), answers(line), strict=True):
            assert old.pick(*one) == expected, line["in"]
            picked = replay.pick(*one)
            if picked != expected:
                lone = len(one[0]) == 1 and "optimization_interval_ms" in line["in"]
                assert lone or SlowStrategy(line["in"], main=True, last_full=old.last_full).pick(*one) != expected, line["in"]
                reasons["a lone run is not compacted by the interval" if lone else "the walk passes level 0 and 1"] += 1
                break
        else:
            reasons["as main"] += 1
    assert reasons == {
        "as main": 1335,
        "the walk passes level 0 and 1": 205,
        "a lone run is not compacted by the interval": 44,
    }
    assert len(lines) == 1584


@pytest.mark.parametrize(
    ("runs", "options", "reason", "count", "level"),
    [
        ([(0, 10)] * 4 + [(5, 199)], {}, None, 0, 0),  # 5 runs, 40 bytes new against 199: nothing
        ([(0, 100)] * 4 + [(5, 199)], {}, SIZE_AMPLIFICATION, 5, 5),
        ([(0, 100), (0, 101), (0, 10000), (4, 40000), (5, 200000)], {}, SIZE_RATIO, 3, 3),
        ([(0, 1), (0, 9), (0, 99), (3, 999), (4, 9999), (5, 99999)], {}, FILE_NUMBER, 3, 2),
        ([(0, 1), (5, 10**9)], {"optimization_interval": 5}, OPTIMIZATION_INTERVAL, 2, 5),
        ([(0, 1), (5, 8)], {"total_size_threshold": 10}, TOTAL_SIZE, 2, 5),
        ([(0, 11), (5, 80)], {"incremental_size_threshold": 10}, INCREMENTAL_SIZE, 2, 5),
        ([(0, 11)], {"incremental_size_threshold": 10, "optimization_interval": 1}, None, 0, 0),
    ],
)
def test_each_trigger_is_named(
    runs: list[tuple[int, int]], options: dict[str, int], reason: str | None, count: int, level: int
) -> None:
    picked = UniversalCompaction(5, **options).pick([RunSize(*run) for run in runs])
    if reason is None:
        assert picked is None or picked.reason == SIZE_RATIO
    else:
        assert picked is not None
        assert (picked.reason, picked.run_count, picked.output_level) == (reason, count, level)


RUNS = st.tuples(
    st.lists(st.integers(1, 10**6), max_size=8), st.dictionaries(st.integers(1, 5), st.integers(1, 10**8), max_size=5)
).map(lambda parts: [RunSize(0, size) for size in parts[0]] + [RunSize(level, parts[1][level]) for level in sorted(parts[1])])


@given(RUNS, st.integers(1, 8), st.integers(0, 300), st.integers(0, 60), st.booleans())
def test_a_pick_never_writes_into_or_above_a_run_it_leaves(
    runs: list[RunSize], trigger: int, amplification: int, ratio: int, force: bool
) -> None:
    strategy = UniversalCompaction(5, trigger, amplification, ratio)
    picked = strategy.pick_forcing_level_0(runs) if force else strategy.pick(runs)
    if picked is None:
        assert len(runs) <= trigger
        assert not (force and runs and runs[0].level == 0)
        return
    assert 0 < picked.output_level <= 5
    left = runs[picked.run_count :]
    assert all(picked.output_level < run.level for run in left)
    assert all(picked.output_level >= run.level for run in runs[: picked.run_count])


@given(
    st.lists(st.tuples(RUNS, st.integers(0, 40)), min_size=1, max_size=4),
    st.fixed_dictionaries(
        {
            "run_trigger": st.integers(1, 8),
            "max_size_amp": st.integers(0, 300),
            "size_ratio": st.integers(0, 60),
            "num_levels": st.integers(6, 8),
            "force_up_level0": st.booleans(),
            "lookup_compact_max_interval": st.integers(1, 4),
            "optimization_interval_ms": st.none() | st.integers(0, 30),
            "total_size_threshold": st.none() | st.integers(1, 10**6),
            "incremental_size_threshold": st.none() | st.integers(1, 10**7),
        }
    ),
)
def test_picks_in_turn_are_those_of_the_slow_strategy(picks: list[tuple[list[RunSize], int]], line: dict[str, Any]) -> None:
    replay, slow, now = Replay(line), SlowStrategy(line, main=True), 0
    for sizes, later in picks:
        now += later
        runs = [(run.level, run.size) for run in sizes]
        assert replay.pick(runs, now) == slow.pick(runs, now)


def test_gentle_waits_and_radical_does_not() -> None:
    runs = [RunSize(0, 1), RunSize(5, 10**9)]
    gentle, state = CompactionPicker(UniversalCompaction(5), 3), PickState()
    seen = []
    for _ in range(6):
        picked, state = gentle.pick(runs, 0, state)
        seen.append(None if picked is None else (picked.reason, picked.output_level))
        if picked is None:
            assert f"attempt {state.waits} of 3" in gentle.why_not(runs, state)
    assert seen == [None, None, (FORCED_LEVEL_0, 4)] * 2
    assert CompactionPicker(UniversalCompaction(5), 1).pick(runs, 0, PickState())[0] is not None
    assert CompactionPicker(UniversalCompaction(5)).pick(runs, 0, PickState())[0] is None


@pytest.mark.parametrize(
    ("options", "every"),
    [
        ({}, None),
        ({"lookup-compact": "gentle"}, None),
        ({"force-lookup": "true"}, 1),
        ({"merge-engine": "first-row"}, 1),
        ({"changelog-producer": "lookup", "lookup-compact": "gentle"}, 10),
        ({"deletion-vectors.enabled": "true", "lookup-compact": "gentle", "lookup-compact.max-interval": "2"}, 5),
        ({"force-lookup": "true", "lookup-compact": "gentle", "lookup-compact.max-interval": "12"}, 12),
        ({"compaction.force-up-level-0": "true", "lookup-compact": "gentle"}, 1),
    ],
)
def test_which_tables_force_level_0_and_how_often(options: dict[str, str], every: int | None) -> None:
    assert forced_every(TableOptions(options)) == every


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [(-1, -1, []), (3, 3, []), (22, 2, [0, 1, 22, 23]), (1, 4, [1, 2, 3]), (-1, 2, [0, 1]), (22, -1, [22, 23])],
)
def test_off_peak_hours_add_to_the_ratio(start: int, end: int, hours: list[int]) -> None:
    texts = {"start.hour": start, "end.hour": end}
    options = TableOptions({f"compaction.offpeak.{key}": str(value) for key, value in texts.items()})
    assert [hour for hour in range(24) if is_off_peak(options, hour)] == hours
    raised = options.with_overrides({"compaction.offpeak-ratio": "40", "compaction.size-ratio": "2"})
    assert [hour for hour in range(24) if CompactionPicker.of(raised, 5, hour).strategy.size_ratio == 42] == hours
