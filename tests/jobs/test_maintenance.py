"""`maintain`: one run compacts, expires, deletes orphans and checks, within a budget, beside other services."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.errors import Conflict, DamagedFile, NotSupported, PaimonError, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.service import service_turn, turn_steps
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.maintenance import MaintainedTable, Quiet, RunLimits, _both, maintain, plan_maintenance
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.shared_budgets import share_out
from paimon_cli.jobs.service.table_round import RoundState, TableRound
from paimon_cli.pieces import PIECES
from paimon_cli.requests.upkeep import Allowance
from paimon_cli.storage.local_storage import LocalStorage
from tests.jobs.test_goal_rounds import turn
from tests.jobs.test_leases import HandClock
from tests.tables import make_table, named_files, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
NOW = 10**14
KEEPS_TWO = {"write-only": "true", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}


class Shop:
    """Some tables that need care, and a run over all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, HandClock(NOW)
        self.names: list[str] = []
        self.broken: dict[str, PaimonError] = {}

    def add(self, name: str, commits: int = 6, options: Mapping[str, str] | None = None) -> TableContext:
        context = make_table(self.folder / name, COLUMNS, ["id"], options={**KEEPS_TWO, **(options or {})})
        for number in range(commits):
            write(context, [{"id": 1, "n": number}])
        self.names.append(name)
        return context

    def litter(self, name: str) -> Path:
        old = self.folder / name / "bucket-0" / "data-orphan.parquet"
        old.write_bytes(b"x" * 10)
        os.utime(old, (0, 0))
        return old

    def open(self, name: str) -> TableContext:
        if name in self.broken:
            raise self.broken[name]
        return TableContext.open(str(self.folder / name), clock=self.clock)

    @property
    def tables(self) -> list[ServedTable]:
        return [ServedTable(name, lambda name=name: self.open(name)) for name in self.names]  # type: ignore[misc]

    def budget(self, millis: int | None = None, size: int | None = None) -> Budget:
        return Budget.of(Allowance(millis, size), self.clock)

    def run(self, budget: Budget | None = None, leases: Leases | None = None) -> dict[str, MaintainedTable]:
        self.rounds: dict[str, TableRound] = {}
        found, budget = {}, budget or self.budget()
        for done, findings in maintain(
            self.tables, LocalEngine(), Quiet(NoProgress), contextlib.nullcontext, leases, RunLimits(budget, 60.0)
        ):
            self.rounds[done.table] = done
            found[done.table] = MaintainedTable.of(done, findings)
        return found

    def plan(self, budget: Budget | None = None) -> dict[str, MaintainedTable]:
        return {
            row.table: row for row, _ in plan_maintenance(self.tables, NoProgress(), RunLimits(budget or self.budget(), 60.0))
        }


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def size_of(context: TableContext) -> int:
    return sum(path.stat().st_size for path in Path(context.url).glob("bucket-0/data-*"))


def test_a_run_does_all_that_is_due_and_finds_the_table_well(shop: Shop) -> None:
    context = shop.add("a")
    old = shop.litter("a")
    planned = shop.plan()["a"]
    assert (planned.state, planned.buckets, planned.snapshots_expired, planned.orphans) == ("due", 1, 4, 1)
    assert old.exists() and context.snapshots.ids() == [1, 2, 3, 4, 5, 6]
    done = shop.run()["a"]
    assert (done.state, done.buckets, done.files_before, done.files_after) == ("compacted", 1, 6, 1)
    assert (done.snapshots_expired, done.orphans, done.orphan_bytes, done.findings, done.left) == (5, 1, 10, (), ())
    assert not old.exists() and context.snapshots.ids() == [6, 7]
    assert named_files(context)
    again = shop.run()["a"]
    assert (again.state, again.has_work, again.findings) == ("nothing to do", False, ())


