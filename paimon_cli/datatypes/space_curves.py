"""Z-order and Hilbert curve indexes of rows, by which sorted files cluster several columns at once.

The bytes equal those of Paimon (Java ZIndexer, HilbertIndexer), including their peculiarities: z-order uses the leading bytes of
decimals, and does not order negative floats by their low bits; the Hilbert curve treats integers as unsigned, which puts negative
ones last, and short strings as small numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import INTEGER_ROOTS, BinaryType, DataType, DecimalType, NestedType, StringType, TimestampType

Bytes = np.ndarray
"""Array of uint8, shape (rows, width): the bytes of each row, most significant first."""

HILBERT_BITS = 63
_SIGN = np.int64(np.iinfo(np.int64).min)
_WIDTH = 8
_DECIMAL_WIDTH = 16


def z_order(columns: Sequence[pa.Array], types: Sequence[DataType], text_bytes: int = _WIDTH) -> pa.Array:
    """The interleaved bits of all columns, as a binary array. `text_bytes`: length to which strings and binaries are cut."""
    bits = [np.unpackbits(_z_bytes(column, t, text_bytes), axis=1) for column, t in zip(columns, types, strict=True)]
    lengths = [part.shape[1] for part in bits]
    starts = np.cumsum([0, *lengths[:-1]])
    turns = [start + bit for bit in range(max(lengths)) for start, length in zip(starts, lengths, strict=True) if bit < length]
    return _binary(np.packbits(np.concatenate(bits, axis=1)[:, turns], axis=1))


def hilbert(columns: Sequence[pa.Array], types: Sequence[DataType]) -> pa.Array:
    """The distance of each row along a Hilbert curve with 63 bits per dimension, as a big-endian number in a binary array."""
    axes = [_axis(column, t) for column, t in zip(columns, types, strict=True)]
    bits = [np.unpackbits(_big_endian(axis), axis=1)[:, 64 - HILBERT_BITS :] for axis in _transposed(axes)]
    in_turn = np.stack(bits, axis=2).reshape(len(axes[0]), HILBERT_BITS * len(axes))
    padding = -in_turn.shape[1] % 8
    return _binary(np.packbits(np.pad(in_turn, ((0, 0), (padding, 0))), axis=1))


def _transposed(axes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """From coordinates to the transposed distance (J. Skilling, "Programming the Hilbert curve", 2004), for all rows at once."""
    x = list(axes)
    flips: np.ndarray | np.int64 = np.int64(0)
    for bit in range(HILBERT_BITS - 1, 0, -1):
        one, below = np.int64(1 << bit), np.int64((1 << bit) - 1)
        x[0] = np.where(x[0] & one, x[0] ^ below, x[0])
        for number in range(1, len(x)):
            is_set, swapped = (x[number] & one) != 0, (x[0] ^ x[number]) & below
            x[0] = np.where(is_set, x[0] ^ below, x[0] ^ swapped)
            x[number] = np.where(is_set, x[number], x[number] ^ swapped)
    for number in range(1, len(x)):
        x[number] = x[number] ^ x[number - 1]
    for bit in range(HILBERT_BITS - 1, 0, -1):
        flips = np.where(x[-1] & np.int64(1 << bit), flips ^ np.int64((1 << bit) - 1), flips)
    return [axis ^ flips for axis in x]


def fits_curve(t: DataType) -> bool:
    """Whether columns of the type can be indexed by the curves."""
    return not isinstance(t, NestedType) and (t.root in INTEGER_ROOTS or t.root in _OTHER_ROOTS or _is_text(t))


_OTHER_ROOTS = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", "DATE", "TIME", "DECIMAL", "TIMESTAMP", "TIMESTAMP_LTZ"})


def _is_text(t: DataType) -> bool:
    return isinstance(t, (StringType, BinaryType))


def _z_bytes(column: pa.Array, t: DataType, text_bytes: int) -> Bytes:
    if _is_text(t):
        found = _first_bytes(column, text_bytes)
    elif t.root == "BOOLEAN":
        found = np.zeros((len(column), _WIDTH), np.uint8)
        found[:, 0] = np.where(column.fill_null(False).to_numpy(zero_copy_only=False), 0x81, 0)
    elif isinstance(t, DecimalType):
        found = _leading(_unscaled(column))
    elif t.root in ("FLOAT", "DOUBLE"):
        raw = _float_bits(column)
        found = _big_endian(raw ^ ((raw >> 31) | _SIGN))
    else:
        found = _big_endian(_numbers(column, t) ^ _SIGN)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def _axis(column: pa.Array, t: DataType) -> np.ndarray:
    """The Hilbert coordinate (int64) of each row; null is the greatest."""
    if _is_text(t):
        first = _first_bytes(column, _WIDTH)
        lengths = np.minimum(pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False), _WIDTH).astype(np.int64)
        numbers = first.view(">u8").reshape(len(column)).astype(np.uint64)
        shift = np.where(lengths == 0, 0, 8 * (_WIDTH - lengths)).astype(np.uint64)
        found = (numbers >> shift).view(np.int64)
    elif t.root == "BOOLEAN":
        found = np.where(column.fill_null(False).to_numpy(zero_copy_only=False), np.iinfo(np.int64).max, np.int64(0))
    elif isinstance(t, DecimalType):
        whole = pc.trunc(column).cast(pa.decimal128(38, 0), safe=False)
        found = np.ascontiguousarray(_unscaled(whole)[:, 8:]).view(">i8").reshape(len(column)).astype(np.int64)
    elif t.root in ("FLOAT", "DOUBLE"):
        found = _float_bits(column)
    elif t.root == "TINYINT":
        found = _numbers(column, t) & 0xFF
    else:
        found = _numbers(column, t)
    if column.null_count:
        found = np.where(column.is_null().to_numpy(zero_copy_only=False), np.iinfo(np.int64).max, found)
    return found


def _numbers(column: pa.Array, t: DataType) -> np.ndarray:
    """Values as int64: integers, days, millis of the day or epoch millis; 0 for null."""
    if isinstance(t, TimestampType):
        ticks = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return ticks // {"ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    stored = column.view(pa.int32()) if t.root in ("DATE", "TIME") else column
    return stored.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _float_bits(column: pa.Array) -> np.ndarray:
    """Java's `Double.doubleToLongBits`, which maps every NaN to the same bits."""
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    return np.where(np.isnan(values), np.nan, values).view(np.int64)


