"""The file index bitmap: for each value of a column the positions of its rows (FORMAT.md, section 7.4; Java BitmapFileIndex).

Reads only need to know which values there are. The positions are written for engines that skip single rows by them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from paimon_cli.bucket.bit_slices import bitmap_bytes, bitmap_of
from paimon_cli.bucket.bloom_index import timestamp_units
from paimon_cli.bucket.file_index import BodyReader, FileIndex, IndexKind
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, STRING_ROOTS, DataField, DataType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.options.option_text import one_of, parse_size
from paimon_cli.options.table_options import TableOptions

_FIXED = {
    "BOOLEAN": ">u1",
    "TINYINT": ">i1",
    "SMALLINT": ">i2",
    **dict.fromkeys(("INT", "DATE", "TIME"), ">i4"),
    "BIGINT": ">i8",
    "FLOAT": ">f4",
    "DOUBLE": ">f8",
}
"""Type -> how a value is stored; texts have their length before their bytes, timestamps are numbers as for BIGINT."""
_TIMES = ">i8"
_HEAD = struct.Struct(">iib")
_INT = struct.Struct(">i")
_ENTRY = struct.Struct(">ii")
DEFAULT_BLOCK = "16 kb"
"""Bytes of a block of the dictionary; a reader opens those that may hold a value."""


@dataclass(frozen=True)
class BitmapForm:
    """The form of an index: `version` 1 has one list of values, 2 divides them into blocks of `block_bytes`."""

    version: int = 2
    block_bytes: int = parse_size(DEFAULT_BLOCK)


def _stored(column: pa.Array, t: DataType) -> pa.Array:
    """The values that are not null, as the index tells them apart: bytes, or numbers."""
    present = column.drop_null()
    if t.root in STRING_ROOTS:
        return present.cast(pa.binary())
    if isinstance(t, TimestampType):
        return pa.array(timestamp_units(present))
    if t.root in ("DATE", "TIME"):
        return present.cast(pa.int32())
    if t.root == "BOOLEAN":
        return present.cast(pa.uint8())
    if t.root in FLOATING_ROOTS:  # Java tells bit patterns apart, except those of NaN
        numbers = present.to_numpy()
        return pa.array(np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers))
    return present


def _keys(values: pa.Array, t: DataType) -> list[bytes]:
    """The serialised form of each value of `_stored`."""
    if t.root in STRING_ROOTS:
        return [_INT.pack(len(value)) + value for value in values.to_pylist()]
    content = values.to_numpy().astype(_form_of(t)).tobytes()
    size = np.dtype(_form_of(t)).itemsize
    return [content[start : start + size] for start in range(0, len(content), size)]


def _form_of(t: DataType) -> str:
    return _TIMES if isinstance(t, TimestampType) else _FIXED[t.root]


def _rank(t: DataType) -> Callable[[bytes], bytes]:
    """The order in which Java sorts serialised values: texts by their bytes, numbers by value."""
    if t.root in STRING_ROOTS:
        return lambda key: key[_INT.size :]
    if t.root == "BOOLEAN":
        return lambda key: key
    if t.root in FLOATING_ROOTS:  # the bits of a negative number grow with its amount
        return lambda key: bytes(255 - byte for byte in key) if key[0] & 128 else bytes([key[0] | 128]) + key[1:]
    return lambda key: bytes([key[0] ^ 128]) + key[1:]


class BitmapIndex(FileIndex):
    """The bitmaps of a column of type `t`, by the serialised value."""

    def __init__(self, t: DataType, form: BitmapForm) -> None:
        self._type = t
        self._form = form
        self._rows = 0
        self._nulls = BitMap()
        self._bitmaps: dict[bytes, BitMap] = {}
        self._stored: _Decoder | None = None
        """The bytes of which only the values were decoded so far: a read does not need their positions."""

    def _decode(self) -> None:
        if self._stored is not None:
            self._nulls, self._bitmaps = self._stored.bitmaps()
            self._stored = None

    def add(self, values: pa.Array) -> None:
        self._decode()
        present = values.is_valid().to_numpy(zero_copy_only=False)
        positions = np.arange(self._rows, self._rows + len(values), dtype=np.uint32)
        self._rows += len(values)
        self._nulls |= BitMap(positions[~present])
        encoded = _stored(values, self._type).dictionary_encode()
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
        at = positions[present][order]
        for number, key in enumerate(_keys(encoded.dictionary, self._type)):
            found = BitMap(at[bounds[number] : bounds[number + 1]])
            self._bitmaps[key] = self._bitmaps[key] | found if key in self._bitmaps else found

    def fits(self, other: BitmapIndex) -> bool:
        return self._rows + other._rows < 1 << 31

    def merge(self, other: BitmapIndex) -> None:
        self._decode()
        other._decode()
        self._nulls |= other._nulls.shift(self._rows)
        for key, positions in other._bitmaps.items():
            moved = positions.shift(self._rows)
            self._bitmaps[key] = self._bitmaps[key] | moved if key in self._bitmaps else moved
        self._rows += other._rows

    def may_hold(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        asked = _keys(_stored(values, self._type), self._type)
        known = self._bitmaps if self._stored is None else self._stored.offsets
        return np.fromiter((key in known for key in asked), bool, len(asked))

    def to_bytes(self) -> bytes:
        self._decode()
        nulls = bitmap_bytes(self._nulls)
        body = [nulls] if len(self._nulls) > 1 else []
        offset, entries = len(nulls) if body else 0, list[tuple[bytes, int, int]]()
        for key in sorted(self._bitmaps, key=_rank(self._type)):
            positions = self._bitmaps[key]
            if len(positions) == 1:
                entries.append((key, -1 - positions[0], -1))
                continue
            content = bitmap_bytes(positions)
            entries.append((key, offset, len(content)))
            body.append(content)
            offset += len(content)
        head = bytes([self._form.version]) + _HEAD.pack(self._rows, len(entries), bool(self._nulls))
        if self._nulls:
            head += _INT.pack(-1 - self._nulls[0] if len(self._nulls) == 1 else 0)
            head += _INT.pack(len(nulls)) if self._form.version > 1 else b""
        return head + self._dictionary(entries) + b"".join(body)

    def _dictionary(self, entries: list[tuple[bytes, int, int]]) -> bytes:
        if self._form.version == 1:
            return b"".join(key + _INT.pack(offset) for key, offset, _ in entries)
        blocks: list[tuple[bytes, int, list[bytes]]] = []
        size, begin = 0, 0
        for key, offset, length in entries:
            entry = key + _ENTRY.pack(offset, length)
            if not blocks or size + len(entry) > self._form.block_bytes:
                begin += size
                blocks.append((key, begin, []))
                size = _INT.size
            blocks[-1][2].append(entry)
            size += len(entry)
        index = b"".join(key + _INT.pack(start) for key, start, _ in blocks)
        content = b"".join(_INT.pack(len(held)) + b"".join(held) for _, _, held in blocks)
        return _INT.pack(len(blocks)) + index + _INT.pack(len(content)) + content

    @staticmethod
    def from_bytes(body: bytes, t: DataType, rows: int) -> BitmapIndex:
        """The index of a file of `rows` rows. Raises `ValueError` if it is malformed, or of another version than 1 and 2;
        positions are looked at when they are needed.
        """
        decoder = _Decoder(body, t)
        if decoder.rows != rows:
            raise ValueError(f"it is about {decoder.rows} rows; its file has {rows}")
        found = BitmapIndex(t, BitmapForm(decoder.version))
        found._rows, found._stored = decoder.rows, decoder
        return found


class _Decoder(BodyReader):
    """Reads the body of an index. `offsets`: of each serialised value, that of its bitmap, or -1 - n if only row n has it."""

    def __init__(self, body: bytes, t: DataType) -> None:
        super().__init__(body)
        self._type = t
        self.version = self.take(1)[0]
        if self.version not in (1, 2):
            raise ValueError(f"version {self.version} is not known")
        self.rows, count, self._has_nulls = _HEAD.unpack(self.take(_HEAD.size))
        self._null_offset = self.integer() if self._has_nulls else -1
        if self._has_nulls and self.version > 1:
            self.integer()  # the length of the bitmap of nulls
        self.offsets = dict(self._entries(count) if self.version == 1 else self._in_blocks(count))
        if len(self.offsets) != count:
            raise ValueError("it has values twice, or another number of them than it says")

    def bitmaps(self) -> tuple[BitMap, dict[bytes, BitMap]]:
        """The positions of nulls, and of each value. Raises `ValueError`."""
        begins = sorted({offset for offset in (*self.offsets.values(), self._null_offset) if offset >= 0})
        ends = dict(zip(begins, [*begins[1:], len(self.body) - self.at], strict=False))
        nulls = self._bitmap(self._null_offset, ends) if self._has_nulls else BitMap()
        found, count = dict[bytes, BitMap](), len(nulls)
        for key, offset in self.offsets.items():
            found[key] = self._bitmap(offset, ends)
            count += len(found[key])
            if count > self.rows:  # else a large bitmap could be that of every value, and would take its memory each time
                raise ValueError("it has more values than rows")
        return nulls, found

    def _entries(self, count: int) -> Iterator[tuple[bytes, int]]:
        for _ in range(count):
            yield self._key(), self.integer()

    def _in_blocks(self, count: int) -> Iterator[tuple[bytes, int]]:
        for _ in range(self.integer()):
            self._key(), self.integer()
        end = self.integer()
        end += self.at
        while self.at < end:
            for _ in range(self.integer()):
                yield self._key(), self.integer()
                self.integer()  # the length of its bitmap, which says so itself
        if self.at != end:
            raise ValueError("its blocks end elsewhere than it says")

    def _bitmap(self, offset: int, ends: dict[int, int]) -> BitMap:
        if offset >= 0:
            content = self.body[self.at + offset : self.at + ends[offset]]
            positions = bitmap_of(content)
        else:
            positions = BitMap([-1 - offset])
        if positions and positions[-1] >= self.rows:
            raise ValueError("it has positions after the last row")
        return positions

    def _key(self) -> bytes:
        if self._type.root not in STRING_ROOTS:
            return self.take(np.dtype(_form_of(self._type)).itemsize)
        size = self.take(_INT.size)
        return size + self.take(_INT.unpack(size)[0])


class BitmapKind(IndexKind):
    """Bitmaps, in the form of the options `version` and `index-block-size` of each column."""

    name = "bitmap"

    def check(self, field: DataField) -> None:
        if field.type.root not in _FIXED and field.type.root not in STRING_ROOTS and not isinstance(field.type, TimestampType):
            raise NotSupported(f"a bitmap index on a column of type {type_to_sql(field.type)}", "Paimon has none for such values")

    def is_consulted(self, t: DataType) -> bool:
        return t.root not in FLOATING_ROOTS | {"CHAR"} and (
            t.root in _FIXED or t.root in STRING_ROOTS or isinstance(t, TimestampType)
        )

    def empty(self, field: DataField, options: TableOptions) -> BitmapIndex:
        version = self.setting(options, field, "version", one_of("1", "2"), "2")
        block = self.setting(options, field, "index-block-size", parse_size, parse_size(DEFAULT_BLOCK))
        return BitmapIndex(field.type, BitmapForm(int(version), block))

    def decoded(self, field: DataField, body: bytes, rows: int) -> BitmapIndex:
        return BitmapIndex.from_bytes(body, field.type, rows)
