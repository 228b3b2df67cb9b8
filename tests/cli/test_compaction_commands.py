"""`compactions` and `compact-manifests`: what they print, refuse and change."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.history.table_context import TableContext
from tests.cli.calling import Run
from tests.tables import compact, make_table, rows, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}


@pytest.fixture
def table(tmp_path: Path) -> str:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    for number in range(3):
        write(context, [{"id": 1, "n": number}])
    compact(context, strategy="full")
    return str(tmp_path / "t")


def test_compactions_are_listed_and_shown(run: Run, table: str) -> None:
    (item,) = run("compactions", "ls", table, "-o", "json").json["items"]
    assert (item["snapshot_id"], item["what"], item["files_before"], item["files_after"]) == (4, "files", 3, 1)
    assert "1 compaction" in run("compactions", "ls", table).out
    (bucket,) = run("compactions", "show", table, "4", "-o", "json").json["items"]
    assert (bucket["bucket"], bucket["levels"], bucket["rows_before"], bucket["rows_after"]) == (0, "0 -> 5", 3, 1)
    assert run("compactions", "show", table, "-o", "json").json["items"] == [bucket]
    assert run("compactions", "ls", table, "--user", "nobody", "-o", "ndjson").out == ""


def test_other_snapshots_are_not_found_as_compactions(run: Run, table: str, tmp_path: Path) -> None:
    assert "snapshot 1 of" in run("compactions", "show", table, "1", code=3).err
    make_table(tmp_path / "new", COLUMNS, ["id"])
    assert "no compaction of" in run("compactions", "show", tmp_path / "new", code=3).err


def test_manifests_are_compacted_in_one_commit_and_only_once(run: Run, table: str, tmp_path: Path) -> None:
    context = TableContext.open(table)
    before = rows(context)
    plan = run("compact-manifests", table, "-n", "-o", "json").json["item"]
    assert (plan["snapshot_id"], plan["manifests"], plan["rewritten"], plan["deleted"]) == (4, 4, 4, 3)
    assert context.snapshots.latest_id() == 4
    done = run("compact-manifests", table, "-o", "json").json["item"]
    assert (done["manifests_before"], done["manifests_after"], done["snapshots"]) == (4, 1, [5])
    assert run("compact-manifests", table, "-o", "json").json["item"]["snapshots"] == []
    assert "nothing to gain" in run("compact-manifests", table, "--dry-run").out
    assert rows(context) == before and context.snapshots.latest_id() == 5
    run("verify", table, "--level", "full", "--all-snapshots")
    make_table(tmp_path / "new", COLUMNS, ["id"])
    assert "nothing to gain" in run("compact-manifests", tmp_path / "new").out
