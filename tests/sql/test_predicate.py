"""SQL conditions: which rows they select, how literals meet column types, and what is refused."""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.data_type import BIGINT, STRING, DataField
from paimon_cli.errors import UsageError
from paimon_cli.sql.expressions import ColumnBounds
from paimon_cli.sql.predicate import parse_predicate
from tests.ingest.input_files import schema_of

SCHEMA = schema_of(
    {
        "k": "INT NOT NULL",
        "t": "TINYINT",
        "n": "DECIMAL(5, 2)",
        "s": "STRING",
        "b": "BOOLEAN",
        "d": "DATE",
        "ts": "TIMESTAMP(3)",
        "z": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "c": "TIME(3)",
        "x": "BYTES",
        "f": "FLOAT",
        "g": "DOUBLE",
        "select": "INT",
        "odd `name": "INT",
        "a": {"type": "ARRAY", "element": "INT"},
        "r": {
            "type": "ROW",
            "fields": [{"id": 90, "name": "x", "type": "INT"}, {"id": 91, "name": "odd.name", "type": "STRING"}],
        },
        "dotted.name": "INT",
    }
)
NAN = float("nan")
UTC = dt.timezone.utc
ROWS: list[dict[str, Any]] = [
    {"k": 0, "t": -128, "n": Decimal("-1.50"), "s": "", "b": True, "d": dt.date(1969, 12, 31), "f": 0.1, "g": 0.1, "select": 1},
    {"k": 1, "t": 3, "n": Decimal("3.00"), "s": "a%b", "b": False, "d": dt.date(2024, 2, 29), "f": 0.0, "g": -0.0, "a": []},
    {"k": 2, "t": 4, "n": Decimal("999.99"), "s": "Äb\nc_", "c": dt.time(10, 0, 0, 5000), "x": b"\x00\xff", "f": NAN, "g": NAN},
    {"k": 3, "ts": dt.datetime(1969, 12, 31, 23, 59, 59, 999000), "z": dt.datetime(2024, 1, 1, tzinfo=UTC), "odd `name": 7},
    {"k": 4, "t": 127, "ts": dt.datetime(2024, 1, 1), "z": dt.datetime(2024, 1, 1, 0, 0, 0, 1, UTC), "s": "it's", "x": b""},
]
ROWS[0]["r"], ROWS[1]["r"], ROWS[2]["dotted.name"] = {"x": 5, "odd.name": "o"}, {}, 8
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=pa.schema([arrow_field(f) for f in SCHEMA.fields]))

