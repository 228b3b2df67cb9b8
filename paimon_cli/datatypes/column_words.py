"""One column of binary rows as 64-bit words: the slot of each row and its share of the variable part (FORMAT.md, section 5.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import BINARY_ROOTS, STRING_ROOTS, TIMESTAMP_ROOTS, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported

_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_STORAGE = {
    "BOOLEAN": np.uint8,
    "TINYINT": np.int8,
    "SMALLINT": np.int16,
    "INT": np.int32,
    "DATE": np.int32,
    "TIME": np.int32,
    "BIGINT": np.int64,
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "TIMESTAMP": np.int64,
    "TIMESTAMP_LTZ": np.int64,
}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_PER_MILLI = {"us": 1_000, "ns": 1_000_000}
_INLINE_LIMIT = 7
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
"""Masks that keep the first n bytes of a word."""


class FieldWords(ABC):
    """What one column puts into each row.

    `slots`: the slot words without the offset of a variable part; `points`: 1 where the slot has such an offset;
    `tail_counts`: words in the variable part. `is_null` is None when no row is null.
    """

    def __init__(self, slots: _Words, is_null: _Flags | None) -> None:
        self.slots = slots
        self.is_null = is_null
        self.points: _Words = np.zeros(1, dtype=np.uint64)
        self.tail_counts: _Ints = np.zeros(1, dtype=np.int64)

    @property
    def has_tail(self) -> bool:
        return bool(self.tail_counts.any())

    @abstractmethod
    def write_tail(self, words: _Words, starts: _Ints) -> None:
        """Put the variable parts into `words`; that of row i starts at `starts[i]`."""


def field_words(array: pa.Array | pa.ChunkedArray, t: DataType) -> FieldWords:
    """Words of a column of an atomic type. Raises `NotSupported` for nested types."""
    if t.is_nested:
        raise NotSupported(f"keys of type {type_to_sql(t)} are not supported", "only columns of atomic types can choose a bucket")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type != arrow_type(t):
        array = array.cast(arrow_type(t))
    is_null = np.asarray(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else None
    if t.root in STRING_ROOTS or t.root in BINARY_ROOTS:
        return _ByteWords(array, is_null)
    if t.root == "DECIMAL":
        return _decimal_words(array, t, is_null)
    if t.root in TIMESTAMP_ROOTS and not t.is_compact:
        return _timestamp_words(_buffer(array, np.dtype(np.int64)), _PER_MILLI[array.type.unit], is_null)
    plain = array.cast(pa.uint8()) if t.root == "BOOLEAN" else array
    return _PlainWords(_slots_of(_buffer(plain, np.dtype(_STORAGE[t.root]))), is_null)


def _buffer(array: pa.Array, dtype: np.dtype[np.generic], width: int = 1) -> npt.NDArray[np.generic]:
    """The values of a fixed-width array, `width` items each; anything below nulls."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(width * len(array), dtype=dtype)
    begin = array.offset * width
    return np.frombuffer(data, dtype=dtype)[begin : begin + len(array) * width]


def _slots_of(values: npt.NDArray[np.generic]) -> _Words:
    """Values at the beginning of an otherwise empty slot."""
    return values.view(_UNSIGNED[values.dtype.itemsize]).astype(np.uint64)


def _cleared(words: _Words, is_null: _Flags | None) -> _Words:
    return words if is_null is None else np.where(is_null, np.uint64(0), words)


class _PlainWords(FieldWords):
    """Types that fit their slot."""

    def __init__(self, slots: _Words, is_null: _Flags | None) -> None:
        super().__init__(_cleared(slots, is_null), is_null)

    def write_tail(self, words: _Words, starts: _Ints) -> None:
        """Nothing: there is no variable part."""


class _FixedTail(FieldWords):
    """Types with the same room in the variable part of every row, nulls too."""

    def __init__(self, slots: _Words, tails: list[_Words], is_null: _Flags | None) -> None:
        super().__init__(_cleared(slots, is_null), is_null)
        self.points = np.ones(1, dtype=np.uint64)
        self.tail_counts = np.full(1, len(tails), dtype=np.int64)
        self._tails = [_cleared(tail, is_null) for tail in tails]

    def write_tail(self, words: _Words, starts: _Ints) -> None:
        for k, tail in enumerate(self._tails):
            words[starts + k] = tail


