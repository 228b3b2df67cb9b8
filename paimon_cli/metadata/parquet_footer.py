"""Footers and page indexes of Parquet files: what Arrow reads but does not show, as structs of Thrift's compact protocol.

Arrow writes page indexes and does not read by them. A reader of single pages of a file must know where they lie, and must be
able to write a footer for them (`bucket/parquet_chunks`). Fields that are not known here are kept. Bytes that do not make sense
raise `ValueError` or `LookupError`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    _put_struct(out, fields)
    return bytes(out)


def _put_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for place in sorted(fields):
        kind, value = fields[place]
        head = kind if kind > FALSE else TRUE if value else FALSE
        if 0 < place - before < 16:
            out.append(place - before << 4 | head)
        else:
            out.append(head)
            _put_number(out, place)
        if kind > FALSE:
            _put(out, kind, value)
        before = place
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I32, I64, I16):
        _put_number(out, value)
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        _put_list(out, *value)
    else:
        out += bytes([value]) if kind in (BYTE, TRUE, FALSE) else bytes(value)


def _put_list(out: bytearray, kind: int, elements: Sequence[Any]) -> None:
    _put_list_head(out, kind, len(elements))
    for element in elements:
        _put(out, kind, element)


def _put_list_head(out: bytearray, kind: int, size: int) -> None:
    if size < 15:
        out.append(size << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _put_varint(out, size)


def _put_number(out: bytearray, number: int) -> None:
    _put_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


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


_VERSION, _SCHEMA, _ROWS, _GROUPS = (1 << 4 | kind for kind in (I32, LIST, I64, LIST))
"""How the first four fields of a footer begin."""
_ENCRYPTION = (8, 9)


class Number(NamedTuple):
    """A number within encoded bytes, which begins and ends there."""

    value: int
    begin: int
    end: int


Wanted = Mapping[int, "Wanted | None"]
"""Fields of a struct that are looked at: numbers (None), and structs or lists of structs with wanted fields of their own."""
_METADATA_NUMBERS: Wanted = dict.fromkeys((4, 7, 9, 10, 11, 14, 15))
_CHUNK_NUMBERS: Wanted = {**dict.fromkeys((2, 4, 5, 6, 7)), 3: _METADATA_NUMBERS}
GROUP_NUMBERS: Wanted = {**dict.fromkeys((3, 5, 7)), 1: _CHUNK_NUMBERS}


class EncodedStruct(NamedTuple):
    """A struct that stays encoded but for some numbers: this is much quicker than decoding all of it.

    `numbers`: those that it has of the wanted fields. `parts`: structs in the other wanted ones. `others`: fields not asked for.
    """

    data: bytes
    begin: int
    end: int
    numbers: dict[int, Number]
    parts: dict[int, list[EncodedStruct]]
    others: tuple[int, ...]

    def value(self, field: int) -> int:
        """The number; 0 where it is missing."""
        return self.numbers[field].value if field in self.numbers else 0

    def replaced(self, values: Mapping[Number, int]) -> bytes:
        """The struct with other values for some of its numbers, also of those in its parts."""
        out, at = bytearray(), self.begin
        for number in sorted(values, key=lambda number: number.begin):
            out += self.data[at : number.begin]
            _put_number(out, values[number])
            at = number.end
        return bytes(out + self.data[at : self.end])


def _encoded_struct(data: bytes, begin: int, wanted: Wanted) -> EncodedStruct:
    at, field = begin, 0
    numbers: dict[int, Number] = {}
    parts: dict[int, list[EncodedStruct]] = {}
    others = []
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, at = _number(data, at)
        inside = wanted.get(field)
        if inside is not None and kind == STRUCT:
            part = _encoded_struct(data, at, inside)
            parts[field], at = [part], part.end
        elif inside is not None and kind == LIST:
            parts[field], at = _encoded_structs(data, at, inside)
        elif field in wanted and kind in (I16, I32, I64):
            value, end = _number(data, at)
            numbers[field] = Number(value, at, end)
            at = end
        else:
            others.append(field)
            at = at if kind <= FALSE else _skip(data, at, kind)
    return EncodedStruct(data, begin, at + 1, numbers, parts, tuple(others))


def _encoded_structs(data: bytes, at: int, wanted: Wanted) -> tuple[list[EncodedStruct], int]:
    """The structs of the list that begins at `at`, and where it ends."""
    size, kind, at = _list_head(data, at)
    if kind != STRUCT:
        raise ValueError(f"a list of Thrift's type {kind}, not of structs")
    structs = []
    for _ in range(size):
        structs.append(_encoded_struct(data, at, wanted))
        at = structs[-1].end
    return structs, at


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Size, type of the elements, and where they begin."""
    size, kind = data[at] >> 4, data[at] & 15
    if size < 15:
        return size, kind, at + 1
    size, at = _varint(data, at + 1)
    return size, kind, at


