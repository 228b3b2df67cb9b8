"""The model of leveled compaction: figures that can be worked out by hand."""

from __future__ import annotations

import functools

import pytest

from paimon_cli.lsm.compaction_simulation import RunModel, SimulatedCommit, SimulatedWorkload, merged_run
from paimon_cli.lsm.leveled_compaction import LEVEL_0_FULL, LEVEL_OVERFLOW, simulate_leveled


def run(rows: int, low: int, high: int) -> RunModel:
    return RunModel(rows, 10 * rows, (low,), (high,))


def workload(*runs: RunModel, begin: tuple[RunModel, ...] = ()) -> SimulatedWorkload[RunModel]:
    commits = [SimulatedCommit[RunModel](number, {0: [each]}) for number, each in enumerate(runs)]
    return SimulatedWorkload(
        commits, functools.partial(merged_run, buckets=1), {0: [(5, each) for each in begin]} if begin else {}
    )


def test_level_0_waits_for_its_trigger() -> None:
    result = simulate_leveled(workload(run(10, 0, 9), run(10, 0, 9)), trigger=3, base_size=1_000)
    assert (result.compactions, result.write_amplification, result.most_runs) == (0, 1.0, 2)
    assert (result.read_amplification, result.space_amplification_at_end) == (1.5, 2.0)


def test_updates_of_the_same_keys_stay_on_level_1() -> None:
    """Three flushes of 100 bytes become one run of 100 each time: 300 flushed, 100 rewritten, twice."""
    result = simulate_leveled(workload(*[run(10, 0, 9)] * 6), trigger=3, base_size=1_000)
    assert (result.flushed_bytes, result.compacted_bytes, result.reasons) == (600, 200, {LEVEL_0_FULL: 2})
    assert (result.full_compactions, result.write_amplification, result.space_amplification_at_end) == (2, 1.33, 1.0)


def test_new_keys_overflow_into_the_next_level() -> None:
    """Level 1 is limited to 100 bytes: each merge of two flushes of new keys overflows, at first for free into an empty level."""
    runs = [run(10, 10 * number, 10 * number + 9) for number in range(6)]
    result = simulate_leveled(workload(*runs), trigger=2, base_size=100)
    assert result.reasons == {LEVEL_0_FULL: 3, LEVEL_OVERFLOW: 2}
    assert result.flushed_bytes == 600 and result.compacted_bytes > 200 + 300 + 300
    assert result.most_runs == 3 and result.stalls == 0


def test_a_bigger_tree_is_written_more_often() -> None:
    runs = [run(10, 10 * number, 10 * number + 9) for number in range(200)]
    small, big = (simulate_leveled(workload(*runs), 2, base) for base in (100, 100_000))
    assert small.write_amplification > 3 and big.read_amplification < small.read_amplification


def test_it_begins_with_what_the_table_holds() -> None:
    begin = (run(500, 0, 999), run(1_000, 0, 999))
    result = simulate_leveled(workload(run(10, 0, 9), begin=begin), trigger=5, base_size=100)
    assert (result.most_runs, result.commits) == (2, 1)


def test_an_overwrite_empties_a_bucket() -> None:
    commits = [
        SimulatedCommit[RunModel](0, {0: [run(10, 0, 9)]}),
        SimulatedCommit[RunModel](1, {0: [run(10, 0, 9)]}, frozenset({0})),
    ]
    result = simulate_leveled(SimulatedWorkload(commits, functools.partial(merged_run, buckets=1)), 5, 100)
    assert result.most_runs == 1


@pytest.mark.parametrize("commits", [0, 1])
def test_hardly_anything(commits: int) -> None:
    result = simulate_leveled(workload(*[run(1, 0, 0)] * commits), 5, 0)
    assert (result.commits, result.space_amplification) == (commits, 1.0)


def test_figures_are_rounded_to_hundredths() -> None:
    """Seven rows, then one and two of them again, in the same bucket; a run more in another one."""
    first, *again = run(7, 0, 6), run(1, 0, 6), run(2, 0, 6)
    result = simulate_leveled(workload(first, *again), trigger=9, base_size=1_000)
    assert (result.space_amplification, result.space_amplification_at_end) == (1.19, 1.43)  # (7/7 + 8/7 + 10/7) / 3, 10/7
    commits = [SimulatedCommit[RunModel](n, {place: [first]}) for n, place in enumerate((0, 0, 1))]
    result = simulate_leveled(SimulatedWorkload(commits, functools.partial(merged_run, buckets=1)), 2, 1_000)
    assert (result.read_amplification, result.write_amplification) == (1.0, 1.33)  # the second run is merged at once; (3 + 1) / 3
    apart = simulate_leveled(SimulatedWorkload(commits, functools.partial(merged_run, buckets=1), lag=None), 2, 1_000)
    assert apart.read_amplification == 1.33  # (1 + 2 + 1) / 3
