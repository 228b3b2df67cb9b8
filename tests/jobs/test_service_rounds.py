"""Rounds of the service: what an idle table costs, who goes first, how turns are divided, and services that share the work."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.errors import PaimonError, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import Finding
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress, Progress
from paimon_cli.jobs.service import compaction_service, service_turn
from paimon_cli.jobs.service.compaction_service import EXAMINED_EVERY_MILLIS, CompactionService
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.service_metrics import ServiceMetrics
from paimon_cli.jobs.service.table_round import ServiceRound, TableRound
from paimon_cli.maintain.end_of_history import EndOfHistory
from paimon_cli.maintain.tags import create_tag
from paimon_cli.pieces import PIECES
from paimon_cli.requests.compaction import StrategyName, Upkeep
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome, Storage
from tests.jobs.test_leases import HandClock
from tests.tables import compact, make_table, named_files, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
DAY = 86_400_000


class Rounds:
    """Keeps the reports of the service, and acts after each round."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.rounds: list[ServiceRound] = []
        self.begun: list[str] = []
        self.pauses: list[float | None] = []
        self.then: dict[int, Callable[[], object]] = {}

    def table_begins(self, number: int, table: str) -> Progress:
        self.begun.append(table)
        return NoProgress()

    def table_done(self, done: TableRound) -> None:
        pass

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        self.rounds.append(done)
        self.pauses.append(pause_seconds)
        self.then.get(done.number, lambda: None)()

    def states(self, number: int) -> dict[str, str]:
        return {table.table: table.state for table in self.rounds[number - 1].tables}


class Counting(WrappedStorage):
    """Counts the storage calls by table and method."""

    def __init__(self, calls: Counter[str]) -> None:
        super().__init__(LocalStorage())
        self.calls = calls

    def before(self, call: str, path: str) -> None:
        self.calls[call] += 1


