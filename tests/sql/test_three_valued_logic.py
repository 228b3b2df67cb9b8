"""Conditions against a plain evaluator of SQL's three-valued logic, one row at a time, with NaN and both zeros."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.sql.expressions import ColumnBounds
from paimon_cli.sql.predicate import parse_predicate
from tests.ingest.input_files import schema_of

NAN = float("nan")
SCHEMA = schema_of(
    {
        "k": "INT NOT NULL",
        "i": "INT",
        "j": "BIGINT",
        "g": "DOUBLE",
        "h": "FLOAT",
        "r": {"type": "ROW", "fields": [{"id": 90, "name": "x", "type": "INT"}, {"id": 91, "name": "y", "type": "DOUBLE"}]},
    }
)
TYPES = {field.name: field.type for field in SCHEMA.fields}
FLOATS = st.sampled_from([-1.5, -0.0, 0.0, 0.5, NAN, float("inf"), float("-inf")])
WHOLES = st.integers(-2, 2)
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Meaning:
    """SQL, and what it is for a row: True, False or None for a condition, a value or None else."""

    sql: str
    of: Callable[[Row], Any]


def _column(name: str) -> Meaning:
    if "." not in name:
        return Meaning(name, lambda row: row[name])
    position = {"r.x": 0, "r.y": 1}[name]
    return Meaning(name, lambda row: None if row["r"] is None else row["r"][position])


def _literal(value: float | int | None) -> Meaning:
    shown = {"nan": "'NaN'", "inf": "'Infinity'", "-inf": "'-Infinity'", "None": "NULL"}.get(str(value), str(value))
    return Meaning(shown, lambda row: value)


def _computed(left: Meaning, op: str, right: Meaning) -> Meaning:
    apply = {"+": operator.add, "-": operator.sub, "*": operator.mul}[op]

    def of(row: Row) -> Any:
        sides = left.of(row), right.of(row)
        return None if None in sides else apply(*sides)

    return Meaning(f"({left.sql} {op} {right.sql})", of)


def _compared(left: Meaning, op: str, right: Meaning) -> Meaning:
    def of(row: Row) -> bool | None:
        sides = left.of(row), right.of(row)
        return None if None in sides else OPERATORS[op](*sides)

    return Meaning(f"{left.sql} {op} {right.sql}", of)


def _negated(part: Meaning) -> Meaning:
    return Meaning(f"NOT ({part.sql})", lambda row: None if (found := part.of(row)) is None else not found)


def _joined(parts: list[Meaning], word: str) -> Meaning:
    decisive = word == "OR"

    def of(row: Row) -> bool | None:
        found = [part.of(row) for part in parts]
        return decisive if decisive in found else None if None in found else not decisive

    return Meaning(f" {word} ".join(f"({part.sql})" for part in parts), of)


def _one_of(value: Meaning, items: list[Meaning], negated: bool) -> Meaning:
    """IN is what its chain of = says, NOT IN its negation."""
    chain = _joined([_compared(value, "=", item) for item in items], "OR")
    listed = Meaning(f"{value.sql} IN ({', '.join(item.sql for item in items)})", chain.of)
    written = f"{value.sql} NOT IN ({', '.join(item.sql for item in items)})"
    return Meaning(written, _negated(listed).of) if negated else listed


@st.composite
def _leaf(draw: st.DrawFn) -> Meaning:
    floating = draw(st.booleans())
    columns = ["g", "h", "r.y"] if floating else ["i", "j", "r.x"]
    value = _column(draw(st.sampled_from(columns)))
    literals = st.none() | (FLOATS if floating else WHOLES)
    form = draw(st.sampled_from(["compare", "columns", "in", "between", "null", "nan", "computed"]))
    if form == "in":
        return _one_of(value, [_literal(item) for item in draw(st.lists(literals, min_size=1, max_size=3))], draw(st.booleans()))
    if form == "null":
        return Meaning(f"{value.sql} IS NULL", lambda row: value.of(row) is None)
    if form == "nan" and floating:
        return Meaning(f"isnan({value.sql})", lambda row: None if (v := value.of(row)) is None else v != v)
    if form == "between":
        low, high = _literal(draw(literals)), _literal(draw(literals))
        both = _joined([_compared(value, ">=", low), _compared(value, "<=", high)], "AND")
        return Meaning(f"{value.sql} BETWEEN {low.sql} AND {high.sql}", both.of)
    if form == "computed":
        value = _computed(_column("j"), draw(st.sampled_from("+-*")), _column(draw(st.sampled_from(["i", "r.x"]))))
        return _compared(value, draw(st.sampled_from(list(OPERATORS))), _literal(draw(st.none() | WHOLES)))
    other = _column(draw(st.sampled_from(columns))) if form == "columns" else _literal(draw(literals))
    left, right = (value, other) if draw(st.booleans()) else (other, value)
    return _compared(left, draw(st.sampled_from(list(OPERATORS))), right)


CONDITIONS = st.recursive(
    _leaf(),
    lambda inner: st.one_of(
        inner.map(_negated), st.builds(_joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["AND", "OR"]))
    ),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | WHOLES,
            "j": st.none() | WHOLES,
            "g": st.none() | FLOATS,
            "h": st.none() | FLOATS,
            "r": st.none() | st.tuples(st.none() | WHOLES, st.none() | FLOATS),
        }
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=250)
@given(CONDITIONS, ROWS)
def test_conditions_choose_the_rows_for_which_they_are_true(condition: Meaning, rows: list[Row]) -> None:
    predicate = parse_predicate(condition.sql, SCHEMA)
    columns = {"k": list(range(len(rows))), **{name: [row[name] for row in rows] for name in rows[0]}}
    batch = pa.record_batch({name: values_to_arrow(values, TYPES[name]) for name, values in columns.items()})
    chosen = [number for number, row in enumerate(rows) if condition.of(row) is True]
    assert predicate.filtered(batch)["k"].to_pylist() == chosen
    for number, row in enumerate(rows):
        of_row = {name: ColumnBounds.of_value(value) for name, value in row.items()}
        assert predicate.may_match(of_row.get) or number not in chosen


SAFE_ROWS = [{"a": a, "b": b, "t": t} for a in (None, 0, 1) for b in (None, 0, 2) for t in (None, True, False)]
SAFE_SCHEMA = schema_of({"a": "INT", "b": "BIGINT", "t": "BOOLEAN"})
SAFE_BATCH = pa.RecordBatch.from_pylist(SAFE_ROWS, pa.schema([("a", pa.int32()), ("b", pa.int64()), ("t", pa.bool_())]))
TWO_VALUED = [
    *("a IS DISTINCT FROM b", "a IS NOT DISTINCT FROM b", "a IS DISTINCT FROM NULL", "a IS NOT DISTINCT FROM NULL"),
    *("a IS DISTINCT FROM 1", "1 IS NOT DISTINCT FROM a", "NULL IS DISTINCT FROM a", "a + 1 IS NOT DISTINCT FROM b - 1"),
    *("(a > 0) IS NULL", "(a > 0) IS NOT NULL", "(a > 0) IS TRUE", "(a > 0) IS NOT TRUE", "(a > 0) IS FALSE"),
    *("(a > 0) IS NOT FALSE", "(a > 0 AND b > 0) IS NULL", "(a > 0 OR b > 0) IS NULL", "(NOT (a IN (1, NULL))) IS NULL"),
    *("(a IN (0, NULL)) IS TRUE", "(a = NULL) IS NULL", "((a > 0) IS NULL) IS FALSE", "(a BETWEEN 0 AND b) IS NULL"),
    *("(a > 0) IS DISTINCT FROM (b > 0)", "(a > 0) IS NOT DISTINCT FROM (b > 0)", "(a > 0) IS NOT DISTINCT FROM t"),
    *(
        "t IS DISTINCT FROM (a > 0)",
        "(a > 0) IS DISTINCT FROM NULL",
        "(a > 0) IS NOT DISTINCT FROM TRUE",
        "t IS DISTINCT FROM TRUE",
    ),
    *("(a IS NULL) IS NOT DISTINCT FROM (b IS NULL)", "(t IS NULL) IS FALSE"),
]
THREE_VALUED = [
    *(
        "(a > 0) = (b > 0)",
        "(a > 0) <> (b > 0)",
        "(a > 0) = t",
        "t <> (a > 0)",
        "(a > 0) = TRUE",
        "(a > 0) <> FALSE",
        "(a > 0) = NULL",
    ),
    *("((a > 0) = (b > 0)) IS NULL", "(a IS NULL) = (b IS NULL)", "(NOT (a > 0)) = (b > 0 AND t)"),
]


@pytest.mark.parametrize("sql", [*TWO_VALUED, *THREE_VALUED])
def test_conditions_as_values_are_those_of_duckdb(sql: str) -> None:
    import duckdb

    rows = pa.Table.from_batches([SAFE_BATCH])  # noqa: F841
    for condition in (sql, f"NOT ({sql})", f"({sql}) AND b = 2", f"NOT ({sql}) OR t"):
        expected = duckdb.execute(f"SELECT coalesce({condition}, FALSE) FROM rows").fetchall()
        predicate = parse_predicate(condition, SAFE_SCHEMA)
        ours = predicate.condition.matches(SAFE_BATCH).fill_null(False).to_pylist()
        assert ours == [found for (found,) in expected], condition
        for row, matches in zip(SAFE_ROWS, ours, strict=True):
            bounds = {n: ColumnBounds(1, int(v is None), v, v, v is not None) for n, v in row.items()}
            assert predicate.may_match(bounds.get) or not matches, (condition, row)
            assert matches or not predicate.must_match(bounds.get), (condition, row)


def test_null_safe_comparisons_in_the_words_of_spark_find_buckets() -> None:
    schema = schema_of({"a": "INT", "b": "INT"})
    assert parse_predicate("a <=> 5", schema).condition == parse_predicate("a = 5", schema).condition
    found = [parse_predicate(sql, SAFE_SCHEMA).condition.matches(SAFE_BATCH) for sql in ("NOT a <=> b", "a IS DISTINCT FROM b")]
    assert found[0] == found[1] and 0 < found[0].true_count < len(found[0])
