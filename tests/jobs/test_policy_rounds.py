"""Rounds under a policy: windows first, then caps, then retention. Shared by the service, single runs, and the explanation."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.catalog.warehouse_policy import COUNTS_EVERY, Policies
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.service import next_round
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.compaction_service import CompactionService
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.maintenance import RunLimits, plan_maintenance
from paimon_cli.jobs.service.next_round import NextStep, decisions_of
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.service_turn import Turn, look
from paimon_cli.jobs.service.table_round import RoundState
from paimon_cli.lsm.rent_or_buy import UNKNOWN_READS
from paimon_cli.maintain.policy import Policy, TablePolicy
from paimon_cli.pieces import PIECES
from paimon_cli.requests.compaction import Upkeep
from paimon_cli.requests.upkeep import MaintainTables
from paimon_cli.storage.counted_storage import counting_requests
from paimon_cli.storage.injected import SystemClock
from paimon_cli.storage.storage import Storage
from tests.jobs.test_goal_rounds import make
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds

HOUR, DAY = 3_600_000, 86_400_000
NOON = 1_796_000_000_000 // DAY * DAY + 12 * HOUR


def policy(text: str) -> TablePolicy:
    rules = Policy.read(text.encode(), "policy.yaml")
    return TablePolicy(tuple(rules.about("shop", "orders").settings))


def orders(directory: Path, commits: int = 4, buckets: int = 1, more: dict[str, str] | None = None) -> Table:
    options = {"bucket": str(buckets), "num-sorted-run.compaction-trigger": "3", **(more or {})}
    table = Table.create(directory / "wh/shop.db/orders", columns=["id BIGINT NOT NULL"], primary_key=["id"], options=options)
    for _ in range(commits):
        table.write([{"id": number} for number in range(20)], compact="none")
    return table


class SlowLeases(Leases):
    """Leases whose store takes so long that the window ends meanwhile."""

    def acquire(self, storage: Storage, directory: str) -> bool:
        self.clock.sleep(1)
        return super().acquire(storage, directory)


class Service:
    """A service of one table under a policy that a test changes between rounds."""

    def __init__(self, table: Table, rules: TablePolicy, **upkeep: bool) -> None:
        self.clock, self.rules = HandClock(NOON), rules
        self.seen = Rounds(self.clock)
        self.service = CompactionService(
            lambda: [ServedTable("shop.orders", lambda: replace(table.supported, clock=self.clock), self.rules)],
            CompactRequest("minor"),
            LocalEngine(),
            self.clock,
            self.seen,
            contextlib.nullcontext,
            upkeep=Upkeep(**upkeep),
        )

    def round(self) -> str:
        before = len(self.seen.rounds)
        self.service.run(10, 1)
        return self.seen.rounds[before].tables[0].state


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    orders(tmp_path)
    return Catalog(str(tmp_path / "wh"))


def rule(catalog: Catalog, text: str) -> None:
    path = Path(str(catalog.url), ".paimon-cli/policy.yaml")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_outside_its_windows_a_table_costs_no_request(tmp_path: Path) -> None:
    service = Service(orders(tmp_path), policy("catalog: {windows: nights}"))
    with counting_requests() as requests:
        assert service.round() == RoundState.CLOSED
    assert not any(requests.values())
    service.clock.millis = NOON + 10 * HOUR
    assert service.round() == RoundState.COMPACTED


def test_what_is_known_of_a_table_is_told_outside_its_windows_too(tmp_path: Path) -> None:
    service = Service(orders(tmp_path, buckets=4), policy("catalog: {windows: 00:00-13:00, caps: {buckets: 1}}"))
    assert service.round() == RoundState.COMPACTED
    service.clock.millis = NOON + 2 * HOUR
    assert service.round() == RoundState.CLOSED
    open_round, closed = (done.tables[0] for done in service.seen.rounds)
    assert closed.figures == open_round.figures and closed.figures.buckets == 4
    assert closed.left == open_round.left and closed.left.buckets == 3


def test_what_is_known_of_a_table_is_told_of_a_look_that_failed_too(tmp_path: Path) -> None:
    service = Service(orders(tmp_path), policy("catalog: {caps: {buckets: 1}}"))
    service.round()

    def unavailable() -> TableContext:
        raise StorageUnavailable("the store does not answer", "")

    service.service.tables = lambda: [ServedTable("shop.orders", unavailable)]
    with pytest.raises(StorageUnavailable):
        service.round()
    planned, failed = (done.tables[0] for done in service.seen.rounds)
    assert failed.figures == planned.figures and failed.figures.files


def test_no_step_begins_after_the_window(tmp_path: Path) -> None:
    table = orders(tmp_path)
    service = Service(table, policy("catalog: {windows: 00:00-12:00}"))
    service.clock.millis = NOON - 5
    served = service.service.tables()[0]
    service.service.leases = SlowLeases("compaction", "one", 60_000, service.clock)
    service.round()
    (done,) = service.seen.rounds[-1].tables
    assert served.policy.is_closed(service.clock.millis) and done.left.steps == ("compaction",)
    assert len(table.files()) == 4


def test_caps_bound_a_round(tmp_path: Path) -> None:
    table = orders(tmp_path, buckets=4)
    service = Service(table, policy("catalog: {caps: {buckets: 1}}"))
    assert service.round() == RoundState.COMPACTED
    assert service.seen.rounds[-1].tables[0].summary.buckets == 1
    assert service.round() == RoundState.COMPACTED
    assert service.seen.rounds[-1].tables[0].summary.buckets == 1
    size = sum(file.size for file in table.files()) // 4
    service.rules = policy(f"catalog: {{caps: {{bytes: {size // 10} b}}}}")
    assert service.round() == RoundState.OVER_CAPS


def test_a_cap_on_runs_compacts_earlier(tmp_path: Path) -> None:
    table = orders(tmp_path, commits=2, more={"compaction.max-size-amplification-percent": "10000"})
    service = Service(table, policy("catalog: {windows: 00:00-24:00}"))
    assert service.round() == RoundState.NOTHING
    service = Service(table, policy("catalog: {caps: {runs: 1}}"))
    assert service.round() == RoundState.COMPACTED and len(table.files()) == 1


def test_a_goal_of_the_policy_replaces_the_triggers(tmp_path: Path) -> None:
    table = orders(tmp_path)
    service = Service(table, policy("catalog: {goal: cost}"))
    service.clock.millis = SystemClock().now_millis()
    assert service.round() == RoundState.NOTHING  # four runs, above the trigger, and nobody has read them yet
    service = Service(table, policy("catalog: {goal: cost, caps: {runs: 2}}"))
    service.clock.millis = SystemClock().now_millis()
    assert service.round() == RoundState.COMPACTED
    decided = service.seen.rounds[-1].tables[0].summary.plan.tasks[0]
    assert decided.reason == "most-runs" and "4 runs > 2" in decided.arithmetic


def test_reads_of_the_policy_count_before_the_file_and_the_file_before_nothing(catalog: Catalog) -> None:
    def rate(rules: str, counts: str) -> float:
        rule(catalog, rules)
        Path(str(catalog.url), ".paimon-cli/reads.ndjson").write_text(counts)
        (table,), _ = catalog._to_maintain(MaintainTables(database=["shop"]), commits=False)
        limited = table.limited(CompactRequest("minor"))
        assert limited.merges is not None
        return limited.merges.reads("shop.orders", "")

    goal = "catalog:\n  goal: cost\n"
    counted = '{"table": "shop.orders", "reads": 900}\n{"table": "shop.items", "reads": 1}\n{"table": "shop.x", "reads": 2}\n'
    assert rate(goal, "") == UNKNOWN_READS
    assert rate(goal, counted) == pytest.approx(3 * UNKNOWN_READS, rel=0.02)
    assert rate(goal + "  reads: 48/d\n", counted) == 2.0
    (found,) = catalog.policy.explain("shop.orders")
    assert found.score is not None and "score" in found.why_not
    warnings: list[str] = []
    catalog.runtime = replace(catalog.runtime, warn=warnings.append)
    assert rate(goal, "[]") == UNKNOWN_READS and "some reads are not known" in warnings[0]


def test_counts_of_tables_that_do_not_exist_weigh_nothing(catalog: Catalog) -> None:
    """Where all tables are known. They pulled down the rates of the others."""
    warnings: list[str] = []
    catalog.runtime = replace(catalog.runtime, warn=warnings.append)
    rule(catalog, "catalog: {goal: cost}")
    counted = (
        '{"table": "SHOP.orders", "reads": 4000}\n{"table": "shop.gone", "reads": 70}\n{"table": "shop.orders", "reads": 1}\n'
    )
    Path(str(catalog.url), ".paimon-cli/reads.ndjson").write_text(counted)

    def rate(**chosen: Any) -> float:
        tables, _ = catalog._to_maintain(MaintainTables(**chosen), commits=False)
        (limited,) = (table.limited(CompactRequest("minor")) for table in tables if table.name == "shop.orders")
        assert limited.merges is not None
        return limited.merges.reads("shop.orders", "")

    assert rate(database=["shop"]) < UNKNOWN_READS / 2 and not warnings
    assert rate(all_tables=True) == UNKNOWN_READS
    assert warnings == ["counts of reads of tables that do not exist weigh nothing: SHOP.orders, shop.gone"]
    catalog.watch(all_tables=True, watcher=Rounds(HandClock()), max_rounds=2, interval=1, whole=True)
    assert warnings == warnings[:1] * 2, "a service says it once"


def test_another_service_may_have_compacted_before_the_lease_was_free(tmp_path: Path) -> None:
    table = orders(tmp_path)
    service = Service(table, TablePolicy())

    class Late(Leases):
        def acquire(self, storage: Storage, directory: str) -> bool:
            table.compact(strategy="full")
            return super().acquire(storage, directory)

    service.service.leases = Late("compaction", "one", 60_000, service.clock)
    service.round()
    (done,) = service.seen.rounds[-1].tables
    assert (done.error, done.summary.conflicts, done.summary.buckets) == (None, 0, 0)


def test_the_tables_of_a_line_share_its_budget(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    tables = {name: orders(tmp_path / name) for name in names}
    size = sum(file.size for file in tables["a"].files())
    of_two = policy(f"catalog:\n  budget: {size + size // 2} b/day")
    others = policy(f"databases:\n  shop:\n    budget: {2 * size} b/day")
    rules = {"a": of_two, "b": of_two, "c": others}
    service = Service(tables["a"], of_two)
    service.clock.millis = SystemClock().now_millis()
    service.service.tables = lambda: [
        ServedTable(name, lambda name=name: tables[name].supported, rules[name])  # type: ignore[misc]
        for name in names
    ]
    service.round()
    states = {done.table: done.state for done in service.seen.rounds[-1].tables}
    assert states["c"] == RoundState.COMPACTED
    assert sorted(states[name] for name in ("a", "b")) == [RoundState.COMPACTED, RoundState.OVER_BUDGET]
    service.clock.millis += DAY + HOUR
    service.round()
    assert all(len(table.files()) == 1 for table in tables.values())


def test_the_explanation_shares_the_budget_too(tmp_path: Path) -> None:
    tables = {name: orders(tmp_path / name) for name in ("a", "b")}
    size = sum(file.size for file in tables["a"].files())
    rules = policy(f"catalog:\n  budget: {size + size // 2} b/day\n  goal: latency\n  caps: {{runs: 1}}")
    served = [ServedTable(name, lambda name=name: tables[name].supported, rules) for name in tables]  # type: ignore[misc]
    found = [*decisions_of(served, SystemClock(), 60)]
    assert sorted(each.decision for each in found) == [NextStep.COMPACT, RoundState.OVER_BUDGET]
    (waiting,) = (each for each in found if each.decision != NextStep.COMPACT)
    assert (
        "of the budget were left when it asked" in waiting.why_not
        and waiting.budget_left is not None
        and waiting.budget_left < size
    )


def test_a_dry_run_shares_the_budget_too(tmp_path: Path) -> None:
    tables = {name: orders(tmp_path / name) for name in ("a", "b")}
    size = sum(file.size for file in tables["a"].files())
    rules = policy(f"catalog:\n  budget: {size + size // 2} b/day")
    served = [ServedTable(name, lambda name=name: tables[name].supported, rules) for name in tables]  # type: ignore[misc]
    planned = [row for row, _ in plan_maintenance(served, NoProgress(), RunLimits(Budget(SystemClock()), 60.0))]
    assert sorted((row.buckets, row.left_buckets) for row in planned) == [(0, 1), (1, 0)]


def expire(table: Table, rules: TablePolicy) -> None:
    """A round with the clock of the storage, which no policy goes ahead of."""
    service = Service(table, rules, expire=True, whole=True)
    service.clock.millis = SystemClock().now_millis() + 10
    service.round()


def test_retention_is_lengthened(tmp_path: Path) -> None:
    table = orders(tmp_path, commits=15, more={"snapshot.time-retained": "1 ms", "snapshot.num-retained.max": "12"})
    expire(table, policy("catalog: {retention: {snapshots: 30 d}}"))
    assert len(table.snapshots()) == 16
    expire(table, TablePolicy())
    assert len(table.snapshots()) == 10


def test_tags_are_kept_for_longer(tmp_path: Path) -> None:
    table = orders(tmp_path, commits=1)
    table.tags.create("short", time_retained="1 ms")
    table.tags.create("long")
    expire(table, policy("catalog: {retention: {tags: 30 d}}"))
    assert {tag.name for tag in table.tags} == {"short", "long"}
    expire(table, TablePolicy())
    assert {tag.name for tag in table.tags} == {"long"}


def test_single_runs_obey_the_policy_by_name_and_by_path(catalog: Catalog) -> None:
    rule(catalog, "databases: {shop: {windows: 'mon 00:00-00:01'}}")
    places = ["shop.orders", str(Path(str(catalog.url), "shop.db/orders"))]
    if catalog.maintain(tables=[places[0]])[0].state == RoundState.COMPACTED:
        pytest.fail("it is not Monday midnight")
    assert [catalog.maintain(tables=[place])[0].state for place in places] == [RoundState.CLOSED] * 2
    assert [catalog.plan_maintenance(tables=[place])[0].state for place in places] == [RoundState.CLOSED] * 2
    assert catalog.table(places[0]).maintain().state == RoundState.CLOSED
    assert Table.open(places[1]).plan_maintenance().state == RoundState.CLOSED
    rule(catalog, "databases: {shop: {windows: 00:00-24:00}}")
    assert catalog.maintain(database="shop")[0].state == RoundState.COMPACTED


def test_a_service_goes_on_with_the_last_policy_that_could_be_read(catalog: Catalog) -> None:
    warnings: list[str] = []
    catalog.runtime = replace(catalog.runtime, warn=warnings.append)
    rule(catalog, "catalog: {caps: {buckets: 1}}")
    seen = Rounds(HandClock())
    seen.then[1] = lambda: rule(catalog, "catalog: {caps: *a}")
    catalog.watch(database="shop", watcher=seen, max_rounds=3, interval=0, expire=True, whole=True)
    assert len(seen.rounds) == 3 and len([text for text in warnings if "the last one counts" in text]) == 1


def test_damage_is_said_once_for_each_warehouse(tmp_path: Path) -> None:
    places = [orders(tmp_path / name).context.place for name in ("one", "two")]
    warnings: list[str] = []
    policies = Policies(Policy(), warnings.append)
    for _ in range(2 * COUNTS_EVERY):
        policies.renew()
        for place in places:
            policies.of(place)
            policies.reads(place)
        for name in ("one", "two"):
            kept = tmp_path / name / "wh/.paimon-cli"
            kept.mkdir(exist_ok=True)
            (kept / "policy.yaml").write_text("catalog: {caps: *a}")
            (kept / "reads.ndjson").write_text("[]")
    assert sorted(text.split(":")[0] for text in warnings) == [
        *["some reads are not known"] * 2,
        *["the policy cannot be read, so the last one counts"] * 2,
    ]


def test_the_next_round_is_explained(tmp_path: Path) -> None:
    table = orders(tmp_path, buckets=2)
    clock = HandClock(NOON)

    def decided(text: str) -> dict[str, object]:
        served = ServedTable("shop.orders", lambda: replace(table.supported, clock=clock), policy(text))
        (found,) = decisions_of([served], clock, 60)
        return json.loads(json.dumps(vars(found)))

    closed = decided("catalog: {windows: nights}")
    assert (closed["decision"], closed["opens"]) == (NextStep.WAIT, NOON + 10 * HOUR)
    assert closed["policy"] == ["windows: nights (policy.yaml:1)"]
    capped = decided("catalog:\n  caps:\n    buckets: 1\n    runs: 99")
    assert (capped["decision"], capped["buckets"], capped["left_buckets"]) == (NextStep.COMPACT, 1, 1)
    assert "size-amplification" in str(capped["why"]) and "caps.buckets" in str(capped["why_not"])
    assert capped["policy"] == ["caps.buckets: 1 (policy.yaml:3)"]
    assert len(table.files()) == 8


def test_plans_that_were_not_kept_are_made_again_with_the_same_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = orders(tmp_path / "a", buckets=2), orders(tmp_path / "b")
    served = [ServedTable("shop.a", lambda: table.supported), ServedTable("shop.b", lambda: other.supported)]
    whole = [*decisions_of(served, SystemClock(), 60)]
    assert [decision.buckets for decision in whole] == [2, 1]
    looks: list[str] = []

    def counted(name: str, *rest: Any) -> Turn:
        looks.append(name)
        return look(name, *rest)

    monkeypatch.setattr(next_round, "PIECES", replace(PIECES, max_planned_files=2))
    monkeypatch.setattr(next_round, "look", counted)
    assert [*decisions_of(served, SystemClock(), 60)] == whole
    assert looks == ["shop.a", "shop.b", "shop.b"]


def test_the_explanation_says_where_the_rate_of_reads_comes_from(tmp_path: Path) -> None:
    orders(tmp_path)
    catalog = Catalog(str(tmp_path / "wh"))
    directory = tmp_path / "wh/.paimon-cli"
    directory.mkdir(exist_ok=True)

    def source() -> str:
        (found,) = catalog.policy.explain("shop.orders")
        return found.reads_from

    assert source() == "", "the triggers do not ask for it"
    (directory / "policy.yaml").write_text("catalog: {goal: cost}")
    assert source() == "nothing known"
    (directory / "reads.ndjson").write_text('{"table": "shop.orders", "reads": 4}')
    assert source() == "reads.ndjson"
    (directory / "policy.yaml").write_text("catalog:\n  goal: cost\n  reads: 5/h")
    assert source() == "policy.yaml:3"


def test_a_bucket_above_the_cap_is_named_with_the_cap_that_it_needs(tmp_path: Path) -> None:
    table = make(tmp_path, "large", 9)
    size = sum(file.size for file in table.files())
    catalog, path = Catalog(str(tmp_path / "wh")), tmp_path / "wh/.paimon-cli/policy.yaml"
    path.parent.mkdir()
    path.write_text("catalog: {caps: {bytes: 3 kB}}")
    said = f"1 bucket is larger than a round may read (caps.bytes of the policy, or --max-bytes); bucket-0 needs {size}b"
    (planned,) = catalog.plan_maintenance(database="shop")
    (done,) = catalog.maintain(database="shop")
    for row in (planned, done):
        assert (row.beyond_caps, row.left_buckets, row.beyond_buckets, row.beyond_bytes) == (said, 1, 1, size)
    assert done.is_unfinished and len(table.files()) == 9
    warnings, watched = list[str](), Rounds(HandClock())
    catalog.runtime = replace(catalog.runtime, warn=warnings.append)
    catalog.watch(database="shop", watcher=watched, max_rounds=2, interval=1, whole=True)
    assert warnings == [f"shop.large: {said}; it is passed over until then"]
    assert watched.states(1) == {"shop.large": RoundState.OVER_CAPS}
    (noted,) = catalog.ledger.ls()
    assert noted.state == RoundState.OVER_CAPS
    assert f"> 3072 (--max-bytes, caps.bytes); it waits until that is at least {size}b" in noted.why_not
    path.write_text(f"catalog: {{caps: {{bytes: {size}b}}}}")
    (done,) = catalog.maintain(database="shop")
    assert (done.buckets, done.beyond_caps, done.left_buckets) == (1, "", 0)


def test_a_cap_of_one_bucket_holds_back_none_for_good(tmp_path: Path) -> None:
    tables = [make(tmp_path, name, 9) for name in ("a", "b")]
    path = tmp_path / "wh/.paimon-cli/policy.yaml"
    path.parent.mkdir()
    path.write_text("catalog: {caps: {buckets: 1}}")
    done = Catalog(str(tmp_path / "wh")).maintain(database="shop")
    assert [row.buckets for row in done] == [1, 1] and all(len(table.files()) == 1 for table in tables)


def test_a_cap_on_runs_lowers_that_of_a_goal_and_never_raises_it() -> None:
    def most_runs(more: str = "") -> int:
        rules = policy(f"catalog: {{goal: balanced{more}}}")
        merges = ServedTable("t", pytest.fail, rules).limited(CompactRequest("minor")).merges
        assert merges is not None
        return merges.goal.most_runs

    assert most_runs(", caps: {runs: 3}") == 3 < most_runs() == most_runs(", caps: {runs: 100000}")
