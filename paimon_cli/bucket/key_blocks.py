"""What is known of where keys lie: the blocks of Parquet files above level 0, and those of a whole sorted run.

A process keeps this of immutable files for the next lookup. A block is a page, or else a row group, and its bounds say which keys
it may hold. The files of a sorted run are disjoint, so their blocks, one after the other, are searched as those of one long file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import DECODE_ERRORS, check_decoded, decoding
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
from paimon_cli.lsm.key_search import ABSENT, KeyBounds, Places, SortedKeys
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.parquet_footer import Footer
from paimon_cli.storage.storage import open_sized

UNSORTED = "its rows are not sorted by key, or its page index is damaged"
WRONG_BOUNDS = "the bounds in its page index or footer are not those of its rows"
NO_LIMIT = 1 << 62
"""The most rows that are decoded together in runs of which no file's pages are known."""


def checked_footer(source: BinaryIO, file: DataFileMeta) -> Footer:
    """Raises `ValueError` where the data file does not hold as many rows as its metadata says."""
    footer = read_footer(source)
    if footer.row_count != file.row_count:
        raise ValueError(f"it holds {footer.row_count} rows, its manifest says {file.row_count}")
    return footer


def key_bounds(context: TableContext, serialised: list[bytes]) -> SortedKeys:
    """Keys of manifest entries, in the entries' order, as columns that compare with those of rows."""
    keys = ((None if part == NULL_PART else part for part in context.key_of(key)) for key in serialised)
    cells = zip(*keys, strict=True)
    columns = [
        # `key_of` gives floats as the integers that `comparable` makes of them
        pa.array(values, pa.int64()) if t.root in FLOATING_ROOTS else comparable(values_to_arrow(values, t))
        for values, t in zip(cells, context.key_types, strict=True)
    ]
    return SortedKeys(tuple(columns))


@dataclass
class KnownFile:
    """What a process remembers of a file in which it has looked up keys or rows."""

    footer: Footer | None = None
    blocks: KeyBlocks | None = None
    rows_read: int = 0
    only_adds: bool | None = None

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        footer = 0 if self.footer is None else MEMORY_PER_FOOTER_BYTE * self.footer.size
        return footer + (0 if self.blocks is None else self.blocks.pages.size + self.blocks.bounds.size)


@dataclass(frozen=True)
class KeyBlocks:
    """The key columns of a Parquet file in blocks, and what is known of the keys in each."""

    read: ReadColumns
    pages: PagedColumns
    bounds: KeyBounds

    @staticmethod
    def of(context: TableContext, file: DataFileMeta, source: BinaryIO, footer: Footer) -> KeyBlocks | None:
        """None for a file without bounds of its first key column."""
        names = context.schema.trimmed_primary_keys
        read = ReadColumns(context, file, names)
        pages = PagedColumns.of(source, footer, read.physical)
        if pages is None:
            return None
        ends: list[tuple[pa.Array, pa.Array]] = []
        for place, t in enumerate(context.key_types):
            # bounds of floats leave out NaN, the greatest key
            known = None if t.root in FLOATING_ROOTS else pages.bounds(source, place)
            if known is None:
                break
            ends.append(known)
        if not ends:
            return None
        known_columns = ReadColumns(context, file, names[: len(ends)])
        sides = []
        for side in zip(*ends, strict=True):
            batch = known_columns.of(pa.RecordBatch.from_arrays(list(side), names=known_columns.physical))
            sides.append(SortedKeys.of(batch, names[: len(ends)]))
        return KeyBlocks(read, pages, KeyBounds.of(*sides))

    @property
    def row_counts(self) -> Places:
        """The rows of each block."""
        return self.pages.blocks.ends - self.pages.blocks.begins

    def rows_for(self, keys: SortedKeys) -> int:
        """How many rows the blocks have whose bounds admit one of the keys."""
        return int(self.row_counts[self.pages.blocks.wanted(*self.bounds.blocks(keys))].sum())


