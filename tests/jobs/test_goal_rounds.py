"""A service with a goal and a budget: the best merges first, never more than the budget, and a ledger that says why."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.round_plan import BucketFigures, CompactionPlan
from paimon_cli.jobs.service import budget, turn_steps
from paimon_cli.jobs.service.budget import DAY_MILLIS, Budget
from paimon_cli.jobs.service.service_turn import Turn
from paimon_cli.jobs.service.shared_budgets import SavedFor, share_out
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, TableRound
from paimon_cli.jobs.service.wanted_merges import Need, WantedMerge
from paimon_cli.requests.upkeep import Allowance
from paimon_cli.storage.injected import SystemClock
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds

NOW = 10**14


def make(folder: Path, name: str, commits: int, rows: int = 200) -> Table:
    table = Table.create(
        folder / "wh" / "shop.db" / name,
        columns=["id BIGINT NOT NULL", "v STRING"],
        primary_key=["id"],
        options={"bucket": "1", "write-only": "true"},
    )
    for commit in range(commits):
        table.write([{"id": number, "v": f"{commit} {number}"} for number in range(rows)], compact="none")
    return table


def watch(folder: Path, rounds: int = 3, watched: Rounds | None = None, **given: Any) -> Rounds:
    watched = watched or Rounds(HandClock())
    Catalog(str(folder / "wh")).watch(
        database="shop", watcher=watched, max_rounds=rounds, interval=1, expire=True, whole=True, lease=0, **given
    )
    return watched


def wait_for_reads() -> None:
    """Until reads have paid for the merge of two runs, which by the goal `latency` takes a part of a second."""
    time.sleep(1)


def test_the_budget_goes_to_the_best_merges_and_is_never_exceeded(tmp_path: Path) -> None:
    tables = {name: make(tmp_path, name, commits, 20_000) for name, commits in (("few", 2), ("many", 9), ("some", 4))}
    wait_for_reads()
    sizes = {name: sum(file.size for file in table.files()) for name, table in tables.items()}
    budget = sizes["many"] + 9000  # the trash is looked at, too
    watch(tmp_path, goal="latency", budget=f"{budget}b/day")
    catalog = Catalog(str(tmp_path / "wh"))
    rows = {row.table: row for row in catalog.ledger.ls() if row.bytes_read}
    assert "shop.many" in rows and len(tables["many"].files()) == 1
    assert sum(row.bytes_read for row in rows.values()) <= budget
    many = rows["shop.many"]
    assert many.score is not None and many.score > 1 and many.budget_left is not None and "reads-pay" in many.why
    left = [row for row in catalog.ledger.ls() if row.state == RoundState.OVER_BUDGET or row.why_not]
    assert left and any("budget" in row.why_not for row in left)
    spent = sum(row.bytes_read for row in catalog.ledger.ls())
    watch(tmp_path, goal="latency", budget=f"{budget}b/day")
    again = sum(row.bytes_read for row in catalog.ledger.ls())
    assert again <= budget and again - spent <= budget - spent, "a restart brings no new budget"


class KilledAfterACommit(Rounds):
    """Dies like a process that is killed: a table was compacted, and the round has not ended."""

    def table_done(self, done: TableRound) -> None:
        if done.summary.bytes_read:
            raise SystemExit("killed")


def test_what_a_killed_round_took_counts_for_the_next_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_KEPT", 0.0)  # so that merges paid by reads may take all of it
    tables = {name: make(tmp_path, name, commits) for name, commits in (("many", 9), ("some", 6))}
    wait_for_reads()
    sizes = {name: sum(file.size for file in table.files()) for name, table in tables.items()}
    given: dict[str, Any] = {"goal": "latency", "budget": f"{sizes['many'] + 9000}b/day"}
    assert sizes["some"] > 9000, "there is not enough for both"
    with pytest.raises(SystemExit):
        watch(tmp_path, watched=KilledAfterACommit(HandClock()), **given)
    assert [len(table.files()) for table in tables.values()] == [1, 6]
    warnings: list[str] = []
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.runtime = replace(catalog.runtime, warn=warnings.append)
    assert not catalog.ledger.ls() and not catalog.ledger.show(), "it is no round of work"
    assert len(warnings) == 2 and "have not ended: 1" in warnings[0]
    watch(tmp_path, **given)
    assert len(tables["some"].files()) == 6, "a kill brings no new budget"
    ledger = tmp_path / "wh" / ".paimon-cli" / "ledger"
    for begun in ledger.glob("begun-*"):
        begun.unlink()
    watch(tmp_path, **given)
    assert len(tables["some"].files()) == 1, "a loss of the ledger changes the budget, and nothing else"
    assert not [*ledger.glob("begun-*")], "a round that has ended leaves only what it did"


def test_a_time_of_a_day_counts_killed_rounds_too(tmp_path: Path) -> None:
    size = sum(file.size for file in make(tmp_path, "many", 9).files())
    with pytest.raises(SystemExit):
        watch(tmp_path, watched=KilledAfterACommit(HandClock()), goal="latency", budget="1h/day")
    catalog, clock = Catalog(str(tmp_path / "wh")), SystemClock()
    taken = catalog._taken_by_others(clock, "")
    (spent,) = taken(False, None) or ()
    assert spent[1] > 0.9 * size / 20_000, "millis at about the speed that is taken before the first is measured"
    (spent,) = taken(True, ["shop.many"]) or ()
    assert size <= spent[1] <= 2 * size + 65_536, "what it was granted, and by how much that might grow"
    assert taken(True, ["shop.other"]) == []


def test_a_commit_before_the_turn_keeps_nothing_from_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While writers go on, the plan of the turn reads more than the one that was granted."""
    table, planned = make(tmp_path, "many", 9), turn_steps._ready_plan

    def outdated(turn: Turn, context: TableContext, plan_seconds: float) -> CompactionPlan | None:
        table.write([{"id": number, "v": "late"} for number in range(20)], compact="none")
        monkeypatch.setattr(turn_steps, "_ready_plan", planned)
        return None

    monkeypatch.setattr(turn_steps, "_ready_plan", outdated)
    wait_for_reads()
    watch(tmp_path, rounds=1, goal="latency", budget="100mb/day")
    assert len(table.files()) == 1
    (row,) = Catalog(str(tmp_path / "wh")).ledger.ls()
    assert not row.why_not and row.budget_left is not None
    upkeep = (100 << 20) - row.bytes_read - row.budget_left
    assert 0 <= upkeep <= 1 << 20, "what was not used is given back"


