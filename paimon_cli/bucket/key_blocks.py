"""Key lookup in Parquet files above level 0: their blocks, with the bounds of the keys in each, joined to a sorted run.

A block is a page, or a row group in files without page indexes. The files of a sorted run are disjoint, so that its blocks are
searched like those of one long file. A process keeps the blocks for later lookups, since files never change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.decoding import DECODE_ERRORS, check_decoded, decoding
from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.bucket.parquet_pages import (
    MEMORY_PER_FOOTER_BYTE,
    Blocks,
    EncodedRows,
    PagedColumns,
    decoded_together,
    one_batch,
)
from paimon_cli.bucket.schema_evolution import ReadColumns
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import FLOATING_ROOTS
from paimon_cli.datatypes.key_order import NULL_PART, comparable, order_words, ranks
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import ABSENT, Indices, KeyBounds, SortedKeys
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.parquet_footer import Footer
from paimon_cli.storage.capabilities import open_sized

UNSORTED = "its rows are not sorted by key, or its page index is damaged"
WRONG_BOUNDS = "the bounds in its page index or footer do not match its rows"
_NO_LIMIT = 1 << 62
"""Maximum number of rows to decode together in a run of which no file's pages are known."""


def checked_footer(source: BinaryIO, file: DataFileMeta) -> Footer:
    """The footer of a data file. Raises `ValueError` if the file holds another number of rows than its metadata says."""
    footer = read_footer(source)
    if footer.row_count != file.row_count:
        raise ValueError(f"it holds {footer.row_count} rows, its manifest says {file.row_count}")
    return footer


def key_bounds(context: TableContext, serialised: list[bytes]) -> SortedKeys:
    """The serialised keys of manifest entries as columns that can be compared with the keys of rows, in the order given."""
    keys = ((None if part == NULL_PART else part for part in context.key_of(key)) for key in serialised)
    cells = zip(*keys, strict=True)
    columns = [
        # `key_of` returns floats as integers, as `comparable` does
        pa.array(values, pa.int64()) if t.root in FLOATING_ROOTS else comparable(values_to_arrow(values, t))
        for values, t in zip(cells, context.key_types, strict=True)
    ]
    return SortedKeys(tuple(columns))


@dataclass
class KnownFile:
    """What a process remembers of a file in which it has looked up keys or rows. `rows_read`: decoded keys so far.

    `only_adds`: whether its statistics rule out retractions; None if they were not consulted.
    """

    footer: Footer | None = None
    blocks: KeyBlocks | None = None
    rows_read: int = 0
    only_adds: bool | None = None

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        footer = 0 if self.footer is None else MEMORY_PER_FOOTER_BYTE * self.footer.size
        return footer + (0 if self.blocks is None else self.blocks.pages.size + self.blocks.bounds.size)


@dataclass(frozen=True)
class KeyBlocks:
    """The key columns of a Parquet file in blocks, and bounds of the keys in each block."""

    read: ReadColumns
    pages: PagedColumns
    bounds: KeyBounds

    @staticmethod
    def of(context: TableContext, file: DataFileMeta, source: BinaryIO, footer: Footer) -> KeyBlocks | None:
        """The blocks of an open file; None if it has no bounds of its first key column."""
        names = context.schema.trimmed_primary_keys
        read = ReadColumns(context, file, names)
        pages = PagedColumns.of(source, footer, read.physical)
        if pages is None:
            return None
        bounds: list[tuple[pa.Array, pa.Array]] = []
        for number, t in enumerate(context.key_types):
            # bounds of floats ignore NaN, the greatest key
            column_bounds = None if t.root in FLOATING_ROOTS else pages.bounds(source, number)
            if column_bounds is None:
                break
            bounds.append(column_bounds)
        if not bounds:
            return None
        bounded = ReadColumns(context, file, names[: len(bounds)])
        sides = []
        for side in zip(*bounds, strict=True):
            batch = bounded.of(pa.RecordBatch.from_arrays(list(side), names=bounded.physical))
            sides.append(SortedKeys.of(batch, names[: len(bounds)]))
        return KeyBlocks(read, pages, KeyBounds.of(*sides))

    @property
    def row_counts(self) -> Indices:
        """The number of rows of each block."""
        return self.pages.blocks.ends - self.pages.blocks.begins

    def rows_for(self, keys: SortedKeys) -> int:
        """The number of rows in the blocks whose bounds admit one of the keys."""
        return int(self.row_counts[self.pages.blocks.wanted(*self.bounds.blocks(keys))].sum())


