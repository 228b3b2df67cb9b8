"""Some columns of some rows of a Parquet file: its rows as blocks, whose pages are decoded without the rest of their row groups.

A file without page indexes is cut into row groups. Blocks are read in portions that memory has room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import numpy as np
import pyarrow as pa

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
from paimon_cli.metadata.parquet_footer import Footer, PageBounds, TopColumn

PORTION_BYTES = 8 << 20
"""Decoded bytes of the rows that are read together."""
MEMORY_PER_FOOTER_BYTE = 20


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
    chunks: dict[int, list[Chunk]]
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
        chunks = chunks_of(source, footer, columns, wanted)
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
            if end < len(first):  # rather end with a row group: a whole one is read with less effort than its pages one by one
                ended = int(np.searchsorted(last, np.searchsorted(self.groups, self.groups[last[end]])))
                end = ended if ended > begin else end
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
        file = SmallFile()
        # Each row group costs time, but its pages need the dictionary of their own chunk.
        has_dictionary = any(part.chunk.uses_dictionary for members in parts for part in members)
        for together in [[members] for members in filled] if has_dictionary else [filled]:
            file.add_group([list(same_leaf) for same_leaf in zip(*together, strict=True)])
        elements = [element for column in self.columns for element in column.elements]
        table = file.read(self.footer, elements, len(self.columns))
        if table.num_rows != self.row_count(blocks):
            raise ValueError("its pages hold other numbers of rows than its page index says")
        return table

    def _parts(self, group: int, blocks: Rows) -> list[Part]:
        """What is wanted of each chunk of a row group."""
        rows = self.ends[blocks] - self.begins[blocks]
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


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table without chunks."""
    columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)
