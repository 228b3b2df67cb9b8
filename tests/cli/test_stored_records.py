"""What is counted before merging is not called rows: text says stored records, with the rows beside it where they are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import Run
from tests.tables import compact, make_table, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
LOCAL = ("--engine", "local")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six rows, written three times."""
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    for _ in range(3):
        write(context, [{"id": number, "n": 1} for number in range(6)])
    return tmp_path / "t"


@pytest.mark.parametrize(
    "command", ["describe", "tables ls", "snapshots ls", "branches ls", "partitions ls", "buckets ls", "files ls", "lsm show"]
)
def test_text_says_what_is_counted(command: str, run: Run, table: Path) -> None:
    run("branches", "create", table, "b")
    shown = run(*command.split(), table.parent if command == "tables ls" else table).out
    assert "stored records" in shown.lower()
    assert "records" not in shown.lower().replace("stored records", "").replace("changelog records", "")


@pytest.mark.parametrize("command", ["describe", "buckets ls", "partitions ls"])
def test_rows_are_shown_where_metadata_tells_them(command: str, run: Run, table: Path) -> None:
    def rows() -> Any:
        content = run(*command.split(), table, "-o", "json").json
        return (content["item"] if command == "describe" else content["items"][0])["visible_rows"]

    assert rows() is None, "only a merge can tell"
    run("compact", table, *LOCAL)
    assert rows() == 6


@pytest.mark.parametrize("keys", [["id"], []])
def test_rows_that_vectors_mark_are_not_shown(keys: list[str], run: Run, tmp_path: Path) -> None:
    options = {"deletion-vectors.enabled": "true"}
    context = make_table(tmp_path / "v", COLUMNS, keys, bucket=1 if keys else -1, options=options)
    write(context, [{"id": number, "n": 1} for number in range(6)])
    if keys:
        compact(context)
    run("delete", tmp_path / "v", "-w", "id < 2", *LOCAL)
    described = run("describe", tmp_path / "v", "-o", "json").json["item"]
    assert described["visible_rows"] == 4 == int(run("read", tmp_path / "v", "--count").out)


def test_a_view_whose_only_field_is_a_list(run: Run, table: Path, tmp_path: Path) -> None:
    shown = run("describe", table, "--fields", "columns").out
    assert shown.startswith("Columns\n") and "INT NOT NULL" in shown
    assert run("describe", table, "--fields", "columns,health").out.startswith("Columns\n")
    assert run("describe", table, "--fields", "health", "-o", "table").out.startswith("To do")
