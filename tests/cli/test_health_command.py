"""`health`: figures, a verdict, and commands that mend what is found; a warehouse by how much care its tables need."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.cli.calling import Run
from tests.rivals import beside
from tests.tables import make_table, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """A table with more sorted runs than its writers bear, a sound one, and one whose schema is damaged."""
    for name, commits in (("crowded", 9), ("sound", 2), ("broken", 1)):
        table = make_table(tmp_path / "shop.db" / name, COLUMNS, ["id"], options={"write-only": "true"})
        for number in range(commits):
            write(table, [{"id": 1, "n": number}])
    (tmp_path / "shop.db" / "broken" / "schema" / "schema-0").write_text("{")
    return str(tmp_path)


def test_a_warehouse_is_sorted_by_urgency(run: Run, warehouse: str) -> None:
    shown = run("health", "--warehouse", warehouse, "-o", "json", code=4)
    assert [(row["table"], row["verdict"]) for row in shown.json["items"]] == [
        ("shop.broken", "unreadable"),
        ("shop.crowded", "needs care"),
        ("shop.sound", "healthy"),
    ]
    broken, crowded, sound = shown.json["items"]
    assert [finding["code"] for finding in broken["findings"]] == ["PD030"]
    assert (crowded["files"], crowded["most_runs"], crowded["snapshots"]) == (9, 9, 9)
    assert sound["findings"] == []
    assert run("health", "--database", "shop", "--warehouse", warehouse, "-o", "json", code=4).json["items"][0] == broken


def test_the_command_of_a_finding_mends_it(run: Run, warehouse: str) -> None:
    (row,) = run("health", "shop.crowded", "--warehouse", warehouse, "-o", "json", code=4).json["items"]
    (finding,) = row["findings"]
    assert finding["code"] == "PD027"
    program, *words = shlex.split(finding["command"])
    assert program == "paimon-cli"
    run(*words, "--engine", "local")
    mended = run("health", "shop.crowded", "--warehouse", warehouse)
    assert "shop.crowded" in mended.out and "healthy" in mended.out


def test_nothing_is_written(run: Run, warehouse: str) -> None:
    def everything() -> dict[str, int]:
        return {os.path.join(d, f): os.stat(os.path.join(d, f)).st_mtime_ns for d, _, fs in os.walk(warehouse) for f in fs}

    before = everything()
    run("health", "--warehouse", warehouse, code=4)
    assert everything() == before


def test_a_table_that_is_not_there(run: Run, warehouse: str) -> None:
    run("health", "shop.none", "--warehouse", warehouse, code=3)
    run("health", "shop.sound", "--database", "shop", "--warehouse", warehouse, code=2)


def test_the_topology_is_told_on_request(run: Run, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    write(beside(table, lambda: write(table, [{"id": 1, "n": 1}])), [{"id": 1, "n": 2}])
    assert "PD029" not in run("health", table.url).out
    shown = run("health", table.url, "--topology", code=4).out
    command = f"paimon-cli alter {table.url} set commit.data-conflict-check=bucket"
    assert "PD029  topology: in the last 2 snapshots, 2 users wrote and committed" in shown and f"run: {command}" in shown
    run(*shlex.split(command)[1:])
    (row,) = run("health", table.url, "--topology", "-o", "json").json["items"]
    assert [(found["severity"], found["figures"]["unseen_commits"]) for found in row["findings"]] == [("ok", 1)]
    assert "OK" in run("health", table.url, "--topology").out


TRIGGER = "num-sorted-run.compaction-trigger"


def test_commands_of_findings_keep_the_options_of_the_call(run: Run, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    for number in range(3):
        write(table, [{"id": 1, "n": number}])
    (row,) = run("health", table.url, "--option", f"{TRIGGER}=3", "-o", "json", code=4).json["items"]
    (command,) = (finding["command"] for finding in row["findings"] if finding["code"] == "PD027")
    assert f"--option {TRIGGER}=3" in command
    assert "nothing to compact" not in run(*shlex.split(command)[1:], "--engine", "local").out
    assert "healthy" in run("health", table.url, "--option", f"{TRIGGER}=3").out


def test_commands_of_findings_keep_the_options_of_the_catalog(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = ("--option", "metastore=jdbc", "--option", "uri=jdbc:sqlite:c.db", "--warehouse", "jw")
    run("db", "create", "s", *catalog)
    run("create", "s.o", "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", "1", "--option", "write-only=true", *catalog)
    Path("rows.json").write_text('{"id": 1}')
    for _ in range(5):
        run("write", "s.o", "rows.json", *catalog)
    login = ("--option", "jdbc.password=hunter2")
    (row,) = run("health", "s.o", *catalog, *login, "-o", "json", code=4).json["items"]
    command = row["findings"][0]["command"]
    assert "--option metastore=jdbc --option uri=jdbc:sqlite:c.db" in command and "password" not in command
    run(*shlex.split(command)[1:], "--engine", "local")
    assert "healthy" in run("health", "s.o", *catalog).out


def test_a_misspelt_option_is_told_with_the_known_one(run: Run, tmp_path: Path) -> None:
    misspelt = TRIGGER.replace("trigger", "triger")
    stored = make_table(tmp_path / "t", COLUMNS, ["id"], options={misspelt: "3"})
    (found,) = run("health", stored.url, "-o", "json", code=4).json["items"][0]["findings"]
    assert f"did you mean '{TRIGGER}'?" in found["message"]
    run(*shlex.split(found["command"])[1:])
    assert "healthy" in run("health", stored.url).out
    (found,) = run("health", stored.url, "--option", f"{misspelt}=3", "-o", "json", code=4).json["items"][0]["findings"]
    assert "is an option of this call" in found["message"] and found["command"] == ""


@pytest.mark.parametrize("command", ["health", "doctor", "describe"])
def test_an_option_of_the_call_that_cannot_be_read_is_one_finding(run: Run, tmp_path: Path, command: str) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"])
    write(table, [{"id": 1, "n": 1}])
    shown = run(command, table.url, "--option", f"{TRIGGER}=abc", code=0 if command == "describe" else 4).out
    assert shown.count("cannot be 'abc'") == 1 and "it is an option of this call" in shown
    assert "PD030" not in shown and "run: paimon-cli" not in shown
