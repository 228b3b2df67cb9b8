"""SET, SELECT and ORDER BY as parts of commands: what each text may hold, and what would be lost if it held more."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.errors import UsageError
from paimon_cli.sql.clauses import BadRow, one_assignment, parse_set_clause, selected_values, sort_keys
from tests.ingest.input_files import schema_of

SCHEMA = schema_of(
    {
        "k": "INT NOT NULL",
        "i": "INT",
        "n": "DECIMAL(10, 1)",
        "s": "STRING",
        "v": "VARIANT",
        "r": {"type": "ROW", "fields": [{"name": "x", "type": "INT"}]},
        "l": {"type": "ARRAY", "element": "INT"},
    }
)


def columns_of(text: str) -> list[str]:
    return [value.name for value in selected_values(text, SCHEMA)]


@pytest.mark.parametrize("bad", [0, 1, 2, 5, 6, 12])
def test_the_first_bad_row_is_found_wherever_it_is(bad: int) -> None:
    """Also if later rows are bad as well."""
    (assignment,) = parse_set_clause(["i = 1 / i"], SCHEMA).assignments
    numbers = [0 if row in (bad, 12) else 1 for row in range(13)]
    batch = pa.RecordBatch.from_pylist([{"i": number} for number in numbers], pa.schema([arrow_field(SCHEMA.field("i"))]))
    with pytest.raises(BadRow) as failure:
        assignment.evaluate(batch)
    assert failure.value.row == bad


def test_halves_are_rounded_away_from_zero() -> None:
    batch = pa.RecordBatch.from_pylist([{"k": 1}, {"k": 3}, {"k": -1}], pa.schema([arrow_field(SCHEMA.field("k"))]))
    (assignment,) = parse_set_clause(["n = k * 0.05 + 0.4"], SCHEMA).assignments
    assert assignment.evaluate(batch).to_pylist() == [Decimal("0.5"), Decimal("0.6"), Decimal("0.4")]


def test_each_text_and_each_value_sets_its_columns() -> None:
    clause = parse_set_clause(["i = 1", "s = 'a', n = 2"], SCHEMA, values={"v": pa.array(["{}"])})
    assert [one.column.name for one in clause.assignments] == ["i", "s", "n", "v"]


@pytest.mark.parametrize("texts", [["i = 1", "i = 2"], ["i = 1"], ["s = 'a', i = 2"]])
def test_a_column_is_set_once(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="column 'i' is set twice"):
        parse_set_clause(texts, SCHEMA, values={"i": pa.array([1])})


def test_a_clause_travels_with_its_parameters_and_values() -> None:
    clause = parse_set_clause(["i = :a"], SCHEMA, {"a": 7}, {"s": pa.array(["x"])})
    again = pickle.loads(pickle.dumps(clause))
    batch = pa.RecordBatch.from_pylist([{"k": 1}, {"k": 2}], pa.schema([arrow_field(SCHEMA.field("k"))]))
    assert [one.evaluate(batch).to_pylist() for one in again.assignments] == [[7, 7], ["x", "x"]]
    assert again.parameters == {"a"}


@pytest.mark.parametrize("expression", ["1, s = 'x'", "1, i = 2, s = 'y'", "1 WHERE k = 1", ""])
def test_an_expression_for_a_column_is_one(expression: str) -> None:
    with pytest.raises(UsageError):
        one_assignment("i", expression)


def test_an_expression_for_a_column_of_any_name() -> None:
    assert one_assignment("a`b, c", "coalesce(i, 2)") == "`a``b, c` = coalesce(i, 2)"


@pytest.mark.parametrize("column", ["i", "n", "l"])
def test_a_text_is_json_for_variants_only(column: str) -> None:
    assert len(parse_set_clause(["v = s"], SCHEMA).assignments) == 1
    with pytest.raises(UsageError, match=f"cannot set column '{column}'"):
        parse_set_clause([f"{column} = s"], SCHEMA)
    with pytest.raises(UsageError, match="cannot set column 'v'"):
        parse_set_clause(["v = i"], SCHEMA)


def test_a_field_is_not_its_column() -> None:
    with pytest.raises(UsageError, match="cannot be set separately"):
        parse_set_clause(["r.x = 1"], SCHEMA)


def test_columns_that_say_where_a_row_is_cannot_be_set() -> None:
    keyed = schema_of({"k": "INT", "p": "INT", "b": "INT", "v": "INT"}, ("k", "p"), ("p",))
    append = schema_of({"p": "INT", "b": "INT", "v": "INT"}, (), ("p",), {"bucket-key": "b"})
    for schema, fixed in ((keyed, "kp"), (append, "b")):
        for name in fixed:
            with pytest.raises(UsageError, match=f"column '{name}' cannot be set"):
                parse_set_clause([f"{name} = 1"], schema)
        assert parse_set_clause(["v = 1"], schema).assignments


def test_selected_columns_are_in_their_order() -> None:
    assert columns_of("s, *, k") == ["s", *SCHEMA.field_names, "k"]
    assert [(value.name, value.path) for value in selected_values("k, r.x", SCHEMA)] == [("k", ()), ("r", ("x",))]


@pytest.mark.parametrize(
    "text", ["DISTINCT s", "s FROM t", "s WHERE k = 1", "s LIMIT 1", "s ORDER BY k", "* EXCEPT (s)", "k + 1"]
)
def test_a_list_of_columns_is_nothing_else(text: str) -> None:
    with pytest.raises(UsageError):
        selected_values(text, SCHEMA)


def directions(text: str) -> list[Any]:
    return [(key.descending, key.nulls_first) for key in sort_keys(text, SCHEMA)]


def test_each_key_has_its_own_direction() -> None:
    assert directions("k, s DESC, i NULLS FIRST, n DESC NULLS FIRST, k ASC NULLS LAST") == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
        (False, False),
    ]


@pytest.mark.parametrize("text", ["k LIMIT 1", "k OFFSET 1", "1", "l", "r", "nope"])
def test_an_order_is_of_columns_that_have_one(text: str) -> None:
    with pytest.raises(UsageError):
        sort_keys(text, SCHEMA)
