"""Buckets by remainder and by Hive's hash, against answers of Java 1.4.2 (`HiveBucketFunction`) and a hash of single rows."""

from __future__ import annotations

import random
import struct
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.bucket_functions import bucket_key_limit, hive_hashes, row_buckets
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported
from tests.datatypes.one_row_hash import hive_hash

LARGEST = 2**31 - 1

ANSWERS: list[tuple[int, int, list[tuple[str, Any]]]] = [
    (1, LARGEST, [("BOOLEAN", True)]),
    (2147483520, LARGEST, [("TINYINT", -128)]),
    (0, LARGEST, [("SMALLINT", -1)]),
    (0, LARGEST, [("INT", -(2**31))]),
    (0, LARGEST, [("BIGINT", -1)]),
    (1, LARGEST, [("BIGINT", 2**32)]),
    (0, LARGEST, [("FLOAT", -0.0)]),
    (1069547520, LARGEST, [("FLOAT", -1.5)]),
    (2143289344, LARGEST, [("FLOAT", "NaN")]),
    (0, LARGEST, [("DOUBLE", -0.0)]),
    (1073217536, LARGEST, [("DOUBLE", 1.5)]),
    (2146959360, LARGEST, [("DOUBLE", "NaN")]),
    (3105, LARGEST, [("CHAR(5)", "ab")]),
    (0, LARGEST, [("STRING", "")]),
    (778785307, LARGEST, [("STRING", "é€\U0001f600 a very far word")]),
    (2147482559, LARGEST, [("BINARY(3)", "ff0080")]),
    (559542245, LARGEST, [("BYTES", "7fff80010203040506070809")]),
    (2146764486, LARGEST, [("DATE", "0001-01-01")]),
    (86399999, LARGEST, [("TIME(3)", "23:59:59.999")]),
    (0, LARGEST, [("DECIMAL(9, 2)", "0.00")]),
    (3100, LARGEST, [("DECIMAL(9, 2)", "100.00")]),
    (2147483184, LARGEST, [("DECIMAL(9, 2)", "-1.50")]),
    (1571411412, LARGEST, [("DECIMAL(18, 0)", "999999999999999999")]),
    (649787912, LARGEST, [("DECIMAL(38, 10)", "-1234567890123456789012345678.9012345000")]),
    (427198424, LARGEST, [("DECIMAL(38, 38)", "-0.99999999999999999999999999999999999999")]),
    (1331948745, LARGEST, [("DECIMAL(38, 0)", "-10000000000000000000000000000000000000")]),
    (0, LARGEST, [("STRING", None)]),
    (0, 5, [("INT", 17), ("STRING", "p"), ("DECIMAL(20, 4)", "3.1400")]),
    (1, 5, [("INT", None), ("STRING", None), ("BIGINT", -7)]),
    (13, 16, [("STRING", None), ("INT", -3)]),
]


@pytest.mark.parametrize(("bucket", "total", "row"), ANSWERS, ids=str)
def test_hive_buckets_of_java(bucket: int, total: int, row: list[tuple[str, Any]]) -> None:
    types = [parse_type(text) for text, _ in row]
    columns = [values_to_arrow([from_canonical(value, t)], t) for t, (_, value) in zip(types, row, strict=True)]
    assert row_buckets(columns, types, total, "hive").tolist() == [bucket]


def _decimal(rng: random.Random) -> Decimal:
    with localcontext(Context(prec=60)):
        return Decimal(rng.randrange(1 - 10**37, 10**37) // 10 ** rng.randint(0, 37) * rng.choice((1, 10))).scaleb(-9)


@pytest.mark.parametrize("has_nulls", [True, False])
def test_columns_hash_like_single_rows(has_nulls: bool) -> None:
    """Over more rows than one block holds, in slices, with nulls between: where nulls are filled, Arrow makes slices whole."""
    rng = random.Random(20)
    rows = 40_000
    cells: dict[str, list[Any]] = {
        "STRING": ["".join(rng.choices("aé€\U0001f988 ", k=rng.randint(0, 12))) for _ in range(rows)],
        "BYTES": [rng.randbytes(rng.randint(0, 12)) for _ in range(rows)],
        "BIGINT": [rng.getrandbits(64) - 2**63 for _ in range(rows)],
        "SMALLINT": [rng.getrandbits(16) - 2**15 for _ in range(rows)],
        "DOUBLE": [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(rows)],
        "DECIMAL(38, 9)": [_decimal(rng) for _ in range(rows)],
    }
    for values in cells.values():
        for place in rng.sample(range(rows), rows // 10) if has_nulls else ():
            values[place] = None
    types = [parse_type(text) for text in cells]
    columns = [values_to_arrow(values, t).slice(7) for values, t in zip(cells.values(), types, strict=True)]
    hashes = hive_hashes(columns, types)
    chosen = [*range(7, 507), *range(32_700, 32_900), rows - 1]
    by_row = [hive_hash({text: values[i] for text, values in cells.items()}) for i in chosen]
    assert [int(hashes[i - 7]) for i in chosen] == by_row


def test_decimals_hash_alike_where_the_lower_half_is_zero() -> None:
    """There the negation of a number of 128 bits carries from one half to the other."""
    t = parse_type("DECIMAL(38, 0)")
    values = [Decimal(sign * factor * 2**64) for sign in (1, -1) for factor in (1, 3, 2**60)]
    assert [int(one) for one in hive_hashes([values_to_arrow(values, t)], [t])] == [hive_hash({"DECIMAL": one}) for one in values]


@pytest.mark.parametrize("text", ["INT", "BIGINT"])
def test_remainders_are_never_negative(text: str) -> None:
    t = parse_type(text)
    column = values_to_arrow([17, -3, 5, None, -(2**31), 2**31 - 1], t)
    assert row_buckets([column], [t], 5, "mod").tolist() == [2, 2, 0, 0, 2, 2]


def test_no_rows() -> None:
    assert row_buckets([pa.array([], pa.string())], [parse_type("STRING")], 3, "hive").tolist() == []


@pytest.mark.parametrize(
    ("function", "types", "why"),
    [
        ("mod", ["STRING"], "INT or BIGINT"),
        ("mod", ["INT", "INT"], "INT or BIGINT"),
        ("hive", ["INT", "TIMESTAMP(3) NOT NULL"], "a TIMESTAMP"),
        ("hive", ["TIMESTAMP(6) WITH LOCAL TIME ZONE"], "LOCAL TIME ZONE has no hash"),
    ],
)
def test_types_without_a_bucket(function: str, types: list[str], why: str) -> None:
    parsed = [parse_type(text) for text in types]
    assert why in (bucket_key_limit(function, parsed) or "")
    columns = [values_to_arrow([None], t.with_nullable(True)) for t in parsed]
    with pytest.raises(NotSupported, match="no bucket"):
        row_buckets(columns, parsed, 4, function)
