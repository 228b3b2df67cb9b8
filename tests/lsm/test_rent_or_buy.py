"""Rent or buy: which merges are candidates, what reads have paid for them, and which are chosen."""

from __future__ import annotations

import doctest
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from paimon_cli.lsm import rent_or_buy
from paimon_cli.lsm.rent_or_buy import (
    GOALS,
    HOUR_MILLIS,
    BucketMerges,
    Goal,
    MergeCandidates,
    MergeOption,
    best_merges,
    merge_options,
    patience_of,
    runs_of_a_read,
)
from paimon_cli.lsm.sorted_runs import SortedRun
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, SimpleStats

NOW = 1_000 * HOUR_MILLIS
MAX_LEVEL = 5
FREE = Goal("free", 1.0, bytes_per_merge=0)


def file(level: int, size: int, hours: float, low: int = 0, high: int = 99) -> DataFileMeta:
    """A file of `size` bytes and as many rows, made so many hours ago, with these keys."""
    stats = SimpleStats(EMPTY_ROW, EMPTY_ROW)
    return DataFileMeta(
        file_name=f"{level}-{size}-{hours}-{low}",
        file_size=size,
        row_count=size,
        min_key=bytes([low]),
        max_key=bytes([high]),
        key_stats=stats,
        value_stats=stats,
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        level=level,
        delete_row_count=0,
        creation_time_millis=NOW - int(hours * HOUR_MILLIS),
    )


def runs(*files: DataFileMeta) -> list[SortedRun]:
    """Each file of level 0 alone, the others by level."""
    deep = sorted({each.level for each in files} - {0})
    return [SortedRun(0, (each,)) for each in files if each.level == 0] + [
        SortedRun(level, tuple(each for each in files if each.level == level)) for level in deep
    ]


def options(*files: DataFileMeta, small: int = 0) -> tuple[MergeOption, ...]:
    return merge_options(runs(*files), MAX_LEVEL, small, lambda key: (key[0],), lambda one: one.creation_time_millis or 0)


def test_the_worked_examples() -> None:
    failed, tried = doctest.testmod(rent_or_buy)
    assert tried > 4 and not failed


@pytest.mark.parametrize("seed", range(20))
def test_every_paimon_can_go_on_from_a_merge(seed: int) -> None:
    """All of level 0 and whole levels go to a level that is free, above all that stays."""
    random = np.random.default_rng(seed)
    deep = sorted(random.choice(np.arange(1, MAX_LEVEL + 1), random.integers(0, 5), replace=False).tolist())
    levels = [0] * int(random.integers(0, 5)) + deep
    found = options(*(file(level, 10 + n, len(levels) - n) for n, level in enumerate(levels)))
    for option in found:
        rest = levels[option.run_count :]
        assert 0 not in rest and option.run_count >= 2
        assert option.output_level == (rest[0] - 1 if rest else MAX_LEVEL) and option.output_level >= 1
        assert option.cost == sum(10 + n for n in range(option.run_count))
    assert [option.run_count for option in found] == sorted({option.run_count for option in found})
    if len(levels) >= 2:
        assert found[-1].run_count == len(levels)


def test_files_that_overlap_nothing_cost_nothing_and_bring_nothing() -> None:
    (found,) = options(file(0, 50, 1, 60, 69), file(5, 100, 9, 0, 49))
    assert (found.cost, found.gain) == (0, 0.0)
    assert 0 <= NOW - found.since <= 1000 * HOUR_MILLIS, "what gains nothing has an age all the same"
    (found,) = options(file(0, 50, 1, 40, 69), file(5, 100, 9, 0, 49))
    assert (found.cost, found.gain) == (150, 1.0)
    (found,) = options(file(0, 50, 1, 40, 49), file(5, 100, 9, 0, 9), file(5, 100, 9, 30, 49))
    assert found.cost == 150, "the other file of the level stays as it is"
    assert found.gain == pytest.approx(150 / 250), "only reads of its rows open a run less"


def test_a_boundary_is_paid_for_since_it_exists() -> None:
    level_0, whole = options(file(0, 10, 1), file(0, 10, 3), file(5, 100, 100))
    assert (NOW - level_0.since) / HOUR_MILLIS == pytest.approx(2.0), "the mean age of level 0"
    assert (NOW - whole.since) / HOUR_MILLIS == pytest.approx(2.5), "above level 5 since the older of the two came, not for 100 h"
    _, _, deepest = options(file(0, 10, 1), file(0, 10, 3), file(4, 20, 8), file(5, 100, 100))
    assert (NOW - deepest.since) / HOUR_MILLIS == pytest.approx((2 + 3 + 100) / 3)


def test_the_runs_of_a_read_are_the_fewest_of_each_section() -> None:
    assert runs_of_a_read([]) == 0.0
    assert runs_of_a_read([(0, 4, 1), (5, 9, 1), (3, 6, 2)]) == 2.0
    assert runs_of_a_read([(0, 4, 30), (5, 9, 10), (5, 9, 0)]) == 1.25


