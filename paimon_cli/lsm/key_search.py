"""Finds many keys at once among sorted rows by binary search, for key columns of any type.

Key columns are those of `datatypes.key_order.comparable`, whose natural order is Paimon's. A search takes one comparison per key
and halving, so a few keys are found among many rows without reading most of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from paimon_cli.datatypes.key_order import comparable, order_words, ranks

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]
ABSENT = -1
"""The row number of a key that was not found."""
_Column = Any
"""A NumPy array for integers without nulls, which is faster to search; otherwise an Arrow array."""


@dataclass(frozen=True)
class SortedKeys:
    """Distinct keys in ascending order, one Arrow column (without chunks) for each key column; null is the smallest value."""

    columns: tuple[pa.Array, ...]

    @staticmethod
    def of(rows: pa.RecordBatch | pa.Table, names: Sequence[str]) -> SortedKeys:
        """The key columns of sorted rows."""
        return SortedKeys(tuple(comparable(_whole(rows.column(name))) for name in names))

    @staticmethod
    def joined(portions: Sequence[SortedKeys]) -> SortedKeys:
        """The keys of all portions, concatenated. The portions are in ascending order."""
        if len(portions) == 1:
            return portions[0]
        return SortedKeys(tuple(map(pa.concat_arrays, zip(*(keys.columns for keys in portions), strict=True))))

    def __len__(self) -> int:
        return len(self.columns[0])

    def slice(self, start: int, end: int) -> SortedKeys:
        return SortedKeys(tuple(column.slice(start, end - start) for column in self.columns))

    def prefix(self, columns: int) -> SortedKeys:
        """The keys reduced to their first columns. They need not be distinct any more."""
        return SortedKeys(self.columns[:columns])

    def take(self, rows: Indices) -> SortedKeys:
        chosen = pa.array(rows)
        return SortedKeys(tuple(column.take(chosen) for column in self.columns))

    def below(self, keys: SortedKeys) -> Indices:
        """For each of `keys`, how many of these keys are less."""
        return self._count(keys, or_equal=False)

    def up_to(self, keys: SortedKeys) -> Indices:
        """For each of `keys`, how many of these keys are less or equal."""
        return self._count(keys, or_equal=True)

    def equal_at(self, positions: Indices, keys: SortedKeys) -> Flags:
        """Whether the key at each of these positions equals the one in `keys`; false for positions after the last key."""
        found = positions < len(self)
        if len(self) == 0:
            return found
        clipped = np.minimum(positions, len(self) - 1)
        for own, other in zip(self._searched, keys._searched, strict=True):
            found &= _holds("equal", _at(own, clipped), other)
        return found

    def ascends_at(self, positions: Indices) -> Flags:
        """Whether the key at each of these positions (at least 1) is greater than its predecessor."""
        return self._before(positions - 1, tuple(_at(column, positions) for column in self._searched), or_equal=False)

    def _count(self, keys: SortedKeys, *, or_equal: bool) -> Indices:
        """For each of `keys`, which need not be sorted or distinct, how many of these keys are less (or equal)."""
        if len(self._searched) == 1 and all(isinstance(side._searched[0], np.ndarray) for side in (self, keys)):
            return np.asarray(np.searchsorted(self._searched[0], keys._searched[0], "right" if or_equal else "left"), np.int64)
        low = np.zeros(len(keys), np.int64)
        high = np.full(len(keys), len(self), np.int64)
        while (unsettled := low < high).any():
            middle = (low + high) // 2
            before = unsettled & self._before(np.minimum(middle, len(self) - 1), keys._searched, or_equal)
            low = np.where(before, middle + 1, low)
            high = np.where(unsettled & ~before, middle, high)
        return low

    def _before(self, positions: Indices, keys: Sequence[_Column], or_equal: bool) -> Flags:
        """Whether the key at each position is less than (or equal to) the one in the columns `keys`."""
        before = np.zeros(len(positions), bool)
        equal = np.ones(len(positions), bool)
        for own, other in zip(self._searched, keys, strict=True):
            value = _at(own, positions)
            before |= equal & _holds("less", value, other)
            equal &= _holds("equal", value, other)
        return before | equal if or_equal else before

    @cached_property
    def _searched(self) -> tuple[_Column, ...]:
        return tuple(
            column.to_numpy().astype(np.int64, copy=False)
            if pa.types.is_integer(column.type) and not column.null_count
            else column
            for column in self.columns
        )


@dataclass(frozen=True)
class KeyBounds:
    """Bounds of the keys in consecutive blocks of sorted rows: all keys of a block are between its `lows` and `highs`.

    Bounds may be truncated, or cover only the first columns of the key. They show where to search, and prove nothing.
    """

    lows: SortedKeys
    highs: SortedKeys

    @staticmethod
    def of(lows: SortedKeys, highs: SortedKeys) -> KeyBounds:
        """The bounds, made ascending. Bounds that were computed column by column may not ascend, although the rows do."""
        low_ranks, high_ranks = ranks(order_words(lows.columns)), ranks(order_words(highs.columns))
        return KeyBounds(lows.take(_latest_greatest(low_ranks)), highs.take(_latest_greatest(~high_ranks[::-1], backwards=True)))

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(column.nbytes for side in (self.lows, self.highs) for column in side.columns)

    def blocks(self, keys: SortedKeys) -> tuple[Indices, Indices]:
        """For each of the keys, the first and the last block that may hold it or the rows next to it."""
        known = keys.prefix(len(self.lows.columns))
        first, last = self.highs.below(known), self.lows.up_to(known) - 1
        last_block = len(self.lows) - 1
        return np.clip(np.minimum(first, last), 0, last_block), np.clip(np.maximum(first, last), 0, last_block)


def _latest_greatest(words: Indices, backwards: bool = False) -> Indices:
    """For each position, the last position of the greatest word up to it. `backwards`: `words` and the result are reversed."""
    positions = np.arange(len(words))
    greatest = np.maximum.accumulate(np.where(words == np.maximum.accumulate(words), positions, 0))
    return len(words) - 1 - greatest[::-1] if backwards else greatest


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _at(column: _Column, positions: Indices) -> _Column:
    return column[positions] if isinstance(column, np.ndarray) else column.take(pa.array(positions))


def _holds(comparison: str, left: _Column, right: _Column) -> Flags:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.asarray(left < right if comparison == "less" else left == right)
    left, right = (pa.array(side) if isinstance(side, np.ndarray) else side for side in (left, right))
    held = pc.call_function(comparison, [left, right])
    if held.null_count:
        of_null = pc.is_valid(right) if comparison == "less" else pc.is_null(right)
        held = pc.coalesce(held, pc.and_(pc.is_null(left), of_null))
    return np.asarray(held.to_numpy(zero_copy_only=False), bool)
