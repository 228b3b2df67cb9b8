"""Single pages of Parquet files: some columns of some row ranges, decoded without the rest of their row groups.

Arrow decodes whole column chunks only. So the wanted pages are put, as they are, after the dictionary page of their chunk into a
small file in memory, which gets a footer of its own, and Arrow decodes that: any encoding, any codec, with page checksums.
Bounds of pages, which are plain values, become Arrow columns in the same way.

What the page index says is not trusted: a page must lie where it can, and hold as many rows as the index says.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paimon_cli.metadata.parquet_footer import (
    BINARY,
    I32,
    LIST,
    MAGIC,
    STRUCT,
    TAIL,
    Footer,
    Leaf,
    PageBounds,
    PagePlaces,
    Struct,
    TopColumn,
    closed,
    number,
    plain_page,
    struct_list,
    values_of_page,
)

Rows = NDArray[np.int64]
TAIL_GUESS = 64 << 10
"""Bytes read from the end of a file, so that most footers take one request."""
PORTION_BYTES = 8 << 20
"""Decoded bytes of the rows that are read together."""
PAGE_GAP, INDEX_GAP = 16 << 10, 64 << 10
"""Unwanted bytes that are read along rather than with one more request."""
MEMORY_PER_FOOTER_BYTE = 20
BOOLEAN, INT96, BYTE_ARRAY = 0, 3, 6
"""Physical types."""
DICTIONARIES = frozenset({2, 8})
"""Encodings, old and new."""
_OF_FILE = (1, 6)
"""Fields of the footer that its copy keeps: version and writer."""
_OF_CHUNK = (1, 2, 3, 4, 6)
"""Fields of a chunk's metadata that hold for a part of it, too: type, encodings, path, codec, uncompressed size."""


