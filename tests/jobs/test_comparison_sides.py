"""Which columns two sides share, by which names and types, and which rows each side gives."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.datatypes.data_type import ArrayType, DataField, DataType, DecimalType, MapType, PlainType, RowType, StringType
from paimon_cli.errors import UsageError
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs import comparison_sides
from paimon_cli.jobs.comparison_sides import FileSide, SharedColumns, Side, TableSide, nullable_inside
from paimon_cli.jobs.row_scan import ReadRequest
from paimon_cli.requests.conditions import BoundSql
from tests.tables import make_table, write

SOME_INTS = ArrayType(PlainType("INT", nullable=False))
INT, LONG, DOUBLE = PlainType("INT"), PlainType("BIGINT"), PlainType("DOUBLE")
TEXT = StringType("VARCHAR", 9)


@dataclass(frozen=True)
class Columns:
    """A side of which only the columns count."""

    name: str
    fields: Sequence[DataField]
    key: Sequence[str] = ()

    def batches(self, fields: Sequence[DataField], where: BoundSql | None) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


def side(name: str, key: str = "", **columns: int | tuple[int, DataType]) -> Side:
    given = [one if isinstance(one, tuple) else (one, INT) for one in columns.values()]
    fields = [DataField(id, name, type) for name, (id, type) in zip(columns, given, strict=True)]
    return Columns(name, fields, tuple(key))


@pytest.fixture
def shared_until(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field ids up to 9 are those of one table, later ones those of two branches."""
    monkeypatch.setattr(comparison_sides, "_last_shared_id", lambda here, there: 9)


RENAMED = side("here", a=0, b=1, c=2, d=3, e=10, f=11), side("there", b=0, x=1, c=8, e=11, f=10, g=12)


@pytest.mark.usefixtures("shared_until")
def test_columns_are_the_same_by_their_ids_up_to_the_branch_and_by_their_names_then() -> None:
    """`a` is `b` there, `b` is `x`; `c` was dropped and added again before; `e` and `f` came to both later."""
    shared = SharedColumns.of(*RENAMED)
    assert shared.names_here == {"b": "a", "x": "b", "e": "e", "f": "f"}
    assert shared.names_there == {"a": "b", "b": "x", "e": "e", "f": "f"} and shared.renamed == {"a": "b", "b": "x"}
    assert (shared.only_here, shared.only_there) == (["c", "d"], ["c", "g"])
    mixed = SharedColumns.of(side("here", a=3, b=10), side("there", a=11, b=4))
    assert mixed.names_here == {}, "of a name that one of them had before the branch, the other has another column"


@pytest.mark.usefixtures("shared_until")
def test_a_name_is_that_of_the_second_side_before_it_is_that_of_the_first() -> None:
    shared = SharedColumns.of(*RENAMED)
    assert [shared.named(name) for name in "abxef"] == ["b", "b", "x", "e", "f"]
    for name, message in (("c", "column 'c' of here is another one"), ("d", "there has no column"), ("g", "here has no column")):
        with pytest.raises(UsageError, match=message):
            shared.named(name)
    with pytest.raises(UsageError, match="here has no column 'q'"):
        shared.named("q")
    swapped = SharedColumns.of(side("here", a=0), side("there", b=0, a=7))
    with pytest.raises(UsageError, match="column 'a' of here is another one"):
        swapped.named("a")


@pytest.mark.usefixtures("shared_until")
def test_the_columns_of_a_comparison() -> None:
    shared = SharedColumns.of(*RENAMED)
    assert [field.name for field in shared.fields((), ())] == ["b", "x", "e", "f"]
    assert [field.name for field in shared.fields(("f", "x"), ())] == ["f", "x", "b", "e"]
    assert [field.name for field in shared.fields(("f",), ("f", "b"))] == ["f", "b"]
    assert [field.name for field in shared.fields(("f",), ("f",))] == ["f"]
    with pytest.raises(UsageError, match="here and there have no column in common"):
        SharedColumns.of(side("here", a=0), side("there", a=1)).fields((), ())


@pytest.mark.usefixtures("shared_until")
def test_types_are_those_of_the_same_column() -> None:
    wide = SharedColumns.of(side("here", a=(0, LONG), b=(1, INT)), side("there", b=(0, INT), a=(1, DOUBLE)))
    assert [(field.name, field.type) for field in wide.fields((), ())] == [("b", LONG), ("a", DOUBLE)]
    row = RowType(fields=(DataField(0, "n", INT),))
    nested = SharedColumns.of(side("here", a=0, b=(1, row)), side("there", a=0, b=(1, row)))
    with pytest.raises(UsageError, match="column 'b' cannot be a key"):
        nested.fields(("a", "b"), ())
    assert [field.name for field in nested.fields(("a",), ())] == ["a", "b"]


@pytest.mark.usefixtures("shared_until")
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        *(("b = 1", "reads column 'b', .*: it is .a. on the other side"), ("x = 1", "'x', .*: it is .b. on")),
        *(("c = 1", "'c', .*: it was dropped"), ("e = 1 AND c = 2", "'c', .*: it was dropped"), ("e = 1 OR f = 2", "")),
    ],
)
def test_a_condition_reads_the_same_columns_on_both_sides(condition: str, message: str) -> None:
    shared = SharedColumns.of(*RENAMED)
    shared.check_condition(None)
    if message:
        with pytest.raises(UsageError, match=message):
            shared.check_condition(BoundSql(condition))
    else:
        shared.check_condition(BoundSql(condition))


