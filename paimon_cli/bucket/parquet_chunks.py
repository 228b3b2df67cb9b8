"""Column chunks of Parquet files: the positions of their pages, and decoding of single pages.

Arrow decodes only whole column chunks. So the pages to be decoded are copied, with the dictionary page of their chunk, into a
small Parquet file in memory with a footer of its own, which Arrow decodes: any encoding, any codec, with page checksums.
Bounds of pages, which are plain values, become Arrow columns in the same way.

The page index is not trusted: a page must be inside its chunk, and hold as many rows as the index says.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paimon_cli.metadata.compact_thrift import BINARY, I32, LIST, STRUCT, Struct, encode, number, struct_list
from paimon_cli.metadata.parquet_footer import (
    PARQUET_MAGIC,
    TAIL,
    Footer,
    Leaf,
    PageBounds,
    PageLocations,
    TopColumn,
    closed,
    plain_page,
    values_of_page,
)
from paimon_cli.pieces import PIECES

Rows = NDArray[np.int64]
_BOOLEAN, INT96, BYTE_ARRAY = 0, 3, 6
"""Physical types."""
REQUIRED = 0
"""The repetition type of a column without nulls."""
DICTIONARIES = frozenset({2, 8})
"""Encodings of dictionary indices: PLAIN_DICTIONARY and RLE_DICTIONARY."""
_FILE_FIELDS = (1, 6)
"""Fields of the footer that the small file takes over: version and writer."""
_CHUNK_FIELDS = (1, 2, 3, 4, 6)
"""Fields of a chunk's metadata that it takes over: type, encodings, path, codec, uncompressed size."""


def read_footer(source: BinaryIO, length: int | None = None) -> Footer:
    """The decoded footer. `length`: its bytes in the file, if known. Raises `ValueError` for a file that is not Parquet, or is
    encrypted.
    """
    return Footer(footer_bytes(source, PIECES.footer_guess_bytes if length is None else length + TAIL))


def footer_bytes(source: BinaryIO, guess: int | None = None) -> bytes:
    """The encoded footer. `guess`: bytes to read from the end first. Raises what `read_footer` does."""
    size = source.seek(0, os.SEEK_END)
    first = min(size, guess or PIECES.footer_guess_bytes)
    tail = _read(source, size - first, first)
    length = footer_size(tail, size)
    return tail[-length - TAIL : -TAIL] if length + TAIL <= len(tail) else _read(source, size - length - TAIL, length)


def footer_size(tail: bytes, size: int) -> int:
    """The length of the encoded footer of a file of `size` bytes that ends with `tail`. Raises `ValueError`."""
    if tail[-4:] != PARQUET_MAGIC or len(tail) < TAIL + len(PARQUET_MAGIC):
        raise ValueError("it does not end like a Parquet file")
    (length,) = struct.unpack_from("<I", tail, len(tail) - TAIL)
    if length + TAIL > size:
        raise ValueError(f"a footer of {length} bytes does not fit into it")
    return int(length)


def read_ranges(source: BinaryIO, extents: Iterable[tuple[int, int]], gap: int) -> list[bytes]:
    """The bytes of each extent (offset, size), in the order given. Extents at most `gap` bytes apart are read at once."""
    ranges = list(extents)
    contents = [b""] * len(ranges)
    order = sorted((i for i, (_, size) in enumerate(ranges) if size), key=lambda i: ranges[i])
    at = 0
    while at < len(order):
        begin, size = ranges[order[at]]
        end, stop = begin + size, at + 1
        while stop < len(order) and ranges[order[stop]][0] <= end + gap:
            end = max(end, sum(ranges[order[stop]]))
            stop += 1
        content = _read(source, begin, end - begin)
        for i in order[at:stop]:
            offset, size = ranges[i]
            contents[i] = content[offset - begin : offset - begin + size]
        at = stop
    return contents


def _read(source: BinaryIO, offset: int, size: int) -> bytes:
    source.seek(offset)
    content = source.read(size)
    if len(content) != size:
        raise ValueError("it is cut off")
    return content


