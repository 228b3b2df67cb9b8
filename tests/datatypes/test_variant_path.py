"""Parts of VARIANTs by path."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.datatypes.variant_path import parse_variant_path, variant_get
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