SELECTED = [
    ("k = 1", [1]),
    ("1 = k", [1]),
    ("2 < k", [3, 4]),
    ("k <> 1 AND k != 2", [0, 3, 4]),
    ("t < 3.5", [0, 1]),
    ("t <= 3.5", [0, 1]),
    ("t > 3.5", [2, 4]),
    ("t >= 3.5", [2, 4]),
    ("t >= 4.0", [2, 4]),
    ("t = 3.5", []),
    ("t != 3.5", [0, 1, 2, 4]),
    ("NOT t = 3.5", [0, 1, 2, 4]),
    ("t < 1000", [0, 1, 2, 4]),
    ("t > 1000", []),
    ("t = 1000", []),
    ("t <> 1000", [0, 1, 2, 4]),
    ("t > -1e30", [0, 1, 2, 4]),
    ("t >= -128", [0, 1, 2, 4]),
    ("t BETWEEN -200 AND 3.9", [0, 1]),
    ("t NOT BETWEEN 4 AND 100", [0, 1, 4]),
    ("n = 3", [1]),
    ("n < 3.001", [0, 1]),
    ("n > 2.999 AND n <= '999.99'", [1, 2]),
    ("n IN (3, 999.99, 5.001)", [1, 2]),
    ("t IN (3, NULL)", [1]),
    ("t NOT IN (3)", [0, 2, 4]),
    ("t NOT IN (3, NULL)", []),
    ("NOT (t IN (3, 4))", [0, 4]),
    ("t NOT IN (3.5)", [0, 1, 2, 4]),
    ("t = NULL", []),
    ("NOT t = NULL", []),
    ("NULL", []),
    ("t IS NULL", [3]),
    ("t IS NOT NULL", [0, 1, 2, 4]),
    ("NOT t IS NULL", [0, 1, 2, 4]),
    ("a IS NULL", [0, 2, 3, 4]),
    ("s = 'it''s'", [4]),
    ("s = ''", [0]),
    ("s > 'a'", [1, 2, 4]),
    ("s LIKE 'a%'", [1]),
    ("s LIKE '%\\%%'", [1]),
    ("s LIKE 'a!%b' ESCAPE '!'", [1]),
    ("s LIKE '_b_c%'", [2]),
    ("s LIKE ''", [0]),
    ("s LIKE '%'", [0, 1, 2, 4]),
    ("s NOT LIKE '%b%'", [0, 4]),
    ("NOT s LIKE '%b%'", [0, 4]),
    ("NOT (s NOT LIKE '%b%')", [1, 2]),
    ("lower(s) = 'äb\nc_'", [2]),
    ("upper(s) LIKE 'IT%'", [4]),
    ("length(s) >= 4", [2, 4]),
    ("length(s) IN (0, 3)", [0, 1]),
    ("b", [0]),
    ("NOT b", [1]),
    ("b = FALSE", [1]),
    ("b IS TRUE", [0]),
    ("b IS NOT TRUE", [1, 2, 3, 4]),
    ("TRUE", [0, 1, 2, 3, 4]),
    ("FALSE OR k = 1", [1]),
    ("d = DATE '2024-02-29'", [1]),
    ("d < '1970-01-01'", [0]),
    ("d < TIMESTAMP '1969-12-31 00:00:01'", [0]),
    ("d = TIMESTAMP '2024-02-29 00:00:01'", []),
    ("ts = TIMESTAMP '2024-01-01'", [4]),
    ("ts < '2024-01-01T00:00:00.0000001'", [3, 4]),
    ("ts >= DATE '2024-01-01'", [4]),
    ("ts < '1970-01-01'", [3]),
    ("z = '2024-01-01T05:30:00+05:30'", [3]),
    ("z > '2024-01-01 00:00:00Z'", [4]),
    ("z > '2024-01-01'", [4]),
    ("c > TIME '10:00:00'", [2]),
    ("c = '10:00:00.005'", [2]),
    ("x = X'00fF'", [2]),
    ("x < X'01'", [2, 4]),
    ("f = 0.1", [0]),
    ("f > 0", [0]),
    ("g = 0", [1]),
    ("g <> 0", [0, 2]),
    ("NOT g < 1", [2]),
    ("NOT g >= 1", [0, 1, 2]),
    ("g IN (0.1, 5)", [0]),
    ("g = 'NaN'", []),
    ('"select" = 1', [0]),
    ("`select` = 1", [0]),
    ('"odd `name" = 7', [3]),
    ("(k = 1 OR k = 2) AND NOT (k = 2)", [1]),
    ("NOT (k = 1 AND t = 3) AND NOT (k = 2 OR t = 127)", [0]),
    ("k == +1", [1]),
    ("g IN (0.0)", [1]),
    ("g IN (-0.0, 0.1)", [0, 1]),
    ("g NOT IN (0)", [0, 2]),
    ("g IN ('NaN')", []),
    ("g NOT IN ('NaN')", [0, 1, 2]),
    ("g <> 'NaN'", [0, 1, 2]),
    ("g NOT IN (0, NULL)", []),
    ("isnan(g)", [2]),
    ("NOT isnan(f)", [0, 1]),
    ("k + 1 = 4", [3]),
    ("17 = k * 4 + 1", [4]),
    ("k = t - 123", [4]),
    ("t % 2 = 1", [1, 4]),
    ("-k = -3", [3]),
    ("k / 2 = 1", [2, 3]),
    ("t * n > 10", [0, 2]),
    ("n + 0.01 = 1000", [2]),
    ("k = t", []),
    ("k < t", [1, 2, 4]),
    ("NOT k < t", [0]),
    ("g < f", [0]),
    ("NOT g < f", [1, 2]),
    ("k + 1 IN (1, 5, NULL)", [0, 4]),
    ("k + 1 NOT IN (1, 5)", [1, 2, 3]),
    ("k + 1 BETWEEN t AND 5", [0]),
    ("k + t IS NULL", [3]),
    ("1 = 1", [0, 1, 2, 3, 4]),
    ("'a' = 'b'", []),
    ("s || '!' = 'a%b!'", [1]),
    ("s || 'x' LIKE 'it%x'", [4]),
    ("length(s) + k = 4", [1]),
    ("abs(t) > 127", [0]),
    ("coalesce(d, DATE '2024-02-29') = '2024-02-29'", [1, 2, 3, 4]),
    ("k <> 0 AND 12 / k = 4", [3]),
    ("12 / k = 4 AND k <> 0", [3]),
    ("k = 0 OR 12 / k = 4", [0, 3]),
    ("NOT (k = 0 OR 12 / k <> 4)", [3]),
    ("r.x = 5", [0]),
    ("r.x IS NULL", [1, 2, 3, 4]),
    ("r IS NULL", [2, 3, 4]),
    ("r.`odd.name` = 'o'", [0]),
    ("`dotted.name` = 8", [2]),
    ("r.x + 1 = 6 AND lower(r.\"odd.name\") LIKE 'O'", []),
    ("round(n) = 1000", [2]),
    ("k = 1 OR " * 3000 + "k = 2", [1, 2]),
]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(("sql", "selected"), SELECTED)
def test_selected_rows(sql: str, selected: list[int]) -> None:
    predicate = pickle.loads(pickle.dumps(parse_predicate(sql, SCHEMA)))
    assert predicate.filtered(BATCH)["k"].to_pylist() == selected


