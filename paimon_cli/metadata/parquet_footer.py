"""Footers and page indexes of Parquet files, which Arrow does not expose: structs of Thrift's compact protocol.

Arrow writes page indexes but does not use them to read. A reader of single pages of a file must know where they lie, and must be
able to write a footer for them (`bucket/parquet_chunks`). Fields that are not known here are kept. Bytes that do not make sense
raise `ValueError` or `LookupError`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paimon_cli.metadata.compact_thrift import (
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    decode,
    encode,
    list_head,
    number,
    read_number,
)

MAGIC = b"PAR1"
TAIL = 8
"""Bytes after the footer: its length, and the magic."""


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
    """A file's footer. Numbers of fields: parquet-format's `parquet.thrift`. Column chunks are decoded on demand."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.fields = decode(data, {4: {1: None}})
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

    def chunk(self, group: int, leaf: int) -> Struct:
        """The `ColumnChunk` of a leaf in a row group."""
        return decode(self.groups[group].elements(1)[leaf])


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
        fields = decode(data)
        lows, highs = fields.elements(2), fields.elements(3)
        without = [mark == TRUE for mark in fields.elements(1)]
        if not len(lows) == len(highs) == len(without):
            raise ValueError("its page index has bounds of some pages only")
        nulls = fields.elements(5) or [0 if is_required else 1] * len(lows)
        if len(nulls) != len(lows):
            raise ValueError("its page index counts the nulls of some pages only")
        if not any(nulls) and not any(without):
            return PageBounds(lows, highs)
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
            listed = decode(data).elements(1)
            cells = [[place.required(field) for field in (1, 2, 3)] for place in listed]
            places = np.array(cells, np.int64).reshape(-1, 3)
        return PagePlaces(places[:, 0], places[:, 1], places[:, 2])

    @staticmethod
    def moved(data: bytes, distance: int) -> bytes:
        """The same index of a chunk that lies `distance` bytes further on."""
        fields = decode(data)
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
    count, kind, at = list_head(data, 1)
    content = np.frombuffer(data, np.uint8, offset=at)
    ends = np.flatnonzero(content < 0x80)[: 7 * count]
    if kind != STRUCT or len(ends) < 7 * count:
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
        return read_number(usual[1], 0)[0]
    header = decode(page)
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
    """A complete file of these parts, between the magic and the footer."""
    return b"".join([MAGIC, *parts, footer, ending(footer)])


def ending(footer: bytes) -> bytes:
    """The end of a file, after its footer."""
    return struct.pack("<I", len(footer)) + MAGIC
