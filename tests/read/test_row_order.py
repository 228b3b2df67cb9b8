"""ORDER BY: which rows come first, in memory, by a limit and over runs on disk."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.errors import UsageError
from paimon_cli.pieces import PIECES
from paimon_cli.read.selection import parse_order, rows_in_order
from tests.ingest.input_files import schema_of
from tests.nightly import at_night

SCHEMA = schema_of(
    {
        "k": "INT NOT NULL",
        "i": "INT",
        "g": "DOUBLE",
        "s": "STRING",
        "n": "DECIMAL(5, 2)",
        "d": "DATE",
        "b": "BOOLEAN",
        "r": {"type": "ROW", "fields": [{"id": 90, "name": "x", "type": "INT"}]},
        "m": {"type": "MAP", "key": "INT", "value": "STRING"},
    }
)
ARROW = pa.schema([arrow_field(field) for field in SCHEMA.fields])
NAN = float("nan")
ROWS: list[dict[str, Any]] = [
    {
        "k": 0,
        "i": 2,
        "g": NAN,
        "s": "b",
        "n": Decimal("1.50"),
        "d": dt.date(2024, 1, 1),
        "b": True,
        "r": {"x": 5},
        "m": [(1, "a")],
    },
    {"k": 1, "i": None, "g": -0.0, "s": "B", "n": Decimal("-3.00"), "b": False, "r": {}},
    {"k": 2, "i": 1, "g": 0.0, "s": "ä", "d": dt.date(1969, 1, 1), "r": {"x": -1}},
    {"k": 3, "i": 2, "g": None, "s": None, "n": Decimal("20.00"), "b": True},
    {"k": 4, "i": 1, "g": float("-inf"), "s": "", "n": Decimal("1.50"), "r": {"x": 5}},
]


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("k DESC", [4, 3, 2, 1, 0]),
        ("i", [2, 4, 0, 3, 1]),
        ("i DESC", [0, 3, 2, 4, 1]),
        ("i NULLS FIRST, k DESC", [1, 4, 2, 3, 0]),
        ("i DESC NULLS FIRST", [1, 0, 3, 2, 4]),
        ("g", [4, 1, 2, 0, 3]),
        ("g desc", [0, 1, 2, 4, 3]),
        ("s", [4, 1, 0, 2, 3]),
        ("lower(s), k desc", [4, 1, 0, 2, 3]),
        ("n DESC, i", [3, 4, 0, 1, 2]),
        ("d", [2, 0, 1, 3, 4]),
        ("b, k", [1, 0, 3, 2, 4]),
        ("r.x DESC, k DESC", [4, 0, 2, 3, 1]),
        ("-k % 3, `k`", [2, 1, 4, 0, 3]),
        ("coalesce(i, 9) DESC, k", [1, 0, 3, 2, 4]),
    ],
)
def test_orders(order: str, keys: list[int]) -> None:
    batches = [pa.RecordBatch.from_pylist([row], schema=ARROW) for row in ROWS]
    parsed = parse_order(order, SCHEMA)
    assert [k for batch in rows_in_order(batches, parsed) for k in batch["k"].to_pylist()] == keys
    for limit in (0, 1, 3, 9):
        assert [k for batch in rows_in_order(batches, parsed, limit) for k in batch["k"].to_pylist()] == keys[:limit]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("nope", "no column 'nope'"),
        ("m", "m is nested"),
        ("r", "r is nested"),
        ("k DESC LIMIT 3", "cannot read the order"),
        ("k sideways", "cannot read the order"),
        ("", "it is empty"),
        ("1", "not supported in the order: 1"),
        ("i / (k - 2)", "cannot be computed for every row"),
        ("random()", "not supported"),
    ],
)
def test_refused_orders(order: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        list(rows_in_order([pa.RecordBatch.from_pylist(ROWS, schema=ARROW)], parse_order(order, SCHEMA)))
    assert message in str(caught.value)


def _many(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(seed)
    for start in range(0, rows, 700):
        numbers = np.arange(start, min(start + 700, rows))
        i = pa.array([None if n == 0 else int(n) for n in random.integers(0, 50, len(numbers))], pa.int32())
        s = pa.array([f"text {n}" for n in random.integers(0, 9, len(numbers))])
        yield pa.RecordBatch.from_arrays([pa.array(numbers), i, s], names=["k", "i", "s"])


@pytest.mark.in_part(2)
@pytest.mark.parametrize("order", ["i DESC, s", "s, i NULLS FIRST", "k", "k DESC"])
@pytest.mark.parametrize("limit", [None, at_night(5), 4000, at_night(100_000)])
def test_runs_on_disk_give_the_same(order: str, limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.Table.from_batches(_many(20_000, seed=1)).combine_chunks()
    parsed = parse_order(order, SCHEMA)
    expected = rows.take(pa.array(parsed.positions(rows)))["k"].to_pylist()[:limit]
    monkeypatch.setattr(PIECES, "sort_bytes", 20_000)
    monkeypatch.setattr(PIECES, "spilled_batch_bytes", 3_000)
    monkeypatch.setattr(PIECES, "max_merged_runs", 4)
    monkeypatch.setattr(PIECES, "top_rows", 1_000)
    found = list(rows_in_order(_many(20_000, seed=1), parsed, limit))
    assert [k for batch in found for k in batch["k"].to_pylist()] == expected
