"""What a table tells of its history, to callers in Python."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Runtime, Table
from paimon_cli.api.history import all_options, explain_option
from paimon_cli.errors import DamagedFile, NotFound, NotSupported, UsageError

NOW = timedelta(0)
OPTION = "num-sorted-run.compaction-trigger"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Snapshots 1 and 2 of a and b add rows 1 and 2, 3 compacts them, 4 of a removes row 1, 5 compacts again."""
    table = Table.create(str(tmp_path_factory.mktemp("made") / "t"), columns=["k INT NOT NULL"], primary_key="k", bucket=1)
    for key, user in ((1, "a"), (2, "b")):
        table.write(pa.table({"k": pa.array([key], pa.int32())}), commit_user=user, commit_id=key, compact="none")
    table.compact("full")
    table.delete("k = 1", commit_user="a", commit_id=2, compact="none")
    table.compact("full")
    assert [snapshot.kind for snapshot in table.snapshots()] == ["COMPACT", "APPEND", "COMPACT", "APPEND", "APPEND"]
    return table


@pytest.fixture
def table(made: Table, tmp_path: Path) -> Table:
    """A copy, to be changed."""
    shutil.copytree(made.url, tmp_path / "t")
    return Table.open(str(tmp_path / "t"))


def test_listings_are_of_one_kind_or_user_and_not_too_long(made: Table) -> None:
    def ids(**chosen: Any) -> list[int]:
        return [snapshot.id for snapshot in made.snapshots(**chosen)]

    other = made.snapshot(3).commit_user
    assert (ids(kind="COMPACT"), ids(user="a"), ids(kind="APPEND", user=other), ids(limit=2)) == ([5, 3], [4, 1], [], [5, 4])
    compactions = [[one.snapshot_id for one in made.compactions(**chosen)] for chosen in ({}, {"user": other}, {"limit": 1})]
    assert compactions == [[5, 3], [3], [5]]
    for kind in ("append", "OTHER", ""):
        with pytest.raises(UsageError, match="choose one of APPEND, COMPACT"):
            made.snapshots(kind=kind)
    changes: list[Any] = [made.snapshots, made.compactions, lambda limit: made.row_changes(1, 2, limit=limit)]
    for listed in changes:
        assert list(listed(limit=0)) == []
        with pytest.raises(UsageError, match="cannot be negative"):
            listed(limit=-1)


def test_a_snapshot_that_cannot_be_read_is_left_out_with_a_warning(table: Table) -> None:
    warnings = list[str]()
    (Path(table.url) / "snapshot" / "snapshot-3").write_text("{")
    warned = Table.open(table.url, runtime=Runtime(warn=warnings.append))
    assert [snapshot.id for snapshot in warned.snapshots()] == [5, 4, 2, 1] and len(warnings) == 1
    assert [done.snapshot_id for done in warned.compactions()] == [5] and len(warnings) == 2


@pytest.mark.parametrize("listing", ["snapshots", "compactions"])
def test_a_table_without_its_snapshots_is_not_taken_for_a_new_one(table: Table, listing: str) -> None:
    for file in (Path(table.url) / "snapshot").glob("snapshot-*"):
        file.unlink()
    with pytest.raises(DamagedFile):
        getattr(Table.open(table.url), listing)()
    shutil.rmtree(table.url)
    with pytest.raises(NotFound):
        getattr(table, listing)()


def test_compactions_are_those_of_a_table_that_can_be_read(made: Table) -> None:
    for option, value in (("index-file-in-data-file-dir", "true"), ("data-file.path-directory", "elsewhere")):
        with pytest.raises((NotSupported, UsageError), match=option):
            Table.open(made.url, {option: value}).compactions()


