"""Footers and page indexes of Parquet files, which Arrow does not expose: structs of Thrift's compact protocol.

Arrow writes page indexes but does not read them. To read single pages, `bucket/parquet_chunks` must find their offsets and write
a footer for them. Unknown fields are kept. Malformed bytes raise `ValueError` or `LookupError`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Sequence
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

PARQUET_MAGIC = b"PAR1"
TAIL = 8
"""Bytes after the footer: its length (4) and the magic (4)."""


@dataclass(frozen=True)
class Leaf:
    """A leaf of the schema tree, a column that stores values."""

    element: Struct
    is_repeated: bool
    """Whether a row may have any number of values, including none."""


@dataclass(frozen=True)
class TopColumn:
    """A top-level column with everything nested in it; `first_leaf` is the index of its first leaf in a row group."""

    elements: tuple[Struct, ...]
    leaves: tuple[Leaf, ...]
    first_leaf: int


class Footer:
    """The footer of a file. Field numbers are those of parquet-format's `parquet.thrift`. Column chunks are decoded on demand."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.fields = decode(data, {4: {1: None}})
        self.root, *elements = self.fields.elements(2)
        self.columns: dict[str, TopColumn] = {}
        location = leaves = 0
        while location < len(elements):
            end, found = _subtree(elements, location, False)
            name = elements[location].required(4).decode()
            self.columns[name] = TopColumn(tuple(elements[location:end]), tuple(found), leaves)
            location, leaves = end, leaves + len(found)
        self.groups: list[Struct] = self.fields.elements(4)

    @property
    def row_count(self) -> int:
        return int(self.fields.required(3))

    def chunk(self, group: int, leaf: int) -> Struct:
        """The `ColumnChunk` of a leaf in a row group, both given by index."""
        return decode(self.groups[group].elements(1)[leaf])


_BOUNDS = (1, 2, 5, 6, 7, 8)
"""Field numbers of `Statistics`: maximum and minimum, once for old readers, and whether they are exact."""
_COLUMN_INDEX = (6, 7)
"""Field numbers of `ColumnChunk`: offset and length of the bounds of its pages."""


def without_bounds(footer: bytes, chunks: Collection[tuple[int, int]]) -> bytes:
    """An encoded footer without the bounds of these chunks, pairs of row group and leaf, and of their pages."""
    fields = decode(footer)
    groups = fields.elements(4)
    for group, leaf in chunks:
        chunk = groups[group].elements(1)[leaf]
        for field in _COLUMN_INDEX:
            chunk.pop(field, None)
        for field in _BOUNDS:
            chunk.required(3).value(12, Struct()).pop(field, None)
    return encode(fields)


_INT96, _FIXED, INT96_BYTES = 3, 7, 12
"""Two physical types, and the size of a value of the first."""


def with_int96_as_bytes(footer: bytes) -> bytes:
    """An encoded footer that declares INT96 columns as byte strings of the same size, so that Arrow does not convert them."""
    fields = decode(footer)
    for element in fields.elements(2):
        if element.value(1) == _INT96:
            element.update({1: number(_FIXED, I32), 2: number(INT96_BYTES, I32)})
    for chunk in (chunk for group in fields.elements(4) for chunk in group.elements(1)):
        metadata = chunk.required(3)
        if metadata.value(1) == _INT96:
            metadata[1] = number(_FIXED, I32)
            metadata.pop(12, None)  # statistics
    fields.pop(5, None)  # may hold Arrow's own schema
    return encode(fields)


def _subtree(elements: Sequence[Struct], location: int, is_repeated: bool) -> tuple[int, list[Leaf]]:
    """The index after the subtree of the element at index `location`, and its leaves."""
    element = elements[location]
    is_repeated = is_repeated or element.value(3) == 2
    children = element.value(5, 0)
    if not children:
        return location + 1, [Leaf(element, is_repeated)]
    location, leaves = location + 1, []
    for _ in range(children):
        location, nested = _subtree(elements, location, is_repeated)
        leaves += nested
    return location, leaves


@dataclass(frozen=True)
class PageStatistics:
    """Least and greatest value of each page (`ColumnIndex`), PLAIN-encoded, None for pages of nulls, and the numbers of nulls,
    None if there are none.
    """

    lows: list[bytes | None]
    highs: list[bytes | None]
    nulls: list[int] | None

    @staticmethod
    def decode(data: bytes) -> PageStatistics:
        fields = decode(data)
        lows, highs = fields.elements(2), fields.elements(3)
        is_null_page = [mark == TRUE for mark in fields.elements(1)]
        if not len(lows) == len(highs) == len(is_null_page):
            raise ValueError("its page index lacks the bounds of some pages")
        nulls = fields.elements(5) or None
        if nulls is not None and len(nulls) != len(lows):
            raise ValueError("its page index lacks the null counts of some pages")
        if not any(is_null_page):
            return PageStatistics(lows, highs, nulls)
        return PageStatistics(
            [None if none else low for none, low in zip(is_null_page, lows, strict=True)],
            [None if none else high for none, high in zip(is_null_page, highs, strict=True)],
            nulls,
        )