def candidates(*buckets: BucketMerges) -> MergeCandidates:
    return MergeCandidates.of(buckets)


def merge(cost: int, hours: float = 1.0, gain: float = 1.0, count: int = 2) -> MergeOption:
    return MergeOption(count, MAX_LEVEL, cost, float(cost), gain, NOW - hours * HOUR_MILLIS)


def chosen(found: MergeCandidates, goal: Goal, most_bytes: float = np.inf) -> Sequence[int]:
    index: list[int] = best_merges(found, NOW, goal, most_bytes).index.tolist()
    return index


def test_a_merge_is_made_when_reads_have_paid_for_it_and_not_before() -> None:
    found = candidates(BucketMerges((merge(100, 10.0),), 2, rate=9.9), BucketMerges((merge(100, 10.0),), 2, rate=10.0))
    assert chosen(found, FREE) == [1]
    due = found.due(FREE)
    assert due[1] == NOW and due[0] > NOW
    later = best_merges(found, int(due[0]) + 1, FREE)
    assert later.index.tolist() == [1, 0]
    assert chosen(found, Goal("dear", 1.0, bytes_per_merge=200)) == [], "a merge costs its commit, too"


def test_a_partition_that_expires_before_a_merge_pays_is_left() -> None:
    soon, late = (BucketMerges((merge(100, 50.0),), 2, rate=10.0, hours_left=hours) for hours in (9.9, 10.1))
    assert chosen(candidates(soon, late), FREE) == [1]


def test_buckets_above_the_cap_come_first_whatever_reads_have_paid() -> None:
    cold = BucketMerges((merge(500, 1.0, count=15), merge(1900, 1.0, count=22)), 22, rate=0.0)
    hot = BucketMerges((merge(10, 1.0),), 2, rate=1e6)
    found = candidates(cold, hot)
    made = best_merges(found, NOW, FREE)
    assert made.index.tolist() == [0, 2] and made.is_forced.tolist() == [True, False]
    tighter = best_merges(found, NOW, Goal("tight", 1.0, most_runs=7, bytes_per_merge=0))
    assert tighter.index.tolist() == [1, 2], "the shorter merge would leave more than 7"
    assert chosen(found, FREE, most_bytes=400) == [0, 2], "what the budget refuses is told where it is refused"


def test_a_bucket_above_the_cap_takes_the_cheapest_merge_that_helps() -> None:
    read = BucketMerges((merge(500, 1.0, count=15), merge(5000, 1.0, gain=1e6, count=22)), 22, rate=1e6)
    assert chosen(candidates(read), FREE) == [0], "not the one for which reads have paid most"
    small = BucketMerges((merge(500, 1.0, count=20), merge(850, 1.0, count=21), merge(2000, 1.0, count=22)), 22, rate=0.0)
    assert chosen(candidates(small), FREE) == [1], "a run that is small beside what is merged goes with it"
    equal = BucketMerges((merge(500, 1.0, count=20), merge(950, 1.0, count=21)), 22, rate=0.0)
    assert chosen(candidates(equal), FREE) == [0], "a larger one would be rewritten too often"
    cheap = BucketMerges((merge(50, 1.0, count=22),), 22, rate=0.0)
    made = best_merges(candidates(read, cheap), NOW, FREE)
    assert made.index.tolist() == [2, 0], "of equal ones the cheapest first"
    more = BucketMerges((merge(5000, 1.0, count=23),), 23, rate=0.0)
    assert best_merges(candidates(cheap, more), NOW, FREE).index.tolist() == [1, 0], "an expensive one would wait for good"


def test_goals_differ_only_in_the_rate() -> None:
    rates = [GOALS[name].bytes_per_run for name in ("cost", "balanced", "latency")]
    assert rates == sorted(rates) and len({GOALS[name].most_runs for name in GOALS}) == 1


def test_buckets_that_are_alike_are_not_merged_all_at_once_and_each_has_always_the_same_patience() -> None:
    alike = [BucketMerges((merge(100, 10.0),), 2, rate=10.0, patience=patience_of("t", b"", number)) for number in range(100)]
    found = candidates(*alike)
    numbers = [len(best_merges(found, NOW + round(hours * HOUR_MILLIS), FREE).index) for hours in (-2.1, -1, 0, 1, 2.7)]
    assert numbers[0] == 0 and numbers[-1] == 100
    assert all(later - earlier > 10 for earlier, later in pairwise(numbers)), numbers
    assert patience_of("t", b"p", 1) == patience_of("t", b"p", 1) != patience_of("t", b"p", 2) != patience_of("t", b"q", 2)
    assert patience_of("other", b"", 0) != patience_of("t", b"", 0), "tables of one bucket are alike, too"


