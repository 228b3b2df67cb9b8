"""The budget of a day: whatever is asked of it and when, no 24 hours take more, and what comes back is used."""

from __future__ import annotations

import random

import pytest

from paimon_cli.jobs.service.budget import DAY_MILLIS, Budget
from paimon_cli.requests.upkeep import Allowance
from tests.jobs.test_leases import HandClock

NOW = 10**14


@pytest.mark.parametrize("seed", range(5))
def test_no_day_takes_more_and_nearly_all_is_used(seed: int) -> None:
    clock, dice, taken = HandClock(NOW), random.Random(seed), list[tuple[int, int]]()
    budget = Budget.of(Allowance(size=1_000_000, is_daily=True), clock)
    days = 6
    while clock.millis < NOW + days * DAY_MILLIS:
        clock.millis += dice.randrange(1, 900_000)
        if dice.random() < 0.02:
            clock.millis += dice.randrange(DAY_MILLIS // 8)
        size = dice.choice((100, 5_000, 60_000))
        if budget.reserve_all(size):
            used = dice.choice((size, size // 2))
            budget.settle(size, used)
            taken.append((clock.millis, used))
    for moment, _ in taken:
        assert sum(used for at, used in taken if moment <= at < moment + DAY_MILLIS) <= 1_000_000
    # the last day may be unfinished, and the bucket was full at the start
    assert sum(used for _, used in taken) >= 0.9 * 1_000_000 * (days - 1)


def test_a_service_that_is_restarted_goes_on_with_what_was_left() -> None:
    clock = HandClock(NOW)
    spent = [(NOW - 3_600_000, 700.0), (NOW - DAY_MILLIS - 3_600_000, 900.0)]
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock, spent)
    assert budget.left == 300 and budget.most_bytes == 1000
    assert not budget.reserve_all(301) and budget.reserve_all(300)
    assert budget.left == 0 and not budget.reserve_all(1), "what is reserved is not given twice"
    budget.settle(300, 300)
    ready = budget.ready_millis(100)
    assert ready > NOW + DAY_MILLIS - 3_600_000 - 1
    clock.millis = ready + 60_000
    assert budget.reserve_all(100)


def test_what_comes_while_a_large_merge_fills_the_day_is_there_afterwards() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=24_000, is_daily=True), clock)
    assert budget.reserve_all(24_000)
    budget.settle(24_000, 24_000)
    for _ in range(24):
        assert budget.left == 0, "a day would take more"
        clock.millis += 3_600_000
    clock.millis += 60_000
    assert budget.left == 24_000
    assert budget.reserve_all(12_000)
    budget.settle(12_000, 12_000)
    assert budget.left == 12_000 and budget.ready_millis(24_000) >= clock.millis + DAY_MILLIS // 2
    for _ in range(5 * 24):
        clock.millis += 3_600_000
        assert budget.left is not None and budget.left <= 24_000, "no more than a day's amount is saved up"


def test_a_daily_time_is_divided_by_the_measured_speed() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(millis=60_000, is_daily=True), clock)
    before = budget.most_bytes
    for _ in range(50):
        assert budget.reserve_all(1_000_000)
        budget.settle(1_000_000, 1_000_000, 1000.0)
    assert budget.most_bytes < before / 4, "merges are slower than was taken"
    assert budget.left == 10_000
    assert not budget.reserve_all(50_000_000)
    assert budget.left == 10_000, "what does not fit takes nothing"


def test_what_upkeep_took_beyond_its_reservation_is_owed() -> None:
    budget = Budget.of(Allowance(size=1000, is_daily=True), HandClock(NOW))
    assert budget.reserve_all(400)
    budget.settle(400, 900)
    assert budget.left == 100
    once = Budget.of(Allowance(size=1000), HandClock(NOW), charges_upkeep=True)
    assert once.reserve_all(400)
    once.settle(400, 900)
    assert once.left == 100
