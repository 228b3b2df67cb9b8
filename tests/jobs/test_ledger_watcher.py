"""What services write into the ledger: only rounds that did something, and never at the price of their work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.compact.compaction_task import PostponedRows, RegroupedPartition
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.service.ledger_watcher import LedgerWatcher, step_of
from paimon_cli.jobs.service.shared_budgets import Grant
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, TableRound
from paimon_cli.maintain.ledger import Ledger, LedgerRound
from paimon_cli.maintain.spending import Spending
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    for name in ("orders", "idle"):
        table = Table.create(
            tmp_path / "wh" / "shop.db" / name,
            columns=["id BIGINT NOT NULL", "v STRING"],
            primary_key=["id"],
            options={"bucket": "1", "num-sorted-run.compaction-trigger": "3"},
        )
        for commit in range(6 if name == "orders" else 1):
            table.write([{"id": number, "v": f"{commit}" * 50} for number in range(50)], compact="none")
    return Catalog(str(tmp_path / "wh"))


def watch(catalog: Catalog, rounds: int = 2) -> None:
    catalog.watch(database="shop", watcher=Rounds(HandClock()), max_rounds=rounds, interval=1, expire=True, whole=True)


def test_a_service_writes_what_it_did_and_why(catalog: Catalog) -> None:
    before = catalog.table("shop.orders").files()
    watch(catalog)
    (row,) = catalog.ledger.ls()
    after = catalog.table("shop.orders").files()
    assert (row.table, row.state, row.round) == ("shop.orders", "compacted", 1)
    assert (row.bytes_read, row.bytes_written) == (sum(file.size for file in before), sum(file.size for file in after))
    assert (row.runs_before, row.runs_after) == (6, 1)
    assert (row.read_bytes_before, row.read_bytes_after) == (row.bytes_read, row.bytes_written)
    assert "size-amplification" in row.why and (row.score, row.budget_left, row.error) == (None, None, "")
    assert row.round_requests > 10
    (total,) = catalog.ledger.show(since="1 h")
    assert (total.table, total.steps, total.runs_removed) == ("shop.orders", 1, 5)
    assert catalog.ledger.show(since="0 ms") == []


def test_an_idle_service_writes_nothing(catalog: Catalog) -> None:
    watch(catalog, 1)
    watch(catalog, 3)
    assert len(catalog.ledger.ls()) == 1


def test_a_loss_of_the_ledger_changes_nothing_but_reports(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "wh" / ".paimon-cli").mkdir()
    (tmp_path / "wh" / ".paimon-cli" / "ledger").write_text("a file in its place")
    warnings: list[str] = []
    catalog.runtime = replace(catalog.runtime, warn=warnings.append)
    watch(catalog)
    assert len(catalog.table("shop.orders").files()) == 1
    assert len(warnings) == 1 and "the ledger is incomplete" in warnings[0]


def test_a_store_that_hangs_is_given_up(tmp_path: Path) -> None:
    class Hanging(LocalStorage):
        def put_if_absent(self, path: str, data: bytes):  # type: ignore[no-untyped-def]
            import threading

            threading.Event().wait(5)

    clock, warnings = HandClock(1_795_900_000_000), list[str]()
    ledger = Ledger(Hanging(), str(tmp_path), clock)
    watcher = LedgerWatcher(Rounds(clock), ledger, "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", clock, warnings.append, 0.2)
    failed = TableRound("shop.orders", "failed")
    watcher.table_done(failed)
    watcher.round_done(ServiceRound(1, clock.now_millis(), 0.1, (failed,)), None)
    assert len(warnings) == 1


def test_a_round_whose_object_may_be_missing_goes_on_counting(tmp_path: Path) -> None:
    class Unsure(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            return PutOutcome.UNKNOWN if "/round-1" in path else super().put_if_absent(path, data)

    clock = HandClock(1_795_900_000_000)
    ledger = Ledger(Unsure(), str(tmp_path), clock)
    watcher = LedgerWatcher(Rounds(clock), ledger, "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", clock, pytest.fail)
    done = TableRound("shop.orders", "compacted", CompactSummary(bytes_read=450, seconds=0.9))
    watcher.round_spends(1, clock.now_millis(), [Grant("shop.orders", 500, 1000.0)])
    watcher.table_done(done)
    watcher.round_done(ServiceRound(1, clock.now_millis(), 0.1, (done,)), None)
    ended, (begun,) = ledger.spent(0, lambda damage: None)
    assert ended == [] and [(step.bytes_read, step.seconds) for step in begun.steps] == [(500, 1.0)]


def test_what_a_round_may_spend_shrinks_as_its_tables_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a kill costs what was in progress, and not all that the round was granted."""
    clock = HandClock(1_795_900_000_000)
    ledger, writes = Ledger(LocalStorage(), str(tmp_path), clock), list[int]()
    watcher = LedgerWatcher(Rounds(clock), ledger, "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", clock, pytest.fail)
    another = Spending(ledger, "5f81cac4-a653-4c3a-81be-2e08ec6d07ae")
    watcher.round_spends(1, clock.now_millis(), [Grant(f"shop.t{number}", 100_000, 4000.0) for number in range(100)])
    assert sum(size for _, size in another.taken(True)) == 10_000_000
    goes_on = Ledger.goes_on

    def counted(ledger: Ledger, begun: LedgerRound) -> None:
        writes.append(1)
        goes_on(ledger, begun)

    monkeypatch.setattr(Ledger, "goes_on", counted)
    for number in range(99):
        clock.sleep(1)
        done = TableRound(f"shop.t{number}", "compacted", CompactSummary(bytes_read=700, seconds=0.5), upkeep_bytes=300)
        watcher.table_done(done)
    (moment, _), *_ = took = another.taken(True)
    assert 99 * 1000 + 100_000 <= sum(size for _, size in took) <= 2 * (99 * 1000 + 100_000)
    assert 99 * 500 + 4000 <= sum(millis for _, millis in another.taken(False)) <= 2 * (99 * 500 + 4000)
    assert moment > 1_795_900_090_000, "a round may take hours"
    assert len(writes) < 30


