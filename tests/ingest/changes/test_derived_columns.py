"""Columns that events do not have themselves."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.datatypes.data_type import BIGINT, STRING, TimestampType
from paimon_cli.errors import BadInput, PaimonError, UsageError
from paimon_cli.ingest.changes.change_rows import UNCHANGED
from paimon_cli.ingest.changes.computed_columns import ComputedColumn
from paimon_cli.ingest.changes.derived_columns import DerivedColumns
from tests.event_streams import TYPES, canal, debezium, flat, maxwell, with_schema, written

MOMENTS = pa.array([datetime(2024, 2, 29, 23, 5, 7, 999_999), None, datetime(1969, 12, 31, 1, 2, 3, 500_000)], pa.timestamp("us"))
SECONDS = TimestampType("TIMESTAMP", precision=6)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x = year(c)", [2024, None, 1969]),
        ("x = second(c)", [7, None, 3]),
        ("x = date_format(c, 'yyyy-MM-dd')", ["2024-02-29", None, "1969-12-31"]),
        ("x=DATE_FORMAT( c , 'yyMMdd''T''HH:mm:ss')", ["240229T23:05:07", None, "691231T01:02:03"]),
        ("x = date_format(c, 'DDD%')", ["060%", None, "365%"]),
        ("x = date_format(c, '''%d o''''clock'' ''''''''HH')", ["%d o'clock '23", None, "%d o'clock '01"]),
    ],
)
def test_functions_of_times(text: str, expected: list[Any]) -> None:
    column = ComputedColumn.of(text)
    assert column.values(MOMENTS, SECONDS)[0].to_pylist() == expected
    texts = pa.array(["2024-02-29 23:05:07.999999", None, "1969-12-31T01:02:03.5"])
    assert column.values(texts, STRING) == (pa.array(expected, column.values(texts, STRING)[0].type), [])
    assert column.values(pa.array(["soon"]), STRING)[1] == [0]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x = upper(c)", ["ÄBCDE", None]),
        ("x = lower(c)", ["äbcde", None]),
        ("x = trim(c)", ["äbcDe", None]),
        ("x = substring(c, 1)", ["bcDe", None]),
        ("x = substring(c, 1, 3)", ["bc", None]),
        ("x = truncate(c, 2)", ["äb", None]),
    ],
)
def test_functions_of_texts(text: str, expected: list[Any]) -> None:
    cells = pa.array([" äbcDe " if "trim" in text else "äbcDe", None])
    assert ComputedColumn.of(text).values(cells, STRING)[0].to_pylist() == expected


def test_numbers_are_truncated_as_java_does() -> None:
    assert ComputedColumn.of("x = truncate(c, 10)").values(pa.array([17, -1, None, 0]), BIGINT)[0].to_pylist() == [
        10,
        -10,
        None,
        0,
    ]


def test_what_is_computed_may_be_null_as_its_source() -> None:
    for text in ("x = truncate(c, 10)", "x = upper(c)", "x = truncate(c, 2)"):
        for source in (BIGINT.with_nullable(False), STRING.with_nullable(False)):
            assert ComputedColumn.of(text).type(source).nullable
    assert ComputedColumn.of("x = truncate(c, 10)").type(BIGINT) == BIGINT
    assert ComputedColumn.of("x = year(c)").values(pa.array([None, "soon", None, "2024-01-01"]), STRING)[1] == [1]


@pytest.mark.parametrize(
    "text",
    [
        "x = truncate(c, -1)",
        "x = truncate(c)",
        "x = substring(c)",
        "x",
        "x = c",
        "x = now()",
        "x = year()",
        "x = year('c')",
        "x = year(c, 1)",
        "x = date_format(c)",
        "x = date_format(c, 'yyyy-LL')",
        "x = date_format(c, 'yyyy-M-dd')",
        "x = date_format(c, 'yyyy''T')",
        "x = truncate(c, 0)",
        "x = substring(c, -1)",
        "x = substring(c, 1, 2, 3)",
        "x = upper(lower(c))",
        "= upper(c)",
    ],
)
def test_what_cannot_be_computed_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        ComputedColumn.of(text)


def test_names_are_those_of_one_column() -> None:
    with pytest.raises(UsageError, match="twice"):
        DerivedColumns.of(["x = upper(c)"], ["x=op_ts"])
    with pytest.raises(UsageError, match="there are op_ts, database"):
        DerivedColumns.of([], ["lsn"])


def test_a_computed_partition_moves_its_rows(tmp_path: Path) -> None:
    """The row of the old partition is deleted when the column changes from which the partition is computed."""
    rows = [{"id": 1, "at": "2024-05-06 07:08:09"}, {"id": 2, "at": "2024-05-07"}, {"id": 1, "at": "2025-01-01"}]
    events = [debezium("a", "c", None, row) for row in rows[:2]] + [debezium("a", "u", rows[0], rows[2])]
    events += [debezium("a", "d", rows[1], None)]
    catalog = Catalog(str(tmp_path), {"partition": "dt"})
    given: dict[str, Any] = {
        "format": "debezium",
        "into": "shop",
        "primary_key": "dt,id",
        "computed": "dt = substring(at, 0, 10)",
    }
    catalog.ingest(written(tmp_path / "1.json", *events), **given)
    table = Table.open(str(tmp_path / "shop.db/a"))
    assert table.scan().to_arrow().to_pylist() == [{"id": "1", "at": "2025-01-01", "dt": "2025-01-01"}]
    assert table.context.schema.partition_keys == ("dt",)


def test_what_is_computed_of_a_value_that_was_left_out(tmp_path: Path) -> None:
    """The row before has it. If that lacks it, too, the row to be deleted from a computed partition cannot be told."""
    rows = [{"id": 1, "note": "abc"}, {"id": 1, "note": UNCHANGED}]
    events = [debezium("a", "c", None, rows[0]), debezium("a", "u", *rows), debezium("a", "d", rows[1], None)]
    computed = ["u = upper(note)", "p = substring(note, 0, 2)"]
    catalog, given = Catalog(str(tmp_path), {"partition": "p"}), {"into": "shop", "primary_key": "p,id"}
    letters = tmp_path / "letters.json"
    file = written(tmp_path / "1.json", *events)
    catalog.ingest(file, format="debezium", computed=computed, on_error=str(letters), **given)  # type: ignore[arg-type]
    table = Table.open(str(tmp_path / "shop.db/a"))
    assert table.scan().to_arrow().to_pylist() == [{"id": "1", "note": "abc", "u": "ABC", "p": "ab"}]
    assert len(letters.read_text().splitlines()) == 1


def test_what_is_computed_from_a_column_that_no_event_has_is_null(tmp_path: Path) -> None:
    """Whatever type the table has given that column, of which the function may not take any."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.a", columns=["id INT NOT NULL", "created BIGINT", "y INT"], primary_key="id")
    events = written(tmp_path / "1.json", debezium("a", "c", None, {"id": 4}))
    catalog.ingest(events, format="debezium", into="shop", primary_key="id", computed="y=year(created)")
    assert table.scan().to_arrow().to_pylist() == [{"id": 4, "created": None, "y": None}]