class AnotherService(Rounds):
    """After the first round, another service spends the budget, and more waits."""

    def __init__(self, table: Table, folder: Path, given: dict[str, Any]) -> None:
        super().__init__(HandClock())
        self.table, self.folder, self.given = table, folder, given

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        super().round_done(done, pause_seconds)
        if done.number == 1:
            more(self.table, 9)
            watch(self.folder, **self.given)
            more(self.table, 8)


def more(table: Table, commits: int) -> None:
    for commit in range(commits):
        table.write([{"id": number, "v": f"{commit} {number}"} for number in range(200)], compact="none")
    wait_for_reads()


def test_services_share_one_budget_while_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_KEPT", 0.0)
    size = sum(file.size for file in make(tmp_path, "sample", 10).files())
    Catalog(str(tmp_path / "wh")).drop_table("shop.sample", purge=True)
    table = make(tmp_path, "many", 1)
    given: dict[str, Any] = {"goal": "latency", "budget": f"{size + 9000}b/day"}
    watch(tmp_path, watched=AnotherService(table, tmp_path, given), **given)
    rows = Catalog(str(tmp_path / "wh")).ledger.ls()
    assert any(row.bytes_read for row in rows), "the other service compacted"
    assert len(table.files()) == 9 and sum(row.bytes_read for row in rows) <= size + 9000


def test_services_of_different_tables_share_the_budget_of_a_line(tmp_path: Path) -> None:
    sizes = {name: sum(file.size for file in make(tmp_path, name, 9).files()) for name in ("one", "two")}
    policy = tmp_path / "wh" / ".paimon-cli" / "policy.yaml"
    policy.parent.mkdir(exist_ok=True)
    policy.write_text(f"catalog: {{goal: latency, budget: {max(sizes.values()) + 9000}b/day}}\n")
    catalog = Catalog(str(tmp_path / "wh"))
    wait_for_reads()
    for name in sizes:
        watched = Rounds(HandClock())
        catalog.watch([f"shop.{name}"], watcher=watched, max_rounds=1, interval=1, expire=True, whole=True, lease=0)
    assert [len(catalog.table(f"shop.{name}").files()) for name in sizes] == [1, 9]
    amount = max(sizes.values()) + 9000
    taken = sum(row.bytes_read + row.upkeep_bytes for row in catalog.ledger.ls())
    assert taken >= sizes["one"]
    (waits,) = catalog.policy.explain("shop.two")
    assert waits.buckets == 0 and waits.budget_left is not None and waits.budget_left <= amount - taken, "as the next round does"


