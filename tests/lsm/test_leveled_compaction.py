"""The model of leveled compaction: figures that can be worked out by hand."""

from __future__ import annotations

import functools
from collections.abc import Sequence

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


def test_a_bucket_begins_on_the_first_level_that_holds_it() -> None:
    """A level may be as large as its limit: 100 bytes fit into level 1 of 100, and the next flush meets them there."""
    for rows, reasons, compacted in ((10, {LEVEL_0_FULL: 1}, 100), (11, {LEVEL_0_FULL: 1}, 100)):
        begin = (run(rows, 0, rows - 1),)
        result = simulate_leveled(workload(run(1, 0, 0), begin=begin), trigger=1, base_size=100)
        assert result.reasons == reasons
        assert result.compacted_bytes == (compacted if rows == 10 else 10), "only what is on level 1 is merged"
        assert result.full_compactions == (rows == 10)


def test_what_moves_into_an_empty_level_is_not_rewritten_and_what_meets_rows_is_in_part() -> None:
    """Keys 0 to 19 make 200 bytes, of which half move to level 2 for free. Twenty others make 300, of which 200 move: two thirds
    of the run, and as much of what level 2 becomes, are rewritten."""
    first, other = run(20, 0, 19), run(20, 100, 119)
    once = simulate_leveled(workload(first), trigger=1, base_size=100)
    assert (once.compacted_bytes, once.reasons, once.most_runs) == (200, {LEVEL_0_FULL: 1}, 2)
    twice = simulate_leveled(workload(first, other), trigger=1, base_size=100)
    assert twice.reasons == {LEVEL_0_FULL: 2, LEVEL_OVERFLOW: 1}
    assert twice.full_compactions == 1, "the second one leaves level 2 alone"
    assert 200 + 300 < twice.compacted_bytes < 200 + 300 + 400


def test_merges_see_the_newest_run_first() -> None:
    """Of several flushes of one commit the last one is the newest, and all are newer than those of earlier commits."""
    seen: list[list[int]] = []

    def merge(runs: Sequence[RunModel]) -> RunModel:
        seen.append([each.low[0] for each in runs])
        return merged_run(runs, buckets=1)

    commits = [
        SimulatedCommit[RunModel](0, {0: [run(1, 1, 1), run(1, 2, 2)]}),
        SimulatedCommit[RunModel](1, {0: [run(1, 3, 3), run(1, 4, 4)]}),
    ]
    simulate_leveled(SimulatedWorkload(commits, merge), trigger=4, base_size=1_000)
    assert [4, 3, 2, 1] in seen and all(each == sorted(each, reverse=True) for each in seen)


def test_readers_see_a_commit_without_its_compaction_for_a_while() -> None:
    """Two runs on level 0 for 40 of the 100 milliseconds until the next commit, and then one."""
    commits = [SimulatedCommit[RunModel](millis, {0: [run(1, 0, 0), run(1, 0, 0)]}) for millis in (0, 100, 200)]
    merge = functools.partial(merged_run, buckets=1)
    found = [
        simulate_leveled(SimulatedWorkload(commits, merge, lag=lag), 2, 1_000).read_amplification for lag in (0, 40, 100, None)
    ]
    assert found[0] == 1.0 and found[0] < found[1] < found[2]


def test_an_overwritten_bucket_forgets_its_runs() -> None:
    commits = [
        SimulatedCommit[RunModel](0, {0: [run(100, 0, 99)]}),
        SimulatedCommit[RunModel](1, {0: [run(1, 0, 0)]}, frozenset({0})),
        SimulatedCommit[RunModel](2, {0: [run(1, 0, 0)]}),
    ]
    result = simulate_leveled(SimulatedWorkload(commits, functools.partial(merged_run, buckets=1)), trigger=2, base_size=5_000)
    assert (result.compacted_bytes, result.space_amplification_at_end) == (10, 1.0)
