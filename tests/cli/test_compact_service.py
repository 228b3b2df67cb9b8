"""`compact --watch` on a warehouse, as a user calls it: choices of tables, logs, metrics, expiry."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.cli.service_log import round_text
from paimon_cli.errors import StorageUnavailable
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, TableRound
from tests.cli.calling import Run
from tests.tables import make_table, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
LOCAL = ("--engine", "local")


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    for name in ("shop.db/orders", "shop.db/returns", "hr.db/people"):
        table = make_table(tmp_path / name, COLUMNS, ["id"], options={"write-only": "true", "snapshot.num-retained.min": "1"})
        for number in range(6):
            write(table, [{"id": 1, "n": number}])
    return str(tmp_path)


def rounds(run: Run, *arguments: str) -> list[dict[str, Any]]:
    watch = ("compact", "--watch", "--interval", "1 ms", "-o", "ndjson", *LOCAL)
    return run(*watch, *arguments).lines


def states(found: dict[str, Any]) -> dict[str, str]:
    return {table["table"]: table["state"] for table in found["tables"]}


def test_a_service_without_names_serves_the_warehouse(run: Run, warehouse: str) -> None:
    first, second = rounds(run, "--warehouse", warehouse, "--max-rounds", "2")
    assert states(first) == {"hr.people": "compacted", "shop.orders": "compacted", "shop.returns": "compacted"}
    assert set(states(second).values()) == {"nothing to do"}
    assert not list(Path(warehouse).glob("*/*/lease"))


def test_databases_are_repeatable_and_patterns_choose_among_them(run: Run, warehouse: str) -> None:
    where = ("--warehouse", warehouse, "--database", "shop", "--database", "hr", "--max-rounds", "1")
    (found,) = rounds(run, *where, "--exclude", "ret.*")
    assert set(states(found)) == {"hr.people", "shop.orders"}
    plan = run(
        "compact", "--all-tables", "--warehouse", warehouse, "--include", "returns", "-n", "--strategy", "minor", "-o", "json"
    )
    assert (plan.json["kind"], {item["table"] for item in plan.json["items"]}) == ("CompactionPlanList", {"shop.returns"})
    assert run("compact", "--warehouse", warehouse, *LOCAL, code=2).err.startswith("error: name the tables\n")
    run("compact", "shop.orders", "--database", "shop", "--warehouse", warehouse, code=2)
    run("compact", "shop.orders", "--all-tables", "--warehouse", warehouse, code=2)


def test_logs_as_json_lines(run: Run, warehouse: str) -> None:
    where = ("--warehouse", warehouse, "--max-rounds", "1", "--log-format", "json")
    answer = run("compact", "--watch", "--database", "hr", "--dedicated", "--option", "write-only=false", *where, *LOCAL)
    first, warning, table, last = map(json.loads, answer.err.splitlines())
    assert (first["event"], first["message"]) == ("service", "started, and looking at the tables")
    assert (warning["level"], warning["event"]) == ("warning", "warning") and "write-only" in warning["message"]
    assert (table["level"], table["event"], table["table"], table["files_before"]) == ("info", "table", "hr.people", 6)
    assert (last["event"], last["round"], last["tables"]) == ("round", 1, 1)
    assert all(line["time"].endswith("Z") for line in (warning, table, last))
    refused = run("compact", "--watch", "--database", "nix", *where, code=3)
    assert json.loads(refused.err.splitlines()[-1])["error"]["message"].startswith("there is no database nix")


def test_one_run_writes_metrics_and_logs_too(run: Run, warehouse: str, tmp_path: Path) -> None:
    file = tmp_path / "m.prom"
    command = ("compact", "--database", "shop", "--warehouse", warehouse, "--metrics-file", str(file), *LOCAL)
    answer = run(*command, "--log-format", "json")
    assert answer.out.count("snapshot 7") == 2
    assert [json.loads(line)["event"] for line in answer.err.splitlines()] == ["table", "table", "round"]
    text = file.read_text()
    assert 'paimon_cli_compaction_read_bytes_total{table="shop.orders"}' in text
    assert run(*command).err == ""


def test_snapshots_expire_in_the_service(run: Run, warehouse: str) -> None:
    keep = ("--option", "snapshot.num-retained.max=2")
    first, *_ = rounds(run, "--warehouse", warehouse, "--database", "hr", "--max-rounds", "1", "--expire", *keep)
    assert first["tables"][0]["snapshots_expired"] == 5
    assert len(list(Path(warehouse, "hr.db/people/snapshot").glob("snapshot-*"))) == 2


def test_an_exhausted_budget_is_not_called_nothing_to_compact(run: Run, warehouse: str) -> None:
    watch = (
        "maintain",
        "--database",
        "shop",
        "--warehouse",
        warehouse,
        "--watch",
        "--max-rounds",
        "2",
        "--interval",
        "1 ms",
        "-y",
    )
    lines = run(*watch, "--budget", "1 B/day", *LOCAL).err.splitlines()
    said = [line.split(" ", 1)[1] for line in lines if "round" in line]
    assert said == [f"round {number}: 2 tables left (2 out of budget)" for number in (1, 2)]
    answer = run(*watch, "--budget", "1 B/day", "--log-format", "json", *LOCAL)
    rounds = [event for event in map(json.loads, answer.err.splitlines()) if event["event"] == "round"]
    assert [event["tables_left"] for event in rounds] == [{"out of budget": 2}] * 2


def test_a_round_says_how_many_tables_are_left_and_why() -> None:
    def text(*states: str, is_new: bool = True) -> str | None:
        error = StorageUnavailable("no answer")
        tables = [
            TableRound(f"t{number}", state, error=error if state == RoundState.FAILED else None, is_new=is_new)
            for number, state in enumerate(states)
        ]
        return round_text(ServiceRound(7, 0, 1.0, tuple(tables)))

    held, over, nothing = RoundState.HELD, RoundState.OVER_BUDGET, RoundState.NOTHING
    assert text(nothing, nothing) == "round 7: nothing to compact in 2 tables"
    assert text(over, nothing, held, over) == (
        "round 7: nothing to compact in 1 table; 3 tables left (2 out of budget, 1 held by another service)"
    )
    assert text(over, RoundState.FAILED) == "round 7: 1 table left (1 out of budget)", "the failure has a line of its own"
    assert text(nothing, RoundState.FAILED) is None
    assert text(over, nothing, is_new=False) == "round 7: nothing to compact in 1 table; 1 table left (1 out of budget)"
    assert text(RoundState.FAILED, is_new=False) == "round 7: 1 table left (1 failed)"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--interval", "1s"), "--interval needs --watch"),
        (("--max-rounds", "2"), "--max-rounds needs --watch"),
        (("--lease", "0s"), "--lease needs --watch"),
        (("--expire",), "--expire needs --watch"),
        (("--orphans-every", "1d"), "--orphans-every needs --watch"),
        (("--metrics-listen", ":0"), "--metrics-listen needs --watch"),
        (("--hook", "true"), "--hook needs --watch"),
        (("--watch", "--hook", "no-such-program-anywhere"), "--hook cannot be run"),
        (("--watch", "--hook", "ftp://host/x"), "--hook is not a URL of http or https"),
        (("--watch", "--metrics-listen", "nowhere"), "cannot listen on 'nowhere'"),
        (("--watch", "--orphans-every", "0 s"), "--orphans-every 0"),
        (("--watch", "--lease", "soon"), "soon"),
        (("--watch", "--metrics-file", "/no/such/directory/m.prom"), "cannot write the metrics file"),
    ],
)
def test_mistakes_are_reported_before_anything_begins(run: Run, warehouse: str, option: tuple[str, ...], message: str) -> None:
    assert message in run("compact", "--database", "hr", "--warehouse", warehouse, *option, *LOCAL, code=2).err


@pytest.fixture
def hook(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A command for `--hook`, and the file with the events that it has received."""
    folder = tmp_path_factory.mktemp("hook")
    program, received = folder / "hook.py", folder / "events"
    program.write_text(f"#!{sys.executable}\nimport sys\nopen({str(received)!r}, 'a').write(sys.stdin.read())\n")
    program.chmod(0o755)
    received.touch()
    return str(program), received