REFUSED = [
    ("k =", "cannot read the condition"),
    ("k = 1 2", "cannot read the condition"),
    ("K = 1", "no column 'K'"),
    ("missing = 1", "no column 'missing'"),
    ("k = 1; DROP TABLE x", "not supported"),
    ("k IN (SELECT 1)", "not supported"),
    ("a.b = 1", "a has no fields"),
    ("r.y = 1", "no field 'y' in r"),
    ("r.x.y = 1", "r.x has no fields"),
    ("r = 1", "r is nested"),
    ("random() = 1", "not supported"),
    ("s = 5", "cannot compare s (STRING) with 5"),
    ("k = 'x'", "cannot compare k (INT) with 'x'"),
    ("k = TRUE", "cannot compare"),
    ("k = DATE '2024-01-01'", "cannot compare"),
    ("n = 'abc'", "cannot compare"),
    ("d = '2024-02-30'", "cannot compare"),
    ("d = 5", "cannot compare"),
    ("ts = '2024-01-01T00:00:00Z'", "cannot compare"),
    ("ts = TIME '10:00:00'", "cannot compare"),
    ("c = DATE '2024-01-01'", "cannot compare"),
    ("x = 'aa'", "cannot compare"),
    ("x = X'0'", "not a binary value"),
    ("b = 1", "cannot compare"),
    ("f = 'x'", "cannot compare"),
    ("s = X'00'", "cannot compare"),
    ("k", "k is not a condition"),
    ("a = 1", "nested"),
    ("k LIKE 'x'", "cannot compute k LIKE 'x"),
    ("s LIKE 'x\\'", "escape"),
    ("lower(k) = 'x'", "cannot compute lower(k)"),
    ("", "it is empty"),
    ("k = 'a", "cannot read the condition"),
    ("isnan(k)", "cannot compute isnan(k)"),
    ("k + 1", "not supported in the condition: k + 1"),
    ("k IN ()", "not supported"),
    ("k BETWEEN SYMMETRIC 3 AND 1", "not supported in the condition: k BETWEEN SYMMETRIC 3 AND 1"),
    ("12 / k = 4", "12 / k = 4 cannot be evaluated for every row"),
    ("k + 9223372036854775807 > 0", "cannot be evaluated"),
    ("k * 1.5 * k * k > n + 0.00000000000000000000000000000000000001", "cannot be evaluated"),
    ("(k * 1.5 * k * k + 0.5) * n / 2.5 > 0", "cannot be evaluated"),
]

POINTED = [
    ('s = "zz"', "write strings in single quotes: 'zz'"),
    ("s = 2024-02", "write strings, dates and times in single quotes: '2024-02'"),
    ("d = 2024-02-01", "write strings, dates and times in single quotes: '2024-02-01'"),
    ("s = 5", "write strings, dates and times in single quotes: '5'"),
    ("k", "compare it with a value, or write k IS NOT NULL"),
    ("r = 1", "compare one of its fields, such as r.x"),
    ("a.b = 1", "if the name of a column contains a dot, write `a.b`"),
]


@pytest.mark.parametrize(("sql", "message"), REFUSED)
def test_refused_conditions(sql: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_predicate(sql, SCHEMA).filtered(BATCH)
    assert message in caught.value.what


@pytest.mark.parametrize(("sql", "hint"), POINTED)
def test_hints_suggest_what_was_meant(sql: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_predicate(sql, SCHEMA)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("k = 1 2", "unexpected '2' at character 7"),
        ("k =", "something is missing after '='"),
        ("(k = 1", ") is missing after '1'"),
        ("k = 1 # x", "unexpected '#' at character 7"),
        ("s = 'a", "a quote is not closed"),
    ],
)
def test_broken_sql_is_pointed_at(sql: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_predicate(sql, SCHEMA)
    assert caught.value.why == why


def test_nan_beside_a_comparison_is_warned_of() -> None:
    assert parse_predicate("g IN ('NaN', 1) OR g = 'NaN'", SCHEMA).warnings == (
        "g compared with 'NaN': NaN is neither equal to, less than nor greater than any value; isnan(g) finds it",
    )
    assert parse_predicate("isnan(g) AND g <> 1", SCHEMA).warnings == ()


@pytest.mark.parametrize(("sql", "may_match"), [("t + 1 = 4", True), ("t + 1 = 5", False), ("t / 0 = 1", True), ("t < k", True)])
def test_computed_values_prune_where_a_column_has_one_value(sql: str, may_match: bool) -> None:
    bounds = {"t": ColumnBounds.of_value(3), "k": ColumnBounds(9, 0, 1, 2)}
    assert parse_predicate(sql, SCHEMA).may_match(bounds.get) == may_match


def test_columns_are_named_once() -> None:
    assert parse_predicate("k = 1 OR (s = 'a' AND k > 5) OR lower(s) = 'b'", SCHEMA).columns == ("k", "s")
    assert parse_predicate("TRUE", SCHEMA).columns == ()


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("k = 5", [5]),
        ("k IN (5, 6, 7.5) AND s = 'x'", [5, 6]),
        ("k IN (5, 6) AND k IN (6, 7)", [6]),
        ("k = 5 AND k = 6", []),
        ("k = 5 OR k = 6", None),
        ("k > 5", None),
        ("k NOT IN (5)", None),
        ("s = 'x'", None),
    ],
)
def test_buckets_of_fixed_keys(sql: str, keys: list[int] | None) -> None:
    schema = schema_of({"k": "INT NOT NULL", "s": "STRING"})
    found = parse_predicate(sql, schema).buckets(1000)
    singles = [parse_predicate(f"k = {key}", schema).buckets(1000) or frozenset() for key in keys or []]
    assert found == (None if keys is None else frozenset().union(*singles))
    assert all(len(single) == 1 for single in singles)


