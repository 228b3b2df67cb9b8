"""Buckets of whole columns: BinaryRow bytes and their Murmur3 hashes, vectorised (FORMAT.md, sections 5.1 and 6.2).

Rows are built as little-endian 64-bit words, which every part of a BinaryRow is padded to, one row behind the other. `binary_row`
does the same for single rows; both must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.datatypes.binary_row import header_size
from paimon_cli.datatypes.column_words import FieldWords, field_words
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.options.table_options import HASHED

_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]

_SEED = np.uint32(42)
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_FIVE, _ADD = np.uint32(5), np.uint32(0xE6546B64)
_MIX1, _MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_BLOCK = 1 << 15
"""Rows worked on at once, so that the working arrays stay in the processor's cache."""


def hash_rows(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> npt.NDArray[np.int32]:
    """Signed hash of the BinaryRow of each row; one array per key column, at least one, atomic types only."""
    hashes = np.empty(len(arrays[0]), dtype=np.uint32)
    for begin in range(0, len(hashes), _BLOCK):
        rows = _binary_rows([array.slice(begin, _BLOCK) for array in arrays], types)
        hashes[begin : begin + _BLOCK] = _hash_uniform(rows) if rows.is_uniform else _hash_ragged(rows)
    return hashes.view(np.int32)


def bucket_of(hashes: npt.NDArray[np.int32], total_buckets: int) -> npt.NDArray[np.int32]:
    """Bucket of each hash: the magnitude of Java's truncating remainder."""
    return (np.abs(hashes.astype(np.int64)) % total_buckets).astype(np.int32)


def row_buckets(
    arrays: Sequence[pa.Array], types: Sequence[DataType], total_buckets: int, function: str = HASHED
) -> npt.NDArray[np.int32]:
    """Bucket of each row by its bucket key, under one of `BUCKET_FUNCTIONS`; arguments as for `hash_rows`."""
    if function == HASHED:
        return bucket_of(hash_rows(arrays, types), total_buckets)
    numbers = arrays[0].fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.mod(numbers, total_buckets).astype(np.int32)


def encode_rows(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> pa.Array:
    """`serialize_row` of each row as a binary array without nulls; one array per column, at least one, atomic types only."""
    blocks = range(0, len(arrays[0]), _BLOCK)
    parts = [_serialized(_binary_rows([array.slice(begin, _BLOCK) for array in arrays], types), len(types)) for begin in blocks]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _serialized(rows: _BinaryRows, arity: int) -> pa.Array:
    """The rows with the arity in front, which takes one half word each."""
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
    """All rows in `words`; row i has `counts[i]` words from `starts[i]` on."""

    words: _Words
    starts: _Ints
    counts: _Ints

    @property
    def is_uniform(self) -> bool:
        return len(self.counts) > 0 and len(self.words) == len(self.counts) * int(self.counts[0])


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
    """All rows are equally long."""
    halves = rows.words.view(np.uint32).reshape(len(rows.counts), -1)
    h = np.full(len(rows.counts), _SEED, dtype=np.uint32)
    for half in np.ascontiguousarray(halves.T):
        _mix(h, half)
    return _finish(h, np.uint32(8 * rows.counts[0]))


def _hash_ragged(rows: _BinaryRows) -> npt.NDArray[np.uint32]:
    """The longest rows come first, so that the rows still going on are always the first ones."""
    halves = rows.words.view(np.uint32).reshape(-1, 2)
    order = np.argsort(-rows.counts, kind="stable")
    position, lengths = rows.starts[order], rows.counts[order]
    h = np.full(len(lengths), _SEED, dtype=np.uint32)
    for k, going_on in enumerate(np.searchsorted(-lengths, -np.arange(1, lengths[0] + 1), side="right")):
        pair = halves[position[:going_on] + k]
        _mix(h[:going_on], np.ascontiguousarray(pair[:, 0]))
        _mix(h[:going_on], np.ascontiguousarray(pair[:, 1]))
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