def test_what_a_round_takes_beyond_its_grants_is_seen_at_once(tmp_path: Path) -> None:
    clock = HandClock(1_795_900_000_000)
    ledger = Ledger(LocalStorage(), str(tmp_path), clock)
    watcher = LedgerWatcher(Rounds(clock), ledger, "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", clock, pytest.fail)
    another = Spending(ledger, "5f81cac4-a653-4c3a-81be-2e08ec6d07ae")
    watcher.round_spends(1, clock.now_millis(), [Grant(f"shop.t{number}", 100_000, 4000.0) for number in range(10)])
    for number in range(10):
        summary = CompactSummary(bytes_read=100_000, seconds=4.0)
        watcher.table_done(TableRound(f"shop.t{number}", "compacted", summary, upkeep_bytes=20_000))
    assert 0.98 * 1_200_000 <= sum(size for _, size in another.taken(True)) <= 1_200_000


def test_each_round_has_its_own_requests_and_tables(tmp_path: Path) -> None:
    clock, asked = HandClock(1_795_900_000_000), {"read": 5}
    ledger = Ledger(LocalStorage(), str(tmp_path), clock)
    watcher = LedgerWatcher(Rounds(clock), ledger, "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", clock, pytest.fail, requests=asked)
    for number, name in enumerate(("orders", "people"), 1):
        failed = TableRound(f"shop.{name}", "failed")
        watcher.table_done(failed)
        watcher.round_done(ServiceRound(number, clock.now_millis() + number, 0.1, (failed,)), None)
        asked["read"] += 3
    found = ledger.rounds(0, lambda damage: None)
    assert [each.requests for each in found] == [{"read": 5}, {"read": 3}]
    assert [[step.table for step in each.steps] for each in found] == [["shop.orders"], ["shop.people"]]


@pytest.mark.parametrize(("budget_left", "is_noted"), [(1 << 20, True), (None, False)])
def test_a_search_that_took_from_a_budget_and_found_nothing_is_noted(
    tmp_path: Path, budget_left: int | None, is_noted: bool
) -> None:
    clock = HandClock(1_795_900_000_000)
    ledger = Ledger(LocalStorage(), str(tmp_path), clock)
    watcher = LedgerWatcher(Rounds(clock), ledger, "4e70b9b3-9542-4b2f-90ad-1df7db5cf6fd", clock, pytest.fail)
    searched = TableRound("shop.orders", RoundState.NOTHING, budget_left=budget_left, upkeep_bytes=64 << 10)
    watcher.table_done(searched)
    watcher.round_done(ServiceRound(1, clock.now_millis(), 0.1, (searched,)), None)
    written = [step.upkeep_bytes for each in ledger.rounds(0, lambda error: pytest.fail(str(error))) for step in each.steps]
    assert written == ([64 << 10] if is_noted else [])


def test_the_ledger_says_why_rows_got_their_buckets() -> None:
    works = (PostponedRows(b"", -2, ()), RegroupedPartition(b"", 0, (), 1, 2, 3, "1 -> 2 buckets: it is large"))
    step = step_of(TableRound("shop.orders", "compacted", CompactSummary(buckets=2, plan=CompactionPlan(1, works))))
    assert step.why == "1 x 1 -> 2 buckets: it is large; 1 x postponed rows get their buckets"