@pytest.mark.usefixtures("shared_until")
def test_the_key_of_either_side() -> None:
    ours, theirs = {"a": 0, "b": 1, "c": 2}, {"b": 0, "x": 1, "c": 2}
    pairs = [("ab", "bx"), ("ab", "xb"), ("ab", ""), ("", "bx"), ("", "")]
    found = [SharedColumns.of(side("here", own, **ours), side("there", other, **theirs)).primary_key() for own, other in pairs]
    assert found == [("b", "x"), ("b", "x"), ("b", "x"), ("b", "x"), ()]
    for own, other in (("ab", "xc"), ("ab", "b"), ("a", "x"), ("a", "bx")):
        with pytest.raises(UsageError, match="different primary keys: "):
            SharedColumns.of(side("here", own, **ours), side("there", other, **theirs)).primary_key()
    for own, other, missing in (("ad", "", "d"), ("", "by", "y")):
        with pytest.raises(UsageError, match=f"column '{missing}' of the primary key is not on both sides"):
            SharedColumns.of(side("here", own, **ours, d=3), side("there", other, **theirs, y=4)).primary_key()


@pytest.mark.parametrize(
    ("here", "there", "common"),
    [
        *((INT, LONG, LONG), (LONG, INT, LONG), (INT, DOUBLE, DOUBLE), (LONG, DOUBLE, None), (INT, TEXT, None), (INT, INT, INT)),
        *((PlainType("FLOAT"), DOUBLE, DOUBLE), (DOUBLE, PlainType("SMALLINT"), DOUBLE), (PlainType("FLOAT"), INT, None)),
        *((DecimalType(5, 2), DecimalType(9, 4), DecimalType(9, 4)), (DecimalType(9, 4), DecimalType(9, 2), None)),
        *((TEXT, StringType("VARCHAR", 3), TEXT), (StringType("CHAR", 3), TEXT, TEXT)),
        *((ArrayType(INT), SOME_INTS, ArrayType(INT)), (ArrayType(INT), ArrayType(LONG), None)),
        *((ArrayType(INT), INT, None), (INT, ArrayType(INT), None)),
        (
            MapType(TEXT, SOME_INTS),
            MapType(TEXT, ArrayType(INT)),
            MapType(TEXT, SOME_INTS),
        ),
    ],
)
def test_the_type_that_holds_both(here: DataType, there: DataType, common: DataType | None) -> None:
    for one, other in ((here, there), (here.with_nullable(False), there.with_nullable(False))):
        shared = SharedColumns.of(side("here", a=(0, one)), side("there", a=(0, other)))
        if common is None:
            with pytest.raises(UsageError, match=r"column 'a' is .* on one side and .* on the other"):
                shared.fields((), ())
        else:
            assert shared.fields((), ()) == [DataField(0, "a", common)]


def test_all_that_is_inside_may_be_null() -> None:
    def of(nullable: bool) -> pa.DataType:
        number = pa.field("n", pa.int32(), nullable)
        inner = pa.list_(pa.field("element", pa.struct([number]), nullable))
        return pa.struct([pa.field("m", pa.map_(pa.string(), pa.field("value", inner, nullable)), nullable), number])

    assert not of(False).equals(of(True)) and nullable_inside(of(False)).equals(nullable_inside(of(True)))
    for one, other in (
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.int32(), pa.int32())),
    ):
        assert not nullable_inside(one).equals(nullable_inside(other))


@pytest.fixture
def table_side(tmp_path: Path) -> TableSide:
    columns = {"id": "INT NOT NULL", "n": "INT", "day": "DATE", "p": "DECIMAL(5, 2)"}
    table = make_table(tmp_path / "t", columns, ["id"])
    write(table, [{"id": id, "n": 10 * id, "day": "2026-01-01", "p": "1.50"} for id in range(4)])
    write(table, [{"id": 9, "n": 90}])
    return TableSide("t", table, ReadRequest(snapshot=1))


def test_the_rows_of_a_table_at_its_version(table_side: TableSide) -> None:
    fields = [DataField(0, "p", DecimalType(12, 4)), DataField(0, "n", LONG), DataField(0, "day", PlainType("DATE"))]
    where = BoundSql("id >= :least AND id < 3", {"least": 1})
    found = pa.Table.from_batches(table_side.batches(fields, where))
    assert found.schema.types == [pa.decimal128(12, 4), pa.int64(), pa.date32()]
    day = datetime.date(2026, 1, 1)
    assert sorted(found.to_pylist(), key=lambda row: row["n"]) == [{"p": Decimal("1.5"), "n": n, "day": day} for n in (10, 20)]
    assert sum(batch.num_rows for batch in table_side.batches(fields, None)) == 4
    names = pa.Table.from_batches(table_side.batches([DataField(0, "n", INT)], None)).schema
    assert names.names == ["n"] and names.types == [pa.int32()]


def test_the_rows_of_files(tmp_path: Path, table_side: TableSide) -> None:
    """Columns of the condition are read although they are not compared; values may be missing that the table must have."""
    for part in range(3):
        rows = {"day": [None], "n": [part], "more": ["x"], "id": [part if part else None], "p": [Decimal("1.50")]}
        pq.write_table(pa.table(rows), tmp_path / f"{part}.parquet")
    files = FileSide("files", FileRows((str(tmp_path / "*.parquet"),)), table_side.fields)
    fields = [DataField(0, "n", INT), DataField(0, "id", INT)]
    found = pa.Table.from_batches(files.batches(fields, None))
    assert found.schema.names == ["n", "id"]
    assert sorted(found.to_pylist(), key=lambda row: row["n"]) == [{"n": n, "id": n or None} for n in range(3)]
    where = BoundSql("p > 1 AND n <> :other AND day IS NULL", {"other": 1})
    assert sorted(pa.Table.from_batches(files.batches(fields[:1], where))["n"].to_pylist()) == [0, 2]
