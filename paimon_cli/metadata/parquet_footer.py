"""Footers and page indexes of Parquet files: what Arrow reads but does not show, as structs of Thrift's compact protocol.

Arrow writes page indexes and does not read by them. A reader of single pages of a file must know where they lie, and must be
able to write a footer for them (`bucket/parquet_chunks`). Fields that are not known here are kept. Bytes that do not make sense
raise `ValueError` or `LookupError`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"PAR1"
TAIL = 8
"""Bytes after the footer: its length, and the magic."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


class Struct(dict[int, tuple[int, Any]]):
    """Field number -> wire type and value. Lists are pairs of their elements' type and the elements."""

    def value(self, field: int, default: Any = None) -> Any:
        return self[field][1] if field in self else default

    def required(self, field: int) -> Any:
        """`LookupError` where the field is missing."""
        return self[field][1]

    def elements(self, field: int) -> list[Any]:
        """The elements of a list; none where it is missing."""
        _, elements = self.value(field, (STRUCT, []))
        return list(elements)


class Reader:
    """Reads structs one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def struct(self) -> Struct:
        fields, self.at = _struct(self.data, self.at)
        return fields


def _struct(data: bytes, at: int) -> tuple[Struct, int]:
    """The fields, and where they end. A footer has thousands of numbers and texts, so those are read without further calls."""
    fields = Struct()
    place = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            place += head >> 4
        else:
            place, at = _number(data, at)
        value: Any
        if kind in (I64, I32):
            value = data[at]
            if value < 0x80:
                value, at = value >> 1 ^ -(value & 1), at + 1
            else:
                value, at = _number(data, at)
        elif kind == BINARY:
            value, at = _bytes(data, at)
        elif kind <= FALSE:
            value = kind == TRUE
        else:
            value, at = _value(kind, data, at)
        fields[place] = (kind, value)
    return fields, at + 1


def _value(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    if kind == STRUCT:
        return _struct(data, at)
    if kind in (LIST, SET):
        return _list(data, at)
    if kind == BINARY:
        return _bytes(data, at)
    if kind in (I32, I64, I16):
        return _number(data, at)
    if kind in (BYTE, TRUE, FALSE):  # as an element, a bool takes a byte
        return data[at], at + 1
    if kind == DOUBLE:
        return _cut(data, at, 8), at + 8
    raise ValueError(f"a value of Thrift's type {kind}")


def _list(data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    head = data[at]
    kind, size, at = head & 15, head >> 4, at + 1
    if size == 15:
        size, at = _varint(data, at)
    if kind == BINARY and size and data[at] < 0x80:  # bounds of numbers, all of one width
        width = data[at]
        step, end = width + 1, at + size * (width + 1)
        if len(data) >= end and data[at:end:step] == bytes([width]) * size:
            return (kind, [data[begin : begin + width] for begin in range(at + 1, end + 1, step)]), end
    elements = []
    for _ in range(size):
        element, at = _value(kind, data, at)
        elements.append(element)
    return (kind, elements), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size = data[at]
    if size < 0x80:
        at += 1
    else:
        size, at = _varint(data, at)
    return _cut(data, at, size), at + size


def _cut(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) < size:
        raise ValueError("it is cut off")
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value, shift, at = byte & 0x7F, 7, at + 1
    while byte >= 0x80:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value, at


def encode(fields: Struct) -> bytes:
    """The bytes that `Reader.struct` reads."""
    out = bytearray()
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        head = kind if kind > FALSE else TRUE if value else FALSE
        out += bytes([number - before << 4 | head]) if 0 < number - before < 16 else bytes([head]) + _zigzag(number)
        out += b"" if kind <= FALSE else _encoded(kind, value)
        before = number
    return bytes(out + b"\0")


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (I32, I64, I16):
        return _zigzag(value)
    if kind == BINARY:
        return _unsigned(len(value)) + value
    if kind == STRUCT:
        return encode(value)
    if kind in (LIST, SET):
        inner, elements = value
        head = bytes([len(elements) << 4 | inner]) if len(elements) < 15 else bytes([0xF0 | inner]) + _unsigned(len(elements))
        return head + b"".join(_encoded(inner, element) for element in elements)
    return bytes([value]) if kind in (BYTE, TRUE, FALSE) else bytes(value)


def _zigzag(number: int) -> bytes:
    return _unsigned(number << 1 if number >= 0 else (-number << 1) - 1)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number(value: int, kind: int = I64) -> tuple[int, int]:
    """A field's value."""
    return kind, value


def struct_list(elements: Sequence[Struct]) -> tuple[int, tuple[int, list[Struct]]]:
    """A field's value."""
    return LIST, (STRUCT, list(elements))


@dataclass(frozen=True)
class Leaf:
    """A column that holds values, in the tree of the schema."""

    element: Struct
    is_repeated: bool
    """Whether a row may hold several values, or none."""


@dataclass(frozen=True)
class TopColumn:
    """A column of the schema with all that is nested in it."""

    elements: tuple[Struct, ...]
    leaves: tuple[Leaf, ...]
    first_leaf: int