def test_buckets_need_the_whole_bucket_key() -> None:
    schema = schema_of({"a": "INT NOT NULL", "b": "STRING NOT NULL", "c": "DOUBLE NOT NULL"}, ("a", "b"))
    assert parse_predicate("a = 1", schema).buckets(8) is None
    assert len(parse_predicate("a IN (1, 2) AND b = 'x'", schema).buckets(1 << 20) or ()) == 2
    double = schema_of({"c": "DOUBLE NOT NULL"}, ("c",))
    assert parse_predicate("c = 0", double).buckets(8) is None
    assert parse_predicate("a = 1 AND b = 'x'", schema_of({"a": "INT", "b": "STRING"}, ())).buckets(8) is None


@pytest.mark.parametrize("condition", ["nothing = {}", "s = {}", "k in ({}", "k + {} = 's'"])
def test_a_long_condition_is_quoted_in_part(condition: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_predicate(condition.format(" + ".join(f"column_{number}" for number in range(90))), SCHEMA)
    assert len(refused.value.what) < 300 and "..." in refused.value.message


@pytest.mark.parametrize("sql", ["-" * 2000, "-- k = 1", "k = 'a", "k ="])
def test_what_cannot_be_read_has_a_reason(sql: str) -> None:
    with pytest.raises(UsageError, match="cannot read the condition") as caught:
        parse_predicate(sql, SCHEMA)
    assert caught.value.why


WORDS = replace(SCHEMA, fields=(*SCHEMA.fields, DataField(90, "item", STRING), DataField(91, "points", BIGINT)))


@pytest.mark.parametrize(
    "sql",
    [
        "itm <> 'a'",
        "itm = 1",
        '"itm" <> 1',
        "`itm` <> 1",
        "item = itm",
        "zzz = 1",
        "zzz <> item",
        "points = zzz",
        "upper(zzz) = 'A'",
    ],
)
def test_names_that_are_no_strings_are_never_offered_as_strings(sql: str) -> None:
    """`'itm' <> 'a'` is true for every row: a delete with it takes them all."""
    with pytest.raises(UsageError, match="no column") as caught:
        parse_predicate(sql, WORDS)
    assert "quotes" not in caught.value.hint and "columns: " in caught.value.hint


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("item = green tea", "item = 'green tea'"),
        ("item like te%", "item like 'te%'"),
        ("item not like tea", "item not like 'tea'"),
        ("item in (aaa, 'bbb', ccc)", "item in ('aaa', 'bbb', 'ccc')"),
        ("item not in (green tea, xxx)", "item not in ('green tea', 'xxx')"),
        ("item between aaa and bbb", "item between 'aaa' and 'bbb'"),
        ("lower(item) = tea and points = 1", "lower(item) = 'tea' and points = 1"),
    ],
)
def test_strings_whose_quotes_a_shell_took_are_all_quoted(sql: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_predicate(sql, WORDS)
    assert caught.value.hint.endswith(f'a shell removes them: "{meant}"')
    parse_predicate(meant, WORDS)


@pytest.mark.parametrize(
    "sql",
    [
        "item = tea and zzz = 1",
        "item = tea and qqq.y = 1",
        "points = green tea",
        "zzz like te%",
        "item = a b or item = c",
        "item = x $y",
    ],
)
def test_what_quotes_alone_do_not_mend_is_not_offered(sql: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_predicate(sql, WORDS)
    assert "a shell removes" not in caught.value.hint