def _timestamp_words(values: npt.NDArray[np.generic], per_milli: int, is_null: _Flags | None) -> FieldWords:
    """Floored millis in the variable part, nanoseconds of the milli in the slot."""
    millis, rest = np.divmod(values.view(np.int64), np.int64(per_milli))
    nanos = rest * np.int64(1_000_000 // per_milli)
    return _FixedTail(nanos.view(np.uint64), [millis.view(np.uint64)], is_null)


def _decimal_words(array: pa.Array, t: DataType, is_null: _Flags | None) -> FieldWords:
    pairs = _buffer(array, np.dtype(np.uint64), 2).view(np.uint64).reshape(-1, 2)
    low, high = pairs[:, 0], pairs[:, 1]
    if t.is_compact:
        return _PlainWords(low.copy(), is_null)
    sizes = _signed_sizes(low, high)
    # the significant bytes go to the front: shift them up, then turn the words round
    shift = np.uint64(8) * (np.uint64(16) - sizes)
    far, near = shift >= np.uint64(64), shift % np.uint64(64)
    carried = np.where(near == 0, np.uint64(0), low >> (np.uint64(64) - np.maximum(near, np.uint64(1))))
    first = np.where(far, low << near, high << near | carried)
    second = np.where(far, np.uint64(0), low << near)
    return _FixedTail(sizes, [first.byteswap(), second.byteswap()], is_null)


def _signed_sizes(low: _Words, high: _Words) -> _Words:
    """Bytes of the shortest two's complement form of 128-bit numbers."""
    sign = (high.view(np.int64) >> np.int64(63)).view(np.uint64)
    low, high = low ^ sign, high ^ sign
    sizes = np.ones(len(low), dtype=np.uint64)
    for size in range(1, 9):
        sizes += (high != 0) | (low >= np.uint64(1 << 8 * size - 1))
    for size in range(9, 16):
        sizes += high >= np.uint64(1 << 8 * (size - 8) - 1)
    return sizes


class _ByteWords(FieldWords):
    """Strings and binaries: up to 7 bytes inside the slot, longer ones in the variable part."""

    def __init__(self, array: pa.Array, is_null: _Flags | None) -> None:
        offsets = _buffer_of_offsets(array)
        lengths = np.diff(offsets)
        if is_null is not None:
            lengths = np.where(is_null, 0, lengths)
        self._bytes = _any_word(array.buffers()[2], int(offsets[0]), int(offsets[-1]))
        self._begins = offsets[:-1] - offsets[0]
        self._lengths = lengths
        is_long = lengths > _INLINE_LIMIT
        sizes = lengths.astype(np.uint64)
        inline = self._bytes[self._begins] & _LOW_BYTES[np.minimum(lengths, _INLINE_LIMIT)]
        slots = np.where(is_long, sizes, inline | (sizes | np.uint64(0x80)) << np.uint64(56))
        super().__init__(_cleared(slots, is_null), is_null)
        self.points = is_long.astype(np.uint64)
        self.tail_counts = np.where(is_long, (lengths + 7) >> 3, 0)

    def write_tail(self, words: _Words, starts: _Ints) -> None:
        rows = np.flatnonzero(self.tail_counts)
        counts = self.tail_counts[rows]
        ends = np.cumsum(counts)
        number = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - counts, counts)
        source = np.repeat(self._begins[rows], counts) + 8 * number
        left = np.repeat(self._lengths[rows], counts) - 8 * number
        words[np.repeat(starts[rows], counts) + number] = self._bytes[source] & _LOW_BYTES[np.minimum(left, 8)]


def _buffer_of_offsets(array: pa.Array) -> _Ints:
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array) + 1, dtype=np.int64)
    return np.frombuffer(data, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _any_word(data: pa.Buffer | None, begin: int, end: int) -> _Words:
    """Item i holds the 8 bytes from byte `begin + i` on, zeros behind `end`."""
    padded = np.zeros(end - begin + 9, dtype=np.uint8)
    if data is not None:
        padded[: end - begin] = np.frombuffer(data, dtype=np.uint8)[begin:end]
    return np.ndarray(shape=(end - begin + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