@dataclass(frozen=True)
class ColumnChunk:
    """A column chunk and the positions of its pages; without page indexes the whole chunk counts as one page.

    `entry`: its entry in the footer. `begin`, `end`: its bytes in the file.
    """

    entry: Struct
    leaf: Leaf
    begin: int
    end: int
    locations: PageLocations
    is_paged: bool

    def whole(self) -> ColumnChunk:
        """The chunk as a single page."""
        locations = (np.array([value], np.int64) for value in (self.begin, self.end - self.begin, 0))
        return replace(self, locations=PageLocations(*locations), is_paged=False)

    @property
    def uses_dictionary(self) -> bool:
        return not DICTIONARIES.isdisjoint(self.metadata.elements(2))

    @property
    def metadata(self) -> Struct:
        metadata: Struct = self.entry.required(3)
        return metadata


def chunks_of(
    source: BinaryIO, footer: Footer, columns: Sequence[TopColumn], groups: Sequence[int] | range, *, bounded: bool = True
) -> dict[int, list[ColumnChunk]]:
    """Row group -> the chunks of all leaves of the columns. Raises `ValueError` for page indexes that are damaged.

    `bounded`: chunks without bounds of their pages count as one page.
    """
    leaves = [(number, leaf) for column in columns for number, leaf in enumerate(column.leaves, column.first_leaf)]
    entries = {group: [footer.chunk(group, number) for number, _ in leaves] for group in groups}
    indexed = {group: all(_has_index(entry, bounded) for entry in of_group) for group, of_group in entries.items()}
    extents = [(entry.required(4), entry.required(5)) for group in groups if indexed[group] for entry in entries[group]]
    contents = iter(read_ranges(source, extents, PIECES.index_gap_bytes))
    chunks = {}
    for group in groups:
        rows = footer.groups[group].required(3)
        indexes = [PageLocations.decode(next(contents)) if indexed[group] else None for _ in leaves]
        first = indexes[0].first_rows if indexes[0] is not None else np.empty(0)
        is_paged = all(index is not None and np.array_equal(index.first_rows, first) for index in indexes)
        chunks[group] = [
            _chunk(entry, leaf, index if is_paged else None, rows)
            for entry, (_, leaf), index in zip(entries[group], leaves, indexes, strict=True)
        ]
    return chunks


def _has_index(entry: Struct, bounded: bool) -> bool:
    return all(entry.value(field, 0) > 0 for field in ((4, 5, 6, 7) if bounded else (4, 5)))


def _chunk(entry: Struct, leaf: Leaf, locations: PageLocations | None, rows: int) -> ColumnChunk:
    if entry.value(1) is not None or 3 not in entry:
        raise ValueError("a column is encrypted, or in another file")
    metadata = entry.required(3)
    data = metadata.required(9)
    begin = min(data, metadata.value(11) or data)
    end = begin + metadata.required(7)
    if locations is None:
        return ColumnChunk(entry, leaf, begin, end, PageLocations(*np.zeros((3, 1), np.int64)), False).whole()
    ends = locations.offsets + locations.sizes
    inside = begin <= locations.offsets[0] and ends[-1] <= end and (locations.sizes > 0).all()
    row_bounds = np.append(locations.first_rows, rows)
    if not inside or (ends[:-1] > locations.offsets[1:]).any() or row_bounds[0] != 0 or (np.diff(row_bounds) <= 0).any():
        raise ValueError("its page index lists pages that cannot exist")
    return ColumnChunk(entry, leaf, begin, end, locations, True)


def whole_bounds(chunk: ColumnChunk, is_required: bool) -> PageBounds | None:
    """The bounds of the whole chunk, None if unknown. Ignores the deprecated `min` and `max`, which some writers got wrong."""
    statistics = chunk.metadata.value(12, Struct())
    low, high, nulls = statistics.value(6), statistics.value(5), statistics.value(3, 0 if is_required else 1)
    if nulls >= chunk.metadata.required(5):
        return PageBounds([None], [None])
    return None if low is None or high is None else PageBounds([None if nulls else low], [high])


@dataclass(frozen=True)
class ChunkPart:
    """Pages of a chunk that are to be decoded (numbers within the chunk), and the number of rows in each."""

    chunk: ColumnChunk
    pages: Rows
    rows: Rows

    def extents(self) -> list[tuple[int, int]]:
        """The (offset, size) of what comes before the first page (the dictionary, or nothing), then of each page."""
        locations = self.chunk.locations
        prefix = (self.chunk.begin, int(locations.offsets[0]) - self.chunk.begin)
        return [prefix, *zip(locations.offsets[self.pages].tolist(), locations.sizes[self.pages].tolist(), strict=True)]

    def value_count(self, pages: Sequence[bytes]) -> int:
        """The number of values in these pages, nulls included. `ValueError` if a page has another number of rows than indexed."""
        if not self.chunk.is_paged:
            return int(self.chunk.metadata.required(5))
        counts = [values_of_page(page) for page in pages]
        if not self.chunk.leaf.is_repeated and counts != self.rows.tolist():
            raise ValueError("a page holds another number of rows than its index says")
        return sum(counts)