@dataclass(frozen=True)
class PageBounds:
    """Least and greatest value of each page (`ColumnIndex`), PLAIN-encoded; None is null, which sorts before all values."""

    lows: list[bytes | None]
    highs: list[bytes | None]

    @staticmethod
    def decode(data: bytes, is_required: bool) -> PageBounds:
        """Decode a `ColumnIndex`. Without null counts, pages are assumed to hold nulls unless `is_required`."""
        pages = PageStatistics.decode(data)
        nulls = pages.nulls or [0 if is_required else 1] * len(pages.lows)
        if not any(nulls):
            return PageBounds(pages.lows, pages.highs)
        lows = [None if count > 0 else low for count, low in zip(nulls, pages.lows, strict=True)]
        return PageBounds(lows, pages.highs)


@dataclass(frozen=True)
class PageLocations:
    """Offset in the file, size in bytes with header, and first row in the row group of each page (`OffsetIndex`)."""

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    first_rows: NDArray[np.int64]

    @staticmethod
    def decode(data: bytes) -> PageLocations:
        locations = _uniform_locations(data)
        if locations is None:
            listed = decode(data).elements(1)
            cells = [[location.required(field) for field in (1, 2, 3)] for location in listed]
            locations = np.array(cells, np.int64).reshape(-1, 3)
        return PageLocations(locations[:, 0], locations[:, 1], locations[:, 2])

    @staticmethod
    def moved(data: bytes, distance: int) -> bytes:
        """An encoded `OffsetIndex` for the same chunk moved by `distance` bytes."""
        fields = decode(data)
        for location in fields.elements(1):
            location[1] = number(location.required(1) + distance)
        return encode(fields)


_PAGE_LOCATION = (1 << 4 | I64, 1 << 4 | I32, 1 << 4 | I64, 0)
"""The bytes before each of the three numbers of a `PageLocation`, and after the last."""


def _uniform_locations(data: bytes) -> NDArray[np.int64] | None:
    """The page locations as an array of shape (pages, 3); None if they are not encoded as all known writers do.

    Every value and every byte between values is a varint, so that all can be decoded in one go.
    """
    if data[:1] != bytes([1 << 4 | LIST]):
        return None
    count, kind, at = list_head(data, 1)
    content = np.frombuffer(data, np.uint8, offset=at)
    ends = np.flatnonzero(content < 0x80)[: 7 * count]
    if kind != STRUCT or len(ends) < 7 * count:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max(initial=0) > 9:
        return None  # a number has more than ten bytes
    values = np.zeros(len(ends), np.uint64)
    for digit in range(int((ends - starts).max(initial=0)) + 1):
        has = starts + digit <= ends
        values[has] |= (content[starts[has] + digit] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * digit)
    rows = values.reshape(count, 7)
    if (rows[:, [0, 2, 4, 6]] != np.array(_PAGE_LOCATION, np.uint64)).any():
        return None
    numbers = rows[:, [1, 3, 5]]
    return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)


_VARINT = rb"[\x80-\xff]*[\x00-\x7f]"
_KNOWN_HEADER = re.compile(rb"\x15[\x00\x06](?:\x15" + _VARINT + rb"){2,3}[\x1c\x2c\x4c\x5c]\x15(" + _VARINT + rb")", re.DOTALL)
"""The start of a data page header of either version: type, two sizes, optional checksum, struct head, and number of values."""


def values_of_page(page: bytes) -> int:
    """The number of values, nulls included, in the header of a data page. Raises `ValueError` for any other page."""
    usual = _KNOWN_HEADER.match(page)
    if usual is not None:
        return read_number(usual[1], 0)[0]
    header = decode(page)
    data_page = header.value(5) or header.value(8)
    if data_page is None:
        raise ValueError("there is no data page at the offset in its index")
    return int(data_page.required(1))


def plain_page(content: bytes, count: int) -> bytes:
    """An uncompressed data page, with header, of `count` required values; `content` is their PLAIN encoding."""
    data_page = Struct({1: number(count, I32), 2: number(0, I32), 3: number(3, I32), 4: number(3, I32)})
    sizes = {2: number(len(content), I32), 3: number(len(content), I32)}
    return encode(Struct({1: number(0, I32), **sizes, 5: (STRUCT, data_page)})) + content


def closed(parts: Sequence[bytes], footer: bytes) -> bytes:
    """The bytes of a complete file: magic, these parts, and an encoded footer with its ending."""
    return b"".join([PARQUET_MAGIC, *parts, footer, ending(footer)])


def ending(footer: bytes) -> bytes:
    """The last bytes of a file, after its encoded footer: the footer's length and the magic."""
    return struct.pack("<I", len(footer)) + PARQUET_MAGIC
