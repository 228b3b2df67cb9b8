"""Serialised keys of many files as integers in key order, without decoding each key (FORMAT.md, sections 5.1 and 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paimon_cli.datatypes.binary_row import header_size
from paimon_cli.datatypes.data_type import BINARY_ROOTS, STRING_ROOTS, TIMESTAMP_ROOTS, DataType

_Ints = npt.NDArray[np.int64]
WordsAt = Callable[[_Ints | int], _Ints]
"""The eight bytes at an offset of each row, little-endian; zeros behind its end."""

_ARITY_SIZE = 4
_NARROW = {"TINYINT": np.int8, "SMALLINT": np.int16, "INT": np.int32, "DATE": np.int32, "TIME": np.int32}
_MOST_COLUMNS = 56
"""So many have their null bits in the first eight bytes, behind the row kind."""
_LONGEST = 256
_LOW_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)
_SIGN = np.uint64(1 << 63)


def key_words(words_at: WordsAt, lengths: _Ints, types: Sequence[DataType]) -> list[_Ints] | None:
    """Columns of words, the first one deciding first, that order as the rows do. `lengths`: bytes of each row.

    None where a row is not a plain key (nulls, another arity, a value outside of it), or a type or length is not provided for.
    """
    arity = int.from_bytes(len(types).to_bytes(4, "big"), "little")
    slots = _ARITY_SIZE + header_size(len(types))
    if len(types) > _MOST_COLUMNS or (lengths < slots + 8 * len(types)).any():
        return None
    if (words_at(0) & 0xFFFFFFFF != arity).any() or (words_at(_ARITY_SIZE).view(np.uint64) >> np.uint64(8)).any():
        return None
    columns: list[_Ints] = []
    for place, t in enumerate(types):
        words = _column_words(words_at, lengths, slots + 8 * place, t)
        if words is None:
            return None
        columns += words
    return columns


def ranks(columns: Sequence[_Ints]) -> _Ints:
    """One integer a row that orders as the columns of words do, and is equal where they are."""
    deciding = [column for column in columns if (column != column[:1]).any()]
    if len(deciding) <= 1:
        return deciding[0] if deciding else np.zeros(len(columns[0]) if columns else 0, dtype=np.int64)
    order = np.lexsort(deciding[::-1])
    steps = np.zeros(len(order), dtype=bool)
    for column in deciding:
        ordered = column[order]
        steps[1:] |= ordered[1:] != ordered[:-1]
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(steps)
    return found


def _column_words(words_at: WordsAt, lengths: _Ints, slot: int, t: DataType) -> list[_Ints] | None:
    words = words_at(slot)
    if t.root in _NARROW:
        return [words.astype(_NARROW[t.root]).astype(np.int64)]
    if t.root == "BOOLEAN":
        return [(words & 0xFF != 0).astype(np.int64)]
    if t.root == "BIGINT" or (t.root in TIMESTAMP_ROOTS | {"DECIMAL"} and t.is_compact):
        return [words]
    if t.root == "FLOAT":
        return [_float_order(words.astype(np.int32).view(np.float32).astype(np.float64))]
    if t.root == "DOUBLE":
        return [_float_order(words.view(np.float64))]
    if t.root in TIMESTAMP_ROOTS:
        begins = _ARITY_SIZE + (words >> 32)
        return None if _outside(begins, 8, lengths) else [words_at(begins), words & 0xFFFFFFFF]
    if t.root in STRING_ROOTS or t.root in BINARY_ROOTS:
        return _bytes_words(words_at, lengths, slot, words)
    return None


def _float_order(values: npt.NDArray[np.float64]) -> _Ints:
    bits = np.where(np.isnan(values), np.int64(0x7FF8000000000000), values.view(np.int64))
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _bytes_words(words_at: WordsAt, lengths: _Ints, slot: int, words: _Ints) -> list[_Ints] | None:
    """Big-endian words of the bytes, then their number: it tells a shorter value from the same one followed by zeros."""
    marks = words.view(np.uint64) >> np.uint64(56)
    inline = marks >= 0x80
    sizes = np.where(inline, (marks & np.uint64(0x7F)).view(np.int64), words & 0xFFFFFFFF)
    begins = np.where(inline, slot, _ARITY_SIZE + (words >> 32))
    longest = int(sizes.max(initial=0))
    if longest > _LONGEST or _outside(begins, sizes, lengths):
        return None
    found = []
    for offset in range(0, longest, 8):
        kept = words_at(begins + offset).view(np.uint64) & _LOW_BYTES[np.clip(sizes - offset, 0, 8)]
        found.append((kept.byteswap() ^ _SIGN).view(np.int64))
    return [*found, sizes]


def _outside(begins: _Ints, sizes: _Ints | int, lengths: _Ints) -> bool:
    return bool(((begins < 0) | (begins + sizes > lengths)).any())