class House:
    """A warehouse of some tables, and a service for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock(DAY)
        self.watched = Rounds(self.clock)
        self.names: list[str] = []
        self.storage: Storage = LocalStorage()
        self.broken: dict[str, Exception] = {}

    def add(self, name: str, commits: int, rows: int = 1, options: Mapping[str, str] | None = None) -> TableContext:
        context = make_table(self.folder / name, COLUMNS, ["id"], options={"write-only": "true", **(options or {})})
        for number in range(commits):
            write(context, [{"id": row, "n": number} for row in range(rows)])
        self.names.append(name)
        return context

    def context(self, name: str) -> TableContext:
        if name in self.broken:
            raise self.broken[name]
        return TableContext.open(str(self.folder / name), storage=self.storage, clock=self.clock)

    def service(
        self, strategy: StrategyName = "minor", leases: Leases | None = None, upkeep: Upkeep | None = None
    ) -> CompactionService:
        def tables() -> list[ServedTable]:
            return [ServedTable(name, lambda name=name: self.context(name)) for name in self.names]  # type: ignore[misc]

        request, upkeep = CompactRequest(strategy), upkeep or Upkeep()
        return CompactionService(tables, request, LocalEngine(), self.clock, self.watched, contextlib.nullcontext, leases, upkeep)

    def measured(self) -> tuple[CompactionService, ServiceMetrics]:
        """A service whose metrics are collected, as with --metrics-listen."""
        metrics = ServiceMetrics(self.watched, self.clock)
        return replace(self.service(), watcher=metrics, examines=True), metrics

    def latest(self, name: str) -> int | None:
        return TableContext.open(str(self.folder / name)).snapshots.latest_id()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_an_idle_table_costs_one_request_a_round(house: House) -> None:
    for name in ("a", "b", "c"):
        house.add(name, 1)
    calls: Counter[str] = Counter()
    house.storage = Counting(calls)
    house.watched.then = {1: calls.clear}
    house.service().run(10, 3)
    assert calls == {"exists": 6}
    assert house.watched.states(3) == {"a": "nothing to do", "b": "nothing to do", "c": "nothing to do"}


def test_a_new_snapshot_is_seen_in_the_next_round(house: House) -> None:
    context = house.add("a", 4)

    def fill() -> None:
        write(context, [{"id": 5, "n": 5}])

    house.watched.then = {1: fill}
    house.service().run(10, 3)
    assert [house.watched.states(number)["a"] for number in (1, 2, 3)] == ["nothing to do", "compacted", "nothing to do"]
    assert [done.tables[0].is_new for done in house.watched.rounds] == [True, True, True]


def test_a_table_that_was_rolled_back_is_read_again_after_a_while(house: House) -> None:
    context = house.add("a", 6)
    house.service().run(10, 1)
    house.watched.rounds.clear()

    def roll_back() -> None:
        context.storage.delete(context.layout.snapshot(7))
        context.storage.overwrite(context.layout.latest_hint, b"6")

    house.watched.then = {2: roll_back, 3: lambda: house.clock.sleep(400)}
    house.service().run(10, 4)
    assert [house.watched.states(number)["a"] for number in (1, 2, 3, 4)] == ["nothing to do"] * 3 + ["compacted"]


def test_a_table_that_was_dropped_and_created_again_is_a_new_one(house: House) -> None:
    house.add("a", 8)

    def drop() -> None:
        shutil.rmtree(house.folder / house.names.pop())

    house.watched.then = {3: drop, 4: lambda: house.add("a", 6)}
    house.service().run(10, 5)
    assert [house.watched.states(number).get("a") for number in (1, 3, 4, 5)] == ["compacted", "nothing to do", None, "compacted"]


def test_attempts_are_counted_from_round_to_round(house: House) -> None:
    """A gentle compaction looks old rows up after five attempts, the trigger, although no snapshot comes between."""
    options = {"force-lookup": "true", "lookup-compact": "gentle", "lookup-compact.max-interval": "3"}
    house.add("a", 1, options=options)
    house.service().run(10, 6)
    states = [house.watched.states(number)["a"] for number in range(1, 7)]
    assert states == ["nothing to do"] * 4 + ["compacted", "nothing to do"]


def test_the_greatest_need_goes_first(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_service, "SMALL_BYTES", 0)
    house.add("calm", 5)
    house.clock.sleep(60)
    house.add("crowded", 9)
    house.add("bigger", 9, rows=500)
    house.add("fine", 1)
    house.service().run(10, 1)
    assert house.watched.begun[-1] == "calm" and set(house.watched.begun[:2]) == {"crowded", "bigger"}
    assert house.watched.states(1)["fine"] == "nothing to do"


def test_a_big_table_lets_others_go_between_its_turns(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "turn_bytes", 1)
    monkeypatch.setattr(compaction_service, "SMALL_BYTES", 0)
    house.names.append("big")
    big = make_table(house.folder / "big", COLUMNS, ["id"], bucket=3, options={"write-only": "true"})
    for number in range(6):
        write(big, [{"id": row, "n": number} for row in range(30)])
    house.add("small", 6)
    house.service().run(10, 5)
    done = [sum(table.summary.buckets for table in each.tables) for each in house.watched.rounds]
    assert done[0] == 2 and sum(done) == 4
    assert house.watched.rounds[0].waiting == 1 and house.watched.pauses[0] == 0
    assert house.watched.rounds[-1].waiting == 0 and house.watched.pauses[-2] == 10


class Meeting(LocalStorage):
    """Two snapshots must be published at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.together = threading.Barrier(2, timeout=120)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.together.wait()
        return super().put_if_absent(path, data)


def test_small_tables_are_compacted_side_by_side(house: House) -> None:
    house.add("a", 6)
    house.add("b", 6)
    house.storage = Meeting()
    house.service().run(10, 1)
    assert house.watched.states(1) == {"a": "compacted", "b": "compacted"}
    assert house.latest("a") == house.latest("b") == 7


def test_half_open_tables_cost_only_themselves_and_are_asked_less_and_less(house: House) -> None:
    house.add("a", 6)
    house.add("damaged", 1)
    house.add("gone", 1)
    (house.folder / "damaged" / "schema" / "schema-0").write_text("{")
    shutil.rmtree(house.folder / "gone")
    house.add("down", 1)
    house.broken["down"] = StorageUnavailable("the store is down", "")
    with contextlib.suppress(Exception):
        house.service().run(10, 8)
    assert house.watched.states(1) == {"a": "compacted", "damaged": "failed", "gone": "gone", "down": "try again"}
    asked = [each.number for each in house.watched.rounds if {t.table: t.is_new for t in each.tables}["damaged"]]
    assert asked == [1, 2, 3, 6]
    assert house.watched.states(8)["damaged"] == "failed"
    house.broken.clear()


