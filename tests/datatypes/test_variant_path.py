"""Parts of VARIANTs by path."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from paimon_cli.datatypes import variant_casts
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.cast_numbers import per_distinct_value
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.datatypes.variant_columns import variants_in, with_variants
from paimon_cli.datatypes.variant_path import parse_variant_path, variant_get
from paimon_cli.datatypes.variant_scalars import scalar_nodes
from paimon_cli.datatypes.variant_text import variant_texts
from paimon_cli.errors import DamagedFile, UsageError

DOCUMENTS: list[Any] = [
    {"a": {"b": 5, "c d": [1, {"x": "deep"}]}, "n": None, "t": "2024-01-31"},
    None,
    {"a": {"b": -7.50}, "bb": True},
    [{"a": 1}, "second"],
    "text",
    {},
    {"a": "b", "n": 2**63},
]


def column() -> pa.StructArray:
    cells = [dict(zip(("value", "metadata"), variant_of(d), strict=True)) if d is not None else None for d in DOCUMENTS]
    return pa.array(cells, arrow_type(VARIANT))


@pytest.mark.parametrize(
    ("path", "t", "found"),
    [
        ("$.a.b", "STRING", ["5", None, "-7.5", None, None, None, None]),
        ("$.a.b", "INT", [5, None, -7, None, None, None, None]),
        ("$.a.b", "DECIMAL(5, 1)", [Decimal("5.0"), None, Decimal("-7.5"), None, None, None, None]),
        ("$.a", "STRING", ['{"b":5,"c d":[1,{"x":"deep"}]}', None, '{"b":-7.5}', None, None, None, "b"]),
        ("$.a['c d'][1].x", "STRING", ["deep", None, None, None, None, None, None]),
        ('$["a"]["c d"][7]', "STRING", [None] * 7),
        ("$[1]", "STRING", [None, None, None, "second", None, None, None]),
        ("$[0].a", "BIGINT", [None, None, None, 1, None, None, None]),
        ("$.bb", "BOOLEAN", [None, None, True, None, None, None, None]),
        ("$.n", "STRING", [None] * 6 + [str(2**63)]),
        ("$.\u00e9", "STRING", [None] * 7),
    ],
)
def test_parts(path: str, t: str, found: list[Any]) -> None:
    part = variant_get(column(), parse_variant_path(path), parse_sql_type(t))
    assert part.type == arrow_type(parse_sql_type(t))
    assert part.to_pylist() == found


@pytest.mark.parametrize("t", ["INT", "BOOLEAN", "DOUBLE", "DECIMAL(5, 1)", "DATE", "TIMESTAMP(6)", "BYTES"])
def test_parts_of_other_types_are_null_where_that_is_asked(t: str) -> None:
    """Each as if it were alone."""
    values = ["5", "x", "", "true", "2024-01-31", "1e3", "5", None, "2024-13-01", "77777777777", "-1.25"]
    kind = parse_sql_type(t)

    def alone(value: Any) -> Any:
        try:
            return variant_get(of({"p": value}), ("p",), kind).to_pylist()[0]
        except UsageError:
            return None

    found = variant_get(of(*({"p": value} for value in values)), ("p",), kind, tries=True)
    assert found.type == arrow_type(kind)
    assert found.to_pylist() == [alone(value) for value in values]
    assert variant_get(column()[:0], ("p",), kind, tries=True).to_pylist() == []


WHOLE = {"INT": "1", "BOOLEAN": "1", "DOUBLE": "1", "DATE": "2024"}


@pytest.mark.parametrize("t", list(WHOLE))
def test_many_parts_of_other_types_take_no_cast_each(t: str) -> None:
    values = [*(f"bad {number}" for number in range(40)), WHOLE[t], *(str(10**15 + number) for number in range(40))]
    with mock.patch.object(variant_casts, "per_distinct_value", wraps=per_distinct_value) as cast:
        found = variant_get(of(*({"p": value} for value in values)), ("p",), parse_sql_type(t), tries=True)
    assert cast.call_count <= 1
    assert found[40].is_valid
    assert found[:40].null_count == 40


def of(*documents: Any) -> pa.StructArray:
    return pa.array([dict(zip(("value", "metadata"), variant_of(one), strict=True)) for one in documents], arrow_type(VARIANT))


def test_names_that_begin_alike_are_different() -> None:
    found = variant_get(of({"ab": 1}, {"ab": 1, "a": 2}, {"a": 3, "abc": 4}), ("a",), parse_sql_type("INT"))
    assert found.to_pylist() == [None, 2, 3]


@pytest.mark.parametrize(
    ("kind", "value", "t", "found"),
    [
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 31, 10, 20, 30, 5), "TIMESTAMP(6)", None),
        (pa.timestamp("us"), datetime(1969, 12, 31), "TIMESTAMP(6)", None),
        (pa.date32(), date(2024, 1, 31), "DATE", None),
        (pa.date32(), date(2024, 1, 31), "STRING", "2024-01-31"),
        (pa.binary(), b"\x00\xff", "STRING", "AP8="),
        (pa.binary(16), bytes(range(16)), "STRING", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ],
)
def test_values_that_json_has_as_texts_have_no_quotes(kind: pa.DataType, value: Any, t: str, found: Any) -> None:
    """Engines write such values; an instant is read as the wall clock in UTC."""
    parts = [scalar_nodes(pa.array([value], kind)), pa.array([variant_of(None)[1]], pa.binary())]
    held = pa.StructArray.from_arrays(parts, fields=list(arrow_type(VARIANT)))
    assert variant_get(held, (), parse_sql_type(t)).to_pylist() == [value if found is None else found]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("kind", ["ROW<x VARIANT>", "ARRAY<VARIANT>", "MAP<STRING, VARIANT>", "ARRAY<ROW<x VARIANT>>"])
def test_a_part_of_a_column_is_converted_as_the_whole(kind: str, place: int) -> None:
    """A slice shares the values of the whole column, and begins within them."""
    t = parse_sql_type(kind)
    documents = [of({"n": n})[0].as_py() for n in range(6)]
    cells: dict[str, list[Any]] = {
        "ROW<x VARIANT>": [{"x": one} for one in documents],
        "ARRAY<VARIANT>": [documents[:2], documents[2:3], documents[3:]],
        "MAP<STRING, VARIANT>": [[("a", documents[0]), ("b", documents[1])], [("c", documents[2])], [("d", documents[3])]],
        "ARRAY<ROW<x VARIANT>>": [[{"x": documents[0]}], [{"x": documents[1]}, {"x": documents[2]}], [{"x": documents[3]}]],
    }
    whole = pa.array(cells[kind], arrow_type(t))
    found = with_variants(whole.slice(place, 1), t, variant_texts)
    assert found.to_pylist() == with_variants(whole, t, variant_texts).to_pylist()[place : place + 1]
    assert [one.to_pylist() for one in variants_in(whole.slice(place, 1), t)] != [[]]


def test_the_whole_value() -> None:
    assert variant_get(column(), parse_variant_path("$"), parse_sql_type("STRING")).to_pylist()[3:5] == [
        '[{"a":1},"second"]',
        "text",
    ]


@pytest.mark.parametrize("path", ["", "a", "$a", "$.", "$[x]", "$[-1]", "$.a[", "$..a", "$['a]", "$.a b[0]x", "$[99999999999]"])
def test_paths_that_cannot_be_read(path: str) -> None:
    with pytest.raises(UsageError, match="path"):
        parse_variant_path(path)


def test_parts_of_another_type() -> None:
    with pytest.raises(UsageError, match=r"variant_get: cannot cast"):
        variant_get(column(), (), parse_sql_type("INT"))
    with pytest.raises(UsageError, match="ARRAY"):
        variant_get(column(), (), parse_sql_type("ARRAY<INT>"))


def test_a_long_part_is_not_quoted_whole() -> None:
    long = pa.array([dict(zip(("value", "metadata"), variant_of({"a": "x" * 1_000_000}), strict=True))], arrow_type(VARIANT))
    with pytest.raises(UsageError, match=r"cannot cast 'xxx.*\.\.\. to INT") as refused:
        variant_get(long, ("a",), parse_sql_type("INT"))
    assert len(str(refused.value)) < 500


def test_damage() -> None:
    broken = pa.array([{"value": b"\x02\x01\0\0\x01\0", "metadata": b"\x01\0\0"}], arrow_type(VARIANT))
    with pytest.raises(DamagedFile):
        variant_get(broken, ("a",), parse_sql_type("INT"))