def events(received: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in received.read_text().splitlines()]


def test_a_hook_is_told_of_each_commit(run: Run, warehouse: str, hook: tuple[str, Path]) -> None:
    program, received = hook
    rounds(run, "--warehouse", warehouse, "--max-rounds", "2", "--hook", program)
    found = events(received)
    assert sorted(event["table"] for event in found) == ["hr.people", "shop.orders", "shop.returns"]
    assert {(event["snapshot"], event["kind"], event["turn"]["files_before"]) for event in found} == {(7, "COMPACT", 6)}


def test_a_hook_that_fails_is_said_and_stops_nothing(run: Run, warehouse: str) -> None:
    where = ("--warehouse", warehouse, "--database", "hr", "--max-rounds", "1", "--hook", "false")
    answer = run("compact", "--watch", *where, "-o", "ndjson", *LOCAL)
    assert states(answer.lines[0]) == {"hr.people": "compacted"}
    assert "hook false: " in answer.err and "not delivered" in answer.err


def test_maintain_has_the_hook_too(run: Run, warehouse: str, hook: tuple[str, Path]) -> None:
    program, received = hook
    where = ("--warehouse", warehouse, "--database", "hr", "--max-rounds", "1", "--yes")
    run("maintain", "--watch", *where, "--hook", program, *LOCAL)
    assert [event["table"] for event in events(received)] == ["hr.people"]
    run("maintain", "--warehouse", warehouse, "--database", "hr", "--yes", "--hook", program, *LOCAL, code=2)


