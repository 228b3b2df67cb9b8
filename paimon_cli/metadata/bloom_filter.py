"""Bloom filters of one column of a data file, bytes in and out (FORMAT.md, section 7.4; Java BloomFilter64)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]


@dataclass
class BloomFilter:
    """`hash_functions` positions a value; `bits` as bytes, the lowest bit of a byte first."""

    hash_functions: int
    bits: npt.NDArray[np.uint8]

    @staticmethod
    def sized(items: int, false_positives: float) -> BloomFilter:
        """An empty filter for `items` values and that rate of false positives."""
        bits = int(-items * math.log(false_positives) / math.log(2) ** 2)
        bits += 8 - bits % 8
        functions = max(1, math.floor(bits / items * math.log(2) + 0.5))
        return BloomFilter(functions, np.zeros(bits // 8, np.uint8))

    def add(self, hashes: Hashes) -> None:
        for positions in self._positions(hashes):
            np.bitwise_or.at(self.bits, positions >> 3, np.left_shift(1, positions & 7).astype(np.uint8))

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """False where the value is surely not among those added."""
        found = np.ones(len(hashes), bool)
        for positions in self._positions(hashes):
            found &= (self.bits[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).astype(bool)
        return found

    def _positions(self, hashes: Hashes) -> list[npt.NDArray[np.int64]]:
        low, high = hashes.astype(np.uint32).view(np.int32), (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
        positions = []
        with np.errstate(over="ignore"):
            for number in range(1, self.hash_functions + 1):
                combined = low + np.int32(number) * high
                positive = np.where(combined < 0, ~combined, combined)
                positions.append(positive.astype(np.int64) % (len(self.bits) * 8))
        return positions

    def to_bytes(self) -> bytes:
        return self.hash_functions.to_bytes(4, "big") + self.bits.tobytes()

    @staticmethod
    def from_bytes(body: bytes) -> BloomFilter:
        """The filter in a file index; `ValueError` for a malformed one."""
        functions = int.from_bytes(body[:4], "big")
        if len(body) < 5 or not 1 <= functions <= 1000:
            raise ValueError(f"{len(body)} bytes with {functions} hash functions are no bloom filter")
        return BloomFilter(functions, np.frombuffer(body[4:], np.uint8).copy())
