"""Some columns of some rows of a Parquet file: its rows as blocks, whose pages are decoded without the rest of their row groups.

A file without page indexes is cut into row groups. Blocks are read in portions that memory has room for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paimon_cli.bucket.parquet_chunks import (
    INDEX_GAP,
    INT96,
    PAGE_GAP,
    REQUIRED,
    Chunk,
    Part,
    Rows,
    SmallFile,
    chunks_of,
    plain_values,
    read_ranges,
    whole_bounds,
)
from paimon_cli.metadata.compact_thrift import Struct, encode
from paimon_cli.metadata.parquet_footer import Footer, PageBounds, TopColumn

Flags = NDArray[np.bool_]
PORTION_BYTES = 8 << 20
"""Decoded bytes of the rows that are read together."""
MEMORY_PER_FOOTER_BYTE = 20
NOTHING: Rows = np.empty(0, np.int64)


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
class Blocks:
    """Rows in blocks, one after the other: the first row of each, the one after its last, and a number that is the same for all
    blocks of a row group. Up to `most_rows` rows are decoded together.
    """

    begins: Rows
    ends: Rows
    groups: Rows
    most_rows: int

    def __len__(self) -> int:
        return len(self.begins)

    def of_rows(self, rows: Rows) -> Rows:
        """The block that holds each row."""
        return np.searchsorted(self.begins, rows, "right") - 1

    def row_count(self, blocks: Rows) -> int:
        return int((self.ends[blocks] - self.begins[blocks]).sum())

    def exceeds(self, first: Rows, last: Rows) -> Flags:
        """Which of the requests, each for the blocks from `first` to `last`, do not fit into memory."""
        up_to = np.cumsum(self.ends - self.begins)
        return up_to[last] - up_to[first] + (self.ends - self.begins)[first] > self.most_rows

    def wanted(self, first: Rows, last: Rows) -> Flags:
        """Which blocks are needed by any of the requests, each for the blocks from `first` to `last`."""
        marks = np.zeros(len(self) + 1, np.int64)
        np.add.at(marks, first, 1)
        np.add.at(marks, last + 1, -1)
        return np.cumsum(marks[:-1]) > 0

    def portions(self, first: Rows, last: Rows) -> Iterator[tuple[int, int, Rows]]:
        """Cuts ascending requests, each for the blocks from `first` to `last`, into portions that fit into memory, unless a
        single request `exceeds` it.

        A portion: the number of its first request, the number after its last, and all of their blocks.
        """
        is_wanted = self.wanted(first, last)
        read_up_to = np.concatenate([[0], np.cumsum(np.where(is_wanted, self.ends - self.begins, 0))])
        begin = 0
        while begin < len(first):
            most = max(read_up_to[first[begin]] + self.most_rows, read_up_to[last[begin] + 1])
            end = int(np.searchsorted(read_up_to[last + 1], most, "right"))
            if end < len(first):  # rather end with a row group: a whole one is read with less effort than its pages one by one
                ended = int(np.searchsorted(last, np.searchsorted(self.groups, self.groups[last[end]])))
                end = ended if ended > begin else end
            within = np.arange(first[begin], last[end - 1] + 1)
            yield begin, end, within[is_wanted[within]]
            begin = end

    def run(self, blocks: Rows) -> Run:
        """How the rows of these blocks, one after the other, are numbered."""
        sizes = self.ends[blocks] - self.begins[blocks]
        return Run(np.cumsum(sizes) - sizes, self.begins[blocks])


@dataclass(frozen=True)
class PagedColumns:
    """Some columns of a file, cut into blocks: rows whose pages, or else whole chunks, are decoded together.

    `pages`: the page of each block in its row group.
    """

    footer: Footer
    columns: tuple[TopColumn, ...]
    chunks: dict[int, list[Chunk]]
    blocks: Blocks
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
        chunks = chunks_of(source, footer, columns, wanted)
        begins, ends, groups, pages = [], [], [], []
        for group in wanted:
            first = chunks[group][0].places.first_rows
            begins.append(group_ends[group] - rows[group] + first)
            ends.append(group_ends[group] - rows[group] + np.append(first[1:], rows[group]))
            groups.append(np.full(len(first), group))
            pages.append(np.arange(len(first)))
        first_rows, end_rows, in_groups, places = (np.concatenate([NOTHING, *parts]) for parts in (begins, ends, groups, pages))
        blocks = Blocks(first_rows, end_rows, in_groups, _most_rows(footer, chunks))
        return PagedColumns(footer, columns, chunks, blocks, places)

    @property
    def size(self) -> int:
        """Bytes in memory without the footer, roughly."""
        return 8 * len(self.blocks) * (4 + 3 * len(self.columns))

    @property
    def elements(self) -> list[Struct]:
        return [element for column in self.columns for element in column.elements]

    @cached_property
    def form(self) -> tuple[bytes, ...]:
        """Pages of files of equal form can be decoded together."""
        codecs = {chunk.metadata.value(4) for chunks in self.chunks.values() for chunk in chunks}
        return (*map(encode, self.elements), bytes(sorted(codecs)))

    def rows_at(self, source: BinaryIO, rows: Rows) -> pa.Array:
        """One column at ascending rows of the file; a block is decoded as a whole."""
        at = self.blocks.of_rows(rows)
        found = []
        for begin, end, blocks in self.blocks.portions(at, at):
            places = self.blocks.run(blocks).places_of(rows[begin:end])
            read = decoded_together([self.read(source, blocks)])
            found.append(one_batch(read).column(0).take(pa.array(places)))
        return pa.concat_arrays(found)

    def read(self, source: BinaryIO, blocks: Rows) -> EncodedRows:
        """The rows of these ascending blocks as they lie in the file."""
        groups = self.blocks.groups[blocks]
        cuts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), len(blocks)]
        parts = [self._parts(int(groups[begin]), blocks[begin:end]) for begin, end in itertools.pairwise(cuts)]
        extents = (extent for members in parts for part in members for extent in part.extents())
        contents = iter(read_ranges(source, extents, PAGE_GAP))
        filled = [[(part, [next(contents) for _ in range(len(part.pages) + 1)]) for part in members] for members in parts]
        return EncodedRows(self, filled, self.blocks.row_count(blocks))

    def _parts(self, group: int, blocks: Rows) -> list[Part]:
        """What is wanted of each chunk of a row group."""
        rows = self.blocks.ends[blocks] - self.blocks.begins[blocks]
        chunks = self.chunks[group]
        if len(blocks) == len(chunks[0].places.offsets):
            return [Part(chunk.whole(), np.zeros(1, np.int64), rows) for chunk in chunks]
        return [Part(chunk, self.pages[blocks], rows) for chunk in chunks]

    def bounds(self, source: BinaryIO, place: int) -> tuple[pa.Array, pa.Array] | None:
        """Least and greatest value of one of the columns in each block, in the file's type; null is the smallest value.

        None where any is not known.
        """
        if len(self.columns[place].elements) != 1:
            return None
        element = self.columns[place].leaves[0].element
        is_required = element.value(3, REQUIRED) == REQUIRED
        leaf = sum(len(column.leaves) for column in self.columns[:place])
        chunks = [self.chunks[group][leaf] for group in self.chunks]
        paged = [chunk for chunk in chunks if chunk.is_paged]
        extents = [(chunk.listed.value(6, 0), chunk.listed.value(7, 0)) for chunk in paged]
        contents = iter(read_ranges(source, extents, INDEX_GAP))
        lows: list[bytes | None] = []
        highs: list[bytes | None] = []
        for chunk in chunks:
            known = PageBounds.decode(next(contents), is_required) if chunk.is_paged else whole_bounds(chunk, is_required)
            if known is None:
                return None
            if len(known.lows) != len(chunk.places.first_rows):
                raise ValueError("its page indexes speak of different numbers of pages")
            lows += known.lows
            highs += known.highs
        values = plain_values(self.footer, element, [*lows, *highs])
        return values[: len(lows)], values[len(lows) :]


def _most_rows(footer: Footer, chunks: dict[int, list[Chunk]]) -> int:
    """How many rows memory has room for."""
    stored = sum(chunk.metadata.value(6, 0) for members in chunks.values() for chunk in members)
    rows = sum(footer.groups[group].required(3) for group in chunks)
    return int(PORTION_BYTES * rows // max(1, rows + stored))


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a file whose pages were read: for each row group the parts of its chunks, with their contents."""

    columns: PagedColumns
    groups: list[list[tuple[Part, list[bytes]]]]
    row_count: int


def decoded_together(rows: Sequence[EncodedRows]) -> pa.Table:
    """The rows of files of one form, one after the other, with the columns in the files' types."""
    file, like = SmallFile(), rows[0].columns
    groups = [group for one in rows for group in one.groups]
    # Each row group costs time, but its pages need the dictionary of their own chunk.
    has_dictionary = any(part.chunk.uses_dictionary for group in groups for part, _ in group)
    for together in [[group] for group in groups] if has_dictionary else [groups]:
        file.add_group([list(same_leaf) for same_leaf in zip(*together, strict=True)])
    table = file.read(like.footer, like.elements, len(like.columns))
    if table.num_rows != sum(one.row_count for one in rows):
        raise ValueError("its pages hold other numbers of rows than its page index says")
    return table


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table without chunks."""
    columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)