def test_only_the_user_names_a_hook(
    run: Run, warehouse: str, hook: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a table nor a file of the current directory can start a program here; the user's own file can."""
    program, received = hook
    schema = Path(warehouse) / "hr.db" / "people" / "schema" / "schema-0"
    content = json.loads(schema.read_text())
    schema.write_text(json.dumps({**content, "options": {**content["options"], "hook.commits": program}}))
    where = ("--warehouse", warehouse, "--database", "hr", "--max-rounds", "1")
    rounds(run, *where)
    run("alter", f"{warehouse}/hr.db/people", "set", f"hook.commits={program}", code=2)
    (folder := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(folder)
    (folder / "paimon.yaml").write_text(f"hook.commits: {program}\n")
    assert "hook.commits" in run("compact", "--watch", *where, *LOCAL, code=2).err
    (folder / "paimon.yaml").unlink()
    assert events(received) == []
    own = tmp_path / "own.yaml"
    own.write_text(f"hook.commits: {program}\n")
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    rounds(run, "--warehouse", warehouse, "--database", "shop", "--max-rounds", "1")
    assert {event["table"] for event in events(received)} == {"shop.orders", "shop.returns"}


def test_one_run_that_fails_ends_its_round_all_the_same(run: Run, warehouse: str, tmp_path: Path) -> None:
    """Who watches the metrics or the log would else see nothing of the tables that were compacted, and no failure."""
    for path in Path(warehouse, "shop.db/returns/manifest").iterdir():
        path.unlink()
    file = tmp_path / "m.prom"
    command = ("compact", "--database", "shop", "--warehouse", warehouse, "--metrics-file", str(file), *LOCAL)
    answer = run(*command, "--log-format", "json", code=None)
    events = [json.loads(line) for line in answer.err.splitlines() if '"event"' in line]
    assert [event["event"] for event in events][-1] == "round"
    assert 'paimon_cli_compaction_read_bytes_total{table="shop.orders"}' in file.read_text()