@pytest.mark.parametrize(
    "name, envelope, millis",
    [("debezium", debezium, 1_700_000_000_000), ("canal", canal, 1), ("maxwell", maxwell, 1000)],
)
def test_facts_about_events(tmp_path: Path, name: Any, envelope: Any, millis: int) -> None:
    event = envelope("a", "c", None, {"id": 1, "name": "x"})
    facts = ["op_ts", "from=database", "its_table=table", "of=schema"]
    given: dict[str, Any] = {"format": name, "into": "shop", "primary_key": "id", "metadata_column": facts}
    done = Catalog(str(tmp_path)).ingest(written(tmp_path / "1.json", event), **given)
    assert "op_ts TIMESTAMP(3) WITH LOCAL TIME ZONE" in str(done[0].columns) or "op_ts TIMESTAMP_LTZ(3)" in str(done[0].columns)
    row = Table.open(str(tmp_path / "shop.db/a")).scan().to_arrow().to_pylist()[0]
    assert round(row["op_ts"].timestamp() * 1000) == millis
    assert (row["from"], row["its_table"], row["of"]) == ("shop", "a", "")


def test_each_row_of_an_event_has_the_facts_of_its_event(tmp_path: Path) -> None:
    first, second = (canal("a", "c", None, {"id": key}) | {"es": millis} for key, millis in ((1, 1000), (3, 5000)))
    first["data"] = [{"id": "1"}, {"id": "2"}]
    given: dict[str, Any] = {"format": "canal", "into": "shop", "primary_key": "id", "metadata_column": "op_ts"}
    Catalog(str(tmp_path)).ingest(written(tmp_path / "1.json", first, second), **given)
    found = Table.open(str(tmp_path / "shop.db/a")).scan().to_arrow().to_pylist()
    assert {row["id"]: row["op_ts"].timestamp() for row in found} == {1: 1, 2: 1, 3: 5}


