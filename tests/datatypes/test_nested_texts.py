"""Nested values as text, and columns with slices and nulls."""

from __future__ import annotations

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.column_cast import cast_column, keeps_values, may_cast
from paimon_cli.datatypes.data_type import STRING
from paimon_cli.datatypes.field_types import parse_sql_type

ROWS: list[dict[str, object] | None] = [
    {"a": 1, "l": ["x", None], "m": [("k", 1.5), ("n", None)]},
    None,
    {"a": None, "l": None, "m": []},
    {"a": 3, "l": [], "m": None},
]


def test_rows_lists_and_maps_as_text() -> None:
    t = parse_sql_type("ROW<a INT, l ARRAY<STRING>, m MAP<STRING, DOUBLE>>")
    column = pa.array(ROWS, arrow_type(t))
    texts = ["{1, [x, null], {k -> 1.5, n -> null}}", None, "{null, null, {}}", "{3, [], null}"]
    assert cast_column(column, t, STRING).to_pylist() == texts
    assert cast_column(column.slice(2), t, STRING).to_pylist() == texts[2:]


def test_slices_and_nulls_of_numbers() -> None:
    source, target = parse_sql_type("DECIMAL(10, 2)"), parse_sql_type("BIGINT")
    column = pa.array([None, "1.99", "-1.99", None, "7.00"]).cast(arrow_type(source))
    assert cast_column(column.slice(1, 3), source, target).to_pylist() == [1, -1, None]


def test_casts_that_keep_the_order_and_the_values() -> None:
    kept = [("INT", "BIGINT"), ("VARCHAR(3)", "STRING"), ("DECIMAL(5, 2)", "DECIMAL(8, 3)"), ("TIMESTAMP(3)", "TIMESTAMP(6)")]
    changed = [
        ("BIGINT", "INT"),
        ("INT", "STRING"),
        ("STRING", "VARCHAR(3)"),
        ("DECIMAL(5, 2)", "DECIMAL(5, 3)"),
        ("INT", "DOUBLE"),
    ]
    for source, target in kept:
        assert keeps_values(parse_sql_type(source), parse_sql_type(target))
    for source, target in changed:
        assert not keeps_values(parse_sql_type(source), parse_sql_type(target))


def test_null_to_not_null_is_never_implicit() -> None:
    assert not may_cast(parse_sql_type("INT"), parse_sql_type("INT NOT NULL"), explicit=False)
    assert may_cast(parse_sql_type("INT"), parse_sql_type("INT NOT NULL"), explicit=True)
