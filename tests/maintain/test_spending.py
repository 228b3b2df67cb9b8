"""What services have taken of budgets: until a day after it was taken, and whatever becomes of the objects meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from paimon_cli.maintain.ledger import DAY_MILLIS, Ledger, LedgerFile, LedgerRound, LedgerStep
from paimon_cli.maintain.spending import Spending
from paimon_cli.storage.local_storage import LocalStorage
from tests.jobs.test_leases import HandClock

NOW = 1_795_900_000_000
OWN, OTHER = "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", "5f81cac4-a653-4c3a-81be-2e08ec6d07ae"
HOUR = 3_600_000


def done(number: int, started: int, seconds: float = 0.5, service: str = OTHER) -> LedgerRound:
    return LedgerRound(service, number, started, seconds, 1, steps=(LedgerStep("shop.orders", "compacted", bytes_read=number),))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(LocalStorage(), str(tmp_path), HandClock(NOW))


def test_a_long_round_counts_until_a_day_after_its_end(ledger: Ledger) -> None:
    ledger.add(done(7, NOW - DAY_MILLIS - 5 * HOUR, 6 * 3600))
    ledger.add(done(8, NOW - DAY_MILLIS - 5 * HOUR, 4 * 3600))
    ledger.add(done(9, NOW - HOUR, 1e308))
    assert Spending(ledger, OWN).taken(True) == [(NOW - DAY_MILLIS + HOUR, 7), (NOW, 9)]


def test_a_round_that_has_not_ended_counts_with_its_grant_and_an_own_one_not(ledger: Ledger) -> None:
    for begun in (done(1, NOW - HOUR), done(2, NOW), done(3, NOW, service=OWN)):
        ledger.begin(begun)
    ledger.add(replace(done(2, NOW), steps=()))
    assert [each.number for each in Spending(ledger, OWN).rounds()] == [1, 2]
    assert Spending(ledger, OWN).taken(True) == [(NOW - HOUR + 500, 1)]


def test_a_round_that_lasts_for_more_than_a_day_counts_as_of_what_it_said_last(ledger: Ledger) -> None:
    begun = done(1, NOW - DAY_MILLIS - HOUR, 0)
    ledger.begin(begun)
    ledger.goes_on(replace(begun, seconds=24 * 3600))
    ledger.begin(done(2, NOW - DAY_MILLIS - HOUR, 0))
    assert Spending(ledger, OWN).taken(True) == [(NOW - HOUR, 1)]


def test_all_steps_of_the_tables_in_question_count_with_their_upkeep(ledger: Ledger) -> None:
    steps = tuple(
        LedgerStep(table, "compacted", bytes_read=size, upkeep_bytes=upkeep, seconds=seconds)
        for table, size, upkeep, seconds in (("s.a", 1, 10, 0.5), ("s.b", 100, 0, 2.0), ("s.a", 0, 1000, 4.0))
    )
    ledger.add(replace(done(1, NOW - HOUR), steps=steps))
    spending = Spending(ledger, OWN)
    assert [amount for _, amount in spending.taken(True)] == [11, 100, 1000]
    assert [amount for _, amount in spending.taken(False, "s.a".__eq__)] == [500, 4000]


def test_a_round_that_ended_while_it_was_read_counts_with_what_it_took(ledger: Ledger) -> None:
    """Not with its grant, although that is still listed; and one that lasts beyond midnight is found by the day that it began."""
    ledger.begin(done(9, NOW - HOUR))
    ledger.add(replace(done(9, NOW - HOUR), steps=(LedgerStep("s.a", "compacted", bytes_read=3),)))
    ledger.begin(done(9, NOW - HOUR))
    ledger.add(done(5, NOW - DAY_MILLIS - HOUR, 2 * 3600))
    assert sorted(Spending(ledger, OWN).taken(True)) == [(NOW - DAY_MILLIS + HOUR, 5), (NOW - HOUR + 500, 3)]


@dataclass(frozen=True)
class PackedMeanwhile(Ledger):
    """After the first listing, another service packs what is listed."""

    listings: list[int] = field(default_factory=list)

    def newest(self, on_damage: object = None) -> list[LedgerFile]:
        found = Ledger.newest(self)
        if not self.listings:
            Ledger(self.storage, self.root, self.clock).tidy(OTHER, lambda error: pytest.fail(str(error)))
        self.listings.append(len(found))
        return found


def test_what_a_round_may_still_spend_is_read_again(ledger: Ledger) -> None:
    """It shrinks while the round is at work, under the name under which it was read already."""

    def granted(size: int) -> LedgerRound:
        return replace(done(1, NOW - HOUR), steps=(LedgerStep("s.a", "compacted", bytes_read=size),))

    ledger.begin(granted(1000))
    spending = Spending(ledger, OWN)
    assert [amount for _, amount in spending.taken(True)] == [1000]
    ledger.goes_on(granted(7))
    assert [amount for _, amount in spending.taken(True)] == [7]


def test_rounds_that_are_packed_while_they_are_read_count(ledger: Ledger) -> None:
    yesterday = NOW - NOW % DAY_MILLIS - HOUR
    for number in (1, 2, 3):
        ledger.add(done(number, yesterday + number))
    spending = Spending(PackedMeanwhile(ledger.storage, ledger.root, ledger.clock), OWN)
    assert [each.number for each in spending.rounds()] == [1, 2, 3]
    assert [path.name[:4] for path in Path(ledger.directory).iterdir()] == ["day-"]


def test_packs_of_days_that_no_longer_count_are_not_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in (1, 5, 30):
        for number in (1, 2):
            ledger.add(done(number, NOW - day * DAY_MILLIS + HOUR + number))
    ledger.tidy(OTHER, lambda error: pytest.fail(str(error)))
    opened: list[str] = []
    read_bytes = LocalStorage.read_bytes

    def counted(storage: LocalStorage, path: str) -> bytes:
        opened.append(path)
        return read_bytes(storage, path)

    monkeypatch.setattr(LocalStorage, "read_bytes", counted)
    spending = Spending(ledger, OWN)
    assert [each.number for each in spending.rounds()] == [1, 2]
    assert [each.number for each in spending.rounds()] == [1, 2]
    assert len(opened) == 1, "the pack of yesterday, once"