def test_two_services_share_the_tables_and_a_dead_one_is_replaced(house: House) -> None:
    for name in ("a", "b"):
        house.add(name, 6)
    dead = Leases("compaction", "dead", 60_000, house.clock)
    held = house.context("a")
    assert dead.acquire(held.storage, held.layout.lease_directory)
    living = Leases("compaction", "living", 60_000, house.clock)
    house.service(leases=living).run(10, 9)
    assert house.watched.states(1) == {"a": "held by another service", "b": "compacted"}
    taken = [each.number for each in house.watched.rounds if {t.table: t.state for t in each.tables}["a"] == "compacted"]
    assert len(taken) == 1 and 60 <= 10 * (taken[0] - 1) <= 80
    assert not (house.folder / "a" / "lease").exists() and not (house.folder / "b" / "lease").exists()
    assert house.latest("a") == house.latest("b") == 7


def test_what_another_service_has_compacted_until_the_lease_was_free_is_planned_again(house: House) -> None:
    context = house.add("a", 6)

    class Late(Leases):
        """Another service had the lease, and has just released it."""

        def acquire(self, storage: Storage, directory: str) -> bool:
            compact(context)
            return super().acquire(storage, directory)

    house.service(leases=Late("compaction", "late", 60_000, house.clock)).run(10, 1)
    (done,) = house.watched.rounds[0].tables
    assert (done.state, done.summary.bytes_read, done.summary.conflicts) == ("nothing to do", 0, 0) and house.latest("a") == 7


def test_a_service_releases_its_lease_when_a_turn_fails_or_is_interrupted(house: House) -> None:
    house.add("a", 6)

    class Interrupting(LocalEngine):
        def run_tasks(self, *arguments: Any, **more: Any) -> Any:
            raise KeyboardInterrupt

    service = replace(house.service(leases=Leases("compaction", "one", 60_000, house.clock)), engine=Interrupting())
    with pytest.raises(KeyboardInterrupt):
        service.run(10, 1)
    assert not (house.folder / "a" / "lease").exists()
    assert house.latest("a") == 6