def test_points_are_those_of_python_and_go_from_old_to_new(made: Table) -> None:
    assert [made.snapshot(point).id for point in (NOW, 2, "2", "earliest", "latest")] == [5, 2, 2, 1, 5]
    assert made.compaction(NOW) == made.compaction() == made.compaction(5) != made.compaction(3)
    for before, after in ((1, NOW), (1, "latest"), ("earliest", 5)):
        added = [change.change for change in made.file_changes(before, after)]
        assert sorted(added) == ["added", "removed"]
        assert [(change.kind, change.values) for change in made.row_changes(before, after)] == [
            ("-D", {"k": 1}),
            ("+I", {"k": 2}),
        ]
    assert [change.change for change in made.file_changes(1, 2)] == ["added"]
    assert [change.change for change in made.file_changes(2, 1)] == ["removed"]
    assert [change.kind for change in made.row_changes(2, NOW)] == ["-D"]
    assert [change.kind for change in made.row_changes(NOW, 2)] == ["+I"]
    assert isinstance(made.row_changes(1, 2), Iterator)


def test_a_search_is_within_the_snapshots_that_are_named(made: Table) -> None:
    found = made.bisect("k = 1", expect="none")
    assert (found.snapshot_id, found.before, found.first_snapshot, found.last_snapshot) == (4, 3, 1, 5)
    found = made.bisect("k = :key", first=2, last="3", params={"key": 1})
    assert (found.snapshot_id, found.before, found.first_snapshot, found.last_snapshot) == (2, None, 2, 3)
    with pytest.raises(NotFound):
        made.bisect("k = 1", first="earliest", last=NOW)


def test_options_are_the_newest_with_those_of_the_call(table: Table) -> None:
    called = Table.open(table.url, {OPTION: "9"})
    Table.open(table.url).alter.set({OPTION: "7"})
    for opened, value, origin in ((called, "9", "call"), (table, "7", "table")):
        rows = {row.key: row for row in opened.option_rows()}
        assert (rows[OPTION].value, rows[OPTION].origin) == (value, origin)
        explained = opened.explain_option(OPTION)
        assert (explained.value, explained.origin) == (value, origin)
        assert len(opened.option_rows(every=True)) > 100 > len(opened.option_rows())
    assert table.options[OPTION] == "7"
    assert len(all_options()) > 100 and not any(row.is_set for row in all_options())
    assert explain_option(OPTION).value is None


def test_schemas_are_compared_with_the_one_before_or_the_one_named(table: Table) -> None:
    for value in ("7", "8"):
        table.alter.set({OPTION: value})
    assert [schema.id for schema in table.schemas()] == [2, 1, 0] and table.schema().id == 2 and table.schema(0).id == 0

    def changed(*named: Any) -> list[tuple[str | None, str | None]]:
        return [(change.before, change.after) for change in table.schema_changes(*named)]

    assert changed() == changed(1) == changed("1", "latest") == [("7", "8")]
    assert changed(0) == changed("0") == changed(0, 2) == [(None, "8")]
    assert changed(None, 0) == [] and changed(None, 1) == changed(0, 1) == [(None, "7")] and changed(1, 0) == [("7", None)]


KEYS = [("BINARY(2)", b"\x01'", "0127"), ("BOOLEAN", True, "true"), ("DOUBLE", float("nan"), "NaN"), ("STRING", "a'b", "a'b")]


@pytest.mark.parametrize(("sql", "key", "text"), KEYS)
def test_the_versions_of_a_key_are_found_by_its_value(tmp_path: Path, sql: str, key: Any, text: str) -> None:
    table = Table.create(str(tmp_path / "t"), columns=[f"k {sql} NOT NULL", "v INT"], primary_key="k", bucket=1)
    for value in (1, 2):
        table.write(pa.table({"k": [key], "v": pa.array([value], pa.int32())}), compact="none")
    assert [[version.values["v"] for version in table.blame({"k": one}) if version.values] for one in (key, text)] == [[1, 2]] * 2


def test_the_page_of_a_key_replaces_a_file_only_if_that_is_wanted(made: Table, tmp_path: Path) -> None:
    page = tmp_path / "blame.html"
    versions = made.blame({"k": 1}, html=str(page))
    assert [version.snapshot_id for version in versions] == [1, 3, 4] and all(
        b.snapshot_id > a.snapshot_id for a, b in pairwise(versions)
    )
    text = page.read_text()
    assert "k = 1" in text and text.count("<tr") == 1 + len({1, 3, 4, 5})
    page.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        made.blame({"k": 1}, html=str(page))
    assert page.read_text() == "mine"
    made.blame({"k": 1}, html=str(page), force=True)
    assert page.read_text() == text
