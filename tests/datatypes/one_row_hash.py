"""The hash of one BinaryRow, step by step: what the hashes of whole columns are compared with."""

from __future__ import annotations

import struct


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
