"""Which snapshot the user means, the schema it is read with, and the errors for snapshots that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.read.time_travel import travel
from tests.goldens import golden_table
from tests.tables import make_table, write


class StepClock:
    """A clock on which a second passes between two readings."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_millis(self) -> int:
        self.now += 1000
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Three snapshots, a second column since the third."""
    make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ("k",))
    table = TableContext.open(str(tmp_path / "t"), clock=StepClock())
    write(table, [{"k": 1}])
    write(table, [{"k": 2}])
    fields = (*table.schema.fields, DataField(1, "v", parse_type("STRING")))
    (tmp_path / "t" / "schema" / "schema-1").write_text(
        TableSchema(1, fields, 1, (), ("k",), table.schema.options, None, 0).to_json()
    )
    table = TableContext.open(str(tmp_path / "t"), clock=table.clock)
    write(table, [{"k": 3, "v": "x"}])
    return table


def test_a_snapshot_is_read_with_its_own_schema(context: TableContext) -> None:
    now, latest = travel(context)
    assert latest is not None and latest.id == 3 and now.schema.field_names == ("k", "v")
    then, second = travel(context, snapshot_id=2)
    assert second is not None and second.id == 2 and then.schema.field_names == ("k",)
    plan = plan_scan(then, second)
    assert [k for s in plan.splits for b in read_split(then, s, ["k"]) for k in b["k"].to_pylist()] == [1, 2]


def test_snapshots_that_are_not_there(context: TableContext) -> None:
    with pytest.raises(NotFound, match="no snapshot 4") as caught:
        travel(context, snapshot_id=4)
    assert "1 to 3" in caught.value.why
    Path(context.layout.snapshot(1)).unlink()
    with pytest.raises(NotFound) as caught:
        travel(context, snapshot_id=1)
    assert "expired" in caught.value.why and "2 to 3" in caught.value.why


def test_the_newest_snapshot_as_of_a_time(context: TableContext) -> None:
    times = {i: context.snapshots.get(i).time_millis for i in (1, 2, 3)}
    for moment, expected in ((times[2], 2), (times[3] - 1, 2), (times[3], 3), (times[3] + 10**9, 3)):
        _, snapshot = travel(context, as_of=str(moment))
        assert snapshot is not None and snapshot.id == expected
    with pytest.raises(NotFound) as caught:
        travel(context, as_of="2023-11-14T22:13:20Z")
    assert "the oldest, 1, was committed at 2023-11-14T22:13:2" in caught.value.why


def test_tags(tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-0.9", "tags_and_expire", tmp_path)))
    _, snapshot = travel(context, tag="t5")
    assert snapshot is not None and snapshot.id == 6
    with pytest.raises(NotFound) as caught:
        travel(context, tag="t6")
    assert "t5" in caught.value.why


def test_one_way_to_travel_at_a_time(context: TableContext) -> None:
    with pytest.raises(UsageError, match="choose one"):
        travel(context, snapshot_id=1, tag="a")


def test_a_table_without_snapshots(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ("k",))
    assert travel(context) == (context, None)
    for choice in ({"snapshot_id": 1}, {"as_of": "2024-01-01"}, {"tag": "a"}):
        with pytest.raises(NotFound):
            travel(context, **choice)
