"""The hashes of one row, step by step, to compare the hashes of whole columns with."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any


def row_hash(row: bytes) -> int:
    """Murmur3 hash (signed, seed 42) of row bytes without the arity, whose length is a multiple of 4."""
    h = 42
    for (word,) in struct.iter_unpack("<I", row):
        k = word * 0xCC9E2D51 & 0xFFFFFFFF
        k = (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF
        h ^= k
        h = ((h << 13 | h >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= len(row)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h


def hive_hash(row: Mapping[str, Any]) -> int:
    """Hive's hash of one row, unsigned; values by the names of their types."""
    h = 0
    for root, value in row.items():
        h = h * 31 + (0 if value is None else _hive_hash_of(root.partition("(")[0], value))
    return h & 0xFFFFFFFF


def _hive_hash_of(root: str, value: Any) -> int:
    match root:
        case "STRING":
            return _polynomial(signed for (signed,) in struct.iter_unpack("<b", value.encode()))
        case "BYTES":
            return _polynomial(signed for (signed,) in struct.iter_unpack("<b", value))
        case "BIGINT":
            return _long_hash(value % 2**64)
        case "DOUBLE":
            return _long_hash(struct.unpack("<Q", struct.pack("<d", math.nan if math.isnan(value) else value or 0.0))[0])
        case "DECIMAL":
            _, digits, exponent = value.as_tuple()
            number, scale = int("".join(map(str, digits))), -exponent
            while scale and number % 10 == 0:
                number, scale = number // 10, scale - 1
            magnitude = _polynomial(limb for (limb,) in struct.iter_unpack(">I", number.to_bytes(16, "big")))
            return 31 * (-magnitude if value < 0 else magnitude) + scale
    return int(value)


def _polynomial(digits: Iterable[int]) -> int:
    h = 0
    for digit in digits:
        h = h * 31 + digit
    return h


def _long_hash(bits: int) -> int:
    return (bits ^ bits >> 32) & 0xFFFFFFFF
