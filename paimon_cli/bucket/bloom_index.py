"""The file index bloom-filter (FORMAT.md, section 7.4).

Values are hashed to 64 bits: xxHash64 for bytes, Wang's mix for numbers (Java FastHash).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.bucket.file_index import FileIndex, IndexKind
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    BinaryType,
    DataField,
    DataType,
    StringType,
    TimestampType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.index_files import BloomFilter
from paimon_cli.options.option_text import integer, share
from paimon_cli.options.table_options import TableOptions

Hashes = npt.NDArray[np.uint64]
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
)
_STRIPE, _LANES = 32, 4


def index_hashes(column: pa.Array, t: DataType) -> Hashes:
    """The hashes of the values that are not null, in order. Raises `NotSupported` for BOOLEAN, DECIMAL and nested types."""
    present = column.drop_null()
    if isinstance(t, (StringType, BinaryType)):
        return byte_hashes(present)
    if t.root in INTEGER_ROOTS:
        return _mixed(present.cast(pa.int64()).to_numpy())
    if t.root in ("DATE", "TIME"):
        return _mixed(present.cast(pa.int32()).cast(pa.int64()).to_numpy())
    if t.root == "FLOAT":
        return _mixed(_canonical(present.to_numpy()).view(np.int32).astype(np.int64))
    if t.root == "DOUBLE":
        return _mixed(_canonical(present.to_numpy()).view(np.int64))
    if isinstance(t, TimestampType):
        return _mixed(timestamp_units(present))
    raise NotSupported(f"a bloom filter on a column of type {type_to_sql(t)}", "Paimon has no hash for such values")


def _canonical(values: npt.NDArray[np.floating[npt.NBitBase]]) -> npt.NDArray[np.generic]:
    """The values with Java's NaN in place of every NaN."""
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values)


def timestamp_units(column: pa.Array) -> npt.NDArray[np.int64]:
    """Timestamps as integers: milliseconds or microseconds as they are, nanoseconds as microseconds."""
    numbers = column.cast(pa.int64()).to_numpy()
    return numbers // 1000 if column.type.unit == "ns" else numbers


def _mixed(values: npt.NDArray[np.int64]) -> Hashes:
    """Thomas Wang's 64-bit mix, with Java's signed shifts."""
    k = values.astype(np.int64)
    with np.errstate(over="ignore"):
        k = ~k + (k << 21)
        k = k ^ (k >> 24)
        k = k + (k << 3) + (k << 8)
        k = k ^ (k >> 14)
        k = k + (k << 2) + (k << 4)
        k = k ^ (k >> 28)
        k = k + (k << 31)
    return k.view(np.uint64)


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(state: Hashes, lane: Hashes) -> Hashes:
    return _rotated(state + lane * _P2, 31) * _P1


