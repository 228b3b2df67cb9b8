"""The runs that readers find, worked out by hand."""

from __future__ import annotations

import pytest

from paimon_cli.lsm.seen_runs import SeenRuns


def test_what_is_merged_at_once_is_never_seen() -> None:
    seen = SeenRuns()
    for minute in range(4):
        seen.written("a", 60_000 * minute, 3)
        seen.compacted("a", 60_000 * minute, 1)
    assert (seen.mean(180_000), seen.most) == (1.0, 1)


def test_states_count_for_the_time_that_they_last() -> None:
    """Three runs for 20 of 60 seconds. A bucket to which nothing was written does not count."""
    seen = SeenRuns()
    for minute in range(3):
        seen.written("a", 60_000 * minute, 3)
        seen.compacted("a", 60_000 * minute + 20_000, 1)
        seen.compacted("b", 60_000 * minute, 7)
    assert seen.mean(120_000) == pytest.approx((3 * 20 + 40) / 60)
    assert seen.most == 3


def test_a_compaction_after_the_next_commit_changes_nothing_before_it() -> None:
    seen = SeenRuns()
    seen.written("a", 0, 2)
    seen.compacted("a", 5, 1)
    seen.written("a", 4, 2)
    seen.end("a", 8)
    assert (seen.mean(8), seen.most) == (2.0, 2)


def test_a_pause_counts_for_ten_times_the_usual_time_at_most() -> None:
    """Four seconds with one run each, and a day with six."""
    seen = SeenRuns()
    for second in range(4):
        seen.written("a", 1_000 * second, 1)
    seen.written("a", 4_000, 6)
    seen.end("a", 86_400_000)
    assert seen.mean(86_400_000) == pytest.approx((4 * 1 + 10 * 6) / 14)


def test_commits_of_the_same_moment_count_alike() -> None:
    seen = SeenRuns()
    for runs in (1, 2, 3):
        seen.written("a", 0, runs)
    assert (seen.mean(0), SeenRuns().mean(0)) == (2.0, 0.0)


def test_a_second_compaction_that_ends_where_the_first_began_counts() -> None:
    """Three runs for 20 of 60 seconds, one for 20, and three again: as after a compaction that others have undone."""
    seen = SeenRuns()
    seen.written("a", 0, 3)
    seen.compacted("a", 20_000, 1)
    seen.compacted("a", 40_000, 3)
    seen.end("a", 60_000)
    assert seen.mean(60_000) == pytest.approx((20 * 3 + 20 * 1 + 20 * 3) / 60)


def test_a_clock_that_goes_back_shortens_no_state_before() -> None:
    seen = SeenRuns()
    seen.written("a", 0, 4)
    seen.compacted("a", 30_000, 2)
    seen.compacted("a", 10_000, 1)
    seen.end("a", 60_000)
    assert seen.mean(60_000) == pytest.approx((30 * 4 + 30 * 1) / 60), "for 2 runs there was no time"


def test_what_begins_after_the_end_was_not_seen() -> None:
    """The runs of a compaction whose files say that they were made after the next commit."""
    seen = SeenRuns()
    seen.written("a", 0, 2)
    seen.compacted("a", 30, 4)
    seen.compacted("a", 90, 9)
    seen.end("a", 60)
    assert (seen.mean(60), seen.most) == (3.0, 4)


def test_of_states_without_time_the_last_is_what_readers_find() -> None:
    seen = SeenRuns()
    seen.written("a", 7, 5)
    seen.compacted("a", 7, 1)
    seen.end("a", 7)
    assert (seen.mean(7), seen.most) == (1.0, 1)


def test_the_last_state_lasts_at_least_the_typical_time() -> None:
    """Commits of 10, 10 and 40 ms; the typical one is the median. The last one has been there for no time yet."""
    seen = SeenRuns()
    for moment in (0, 10, 20, 60):
        seen.written("a", moment, 1)
    seen.written("b", 60, 5)
    seen.compacted("b", 60, 3)
    assert seen.mean(60) == pytest.approx((10 + 10 + 40 + 10 * 1 + 10 * 3) / 80)
