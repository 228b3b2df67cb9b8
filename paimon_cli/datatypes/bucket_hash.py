"""Bucket hashes of whole columns: BinaryRow bytes and their Murmur3 hashes, vectorised (FORMAT.md, sections 5.1 and 6.2).

Each column contributes 64-bit words to a row: one for its slot, and any number for the variable part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.binary_row import header_size
from paimon_cli.datatypes.data_type import BinaryType, DataType, DecimalType, NestedType, StringType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.pieces import PIECES

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
"""Mask n keeps the n lowest bytes of a word, which come first in memory."""


class FieldWords(ABC):
    """The words that one column contributes to each row; all arrays have one item per row, or a single item for all rows.

    `slots`: the slot words, without the offset into the variable part; `points`: 1 if the slot needs such an offset, else 0;
    `tail_counts`: number of words in the variable part. `is_null` is None if no row is null.
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
        """Write the variable parts into `words`; that of row i starts at `words[starts[i]]`."""


def field_words(array: pa.Array | pa.ChunkedArray, t: DataType) -> FieldWords:
    """Words of a column of an atomic type. Raises `NotSupported` for nested types."""
    if isinstance(t, NestedType):
        raise NotSupported(f"keys of type {type_to_sql(t)} are not supported", "only columns of atomic types can choose a bucket")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type != arrow_type(t):
        array = array.cast(arrow_type(t))
    is_null = np.asarray(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else None
    if isinstance(t, (StringType, BinaryType)):
        return _ByteWords(array, is_null)
    if isinstance(t, DecimalType):
        return _decimal_words(array, t, is_null)
    if isinstance(t, TimestampType) and not t.is_compact:
        return _timestamp_words(_buffer(array, np.dtype(np.int64)), _PER_MILLI[array.type.unit], is_null)
    plain = array.cast(pa.uint8()) if t.root == "BOOLEAN" else array
    return _PlainWords(_slots_of(_buffer(plain, np.dtype(_STORAGE[t.root]))), is_null)


def _buffer(array: pa.Array, dtype: np.dtype[np.generic], width: int = 1) -> npt.NDArray[np.generic]:
    """The values of a fixed-width array, with `width` items each; undefined for nulls."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(width * len(array), dtype=dtype)
    begin = array.offset * width
    return np.frombuffer(data, dtype=dtype)[begin : begin + len(array) * width]


def _slots_of(values: npt.NDArray[np.generic]) -> _Words:
    """Slot words that hold each value in their first bytes and zeros after it."""
    return values.view(_UNSIGNED[values.dtype.itemsize]).astype(np.uint64)


def _cleared(words: _Words, is_null: _Flags | None) -> _Words:
    return words if is_null is None else np.where(is_null, np.uint64(0), words)


class _PlainWords(FieldWords):
    """Types that fit their slot."""

    def __init__(self, slots: _Words, is_null: _Flags | None) -> None:
        super().__init__(_cleared(slots, is_null), is_null)

    def write_tail(self, words: _Words, starts: _Ints) -> None:
        """Do nothing: these types have no variable part."""


class _FixedTail(FieldWords):
    """Types that occupy the same space in the variable part of every row, even of nulls."""

    def __init__(self, slots: _Words, tails: list[_Words], is_null: _Flags | None) -> None:
        super().__init__(_cleared(slots, is_null), is_null)
        self.points = np.ones(1, dtype=np.uint64)
        self.tail_counts = np.full(1, len(tails), dtype=np.int64)
        self._tails = [_cleared(tail, is_null) for tail in tails]

    def write_tail(self, words: _Words, starts: _Ints) -> None:
        for k, tail in enumerate(self._tails):
            words[starts + k] = tail


def _timestamp_words(values: npt.NDArray[np.generic], per_milli: int, is_null: _Flags | None) -> FieldWords:
    """Non-compact timestamps: floored millis in the variable part, nanoseconds within the milli in the slot."""
    millis, rest = np.divmod(values.view(np.int64), np.int64(per_milli))
    nanos = rest * np.int64(1_000_000 // per_milli)
    return _FixedTail(nanos.view(np.uint64), [millis.view(np.uint64)], is_null)


def _decimal_words(array: pa.Array, t: DataType, is_null: _Flags | None) -> FieldWords:
    pairs = _buffer(array, np.dtype(np.uint64), 2).view(np.uint64).reshape(-1, 2)
    low, high = pairs[:, 0], pairs[:, 1]
    if t.is_compact:
        return _PlainWords(low.copy(), is_null)
    sizes = _signed_sizes(low, high)
    # move the significant bytes to the front, most significant first: shift them up, then swap the bytes
    shift = np.uint64(8) * (np.uint64(16) - sizes)
    exceeds_low, bits = shift >= np.uint64(64), shift % np.uint64(64)
    carried = np.where(bits == 0, np.uint64(0), low >> (np.uint64(64) - np.maximum(bits, np.uint64(1))))
    first = np.where(exceeds_low, low << bits, high << bits | carried)
    second = np.where(exceeds_low, np.uint64(0), low << bits)
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
    """Item i is the word of the 8 bytes that start at byte `begin + i`, with zeros beyond `end`."""
    padded = np.zeros(end - begin + 9, dtype=np.uint8)
    if data is not None:
        padded[: end - begin] = np.frombuffer(data, dtype=np.uint8)[begin:end]
    return np.ndarray(shape=(end - begin + 1,), dtype="<u8", buffer=padded.data, strides=(1,))


_SEED = np.uint32(42)
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_FIVE, _ADD = np.uint32(5), np.uint32(0xE6546B64)
_MIX1, _MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def hash_rows(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> npt.NDArray[np.int32]:
    """Signed Murmur3 hash of the BinaryRow of each row; `arrays` are the key columns, at least one, of atomic types only."""
    hashes = np.empty(len(arrays[0]), dtype=np.uint32)
    for begin in range(0, len(hashes), PIECES.hashed_rows):
        rows = _binary_rows([array.slice(begin, PIECES.hashed_rows) for array in arrays], types)
        hashes[begin : begin + PIECES.hashed_rows] = _hash_uniform(rows) if rows.is_uniform else _hash_ragged(rows)
    return hashes.view(np.int32)


def hash_serialized(row: bytes) -> int:
    """Signed Murmur3 hash of one row in the form of `encode_rows`."""
    words = np.frombuffer(row, np.uint64, offset=4)
    counts = np.array([len(words)], np.int64)
    return int(_hash_uniform(_BinaryRows(words, np.zeros(1, np.int64), counts)).view(np.int32)[0])


def encode_rows(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> pa.Array:
    """Each row in the form of `serialize_row`, as a binary array without nulls; at least one column, atomic types only."""
    blocks = range(0, len(arrays[0]), PIECES.hashed_rows)
    parts = [
        _serialized(_binary_rows([array.slice(begin, PIECES.hashed_rows) for array in arrays], types), len(types))
        for begin in blocks
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _serialized(rows: _BinaryRows, arity: int) -> pa.Array:
    """The rows preceded by their arity, which takes half a word."""
    starts = np.zeros(len(rows.counts) + 1, dtype=np.int64)
    np.cumsum(2 * rows.counts + 1, out=starts[1:])
    halves = np.empty(starts[-1], dtype=np.uint32)
    is_content = np.ones(starts[-1], dtype=bool)
    is_content[starts[:-1]] = False
    halves[starts[:-1]] = np.uint32(arity).byteswap()
    halves[is_content] = rows.words.view(np.uint32)
    offsets = pa.array(4 * starts, pa.int32())
    return pa.Array.from_buffers(pa.binary(), len(rows.counts), [None, offsets.buffers()[1], pa.py_buffer(halves)])


@dataclass(frozen=True)
class _BinaryRows:
    """Encoded rows without arity; row i is `words[starts[i] : starts[i] + counts[i]]`."""

    words: _Words
    starts: _Ints
    counts: _Ints

    @property
    def is_uniform(self) -> bool:
        """Whether all rows are of equal length."""
        return bool((self.counts == self.counts[:1]).all())


def _binary_rows(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> _BinaryRows:
    fields = [field_words(array, t) for array, t in zip(arrays, types, strict=True)]
    rows, header = len(arrays[0]), header_size(len(types)) // 8
    counts = np.full(rows, header + len(fields), dtype=np.int64)
    offsets: list[_Ints] = []
    for field in fields:
        offsets.append(counts.copy() if field.has_tail else counts)
        if field.has_tail:
            counts += field.tail_counts
    starts = np.zeros(rows, dtype=np.int64)
    np.cumsum(counts[:-1], out=starts[1:])
    words = np.zeros(int(counts.sum()), dtype=np.uint64)
    for i, (field, offset) in enumerate(zip(fields, offsets, strict=True)):
        _set_null_bits(words, starts, field, i)
        words[starts + (header + i)] = field.slots | (offset.astype(np.uint64) << np.uint64(35)) * field.points
        if field.has_tail:
            field.write_tail(words, starts + offset)
    return _BinaryRows(words, starts, counts)


def _set_null_bits(words: _Words, starts: _Ints, field: FieldWords, index: int) -> None:
    if field.is_null is not None:
        word, bit = divmod(index + 8, 64)
        words[starts[field.is_null] + word] |= np.uint64(1 << bit)


def _hash_uniform(rows: _BinaryRows) -> npt.NDArray[np.uint32]:
    """Hashes of rows of equal length."""
    halves = rows.words.view(np.uint32).reshape(len(rows.counts), -1)
    h = np.full(len(rows.counts), _SEED, dtype=np.uint32)
    for half in np.ascontiguousarray(halves.T):
        _mix(h, half)
    return _finish(h, np.uint32(8 * rows.counts[0]))


def _hash_ragged(rows: _BinaryRows) -> npt.NDArray[np.uint32]:
    """Hashes of rows of different lengths, processed by descending length: unfinished rows are always a prefix."""
    halves = rows.words.view(np.uint32).reshape(-1, 2)
    order = np.argsort(-rows.counts, kind="stable")
    position, lengths = rows.starts[order], rows.counts[order]
    h = np.full(len(lengths), _SEED, dtype=np.uint32)
    for k, unfinished in enumerate(np.searchsorted(-lengths, -np.arange(1, lengths[0] + 1), side="right")):
        pair = halves[position[:unfinished] + k]
        _mix(h[:unfinished], np.ascontiguousarray(pair[:, 0]))
        _mix(h[:unfinished], np.ascontiguousarray(pair[:, 1]))
    hashes = np.empty_like(h)
    hashes[order] = _finish(h, (8 * lengths).astype(np.uint32))
    return hashes


def _mix(h: npt.NDArray[np.uint32], half: npt.NDArray[np.uint32]) -> None:
    """One Murmur3 step on `h`, in place."""
    k = half * _C1
    k = _rotated(k, 15)
    k *= _C2
    h ^= k
    h[:] = _rotated(h, 13)
    h *= _FIVE
    h += _ADD


def _rotated(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    rotated = words << np.uint32(bits)
    rotated |= words >> np.uint32(32 - bits)
    return rotated


def _finish(h: npt.NDArray[np.uint32], byte_length: np.uint32 | npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    h ^= byte_length
    h ^= h >> np.uint32(16)
    h *= _MIX1
    h ^= h >> np.uint32(13)
    h *= _MIX2
    h ^= h >> np.uint32(16)
    return h
