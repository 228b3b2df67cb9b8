"""The total order of primary keys (FORMAT.md, section 7.3), vectorised: each key column becomes one int64 word per row.

Strings and binaries compare by unsigned bytes, FLOAT and DOUBLE as Java's `compare` (-0.0 < 0.0, NaN greatest).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Key = tuple[Any, ...]
"""One key as comparable Python values; keys of one table compare with `<`."""


def comparable(column: pa.Array) -> pa.Array:
    """The column as integers, strings, binaries or decimals whose natural order is Paimon's."""
    t = column.type
    if pa.types.is_boolean(t):
        return column.cast(pa.int8())
    if pa.types.is_floating(t):
        return _float_order(column)
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return column.view(pa.int32())
    if pa.types.is_timestamp(t):
        return column.view(pa.int64())
    return column


def _float_order(column: pa.Array) -> pa.Array:
    """IEEE bits bent so that integer order is Java's order; every NaN becomes the canonical, greatest one."""
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    bits = np.where(np.isnan(values), np.float64("nan"), values).view(np.int64)
    bits = np.where(np.isnan(values), np.int64(0x7FF8000000000000), bits)
    return pa.array(np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits), pa.int64())


def order_words(columns: Sequence[pa.Array]) -> list[np.ndarray]:
    """One int64 array per column, comparable within this call only: long values are replaced by their dense rank."""
    return [_word(comparable(column)) for column in columns]


def _word(column: pa.Array) -> np.ndarray:
    if pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64, copy=False)


def null_first_words(column: pa.Array, descending: bool = False) -> list[np.ndarray]:
    """Order words of a nullable column, most significant first; null is the smallest in either direction (Java SortSpec)."""
    present = column.drop_null()
    word = _word(comparable(present))
    word = ~word if descending else word
    if column.null_count == 0:
        return [word]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    filled = np.zeros(len(column), dtype=np.int64)
    filled[valid] = word
    return [valid.astype(np.int64), filled]


def is_sorted(words: Sequence[np.ndarray]) -> bool:
    """Whether the rows are in non-descending order already."""
    undecided = np.ones(max(len(words[0]) - 1, 0), dtype=bool)
    for word in words:
        if bool(np.any(undecided & (word[1:] < word[:-1]))):
            return False
        undecided &= word[1:] == word[:-1]
    return True


def group_starts(words: Sequence[np.ndarray]) -> np.ndarray:
    """First row numbers of each run of equal keys; the rows must be sorted."""
    count = len(words[0])
    if count == 0:
        return np.empty(0, dtype=np.int64)
    changed = np.zeros(count, dtype=bool)
    changed[0] = True
    for word in words:
        changed[1:] |= word[1:] != word[:-1]
    return np.flatnonzero(changed)


def key_at(columns: Sequence[pa.Array], row: int) -> Key:
    """The key of one row; `columns` come from `comparable`."""
    return tuple(column[row].as_py() for column in columns)


def count_up_to(columns: Sequence[pa.Array], key: Key) -> int:
    """How many rows of the sorted `comparable` columns are <= `key`: a binary search over rows."""
    low, high = 0, len(columns[0])
    while low < high:
        middle = (low + high) // 2
        if key_at(columns, middle) <= key:
            low = middle + 1
        else:
            high = middle
    return low


def comparable_key(values: Sequence[Any]) -> Key:
    """A key decoded from a manifest as comparable Python values (floats by Java's order, the rest as they are)."""
    return tuple(_float_rank(value) if isinstance(value, float) else value for value in values)


def _float_rank(value: float) -> int:
    bits = int(np.float64(value).view(np.int64)) if value == value else 0x7FF8000000000000
    return bits ^ 0x7FFFFFFFFFFFFFFF if bits < 0 else bits
