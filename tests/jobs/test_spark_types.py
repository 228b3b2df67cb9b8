"""Columns on their way through Spark are the same bytes, whatever their type."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import DataType, parse_type
from paimon_cli.jobs.spark_types import carrier_schema, carrier_type, from_carrier, spark_schema, to_carrier

TIME, STAMP = datetime.time(23, 59, 59, 999000), datetime.datetime(1, 1, 1, 0, 0, 0, 1000)
NESTED_ROW = """{"type": "ROW", "fields": [
    {"id": 90, "name": "a", "type": "TIME(3)"},
    {"id": 91, "name": "b", "type": {"type": "ARRAY", "element": {"type": "ROW", "fields": [
        {"id": 92, "name": "c", "type": "DATE"}, {"id": 93, "name": "d", "type": "INT NOT NULL"}]}}}]}"""
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, None, False],
    "TINYINT": [-128, None, 127],
    "BIGINT": [-(2**63), None, 2**63 - 1],
    "FLOAT": [-0.0, None, 1.5],
    "DECIMAL(38, 10)": [Decimal("-1234567890123456789012345678.0123456789"), None, Decimal(0)],
    "CHAR(3)": ["\U00010000", None, ""],
    "BINARY(2)": [b"\xff\x00", None, b""],
    "DATE": [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)],
    "TIME(3)": [TIME, None, datetime.time()],
    "TIMESTAMP(3)": [STAMP, None, datetime.datetime(9999, 12, 31)],
    "TIMESTAMP(6)": [STAMP, None, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "TIMESTAMP(9)": [datetime.datetime(1970, 1, 1), None, datetime.datetime(2200, 1, 1)],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc), None, None],
    '{"type":"ARRAY","element":"TIME(3) NOT NULL"}': [[TIME, TIME], None, []],
    '{"type":"MAP","key":"STRING","value":"TIMESTAMP(3)"}': [[("a", STAMP), ("b", None)], None, []],
    '{"type":"MULTISET","element":"DATE"}': [[(datetime.date(2024, 2, 29), 2)], None, []],
    NESTED_ROW: [{"a": TIME, "b": [{"c": None, "d": 1}]}, None, {"a": None, "b": None}],
}


def type_of(text: str) -> DataType:
    """Nested types are spelt in JSON, as in schema files."""
    return parse_type(json.loads(text) if text.startswith("{") else text)


@pytest.mark.parametrize("text", VALUES)
def test_a_slice_of_every_type_survives(text: str) -> None:
    t = arrow_type(type_of(text))
    column = pa.array([*VALUES[text], *VALUES[text]], t).slice(1, 4)
    carrier = carrier_schema([t])
    carried = to_carrier([column], carrier)
    back = from_carrier(carried, pa.schema([pa.field("x", t)]))
    assert back.column(0).equals(column)
    assert not any(isinstance(f.dataType, (DateType, TimestampType, TimestampNTZType)) for f in spark_schema(carrier))


def test_a_null_row_with_a_not_null_field_comes_back() -> None:
    """Spark marks the fields of a null row null, which Arrow does not view as a NOT NULL field."""
    t = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    carried = pa.array([{"_0": 1, "_1": "x"}, {"_0": None, "_1": None}, {"_0": 3, "_1": None}], carrier_type(t))
    from_spark = pa.StructArray.from_arrays(carried.flatten(), fields=list(carrier_type(t)), mask=pa.array([False, True, False]))
    batch = pa.RecordBatch.from_arrays([from_spark], schema=carrier_schema([t]))
    back = from_carrier(batch, pa.schema([pa.field("x", t)])).column(0)
    assert back.to_pylist() == [{"a": 1, "b": "x"}, None, {"a": 3, "b": None}]
