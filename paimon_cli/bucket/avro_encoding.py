"""Encodes Arrow columns as Avro records, without a Python object for each cell (FORMAT.md, section 7.2).

What is short in a record, such as a number, a length or the branch of a union, becomes columns of single bytes, each with the
rows that have one. Texts, and the items of lists, stay where they are, as slices of their buffers. Arrow joins both row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    StringType,
)
from paimon_cli.errors import Refused

Presence = np.ndarray | None
"""Which rows have a value (bool). None: all of them."""

_NULL, _VALUE = 0, 2
"""The numbers 0 and 1 as Avro encodes them: the branches of a union with null."""
_END = 0
_DIGITS = np.uint64(7)
_WORD_BYTES = 8
_BYTE_LIMITS = np.uint64(1) << np.arange(7, 64, 8, dtype=np.uint64)
"""Unscaled numbers below the n-th of these, and their opposites, take n bytes."""


def encoded_blocks(columns: Sequence[tuple[pa.Array, DataType]], block_rows: int) -> Iterator[tuple[int, bytes]]:
    """The records of all rows in blocks of at most `block_rows`: how many a block has, and their bytes, not compressed.

    Raises `Refused` for a null where the type has none.
    """
    rows = len(columns[0][0])
    record = _Bytes(rows)
    for array, t in columns:
        _append(record, array, t, None)
    bounds, content = _slices(record.joined())
    for start in range(0, rows, block_rows):
        end = min(start + block_rows, rows)
        yield end - start, content[bounds[start] : bounds[end]].tobytes()


class _Bytes:
    """The bytes of each row, to which more are appended."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._single: list[tuple[np.ndarray | int, Presence]] = []
        self._parts: list[pa.Array] = []

    def byte(self, values: np.ndarray | int, present: Presence) -> None:
        self._single.append((values, present))

    def number(self, numbers: np.ndarray, present: Presence) -> None:
        """A signed number (int64): seven bits a byte, the lowest first, the top bit for all bytes but the last."""
        left = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        if present is not None:
            left = np.where(present, left, np.uint64(0))
        more: Presence = present
        while True:
            rest = left >> _DIGITS
            last = rest == 0
            self.byte(np.where(last, left, left | np.uint64(0x80)).astype(np.uint8), more)
            if last.all():
                return
            left, more = rest, ~last

    def content(self, bounds: np.ndarray, data: pa.Buffer, present: Presence) -> None:
        """Slices of a buffer: row i has the bytes from `bounds[i]` to `bounds[i + 1]` (int64)."""
        self._flush()
        self._parts.append(_binary(bounds, data, present))

    def joined(self) -> pa.Array:
        """The bytes of each row, as large binaries."""
        if self._single or not self._parts:
            self._flush()
        if len(self._parts) == 1:
            return self._parts[0]
        return pc.binary_join_element_wise(
            *self._parts, pa.scalar(b"", pa.large_binary()), null_handling="replace", null_replacement=b""
        )

    def _flush(self) -> None:
        content = np.empty((self._rows, len(self._single)), np.uint8)
        are_there = np.empty(content.shape, bool)
        for number, (values, present) in enumerate(self._single):
            content[:, number] = values
            are_there[:, number] = True if present is None else present
        lengths = are_there.sum(axis=1, dtype=np.int64)
        if any(present is not None for _, present in self._single):
            content = content[are_there]
        self._parts.append(_binary(np.concatenate([[0], np.cumsum(lengths)]), pa.py_buffer(content), None))
        self._single = []


def _binary(bounds: np.ndarray, data: pa.Buffer, present: Presence) -> pa.Array:
    validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, [validity, pa.py_buffer(bounds), data])


