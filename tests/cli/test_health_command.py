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
    assert finding["code"] == "PD012"
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