def test_what_events_lack_is_said(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    file = written(tmp_path / "1.json", flat("a", "c", None, {"id": 1, "day": "soon"}))
    given: dict[str, Any] = {"format": "debezium-flat", "into": "shop", "primary_key": "id"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"metadata_column": "offset"}, "is no topic"),
        ({"computed": "day = upper(id)"}, "of their own"),
        ({"computed": "x = upper(DAY)"}, "they have day"),
        ({"computed": "x = truncate(none, 3)", "metadata_column": "id=op_ts"}, "of their own"),
    ]
    for more, why in wrong:
        with pytest.warns(UserWarning), pytest.raises(UsageError, match=why):
            catalog.ingest(file, **given, **more)
    with pytest.warns(UserWarning), pytest.raises(BadInput, match="'y' cannot be computed from 'day'"):
        catalog.ingest(file, **given, computed="y = year(day)")
    letters = tmp_path / "letters.json"
    catalog.ingest(file, **given, computed="y = year(day)", on_error=str(letters))
    assert len(letters.read_text().splitlines()) == 1


def test_columns_of_another_kind_stop_the_table_with_a_reason(tmp_path: Path) -> None:
    """Of the column of a source that is no time, and of one whose type has become another one."""
    catalog = Catalog(str(tmp_path))
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    first = [with_schema(debezium("a", "c", None, {"id": number, "extra": True})) for number in (1, 2)]
    file = written(tmp_path / "1.json", *first)
    with pytest.warns(UserWarning), pytest.raises(UsageError, match=r"year takes dates.*extra is BOOLEAN"):
        catalog.ingest(file, **given, computed="y = year(extra)")
    second = with_schema(debezium("a", "c", None, {"id": 3, "extra": "x"}), {**TYPES, "extra": TYPES["name"]})
    file = written(tmp_path / "2.json", *first, second)
    with pytest.warns(UserWarning), pytest.raises(PaimonError, match="column 'extra' is BOOLEAN, and events have STRING"):
        catalog.ingest(file, **given, computed="y = upper(extra)")
    found = Table.open(str(tmp_path / "shop.db/a")).scan().to_arrow().to_pylist()
    assert [(row["id"], row["y"]) for row in found] == [(1, "TRUE"), (2, "TRUE")]


def test_a_column_that_no_table_has_is_told(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Not all tables of a source need it; if none has it, the name may be wrong."""
    given: dict[str, Any] = {"format": "debezium", "into": "shop", "primary_key": "id"}
    events = [debezium("a", "c", None, {"id": 1, "day": "2024-05-06"}), debezium("b", "c", None, {"id": 1})]
    file = written(tmp_path / "1.json", *events)
    Catalog(str(tmp_path)).ingest(file, **given, computed=["m = month(day)", "y = year(dya)"])
    assert [str(one.message) for one in recwarn] == ["'y' is null in all tables: none has a column dya to compute it from"]