def _slices(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (int64) and bytes (uint8) of large binaries."""
    _, bounds, data = array.buffers()
    found = np.frombuffer(bounds, np.int64)[array.offset : array.offset + len(array) + 1]
    return found, np.frombuffer(data if data is not None else b"", np.uint8)


def _append(row: _Bytes, array: pa.Array, t: DataType, present: Presence) -> None:
    valid = present
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        valid = valid if present is None else valid & present
    if t.nullable:
        row.byte(_VALUE if valid is None else np.where(valid, np.uint8(_VALUE), np.uint8(_NULL)), present)
    elif valid is not None and not np.array_equal(valid, np.ones(len(valid), bool) if present is None else present):
        raise Refused("a part of a nested column is null, and it is NOT NULL", "Avro has no byte for it", "let the part be null")
    _append_value(row, array, t, valid)


def _append_value(row: _Bytes, array: pa.Array, t: DataType, present: Presence) -> None:
    if isinstance(t, (StringType, BinaryType)):
        _append_text(row, array, present)
    elif isinstance(t, DecimalType):
        _append_decimal(row, array, present)
    elif isinstance(t, RowType):
        for number, field in enumerate(t.fields):
            _append(row, array.field(number), field.type, present)
    elif isinstance(t, ArrayType):
        _append_items(row, array.offsets, [(array.values, t.element)], present)
    elif isinstance(t, (MapType, MultisetType)):
        key = t.key.with_nullable(False) if isinstance(t.key, StringType) else t.key
        _append_items(row, array.offsets, [(array.keys, key), (array.items, t.value)], present)
    else:
        _append_fixed(row, array, present)


def _append_fixed(row: _Bytes, array: pa.Array, present: Presence) -> None:
    """Numbers and times as variable-length integers, floats as they are, booleans as a byte."""
    if pa.types.is_boolean(array.type):
        row.byte(_stored(array.cast(pa.uint8()), "u1"), present)
    elif pa.types.is_floating(array.type):
        width = array.type.bit_width // 8
        for column in np.ascontiguousarray(_stored(array, f"V{width}")).view(np.uint8).reshape(-1, width).T:
            row.byte(column, present)
    else:
        row.number(_stored(array, f"i{array.type.bit_width // 8}").astype(np.int64), present)


def _stored(array: pa.Array, dtype: str) -> np.ndarray:
    """The values of an array of fixed width; a null has any value."""
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _append_text(row: _Bytes, array: pa.Array, present: Presence) -> None:
    _, _, data = array.buffers()
    bounds = _offsets(array)
    row.number(np.diff(bounds), present)
    row.content(bounds, data if data is not None else pa.py_buffer(b""), present)


def _offsets(array: pa.Array) -> np.ndarray:
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _append_decimal(row: _Bytes, array: pa.Array, present: Presence) -> None:
    """The unscaled number, the highest byte first, with its sign in the highest bit."""
    words = _stored(array, "V16").view("<u8").reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    negative = high.view(np.int64) < 0
    magnitude = np.where(negative, ~low + np.uint64(1), low)
    carried = np.where(negative, ~high + (low == 0), high)
    below = np.searchsorted(_BYTE_LIMITS, magnitude, side="right") + 1
    above = np.searchsorted(_BYTE_LIMITS, carried, side="right") + 1 + _WORD_BYTES
    sizes = np.where(carried == 0, below, above)
    if present is not None:
        sizes = np.where(present, sizes, 0)
    row.number(sizes, present)
    content = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 2 * _WORD_BYTES)
    for place in range(int(sizes.max(initial=0)) - 1, -1, -1):
        row.byte(content[:, place], sizes > place)


def _append_items(row: _Bytes, offsets: pa.Array, parts: Sequence[tuple[pa.Array, DataType]], present: Presence) -> None:
    """Lists and maps: how many items, if there are any, and what each consists of; a zero ends them."""
    starts = offsets.to_numpy().astype(np.int64)
    counts = np.diff(starts)
    shown = None if present is None else np.repeat(present, counts)  # what null lists refer to is not looked at
    first, last = int(starts[0]), int(starts[-1])
    item = _Bytes(last - first)
    for array, t in parts:
        _append(item, array[first:last], t, shown)
    found = item.joined()
    bounds, _ = _slices(found)
    filled = counts > 0
    row.number(counts, filled if present is None else filled & present)
    row.content(bounds[starts - first], found.buffers()[2], None)
    row.byte(_END, present)