def byte_hashes(column: pa.Array) -> Hashes:
    """xxHash64 with seed 0, of all values at once: each step is applied to the values that are long enough for it."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if len(column) == 0:
        return np.zeros(0, np.uint64)
    data = column.buffers()[2]
    padded = np.zeros(int(offsets[-1]) + 8, np.uint8)
    if data is not None:
        padded[: offsets[-1]] = np.frombuffer(data, np.uint8)[: offsets[-1]]
    words = np.ndarray(shape=(len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    with np.errstate(over="ignore"):
        state = _stripes(words, starts, lengths) + lengths.astype(np.uint64)
        state = _tail(state, padded, words, starts + lengths // _STRIPE * _STRIPE, lengths % _STRIPE)
        state = (state ^ (state >> np.uint64(33))) * _P2
        state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


def _stripes(words: Hashes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Hashes:
    """The state after all full stripes of 32 bytes; shorter values keep the initial state."""
    state = np.full(len(starts), _P5)
    long = np.flatnonzero(lengths >= _STRIPE)
    if not len(long):
        return state
    first = (_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1)
    lanes = [np.full(len(long), value) for value in first]
    for stripe in range(int(lengths.max()) // _STRIPE):
        active = np.flatnonzero(lengths[long] >= (stripe + 1) * _STRIPE)
        at = starts[long[active]] + stripe * _STRIPE
        for lane in range(_LANES):
            lanes[lane][active] = _round(lanes[lane][active], words[at + 8 * lane])
    merged = sum((_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros(len(long), np.uint64))
    for lane_state in lanes:
        merged = (merged ^ _round(np.zeros(len(long), np.uint64), lane_state)) * _P1 + _P4
    state[long] = merged
    return state


def _tail(
    state: Hashes, data: npt.NDArray[np.uint8], words: Hashes, at: npt.NDArray[np.int64], left: npt.NDArray[np.int64]
) -> Hashes:
    """The state after the rest of each value, at most 31 bytes: eight at a time, then four, then one by one."""
    for _ in range(3):
        on = np.flatnonzero(left >= 8)
        state[on] = _rotated(state[on] ^ _round(np.zeros(len(on), np.uint64), words[at[on]]), 27) * _P1 + _P4
        at, left = _advanced(at, left, on, 8)
    on = np.flatnonzero(left >= 4)
    state[on] = _rotated(state[on] ^ (words[at[on]] & np.uint64(0xFFFFFFFF)) * _P1, 23) * _P2 + _P3
    at, left = _advanced(at, left, on, 4)
    for _ in range(3):
        on = np.flatnonzero(left >= 1)
        state[on] = _rotated(state[on] ^ data[at[on]].astype(np.uint64) * _P5, 11) * _P1
        at, left = _advanced(at, left, on, 1)
    return state


def _advanced(
    at: npt.NDArray[np.int64], left: npt.NDArray[np.int64], on: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    moved, rest = at.copy(), left.copy()
    moved[on] += size
    rest[on] -= size
    return moved, rest


UNINDEXED_ROOTS = FLOATING_ROOTS | {"CHAR"}
"""Types whose equal values may have different hashes: -0.0 and 0.0, texts with and without padding."""
DEFAULT_ITEMS, DEFAULT_FALSE_POSITIVES = 1_000_000, 0.1


class BloomIndex(FileIndex):
    """The bloom filter of a column of type `t`."""

    def __init__(self, t: DataType, bloom: BloomFilter) -> None:
        self._type = t
        self._bloom = bloom

    def add(self, values: pa.Array) -> None:
        self._bloom.add(index_hashes(values, self._type))

    def fits(self, other: BloomIndex) -> bool:
        mine, theirs = self._bloom, other._bloom
        return (mine.hash_functions, len(mine.bits)) == (theirs.hash_functions, len(theirs.bits))

    def merge(self, other: BloomIndex) -> None:
        self._bloom.bits |= other._bloom.bits

    def may_hold(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        return self._bloom.may_hold(index_hashes(values, self._type))

    def to_bytes(self) -> bytes:
        return self._bloom.to_bytes()


class BloomKind(IndexKind):
    """Bloom filters, sized by the options `items` and `fpp` of each column."""

    name = "bloom-filter"

    def check(self, field: DataField) -> None:
        index_hashes(values_to_arrow([], field.type), field.type)

    def is_consulted(self, t: DataType) -> bool:
        return t.root not in UNINDEXED_ROOTS

    def empty(self, field: DataField, options: TableOptions) -> BloomIndex:
        items = self.setting(options, field, "items", integer(1), DEFAULT_ITEMS)
        false_positives = self.setting(options, field, "fpp", _rate, DEFAULT_FALSE_POSITIVES)
        return BloomIndex(field.type, BloomFilter.sized(items, false_positives))

    def decoded(self, field: DataField, body: bytes, rows: int) -> BloomIndex:
        return BloomIndex(field.type, BloomFilter.from_bytes(body))


def _rate(text: str) -> float:
    rate = share(text)
    if not 0 < rate < 1:
        raise ValueError("a number between 0 and 1")
    return rate
