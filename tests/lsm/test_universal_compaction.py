"""Picks against Java's own answers, the article's examples, and properties that every pick must have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.lsm.universal_compaction import (
    FILE_NUMBER,
    INCREMENTAL_SIZE,
    OPTIMIZATION_INTERVAL,
    SIZE_AMPLIFICATION,
    SIZE_RATIO,
    TOTAL_SIZE,
    CompactionPick,
    RunSize,
    UniversalCompaction,
)
from tests.vectors import load


class Replay:
    """One strategy object of the vectors: it remembers its last full compaction and counts its gentle attempts."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.strategy = UniversalCompaction(
            line["num_levels"] - 1,
            line["run_trigger"],
            line["max_size_amp"],
            line["size_ratio"],
            line.get("optimization_interval_ms"),
            line.get("total_size_threshold"),
            line.get("incremental_size_threshold"),
        )
        self.force = line.get("force_up_level0", False)
        self.every = line.get("lookup_compact_max_interval", 1)
        self.attempts = 0
        self.last_full: int | None = None

    def pick(self, runs: list[RunSize], now: int) -> CompactionPick | None:
        picked = self.strategy.pick(runs, now, self.last_full)
        if picked is None and self.force:
            self.attempts += 1
            if self.attempts >= self.every:
                picked, self.attempts = self.strategy.pick_forcing_level_0(runs, now, self.last_full), 0
        if picked and picked.run_count == len(runs):
            self.last_full = now
        return picked


def test_every_pick_of_the_main_branch() -> None:
    lines = load("universal_compaction_head")
    for line in lines:
        replay = Replay(line["in"])
        for asked, expected in zip(line["in"]["picks"], line["out"], strict=True):
            picked = replay.pick([RunSize(run[0], sum(run[1:])) for run in asked["runs"]], asked.get("now", 0))
            got = None if picked is None else {"output_level": picked.output_level, "runs": picked.run_count}
            assert got == expected, line["in"]
    assert len(lines) == 589


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
