"""The budget of a day: whatever is asked of it and when, no 24 hours take more, and what comes back is used."""

from __future__ import annotations

import random
from collections import deque

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.jobs.service.budget import DAY_MILLIS, Budget, DailyAllowance
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


@pytest.mark.parametrize("after", [0, 59_999, 60_000, 60_001, 119_999, 120_000])
def test_what_is_taken_soon_after_other_amounts_counts_for_a_whole_day(after: int) -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    for size in (1, 999):
        assert budget.reserve_all(size)
        budget.settle(size, size)
        clock.millis += after if size == 1 else 0
    clock.millis += DAY_MILLIS - 1
    assert budget.left is not None and budget.left <= 1, "of these 24 hours only the first byte may be forgotten"
    clock.millis += 120_000
    assert budget.left == 1000


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


def test_what_others_took_counts_beside_the_own_and_until_a_day_later() -> None:
    """Also several amounts of one minute, and those that were known before only if they are named again."""
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    budget.takes_note([(NOW - 30_000, 100.0), (NOW - 20_000, 200.0), (NOW - 7_200_000, 50.0)])
    assert budget.left == 650
    assert budget.reserve_all(400)
    budget.settle(400, 400)
    assert budget.left == 250
    budget.takes_note(None)
    assert budget.left == 250
    clock.millis += DAY_MILLIS - 60_000
    assert budget.left == 300, "what was taken two hours before came back"
    clock.millis += 3 * 60_000
    assert budget.left is not None and budget.left > 300


def test_what_was_taken_within_a_minute_counts_until_a_day_after_the_last_of_it() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    for _ in range(2):
        assert budget.reserve_all(400)
        budget.settle(400, 400)
        clock.millis += 59_000
    clock.millis = NOW + DAY_MILLIS + 1000
    assert budget.left is not None and budget.left <= 600


def test_a_clock_that_is_put_back_neither_takes_nor_gives() -> None:
    clock, steady = HandClock(NOW), HandClock(NOW)
    budget, other = (Budget.of(Allowance(size=24_000, is_daily=True), each) for each in (clock, steady))
    for one in (budget, other):
        assert one.reserve_all(20_000)
        one.settle(20_000, 20_000)
    for _ in range(40):
        steady.millis += 3_600_000
        for back in (1_800_000, 7_200_000, 0):
            clock.millis = steady.millis - back
            assert budget.left is not None and other.left is not None and budget.left <= other.left
        assert budget.left == other.left


def test_amounts_come_back_in_the_order_of_time_whoever_took_them() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    budget.takes_note([(NOW - 3_600_000, 300.0)])
    assert budget.reserve_all(600)
    budget.settle(600, 600)
    assert budget.left == 100
    first = budget.ready_millis(350) - (NOW + DAY_MILLIS)
    assert -3_600_000 <= first <= -3_600_000 + 120_000, "what others took an hour ago comes back first"
    deque_of = deque([(NOW - 3_600_000, 300.0)])
    early = [(NOW - 20 * 3_600_000, 400.0)]
    mixed, sorted_alike = DailyAllowance(1000, True, 1000.0, NOW, taken=deque_of, elsewhere=early), [*early, *deque_of]
    assert mixed.kept(NOW) == DailyAllowance(1000, True, 1000.0, NOW, elsewhere=sorted_alike).kept(NOW)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_asked_for_is_there_when_it_is_said_to_be(seed: int) -> None:
    clock, dice = HandClock(NOW), random.Random(seed)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    for _ in range(150):
        clock.millis += dice.randrange(1, 4_000_000)
        size = dice.choice((10, 100, 400))
        if budget.reserve_all(size):
            budget.settle(size, size)
        if dice.random() < 0.1:
            budget.takes_note([(clock.millis - dice.randrange(DAY_MILLIS), 100.0) for _ in range(3)])
        wanted = dice.choice((50, 300, 900))
        ready = budget.ready_millis(wanted)
        assert (ready > clock.millis) == (not budget.has(wanted))
        if dice.random() < 0.3:
            clock.millis = ready
            assert budget.has(wanted)


@pytest.mark.parametrize(
    ("taken", "kept"),
    [
        ([], 900),
        ([(20, 400.0), (10, 300.0)], 200),
        ([(4, 700.0)], 750),
        ([(23, 100.0), (4, 600.0)], 650),
    ],
)
def test_until_amounts_come_back_an_even_spending_is_kept(taken: list[tuple[int, float]], kept: float) -> None:
    """`taken`: hours ago, and how much; each comes back a day later, beside all that were taken before it."""
    deque_of = [(NOW - hours * 3_600_000, amount) for hours, amount in taken]
    allowance = DailyAllowance(1000, True, 1000.0, NOW, taken=deque(deque_of[:1]), elsewhere=deque_of[1:])
    assert allowance.kept(NOW) == pytest.approx(kept)


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


@pytest.mark.parametrize("text", ["1s", "10min", "2h/day", "90min", "500ms", "24h/day"])
def test_an_allowance_is_shown_as_it_is_written(text: str) -> None:
    assert str(Allowance.parse(text)) == text.replace("24h", "1d")
    assert Allowance.parse(str(Allowance.parse(text))) == Allowance.parse(text)


def test_a_day_has_no_more_than_its_hours() -> None:
    with pytest.raises(UsageError, match="a day has 24 h"):
        Allowance.parse("25h/day")
    assert Allowance.parse("25h").millis == 25 * 3_600_000
