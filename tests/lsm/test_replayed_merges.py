"""The commits of a table, replayed by reads and by its triggers: what each way costs, and which one is followed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from paimon_cli.lsm.compaction_picker import CompactionPicker
from paimon_cli.lsm.compaction_simulation import KeySetRun, SimulatedCommit, merged_keys
from paimon_cli.lsm.rent_or_buy import HOUR_MILLIS, Goal
from paimon_cli.lsm.replayed_merges import ReplayedCosts, ReplayedTable, cost_by_reads, cost_by_triggers, replayed_costs
from paimon_cli.lsm.simulated_bucket import Rolling, SimulatedRun
from paimon_cli.lsm.universal_compaction import UniversalCompaction

QUARTER = HOUR_MILLIS // 4
DEFAULTS = CompactionPicker(UniversalCompaction(5))
NEVER = Goal("never", 1e-9, most_runs=1000, bytes_per_merge=0)


def table(flushes: Sequence[Sequence[int]], rate: float = 60.0, charge: float = 1.0, base: int = 0) -> ReplayedTable[KeySetRun]:
    """A table of one bucket, on a run of `base` keys at the top; each commit a quarter of an hour after the last one."""
    commits = [
        SimulatedCommit[KeySetRun](number * QUARTER, {"bucket": [KeySetRun(np.unique(keys), 1000)]})
        for number, keys in enumerate(flushes, start=1)
    ]
    begin: dict[Hashable, list[SimulatedRun[KeySetRun]]] = {}
    if base:
        begin["bucket"] = [SimulatedRun(5, tuple(KeySetRun(np.arange(base), 1000).parts(2 << 20)))]
    return ReplayedTable(begin, commits, merged_keys, lambda key: rate, 5, Rolling(2 << 20, 1_400_000), charge)


def test_what_reads_pay_is_the_runs_that_they_open_until_the_next_commit() -> None:
    three = table([[1], [1], [1]])
    goal = Goal("a byte", 10.0, most_runs=1000, bytes_per_merge=1 << 30)
    picker = CompactionPicker(UniversalCompaction(5, run_trigger=100))
    assert cost_by_triggers(three, goal, lambda now: picker) == (1 + 2) * 60 * 0.25 * 10
    assert cost_by_reads(three, goal, lambda now: picker) == (1 + 2) * 60 * 0.25 * 10, "no merge is worth a gigabyte"


def test_a_merge_costs_what_it_reads_its_commit_and_what_is_kept() -> None:
    three = table([[1], [1], [1]], charge=2.0)
    goal = Goal("nothing", 0.0, bytes_per_merge=7)
    picker = CompactionPicker(UniversalCompaction(5, run_trigger=3))
    assert cost_by_triggers(three, goal, lambda now: picker) == 3 * 1000 * 2 + 7


def test_level_0_is_forced_both_ways_where_the_table_forces_it() -> None:
    picker = CompactionPicker(UniversalCompaction(5, run_trigger=100), forced_every=1)
    two = table([[1], [2]], base=5000)
    assert cost_by_reads(two, NEVER, lambda now: picker) == pytest.approx(cost_by_triggers(two, NEVER, lambda now: picker))
    assert cost_by_reads(two, NEVER, lambda now: picker) >= 1000


def overwritten_after(minutes: int) -> ReplayedTable[KeySetRun]:
    """Ten times: three commits of a hundred rows, and so long after the last one an overwrite of all."""
    commits = [
        SimulatedCommit[KeySetRun](
            (cycle * (30 + minutes) + minute) * 60_000,
            {"bucket": [KeySetRun(np.arange(100), 1000)]},
            frozenset() if minute else frozenset({"bucket"}),
        )
        for cycle in range(10)
        for minute in (0, 15, 30)
    ]
    return replace(table([]), commits=commits)


def test_the_better_way_depends_on_what_is_written() -> None:
    goal = Goal("pays after the third commit", 10_500.0, bytes_per_merge=0)
    soon, late = (replayed_costs(overwritten_after(minutes), goal, lambda now: DEFAULTS) for minutes in (1, 600))
    assert soon.follows_triggers, "what was merged is of no use"
    assert not late.follows_triggers and late.by_reads < 0.5 * late.by_triggers, "two runs less for ten hours"


def test_triggers_must_be_clearly_better() -> None:
    assert not ReplayedCosts(100.0, 99.0).follows_triggers and ReplayedCosts(100.0, 97.0).follows_triggers
    assert not ReplayedCosts(0.0, 0.0).follows_triggers


def test_an_overwrite_empties_its_buckets() -> None:
    kept = table([[1], [1], [1]])
    emptied = [
        SimulatedCommit(each.millis, each.flushed, frozenset({"bucket"} if number == 2 else ()))
        for number, each in enumerate(kept.commits)
    ]
    overwritten = ReplayedTable({}, emptied, kept.merge, kept.rates, kept.max_level, kept.rolling)
    picker = CompactionPicker(UniversalCompaction(5, run_trigger=3))
    goal = Goal("nothing", 0.0, bytes_per_merge=0)
    assert cost_by_triggers(kept, goal, lambda now: picker) == 3000
    assert cost_by_triggers(overwritten, goal, lambda now: picker) == 0