class Portion(NamedTuple):
    """The keys asked for, from `begin` to `end`, that only the file with this number in its run may hold."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class RunBlocks:
    """The files of a sorted run in the order of their keys, as blocks. A file whose pages are not known is a single block.

    `numbers`: the place of each file in the list that was given. `lows`, `highs`: the keys of its manifest entry. `first_blocks`,
    `first_rows`: those of each file in the run, and what follows the last.
    """

    files: tuple[DataFileMeta, ...]
    numbers: Places
    known: tuple[KeyBlocks | None, ...]
    lows: SortedKeys
    highs: SortedKeys
    first_blocks: Places
    first_rows: Places
    bounds: KeyBounds
    blocks: Blocks

    @staticmethod
    def of(context: TableContext, files: Sequence[DataFileMeta]) -> RunBlocks:
        """Without pages."""
        lows, highs = (key_bounds(context, [getattr(file, bound) for file in files]) for bound in ("min_key", "max_key"))
        order = np.argsort(ranks(order_words(lows.columns)), kind="stable")
        lows, highs = lows.take(order), highs.take(order)
        if (highs.below(lows) != np.arange(len(files))).any():
            why = f"its files of level {files[0].level} overlap, so that a key could be in two of them"
            raise DamagedFile("no key can be looked up in a bucket", why, f"paimon-cli verify {context.layout.argument}")
        in_order = tuple(files[number] for number in order.tolist())
        return _joined(in_order, order, (None,) * len(files), lows, highs)

    def knowing(self, known: Sequence[KeyBlocks | None]) -> RunBlocks:
        """With what is known of each file."""
        return _joined(self.files, self.numbers, tuple(known), self.lows, self.highs)

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        pages = sum(known.pages.size for known in self.known if known is not None)
        return pages + self.bounds.size + 1000 * len(self.files)

    def portions(self, keys: SortedKeys) -> Iterator[Portion]:
        """The keys that the bounds of each file admit, file by file; without files that have none."""
        begins, ends = keys.below(self.lows), keys.up_to(self.highs)
        for number in np.flatnonzero(begins < ends).tolist():
            yield Portion(number, int(begins[number]), int(ends[number]))

    def blocks_of(self, keys: SortedKeys, homes: Places) -> tuple[Places, Places]:
        """The first and the last block of its file that may hold each of the keys or the rows around it."""
        first, last = self.bounds.blocks(keys)
        least, most = self.first_blocks[homes], self.first_blocks[homes + 1] - 1
        return np.clip(first, least, most), np.clip(last, least, most)


def _joined(
    files: tuple[DataFileMeta, ...], numbers: Places, known: tuple[KeyBlocks | None, ...], lows: SortedKeys, highs: SortedKeys
) -> RunBlocks:
    columns = min((len(one.bounds.lows.columns) for one in known if one is not None), default=len(lows.columns))
    first_rows = np.concatenate([[0], np.cumsum([file.row_count for file in files])])
    sides: tuple[list[SortedKeys], list[SortedKeys]] = ([], [])
    begins, ends, groups, counts, most_rows, group_count = [], [], [], [0], NO_LIMIT, 0
    for number, one in enumerate(known):
        first = int(first_rows[number])
        if one is None:
            own = lows.slice(number, number + 1), highs.slice(number, number + 1)
            begins.append(np.array([first]))
            ends.append(first_rows[number + 1 : number + 2])
            groups.append(np.array([group_count]))
        else:
            own, paged = (one.bounds.lows, one.bounds.highs), one.pages.blocks
            begins.append(first + paged.begins)
            ends.append(first + paged.ends)
            groups.append(group_count + paged.groups)
            most_rows = min(most_rows, paged.most_rows)
        for side, keys in zip(sides, own, strict=True):
            side.append(keys.prefix(columns))
        counts.append(len(begins[-1]))
        group_count = int(groups[-1][-1]) + 1
    bounds = KeyBounds.of(*map(SortedKeys.joined, sides))
    begin, end, group = (np.concatenate(parts).astype(np.int64) for parts in (begins, ends, groups))
    blocks = Blocks(begin, end, group, most_rows)
    return RunBlocks(files, numbers, known, lows, highs, np.cumsum(counts), first_rows, bounds, blocks)


@dataclass(frozen=True)
class RunSearch:
    """Finds keys in blocks whose bounds admit them, of as many files at once as memory has room for.

    Bounds only say where to look. A key is absent if two neighbouring rows were read between which it would stand; bounds that
    lead elsewhere are damaged.
    """

    context: TableContext
    bucket_id: BucketId
    run: RunBlocks

    def rows(self, keys: SortedKeys, homes: Places, first: Places, last: Places) -> Places:
        """The row in the run of each key, `ABSENT` where there is none; all of the blocks' pages are known."""
        found = np.full(len(keys), ABSENT, np.int64)
        for begin, end, blocks in self.run.blocks.portions(first, last):
            asked, files = keys.slice(begin, end), homes[begin:end]
            rows, before, after = self._among(asked, files, blocks)
            lost = np.flatnonzero((rows == ABSENT) & (after - before != 1))
            if len(lost):
                around = np.stack([before[lost], before[lost] + 1, after[lost] - 1, after[lost]])
                inside = np.clip(around, self.run.first_rows[files[lost]], self.run.first_rows[files[lost] + 1] - 1)
                neighbours = np.unique(self.run.blocks.of_rows(inside))
                rows[lost], before, after = self._among(asked.take(lost), files[lost], neighbours)
                wrong = np.flatnonzero((rows[lost] == ABSENT) & (after - before != 1))
                if len(wrong):
                    self._object(int(files[lost[wrong[0]]]), WRONG_BOUNDS)
            found[begin:end] = rows
        return found

    def _among(self, keys: SortedKeys, homes: Places, blocks: Places) -> tuple[Places, Places, Places]:
        """The row of each key in these blocks, and the rows read before and after the place where it would stand in its file."""
        stored, run = self._keys_of(blocks), self.run.blocks.run(blocks)
        places = stored.below(keys)
        before = np.where(places > 0, run.rows_of(np.maximum(places - 1, 0)), ABSENT)
        after = run.rows_of(np.minimum(places, len(stored) - 1))
        is_last = places == len(stored)
        is_here = stored.equal_at(places, keys)
        begins, ends = self.run.first_rows[homes], self.run.first_rows[homes + 1]
        return (
            np.where(is_here, after, ABSENT),
            np.maximum(before, begins - 1),
            np.where(is_last, ends, np.minimum(after, ends)),
        )

    def _keys_of(self, blocks: Places) -> SortedKeys:
        pieces: list[SortedKeys] = []
        for _, members in itertools.groupby(self._encoded(blocks), lambda member: self._form(*member)):
            together = list(members)
            try:
                pieces.append(self._decoded(together))
            except DECODE_ERRORS:
                for member in together:  # one by one, so that the error says which file is damaged
                    with decoding(self._path(member[0])):
                        pieces.append(self._decoded([member]))
        stored = SortedKeys.joined(pieces)
        starts = self.run.blocks.run(blocks).starts
        for place in np.flatnonzero(~stored.ascends_at(starts[1:])).tolist():
            self._object(int(np.searchsorted(self.run.first_blocks, blocks[place + 1], "right")) - 1, UNSORTED)
        return stored

    def _encoded(self, blocks: Places) -> Iterator[tuple[int, EncodedRows]]:
        """The blocks as they lie in each of the files, with the file's number in the run."""
        cuts = np.searchsorted(blocks, self.run.first_blocks)
        for number in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist():
            known, file, path = self.run.known[number], self.run.files[number], self._path(number)
            if known is None:
                raise AssertionError(f"a block of {path} was asked for, and its pages are not known")
            with decoding(path), open_sized(self.context.storage, path, file.file_size) as source:
                own = blocks[cuts[number] : cuts[number + 1]] - self.run.first_blocks[number]
                yield number, known.pages.read(source, own)

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

    def _object(self, number: int, why: str) -> None:
        with decoding(self._path(number)):
            raise ValueError(why)