class Footer:
    """A file's footer. Numbers of fields: parquet-format's `parquet.thrift`."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.fields = Reader(data).struct()
        self.root, *elements = self.fields.elements(2)
        self.columns: dict[str, TopColumn] = {}
        place = leaves = 0
        while place < len(elements):
            end, found = _subtree(elements, place, False)
            name = elements[place].required(4).decode()
            self.columns[name] = TopColumn(tuple(elements[place:end]), tuple(found), leaves)
            place, leaves = end, leaves + len(found)
        self.groups: list[Struct] = self.fields.elements(4)

    @property
    def row_count(self) -> int:
        return int(self.fields.required(3))


def _subtree(elements: Sequence[Struct], place: int, is_repeated: bool) -> tuple[int, list[Leaf]]:
    """Where the element's subtree ends, and its leaves."""
    element = elements[place]
    is_repeated = is_repeated or element.value(3) == 2
    children = element.value(5, 0)
    if not children:
        return place + 1, [Leaf(element, is_repeated)]
    place, leaves = place + 1, []
    for _ in range(children):
        place, below = _subtree(elements, place, is_repeated)
        leaves += below
    return place, leaves


@dataclass(frozen=True)
class PageBounds:
    """Least and greatest value of each page, as plain bytes (`ColumnIndex`); None stands for null, the smallest value."""

    lows: list[bytes | None]
    highs: list[bytes | None]

    @staticmethod
    def decode(data: bytes, is_required: bool) -> PageBounds:
        """`is_required`: whether the column can hold no null; else pages whose nulls are not counted may hold some."""
        fields = Reader(data).struct()
        lows, highs = fields.elements(2), fields.elements(3)
        without = [mark == TRUE for mark in fields.elements(1)]
        if not len(lows) == len(highs) == len(without):
            raise ValueError("its page index has bounds of some pages only")
        nulls = fields.elements(5) or [0 if is_required else 1] * len(lows)
        if len(nulls) != len(lows):
            raise ValueError("its page index counts the nulls of some pages only")
        holds_null = (none or count > 0 for none, count in zip(without, nulls, strict=True))
        return PageBounds(
            [None if null else low for null, low in zip(holds_null, lows, strict=True)],
            [None if none else high for none, high in zip(without, highs, strict=True)],
        )


@dataclass(frozen=True)
class PagePlaces:
    """Where each page lies in the file, with its header, and its first row in the row group (`OffsetIndex`)."""

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    first_rows: NDArray[np.int64]

    @staticmethod
    def decode(data: bytes) -> PagePlaces:
        places = _uniform_places(data)
        if places is None:
            listed = Reader(data).struct().elements(1)
            cells = [[place.required(field) for field in (1, 2, 3)] for place in listed]
            places = np.array(cells, np.int64).reshape(-1, 3)
        return PagePlaces(places[:, 0], places[:, 1], places[:, 2])


_PLACE = (1 << 4 | I64, 1 << 4 | I32, 1 << 4 | I64, 0)
"""What stands before each of the three numbers of a place, and after them."""


def _uniform_places(data: bytes) -> NDArray[np.int64] | None:
    """The places as rows of a matrix; None where a writer has spelled them in another way than all known ones do.

    Every value and every mark between them is a varint, so that all are decoded at once.
    """
    if data[:1] != bytes([1 << 4 | LIST]):
        return None
    head = data[1]
    count, at = (head >> 4, 2) if head >> 4 < 15 else _varint(data, 2)
    content = np.frombuffer(data, np.uint8, offset=at)
    ends = np.flatnonzero(content < 0x80)[: 7 * count]
    if head & 15 != STRUCT or len(ends) < 7 * count:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    values = np.zeros(len(ends), np.uint64)
    for digit in range(int((ends - starts).max(initial=0)) + 1):
        has = starts + digit <= ends
        values[has] |= (content[starts[has] + digit] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * digit)
    rows = values.reshape(count, 7)
    if (rows[:, [0, 2, 4, 6]] != np.array(_PLACE, np.uint64)).any():
        return None
    numbers = rows[:, [1, 3, 5]]
    return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)


_VARINT = rb"[\x80-\xff]*[\x00-\x7f]"
_USUAL_HEADER = re.compile(rb"\x15[\x00\x06](?:\x15" + _VARINT + rb"){2,3}[\x1c\x2c\x4c\x5c]\x15(" + _VARINT + rb")", re.DOTALL)
"""Of a data page of either version: its type, two sizes, maybe a checksum, and first in the struct after them the values."""


def values_of_page(page: bytes) -> int:
    """How many values, nulls counted, the header of a data page announces."""
    usual = _USUAL_HEADER.match(page)
    if usual is not None:
        return _number(usual[1], 0)[0]
    header = Reader(page).struct()
    data_page = header.value(5) or header.value(8)
    if data_page is None:
        raise ValueError("there is no data page where its index says")
    return int(data_page.required(1))


def plain_page(content: bytes, count: int) -> bytes:
    """A data page of required values in plain encoding, uncompressed."""
    data_page = Struct({1: number(count, I32), 2: number(0, I32), 3: number(3, I32), 4: number(3, I32)})
    sizes = {2: number(len(content), I32), 3: number(len(content), I32)}
    return encode(Struct({1: number(0, I32), **sizes, 5: (STRUCT, data_page)})) + content


def closed(parts: Sequence[bytes], footer: Struct) -> bytes:
    """A whole file of these parts: the first one follows the magic."""
    tail = encode(footer)
    return b"".join([MAGIC, *parts, tail, struct.pack("<I", len(tail)), MAGIC])
