"""Topologies of writers: one writer per bucket is safe; any writer to any bucket needs the data conflict check."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.errors import DataConflict
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.update_job import UpdateRequest, UpdateSummary, run_update
from paimon_cli.metadata.data_file import FileFilter
from paimon_cli.metadata.data_file_schema import RowKind
from tests.rivals import beside, files_of
from tests.tables import compact, data_files, live_files, make_table, rows, write

COLUMNS = {"id": "INT NOT NULL", "color": "STRING", "hobby": "STRING", "points": "INT"}
OFF, ON = {"commit.data-conflict-check": "off"}, {"commit.data-conflict-check": "bucket"}


def person(number: int, color: str = "Red", hobby: str = "None", points: int = 1) -> dict[str, Any]:
    return {"id": number, "color": color, "hobby": hobby, "points": points}


def the_one(context: TableContext) -> dict[str, Any]:
    (row,) = [row for row in rows(context) if row["id"] == 1]
    return row


def update(context: TableContext, text: str) -> UpdateSummary:
    return run_update(context, UpdateRequest("id = 1", (text,)), LocalEngine(), NoProgress())


# Topology 1: each writer has its bucket and commits itself.

WRITERS, ROUNDS = 4, 4


@pytest.mark.parametrize("check", [OFF, ON])
def test_writers_with_a_bucket_each_need_no_check(tmp_path: Path, check: dict[str, str]) -> None:
    table = make_table(
        tmp_path / "t", COLUMNS, ["id"], bucket=WRITERS, options={"commit.max-retries": "50", "write-only": "true", **check}
    )
    write(table, [person(number) for number in range(40)])
    keys = {place[1]: _keys(table, place[1]) for place in bucket_files(table, table.snapshots.latest())}

    def work(bucket: int) -> int:
        own = TableContext.open(table.url)
        attempts = 0
        for number in range(2, ROUNDS + 2):
            attempts += write(own, [person(key, points=number) for key in keys[bucket]]).attempts
        return attempts

    with ThreadPoolExecutor(WRITERS) as pool:
        attempts = sum(pool.map(work, keys))
    assert attempts >= WRITERS * ROUNDS
    assert table.snapshots.ids() == list(range(1, WRITERS * ROUNDS + 2))
    assert {row["points"] for row in rows(table)} == {ROUNDS + 1} and len(rows(table)) == 40
    assert data_files(table) == live_files(table)


def _keys(context: TableContext, bucket: int) -> list[int]:
    (state,) = bucket_files(context, context.snapshots.latest(), FileFilter(buckets={bucket})).values()
    return [key for batch in read_bucket(context, state, ["id"]) for key in batch.column("id").to_pylist()]


# Topology 2: any writer may write to any bucket.


def two_writers(tmp_path: Path, check: dict[str, str]) -> TableContext:
    """Both start from the same snapshot; the slow one, which has few rows and therefore low sequence numbers, commits last."""
    table = make_table(tmp_path / "t", COLUMNS, ["id"])
    write(table, [person(1, "first")])
    quick = [person(number) for number in range(2, 9)] + [person(1, "quick")]
    write(beside(table, lambda: write(table, quick), options=check), [person(1, "slow")])
    return table


def test_without_a_check_the_later_commit_may_lose(tmp_path: Path) -> None:
    """Merge disorder: two writers number rows of one bucket independently."""
    table = two_writers(tmp_path, OFF)
    assert table.snapshots.latest_id() == 3
    assert the_one(table)["color"] == "quick"
    compact(table)
    assert the_one(table)["color"] == "quick"


def test_with_the_check_the_later_commit_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DataConflict, match="snapshot 2"):
        two_writers(tmp_path, ON)
    table = TableContext.open(str(tmp_path / "t"))
    assert the_one(table)["color"] == "quick"
    assert data_files(table) == live_files(table)
    write(TableContext.open(table.url, ON), [person(1, "slow")])
    assert the_one(table)["color"] == "slow"


@pytest.mark.parametrize("check", [OFF, ON], ids=["off", "on"])
def test_two_columns_of_one_row(tmp_path: Path, check: dict[str, str]) -> None:
    """One job sets the colour, another the hobby: neither writes back what it had read, whatever the table's option says."""
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options=check)
    write(table, [person(1)])
    summary = update(beside(table, lambda: update(table, "color = 'Blue'")), "hobby = 'Cycling'")
    assert (the_one(table)["color"], the_one(table)["hobby"]) == ("Blue", "Cycling")
    assert (summary.attempts, summary.conflicts) == (2, 1)
    assert data_files(table) == live_files(table)


@pytest.mark.parametrize("check", [OFF, ON], ids=["off", "on"])
def test_increments(tmp_path: Path, check: dict[str, str]) -> None:
    """Three at once, from 1: none is lost, whatever the table's option says."""
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options=check)
    write(table, [person(1)])
    add_one = "points = points + 1"
    update(beside(table, lambda: update(beside(table, lambda: update(table, add_one)), add_one)), add_one)
    assert the_one(table)["points"] == 4
    assert table.snapshots.latest_id() == 4


def test_a_compactor_in_between_is_not_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options=ON)
    write(table, [person(1)])
    write(table, [person(2)])
    before = files_of(table)
    summary = update(beside(table, lambda: compact(table)), "points = points + 1")
    assert summary.conflicts == 0 and files_of(table) > before
    assert the_one(table)["points"] == 2
    (state,) = bucket_files(table, table.snapshots.latest()).values()
    kinds = [kind for batch in read_bucket(table, state, ["_VALUE_KIND"]) for kind in batch.column(0).to_pylist()]
    assert kinds == [RowKind.UPDATE_AFTER, 0]
