"""`bisect`: the first snapshot in which a condition holds, found with few reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import NotFound, UsageError


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Twenty snapshots: key 7 comes with snapshot 13, key 1 goes with snapshot 5, the column `w` comes after snapshot 10."""
    path = tmp_path_factory.mktemp("bisect") / "t"
    table = Table.create(str(path), columns=["id BIGINT NOT NULL", "v INT"], primary_key="id", bucket=1)
    for number in range(1, 21):
        if number == 5:
            table.delete(where="id = 1", compact="none")
        else:
            ids = [1, 100] if number == 1 else [7, 100] if number == 13 else [100]
            table.write(pa.table({"id": ids, "v": pa.array([number] * len(ids), pa.int32())}), compact="none")
        if number == 10:
            table.alter.add_column("w STRING")
            table.refresh()
    return table


@pytest.mark.parametrize(
    "where, expect, found, before, rows",
    [
        ("id = 7", "some", 13, 12, 1),
        ("id = 1", "none", 5, 4, 0),
        ("id = 100", "some", 1, None, 1),
        ("id = 100 AND v >= 20", "some", 20, 19, 1),
        ("w IS NULL", "some", 1, None, 2),
        ("id = 5", "none", 1, None, 0),
    ],
)
def test_the_first_snapshot_is_found(table: Table, where: str, expect: str, found: int, before: int | None, rows: int) -> None:
    result = table.bisect(where, expect=expect)  # type: ignore[arg-type]
    assert (result.snapshot_id, result.before, result.rows) == (found, before, rows)
    assert len(result.tried) <= 7 and len({one.snapshot_id for one in result.tried}) == len(result.tried)


def test_a_part_of_the_history(table: Table) -> None:
    assert table.bisect("id = 1", last=4).snapshot_id == 1
    assert table.bisect("id = 7", first=14).before is None
    assert table.bisect("id = 7", first=13, last=13).tried[0].rows == 1


def test_what_never_holds(table: Table) -> None:
    with pytest.raises(NotFound, match="matches no row") as error:
        table.bisect("id = 1")
    assert error.value.details["tried"] == [{"snapshot_id": 20, "rows": 0}]
    with pytest.raises(NotFound, match="still matches"):
        table.bisect("id = 7", expect="none")
    with pytest.raises(NotFound, match="no snapshots"):
        table.bisect("id = 7", first=30)
    with pytest.raises(UsageError, match="must not come after"):
        table.bisect("id = 7", first=3, last=2)
    with pytest.raises(UsageError):
        table.bisect("nope = 1")


def test_rows_that_wait_for_their_buckets_count_as_in_a_read(tmp_path: Path) -> None:
    options = {"postpone.merge-on-read": "true", "file.format": "parquet"}
    waiting = Table.create(
        str(tmp_path / "t"), columns=["id BIGINT NOT NULL", "v INT"], primary_key="id", bucket=-2, options=options
    )
    for value in (1, 2, 3):
        waiting.write(pa.table({"id": [value], "v": pa.array([value], pa.int32())}))
    assert waiting.scan(where="id = 2").count() == 1
    assert waiting.bisect("id = 2").snapshot_id == 2