def _after(data: bytes, at: int, head: int) -> int:
    """Where the value of the field begins that `at` must be the head of."""
    if data[at] != head:
        raise ValueError("its footer does not begin with version, schema, rows and row groups")
    return at + 1


def _skip(data: bytes, at: int, kind: int) -> int:
    """Where the value that begins at `at` ends."""
    if kind in (I64, I32, I16):
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if kind == BINARY:
        size = data[at]
        if size < 0x80:
            return at + 1 + size
        size, at = _varint(data, at)
        return at + size
    if kind == STRUCT:
        while head := data[at]:
            at += 1
            if not head >> 4:
                at = _skip(data, at, I16)
            kind = head & 15
            if kind in (I64, I32):  # here and not by a call, since these and short texts are by far the most frequent
                while data[at] >= 0x80:
                    at += 1
                at += 1
            elif kind == BINARY and data[at] < 0x80:
                at += 1 + data[at]
            elif kind > FALSE:
                at = _skip(data, at, kind)
        return at + 1
    if kind in (LIST, SET):
        size, inner, at = _list_head(data, at)
        if inner in (TRUE, FALSE, BYTE):
            return at + size
        for _ in range(size):
            at = _skip(data, at, inner)
        return at
    if kind in (BYTE, DOUBLE):
        return at + (1 if kind == BYTE else 8)
    raise ValueError(f"a value of Thrift's type {kind}")


@dataclass(frozen=True)
class FooterFrame:
    """A footer without its rows, as bytes: what the files that one writer wrote by one schema have in common.

    `before`: the version and the schema. `after`: what follows the row groups: key-value metadata, the writer, column orders.
    """

    before: bytes
    after: bytes

    @staticmethod
    def split(footer: bytes) -> tuple[FooterFrame, int, list[EncodedStruct]]:
        """With the count of rows and the row groups. `ValueError` for an order of fields that no known writer uses."""
        at = _skip(footer, _after(footer, 0, _VERSION), I32)
        end = _skip(footer, _after(footer, at, _SCHEMA), LIST)
        rows, at = _number(footer, _after(footer, end, _ROWS))
        groups, at = _encoded_structs(footer, _after(footer, at, _GROUPS), GROUP_NUMBERS)
        if at > len(footer):
            raise ValueError("it is cut off")
        return FooterFrame(footer[:end], footer[at:]), rows, groups

    def around(self, rows: int, groups: Sequence[bytes]) -> bytes:
        """A footer with these rows and row groups."""
        out = bytearray(self.before)
        out.append(_ROWS)
        _put_number(out, rows)
        out.append(_GROUPS)
        _put_list_head(out, STRUCT, len(groups))
        return b"".join([out, *groups, self.after])

    @property
    def columns(self) -> list[str] | None:
        """The names of the columns; None in files that are encrypted."""
        footer = Footer(self.around(0, ()))
        return None if any(field in footer.fields for field in _ENCRYPTION) else list(footer.columns)


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

    @staticmethod
    def moved(data: bytes, distance: int) -> bytes:
        """The same index of a chunk that lies `distance` bytes further on."""
        fields = Reader(data).struct()
        for place in fields.elements(1):
            place[1] = number(place.required(1) + distance)
        return encode(fields)


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


def closed(parts: Sequence[bytes], footer: bytes) -> bytes:
    """A whole file of these parts: the first one follows the magic."""
    return b"".join([MAGIC, *parts, footer, ending(footer)])


def ending(footer: bytes) -> bytes:
    """What ends a file after its footer."""
    return struct.pack("<I", len(footer)) + MAGIC
