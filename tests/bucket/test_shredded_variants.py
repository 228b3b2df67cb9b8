"""Shredded VARIANTs of Parquet files: the same values as plain ones, whatever is in which column."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.bucket.shredded_variants import whole_variants
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.datatypes.variant_text import variant_texts
from paimon_cli.errors import NotSupported


def group(typed: pa.DataType) -> pa.DataType:
    return pa.struct([("value", pa.binary()), ("typed_value", typed)])


def shredded(typed: pa.DataType) -> pa.DataType:
    return pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])


OBJECT = shredded(
    pa.struct([("b", group(pa.int64())), ("a", group(pa.string())), ("o", group(pa.struct([("x", group(pa.int32()))])))])
)
NAMES = variant_of({name: 1 for name in ("z", "b", "a", "o", "x", "rest")})[1]
NOTHING = {"value": None, "typed_value": None}


def typed(value: Any) -> dict[str, Any]:
    return {"value": None, "typed_value": value}


def plain(document: Any) -> dict[str, Any]:
    return {"value": variant_of(document)[0], "typed_value": None}


def row(**fields: Any) -> dict[str, Any]:
    return {"b": NOTHING, "a": NOTHING, "o": NOTHING, **fields}


def texts(rows: list[Any], t: pa.DataType) -> list[Any]:
    found = whole_variants(pa.array(rows, t), VARIANT)
    assert found.type == arrow_type(VARIANT)
    return [None if text is None else json.loads(text) for text in variant_texts(found).to_pylist()]


def test_fields_of_objects() -> None:
    value, metadata = variant_of({"z": [1], "rest": "r"})
    rows = [
        {"metadata": NAMES, "value": None, "typed_value": row(b=typed(70_000), a=typed("y" * 100), o=typed({"x": typed(-3)}))},
        None,
        {"metadata": NAMES, "value": None, "typed_value": row(b=plain(2.5), a=plain(None), o=plain(True))},
        {"metadata": NAMES, "value": None, "typed_value": row()},
        {"metadata": NAMES, "value": variant_of([1, "two"])[0], "typed_value": None},
        {"metadata": NAMES, "value": None, "typed_value": None},
        {"metadata": metadata, "value": value, "typed_value": row()},
        {"metadata": NAMES, "value": None, "typed_value": row(o={"value": None, "typed_value": {"x": NOTHING}})},
    ]
    assert texts(rows, OBJECT) == [
        {"a": "y" * 100, "b": 70_000, "o": {"x": -3}},
        None,
        {"b": 2.5, "a": None, "o": True},
        {},
        [1, "two"],
        None,
        {"rest": "r", "z": [1]},
        {"o": {}},
    ]


def test_fields_that_are_not_shredded_are_put_between_the_others() -> None:
    value, metadata = variant_of({"aa": 1, "z": {"b": 2}})
    rest = {"metadata": metadata, "value": value, "typed_value": row(b=typed(5))}
    found = variant_texts(whole_variants(pa.array([rest] * 3, OBJECT), VARIANT))
    assert found.to_pylist() == ['{"aa":1,"b":5,"z":{"b":2}}'] * 3


@pytest.mark.parametrize(
    ("t", "value", "found"),
    [
        (pa.bool_(), True, True),
        (pa.bool_(), False, False),
        (pa.int8(), -1, -1),
        (pa.int64(), 2**62, 2**62),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), -1e300, -1e300),
        (pa.decimal128(9, 2), Decimal("-12.50"), -12.5),
        (pa.decimal128(18, 0), Decimal(10**17), 10**17),
        (pa.decimal128(38, 38), Decimal("0.1"), 0.1),
        (pa.date32(), date(2024, 2, 29), "2024-02-29"),
        (pa.timestamp("ms"), datetime(2024, 1, 1, 1), "2024-01-01 01:00:00"),
        (pa.timestamp("us", "UTC"), datetime(1960, 1, 1, tzinfo=timezone.utc), "1960-01-01 00:00:00+00:00"),
        (pa.timestamp("ns"), datetime(2024, 1, 1), "2024-01-01 00:00:00"),
        (pa.string(), "é" * 40, "é" * 40),
        (pa.string(), "", ""),
        (pa.binary(), b"\xff", "/w=="),
        (pa.binary(16), bytes(16), "00000000-0000-0000-0000-000000000000"),
        (pa.list_(group(pa.int64())), [typed(1), plain("x"), NOTHING], [1, "x", None]),
        (pa.list_(group(pa.list_(group(pa.string())))), [typed([]), typed([typed("a")])], [[], ["a"]]),
    ],
)
def test_every_type(t: pa.DataType, value: Any, found: Any) -> None:
    rows = [{"metadata": NAMES, "value": None, "typed_value": value}, {"metadata": NAMES, **plain({"z": 1})}, None]
    assert texts(rows, shredded(t)) == [found, {"z": 1}, None]
    assert texts(rows[:1] * 300, shredded(t)) == [found] * 300


def test_many_children() -> None:
    rows = [
        {"metadata": NAMES, "value": None, "typed_value": [typed(number) for number in range(count)]}
        for count in (0, 300, 255, 256)
    ]
    assert texts(rows, shredded(pa.list_(group(pa.int32())))) == [list(range(count)) for count in (0, 300, 255, 256)]


def test_variants_within_other_types() -> None:
    """The parts of a plain VARIANT may be in any order; nothing else changes."""
    swapped = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    value, metadata = variant_of({"k": 1})
    cell = {"metadata": metadata, "value": value}
    t = parse_sql_type("ROW<a INT, b ARRAY<VARIANT>, c MAP<STRING, VARIANT>>")
    stored = pa.struct([("a", pa.int32()), ("b", pa.list_(swapped)), ("c", pa.map_(pa.string(), swapped))])
    rows: list[Any] = [{"a": 1, "b": [cell, None], "c": [("x", cell)]}, None, {"a": 2, "b": [], "c": None}]
    found = whole_variants(pa.array(rows, stored), t)
    assert found.to_pylist() == [
        {"a": 1, "b": [{"value": value, "metadata": metadata}, None], "c": [("x", {"value": value, "metadata": metadata})]},
        None,
        {"a": 2, "b": [], "c": None},
    ]


WRONG = {
    "no metadata": {"metadata": None, "value": None, "typed_value": row(b=typed(1))},
    "a name that the metadata lacks": {"metadata": variant_of({"q": 1})[1], "value": None, "typed_value": row(b=typed(1))},
    "two values": {"metadata": NAMES, "value": variant_of(1)[0], "typed_value": row(b=typed(1))},
    "two values of a field": {"metadata": NAMES, "value": None, "typed_value": row(b={"value": b"\0", "typed_value": 1})},
    "a name twice": {"metadata": NAMES, "value": variant_of({"z": 1, "b": 1})[0], "typed_value": row(b=typed(1))},
    "bytes that are no object": {"metadata": NAMES, "value": b"\x02\x01", "typed_value": row(b=typed(1))},
}


@pytest.mark.parametrize("name", WRONG)
def test_contradictions(name: str) -> None:
    with pytest.raises(ValueError, match=r"VARIANT"):
        whole_variants(pa.array([WRONG[name]], OBJECT), VARIANT)


def test_types_that_no_variant_has() -> None:
    rows = [{"metadata": NAMES, "value": None, "typed_value": 1}]
    with pytest.raises(NotSupported, match="uint64"):
        whole_variants(pa.array(rows, shredded(pa.uint64())), VARIANT)
    with pytest.raises(ValueError, match="not as value and metadata"):
        whole_variants(pa.array([1]), VARIANT)
