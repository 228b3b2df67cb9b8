"""Long chains and deep nesting: an answer, or one clear line; never an error of Python's stack."""

from __future__ import annotations

import pickle
import time

import pyarrow as pa
import pytest

from paimon_cli.datatypes.data_type import BIGINT, STRING, DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.clauses import parse_set_clause, sort_keys
from paimon_cli.sql.predicate import parse_predicate
from paimon_cli.sql.sql_text import MAX_DEPTH

SCHEMA = TableSchema(0, (DataField(0, "id", BIGINT), DataField(1, "v", STRING)), 1, (), (), {}, None, 0)
ROWS = pa.record_batch({"id": [1, 2, 3], "v": ["a", "b", None]})


def kept(sql: str) -> list[int]:
    predicate = pickle.loads(pickle.dumps(parse_predicate(sql, SCHEMA)))
    return list(predicate.filtered(ROWS).column("id").to_pylist())


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "sql",
    [
        "id" + " + 0" * (MAX_DEPTH - 3) + " = 3",
        "id = 3" + " OR id = 3" * 3000,
        "id = 3" + " AND id = 3" * 3000,
        "id IN (" + "3," * 3000 + "3)",
        "v IS NULL AND coalesce(v, 'x')" + " || ''" * 3000 + " = 'x'",
    ],
    ids=["sum", "or", "and", "in", "concat"],
)
def test_chains_are_answered(sql: str) -> None:
    assert kept(sql) == [3]


@pytest.mark.parametrize(
    "sql",
    ["id IN (" + ", ".join(f"id + {n}" for n in range(5000)) + ")", "coalesce(" + ", ".join(["id"] * 5000) + ") > 0"],
    ids=["in", "coalesce"],
)
def test_the_time_for_a_list_is_in_line_with_its_length(sql: str) -> None:
    """Each element once asked for the text, or the kind, of the whole list."""
    started = time.process_time()
    assert kept(sql) == [1, 2, 3]
    assert time.process_time() - started < 6


@pytest.mark.parametrize("count", [MAX_DEPTH + 1, 340, 400, 1000, 20_000])
@pytest.mark.parametrize("begin, step, end", [("id", " + 0", " = 3"), ("", "(", ""), ("", "NOT ", "id = 3"), ("", "abs(", "id")])
@pytest.mark.in_part(3)
def test_deep_nesting_is_refused(begin: str, step: str, end: str, count: int) -> None:
    with pytest.raises(UsageError) as raised:
        kept(begin + step * count + end)
    assert len(str(raised.value)) < 25_000
    if step == " + 0":
        assert "nested too deeply" in str(raised.value)


def test_deep_assignments_and_sort_keys_are_refused() -> None:
    deep = "id" + " + 0" * 1000
    with pytest.raises(UsageError, match="nested too deeply"):
        parse_set_clause([f"id = {deep}"], SCHEMA)
    with pytest.raises(UsageError, match="nested too deeply"):
        sort_keys(deep, SCHEMA)


@pytest.mark.parametrize(
    "text", ["ARRAY<" * 500 + "INT" + ">" * 500, "ROW<a " * 500 + "INT" + ">" * 500, "INT" + " ARRAY" * 5000]
)
def test_deep_types_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_sql_type(text)