def read_footer(source: BinaryIO) -> Footer:
    """`ValueError` for what is no Parquet file, or an encrypted one."""
    size = source.seek(0, os.SEEK_END)
    tail = _read(source, max(0, size - TAIL_GUESS), min(size, TAIL_GUESS))
    if tail[-4:] != MAGIC or len(tail) < TAIL + len(MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    (length,) = struct.unpack_from("<I", tail, len(tail) - TAIL)
    if length + TAIL > size:
        raise ValueError(f"a footer of {length} bytes does not fit into it")
    return Footer(tail[-length - TAIL : -TAIL] if length + TAIL <= len(tail) else _read(source, size - length - TAIL, length))


@dataclass(frozen=True)
class _Chunk:
    """Where the pages of a column chunk lie; the whole chunk counts as one page where its pages are not listed."""

    listed: Struct
    leaf: Leaf
    begin: int
    end: int
    places: PagePlaces
    is_paged: bool

    def whole(self) -> _Chunk:
        """The chunk as one page."""
        places = (np.array([value], np.int64) for value in (self.begin, self.end - self.begin, 0))
        return replace(self, places=PagePlaces(*places), is_paged=False)

    @property
    def uses_dictionary(self) -> bool:
        return not DICTIONARIES.isdisjoint(self.metadata.elements(2))

    @property
    def metadata(self) -> Struct:
        found: Struct = self.listed.required(3)
        return found


@dataclass(frozen=True)
class Run:
    """Blocks that were read, one after the other: where each starts in what was read, and in the file."""

    starts: Rows
    begins: Rows

    def rows_of(self, places: Rows) -> Rows:
        """The row in the file at each place in what was read."""
        block = np.searchsorted(self.starts, places, "right") - 1
        return places + (self.begins - self.starts)[block]

    def places_of(self, rows: Rows) -> Rows:
        """The inverse, of rows that were read."""
        block = np.searchsorted(self.begins, rows, "right") - 1
        return rows - (self.begins - self.starts)[block]


@dataclass(frozen=True)
class PagedColumns:
    """Some columns of a file, cut into blocks: rows whose pages, or else whole chunks, are decoded together.

    `begins`, `ends`: the rows of each block in the file; `groups`, `pages`: its row group, and its page in there.
    """

    footer: Footer
    columns: tuple[TopColumn, ...]
    chunks: dict[int, list[_Chunk]]
    begins: Rows
    ends: Rows
    groups: Rows
    pages: Rows

    @staticmethod
    def of(source: BinaryIO, footer: Footer, names: Sequence[str], near: Rows | None = None) -> PagedColumns | None:
        """The columns in row groups that hold one of the ascending rows `near` (None: in all). None if one holds INT96.

        Where the pages of several columns do not begin at the same rows, a whole row group is one block.
        """
        columns = tuple(footer.columns[name] for name in names)
        if any(leaf.element.value(1) == INT96 for column in columns for leaf in column.leaves):
            return None
        rows = np.array([group.required(3) for group in footer.groups], np.int64)
        group_ends = np.cumsum(rows)
        wanted = range(len(rows)) if near is None else np.unique(np.searchsorted(group_ends, near, "right")).tolist()
        chunks = _chunks(source, footer, columns, wanted)
        begins, ends, groups, pages = [], [], [], []
        for group in wanted:
            first = chunks[group][0].places.first_rows
            begins.append(group_ends[group] - rows[group] + first)
            ends.append(group_ends[group] - rows[group] + np.append(first[1:], rows[group]))
            groups.append(np.full(len(first), group))
            pages.append(np.arange(len(first)))
        joined = [np.concatenate([np.empty(0, np.int64), *parts]) for parts in (begins, ends, groups, pages)]
        return PagedColumns(footer, columns, chunks, *joined)

    def __len__(self) -> int:
        return len(self.begins)

    def of_rows(self, rows: Rows) -> Rows:
        """The block that holds each row."""
        return np.searchsorted(self.begins, rows, "right") - 1

    def portions(self, first: Rows, last: Rows) -> Iterator[tuple[int, int, Rows]]:
        """Cuts ascending wishes, each for the blocks from `first` to `last`, into portions that memory has room for, unless a
        single wish `exceeds` it.

        A portion: from which to which wish, and all of their blocks.
        """
        wanted = np.zeros(len(self) + 1, np.int64)
        np.add.at(wanted, first, 1)
        np.add.at(wanted, last + 1, -1)
        is_wanted = np.cumsum(wanted[:-1]) > 0
        read_up_to = np.concatenate([[0], np.cumsum(np.where(is_wanted, self.ends - self.begins, 0))])
        begin = 0
        while begin < len(first):
            most = max(read_up_to[first[begin]] + self._most_rows, read_up_to[last[begin] + 1])
            end = int(np.searchsorted(read_up_to[last + 1], most, "right"))
            within = np.arange(first[begin], last[end - 1] + 1)
            yield begin, end, within[is_wanted[within]]
            begin = end

    def exceeds(self, blocks: Rows) -> bool:
        """Whether memory has no room for these blocks together."""
        return self.row_count(blocks) > self._most_rows

    def row_count(self, blocks: Rows) -> int:
        return int((self.ends[blocks] - self.begins[blocks]).sum())

    @property
    def size(self) -> int:
        """Bytes in memory without the footer, roughly."""
        return 8 * len(self) * (4 + 3 * len(self.columns))

    @cached_property
    def _most_rows(self) -> int:
        listed = [chunk.metadata.value(6, 0) for chunks in self.chunks.values() for chunk in chunks]
        rows = sum(self.footer.groups[group].required(3) for group in self.chunks)
        return int(PORTION_BYTES * rows // (rows + sum(listed)))

    def rows_at(self, source: BinaryIO, rows: Rows) -> pa.Array:
        """One column at ascending rows of the file; a block is decoded as a whole."""
        at = self.of_rows(rows)
        found = []
        for begin, end, blocks in self.portions(at, at):
            places = self.run(blocks).places_of(rows[begin:end])
            found.append(one_batch(self.read(source, blocks)).column(0).take(pa.array(places)))
        return pa.concat_arrays(found)

    def run(self, blocks: Rows) -> Run:
        """How the rows of these blocks, one after the other, are numbered in the file."""
        sizes = self.ends[blocks] - self.begins[blocks]
        return Run(np.cumsum(sizes) - sizes, self.begins[blocks])

    def read(self, source: BinaryIO, blocks: Rows) -> pa.Table:
        """The rows of these ascending blocks, with the columns in the file's types."""
        groups, firsts = np.unique(self.groups[blocks], return_index=True)
        parts = [self._parts(*own) for own in zip(groups.tolist(), np.split(blocks, firsts[1:]), strict=True)]
        extents = (extent for members in parts for part in members for extent in part.extents())
        contents = iter(read_ranges(source, extents, PAGE_GAP))
        filled = [[(part, [next(contents) for _ in range(len(part.pages) + 1)]) for part in members] for members in parts]
        file = _SmallFile()
        # Each row group costs time, but its pages need the dictionary of their own chunk.
        has_dictionary = any(part.chunk.uses_dictionary for members in parts for part in members)
        for together in [[members] for members in filled] if has_dictionary else [filled]:
            file.add_group([list(same_leaf) for same_leaf in zip(*together, strict=True)])
        elements = [element for column in self.columns for element in column.elements]
        table = file.read(self.footer, elements, len(self.columns))
        if table.num_rows != self.row_count(blocks):
            raise ValueError("its pages hold other numbers of rows than its page index says")
        return table

    def _parts(self, group: int, blocks: Rows) -> list[_Part]:
        """What is wanted of each chunk of a row group."""
        rows = self.ends[blocks] - self.begins[blocks]
        chunks = self.chunks[group]
        if len(blocks) == len(chunks[0].places.offsets):
            return [_Part(chunk.whole(), np.zeros(1, np.int64), rows) for chunk in chunks]
        return [_Part(chunk, self.pages[blocks], rows) for chunk in chunks]

    def bounds(self, source: BinaryIO, place: int) -> tuple[pa.Array, pa.Array] | None:
        """Least and greatest value of one of the columns in each block, in the file's type; None where any is not known."""
        if len(self.columns[place].elements) != 1:
            return None
        leaf = sum(len(column.leaves) for column in self.columns[:place])
        chunks = [self.chunks[group][leaf] for group in self.chunks]
        paged = [chunk for chunk in chunks if chunk.is_paged]
        extents = [(chunk.listed.value(6, 0), chunk.listed.value(7, 0)) for chunk in paged]
        contents = iter(read_ranges(source, extents, INDEX_GAP))
        lows: list[bytes] = []
        highs: list[bytes] = []
        for chunk in chunks:
            known = PageBounds.decode(next(contents)) if chunk.is_paged else _whole_bounds(chunk)
            if known is None:
                return None
            if len(known.lows) != len(chunk.places.first_rows):
                raise ValueError("its page indexes speak of different numbers of pages")
            lows += known.lows
            highs += known.highs
        values = _plain_values(self.footer, self.columns[place].leaves[0].element, [*lows, *highs])
        return values[: len(lows)], values[len(lows) :]


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table without chunks."""
    columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)


def read_ranges(source: BinaryIO, extents: Iterable[tuple[int, int]], gap: int) -> list[bytes]:
    """The bytes of each extent (offset, size), in their order; those at most `gap` bytes apart are read together."""
    listed = list(extents)
    contents = [b""] * len(listed)
    order = sorted(range(len(listed)), key=lambda i: listed[i])
    at = 0
    while at < len(order):
        begin, size = listed[order[at]]
        end, stop = begin + size, at + 1
        while stop < len(order) and listed[order[stop]][0] <= end + gap:
            end = max(end, sum(listed[order[stop]]))
            stop += 1
        content = _read(source, begin, end - begin)
        for i in order[at:stop]:
            offset, size = listed[i]
            contents[i] = content[offset - begin : offset - begin + size]
        at = stop
    return contents


def _read(source: BinaryIO, offset: int, size: int) -> bytes:
    source.seek(offset)
    content = source.read(size)
    if len(content) != size:
        raise ValueError("it is cut off")
    return content


def _chunks(
    source: BinaryIO, footer: Footer, columns: Sequence[TopColumn], groups: Sequence[int] | range
) -> dict[int, list[_Chunk]]:
    """The chunks of all leaves of the columns in these row groups."""
    leaves = [(place, leaf) for column in columns for place, leaf in enumerate(column.leaves, column.first_leaf)]
    listed = {group: [footer.groups[group].elements(1)[place] for place, _ in leaves] for group in groups}
    indexed = {group: all(_has_index(chunk) for chunk in chunks) for group, chunks in listed.items()}
    extents = [(chunk.required(4), chunk.required(5)) for group in groups if indexed[group] for chunk in listed[group]]
    contents = iter(read_ranges(source, extents, INDEX_GAP))
    found = {}
    for group in groups:
        rows = footer.groups[group].required(3)
        places = [PagePlaces.decode(next(contents)) if indexed[group] else None for _ in leaves]
        first = places[0].first_rows if places[0] is not None else np.empty(0)
        is_paged = all(place is not None and np.array_equal(place.first_rows, first) for place in places)
        found[group] = [
            _chunk(chunk, leaf, place if is_paged else None, rows)
            for chunk, (_, leaf), place in zip(listed[group], leaves, places, strict=True)
        ]
    return found


def _has_index(chunk: Struct) -> bool:
    return all(chunk.value(field, 0) > 0 for field in (4, 5, 6, 7))


def _chunk(listed: Struct, leaf: Leaf, places: PagePlaces | None, rows: int) -> _Chunk:
    if listed.value(1) is not None or 3 not in listed:
        raise ValueError("a column is encrypted, or in another file")
    metadata = listed.required(3)
    data = metadata.required(9)
    begin = min(data, metadata.value(11) or data)
    end = begin + metadata.required(7)
    if places is None:
        return _Chunk(listed, leaf, begin, end, PagePlaces(*np.zeros((3, 1), np.int64)), False).whole()
    ends = places.offsets + places.sizes
    inside = begin <= places.offsets[0] and ends[-1] <= end and (places.sizes > 0).all()
    row_bounds = np.append(places.first_rows, rows)
    if not inside or (ends[:-1] > places.offsets[1:]).any() or row_bounds[0] != 0 or (np.diff(row_bounds) <= 0).any():
        raise ValueError("its page index names pages that cannot be")
    return _Chunk(listed, leaf, begin, end, places, True)


def _whole_bounds(chunk: _Chunk) -> PageBounds | None:
    """Of all rows of the chunk; the older form of bounds, which some writers got wrong, does not count."""
    statistics = chunk.metadata.value(12, Struct())
    low, high = statistics.value(6), statistics.value(5)
    return None if low is None or high is None else PageBounds([low], [high])


@dataclass(frozen=True)
class _Part:
    """Pages of a chunk that are wanted, with the rows of each."""

    chunk: _Chunk
    pages: Rows
    rows: Rows

    def extents(self) -> list[tuple[int, int]]:
        """What stands before the first page (the dictionary, or nothing), then the pages."""
        places = self.chunk.places
        before = (self.chunk.begin, int(places.offsets[0]) - self.chunk.begin)
        return [before, *zip(places.offsets[self.pages].tolist(), places.sizes[self.pages].tolist(), strict=True)]

    def value_count(self, pages: Sequence[bytes]) -> int:
        """Values in these pages, nulls counted. `ValueError` where a page holds other rows than the index says."""
        if not self.chunk.is_paged:
            return int(self.chunk.metadata.required(5))
        counts = [values_of_page(page) for page in pages]
        if not self.chunk.leaf.is_repeated and counts != self.rows.tolist():
            raise ValueError("a page holds another number of rows than its index says")
        return sum(counts)


class _SmallFile:
    """A Parquet file in memory, in the making."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = len(MAGIC)
        self._groups: list[Struct] = []
        self._rows = 0

    def add_group(self, leaves: Sequence[Sequence[tuple[_Part, list[bytes]]]]) -> None:
        """A row group of the parts of each leaf, one after the other. The contents are those of `_Part.extents`."""
        rows = sum(int(part.rows.sum()) for part, _ in leaves[0])
        begin = self._size
        chunks = [self._chunk(parts) for parts in leaves]
        self._groups.append(Struct({1: struct_list(chunks), 2: number(self._size - begin), 3: number(rows)}))
        self._rows += rows

    def _chunk(self, parts: Sequence[tuple[_Part, list[bytes]]]) -> Struct:
        begin, chunk = self._size, parts[0][0].chunk
        metadata = chunk.metadata
        kept = Struct({field: metadata[field] for field in _OF_CHUNK if field in metadata})
        before = len(parts[0][1][0]) if chunk.is_paged else metadata.required(9) - chunk.begin
        if before:
            kept[11] = number(begin)
        values = 0
        for part, contents in parts:
            values += part.value_count(contents[1:])
            self._parts += contents
            self._size += sum(map(len, contents))
        kept |= {5: number(values), 7: number(self._size - begin), 9: number(begin + before)}
        return Struct({2: number(0), 3: (STRUCT, kept)})

    def read(self, like: Footer, elements: Sequence[Struct], columns: int) -> pa.Table:
        """All rows of the file, with the columns of the schema's `elements`."""
        root = Struct({**like.root, 5: number(columns, I32)})
        kept = {field: like.fields[field] for field in _OF_FILE if field in like.fields}
        counts = {3: number(self._rows), 4: struct_list(self._groups)}
        file = closed(self._parts, Struct({**kept, 2: struct_list([root, *elements]), **counts}))
        return pq.ParquetFile(pa.BufferReader(file), page_checksum_verification=True).read(use_threads=False)


def _plain_values(footer: Footer, element: Struct, values: Sequence[bytes]) -> pa.Array:
    """Plain values of a column, as statistics hold them, in the Arrow type that the column has in the file."""
    kind = element.required(1)
    if kind == BYTE_ARRAY:
        content = b"".join(piece for value in values for piece in (struct.pack("<I", len(value)), value))
    elif kind == BOOLEAN:
        content = np.packbits(np.frombuffer(b"".join(values), bool), bitorder="little").tobytes()
    else:
        content = b"".join(values)
    page = plain_page(content, len(values))
    name = element.required(4)
    size, count = number(len(page)), number(len(values))
    encodings, path = (LIST, (I32, [0])), (LIST, (BINARY, [name]))
    metadata = {1: number(kind, I32), 2: encodings, 3: path, 4: number(0, I32), 5: count, 6: size, 7: size}
    chunk = Struct({2: number(0), 3: (STRUCT, Struct({**metadata, 9: number(len(MAGIC))}))})
    group = Struct({1: struct_list([chunk]), 2: size, 3: count})
    required = Struct({**element, 3: number(0, I32)})
    root = Struct({**footer.root, 5: number(1, I32)})
    fields = {1: number(1, I32), 2: struct_list([root, required]), 3: count, 4: struct_list([group])}
    table = pq.ParquetFile(pa.BufferReader(closed([page], Struct(fields)))).read(use_threads=False)
    return table.column(0).combine_chunks()
