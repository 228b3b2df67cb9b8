"""When a commit gives up, counted as Java counts, and what it says then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.retry_policy import RetryPolicy
from paimon_cli.history.table_context import TableContext
from tests.commit.commit_tables import SteppingClock, make_table


class Dice:
    """A random source that always returns the same number."""

    def __init__(self, throw: float) -> None:
        self.throw = throw

    def jitter(self) -> float:
        return self.throw

    def uuid(self) -> str:
        return "00000000-0000-0000-0000-000000000000"


def context_with(folder: Path, options: dict[str, str], throw: float = 0.0) -> tuple[TableContext, SteppingClock]:
    clock = SteppingClock()
    return replace(make_table(folder, options), clock=clock, random=Dice(throw)), clock


@pytest.mark.parametrize("retries", [0, 1, 10])
def test_one_attempt_more_than_retries_and_no_wait_after_the_last(tmp_path: Path, retries: int) -> None:
    context, clock = context_with(tmp_path, {"commit.max-retries": str(retries)})
    assert list(RetryPolicy(context)) == list(range(1, retries + 2))
    assert len(clock.sleeps) == retries


@pytest.mark.parametrize(("throw", "factor"), [(0.0, 1.0), (0.5, 1.1), (0.999, 1.1998)])
def test_waits_double_up_to_the_longest_with_a_fifth_of_jitter(tmp_path: Path, throw: float, factor: float) -> None:
    options = {"commit.max-retries": "5", "commit.min-retry-wait": "10 ms", "commit.max-retry-wait": "50 ms"}
    context, clock = context_with(tmp_path, options, throw)
    list(RetryPolicy(context))
    assert clock.sleeps == pytest.approx([wait * factor / 1000 for wait in (10, 20, 40, 50, 50)])


def test_the_timeout_is_checked_before_a_wait(tmp_path: Path) -> None:
    options = {"commit.timeout": "30 ms", "commit.min-retry-wait": "10 ms"}
    context, clock = context_with(tmp_path, options)
    assert list(RetryPolicy(context)) == [1, 2, 3, 4]  # at 0, 10, 30 and 70 ms: 30 is not yet more than 30
    assert clock.sleeps == [0.01, 0.02, 0.04]


def test_an_attempt_that_takes_too_long_is_the_last_one(tmp_path: Path) -> None:
    context, clock = context_with(tmp_path, {"commit.timeout": "1 s"})
    attempts = iter(RetryPolicy(context))
    assert next(attempts) == 1
    clock.now += 2_000
    assert list(attempts) == [] and clock.sleeps == []


def test_the_error_has_all_figures(tmp_path: Path) -> None:
    context, _ = context_with(tmp_path, {"commit.max-retries": "2", "commit.timeout": "1 min", "commit.min-retry-wait": "1 s"})
    attempts = RetryPolicy(context)
    assert list(attempts) == [1, 2, 3]
    error = attempts.exhausted()
    assert error.exit_code == 6
    assert error.why == "other commits were faster in all 3 attempts, 3.0 s (commit.max-retries=2, commit.timeout=60000 ms)"
    assert error.details == {"attempts": 3, "elapsed_millis": 3000, "max_retries": 2, "timeout_millis": 60_000}
