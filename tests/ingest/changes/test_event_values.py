"""Values of events in the types of columns, in every form in which they are written."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.data_type import BIGINT, BOOLEAN, BYTES, TINYINT, DataType
from paimon_cli.datatypes.field_types import parse_sql_type, type_to_sql
from paimon_cli.ingest.changes.debezium_types import declared_columns, form_of
from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS
from paimon_cli.ingest.changes.event_lines import lines_of
from paimon_cli.ingest.changes.event_values import UNDECLARED, as_column
from paimon_cli.ingest.changes.mysql_types import form_of_mysql
from paimon_cli.ingest.faults import WrongType
from tests.event_streams import base64_number, debezium, flat, maxwell

DECIMAL = "org.apache.kafka.connect.data.Decimal"
UTC = timezone.utc


def point(x: float, y: float) -> str:
    wkb = base64.b64encode(struct.pack("<BIdd", 1, 1, x, y)).decode()
    return f'{{"wkb":"{wkb}","srid":4326}}'


DEBEZIUM = [
    ("int8", "", {}, "TINYINT", [1, -128], [1, -128]),
    ("int16", "", {}, "SMALLINT", [7], [7]),
    ("int64", "", {}, "BIGINT", [1 << 62], [1 << 62]),
    ("float32", "", {}, "FLOAT", [1.5, 2], [1.5, 2.0]),
    ("float", "", {}, "FLOAT", [0.1], [pytest.approx(0.1)]),
    ("float64", "", {}, "DOUBLE", [0.1], [0.1]),
    ("boolean", "", {}, "BOOLEAN", [True, None], [True, None]),
    ("string", "", {}, "STRING", ["é", ""], ["é", ""]),
    ("string", "io.debezium.data.Json", {}, "STRING", ['{"a":1}'], ['{"a":1}']),
    ("string", "io.debezium.data.Enum", {"allowed": "a,b"}, "STRING", ["a"], ["a"]),
    ("bytes", "", {}, "BYTES", ["AP8=", "", None], [b"\x00\xff", b"", None]),
    ("bytes", "io.debezium.data.Bits", {"length": "12"}, "BINARY(2)", ["ZAI="], [b"\x02d"]),
    ("int32", "io.debezium.time.Date", {}, "DATE", [19000, -1], [date(2022, 1, 8), date(1969, 12, 31)]),
    ("int64", "io.debezium.time.Timestamp", {}, "TIMESTAMP(3)", [1500], [datetime(1970, 1, 1, 0, 0, 1, 500000)]),
    ("int64", "io.debezium.time.MicroTimestamp", {}, "TIMESTAMP(6)", [-1], [datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    (
        "string",
        "io.debezium.time.ZonedTimestamp",
        {},
        "TIMESTAMP(6)",
        ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456789+02:00"],
        [datetime(2024, 1, 2, 3, 4, 5), datetime(2024, 1, 2, 1, 4, 5, 123456)],
    ),
    ("int64", "io.debezium.time.MicroTime", {}, "TIME(3)", [3_600_000_000 + 1500], [time(1, 0, 0, 1000)]),
    ("int64", "io.debezium.time.NanoTimestamp", {}, "BIGINT", [5], [5]),
    ("int32", "io.debezium.time.Time", {}, "INT", [5], [5]),
    ("int32", "org.apache.kafka.connect.data.Date", {}, "INT", [5], [5]),
    ("int32", "io.debezium.time.Year", {}, "INT", [2024], [2024]),
    (
        "bytes",
        DECIMAL,
        {"scale": "2", "connect.decimal.precision": "10"},
        "DECIMAL(10, 2)",
        [base64_number(n) for n in (0, 1, -1, 127, 128, -128, -129, 9_999_999_999)] + [None],
        [Decimal(n).scaleb(-2) for n in (0, 1, -1, 127, 128, -128, -129, 9_999_999_999)] + [None],
    ),
    ("bytes", DECIMAL, {"scale": "2", "connect.decimal.precision": "10"}, "DECIMAL(10, 2)", ["12.50"], [Decimal("12.50")]),
    ("bytes", DECIMAL, {"scale": "2", "connect.decimal.precision": "10"}, "DECIMAL(10, 2)", [1.5], [Decimal("1.50")]),
    ("bytes", DECIMAL, {"scale": "0"}, "DECIMAL(20, 0)", [base64_number(2**64 - 1)], [Decimal(2**64 - 1)]),
    ("bytes", DECIMAL, {"scale": "3"}, "DECIMAL(38, 3)", [base64_number(-1)], [Decimal("-0.001")]),
    (
        "bytes",
        DECIMAL,
        {"scale": "2", "connect.decimal.precision": "65"},
        "STRING",
        [base64_number(10**60 + 7)],
        ["1" + "0" * 58 + ".07"],
    ),
    (
        "struct",
        "io.debezium.data.geometry.Point",
        {},
        "STRING",
        [point(1, 2.5)],
        ['{"coordinates":[1,2.5],"type":"Point","srid":4326}'],
    ),
]


@pytest.mark.parametrize("kind, name, parameters, column, raw, wanted", DEBEZIUM, ids=range(len(DEBEZIUM)))
def test_debezium(kind: str, name: str, parameters: Any, column: str, raw: list[Any], wanted: list[Any]) -> None:
    form = form_of({"type": kind, "name": name or None, "parameters": parameters})
    assert type_to_sql(form.type) == column
    cells, bad = as_column(pa.array(raw), form, form.type)
    assert not bad and cells.to_pylist() == wanted


NAMES = [f"m{number}" for number in range(64)]
MEMBERS = [f"'{name}'" for name in NAMES]
MYSQL_POINT = (struct.pack("<I", 4326) + struct.pack("<BIdd", 1, 1, 1.0, 2.5)).decode("latin-1")
MYSQL = [
    ("int", "INT", ["1"], [1]),
    ("int(11) unsigned", "BIGINT", ["4294967295"], [4294967295]),
    ("bigint unsigned", "DECIMAL(20, 0)", ["18446744073709551615"], [Decimal(18446744073709551615)]),
    ("tinyint(1)", "BOOLEAN", ["1", "0", None], [True, False, None]),
    ("tinyint", "TINYINT", ["-5"], [-5]),
    ("tinyint unsigned", "SMALLINT", ["255"], [255]),
    ("year", "INT", ["2024"], [2024]),
    ("bit(1)", "BOOLEAN", ["1"], [True]),
    ("double", "DOUBLE", ["1e3"], [1000.0]),
    ("decimal(10,2)", "DECIMAL(10, 2)", ["12.50"], [Decimal("12.50")]),
    ("decimal(65,2)", "STRING", ["12.50"], ["12.50"]),
    ("varchar(20)", "VARCHAR(20)", ["ä"], ["ä"]),
    ("text", "STRING", ["x"], ["x"]),
    ("enum('a','it''s )','c')", "STRING", ["2", "0", "c", None], ["it's )", "", "c", None]),
    ("set('a','b')", "ARRAY<STRING>", ["a,b", "", None], [["a", "b"], [], None]),
    ("set('a','b','c')", "ARRAY<STRING>", ["5", "0", "c", None], [["a", "c"], [], ["c"], None]),
    (f"set({', '.join(MEMBERS)})", "ARRAY<STRING>", ["9223372036854775809", str(2**64 - 1)], [["m0", "m63"], NAMES]),
    ("bit(9)", "BINARY(2)", ["258", None], [b"\x01\x02", None]),
    ("bit(64)", "BINARY(8)", [str(2**64 - 1), "1"], [b"\xff" * 8, b"\0" * 7 + b"\1"]),
    ("date", "DATE", ["2024-02-29"], [date(2024, 2, 29)]),
    ("time", "TIME(3)", ["10:11:12"], [time(10, 11, 12)]),
    ("datetime", "TIMESTAMP(0)", ["2024-02-29 10:11:12"], [datetime(2024, 2, 29, 10, 11, 12)]),
    ("timestamp(6)", "TIMESTAMP(6)", ["2024-02-29 10:11:12.123456"], [datetime(2024, 2, 29, 10, 11, 12, 123456)]),
    ("blob", "BYTES", ["\x00ÿ"], [b"\x00\xff"]),
    ("json", "STRING", ['{"a": 1}'], ['{"a": 1}']),
    ("point", "STRING", [MYSQL_POINT, None], ['{"coordinates":[1,2.5],"type":"Point","srid":4326}', None]),
    ("made up (", "STRING", ["x"], ["x"]),
]


@pytest.mark.parametrize("declared, column, raw, wanted", MYSQL, ids=[one[0] for one in MYSQL])
def test_mysql(declared: str, column: str, raw: list[Any], wanted: list[Any]) -> None:
    form = form_of_mysql(declared)
    assert type_to_sql(form.type) == column
    cells, bad = as_column(pa.array(raw), form, form.type)
    assert not bad and cells.to_pylist() == wanted


ONE_EVENT = {
    name: json.dumps(envelope("t", "c", None, {"id": 1, "d": 19_000}))
    for name, envelope in (("debezium", debezium), ("debezium-flat", flat), ("maxwell", maxwell))
}
UNDECLARED_VALUES = [
    ([1, 2], "STRING", ["1", "2"]),
    ([1.5, 1e10], "STRING", ["1.5", "1.0E10"]),
    ([True], "STRING", ["true"]),
    ([1], "BIGINT", [1]),
    (["7"], "INT", [7]),
    ([1], "BOOLEAN", [True]),
    ([0.1], "DECIMAL(10, 2)", [Decimal("0.10")]),
    (["2024-01-02 03:04:05"], "TIMESTAMP(3)", [datetime(2024, 1, 2, 3, 4, 5)]),
    (["2024-01-02T03:04:05Z"], "TIMESTAMP_LTZ(3)", [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)]),
    (["AP8="], "BYTES", [b"\x00\xff"]),
    (['["a",null]', None], "ARRAY<STRING>", [["a", None], None]),
    (['{"a":1}'], "MAP<STRING, INT>", [[("a", 1)]]),
    (['{"a":[1.5]}', "{}"], "ROW<a ARRAY<DECIMAL(3, 1)>>", [{"a": [Decimal("1.5")]}, {"a": None}]),
    ([2.0], "INT", [2]),
]


@pytest.mark.parametrize("raw, column, wanted", UNDECLARED_VALUES, ids=range(len(UNDECLARED_VALUES)))
def test_without_a_schema_the_column_says_what_a_value_means(raw: list[Any], column: str, wanted: list[Any]) -> None:
    cells, bad = as_column(pa.array(raw), UNDECLARED, parse_sql_type(column))
    assert not bad and cells.to_pylist() == wanted


@pytest.mark.parametrize(
    "raw, column, why",
    [
        ("oops", "ARRAY<STRING>", "is written as JSON"),
        ("", "MAP<STRING, INT>", "it is not JSON"),
        ("[1]", "ROW<a INT>", "unknown fields"),
        (1e18, "BIGINT", "write all its digits"),
    ],
)
def test_without_a_schema_what_does_not_fit_is_said(raw: Any, column: str, why: str) -> None:
    cells, [bad] = as_column(pa.array([raw, None]), UNDECLARED, parse_sql_type(column))
    assert why in bad.why and cells.null_count == 2


def test_a_list_of_a_schema_fills_a_list() -> None:
    cells, bad = as_column(pa.array(["[1,2]", "x"]), form_of({"type": "array"}), parse_sql_type("ARRAY<INT>"))
    assert cells.to_pylist() == [[1, 2], None] and [cell.row for cell in bad] == [1]


@pytest.mark.parametrize("name, days", [("debezium", True), ("debezium-flat", True), ("maxwell", False)])
def test_only_debezium_counts_days(name: str, days: bool) -> None:
    [events] = EventDecoder(EVENT_FORMATS[name]).decode(lines_of(ONE_EVENT[name].encode(), "s", 0)).events
    form = events.form("d")
    if days:
        assert as_column(pa.array([19_000]), form, parse_sql_type("DATE"))[0].to_pylist() == [date(2022, 1, 8)]
    else:
        with pytest.raises(WrongType):
            as_column(pa.array([19_000]), form, parse_sql_type("DATE"))
    with pytest.raises(WrongType):
        as_column(pa.array([19_000]), form, parse_sql_type("TIMESTAMP(3)"))


@pytest.mark.parametrize(
    "kind, name, raw, column, wanted",
    [
        ("int64", "io.debezium.time.NanoTimestamp", 1, "TIMESTAMP(9)", "1970-01-01 00:00:00.000000001"),
        ("int64", "org.apache.kafka.connect.data.Timestamp", 1000, "TIMESTAMP(3)", "1970-01-01 00:00:01"),
        ("int32", "io.debezium.time.Date", 5, "INT", "5"),
        ("int32", "", 5, "STRING", "5"),
        ("int16", "", 5, "BIGINT", "5"),
        ("int32", "", 5, "DECIMAL(12, 2)", "5.00"),
        ("boolean", "", True, "INT", "1"),
        ("string", "io.debezium.time.ZonedTimestamp", "2024-01-02T03:04:05Z", "TIMESTAMP_LTZ(6)", "2024-01-02 03:04:05Z"),
    ],
)
def test_the_owner_of_a_table_may_choose_other_types(kind: str, name: str, raw: Any, column: str, wanted: str) -> None:
    cells, bad = as_column(pa.array([raw]), form_of({"type": kind, "name": name or None}), parse_sql_type(column))
    assert not bad and str(cells[0]).startswith(wanted.removesuffix("Z"))


@pytest.mark.parametrize(
    "kind, name, raw, column",
    [
        ("bytes", DECIMAL, "!", None),
        ("bytes", DECIMAL, base64.b64encode(b"x" * 17).decode(), None),
        ("bytes", DECIMAL, base64.b64encode(b"\x7f" * 16).decode(), None),
        ("bytes", "", "abc", None),
        ("int32", "io.debezium.time.Date", 1 << 40, None),
        ("int64", "io.debezium.time.MicroTime", -1, None),
        ("string", "io.debezium.time.ZonedTimestamp", "soon", None),
        ("int64", "", 1 << 40, "INT"),
        ("bytes", "", 1500, None),
        ("bytes", DECIMAL, 1e300, None),
        ("string", "io.debezium.time.ZonedTimestamp", 5, None),
        ("string", "io.debezium.time.ZonedTimestamp", True, "STRING"),
        ("struct", "io.debezium.data.geometry.Geometry", '{"wkb":"AQ=="}', None),
        ("struct", "io.debezium.data.geometry.Geometry", "[]", None),
        ("struct", "io.debezium.data.geometry.Geometry", '{"wkb":""}', None),
        ("struct", "io.debezium.data.geometry.Geometry", '{"wkb":"AQAAABA="}', None),
        ("struct", "io.debezium.data.geometry.Geometry", point(math.inf, 1), None),
    ],
)
def test_a_value_that_does_not_fit_is_named(kind: str, name: str, raw: Any, column: str | None) -> None:
    form = form_of({"type": kind, "name": name or None, "parameters": {"scale": "0"}})
    target: DataType = form.type if column is None else parse_sql_type(column)
    cells, bad = as_column(pa.array([raw, None]), form, target)
    assert [cell.row for cell in bad] == [0] and cells.null_count == 2


def wkb(kind: int, *parts: Any, order: str = "<", extra: int = 0, srid: bytes = b"") -> bytes:
    """Well-known binary: `parts` are numbers of a point, else points, rings or geometries, after their number."""
    head = struct.pack(f"{order}BI", order == "<", kind | extra) + srid
    if kind % 1000 == 1:
        return head + struct.pack(f"{order}{len(parts)}d", *parts)
    text = head + struct.pack(f"{order}I", len(parts))
    for part in parts:
        if isinstance(part, bytes):
            text += part
        elif isinstance(part[0], tuple):
            text += struct.pack(f"{order}I", len(part)) + b"".join(struct.pack(f"{order}{len(one)}d", *one) for one in part)
        else:
            text += struct.pack(f"{order}{len(part)}d", *part)
    return text


SQUARE = [(0, 0), (0, 2), (2, 2), (0, 0)]
GEOMETRIES: list[tuple[bytes, str, Any]] = [
    (wkb(2, (1, 2), (3, 4.5)), "LineString", [[1, 2], [3, 4.5]]),
    (wkb(3, SQUARE, [(1, 1), (1, 1.5), (1, 1)], order=">"), "Polygon", [[*map(list, SQUARE)], [[1, 1], [1, 1.5], [1, 1]]]),
    (wkb(4, wkb(1, 1, 2), wkb(1, 3, 4, order=">"), wkb(1, 5, 6)), "MultiPoint", [[1, 2], [3, 4], [5, 6]]),
    (wkb(5, wkb(2, (1, 2), (3, 4)), wkb(2, (5, 6), (7, 8))), "MultiLineString", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
    (wkb(6, wkb(3, SQUARE), wkb(3, SQUARE)), "MultiPolygon", [[[*map(list, SQUARE)]]] * 2),
    (wkb(4, wkb(1, 1, 2, 3, extra=0x80000000), wkb(1001, 4, 5, 6), extra=0x80000000), "MultiPoint", [[1, 2, 3], [4, 5, 6]]),
    (wkb(2, (1, 2), (3, 4), extra=0x20000000, srid=struct.pack("<I", 4326)), "LineString", [[1, 2], [3, 4]]),
]


@pytest.mark.parametrize("binary, kind, coordinates", GEOMETRIES, ids=range(len(GEOMETRIES)))
def test_every_part_of_a_geometry_has_its_own_place(binary: bytes, kind: str, coordinates: Any) -> None:
    """Alone, and after another geometry in a collection."""
    form = form_of({"type": "struct", "name": "io.debezium.data.geometry.Geometry"})
    texts = [json.dumps({"wkb": base64.b64encode(one).decode()}) for one in (binary, wkb(7, binary, wkb(1, 8, 9), binary))]
    cells, bad = as_column(pa.array(texts), form, form.type)
    alone, within = map(json.loads, cells.to_pylist())
    wanted = {"coordinates": coordinates, "type": kind}
    assert not bad and alone == {**wanted, "srid": 0}
    assert within["geometries"] == [wanted, {"coordinates": [8, 9], "type": "Point"}, wanted]


def test_a_point_without_coordinates_is_empty() -> None:
    form = form_of({"type": "struct", "name": "io.debezium.data.geometry.Geometry"})
    cells, bad = as_column(pa.array([point(math.nan, math.nan)]), form, form.type)
    assert not bad and cells.to_pylist() == ['{"coordinates":[],"type":"Point","srid":4326}']


@pytest.mark.parametrize("declared", ["set('a')", "blob", "bit(9)", "datetime(6)"])
@pytest.mark.parametrize("raw", [5, 1.5, True])
def test_a_number_where_mysql_writes_texts_is_named(declared: str, raw: Any) -> None:
    form = form_of_mysql(declared)
    _, (bad,) = as_column(pa.array([raw]), form, form.type)
    assert bad.why == "it is not a text"


@pytest.mark.parametrize("scale", [10**9, -(10**9)])
def test_a_scale_without_end_fills_no_memory(scale: int) -> None:
    form = form_of({"type": "bytes", "name": DECIMAL, "parameters": {"scale": str(scale)}})
    _, (bad,) = as_column(pa.array(["AQ==", None]), form, form.type)
    assert bad.row == 0 and "its scale is" in bad.why


def test_a_type_of_another_kind_is_refused() -> None:
    with pytest.raises(WrongType):
        as_column(pa.array(["seven"]), form_of({"type": "string"}), parse_sql_type("INT"))


@pytest.mark.parametrize("raw", [["2", "-128", None], [2, -128, None]])
def test_a_tinyint_of_one_digit_is_a_number_where_the_column_is_one(raw: list[Any]) -> None:
    form = form_of_mysql("tinyint(1)")
    cells, bad = as_column(pa.array(raw), form, TINYINT)
    assert not bad and cells.to_pylist() == [2, -128, None]
    cells, bad = as_column(pa.array(["1", "2"]), form, BOOLEAN)
    assert cells.to_pylist() == [True, None] and [cell.row for cell in bad] == [1]
    cells, bad = as_column(pa.array([True, False]), form, TINYINT)
    assert not bad and cells.to_pylist() == [1, 0]
    for target in (TINYINT, BIGINT):
        cells, bad = as_column(pa.array(["true", "FALSE", "2", None, "yes", "0"]), form, target)
        assert cells.to_pylist() == [1, 0, 2, None, None, 0] and [cell.row for cell in bad] == [4]


@pytest.mark.parametrize("length", ["0", "-50", "99999999999999999999"])
def test_bits_of_no_possible_length_are_bytes(length: str) -> None:
    form = form_of({"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": length}})
    assert (form.type, form.form) == (BYTES, "bits")


@pytest.mark.parametrize("name, key", [(DECIMAL, "scale"), ("io.debezium.data.Bits", "length")])
def test_an_infinite_parameter_is_no_schema(name: str, key: str) -> None:
    field = f'{{"field":"a","type":"bytes","name":"{name}","parameters":{{"{key}":1e999}}}}'
    assert declared_columns(f'{{"fields":[{field}]}}'.encode()) is None
