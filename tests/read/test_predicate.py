"""SQL conditions: which rows they select, how literals meet column types, and what is refused."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.errors import UsageError
from paimon_cli.read.predicate import parse_predicate
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
]


@pytest.mark.parametrize(("sql", "selected"), SELECTED)
def test_selected_rows(sql: str, selected: list[int]) -> None:
    predicate = pickle.loads(pickle.dumps(parse_predicate(sql, SCHEMA)))
    assert BATCH.filter(predicate.expression)["k"].to_pylist() == selected


REFUSED = [
    ("k =", "cannot read the condition"),
    ("k = 1 2", "cannot read the condition"),
    ("K = 1", "no column 'K'"),
    ("missing = 1", "no column 'missing'"),
    ("k = 1; DROP TABLE x", "not supported"),
    ("k + 1 = 2", "not supported"),
    ("k = t", "not supported"),
    ("1 = 1", "not supported"),
    ("k IN (SELECT 1)", "not supported"),
    ("a.b = 1", "not supported"),
    ("random() = 1", "not supported"),
    ("s = 5", "no value to compare a STRING column with"),
    ("k = 'x'", "no value to compare a INT column with"),
    ("k = TRUE", "no value"),
    ("k = DATE '2024-01-01'", "no value"),
    ("n = 'abc'", "no value"),
    ("d = '2024-02-30'", "no value"),
    ("d = 5", "no value"),
    ("ts = '2024-01-01T00:00:00Z'", "no value"),
    ("ts = TIME '10:00:00'", "no value"),
    ("c = DATE '2024-01-01'", "no value"),
    ("x = 'aa'", "no value"),
    ("x = X'0'", "no binary value"),
    ("b = 1", "no value"),
    ("f = 'x'", "no value"),
    ("s = X'00'", "no value"),
    ("k", "no value"),
    ("a = 1", "nested"),
    ("k LIKE 'x'", "no value"),
    ("s LIKE 'x\\'", "escape"),
    ("lower(k) = 'x'", "no text"),
    ("", "cannot read the condition"),
]


@pytest.mark.parametrize(("sql", "message"), REFUSED)
def test_refused_conditions(sql: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_predicate(sql, SCHEMA)
    assert message in caught.value.what


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