class SmallFile:
    """A Parquet file in memory, built from pages of other files."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = len(PARQUET_MAGIC)
        self._groups: list[Struct] = []
        self._rows = 0

    def add_group(self, leaves: Sequence[Sequence[tuple[ChunkPart, list[bytes]]]]) -> None:
        """Append a row group. For each leaf: its parts in order, each with the contents of `ChunkPart.extents`."""
        rows = sum(int(part.rows.sum()) for part, _ in leaves[0])
        begin = self._size
        chunks = [self._chunk(parts) for parts in leaves]
        self._groups.append(Struct({1: struct_list(chunks), 2: number(self._size - begin), 3: number(rows)}))
        self._rows += rows

    def _chunk(self, parts: Sequence[tuple[ChunkPart, list[bytes]]]) -> Struct:
        begin, chunk = self._size, parts[0][0].chunk
        metadata = chunk.metadata
        copied = Struct({field: metadata[field] for field in _CHUNK_FIELDS if field in metadata})
        dictionary_size = len(parts[0][1][0]) if chunk.is_paged else metadata.required(9) - chunk.begin
        if dictionary_size:
            copied[11] = number(begin)
        values = 0
        for part, contents in parts:
            values += part.value_count(contents[1:])
            self._parts += contents
            self._size += sum(map(len, contents))
        copied |= {5: number(values), 7: number(self._size - begin), 9: number(begin + dictionary_size)}
        return Struct({2: number(0), 3: (STRUCT, copied)})

    def read(self, like: Footer, elements: Sequence[Struct], columns: int) -> pa.Table:
        """All rows of the file.

        `elements`: those of its schema, for this many `columns`; `like`: a footer of the original files.
        """
        root = Struct({**like.root, 5: number(columns, I32)})
        copied = {field: like.fields[field] for field in _FILE_FIELDS if field in like.fields}
        counts = {3: number(self._rows), 4: struct_list(self._groups)}
        file = closed(self._parts, encode(Struct({**copied, 2: struct_list([root, *elements]), **counts})))
        return pq.ParquetFile(pa.BufferReader(file), pre_buffer=False, page_checksum_verification=True).read(use_threads=False)


def plain_values(footer: Footer, element: Struct, values: Sequence[bytes | None]) -> pa.Array:
    """Values in PLAIN encoding, as statistics hold them, as an Arrow array of the column's type in the file; None is null."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        is_null = np.array([value is None for value in values])
        return plain_values(footer, element, present).take(pa.array(np.cumsum(~is_null) - 1, mask=is_null))
    kind = element.required(1)
    if kind == BYTE_ARRAY:
        content = b"".join(piece for value in present for piece in (struct.pack("<I", len(value)), value))
    elif kind == _BOOLEAN:
        content = np.packbits(np.frombuffer(b"".join(present), bool), bitorder="little").tobytes()
    else:
        content = b"".join(present)
    page = plain_page(content, len(present))
    name = element.required(4)
    size, count = number(len(page)), number(len(present))
    encodings, path = (LIST, (I32, [0])), (LIST, (BINARY, [name]))
    metadata = {1: number(kind, I32), 2: encodings, 3: path, 4: number(0, I32), 5: count, 6: size, 7: size}
    chunk = Struct({2: number(0), 3: (STRUCT, Struct({**metadata, 9: number(len(PARQUET_MAGIC))}))})
    group = Struct({1: struct_list([chunk]), 2: size, 3: count})
    required = Struct({**element, 3: number(0, I32)})
    root = Struct({**footer.root, 5: number(1, I32)})
    fields = {1: number(1, I32), 2: struct_list([root, required]), 3: count, 4: struct_list([group])}
    table = pq.ParquetFile(pa.BufferReader(closed([page], encode(Struct(fields)))), pre_buffer=False).read(use_threads=False)
    return table.column(0).combine_chunks()
