"""Bucket functions, vectorised: Murmur3 hash, remainder, and Hive's hash (FORMAT.md, section 6.2; Java BucketFunction)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.datatypes.data_type import BinaryType, DataType, DecimalType, NestedType, StringType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.options.table_options import HIVE, MODULO
from paimon_cli.pieces import PIECES

_Hashes = npt.NDArray[np.uint32]
_FACTOR = np.uint32(31)
_NAN = {"FLOAT": 0x7FC00000, "DOUBLE": 0x7FF8000000000000}
"""Java's canonical bits of NaN."""
BucketCounts = int | npt.NDArray[np.int64]
"""The number of buckets: one for all rows, or one per row."""


def row_buckets(
    arrays: Sequence[pa.Array], types: Sequence[DataType], total_buckets: BucketCounts, function: str
) -> npt.NDArray[np.int32]:
    """Bucket of each row by one of `BUCKET_FUNCTIONS`; `arrays` are the columns of the bucket key, at least one.

    Raises `NotSupported` if the function is not defined for keys of these types.
    """
    why_not = bucket_key_limit(function, types)
    if why_not is not None:
        raise NotSupported(f"bucket-function.type={function} gives these keys no bucket", why_not)
    if function == MODULO:
        return np.mod(arrays[0].fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), total_buckets).astype(np.int32)
    if function == HIVE:
        return ((hive_hashes(arrays, types) & np.uint32(0x7FFFFFFF)).astype(np.int64) % total_buckets).astype(np.int32)
    return bucket_of(hash_rows(arrays, types), total_buckets)


def bucket_key_limit(function: str, types: Sequence[DataType]) -> str | None:
    """Why a bucket function is not defined for keys of these types; None if it is."""
    if function == MODULO and [t.root for t in types] not in (["INT"], ["BIGINT"]):
        return "it divides whole numbers and needs one bucket key of type INT or BIGINT"
    unhashable = (NestedType, TimestampType) if function == HIVE else NestedType
    unsupported = next((t for t in types if isinstance(t, unhashable)), None)
    return None if unsupported is None else f"a {type_to_sql(unsupported.with_nullable(True))} has no hash there"


def bucket_of(hashes: npt.NDArray[np.int32], total_buckets: BucketCounts) -> npt.NDArray[np.int32]:
    """Bucket of each hash: the magnitude of Java's truncating remainder."""
    return (np.abs(hashes.astype(np.int64)) % total_buckets).astype(np.int32)


def hive_hashes(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> _Hashes:
    """Hive's hash of each row, as Paimon computes it: a polynomial in 31 over the hashes of the columns; a null counts as 0."""
    hashes = np.zeros(len(arrays[0]), np.uint32)
    for begin in range(0, len(hashes), PIECES.hashed_rows):
        block = hashes[begin : begin + PIECES.hashed_rows]
        for array, t in zip(arrays, types, strict=True):
            part = array.slice(begin, PIECES.hashed_rows)
            block *= _FACTOR
            block += _column_hashes(part if part.type == arrow_type(t) else part.cast(arrow_type(t)), t)
    return hashes


def _column_hashes(array: pa.Array, t: DataType) -> _Hashes:
    if isinstance(t, (StringType, BinaryType)):
        return _byte_hashes(array)
    if isinstance(t, DecimalType):
        return _decimal_hashes(array, t.scale)
    if t.root in _NAN:
        return _float_hashes(array, _NAN[t.root])
    if t.root == "BIGINT":
        return _folded(array.fill_null(0).to_numpy().view(np.uint64))
    numbers = array.view(pa.int32()) if t.root in ("DATE", "TIME") else array.cast(pa.int32())
    return _column(numbers.fill_null(0), np.dtype(np.int32)).view(np.uint32)


def _column(array: pa.Array, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype)


def _folded(longs: npt.NDArray[np.uint64]) -> _Hashes:
    """Java's `Long.hashCode` of each value."""
    return (longs ^ longs >> np.uint64(32)).astype(np.uint32)


def _float_hashes(array: pa.Array, nan: int) -> _Hashes:
    """Hashes of FLOAT or DOUBLE values; 0.0 and -0.0 have the same hash, and so have all NaNs."""
    values = array.fill_null(0.0).to_numpy()
    bits = values.view(f"u{values.itemsize}")
    bits = np.where(values == 0, bits.dtype.type(0), np.where(np.isnan(values), bits.dtype.type(nan), bits))
    return bits if bits.itemsize == 4 else _folded(bits)


def _byte_hashes(array: pa.Array) -> _Hashes:
    """A polynomial in 31 over the signed bytes of each value."""
    filled = array.cast(pa.binary()).fill_null(b"")
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + len(filled) + 1].astype(np.int64)
    data = filled.buffers()[2]
    if data is None or offsets[0] == offsets[-1]:
        return np.zeros(len(filled), np.uint32)
    lengths = np.diff(offsets)
    digits = np.frombuffer(data, np.int8)[offsets[0] : offsets[-1]].astype(np.int32).view(np.uint32)
    weights = np.cumprod(np.append(np.uint32(1), np.full(int(lengths.max()), _FACTOR)), dtype=np.uint32)
    left = np.repeat(offsets[1:] - offsets[0] - 1, lengths) - np.arange(len(digits))
    sums = np.append(np.uint32(0), np.cumsum(digits * weights[left], dtype=np.uint32))
    return sums[offsets[1:] - offsets[0]] - sums[offsets[:-1] - offsets[0]]


def _decimal_hashes(array: pa.Array, scale: int) -> _Hashes:
    """`BigDecimal.hashCode` of each value without its trailing zeros after the point."""
    filled = array.fill_null(pa.scalar(Decimal(0), array.type))
    words = np.frombuffer(filled.buffers()[1], np.uint64)[2 * filled.offset :][: 2 * len(filled)].reshape(-1, 2)
    negative = words[:, 1].view(np.int64) < 0
    flipped = words ^ np.where(negative, ~np.uint64(0), np.uint64(0))[:, None]
    low = flipped[:, 0] + negative.astype(np.uint64)
    high = flipped[:, 1] + (negative & (low == 0))
    half = np.uint64(32)
    limbs = np.stack([high >> half, high & np.uint64(0xFFFFFFFF), low >> half, low & np.uint64(0xFFFFFFFF)])
    scales = np.full(len(filled), scale, np.uint32)
    shrinking = np.flatnonzero((low | high) != 0)
    for _ in range(scale):
        quotient, rest = _tenth(limbs[:, shrinking])
        shrinking, quotient = shrinking[rest == 0], quotient[:, rest == 0]
        if not len(shrinking):
            break
        limbs[:, shrinking] = quotient
        scales[shrinking] -= np.uint32(1)
    magnitudes = np.zeros(len(filled), np.uint32)
    for limb in limbs.astype(np.uint32):
        magnitudes = magnitudes * _FACTOR + limb
    scales[(low | high) == 0] = 0
    return np.where(negative, np.uint32(0) - magnitudes, magnitudes) * _FACTOR + scales


def _tenth(limbs: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Quotients and remainders by ten of numbers of four limbs of 32 bits, the highest first."""
    quotient, rest = np.empty_like(limbs), np.zeros(limbs.shape[1], np.uint64)
    for i, limb in enumerate(limbs):
        quotient[i], rest = np.divmod(rest << np.uint64(32) | limb, np.uint64(10))
    return quotient, rest
