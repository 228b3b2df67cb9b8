"""Of which conditions and assignments it is known that DuckDB means the same: of all parts of them, or of none."""

from __future__ import annotations

import pytest

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.agreement import chooses_same_rows, sets_same_values
from paimon_cli.sql.clauses import parse_set_clause
from paimon_cli.sql.predicate import parse_predicate

TYPES = {
    **{"id": "BIGINT", "n": "INT", "s": "STRING", "x": "DOUBLE", "y": "DOUBLE", "f": "FLOAT", "p": "DECIMAL(10, 2)"},
    "r": "ROW<x DOUBLE, n INT>",
}
FIELDS = tuple(DataField(number, name, parse_sql_type(t)) for number, (name, t) in enumerate(TYPES.items()))
SCHEMA = TableSchema(0, FIELDS, 9, (), (), {}, None, 0)


@pytest.mark.parametrize(
    "condition",
    [
        *("n = 2", "n + 1 = 3", "id = n", "n IN (1, 2)", "n IS NULL", "s LIKE 'a%'", "TRUE", "x < 1"),
        *("x > 1 AND NOT isnan(x)", "r.x > 1 AND NOT isnan(r.x)", "n = 1 OR s = 'a' AND p > 1.5"),
    ],
)
def test_conditions_that_choose_the_same_rows(condition: str) -> None:
    assert chooses_same_rows(parse_predicate(condition, SCHEMA).condition, condition)


@pytest.mark.parametrize(
    "condition",
    [
        *("n / 2 = 1", "n / 2 IN (1, 2)", "n / 2 IS NULL", "n = 1 AND n / 2 = 1", "n / 2 = 1 OR n = 1", "NOT (n / 2 = 1)"),
        *("n / 2 = id", "id = n / 2", "id = n + n / 2", "id = n / 2 + n", "concat(s, 'x') = 'x'", r"s LIKE 'a\_b'"),
        *("x > 1", "x > 1 AND isnan(x)", "x > 1 AND NOT isnan(y)", "x > 1 OR NOT isnan(x)", "x > n", "x < y", "f < 1"),
        *("r.x > 1 AND NOT isnan(x)", "x > 1 AND NOT isnan(r.x)", "x > 1 AND NOT isnan(x + y)"),
    ],
)
def test_conditions_that_may_choose_others(condition: str) -> None:
    assert not chooses_same_rows(parse_predicate(condition, SCHEMA).condition, condition)


SAME = ["n = n + 1", "s = 'a'", "n = 7", "n = NULL", "s = s", "n = id", "x = y", "p = p + 1"]
OTHER = ["x = n / 2", "n = n / 2", "n = n * (n / 2)", "n = (n / 2) * n", "x = 1", "x = f"]


@pytest.mark.parametrize("text", [*SAME, *OTHER])
def test_assignments_must_all_set_the_same_values(text: str) -> None:
    beside = "id = 5"
    assert sets_same_values(parse_set_clause([text], SCHEMA)) == (text in SAME)
    for texts in ([text, beside], [beside, text]):
        assert sets_same_values(parse_set_clause(texts, SCHEMA)) == (text in SAME)