class Portion(NamedTuple):
    """A range of sorted keys (`begin` to `end`) that only one file of a run can hold: the one with this `number` in the run."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class RunBlocks:
    """The files of a sorted run in the order of their keys, as blocks. A file whose pages are not known is a single block.

    `numbers`: the index of each file in the list given to `of`. `known`: the blocks of each file, None where they are not known.
    `lows`, `highs`: the minimum and maximum key of each file, by its manifest entry. `first_blocks`, `first_rows`: the number in
    the run of each file's first block and row; one more element than files.
    """

    files: tuple[DataFileMeta, ...]
    numbers: Indices
    known: tuple[KeyBlocks | None, ...]
    lows: SortedKeys
    highs: SortedKeys
    first_blocks: Indices
    first_rows: Indices
    bounds: KeyBounds
    blocks: Blocks

    @staticmethod
    def of(context: TableContext, files: Sequence[DataFileMeta]) -> RunBlocks:
        """The run of these disjoint files, as long as no pages are known. Raises `DamagedFile` if files overlap."""
        lows, highs = (key_bounds(context, [getattr(file, bound) for file in files]) for bound in ("min_key", "max_key"))
        order = np.argsort(ranks(order_words(lows.columns)), kind="stable")
        lows, highs = lows.take(order), highs.take(order)
        if (highs.below(lows) != np.arange(len(files))).any():
            why = f"its files of level {files[0].level} overlap, so that a key could be in two of them"
            raise DamagedFile("no key can be looked up in a bucket", why, f"paimon-cli verify {context.layout.argument}")
        in_order = tuple(files[number] for number in order.tolist())
        return _joined(in_order, order, (None,) * len(files), lows, highs)

    def with_known(self, known: Sequence[KeyBlocks | None]) -> RunBlocks:
        """The run with these blocks of its files."""
        return _joined(self.files, self.numbers, tuple(known), self.lows, self.highs)

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        pages = sum(known.pages.size for known in self.known if known is not None)
        return pages + self.bounds.size + 1000 * len(self.files)

    def portions(self, keys: SortedKeys) -> Iterator[Portion]:
        """For each file whose bounds admit some of the keys: these keys."""
        begins, ends = keys.below(self.lows), keys.up_to(self.highs)
        for number in np.flatnonzero(begins < ends).tolist():
            yield Portion(number, int(begins[number]), int(ends[number]))

    def blocks_of(self, keys: SortedKeys, files: Indices) -> tuple[Indices, Indices]:
        """For each key the first and the last block that may hold it or the rows around it. `files`: the file of each key."""
        first, last = self.bounds.blocks(keys)
        lowest, highest = self.first_blocks[files], self.first_blocks[files + 1] - 1
        return np.clip(first, lowest, highest), np.clip(last, lowest, highest)


def _joined(
    files: tuple[DataFileMeta, ...], numbers: Indices, known: tuple[KeyBlocks | None, ...], lows: SortedKeys, highs: SortedKeys
) -> RunBlocks:
    """The blocks of all files as one sequence; only the key columns of which every file has bounds are compared."""
    columns = min((len(blocks.bounds.lows.columns) for blocks in known if blocks is not None), default=len(lows.columns))
    first_rows = np.concatenate([[0], np.cumsum([file.row_count for file in files])])
    sides: tuple[list[SortedKeys], list[SortedKeys]] = ([], [])
    begins, ends, groups, counts, max_rows, group_count = [], [], [], [0], _NO_LIMIT, 0
    for number, file_blocks in enumerate(known):
        first = int(first_rows[number])
        if file_blocks is None:
            file_bounds = lows.slice(number, number + 1), highs.slice(number, number + 1)
            begins.append(np.array([first]))
            ends.append(first_rows[number + 1 : number + 2])
            groups.append(np.array([group_count]))
        else:
            file_bounds, blocks = (file_blocks.bounds.lows, file_blocks.bounds.highs), file_blocks.pages.blocks
            begins.append(first + blocks.begins)
            ends.append(first + blocks.ends)
            groups.append(group_count + blocks.groups)
            max_rows = min(max_rows, blocks.max_rows)
        for side, keys in zip(sides, file_bounds, strict=True):
            side.append(keys.prefix(columns))
        counts.append(len(begins[-1]))
        group_count = int(groups[-1][-1]) + 1
    bounds = KeyBounds.of(*map(SortedKeys.joined, sides))
    begin, end, group = (np.concatenate(parts).astype(np.int64) for parts in (begins, ends, groups))
    run_blocks = Blocks(begin, end, group, max_rows)
    return RunBlocks(files, numbers, known, lows, highs, np.cumsum(counts), first_rows, bounds, run_blocks)


@dataclass(frozen=True)
class RunSearch:
    """Finds keys in the blocks whose bounds admit them, of many files at once, as far as memory allows.

    Bounds only say where to look: a key is absent only if two adjacent rows were read between which it would belong. Bounds that
    lead elsewhere are damaged.
    """

    context: TableContext
    bucket_id: BucketId
    run: RunBlocks

    def rows(self, keys: SortedKeys, files: Indices, first: Indices, last: Indices) -> Indices:
        """The row in the run of each key, `ABSENT` for keys that are not there.

        `files`: the file of each key; `first`, `last`: its blocks (`RunBlocks.blocks_of`). The pages of these files are known.
        """
        result = np.full(len(keys), ABSENT, np.int64)
        for begin, end, blocks in self.run.blocks.portions(first, last):
            wanted, their_files = keys.slice(begin, end), files[begin:end]
            rows, before, after = self._rows_among(wanted, their_files, blocks)
            unsure = np.flatnonzero((rows == ABSENT) & (after - before != 1))
            if len(unsure):
                around = np.stack([before[unsure], before[unsure] + 1, after[unsure] - 1, after[unsure]])
                inside = np.clip(
                    around, self.run.first_rows[their_files[unsure]], self.run.first_rows[their_files[unsure] + 1] - 1
                )
                neighbours = np.unique(self.run.blocks.of_rows(inside))
                rows[unsure], before, after = self._rows_among(wanted.take(unsure), their_files[unsure], neighbours)
                wrong = np.flatnonzero((rows[unsure] == ABSENT) & (after - before != 1))
                if len(wrong):
                    self._raise_damaged(int(their_files[unsure[wrong[0]]]), WRONG_BOUNDS)
            result[begin:end] = rows
        return result

    def _rows_among(self, keys: SortedKeys, files: Indices, blocks: Indices) -> tuple[Indices, Indices, Indices]:
        """For each key its row in these blocks, and the nearest rows of its file that were read before and after where it
        belongs.

        Example: file 0 holds the keys 10, 20, 30 in one block and 40, 50, 60 in the next, file 1 holds 70, 80. In the run their
        rows are 0 to 5, and 6 and 7. Only the second block was decoded:

        | key | row | before | after | what follows |
        |---|---|---|---|---|
        | 50 | 4 | 3 | 4 | found |
        | 45 | - | 3 | 4 | absent: nothing lies between these rows |
        | 65 | - | 5 | 6 | absent: 5 is the last row of file 0, and 6 the row after it |
        | 35 | - | -1 | 3 | unsure: rows 0 to 2 were not read, so that their neighbours must be |
        """
        stored, run = self._keys_of(blocks), self.run.blocks.run(blocks)
        at = stored.below(keys)
        before = np.where(at > 0, run.rows_of(np.maximum(at - 1, 0)), ABSENT)
        after = run.rows_of(np.minimum(at, len(stored) - 1))
        is_last = at == len(stored)
        is_here = stored.equal_at(at, keys)
        begins, ends = self.run.first_rows[files], self.run.first_rows[files + 1]
        return (
            np.where(is_here, after, ABSENT),
            np.maximum(before, begins - 1),
            np.where(is_last, ends, np.minimum(after, ends)),
        )

    def _keys_of(self, blocks: Indices) -> SortedKeys:
        """The keys in these blocks, of as many files at once as can be decoded together. Raises `DamagedFile`."""
        pieces: list[SortedKeys] = []
        for _, group in itertools.groupby(self._encoded(blocks), lambda member: self._form(*member)):
            members = list(group)
            try:
                pieces.append(self._decoded(members))
            except DECODE_ERRORS:
                for member in members:  # one by one, so that the error says which file is damaged
                    with decoding(self._path(member[0])):
                        pieces.append(self._decoded([member]))
        stored = SortedKeys.joined(pieces)
        starts = self.run.blocks.run(blocks).starts
        for index in np.flatnonzero(~stored.ascends_at(starts[1:])).tolist():
            self._raise_damaged(int(np.searchsorted(self.run.first_blocks, blocks[index + 1], "right")) - 1, UNSORTED)
        return stored

    def _encoded(self, blocks: Indices) -> Iterator[tuple[int, EncodedRows]]:
        """The encoded blocks, file by file, each with the file's number in the run."""
        cuts = np.searchsorted(blocks, self.run.first_blocks)
        for number in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist():
            known, file, path = self.run.known[number], self.run.files[number], self._path(number)
            if known is None:
                raise AssertionError(f"a block of {path} is to be read, but its pages are not known")
            with decoding(path, context=self.context), open_sized(self.context.storage, path, file.file_size) as source:
                in_file = blocks[cuts[number] : cuts[number + 1]] - self.run.first_blocks[number]
                yield number, known.pages.read(source, in_file)

    def _form(self, number: int, rows: EncodedRows) -> tuple[object, ...]:
        """Equal for rows that can be decoded together."""
        return self.run.files[number].schema_id, rows.columns.form

    def _decoded(self, members: Sequence[tuple[int, EncodedRows]]) -> SortedKeys:
        known = self.run.known[members[0][0]]
        assert known is not None
        batch = known.read.of(one_batch(decoded_together([rows for _, rows in members])))
        check_decoded(batch)
        return SortedKeys.of(batch, self.context.schema.trimmed_primary_keys)

    def _path(self, number: int) -> str:
        return self.context.data_file_path(*self.bucket_id, self.run.files[number])

    def _raise_damaged(self, number: int, why: str) -> None:
        with decoding(self._path(number)):
            raise ValueError(why)
