"""Pruning by bounds is cautious: what may_match excludes, no row selects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.sql.expressions import BoundsOf, ColumnBounds
from paimon_cli.sql.predicate import parse_predicate
from tests.ingest.input_files import schema_of

SCHEMA = schema_of({"k": "INT NOT NULL", "i": "INT", "s": "STRING", "n": "DECIMAL(4, 1)", "g": "DOUBLE"})
TYPES: dict[str, DataType] = {field.name: field.type for field in SCHEMA.fields}

TEXTS = st.text("abB%é😀", max_size=4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3),
    "s": TEXTS,
    "n": st.integers(-30, 30).map(lambda n: Decimal(n) / 10),
    "g": st.sampled_from([-1.0, -0.0, 0.0, 0.5, float("nan"), float("inf")]),
}
LITERALS: dict[str, st.SearchStrategy[str]] = {
    "i": st.sampled_from(["-4", "-3", "-0.5", "0", "1", "2.5", "3", "99999999999"]),
    "s": TEXTS.map(lambda text: f"'{text}'"),
    "n": st.sampled_from(["-3.05", "-1", "0", "0.1", "0.15", "3.0", "999.9", "1000"]),
    "g": st.sampled_from(["-1", "0", "0.5", "'NaN'", "'Infinity'", "7"]),
}


@st.composite
def _leaf(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(["i", "s", "n", "g"]))
    form = draw(st.sampled_from(["compare", "in", "between", "null", "like"]))
    negated = draw(st.sampled_from(["", "NOT "]))
    literal = LITERALS[name]
    if form == "compare" or (form == "like" and name != "s"):
        return f"{negated}{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(literal)}"
    if form == "in":
        return f"{name} {negated}IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
    if form == "between":
        return f"{name} {negated}BETWEEN {draw(literal)} AND {draw(literal)}"
    return f"{name} IS {negated}NULL" if form == "null" else f"s {negated}LIKE {draw(literal)}"


CONDITIONS = st.recursive(
    _leaf(), lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR", "AND NOT"]), inner), max_leaves=4
)
TABLE_ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=1, max_size=4
)


def _bounds(values: list[Any], exact: bool, length: int) -> ColumnBounds:
    """What a writer may record: bounds of what is not NaN, texts cut to a length, the upper one raised."""
    nulls = values.count(None)
    present = [value for value in values if value is not None and value == value]
    if not present:
        return ColumnBounds(len(values), nulls)
    low, high = min(present), max(present)
    if isinstance(low, str) and not exact:
        low = low[:length]
        high = high if len(high) <= length else high[: length - 1] + chr(ord(high[length - 1]) + 1)
    return ColumnBounds(len(values), nulls, low, high, exact and low == high and len(present) == len(values))


@settings(max_examples=150)
@given(CONDITIONS, TABLE_ROWS, st.booleans(), st.sets(st.sampled_from(["i", "s", "n", "g"])))
def test_what_bounds_exclude_no_row_selects_and_what_they_demand_all_do(
    sql: str, rows: list[dict[str, Any]], exact: bool, hidden: set[str]
) -> None:
    predicate = parse_predicate(sql, SCHEMA)
    columns = {name: [row[name] for row in rows] for name in VALUES}
    batch = pa.record_batch({name: values_to_arrow(values, TYPES[name]) for name, values in columns.items()})
    known = {name: _bounds(values, exact, 2) for name, values in columns.items() if name not in hidden}
    if predicate.filtered(batch).num_rows:
        assert predicate.may_match(known.get)
    assert predicate.filtered(batch).num_rows == len(rows) or not predicate.must_match(known.get)
    if exact and not hidden and len(rows) == 1 and columns["g"][0] is None and "g" not in predicate.columns:
        values = {name: ColumnBounds.of_value(column[0]) for name, column in columns.items()}
        assert predicate.may_match(values.get) == bool(predicate.filtered(batch).num_rows)


def known(**bounds: ColumnBounds) -> BoundsOf:
    return bounds.get


FIVE_TO_NINE = ColumnBounds(10, 0, 5, 9)
NESTED = {"type": "ROW", "fields": [{"id": 9, "name": "f", "type": "INT"}]}


@pytest.mark.parametrize(
    ("sql", "bounds", "may_match"),
    [
        ("i = 4", FIVE_TO_NINE, False),
        ("i = 5", FIVE_TO_NINE, True),
        ("i < 5", FIVE_TO_NINE, False),
        ("i <= 5", FIVE_TO_NINE, True),
        ("i > 8.5", FIVE_TO_NINE, True),
        ("i > 9", FIVE_TO_NINE, False),
        ("i <> 5", FIVE_TO_NINE, True),
        ("i IN (1, 10)", FIVE_TO_NINE, False),
        ("i IN (1, 7)", FIVE_TO_NINE, True),
        ("i BETWEEN 1 AND 4", FIVE_TO_NINE, False),
        ("i IS NULL", FIVE_TO_NINE, False),
        ("i IS NULL", ColumnBounds(10, None, 5, 9), True),
        ("i IS NOT NULL", ColumnBounds(10, 10), False),
        ("i <> 5", ColumnBounds(10, 10), False),
        ("i = 4 OR i = 5", FIVE_TO_NINE, True),
        ("i = 4 AND k = 5", FIVE_TO_NINE, False),
        ("i < 100000000000", ColumnBounds(10, 10), False),
        ("i <> 5", ColumnBounds.of_value(5), False),
        ("i NOT IN (5, 6)", ColumnBounds.of_value(5), False),
    ],
)
def test_bounds_of_numbers(sql: str, bounds: ColumnBounds, may_match: bool) -> None:
    assert parse_predicate(sql, SCHEMA).may_match(known(i=bounds)) == may_match


def test_the_only_value_of_a_column_is_not_all_that_it_holds() -> None:
    """Index and statistics of a file say so: a value that all rows but one have."""
    three = ColumnBounds(10, 0, 3, 3, exact=True)
    predicate = parse_predicate("coalesce(i, 0) < k", SCHEMA)
    for nulls, may_match in ((0, False), (1, True), (None, True)):
        assert predicate.may_match(known(i=ColumnBounds(10, nulls, 5, 5, exact=True), k=three)) == may_match


@pytest.mark.parametrize(
    ("sql", "may_match"),
    [
        ("s LIKE 'a%'", False),
        ("s LIKE 'm%'", True),
        ("s LIKE 'ma%'", True),
        ("s LIKE 'z%'", False),
        ("s LIKE '%a'", True),
        ("s NOT LIKE 'm%'", True),
        ("s = 'mz'", True),
        ("s = 'n'", True),
        ("s = 'na'", False),
        ("lower(s) = 'a'", True),
    ],
)
def test_bounds_of_texts(sql: str, may_match: bool) -> None:
    assert parse_predicate(sql, SCHEMA).may_match(known(s=ColumnBounds(10, 0, "m", "n"))) == may_match


@pytest.mark.parametrize(
    ("sql", "bounds", "must_match"),
    [
        ("i >= 5", FIVE_TO_NINE, True),
        ("i > 5", FIVE_TO_NINE, False),
        ("i <= 9 AND i <> 4", FIVE_TO_NINE, True),
        ("i < 9", FIVE_TO_NINE, False),
        ("i <> 9", FIVE_TO_NINE, False),
        ("i <> 10", FIVE_TO_NINE, True),
        ("i NOT IN (4, 10)", FIVE_TO_NINE, True),
        ("i NOT IN (4, 5)", FIVE_TO_NINE, False),
        ("i NOT IN (9, 10)", FIVE_TO_NINE, False),
        ("i NOT IN (7)", FIVE_TO_NINE, False),
        ("i IN (5, 6, 7, 8, 9)", FIVE_TO_NINE, False),
        ("i IN (4, 5)", ColumnBounds(10, 0, 5, 5), True),
        ("i = 5", ColumnBounds(10, 0, 5, 5), True),
        ("i = 5", ColumnBounds(10, 1, 5, 5), False),
        ("i = 5", ColumnBounds(10, None, 5, 5), False),
        ("i = 5 OR i IS NULL", ColumnBounds(10, 1, 5, 5), False),
        ("i IS NOT NULL", FIVE_TO_NINE, True),
        ("i IS NULL", ColumnBounds(10, 9, 5, 5), False),
        ("i IS NULL", ColumnBounds(10, 10), True),
        ("g >= 5", FIVE_TO_NINE, False),
        ("g = 5", ColumnBounds(10, 0, 5.0, 5.0), False),
        ("g <> 4", FIVE_TO_NINE, False),
        ("s >= 'a'", ColumnBounds(10, 0, "b", "c"), True),
        ("s LIKE '%'", ColumnBounds(10, 0, "b", "c"), False),
        ("r.f IS NOT NULL", FIVE_TO_NINE, False),
        ("r.f = 5", ColumnBounds(10, 0, 5, 5), False),
    ],
)
def test_what_bounds_demand(sql: str, bounds: ColumnBounds, must_match: bool) -> None:
    """Files of which all rows match are dropped whole by a DELETE. Bounds cover no NaN, and no field of a column."""
    schema = schema_of({"i": "INT", "s": "STRING", "g": "DOUBLE", "r": NESTED})
    assert parse_predicate(sql, schema).must_match(known(i=bounds, s=bounds, g=bounds, r=bounds)) == must_match


@pytest.mark.parametrize(
    ("sql", "bounds", "may_match"),
    [
        ("i NOT IN (5, 6)", ColumnBounds(10, 0, 5, 6), True),
        ("i <> 5", ColumnBounds(10, 0, 5, 5), True),  # not exact: who knows
        ("s NOT IN ('ab')", ColumnBounds(10, 0, "ab", "ab"), True),
        ("s LIKE 'ma%'", ColumnBounds(10, 0, "a", "ma"), True),
        ("s LIKE 'ma%'", ColumnBounds(10, 0, "a", "m"), False),
        ("s LIKE 'ma%'", ColumnBounds(10, 0, "mb", "n"), False),
        ("s LIKE 'ma'", ColumnBounds(10, 0, "ma", "ma", exact=True), True),
        ("s NOT LIKE 'ma'", ColumnBounds(10, 0, "ma", "ma"), True),
    ],
)
def test_bounds_that_need_not_be_values(sql: str, bounds: ColumnBounds, may_match: bool) -> None:
    assert parse_predicate(sql, SCHEMA).may_match(known(i=bounds, s=bounds)) == may_match
