"""Arrow types of columns, both ways."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field, arrow_type, type_from_arrow
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type, type_to_sql
from paimon_cli.errors import NotSupported


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOLEAN", pa.bool_()),
        ("TINYINT", pa.int8()),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("CHAR(3)", pa.string()),
        ("BYTES", pa.binary()),
        ("DATE", pa.date32()),
        ("TIME(9)", pa.time32("ms")),
        ("TIMESTAMP(0)", pa.timestamp("ms")),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP(7)", pa.timestamp("ns")),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.timestamp("us", "UTC")),
    ],
)
def test_atomic_types(text: str, expected: pa.DataType) -> None:
    assert arrow_type(parse_type(text)) == expected


def test_nested_types() -> None:
    t = parse_type({"type": "ROW", "fields": [{"name": "a", "type": {"type": "ARRAY", "element": "INT NOT NULL"}}]})
    element = pa.field("element", pa.int32(), False)
    assert arrow_type(t) == pa.struct([pa.field("a", pa.list_(element))])
    multiset = arrow_type(parse_type({"type": "MULTISET", "element": "STRING"}))
    assert multiset == pa.map_(pa.string(), pa.field("value", pa.int32(), False))


def test_field_keeps_name_and_nullability() -> None:
    assert arrow_field(DataField(3, "k", parse_type("INT NOT NULL"))) == pa.field("k", pa.int32(), False)


def test_newer_types_are_refused_by_name() -> None:
    with pytest.raises(NotSupported, match="BLOB"):
        arrow_type(parse_type("BLOB"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (pa.uint8(), "SMALLINT"),
        (pa.uint16(), "INT"),
        (pa.uint32(), "BIGINT"),
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.float16(), "FLOAT"),
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.large_binary(), "BYTES"),
        (pa.binary(4), "BINARY(4)"),
        (pa.date64(), "DATE"),
        (pa.time32("s"), "TIME(0)"),
        (pa.time64("us"), "TIME(3)"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("ns", "Europe/Paris"), "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        (pa.decimal256(30, 4), "DECIMAL(30, 4)"),
        (pa.large_list(pa.field("item", pa.int8(), False)), "ARRAY<TINYINT NOT NULL>"),
        (pa.map_(pa.string(), pa.float64()), "MAP<STRING NOT NULL, DOUBLE>"),
        (pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.bool_())]))]), "ROW<`a` INT, `b` ROW<`c` BOOLEAN>>"),
    ],
)
def test_types_of_files(given: pa.DataType, text: str) -> None:
    assert type_to_sql(type_from_arrow(given)) == text
    assert type_to_sql(type_from_arrow(given, nullable=False)) == text + " NOT NULL"


@pytest.mark.parametrize(
    "given", [pa.null(), pa.duration("s"), pa.month_day_nano_interval(), pa.decimal256(50, 2), pa.decimal128(5, -1)]
)
def test_types_without_counterpart(given: pa.DataType) -> None:
    with pytest.raises(NotSupported, match=re.escape(str(given))):
        type_from_arrow(given)


def test_own_types_come_back() -> None:
    for text in (
        "BOOLEAN",
        "BIGINT",
        "STRING",
        "DECIMAL(38, 10)",
        "DATE",
        "TIME(3)",
        "TIMESTAMP(6)",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    ):
        assert type_from_arrow(arrow_type(parse_type(text))) == parse_type(text)
