"""What snapshots added: version by version, as changelog files report it, or as the difference of the two ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, VALUE_KIND
from paimon_cli.read.increments import IncrementRange, increment_context, plan_increment, waiting_changes
from paimon_cli.read.split_reader import read_split
from tests.goldens import GOLDENS, Golden, expected_rows, golden, golden_table
from tests.pieces import injected
from tests.tables import compact, make_table, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
CHANGELOGS = [golden for golden in GOLDENS if "changelog" in golden.moments]


def changes(table: TableContext, begin: str, end: str = "", mode: str = "auto") -> list[tuple[str, dict[str, Any]]]:
    chosen = IncrementRange.of(table, begin, end)
    made_from = chosen.mode(table, mode)
    context = increment_context(table, made_from)
    plan = plan_increment(context, chosen, made_from, None)
    names = context.schema.field_names
    found = []
    for split in plan.splits:
        for batch in read_split(context, split, (*names, VALUE_KIND), keep_kinds=True):
            kinds = [KIND_TEXTS[kind] for kind in batch.column(VALUE_KIND).to_pylist()]
            found += list(zip(kinds, canonical_rows(batch.select(list(names)), context.schema.fields), strict=True))
    return found


def history(folder: Path) -> TableContext:
    """1: a, b. 2: b again. 3: a deleted. 4: compaction. 5: c."""
    context = make_table(folder / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    write(context, [{"k": 2, "v": "b2"}])
    write(context, [{"k": 1, "_op": "-D", "v": "a"}])
    compact(context)
    write(context, [{"k": 3, "v": "c"}])
    return context


def test_every_version_comes_and_compactions_bring_nothing(tmp_path: Path) -> None:
    context = history(tmp_path)
    a, b = ("+I", {"k": 1, "v": "a"}), ("+I", {"k": 2, "v": "b"})
    b2, c = ("+I", {"k": 2, "v": "b2"}), ("+I", {"k": 3, "v": "c"})
    deleted = ("-D", {"k": 1, "v": "a"})
    assert changes(context, "1") == [b2, deleted, c]
    assert changes(context, "0", "2") == [a, b, b2]
    assert changes(context, "0", mode="diff") == [b2, c]
    assert changes(context, "3", "4") == [] == changes(context, "5")
    create_tag(context, "two", 2)
    assert changes(context, "two", "5") == [deleted, c]


def test_changes_wait_only_at_the_end_of_the_history(tmp_path: Path) -> None:
    """A compaction writes those of earlier snapshots, too, and then they are no changes of these."""
    options = {"write-only": "true", "changelog-producer": "lookup"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=options)
    for key in (1, 2):
        write(context, [{"k": key, "v": "a"}])
    ranges = [IncrementRange.of(context, "0", end) for end in ("1", "2")]
    assert [waiting_changes(context, chosen, chosen.mode(context, "auto"), None) for chosen in ranges] == [0, 2]


def test_ranges_that_cannot_be_read(tmp_path: Path) -> None:
    context = history(tmp_path)
    with pytest.raises(UsageError, match="is after"):
        changes(context, "3", "1")
    with pytest.raises(NotFound):
        changes(context, "1", "9")
    with pytest.raises(NotFound, match="no snapshot after 98 in ") as missing:
        changes(context, "98")
    assert missing.value.hint == f"paimon-cli snapshots ls {context.layout.argument}"
    with pytest.raises(UsageError, match="mode 'odd'"):
        changes(context, "1", "2", mode="odd")
    for begin in ("-1", "nobody"):
        with pytest.raises(UsageError, match="is not an id, tag or time"):
            changes(context, begin, "2")
    expire_snapshots(context, Retention(1, 1, 0, None))
    with pytest.raises(NotFound, match=r"no snapshot 2 .* it has probably expired"):
        changes(context, "1")
    assert changes(context, "4") == [("+I", {"k": 3, "v": "c"})]


@pytest.mark.parametrize("left", [1, 2, 3, 4])
def test_a_time_before_the_oldest_snapshot_is_not_the_empty_table(tmp_path: Path, left: int) -> None:
    """Unless nothing has expired: what was there at that time is unknown."""
    context = history(tmp_path)
    assert changes(context, "1970-01-02 00:00:00", mode="diff") == changes(context, "0", mode="diff")
    expire_snapshots(context, Retention(left, left, 0, None))
    with pytest.raises(NotFound, match="has expired"):
        changes(context, "1970-01-02 00:00:00", mode="diff")


def test_pieces_of_a_changelog_come_all(tmp_path: Path) -> None:
    """Whatever is cut: manifests, files, batches."""
    columns = {"p": "INT NOT NULL", **COLUMNS}
    options = {"changelog-producer": "input", "manifest.target-file-size": "1 b"}
    context = make_table(tmp_path / "t", columns, ["p", "k"], ["p"], bucket=2, options=options)
    rows = [{"p": p, "k": k, "v": "a"} for p in (1, 2) for k in range(8)]
    with injected(1):
        write(context, rows)
        write(context, [{**row, "v": "b"} for row in rows[::3]])
        found = changes(context, "0")
    assert sorted(map(str, found)) == sorted(map(str, changes(context, "0")))
    expected = [("+I", row) for row in rows] + [("+I", {**row, "v": "b"}) for row in rows[::3]]
    assert sorted(map(str, found)) == sorted(map(str, expected))


@pytest.mark.parametrize("golden", CHANGELOGS, ids=str)
def test_changelogs_of_golden_tables(golden: Golden, tmp_path: Path) -> None:
    table = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    found = changes(table, "0")
    printed = [json.dumps({"_kind": kind, **row}, ensure_ascii=False) for kind, row in found]
    expected = [{name: cell for name, cell in row.items() if name != "_snapshot"} for row in expected_rows(golden, "changelog")]
    assert sorted(printed) == sorted(json.dumps(row, ensure_ascii=False) for row in expected)


@pytest.mark.parametrize("writer", ["java-1.4", "pypaimon-2.1", "rust-0.4"])
def test_every_row_of_an_append_table_was_inserted(writer: str, tmp_path: Path) -> None:
    table = TableContext.open(str(golden_table(writer, "append", tmp_path)))
    appended = golden(writer, "append")
    found = changes(table, "0")
    assert {kind for kind, _ in found} == {"+I"}
    printed = sorted(json.dumps(row, ensure_ascii=False) for _, row in found)
    if all(snapshot.commit_kind == "APPEND" for snapshot in table.snapshots.newest_first()):
        assert printed == sorted(json.dumps(row, ensure_ascii=False) for row in expected_rows(appended))
