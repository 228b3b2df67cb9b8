"""Reads some columns of some rows of a Parquet file. The rows form blocks, and only the pages of the needed blocks are decoded.

In a file without page indexes the row groups are the blocks. Blocks are read in portions that fit into memory.
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
    INT96,
    REQUIRED,
    ChunkPart,
    ColumnChunk,
    Rows,
    SmallFile,
    chunks_of,
    plain_values,
    read_ranges,
    whole_bounds,
)
from paimon_cli.metadata.compact_thrift import Struct, encode
from paimon_cli.metadata.parquet_footer import Footer, PageBounds, TopColumn
from paimon_cli.pieces import PIECES

Flags = NDArray[np.bool_]
MEMORY_PER_FOOTER_BYTE = 20
_NOTHING: Rows = np.empty(0, np.int64)


@dataclass(frozen=True)
class BlockRun:
    """Rows of several blocks that were read as one batch. `starts`: index in the batch of each block's first row; `begins`: the
    number of that row in the file.
    """

    starts: Rows
    begins: Rows

    def rows_of(self, indices: Rows) -> Rows:
        """The row numbers in the file, for indices into the batch."""
        block = np.searchsorted(self.starts, indices, "right") - 1
        return indices + (self.begins - self.starts)[block]

    def indices_of(self, rows: Rows) -> Rows:
        """The indices into the batch, for row numbers in the file that were read."""
        block = np.searchsorted(self.begins, rows, "right") - 1
        return rows - (self.begins - self.starts)[block]


@dataclass(frozen=True)
class Blocks:
    """Consecutive blocks of rows. `begins`, `ends`: the first row of each block, and the row after its last. `groups`: the row
    group of each block, ascending. `max_rows`: how many rows may be decoded together.
    """

    begins: Rows
    ends: Rows
    groups: Rows
    max_rows: int

    def __len__(self) -> int:
        return len(self.begins)

    def of_rows(self, rows: Rows) -> Rows:
        """The block that holds each row."""
        return np.searchsorted(self.begins, rows, "right") - 1

    def row_count(self, blocks: Rows) -> int:
        return int((self.ends[blocks] - self.begins[blocks]).sum())

    def exceeds(self, first: Rows, last: Rows) -> Flags:
        """For each request, which is for the blocks from `first` to `last`, whether it does not fit into memory."""
        up_to = np.cumsum(self.ends - self.begins)
        return up_to[last] - up_to[first] + (self.ends - self.begins)[first] > self.max_rows

    def wanted(self, first: Rows, last: Rows) -> Flags:
        """For each block, whether a request needs it. Each request is for the blocks from `first` to `last`."""
        starts_minus_ends = np.zeros(len(self) + 1, np.int64)
        np.add.at(starts_minus_ends, first, 1)
        np.add.at(starts_minus_ends, last + 1, -1)
        return np.cumsum(starts_minus_ends[:-1]) > 0

    def portions(self, first: Rows, last: Rows) -> Iterator[tuple[int, int, Rows]]:
        """Cut requests into portions that fit into memory, unless a single request `exceeds` it.

        Requests ascend, each for the blocks from `first` to `last`. A portion: the number of its first request, the number after
        its last one, and their blocks.
        """
        is_wanted = self.wanted(first, last)
        read_up_to = np.concatenate([[0], np.cumsum(np.where(is_wanted, self.ends - self.begins, 0))])
        begin = 0
        while begin < len(first):
            limit = max(read_up_to[first[begin]] + self.max_rows, read_up_to[last[begin] + 1])
            end = int(np.searchsorted(read_up_to[last + 1], limit, "right"))
            if end < len(first):  # end with a row group if possible: a whole one is cheaper to read than its pages one by one
                group_end = int(np.searchsorted(last, np.searchsorted(self.groups, self.groups[last[end]])))
                end = group_end if group_end > begin else end
            within = np.arange(first[begin], last[end - 1] + 1)
            yield begin, end, within[is_wanted[within]]
            begin = end

    def run(self, blocks: Rows) -> BlockRun:
        """The numbering of rows when these blocks are read as one batch."""
        sizes = self.ends[blocks] - self.begins[blocks]
        return BlockRun(np.cumsum(sizes) - sizes, self.begins[blocks])


@dataclass(frozen=True)
class PagedColumns:
    """Some columns of a file, divided into blocks of rows: one page of each column, or else a whole row group.

    `chunks`: by row group. `pages`: the number of each block's page within its row group.
    """

    footer: Footer
    columns: tuple[TopColumn, ...]
    chunks: dict[int, list[ColumnChunk]]
    blocks: Blocks
    pages: Rows

    @staticmethod
    def of(source: BinaryIO, footer: Footer, names: Sequence[str], near: Rows | None = None) -> PagedColumns | None:
        """The columns in the row groups that hold one of the rows `near`, which ascend (None: in all row groups).

        A row group is one block if the pages of its columns do not start at the same rows. None if a column is INT96.
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
            first = chunks[group][0].locations.first_rows
            begins.append(group_ends[group] - rows[group] + first)
            ends.append(group_ends[group] - rows[group] + np.append(first[1:], rows[group]))
            groups.append(np.full(len(first), group))
            pages.append(np.arange(len(first)))
        begin, end, in_group, page = (np.concatenate([_NOTHING, *parts]) for parts in (begins, ends, groups, pages))
        return PagedColumns(footer, columns, chunks, Blocks(begin, end, in_group, _max_rows(footer, chunks)), page)

    @property
    def size(self) -> int:
        """Approximate bytes in memory, without the footer."""
        return 8 * len(self.blocks) * (4 + 3 * len(self.columns))

    @property
    def elements(self) -> list[Struct]:
        return [element for column in self.columns for element in column.elements]

    @cached_property
    def form(self) -> tuple[bytes, ...]:
        """Schema and codecs. Pages of files with equal forms can be decoded together."""
        codecs = {chunk.metadata.value(4) for chunks in self.chunks.values() for chunk in chunks}
        return (*map(encode, self.elements), bytes(sorted(codecs)))

    def rows_at(self, source: BinaryIO, rows: Rows) -> pa.Array:
        """The values of the only column in these rows of the file, which ascend."""
        block_of = self.blocks.of_rows(rows)
        values = []
        for begin, end, blocks in self.blocks.portions(block_of, block_of):
            indices = self.blocks.run(blocks).indices_of(rows[begin:end])
            decoded = decoded_together([self.read(source, blocks)])
            values.append(one_batch(decoded).column(0).take(pa.array(indices)))
        return pa.concat_arrays(values)

    def read(self, source: BinaryIO, blocks: Rows) -> EncodedRows:
        """The encoded rows of these blocks, which ascend."""
        groups = self.blocks.groups[blocks]
        cuts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), len(blocks)]
        parts = [self._parts(int(groups[begin]), blocks[begin:end]) for begin, end in itertools.pairwise(cuts)]
        extents = (extent for members in parts for part in members for extent in part.extents())
        contents = iter(read_ranges(source, extents, PIECES.page_gap_bytes))
        filled = [[(part, [next(contents) for _ in range(len(part.pages) + 1)]) for part in members] for members in parts]
        return EncodedRows(self, filled, self.blocks.row_count(blocks))

    def _parts(self, group: int, blocks: Rows) -> list[ChunkPart]:
        """The pages of each chunk of a row group that hold these blocks."""
        rows = self.blocks.ends[blocks] - self.blocks.begins[blocks]
        chunks = self.chunks[group]
        if len(blocks) == len(chunks[0].locations.offsets):
            return [ChunkPart(chunk.whole(), np.zeros(1, np.int64), rows) for chunk in chunks]
        return [ChunkPart(chunk, self.pages[blocks], rows) for chunk in chunks]

    def bounds(self, source: BinaryIO, number: int) -> tuple[pa.Array, pa.Array] | None:
        """The minimum and maximum of a column in each block, in the file's type, where null is the smallest value.

        `number`: index into `columns`. None if the bounds of any block are not known.
        """
        if len(self.columns[number].elements) != 1:
            return None
        element = self.columns[number].leaves[0].element
        is_required = element.value(3, REQUIRED) == REQUIRED
        leaf = sum(len(column.leaves) for column in self.columns[:number])
        chunks = [self.chunks[group][leaf] for group in self.chunks]
        paged = [chunk for chunk in chunks if chunk.is_paged]
        extents = [(chunk.entry.value(6, 0), chunk.entry.value(7, 0)) for chunk in paged]
        contents = iter(read_ranges(source, extents, PIECES.index_gap_bytes))
        lows: list[bytes | None] = []
        highs: list[bytes | None] = []
        for chunk in chunks:
            bounds = PageBounds.decode(next(contents), is_required) if chunk.is_paged else whole_bounds(chunk, is_required)
            if bounds is None:
                return None
            if len(bounds.lows) != len(chunk.locations.first_rows):
                raise ValueError("its page indexes list different numbers of pages")
            lows += bounds.lows
            highs += bounds.highs
        values = plain_values(self.footer, element, [*lows, *highs])
        return values[: len(lows)], values[len(lows) :]


