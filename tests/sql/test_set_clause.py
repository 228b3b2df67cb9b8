"""SET expressions: what they compute, in which type, and what is refused before and while they do."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.errors import UsageError
from paimon_cli.sql.clauses import BadRow, parse_set_clause
from tests.ingest.input_files import schema_of

SCHEMA = schema_of(
    {
        "k": "INT NOT NULL",
        "t": "TINYINT",
        "i": "INT",
        "l": "BIGINT",
        "n": "DECIMAL(10, 2)",
        "w": "DECIMAL(38, 10)",
        "f": "FLOAT",
        "g": "DOUBLE",
        "s": "STRING",
        "c": "VARCHAR(3)",
        "b": "BOOLEAN",
        "d": "DATE",
        "ts": "TIMESTAMP(3)",
        "z": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "u": "TIME(3)",
        "x": "BYTES",
        "select": "INT",
        "a": {"type": "ARRAY", "element": "INT"},
        "a2": {"type": "ARRAY", "element": "INT"},
        "texts": {"type": "ARRAY", "element": "STRING"},
    }
)
MAX = 2**63 - 1
ROWS: list[dict[str, Any]] = [
    {
        "k": 1,
        "t": 7,
        "i": 7,
        "l": 2**53 + 1,
        "n": Decimal("1.05"),
        "w": Decimal(2),
        "f": 0.5,
        "g": 2.5,
        "s": "Äb",
        "b": True,
        "a": [1],
    },
    {"k": 2, "t": -7, "i": -7, "l": -5, "n": Decimal("-1.05"), "g": -2.5, "s": "", "d": dt.date(2024, 2, 29), "select": 4},
    {"k": 3},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=pa.schema([arrow_field(f) for f in SCHEMA.fields]))
ALL = [None, None, None]

COMPUTED: list[tuple[str, list[Any]]] = [
    ("i = 5", [5, 5, 5]),
    ("i = NULL", ALL),
    ("i = i", [7, -7, None]),
    ("i = t", [7, -7, None]),
    ("i = i + 1", [8, -6, None]),
    ("i = 1 - i * 2", [-13, 15, None]),
    ("i = (1 - i) * 2", [-12, 16, None]),
    ("i = -i", [-7, 7, None]),
    ("i = - -i", [7, -7, None]),
    ("i = i / 2", [3, -3, None]),
    ("i = i % 4", [3, -3, None]),
    ("i = mod(i, 4)", [3, -3, None]),
    ("i = NULL + 1", ALL),
    ("l = l + 1", [2**53 + 2, -4, None]),
    ("l = 9223372036854775807", [MAX, MAX, MAX]),
    ("i = coalesce(i, 0)", [7, -7, 0]),
    ("i = ifnull(NULL, k)", [1, 2, 3]),
    ('i = "select"', [None, 4, None]),
    ("i = `select` + 1", [None, 5, None]),
    ("i = round(n)", [1, -1, None]),
    ("w = round(w * 100000000000000000000)", [Decimal(2) * 10**20, None, None]),
    ("w = floor(w * 100000000000000000000) + 1", [Decimal(2) * 10**20 + 1, None, None]),
    ("i = round(n) * 2 % 3 + abs(k) + length(s)", [5, 0, None]),
    ("i = round(g)", [3, -3, None]),
    ("i = floor(n * 1.5)", [1, -2, None]),
    ("i = ceil(n)", [2, -1, None]),
    ("i = round(i)", [7, -7, None]),
    ("l = ceil(l)", [2**53 + 1, -5, None]),
    ("l = floor(l) + round(l) - l", [2**53 + 1, -5, None]),
    ("n = 1", [Decimal(1)] * 3),
    ("n = 1.005", [Decimal("1.01")] * 3),
    ("n = -1.005", [Decimal("-1.01")] * 3),
    ("n = n * 1.5", [Decimal("1.58"), Decimal("-1.58"), None]),
    ("n = n / 4", [Decimal("0.26"), Decimal("-0.26"), None]),
    ("n = n + i", [Decimal("8.05"), Decimal("-8.05"), None]),
    ("n = i / 2", [Decimal(3), Decimal(-3), None]),
    ("n = i / 2.0", [Decimal("3.5"), Decimal("-3.5"), None]),
    ("n = coalesce(n, i, 0.5)", [Decimal("1.05"), Decimal("-1.05"), Decimal("0.5")]),
    ("w = n / 3", [Decimal("0.35"), Decimal("-0.35"), None]),
    ("w = 1 / 3.0", [Decimal("0.3333333333")] * 3),
    ("w = w + 1", [Decimal(3), None, None]),
    ("g = i / 2", [3.0, -3.0, None]),
    ("g = n", [1.05, -1.05, None]),
    ("g = l", [2.0**53, -5.0, None]),
    ("g = g * 2 + i", [12.0, -12.0, None]),
    ("g = 1e-3", [0.001] * 3),
    ("g = 273.15", [273.15] * 3),
    ("g = k + 272.15", [1 + 272.15, 2 + 272.15, 3 + 272.15]),
    ("g = 0.12345678901234567890 + 1e0", [1.1234567890123457] * 3),
    ("g = coalesce(n, 2.5)", [1.05, -1.05, 2.5]),
    ("g = coalesce(n, 12345.0, 0.123456789)", [1.05, -1.05, 12345.0]),
    ("f = f + 0.25", [0.75, None, None]),
    ("s = 'it''s'", ["it's"] * 3),
    ("s = s || '-' || s", ["Äb-Äb", "-", None]),
    ("s = concat(s, 'x', upper(s))", ["ÄbxÄB", "x", None]),
    ("s = concat(s, NULL)", ALL),
    ("s = lower(upper(s) || 'X')", ["äbx", "x", None]),
    ("s = coalesce(s, 'none')", ["Äb", "", "none"]),
    ("c = s", ["Äb", "", None]),
    ("b = false", [False] * 3),
    ("b = coalesce(b, false)", [True, False, False]),
    ("d = '2024-02-29'", [dt.date(2024, 2, 29)] * 3),
    ("d = coalesce(d, DATE '1969-12-31')", [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1969, 12, 31)]),
    ("ts = TIMESTAMP '2024-01-31 10:00:00.123'", [dt.datetime(2024, 1, 31, 10, 0, 0, 123000)] * 3),
    ("z = '2024-01-31T10:00:00+01:00'", [dt.datetime(2024, 1, 31, 9, tzinfo=dt.timezone.utc)] * 3),
    ("u = TIME '10:00:00'", [dt.time(10)] * 3),
    ("x = X'00ff'", [b"\0\xff"] * 3),
    ("a = a2", ALL),
    ("a2 = coalesce(a2, a)", [[1], None, None]),
    ("a = NULL", ALL),
]


@pytest.mark.parametrize(("text", "expected"), COMPUTED, ids=[text for text, _ in COMPUTED])
def test_what_is_computed(text: str, expected: list[Any]) -> None:
    (assignment,) = parse_set_clause([text], SCHEMA).assignments
    assert assignment.evaluate(BATCH).to_pylist() == expected
    assert len(assignment.evaluate(BATCH.slice(0, 0))) == 0


REFUSED = [
    ("k = 2", "belongs to the primary key"),
    ("nope = 1", "no column 'nope'"),
    ("i = nope", "no column 'nope'"),
    ("i = 'x'", "to a value of type string"),
    ("i = '5'", "to a value of type string"),
    ("i = 1.5", "to a value of type decimal"),
    ("i = n", "to a value of type decimal"),
    ("i = i * 0.5", "to a value of type decimal"),
    ("i = g", "to a value of type floating-point number"),
    ("n = g", "to a value of type floating-point number"),
    ("i = true", "to a value of type BOOLEAN"),
    ("i = 99999999999999999999", "to a value of type decimal"),
    ("g = 1e999", "is out of range for every numeric type"),
    ("s = 5", "to a value of type integer"),
    ("s = d", "to a value of type DATE"),
    ("b = 1", "to a value of type integer"),
    ("b = 'true'", "to a value of type string"),
    ("d = '2024-02-30'", "is not a valid DATE"),
    ("d = 'x'", "is not a valid DATE"),
    ("d = 5", "to a value of type integer"),
    ("d = '2024-02-28 10:00:00'", "cannot be represented exactly as DATE"),
    ("d = TIME '10:00:00'", "is not a valid DATE"),
    ("ts = '2024-01-31 10:00:00.1234'", "cannot be represented exactly as TIMESTAMP(3)"),
    ("ts = z", "to a value of type TIMESTAMP_LTZ"),
    ("s = DATE '2024-01-31'", "is not a valid STRING"),
    ("x = X'0'", "not a binary value"),
    ("x = 'ab'", "to a value of type string"),
    ("a = texts", "to a value of type ARRAY<STRING>"),
    ("a = 1", "to a value of type integer"),
    ("i = s + 1", "s is not a number"),
    ("i = -s", "s is not a number"),
    ("i = i + '1'", "'1' is not a number"),
    ("i = d + 1", "d is not a number"),
    ("i = n % 2", "% expects integers"),
    ("s = s || i", "i is not a string"),
    ("s = upper(i)", "i is not a string"),
    ("s = coalesce(s, i)", "different kinds: string, integer"),
    ("w = w * w", "too many digits"),
    ("i = i = 1", "not supported"),
    ("i = (SELECT 1)", "not supported"),
    ("i = now()", "not supported"),
    ("i = CASE WHEN b THEN 1 END", "not supported"),
    ("n = round(n, 1)", "not supported"),
    ("i = t.l", "has no fields"),
    ("i = i > 1", "not supported"),
    ("t.i = 1", "has no fields"),
    ("i = 1 WHERE k = 1", "the form is"),
    ("i = 1 FROM x", "the form is"),
    ("i = 1 RETURNING i", "the form is"),
    ("(i, l) = (1, 2)", "the form is"),
    ("i + 1 = 2", "the form is"),
    ("i", "the form is"),
    ("", "it is empty"),
    ("i += 1", "cannot read the assignment"),
    ("i = ", "cannot read the assignment"),
    ("i = 1; DELETE FROM t", "cannot read the assignment"),
    ("i = 1, i = 2", "set twice"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_is_refused_before_a_row_is_read(text: str, why: str) -> None:
    with pytest.raises(UsageError) as failure:
        parse_set_clause([text], SCHEMA)
    assert why in f"{failure.value} {failure.value.hint}"


def test_partition_columns_cannot_be_set() -> None:
    schema = schema_of({"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "INT"}, primary_key=("p", "k"), partition_by=("p",))
    with pytest.raises(UsageError, match="'p' cannot be set"):
        parse_set_clause(["p = 1"], schema)


@pytest.mark.parametrize(
    ("text", "row", "why"),
    [
        ("l = l * 9223372036854775807", 0, "overflow"),
        ("l = l - 9223372036854775805", 1, "overflow"),
        ("i = 1 / (i + 7)", 1, "divide by zero"),
        ("i = 1 % (k - 3)", 2, "divide by zero"),
        ("n = n / (k - 2)", 1, "divide by zero"),
        ("g = 1.5 / (g - 2.5)", 0, "divide by zero"),
        ("g = k * 1e308 / 0.5", 0, "overflow"),
        ("i = round(g * 1e300)", 0, ""),
    ],
)
def test_values_that_do_not_compute_name_their_row(text: str, row: int, why: str) -> None:
    (assignment,) = parse_set_clause([text], SCHEMA).assignments
    with pytest.raises(BadRow) as failure:
        assignment.evaluate(BATCH)
    assert failure.value.row == row and why in failure.value.why.lower()


def test_several_at_once_see_the_old_values() -> None:
    clause = parse_set_clause(["i = l, l = i", "s = 'x'"], SCHEMA)
    assert [assignment.column.name for assignment in clause.assignments] == ["i", "l", "s"]
    assert clause.assignments[1].evaluate(BATCH).to_pylist() == [7, -7, None]
    assert list(clause.assignments[0].columns()) == ["l"]


def test_a_clause_travels_to_tasks_as_its_text() -> None:
    clause = parse_set_clause(["i = i + 1", "s = upper(s)"], SCHEMA)
    again = pickle.loads(pickle.dumps(clause))
    assert again == clause
    assert b"upper(s)" in pickle.dumps(clause)


def test_an_unknown_name_may_be_a_string_without_quotes() -> None:
    """In `update({"s": "open"})` the quotes of Python look like those of SQL."""
    with pytest.raises(UsageError, match="no column 'open'") as raised:
        parse_set_clause(["s = open"], SCHEMA)
    assert "write strings in single quotes: 'open', and" in raised.value.hint


def test_parameters_of_all_texts_are_used() -> None:
    """A value that no text has is an error, and so each of them counts."""
    clause = parse_set_clause(["l = :a", "s = :b", "i = i + 1"], SCHEMA, {"a": 1, "b": "x"})
    assert clause.parameters == {"a", "b"}
