"""Numbers of rows as one bitmap for each bit (Java BitSliceIndexRoaringBitmap and BitSliceIndexBitmap)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from paimon_cli.bucket.index_numbers import Numbers
from paimon_cli.metadata.index_files import roaring_bytes
from paimon_cli.pieces import PIECES

Positions = npt.NDArray[np.uint32]
MOST_BITS = 63
"""Bits of the greatest number."""


class BitSlices:
    """Numbers from 0 on.

    `rows`: the rows that have one. `bits`: for each bit, from the lowest on, the rows in whose number it is set.
    """

    def __init__(self, rows: BitMap | None = None, bits: Sequence[BitMap] = ()) -> None:
        self.rows = BitMap() if rows is None else rows
        self.bits = list(bits)

    def add(self, positions: Positions, numbers: Numbers) -> None:
        """Give the rows at these positions, which have none yet, numbers."""
        if not len(positions):
            return
        self.rows |= BitMap(positions)
        for bit in range(int(numbers.max()).bit_length()):
            if bit == len(self.bits):
                self.bits.append(BitMap())
            self.bits[bit] |= BitMap(positions[(numbers >> bit) & 1 == 1])

    def merge(self, other: BitSlices, offset: int) -> None:
        """Add the numbers of `other`, whose rows come `offset` later here."""
        self.rows |= other.rows.shift(offset)
        for bit, rows in enumerate(other.bits):
            if bit == len(self.bits):
                self.bits.append(BitMap())
            self.bits[bit] |= rows.shift(offset)

    def hold(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Which of the numbers a row has."""
        if len(numbers) > PIECES.sliced_lookups:
            return np.isin(numbers, self.numbers()[1])
        return np.fromiter((self._holds(number) for number in numbers.tolist()), bool, len(numbers))

    def _holds(self, number: int) -> bool:
        if number < 0 or number >> len(self.bits):
            return False
        found = self.rows
        for bit, rows in enumerate(self.bits):
            found = found & rows if number >> bit & 1 else found - rows
            if not found:
                return False
        return bool(found)

    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number. There must be one."""
        least = most = 0
        low = high = self.rows
        for bit in reversed(range(len(self.bits))):
            without, having = low - self.bits[bit], high & self.bits[bit]
            if not without:
                least |= 1 << bit
            if having:
                most |= 1 << bit
            low, high = without or low, having or high
        return least, most

    def numbers(self) -> tuple[Positions, Numbers]:
        """The rows, and the number of each."""
        positions = np.array(self.rows.to_array(), np.uint32)
        numbers = np.zeros(len(positions), np.int64)
        for bit, rows in enumerate(self.bits):
            at = np.searchsorted(positions, np.array((rows & self.rows).to_array(), np.uint32))
            numbers[at] |= np.int64(1 << bit)
        return positions, numbers

    def last_row(self) -> int:
        """The greatest position in any bitmap; -1 if there is none."""
        return max((rows[-1] for rows in (self.rows, *self.bits) if rows), default=-1)


def bitmap_bytes(positions: BitMap) -> bytes:
    """The same bytes for the same positions, however they came together."""
    return roaring_bytes(BitMap(positions.to_array()))


def bitmap_of(content: memoryview | bytes) -> BitMap:
    """The bitmap at the beginning of these bytes. Raises `ValueError` if it is malformed."""
    try:
        return BitMap.deserialize(cast(bytes, content))  # any buffer will do
    except (ValueError, IndexError) as error:  # the latter without any bytes
        raise ValueError("a bitmap cannot be read") from error
