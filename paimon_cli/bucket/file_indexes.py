"""Bloom filters of data files: built while a file is written, consulted before it is read (FORMAT.md, section 7.4).

Values are hashed to 64 bits: xxHash64 for bytes, Wang's mix for numbers (Java FastHash).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
from paimon_cli.errors import DamagedFile, NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.index_files import BloomFilter, decode_file_index, encode_file_index
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import integer, read_option, share
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
        return _mixed(_units(present))
    raise NotSupported(f"a bloom filter on a column of type {type_to_sql(t)}", "Paimon has no hash for such values")


def _canonical(values: npt.NDArray[np.floating[npt.NBitBase]]) -> npt.NDArray[np.generic]:
    """The values with Java's NaN in place of every NaN."""
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values)


def _units(column: pa.Array) -> npt.NDArray[np.int64]:
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
BLOOM = "bloom-filter"
SUFFIX = ".index"
COLUMNS_OPTION = "file-index.bloom-filter.columns"
DEFAULT_ITEMS, DEFAULT_FALSE_POSITIVES = 1_000_000, 0.1


def indexed_columns(schema: TableSchema, options: TableOptions) -> tuple[DataField, ...]:
    """The columns of `file-index.bloom-filter.columns`.

    `UsageError` for unknown columns, `NotSupported` for types without a hash.
    """
    names = [name.strip() for name in options.raw.get(COLUMNS_OPTION, "").split(",") if name.strip()]
    fields = schema.fields_of(dict.fromkeys(names))
    for field in fields:
        try:
            index_hashes(values_to_arrow([], field.type), field.type)
        except NotSupported as limit:
            limit.why = f"{limit.why}; {COLUMNS_OPTION} names column '{field.name}'"
            raise
    return fields


class IndexBuilder:
    """The file index of a data file that is being written."""

    def __init__(self, fields: Sequence[DataField], options: TableOptions) -> None:
        self._filters = {field: _empty_filter(options, field.name) for field in fields}

    def add(self, batch: pa.RecordBatch) -> None:
        for field, bloom in self._filters.items():
            bloom.add(index_hashes(batch.column(field.name), field.type))

    def add_filters(self, filters: Mapping[str, BloomFilter]) -> None:
        """Add all values of another file, given by its filters, which have the same size (`FileFilters.fitting`)."""
        for field, bloom in self._filters.items():
            bloom.bits |= filters[field.name].bits

    def container(self) -> bytes:
        return encode_file_index({field.name: {BLOOM: bloom.to_bytes()} for field, bloom in self._filters.items()})


def _empty_filter(options: TableOptions, column: str) -> BloomFilter:
    prefix = f"file-index.{BLOOM}.{column}."
    items, fpp = options.raw.get(f"{prefix}items"), options.raw.get(f"{prefix}fpp")
    count = DEFAULT_ITEMS if items is None else read_option(f"{prefix}items", items, integer(1))
    false_positives = DEFAULT_FALSE_POSITIVES if fpp is None else read_option(f"{prefix}fpp", fpp, share)
    if not 0 < false_positives < 1:
        raise UsageError(f"option '{prefix}fpp' cannot be '{fpp}'", "allowed: a number between 0 and 1")
    return BloomFilter.sized(count, false_positives)


def without_index(file: DataFileMeta) -> DataFileMeta:
    """The file as a manifest lists it without its file index; the data file itself is the same."""
    extra = tuple(name for name in file.extra_files if not name.endswith(SUFFIX))
    return replace(file, embedded_file_index=None, extra_files=extra)


class FileFilters:
    """The bloom filters of one data file, by the column names of its own schema. The index is read on first use."""

    def __init__(self, context: TableContext, partition: bytes, bucket: int, file: DataFileMeta) -> None:
        self._context, self._partition, self._bucket, self._file = context, partition, bucket, file
        self._bodies: dict[str, dict[str, bytes | None]] | None = None

    @staticmethod
    def has_any(file: DataFileMeta) -> bool:
        return file.embedded_file_index is not None or any(name.endswith(SUFFIX) for name in file.extra_files)

    def may_hold(self, column: DataField, values: Sequence[Any]) -> bool:
        """False only if none of the values is in the column. `column`, `values`: as in the file's own schema."""
        body = self._container().get(column.name, {}).get(BLOOM)
        if body is None:
            return True
        return bool(self._decoded(body).may_hold(index_hashes(values_to_arrow(values, column.type), column.type)).any())

    def known(self, fields: Sequence[DataField]) -> dict[DataField, BloomFilter]:
        """The filters that reads consult for these columns. `fields`: as in the file's own schema."""
        if not self.has_any(self._file):
            return {}
        bodies = {
            field: self._container().get(field.name, {}).get(BLOOM) for field in fields if field.type.root not in UNINDEXED_ROOTS
        }
        return {field: self._decoded(body) for field, body in bodies.items() if body is not None}

    def fitting(self, fields: Sequence[DataField], options: TableOptions) -> dict[str, BloomFilter] | None:
        """The filters of these columns by name; None unless the file has all of them, in the size that the options ask for."""
        filters = {}
        for field in fields:
            body = self._container().get(field.name, {}).get(BLOOM) if self.has_any(self._file) else None
            empty = _empty_filter(options, field.name)
            if body is None:
                return None
            bloom = self._decoded(body)
            if (bloom.hash_functions, len(bloom.bits)) != (empty.hash_functions, len(empty.bits)):
                return None
            filters[field.name] = bloom
        return filters

    def _decoded(self, body: bytes) -> BloomFilter:
        try:
            return BloomFilter.from_bytes(body)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _container(self) -> Mapping[str, Mapping[str, bytes | None]]:
        if self._bodies is None:
            try:
                self._bodies = decode_file_index(self._bytes())
            except ValueError as error:
                raise self._damaged(str(error)) from error
        return self._bodies

    def _bytes(self) -> bytes:
        if self._file.embedded_file_index is not None:
            return self._file.embedded_file_index
        try:
            return self._context.storage.read_bytes(self._path())
        except FileNotFoundError as error:
            raise self._damaged("it is missing") from error

    def _path(self) -> str:
        name = next(name for name in self._file.extra_files if name.endswith(SUFFIX))
        return self._context.data_file_path_of(self._partition, self._bucket, name)

    def _damaged(self, why: str) -> DamagedFile:
        path = self._path() if self._file.embedded_file_index is None else self._file.file_name
        hint = "read with --option file-index.read.enabled=false"
        return DamagedFile(f"the file index of {path} is damaged", why, hint, path=path)