def test_a_patient_bucket_pays_more_for_a_merge_and_says_so() -> None:
    patient = BucketMerges((merge(100, 10.0),), 2, rate=10.0, patience=1.25)
    found = candidates(patient)
    assert found.score(NOW, FREE).tolist() == [0.8] and found.due(FREE).tolist() == [NOW + 2.5 * HOUR_MILLIS]
    assert patient.options[0].arithmetic(patient, NOW, FREE).endswith("the merge costs 100 B x 1.25")


@pytest.mark.parametrize(
    ("buckets", "values", "chosen"),
    [
        ([], [], []),
        ([0, 0, 0], [1.0, 3.0, 3.0], [1]),
        ([0, 0, 1, 1, 2], [2.0, 2.0, -1.0, -1.0, 0.0], [0, 4]),
        ([0, 1, 1, 1], [-1.0, 0.5, 0.7, 0.7], [2]),
    ],
)
def test_of_each_bucket_one_merge_is_the_best(buckets: list[int], values: list[float], chosen: list[int]) -> None:
    assert rent_or_buy._first_with_most(np.array(buckets), np.array(values)).tolist() == chosen


def test_a_part_of_a_goal_never_asks_for_more() -> None:
    assert FREE.at(0.5) == Goal("free", 0.5, bytes_per_merge=0)
    assert FREE.at(1.5) == FREE.at(1) == FREE
    assert FREE.at(0).bytes_per_run > 0


def test_the_arithmetic_says_what_is_charged_and_what_is_gained() -> None:
    option = MergeOption(4, MAX_LEVEL, cost=100, charged=300.0, gain=1.5, since=NOW - 2 * HOUR_MILLIS)
    told = option.arithmetic(BucketMerges((option,), 4, rate=10.0), NOW, Goal("two", 2.0, bytes_per_merge=7))
    assert told == (
        "10 reads/h x 2.0 h x 1.50 runs of 4 = 30.0 runs opened, worth 60 B at 2 B each; the merge costs 307 B x 1.00"
    )
    assert " x 30.0 min x " in option.arithmetic(BucketMerges((option,), 4), NOW - 90 * 60_000, FREE)
    assert " x 0.0 min x " in option.arithmetic(BucketMerges((option,), 4), NOW - 10 * HOUR_MILLIS, FREE), "a clock behind"


def test_runs_count_and_not_their_files() -> None:
    """Files of level 0 may stand in one run, as those of an append to a compacted table; the first merge takes that run whole."""
    deep = SortedRun(5, (file(5, 100, 9),))
    wide = SortedRun(0, (file(0, 10, 1, 0, 9), file(0, 20, 3, 10, 19)))

    given = [wide, SortedRun(4, (file(4, 50, 6),)), deep]
    found = merge_options(given, MAX_LEVEL, 0, lambda key: (key[0],), lambda one: one.creation_time_millis or 0)
    assert [(option.run_count, option.output_level) for option in found] == [(2, 4), (3, 5)]
    assert (NOW - found[0].since) / HOUR_MILLIS == 3.0, "since the older file of the run came"


def test_the_boundary_above_a_level_exists_since_its_newest_file() -> None:
    _, deepest = options(file(4, 10, 8), file(5, 50, 30, 0, 49), file(5, 50, 20, 50, 99), file(0, 5, 1))
    assert deepest.gain > 0
    level_0 = options(file(0, 5, 1), file(0, 5, 1), file(4, 10, 8), file(5, 50, 30, 0, 49), file(5, 50, 20, 50, 99))
    assert len(level_0) == 3
    shares = [level_0[0].gain, level_0[1].gain - level_0[0].gain, level_0[2].gain - level_0[1].gain]
    ages = [1.0, 1.0, 20.0]
    expected = sum(share * age for share, age in zip(shares, ages, strict=True)) / sum(shares)
    assert (NOW - level_0[2].since) / HOUR_MILLIS == pytest.approx(expected)


def test_a_short_range_within_a_long_one_ends_no_section() -> None:
    assert runs_of_a_read([(0, 9, 1), (1, 2, 1), (5, 6, 1)]) == 2.0
    assert runs_of_a_read([(0, 9, 10), (1, 2, 10), (4, 20, 10), (30, 31, 30)]) == pytest.approx((2 * 30 + 30) / 60)
    assert runs_of_a_read([(0, 9, 1), (9, 12, 1)]) == 2.0, "both have the key 9"


def test_where_no_merge_reaches_the_cap_the_deepest_is_made() -> None:
    stuck = BucketMerges((merge(50, count=2), merge(60, count=3)), 30, rate=0.0)
    helped = BucketMerges((merge(500, count=22),), 22, rate=0.0)
    made = best_merges(candidates(stuck, helped), NOW, FREE)
    assert (made.index.tolist(), made.is_forced.tolist()) == ([1, 2], [True, True])


def test_a_forced_merge_grows_only_within_the_budget() -> None:
    small = BucketMerges((merge(500, count=20), merge(850, count=21), merge(2000, count=22)), 22, rate=0.0)
    assert chosen(candidates(small), FREE, most_bytes=850) == [1]
    assert chosen(candidates(small), FREE, most_bytes=849) == [0]