def _max_rows(footer: Footer, chunks: dict[int, list[ColumnChunk]]) -> int:
    """How many rows of these chunks fit into `page_portion_bytes`."""
    stored = sum(chunk.metadata.value(6, 0) for members in chunks.values() for chunk in members)
    rows = sum(footer.groups[group].required(3) for group in chunks)
    return int(PIECES.page_portion_bytes * rows // max(1, rows + stored))


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a file as encoded pages. `groups`: for each row group the parts of its chunks, with their contents."""

    columns: PagedColumns
    groups: list[list[tuple[ChunkPart, list[bytes]]]]
    row_count: int


def decoded_together(rows: Sequence[EncodedRows]) -> pa.Table:
    """Decode the rows of one or more files of equal form, in order, with columns of the files' types. Raises `ValueError`."""
    file, like = SmallFile(), rows[0].columns
    groups = [group for encoded in rows for group in encoded.groups]
    # Fewer row groups are faster, but pages with dictionaries must stay with the dictionary of their own chunk.
    has_dictionary = any(part.chunk.uses_dictionary for group in groups for part, _ in group)
    for members in [[group] for group in groups] if has_dictionary else [groups]:
        file.add_group([list(same_leaf) for same_leaf in zip(*members, strict=True)])
    table = file.read(like.footer, like.elements, len(like.columns))
    if table.num_rows != sum(encoded.row_count for encoded in rows):
        raise ValueError("its pages hold another number of rows than its page index says")
    return table


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as a single batch."""
    columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)