def test_a_restart_counts_what_the_upkeep_was_charged(tmp_path: Path) -> None:
    table = make(tmp_path, "many", 9)
    table.alter.set({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    wait_for_reads()
    watch(tmp_path, goal="latency", budget="100mb/day")
    catalog = Catalog(str(tmp_path / "wh"))
    rows = catalog.ledger.ls()
    (*_, last) = [row.budget_left for row in rows if row.budget_left is not None]
    taken = sum(amount for _, amount in catalog._taken_by_others(SystemClock(), "")(True, None) or ())
    assert taken > sum(row.bytes_read for row in rows) + 8192 * 5, "snapshots were expired"
    assert 0 <= (100 << 20) - last - taken <= 8192, "besides, the trash was looked at"
    assert sum(row.bytes_read + row.upkeep_bytes for row in rows) == taken


def test_a_service_without_a_budget_announces_nothing(tmp_path: Path) -> None:
    make(tmp_path, "many", 9)
    with pytest.raises(SystemExit):
        watch(tmp_path, watched=KilledAfterACommit(HandClock()))
    assert not [*tmp_path.glob("wh/.paimon-cli/ledger/*")]


def test_without_a_goal_the_triggers_decide_as_before(tmp_path: Path) -> None:
    few, many = make(tmp_path, "few", 2), make(tmp_path, "many", 9)
    watch(tmp_path)
    assert (len(few.files()), len(many.files())) == (2, 1)
    row = next(row for row in Catalog(str(tmp_path / "wh")).ledger.ls() if row.table == "shop.many")
    assert (row.score, row.budget_left) == (None, None)


def test_one_run_takes_what_fits(tmp_path: Path) -> None:
    few, many = make(tmp_path, "few", 2), make(tmp_path, "many", 9)
    wait_for_reads()
    size = sum(file.size for file in many.files())
    catalog = Catalog(str(tmp_path / "wh"))
    budget = size + 200_000 - size % 1000
    planned = {row.table: row for row in catalog.plan_maintenance(database="shop", goal="latency", budget=f"{budget}b")}
    assert planned["shop.many"].buckets == planned["shop.few"].buckets == 1
    assert {row.table: row.buckets for row in catalog.plan_maintenance(database="shop", goal="latency", budget="100b")} == {
        "shop.few": 0,
        "shop.many": 0,
    }
    done = {row.table: row for row in catalog.maintain(database="shop", goal="latency", budget=f"{budget}b")}
    assert done["shop.many"].bytes_read == size
    assert (len(few.files()), len(many.files())) == (1, 1)


def hiding(folder: Path) -> Table:
    """A table with rows in level 0 which reads do not show."""
    table = Table.create(
        folder / "wh" / "shop.db" / "dv",
        columns=["id BIGINT NOT NULL", "v STRING"],
        primary_key=["id"],
        options={"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"},
    )
    for commit in range(3):
        table.write([{"id": number, "v": f"{commit} {number}"} for number in range(200)], compact="none")
    with pytest.warns(UserWarning, match="600 stored records are not visible yet"):
        assert table.scan().to_arrow().num_rows == 0
    return table


def test_rows_that_reads_do_not_show_come_before_all_other_merges(tmp_path: Path) -> None:
    """Reads have paid more for the other merges, and the budget does not suffice for all."""
    hidden, many = hiding(tmp_path), make(tmp_path, "many", 19)
    wait_for_reads()
    budget = sum(file.size for file in many.files()) + 1000
    assert sum(file.size for file in hidden.files()) > 1000, "there is not enough for both"
    catalog = Catalog(str(tmp_path / "wh"))
    planned = {row.table: row.buckets for row in catalog.plan_maintenance(all_tables=True, goal="latency", budget=f"{budget}b")}
    assert planned == {"shop.dv": 1, "shop.many": 0}
    watch(tmp_path, rounds=1, goal="latency", budget=f"{budget + 9000}b/day")
    assert hidden.scan().to_arrow().num_rows == 200 and len(many.files()) == 19


def test_a_dry_run_names_the_upkeep_that_the_budget_does_not_suffice_for(tmp_path: Path) -> None:
    make(tmp_path, "a", 2), make(tmp_path, "b", 2)
    catalog = Catalog(str(tmp_path / "wh"))
    call: dict[str, Any] = {"database": "shop", "goal": "cost"}
    assert [row.left for row in catalog.plan_maintenance(**call, budget="100b")] == [("expiry", "orphans")] * 2
    planned = catalog.plan_maintenance(**call, budget=f"{2 * 8192}b")
    assert [row.left for row in planned] == [(), ("expiry", "orphans")]
    assert not any(row.left for row in catalog.plan_maintenance(**call, budget="1mb"))
    assert not any(row.left for row in catalog.plan_maintenance(database="shop", budget="100b")), "without a goal it is free"


def test_a_budget_by_day_is_for_the_service_and_one_without_for_a_run(tmp_path: Path) -> None:
    make(tmp_path, "t", 1)
    with pytest.raises(UsageError, match="is for a single run"):
        watch(tmp_path, budget="1GB")
    with pytest.raises(UsageError, match="is for watch"):
        Catalog(str(tmp_path / "wh")).maintain(database="shop", budget="1GB/day")


def turn(table: str, *asked: tuple[float, int], runs: int = 0) -> Turn:
    wanted = tuple(WantedMerge(score, size, runs) for score, size in asked)
    need = Need(-max(each.score for each in wanted), 0, 0, sum(each.size for each in wanted), table)
    return Turn(
        table=table,
        open=lambda: pytest.fail("not opened"),
        history=None,  # type: ignore[arg-type]
        need=need,
        snapshot_id=1,
        figures=BucketFigures(),
        has_compaction=True,
        expiries=(),
        cleans_orphans=False,
        must_look_again=False,
        idle_at=None,
        planned_files=0,
        plan=CompactionPlan(1),
        budget=Budget(HandClock(NOW)),
        opened=None,
        wanted=wanted,
    )


def test_a_merge_is_saved_for_across_rounds() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    first = [turn("hot", (math.inf, 990)), turn("next", (5.0, 38)), turn("small", (2.0, 5))]
    saving = share_out(first, budget, is_by_goal=True)
    assert [each.granted for each in first] == [990, 0, 0]
    assert saving == SavedFor(WantedMerge(5.0, 38), "next", NOW, budget.ready_millis(38))
    assert "saved for next" in first[2].budget_says and "were left when it asked" in first[1].budget_says
    budget.settle(990, 990)
    clock.millis = NOW + DAY_MILLIS + 120_000
    last = [turn("next", (7.0, 38)), turn("small", (5.5, 10))]
    assert share_out(last, budget, saving, is_by_goal=True) is None
    assert [each.granted for each in last] == [38, 10]


def test_rows_that_reads_do_not_show_come_before_the_cap_on_runs() -> None:
    budget = Budget.of(Allowance(size=1000, is_daily=True), HandClock(NOW))
    capped, hidden = turn("capped", (math.inf, 600), runs=30), turn("hidden", (math.inf, 600), runs=8)
    hidden.wanted = tuple(wanted._replace(shows_rows=True) for wanted in hidden.wanted)
    assert share_out([capped, hidden], budget, is_by_goal=True) is not None
    assert [capped.granted, hidden.granted] == [0, 600]
    again = replace(hidden)
    share_out([again], budget, is_by_goal=True)
    assert again.granted == 0 and "readers wait for its new rows" in again.budget_says


def test_level_0_of_all_tables_comes_before_the_deeper_part_of_any_merge() -> None:
    """The merge with the most runs must be made, and it would take all."""
    budget = Budget.of(Allowance(size=1000, is_daily=True), HandClock(NOW))
    deep, hidden = turn("deep", (math.inf, 900), runs=30), turn("hidden", (math.inf, 300), runs=3)
    deep.wanted = (WantedMerge(math.inf, 900, 30, True, level_0_size=200, deeper_score=math.inf),)
    hidden.wanted = tuple(wanted._replace(shows_rows=True) for wanted in hidden.wanted)
    share_out([deep, hidden], budget, is_by_goal=True)
    assert [deep.granted, hidden.granted] == [200, 300] and "it reads 700 B" in deep.budget_says
    again = [replace(deep, wanted=deep.wanted), replace(hidden, wanted=hidden.wanted)]
    larger = Budget.of(Allowance(size=1200, is_daily=True), HandClock(NOW))
    share_out(again, larger, is_by_goal=True)
    assert [each.granted for each in again] == [900, 300]


def deep(folder: Path, name: str = "deep") -> Table:
    """A table with hidden rows on a large run and another one, which reads have paid to merge."""
    table = Table.create(
        folder / "wh" / "shop.db" / name,
        columns=["id BIGINT NOT NULL", "v STRING"],
        primary_key=["id"],
        options={"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"},
    )
    for rows in (20_000, 200):
        table.write([{"id": number, "v": f"{rows} {number}"} for number in range(rows)], compact="none")
        table.compact(strategy="minor")
    for value in ("old", "older", "new"):
        table.write([{"id": 1, "v": value}], compact="none")
    wait_for_reads()
    return table


def test_a_deep_merge_does_not_crowd_out_level_0_of_another_table(tmp_path: Path) -> None:
    first, hidden = deep(tmp_path), hiding(tmp_path)
    catalog = Catalog(str(tmp_path / "wh"))
    planned = {row.table: row for row in catalog.plan_maintenance(all_tables=True, goal="latency")}
    whole, waiting = planned["shop.deep"].bytes_read, sum(file.size for file in hidden.files())
    assert whole >= sum(file.size for file in first.files()), "without a budget all of it is merged"
    call: dict[str, Any] = {"all_tables": True, "goal": "latency", "budget": f"{whole + waiting - 100}b"}
    assert {row.table: row.buckets for row in catalog.plan_maintenance(**call)} == {"shop.deep": 1, "shop.dv": 1}
    done = {row.table: row for row in catalog.maintain(**call)}
    assert hidden.scan().to_arrow().num_rows == 200, "its rows are shown"
    assert first.scan(where="id = 1").to_arrow().column("v").to_pylist() == ["new"]
    assert 0 < done["shop.deep"].bytes_read < whole, "what goes deeper waits for another budget"


def test_a_large_merge_holds_back_nothing() -> None:
    budget = Budget.of(Allowance(size=1000, is_daily=True), HandClock(NOW))
    turns = [turn("first", (9.0, 60)), turn("large", (5.0, 950)), turn("small", (2.0, 10))]
    assert share_out(turns, budget, is_by_goal=True) is None
    assert [each.granted for each in turns] == [60, 0, 10], "else more than a twentieth of the day would be left unused"


def test_the_bucket_with_the_most_runs_is_saved_for_and_others_take_the_rest() -> None:
    clock = HandClock(NOW)
    budget = Budget.of(Allowance(size=1000, is_daily=True), clock)
    first = [
        turn("first", (math.inf, 900), runs=30),
        turn("large", (math.inf, 300), runs=25),
        turn("cheap", (math.inf, 50), runs=21),
    ]
    saving = share_out(first, budget, is_by_goal=True)
    assert [each.granted for each in first] == [900, 0, 50], "beside the 40 that are saved at once, 50 are left"
    assert saving is not None and saving.table == "large"
    budget.settle(950, 950)
    clock.millis += DAY_MILLIS // 4
    later = [turn("large", (math.inf, 310), runs=40), turn("cheap", (math.inf, 11), runs=21), turn("reads", (9.0, 10))]
    saving = share_out(later, budget, saving, is_by_goal=True)
    assert [each.granted for each in later] == [0, 0, 0], "the cheapest do not take what is saved, again and again"
    assert saving is not None and saving.since_millis == NOW and "are saved for large, 40 runs" in later[1].budget_says
    clock.millis = NOW + DAY_MILLIS + 120_000
    last = [turn("large", (math.inf, 320), runs=50), turn("cheap", (math.inf, 50), runs=21)]
    assert share_out(last, budget, saving, is_by_goal=True) is None
    assert [each.granted for each in last] == [320, 50]


def test_what_reads_pay_leaves_a_part_of_the_day_to_the_cap() -> None:
    budget = Budget.of(Allowance(size=1000, is_daily=True), HandClock(NOW))
    turns = [turn(f"hot{number}", (9.0, 20)) for number in range(50)]
    share_out(turns, budget, is_by_goal=True)
    assert sum(each.granted or 0 for each in turns) <= 120
    capped = [turn("capped", (math.inf, 850))]
    share_out(capped, budget, is_by_goal=True)
    assert capped[0].granted == 850


def test_a_merge_larger_than_the_whole_budget_holds_up_nothing(tmp_path: Path) -> None:
    budget = Budget.of(Allowance(size=1000, is_daily=True), HandClock(NOW))
    turns = [turn("huge", (9.0, 5000)), turn("small", (2.0, 10))]
    assert share_out(turns, budget, is_by_goal=True) is None
    assert [each.granted for each in turns] == [0, 10] and "more than the whole budget" in turns[0].budget_says


def test_a_budget_that_contradicts_the_cap_on_runs_wins_and_says_so(tmp_path: Path) -> None:
    table = make(tmp_path, "many", 22, 20)
    catalog, warnings = Catalog(str(tmp_path / "wh")), list[str]()
    catalog.runtime = replace(catalog.runtime, warn=warnings.append)
    watched = Rounds(HandClock())
    catalog.watch(
        database="shop",
        watcher=watched,
        max_rounds=2,
        interval=1,
        lease=0,
        whole=True,
        expire=True,
        goal="cost",
        budget="1kb/day",
    )
    assert len(table.files()) == 22
    assert any("the budget comes before the cap" in row.why_not for row in catalog.ledger.ls())
    assert len([text for text in warnings if "above the cap on runs" in text]) == 1
