"""The file index bsi: the numbers of a column in bit slices (FORMAT.md, section 7.4; Java BitSliceIndexBitmapFileIndex).

Numbers below 0 are apart from the others, by their amount. Reads ask whether a number is there, and for the least and greatest.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from paimon_cli.bucket.bit_slices import MOST_BITS, BitSlices, bitmap_bytes, bitmap_of
from paimon_cli.bucket.file_index import BodyReader, FileIndex, IndexKind
from paimon_cli.bucket.index_numbers import PLAIN_ROOTS, fits_number, index_numbers, value_of_number
from paimon_cli.datatypes.data_type import DataField, DataType, DecimalType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.options.table_options import TableOptions

_VERSION = 1
_HEAD = struct.Struct(">bi")
_SLICES_HEAD = struct.Struct(">bqq")
_LEAST = -(2**63)
"""The one 64-bit number whose amount is none: Java does not write it."""


class BsiIndex(FileIndex):
    """The slices of a column of type `t`. A file with a value that they cannot express has no such index."""

    def __init__(self, t: DataType) -> None:
        self._type = t
        self._rows = 0
        self._positive, self._negative = BitSlices(), BitSlices()
        self._offsets = [0, 0]
        """What was subtracted from the amounts, as the bytes say: nothing by Java and by this version."""
        self._is_complete = True

    def add(self, values: pa.Array) -> None:
        positions = np.arange(self._rows, self._rows + len(values), dtype=np.uint32)
        positions = positions[values.is_valid().to_numpy(zero_copy_only=False)]
        self._rows += len(values)
        present = values.drop_null()
        numbers = index_numbers(present, self._type)
        self._is_complete &= bool((fits_number(present, self._type) & (numbers != _LEAST)).all())
        if self._is_complete:
            below = numbers < 0
            self._positive.add(positions[~below], numbers[~below])
            self._negative.add(positions[below], -numbers[below])

    def fits(self, other: BsiIndex) -> bool:
        return self._rows + other._rows < 1 << 31 and not any(self._offsets + other._offsets)

    def merge(self, other: BsiIndex) -> None:
        self._positive.merge(other._positive, self._rows)
        self._negative.merge(other._negative, self._rows)
        self._is_complete &= other._is_complete
        self._rows += other._rows

    def may_hold(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        present = values.drop_null()
        if not self._is_complete:
            return np.ones(len(present), bool)
        numbers = index_numbers(present, self._type)
        below = numbers < 0
        found = np.empty(len(numbers), bool)
        found[~below] = self._positive.hold(numbers[~below] - self._offsets[0])
        found[below] = self._negative.hold(-numbers[below] - self._offsets[1])  # the least number stays below 0: it has no amount
        return found & fits_number(present, self._type)

    def bounds(self) -> tuple[Any, Any] | None:
        found: list[int] = []
        for slices, offset, sign in ((self._positive, self._offsets[0], 1), (self._negative, self._offsets[1], -1)):
            found += [sign * (offset + number) for number in slices.bounds()] if slices.rows else []
        if not found or not self._is_complete:
            return None
        low, high = (value_of_number(number, self._type) for number in (min(found), max(found)))
        return None if low is None else (low, high)

    def to_bytes(self) -> bytes | None:
        if not self._is_complete:
            return None
        return _HEAD.pack(_VERSION, self._rows) + b"".join(
            _encoded(slices, offset) for slices, offset in zip((self._positive, self._negative), self._offsets, strict=True)
        )

    @staticmethod
    def from_bytes(body: bytes, t: DataType, rows: int) -> BsiIndex:
        """The index of a file of `rows` rows. Raises `ValueError` if it is malformed."""
        found, reader = BsiIndex(t), BodyReader(body)
        version, found._rows = _HEAD.unpack(reader.take(_HEAD.size))
        if version != _VERSION or found._rows != rows:
            raise ValueError(f"it is of version {version}, about {found._rows} rows; its file has {rows}")
        found._positive, found._offsets[0] = _decoded(reader, found._rows)
        found._negative, found._offsets[1] = _decoded(reader, found._rows)
        return found


def _encoded(slices: BitSlices, offset: int) -> bytes:
    if not slices.rows:
        return b"\x00"
    most = offset + slices.bounds()[1]
    bits = [bitmap_bytes(rows) for rows in slices.bits]
    head = b"\x01" + _SLICES_HEAD.pack(_VERSION, offset, most) + bitmap_bytes(slices.rows)
    return head + len(bits).to_bytes(4, "big") + b"".join(bits)


def _decoded(reader: BodyReader, rows: int) -> tuple[BitSlices, int]:
    """The slices, and what was subtracted from their numbers."""
    if reader.take(1) == b"\x00":
        return BitSlices(), 0
    version, offset, _ = _SLICES_HEAD.unpack(reader.take(_SLICES_HEAD.size))
    slices = BitSlices(_bitmap(reader, rows))
    count = reader.integer()
    if version != _VERSION or offset < 0 or not 0 <= count <= MOST_BITS:
        raise ValueError(f"it has {count} slices of version {version}, from {offset} on")
    slices.bits = [_bitmap(reader, rows) for _ in range(count)]
    return slices, offset


def _bitmap(reader: BodyReader, rows: int) -> BitMap:
    """The next bitmap, which is as long as it is when it is written again."""
    found = bitmap_of(reader.rest())
    reader.take(len(found.serialize()))
    if found and found[-1] >= rows:
        raise ValueError("it has positions after the last row")
    return found


class BsiKind(IndexKind):
    """Bit slices. They have no settings."""

    name = "bsi"

    def check(self, field: DataField) -> None:
        if not _is_indexed(field.type):
            raise NotSupported(f"a bsi index on a column of type {type_to_sql(field.type)}", "Paimon has none for such values")

    def is_consulted(self, t: DataType) -> bool:
        return _is_indexed(t)

    def empty(self, field: DataField, options: TableOptions) -> BsiIndex:
        return BsiIndex(field.type)

    def decoded(self, field: DataField, body: bytes, rows: int) -> BsiIndex:
        return BsiIndex.from_bytes(body, field.type, rows)


def _is_indexed(t: DataType) -> bool:
    return t.root in PLAIN_ROOTS or isinstance(t, (TimestampType, DecimalType))