def _big_endian(numbers: np.ndarray) -> Bytes:
    return np.ascontiguousarray(numbers.astype(">i8")).view(np.uint8).reshape(len(numbers), _WIDTH)


def _first_bytes(column: pa.Array, width: int) -> Bytes:
    """The first `width` bytes of each value, padded with zeros."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    positions = bounds[:-1, None] + np.arange(width)
    return np.where(positions < bounds[1:, None], content[np.minimum(positions, len(content) - 1)], 0).astype(np.uint8)


def _unscaled(column: pa.Array) -> Bytes:
    """The unscaled values of decimals as 16 bytes."""
    stored = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, _DECIMAL_WIDTH)
    return stored[column.offset : column.offset + len(column), ::-1]


def _leading(numbers: Bytes) -> Bytes:
    """The first 8 bytes of the shortest two's complement form of each number, padded with zeros."""
    fill = np.where(numbers[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    is_fill = numbers == fill
    # a leading byte is redundant if the next byte has the same sign
    redundant = is_fill[:, :-1] & ((numbers[:, 1:] ^ fill) < 0x80)
    first = np.where(redundant.all(axis=1), redundant.shape[1], np.argmin(redundant, axis=1))
    positions = first[:, None] + np.arange(_WIDTH)
    taken = np.take_along_axis(numbers, np.minimum(positions, numbers.shape[1] - 1), axis=1)
    return np.where(positions < numbers.shape[1], taken, 0).astype(np.uint8)


def _binary(rows: Bytes) -> pa.Array:
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))])
