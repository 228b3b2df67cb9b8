"""Reads only the pages of a row group that may hold wanted rows, by the bounds in its column indexes.

Arrow neither reads page indexes nor parts of row groups, so `parquet_chunks` decodes the pages. The pages of different columns
need not start at the same rows: bounds are compared for blocks of rows that are in one page of each compared column.

A page index has no checksum. What it says must agree with the statistics of its chunk, and pages that are read must hold what
it says of them; only a lie about skipped pages that agrees with the footer is left to `verify`, as with all statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.parquet_chunks import (
    BYTE_ARRAY,
    INT96,
    ChunkPart,
    ColumnChunk,
    Rows,
    SmallFile,
    chunks_of,
    plain_values,
    read_ranges,
)
from paimon_cli.bucket.parquet_pages import Flags, one_batch
from paimon_cli.metadata.compact_thrift import Struct
from paimon_cli.metadata.parquet_footer import Footer, PageStatistics, TopColumn
from paimon_cli.pieces import PIECES

MAX_READ_SHARE = 5 / 6
"""A row group is read as a whole if at least this share of its rows is in pages that may match."""
_COLUMN_ORDERS, _TYPE_ORDER = 7, 1
_WIDTHS = {1: 4, 2: 8}
"""Physical type -> bytes of a value: INT32, INT64."""
_FIXED_BYTES = 7


@dataclass(frozen=True)
class BlockBounds:
    """What is known of a column in consecutive blocks of rows: bounds in the file's type, null if unknown, and the number of
    nulls, -1 if unknown.
    """

    lows: pa.Array
    highs: pa.Array
    nulls: Rows

    def take(self, blocks: Rows) -> BlockBounds:
        wanted = pa.array(blocks)
        return BlockBounds(self.lows.take(wanted), self.highs.take(wanted), self.nulls[blocks])


class KeepsBlocks(Protocol):
    """Decides which blocks of rows of a Parquet file may hold a wanted row."""

    @property
    def columns(self) -> Sequence[str]:
        """The names in the file of the columns whose bounds may decide."""
        ...

    def kept(self, bounds: Mapping[str, BlockBounds], rows: Rows) -> Flags:
        """For each block whether to read it. `bounds`: by the name in the file; `rows`: the number of rows of each block."""
        ...


@dataclass(frozen=True)
class SelectedRows:
    """The rows of a row group that may be wanted, in columns of which single pages can be read.

    `begins`, `ends`: ranges of rows in the group, ascending, without gaps of no rows. `blocks`: the first row of each block;
    `bounds`: of some columns, for each block.
    """

    footer: Footer
    group: int
    columns: tuple[TopColumn, ...]
    names: tuple[str, ...]
    chunks: tuple[list[ColumnChunk], ...]
    begins: Rows
    ends: Rows
    blocks: Rows
    bounds: Mapping[str, BlockBounds]

    @property
    def row_count(self) -> int:
        return int((self.ends - self.begins).sum())

    @property
    def _group_rows(self) -> int:
        return int(self.footer.groups[self.group].required(3))

    def extents(self) -> Iterator[tuple[int, int]]:
        """The byte ranges (begin, end) of the pages and dictionaries that will be read."""
        for chunks in self.chunks:
            for part in _parts(chunks, self.begins, self.ends, self._group_rows):
                yield from ((offset, offset + size) for offset, size in part.extents() if size)

    def batches(self, source: BinaryIO, batch_rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows in batches without gaps, each with the number in the row group of its first row."""
        for begins, ends in self._portions():
            rows = one_batch(self._decoded(source, begins, ends))
            at = 0
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                self._check(rows, at - begin, begin, end)
                for first in range(begin, end, batch_rows):
                    yield first, rows.slice(at + first - begin, min(batch_rows, end - first))
                at += end - begin

    def _portions(self) -> Iterator[tuple[Rows, Rows]]:
        """The ranges in portions that fit into `page_portion_bytes`; long ones are cut."""
        stored = sum(chunk.metadata.value(6, 0) for chunks in self.chunks for chunk in chunks)
        most = max(1, PIECES.page_portion_bytes * self._group_rows // max(1, self._group_rows + stored))
        pieces = [
            (first, min(first + most, end))
            for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True)
            for first in range(begin, end, most)
        ]
        read_before = np.cumsum([0, *(end - begin for begin, end in pieces)])[:-1]
        for _, members in groupby(enumerate(pieces), lambda member: read_before[member[0]] // most):
            portion = np.array([piece for _, piece in members], np.int64)
            yield portion[:, 0], portion[:, 1]

    def _decoded(self, source: BinaryIO, begins: Rows, ends: Rows) -> pa.Table:
        """The rows of these ranges. Columns whose pages start at the same rows are decoded together."""
        of_pages: dict[bytes, list[int]] = {}
        for number, chunks in enumerate(self.chunks):
            of_pages.setdefault(chunks[0].locations.first_rows.tobytes(), []).append(number)
        decoded: dict[str, pa.ChunkedArray] = {}
        for numbers in of_pages.values():
            parts = _parts([chunk for n in numbers for chunk in self.chunks[n]], begins, ends, self._group_rows)
            contents = iter(read_ranges(source, (e for part in parts for e in part.extents()), PIECES.page_gap_bytes))
            file = SmallFile()
            file.add_group([[(part, [next(contents) for _ in range(len(part.pages) + 1)])] for part in parts])
            elements = [element for n in numbers for element in self.columns[n].elements]
            table = file.read(self.footer, elements, len(numbers))
            pages, rows = parts[0].pages, parts[0].rows
            if table.num_rows != rows.sum():
                raise ValueError("its pages hold another number of rows than its page index says")
            first_rows = parts[0].chunk.locations.first_rows
            page_of = np.searchsorted(first_rows[pages], begins, "right") - 1
            starts = (np.cumsum(rows) - rows)[page_of] + begins - first_rows[pages][page_of]
            slices = [table.slice(start, n) for start, n in zip(starts.tolist(), (ends - begins).tolist(), strict=True)]
            wanted = pa.concat_tables(slices)
            decoded |= {self.names[n]: wanted.column(place) for place, n in enumerate(numbers)}
        return pa.table({name: decoded[name] for name in self.names})

    def _check(self, rows: pa.RecordBatch, offset: int, begin: int, end: int) -> None:
        """Raise `ValueError` if rows `begin` to `end`, which `rows` holds from `begin + offset` on, contradict the index."""
        first, last = np.searchsorted(self.blocks, [begin, end - 1], "right") - 1
        edges = [begin, *self.blocks[first + 1 : last + 1].tolist(), end]
        for name, bounds in self.bounds.items():
            column = rows.column(name)
            for block, (start, stop) in enumerate(pairwise(edges), int(first)):
                values = column.slice(start + offset, stop - start)
                if values.null_count == len(values):
                    is_right = bounds.nulls[block] != 0
                elif bounds.nulls[block] > 0 or (bounds.nulls[block] == 0 and values.null_count):
                    is_right = False
                else:
                    found = pc.min_max(values)
                    is_right = not any(
                        limit.is_valid and outside(found[end_], limit).as_py()
                        for end_, limit, outside in (
                            ("min", bounds.lows[block], pc.less),
                            ("max", bounds.highs[block], pc.greater),
                        )
                    )
                if not is_right:
                    raise ValueError(f"column {name} holds values that its page index rules out")


def _parts(chunks: Sequence[ColumnChunk], begins: Rows, ends: Rows, group_rows: int) -> list[ChunkPart]:
    """The pages of chunks, which all start at the same rows, that hold these ranges of rows."""
    first_rows = chunks[0].locations.first_rows
    end_rows = np.append(first_rows[1:], group_rows)
    marks = np.zeros(len(first_rows) + 1, np.int64)
    np.add.at(marks, np.searchsorted(end_rows, begins, "right"), 1)
    np.add.at(marks, np.searchsorted(first_rows, ends, "left"), -1)
    pages = np.flatnonzero(np.cumsum(marks[:-1]) > 0)
    return [ChunkPart(chunk, pages, (end_rows - first_rows)[pages]) for chunk in chunks]


def selected_rows(source: BinaryIO, footer: Footer, group: int, names: Sequence[str], keeps: KeepsBlocks) -> SelectedRows | None:
    """The rows of a row group that may be wanted; None if the whole group is to be read: nearly all of its rows are wanted, or
    it lacks page indexes that say otherwise.

    `names`: the top-level columns to read, all in the file. Raises `ValueError` or `LookupError` for damaged page indexes.
    """
    rows = int(footer.groups[group].required(3))
    columns = tuple(footer.columns[name] for name in names)
    if not columns or any(leaf.element.value(1) == INT96 for column in columns for leaf in column.leaves):
        return None
    pages: dict[str, tuple[Rows, BlockBounds]] = {}
    for name in keeps.columns:
        known = _page_bounds(source, footer, group, footer.columns[name], rows) if name in names else None
        if known is not None:
            pages[name] = known
    if not pages:
        return None
    blocks = np.unique(np.concatenate([first_rows for first_rows, _ in pages.values()]))
    if len(blocks) * PIECES.least_block_rows > max(rows, PIECES.least_block_rows):
        return None
    sizes = np.diff(np.append(blocks, rows))
    bounds = {
        name: _in_blocks(of_pages.take(np.searchsorted(first_rows, blocks, "right") - 1), sizes)
        for name, (first_rows, of_pages) in pages.items()
    }
    kept = keeps.kept(bounds, sizes)
    if sizes[kept].sum() >= MAX_READ_SHARE * rows:
        return None
    steps = np.diff(kept.astype(np.int8), prepend=0, append=0)
    edges = np.append(blocks, rows)
    begins, ends = edges[np.flatnonzero(steps > 0)], edges[np.flatnonzero(steps < 0)]
    read = columns if len(begins) else ()
    chunks = tuple(chunks_of(source, footer, (column,), (group,), bounded=False)[group] for column in read)
    if not all(chunk.is_paged for members in chunks for chunk in members):
        return None
    return SelectedRows(footer, group, columns, tuple(names), chunks, begins, ends, blocks, bounds)


def _in_blocks(of_pages: BlockBounds, sizes: Rows) -> BlockBounds:
    """The bounds of blocks from those of the pages that hold them. `nulls` of the pages: 0, -1, or -2 for all of them."""
    return BlockBounds(of_pages.lows, of_pages.highs, np.where(of_pages.nulls == _ALL, sizes, of_pages.nulls))


_ALL = -2


def _page_bounds(source: BinaryIO, footer: Footer, group: int, column: TopColumn, rows: int) -> tuple[Rows, BlockBounds] | None:
    """The first row of each page of a column, and its bounds with `nulls` as `_in_blocks` takes them; None without bounds."""
    if len(column.elements) != 1 or column.leaves[0].is_repeated or not _is_ordered(footer, column.first_leaf):
        return None
    (chunk,) = chunks_of(source, footer, (column,), (group,))[group]
    if not chunk.is_paged:
        return None
    element, first_rows = column.leaves[0].element, chunk.locations.first_rows
    (content,) = read_ranges(source, [(chunk.entry.required(6), chunk.entry.required(7))], 0)
    pages = PageStatistics.decode(content)
    if len(pages.lows) != len(first_rows):
        raise ValueError("its page indexes list different numbers of pages")
    lows, highs = _values(footer, element, pages.lows), _values(footer, element, pages.highs)
    sizes = np.diff(np.append(first_rows, rows))
    statistics = chunk.metadata.value(12, Struct())
    _check_extremes(footer, element, (lows, highs), statistics)
    if pages.nulls is None:
        return first_rows, BlockBounds(lows, highs, np.full(len(sizes), -1))
    nulls = np.array(pages.nulls, np.int64)
    total = statistics.value(3)
    is_all = np.array([low is None for low in pages.lows])
    if (nulls < 0).any() or (nulls > sizes).any() or (is_all != (nulls == sizes)).any() or total not in (None, nulls.sum()):
        raise ValueError("the numbers of nulls in its page index contradict its footer")
    return first_rows, BlockBounds(lows, highs, np.where(is_all, _ALL, np.where(nulls == 0, 0, -1)))


def _is_ordered(footer: Footer, leaf: int) -> bool:
    """Whether bounds of the leaf are in the order of its type, which older writers do not say."""
    orders = footer.fields.elements(_COLUMN_ORDERS)
    return leaf < len(orders) and _TYPE_ORDER in orders[leaf]


def _values(footer: Footer, element: Struct, values: list[bytes | None]) -> pa.Array:
    """Bounds as a column in the file's type. Text that is cut within a character is no bound."""
    kind = element.required(1)
    width = element.value(2, 0) if kind == _FIXED_BYTES else _WIDTHS.get(kind)
    if kind != BYTE_ARRAY and (not width or any(value is not None and len(value) != width for value in values)):
        raise ValueError("its page index holds bounds of another width than its column")
    if kind == BYTE_ARRAY:
        values = [value if value is not None and _is_text(value) else None for value in values]
    if all(value is None for value in values):
        return pa.nulls(len(values), plain_values(footer, element, []).type)
    return plain_values(footer, element, values)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_extremes(footer: Footer, element: Struct, sides: tuple[pa.Array, pa.Array], statistics: Struct) -> None:
    """Raise `ValueError` if the extremes of the pages are not those of the chunk. Texts may be cut, in two ways."""
    for values, field, extreme in zip(sides, (6, 5), ("min", "max"), strict=True):
        stored = statistics.value(field)
        if stored is None or element.required(1) == BYTE_ARRAY or values.null_count == len(values):
            continue
        if pc.min_max(values)[extreme] != _values(footer, element, [stored])[0]:
            raise ValueError("the bounds in its page index contradict its footer")