def test_a_table_without_a_compaction_is_not_idle_if_something_was_deleted(shop: Shop) -> None:
    shop.add("a", 1)
    shop.litter("a")
    done = shop.run()["a"]
    assert (done.state, done.buckets, done.orphans) == ("cleaned up", 0, 1)
    assert shop.run()["a"].state == "nothing to do"


def test_everything_expires_that_has_a_retention(shop: Shop) -> None:
    options = {"consumer.expiration-time": "1 d", "changelog-producer": "input", "changelog.num-retained.max": "3"}
    context = shop.add("a", options={**options, "changelog.num-retained.min": "1", "write-only": "true"})
    consumer = Path(context.url, "consumer", "consumer-gone")
    consumer.parent.mkdir()
    consumer.write_text('{"nextSnapshot": 1}')
    os.utime(consumer, (0, 0))
    shop.clock.millis = int(os.stat(context.layout.snapshot(1)).st_mtime * 1000)
    done = shop.run()["a"]
    assert done.consumers_expired == 1, "it is the first to go: it protects the snapshots"
    assert done.snapshots_expired == 5
    assert done.changelogs_expired > 0 and not consumer.exists()
    assert set(done.upkeep.expired) == {"consumer", "snapshot", "changelog"}


def test_ages_follow_the_clock_of_the_storage(shop: Shop) -> None:
    """The clock of this machine is centuries ahead: by it everything is old, and would be gone."""
    shop.add("a", options={"snapshot.num-retained.max": "100", "snapshot.time-retained": "1 h"})
    young = Path(shop.folder, "a", "bucket-0", "data-of-a-running-commit.parquet")
    young.write_bytes(b"x")
    assert shop.plan()["a"].snapshots_expired == 0
    done = shop.run()["a"]
    assert (done.state, done.snapshots_expired, done.orphans) == ("compacted", 0, 0) and young.exists()


def test_a_partition_expires_only_if_the_table_says_so(shop: Shop) -> None:
    columns, name = {"dt": "STRING NOT NULL", "id": "INT NOT NULL"}, "p"
    context = make_table(shop.folder / name, columns, ["dt", "id"], ["dt"], options=KEEPS_TWO)
    write(context, [{"dt": "2001-01-01", "id": 1}])
    shop.names.append(name)
    shop.clock.millis = int(os.stat(context.layout.snapshot(1)).st_mtime * 1000)
    assert shop.run()[name].partitions_expired == 0
    by_time = {"partition.expiration-time": "7 d", "partition.timestamp-formatter": "yyyy-MM-dd"}
    expiring = ServedTable(name, lambda: shop.open(name).with_options(by_time))
    ((done, _),) = maintain(
        [expiring], LocalEngine(), Quiet(NoProgress), contextlib.nullcontext, None, RunLimits(shop.budget(), 60.0)
    )
    assert done.upkeep.partitions_expired == 1
    assert done.expired_by == (context.snapshots.latest_id(),), "by which hooks know of it"


def test_bytes_go_to_the_most_urgent_and_the_rest_is_named(shop: Shop) -> None:
    urgent, other = shop.add("urgent", 9), shop.add("other", 6)
    size = size_of(urgent)
    planned = shop.plan(shop.budget(size=size))
    assert (planned["urgent"].buckets, planned["other"].buckets, planned["other"].left_buckets) == (1, 0, 1)
    done = shop.run(shop.budget(size=size))
    assert done["urgent"].state == "compacted" and done["urgent"].left_buckets == 0
    assert (done["other"].buckets, done["other"].left_buckets, done["other"].left_bytes) == (0, 1, size_of(other))
    assert done["other"].snapshots_expired == 4, "expiry reads no data"
    assert "PD027" in {finding.code for finding in done["other"].findings or ()}
    assert shop.run(shop.budget(size=size_of(other)))["other"].buckets == 1