def test_snapshots_are_expired_and_orphans_cleaned_on_the_way(house: House) -> None:
    context = house.add("a", 6, options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    old = house.folder / "a" / "bucket-0" / "data-orphan.parquet"
    old.write_bytes(b"x")

    os.utime(old, (0, 0))
    house.clock.millis = 10**14
    house.service(upkeep=Upkeep(expire=True, orphans_every=1000)).run(10, 3)
    first = house.watched.rounds[0].tables[0].upkeep
    assert first.snapshots_expired == 5
    assert sum(each.tables[0].upkeep.orphans for each in house.watched.rounds) == 1
    assert context.snapshots.ids() == [6, 7] and not old.exists()
    assert named_files(context)


def test_what_keeps_the_bytes_of_a_table_is_counted_with_the_search_for_orphans(house: House) -> None:
    context = house.add("a", 6, options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    create_tag(context, "kept", 2)
    upkeep = Upkeep(expire=True, orphans_every=1000)
    house.clock.millis = 10**14
    replace(house.service(upkeep=upkeep), examines=True).run(10, 2)
    (stored,) = [found for done in house.watched.rounds if (found := done.tables[0].stored) is not None]
    assert stored["tag"] > 0 and stored["live"] > 0
    assert sum(stored.values()) == sum(file.stat().st_size for file in (house.folder / "a").rglob("*") if file.is_file())
    house.watched.rounds.clear()
    house.service(upkeep=upkeep).run(10, 2)
    assert all(done.tables[0].stored is None for done in house.watched.rounds), "nobody asks for figures"


def test_orphans_are_looked_for_at_intervals(house: House) -> None:
    """Even if there is other work in each round, since a search lists the whole table."""
    context, at = house.add("a", 1), itertools.count()

    def litter() -> None:
        write(context, [{"id": 1, "n": 1}])
        old = house.folder / "a" / "bucket-0" / f"data-orphan-{next(at)}.parquet"
        old.write_bytes(b"x")
        os.utime(old, (0, 0))

    house.clock.millis = 10**14
    house.watched.then = {number: litter for number in range(1, 12)}
    house.service("full", upkeep=Upkeep(orphans_every=35_000)).run(10, 12)
    searches = [number for number, done in enumerate(house.watched.rounds) if done.tables[0].upkeep.orphans]
    assert len(searches) >= 2 and all(later - one == 4 for one, later in pairwise(searches)), searches


def test_a_table_that_waits_to_become_idle_is_due_at_that_time(house: House) -> None:
    house.add("a", 2)
    made = house.context("a").snapshots.latest()
    assert made is not None
    house.clock.millis = made.time_millis
    service = replace(house.service(), request=CompactRequest("full", idle_time=25_000))
    service.run(10, 5)
    states = [house.watched.states(number)["a"] for number in range(1, 6)]
    assert states.index("compacted") in (3, 4) and states.count("compacted") == 1


def findings(metrics: ServiceMetrics) -> dict[tuple[str, str, str], float]:
    """The gauge by table, severity and code."""
    (family,) = [family for family in metrics.collect() if family.name == "paimon_cli_findings"]
    return {(s.labels["table"], s.labels["severity"], s.labels["code"]): s.value for s in family.samples}


def test_findings_are_metrics(house: House) -> None:
    house.add("sound", 1)
    house.add("crowded", 4, options={"snapshot.num-retained.max": "2", "snapshot.num-retained.min": "1"})
    tagged = house.add("tagged", 2)
    Table.open(tagged.url).tags.create("t")
    Path(tagged.layout.tag("t")).write_text("{")
    lost = house.add("lost", 1)
    Path(lost.layout.schema(0)).unlink()
    dropped = house.add("dropped", 1)
    EndOfHistory(dropped.storage, dropped.layout).begin()
    service, metrics = house.measured()
    with contextlib.suppress(PaimonError):  # two tables cannot be compacted
        service.run(10, 1)
    assert findings(metrics) == {
        ("crowded", "warning", "PD015"): 1,
        ("tagged", "error", "PD030"): 1,
        ("lost", "error", "PD030"): 1,
        ("dropped", "error", "PD028"): 1,
    }
    Path(tagged.layout.tag("t")).unlink()
    house.names = ["sound", "tagged"]
    house.clock.millis += EXAMINED_EVERY_MILLIS
    service.run(10, 1)
    assert findings(metrics) == {}


def test_the_lag_of_ingest_is_a_metric(house: House) -> None:
    """Also where another commit has followed, and after a later event."""
    event: dict[str, Any] = {
        "op": "c",
        "ts_ms": 40_000_000,
        "source": {"db": "d", "table": "a", "ts_ms": 40_000_000},
        "after": {"id": 1},
    }
    file, catalog = house.folder / "events.json", Catalog(str(house.folder))
    file.write_text(json.dumps(event) + "\n")
    catalog.ingest(str(file), format="debezium", into="shop", primary_key="id")
    house.names.append("shop.db/a")
    write(house.context("shop.db/a"), [{"id": "2"}])
    service, metrics = house.measured()

    def lag() -> float:
        (family,) = [family for family in metrics.collect() if family.name == "paimon_cli_ingest_lag_seconds"]
        return family.samples[0].value * 1000

    service.run(10, 1)
    assert lag() == house.clock.millis - 40_000_000
    file.write_text(
        "".join(json.dumps({**event, "source": {**event["source"], "ts_ms": n}}) + "\n" for n in (40_000_000, 50_000_000))
    )
    catalog.ingest(str(file), format="debezium", into="shop", primary_key="id")
    service.run(10, 1)
    assert lag() == house.clock.millis - 50_000_000


def test_findings_cost_little(house: House) -> None:
    """The files of the plan are not read again, idle tables are not examined, and busy ones not in each round."""
    spent: list[Counter[str]] = []
    for examines in (False, True):
        context, calls = house.add(f"examined-{examines}", 1), Counter[str]()
        house.names = house.names[-1:]
        house.storage, house.watched.then = Counting(calls), {}
        service, _ = house.measured()
        service.examines = examines
        service.run(10, 1)
        first = calls.copy()
        calls.clear()
        service.run(10, 1)
        assert calls == {"exists": 1}, "an idle table"
        write(context, [{"id": 1, "n": 2}])
        calls.clear()
        service.run(10, 1)
        spent += [first, calls]
    assert spent[3] == spent[1], "examined a moment ago"
    assert sum((spent[2] - spent[0]).values()) <= 21, "hints, lists of changes, tags, branches, consumers, changelogs"


def test_an_examination_that_hangs_keeps_no_table_from_being_compacted(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.add("a", 6)
    goes_on = threading.Event()

    def hangs(table: ExaminedTable, **_: object) -> list[Finding]:
        goes_on.wait(60)
        return []

    monkeypatch.setattr(service_turn, "findings_of", hangs)
    service, metrics = house.measured()
    service.table_seconds = 4.0
    try:
        service.run(10, 1)
    finally:
        goes_on.set()
    assert house.watched.states(1) == {"a": "compacted"} and findings(metrics) == {("a", "error", "PD031"): 1}
