"""Words of serialised keys order as the decoded keys do."""

from __future__ import annotations

import random
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.datatypes.internal_values import Timestamp
from paimon_cli.datatypes.key_order import comparable_key, key_words, ranks
from paimon_cli.metadata.byte_ranges import ByteRanges

SPECIAL = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -1.5]
TEXTS = ["", "a", "a\0", "aaaaaaa", "aaaaaaaa", "aaaaaaab", "aaaaaaaaaaaaaaaaab", "é", "漢字漢字漢字", "b" * 30]
VALUES: dict[str, Any] = {
    "BOOLEAN": lambda s: s.random() < 0.5,
    "TINYINT": lambda s: s.randrange(-128, 128),
    "SMALLINT": lambda s: s.randrange(-(2**15), 2**15),
    "INT": lambda s: s.choice([s.randrange(-3, 3), s.randrange(-(2**31), 2**31)]),
    "BIGINT": lambda s: s.choice([s.randrange(-3, 3), s.randrange(-(2**63), 2**63)]),
    "DATE": lambda s: s.randrange(-9999, 9999),
    "FLOAT": lambda s: float(np.float32(s.choice([*SPECIAL, s.uniform(-9, 9)]))),
    "DOUBLE": lambda s: s.choice([*SPECIAL, s.uniform(-9, 9)]),
    "DECIMAL(10, 2)": lambda s: Decimal(s.randrange(-9999, 9999)).scaleb(-2),
    "TIMESTAMP(3)": lambda s: Timestamp(s.randrange(-9, 9)),
    "TIMESTAMP(6)": lambda s: Timestamp(s.randrange(-3, 3), s.randrange(3) * 1000),
    "STRING": lambda s: s.choice(TEXTS),
    "BYTES": lambda s: s.choice([b"", b"\0", b"\xff", b"\x7f" * 9, b"\x80" * 9, bytes(20)]),
}


def words_of(rows: list[bytes], texts: list[str]) -> list[np.ndarray] | None:
    ranges = ByteRanges.of(rows)
    return key_words(ranges.words, ranges.ends - ranges.begins, [parse_type(text) for text in texts])


@pytest.mark.parametrize("seed", range(60))
def test_words_order_as_keys_do(seed: int) -> None:
    source = random.Random(seed)
    texts = [list(VALUES)[seed % len(VALUES)]] if seed < 26 else source.choices(list(VALUES), k=source.randrange(1, 5))
    types = [parse_type(text) for text in texts]
    rows = [serialize_row([VALUES[text](source) for text in texts], types) for _ in range(source.choice([1, 60]))]
    columns = words_of(rows, texts)
    assert columns is not None
    found, keys = ranks(columns).tolist(), [comparable_key(deserialize_row(row, types)) for row in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    for one, other in pairwise(order):
        assert (found[one] < found[other]) == (keys[one] < keys[other]) and found[one] <= found[other]


def test_keys_that_are_not_plain_have_no_words() -> None:
    integer, text = parse_type("INT"), parse_type("STRING")
    good = serialize_row([1], [integer])
    assert words_of([good], ["INT"]) is not None
    for bad in (serialize_row([None], [integer]), good[:-1], serialize_row([1, 2], [integer, integer]), b""):
        assert words_of([good, bad], ["INT"]) is None
    pointed = serialize_row(["a text that follows"], [text])
    assert words_of([pointed[:-8]], ["STRING"]) is None
    assert words_of([serialize_row(["x" * 300], [text])], ["STRING"]) is None
    assert words_of([serialize_row([Decimal(1)], [parse_type("DECIMAL(30, 0)")])], ["DECIMAL(30, 0)"]) is None