def test_what_can_never_fit_holds_back_nothing_and_is_named(shop: Shop) -> None:
    """One of the most urgent table, and in a table with buckets of different sizes, the one with the most runs."""
    huge, other = shop.add("huge", 9), shop.add("other", 6)
    needed, size = size_of(huge), size_of(other)
    assert needed > size
    planned = shop.plan(shop.budget(size=size))
    assert [(planned[name].buckets, planned[name].left_buckets) for name in ("huge", "other")] == [(0, 1), (1, 0)]
    done = shop.run(shop.budget(size=size))
    assert [(done[name].buckets, done[name].left_buckets) for name in ("huge", "other")] == [(0, 1), (1, 0)]
    names = f"1 bucket is larger than the whole budget; bucket-0 needs --budget {needed}b"
    assert done["huge"].beyond_budget == planned["huge"].beyond_budget == names and not done["other"].beyond_budget
    done = shop.run(shop.budget(size=needed))
    assert done["huge"].buckets == 1 and not done["huge"].beyond_budget


def test_what_is_given_back_goes_to_the_next_most_urgent_as_a_whole(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, other = shop.add("failing", 9), shop.add("other", 6)

    def fail_first(context: TableContext, *given: object, **named: object) -> object:
        if context.url == failing.url:
            raise NotSupported("this table cannot be compacted")
        return run_compact(context, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(turn_steps, "run_compact", fail_first)
    monkeypatch.setattr("paimon_cli.jobs.service.compaction_service.SMALL_BYTES", -1)
    done = shop.run(shop.budget(size=size_of(failing) + size_of(other) // 2))
    assert (done["other"].buckets, done["other"].left_buckets) == (1, 0)


def test_a_service_saves_for_what_fits_later_and_passes_what_never_fits() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    budget.settle(budget.reserve(700), 700)
    turns = [turn("huge", (0.0, 1001)), turn("next", (0.0, 100), (0.0, 250)), turn("last", (0.0, 5))]
    assert share_out(turns, budget, is_by_goal=False) is None
    assert [each.granted for each in turns] == [0, 100, 0], "less urgent ones wait, or the one that is saved for never fits"
    assert "saved for next" in turns[2].budget_says and "were left when it asked" in turns[1].budget_says
    assert "--budget 1001b/day" in turns[0].beyond_budget and not turns[1].beyond_budget
    budget.settle(turns[1].granted, 0)
    for each in turns:
        each.top_up()
    assert [each.granted for each in turns] == [0, 100, 0], "the ledger does not say that this round may take it"
    assert budget.has(300), "it is there for the next round"
    timed = Budget.of(Allowance(millis=60_000, is_daily=True), clock)
    needed = 2 * int(timed.most_bytes)
    (late,) = turns = [turn("huge", (0.0, needed))]
    share_out(turns, timed, is_by_goal=False)
    assert late.granted == 0 and "--budget 2min/day" in late.beyond_budget


def test_what_a_turn_did_not_use_of_its_reservation_goes_to_others() -> None:
    budget = Budget.of(Allowance(size=100), HandClock())
    first, second = budget.reserve(80), budget.reserve(80)
    assert (first, second, budget.left_bytes) == (80, 20, 0)
    budget.settle(first, 30)
    assert budget.left_bytes == 50
    assert Budget.of(None, HandClock()).reserve(10) is None


def test_nothing_begins_once_the_time_has_passed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add("a", 9)
    shop.add("b", 6)

    def slow(*given: object, **named: object) -> object:
        shop.clock.sleep(100)
        return run_compact(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(turn_steps, "run_compact", slow)
    monkeypatch.setattr("paimon_cli.jobs.service.compaction_service.SMALL_BYTES", -1)
    done = shop.run(shop.budget(millis=60_000))
    assert done["a"].state == "compacted" and done["a"].left == ("expiry", "orphans", "check")
    assert (done["b"].state, done["b"].left_buckets) == (RoundState.LEFT, 1)
    assert done["b"].left == ("compaction", "expiry", "orphans", "check")
    assert done["b"].findings is None
    assert len(shop.open("b").snapshots.ids()) == 6


def test_a_run_with_a_time_compacts_a_large_table_in_turns(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    context = shop.add("a", 0, {"bucket": "3"})
    for number in range(6):
        write(context, [{"id": row, "n": number} for row in range(20)])
    monkeypatch.setattr(PIECES, "turn_bytes", 1)
    done = shop.run(shop.budget(millis=3_600_000))["a"]
    assert (done.buckets, done.left_buckets, done.files_before) == (3, 0, 18)
    assert [s.commit_kind for s in map(context.snapshots.get, context.snapshots.ids())].count("COMPACT") >= 2
    assert done.snapshots_expired == context.snapshots.ids()[0] - 1 > 0, "in all turns together"


def test_what_each_turn_has_cost_is_added_up() -> None:
    one = TableRound("t", RoundState.COMPACTED, expired_by=(3,), upkeep_bytes=1, upkeep_seconds=2.0, lost_read=3, lost_written=4)
    other = replace(one, state=RoundState.NOTHING, expired_by=(5,), upkeep_bytes=10)
    both = _both(one, other)
    assert both.expired_by == (3, 5)
    assert (both.upkeep_bytes, both.upkeep_seconds, both.lost_read, both.lost_written) == (11, 4.0, 6, 8)


def test_one_table_that_fails_keeps_no_other_from_its_care(shop: Shop) -> None:
    shop.add("a")
    shop.add("b")
    shop.broken["a"] = DamagedFile("schema-0 is damaged")
    done = shop.run()
    assert (done["a"].state, done["a"].error_code, done["b"].state) == ("failed", "PC-DAMAGED", "compacted")


def test_a_table_that_cannot_be_compacted_expires_all_the_same(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add("a")

    def refuse(*given: object, **named: object) -> object:
        raise NotSupported("this table cannot be compacted")

    monkeypatch.setattr(service_turn, "plan_compaction", refuse)
    done = shop.run()["a"]
    assert (done.state, done.error_code, done.snapshots_expired) == ("failed", "PC-NOT-SUPPORTED", 4)
    assert done.findings is not None
    assert shop.plan()["a"].error_code == "PC-NOT-SUPPORTED"


def test_of_several_errors_the_first_is_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add("a")
    shop.litter("a")

    def refuse(*given: object, **named: object) -> object:
        raise NotSupported("this table cannot be compacted")

    def fail(*given: object) -> object:
        raise StorageUnavailable("the store does not answer")

    monkeypatch.setattr(turn_steps, "run_compact", refuse)
    monkeypatch.setattr(turn_steps, "remove_old_orphans", fail)
    done = shop.run()["a"]
    assert (done.error_code, done.snapshots_expired) == ("PC-NOT-SUPPORTED", 4)


def test_what_was_done_before_an_error_is_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add("a")
    shop.litter("a")

    def fail(*given: object) -> object:
        raise StorageUnavailable("the store does not answer")

    monkeypatch.setattr(turn_steps, "remove_old_orphans", fail)
    done = shop.run()["a"]
    assert (done.state, done.error_code) == ("try again", "PC-UNAVAILABLE")
    assert (done.buckets, done.snapshots_expired, done.orphans) == (1, 5, 0)


def test_a_table_that_another_service_holds_is_waited_for(shop: Shop) -> None:
    context = shop.add("a")
    directory = context.layout.lease_directory
    other, ours = (Leases("compaction", holder, 60_000, shop.clock) for holder in ("other", "ours"))
    assert other.acquire(LocalStorage(), directory)
    done = shop.run(leases=ours)["a"]
    assert done.state == "compacted", "the other one has died: it did not renew its lease"
    assert shop.clock.millis - NOW >= 60_000

    assert other.acquire(LocalStorage(), directory)
    sleep = shop.clock.sleep

    def renewing(seconds: float) -> None:
        sleep(seconds)
        other.renew()

    shop.clock.sleep = renewing  # type: ignore[method-assign]
    held = shop.run(leases=ours)["a"]
    assert (held.state, held.error_code) == (RoundState.HELD, Conflict.code)
    assert held.findings == (), "it is checked all the same"
