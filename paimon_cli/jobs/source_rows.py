"""The rows of a source, and an index of them: in memory, or in files on local disk if they are many.

The files are mapped into memory: the system keeps as many of their pages as it has room for. So a merge of a source of any size
takes the memory of a small one. Tasks in other processes of this machine map the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.spilled_runs import SpillDirectory
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.errors import BadInput
from paimon_cli.jobs.key_index import NO_ROW, KeyIndex
from paimon_cli.pieces import PIECES

SpillPlace = Callable[[], SpillDirectory | None]
"""Where rows go that are too many for memory; None to hold all of them there. It is asked only for such rows."""
HASHES = 1 << 32
"""The number of different hashes."""
NOT_INDEXED = -1
"""In place of the hash of a row with a null, which equals nothing."""


class StoredRows:
    """Rows that are read at random. `path`: the file that holds them; None if they are in memory."""

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch], path: Path | None = None) -> None:
        self.schema = schema
        self.path = path
        self._batches = [batch for batch in batches if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return StoredRows.mapped, (self.path,)
        return StoredRows, (self.schema, self._batches)

    @staticmethod
    def mapped(path: Path) -> StoredRows:
        """The rows of a file, none of which is read yet."""
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            return StoredRows(reader.schema, [reader.get_batch(number) for number in range(reader.num_record_batches)], path)

    @staticmethod
    def collected(schema: pa.Schema, batches: Iterable[pa.RecordBatch], place: SpillPlace) -> StoredRows:
        """The rows of all batches: in memory as long as they are few, or if there is no place to spill them to."""
        held, size = list[pa.RecordBatch](), 0
        iterator = iter(batches)
        for batch in iterator:
            held.append(batch)
            size += batch.nbytes
            if size > PIECES.source_bytes and (spill := place()) is not None:
                return StoredRows.mapped(_written(schema, chain(held, iterator), spill))
        return StoredRows(schema, pa.Table.from_batches(held, schema).combine_chunks().to_batches())

    @property
    def num_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, self.schema)

    @property
    def whole(self) -> pa.RecordBatch:
        """All rows in one batch."""
        batches = self.table.combine_chunks().to_batches()
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=self.schema)

    def pieces(self, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Some columns of all rows, a piece at a time, each with the position of its first row."""
        for start, batch in zip(self._starts.tolist(), self._batches, strict=False):
            chosen = batch.select(list(names))
            for row in range(0, batch.num_rows, PIECES.batch_rows):
                yield start + row, chosen.slice(row, PIECES.batch_rows)

    def read(self, rows: range) -> pa.RecordBatch:
        """Neighbouring rows that are in one batch of the file."""
        number = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        return self._batches[number].slice(rows.start - int(self._starts[number]), len(rows))

    def take(self, positions: np.ndarray, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows at these positions, in this order; nulls for `NO_ROW`. `names`: only these columns."""
        chosen = list(self.schema.names if names is None else names)
        known = positions != NO_ROW
        if not known.all():
            place = np.where(known, np.cumsum(known) - 1, 0)
            rows = self.take(positions[known], names)
            return rows.take(pa.array(place, pa.int64(), mask=~known))
        if not len(positions):
            return pa.RecordBatch.from_arrays([pa.array([], self.schema.field(name).type) for name in chosen], names=chosen)
        if len(self._batches) == 1:
            return self._batches[0].select(chosen).take(pa.array(positions, pa.int64()))
        order = np.argsort(positions, kind="stable")
        ascending = positions[order]
        ends = np.searchsorted(ascending, self._starts)
        parts = [
            batch.select(chosen).take(pa.array(ascending[begin:end] - start, pa.int64()))
            for batch, start, begin, end in zip(self._batches, self._starts, ends[:-1], ends[1:], strict=False)
            if begin < end
        ]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(pa.array(place))


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream of the caller. Raises `BadInput` if it breaks off."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise BadInput("the data cannot be read to its end", "; ".join(map(str, error.args))) from error
        yield batch


def _written(schema: pa.Schema, batches: Iterable[pa.RecordBatch], spill: SpillDirectory) -> Path:
    """A file of the batches, in pieces of the usual size, which can be mapped: it is not compressed."""
    path = spill.next_path()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
        for batch in batches:
            for row in range(0, batch.num_rows, PIECES.batch_rows):
                file.write_batch(batch.slice(row, PIECES.batch_rows))
    return path


NO_POSITIONS = np.empty(0, np.int64)


@dataclass(frozen=True)
class SpilledIndex:
    """An index on disk: the hashes of all different values, sorted, with the positions of their first rows.

    A hash only proposes rows: their values are compared. `paths`: of the hashes, of the positions, and of the first row with the
    same values for each row that others repeat.
    """

    rows: StoredRows
    names: tuple[str, ...]
    types: tuple[DataType, ...]
    paths: tuple[Path, Path, Path]
    count: int
    is_unique: bool

    @staticmethod
    def of(rows: StoredRows, names: tuple[str, ...], types: tuple[DataType, ...], spill: SpillDirectory) -> SpilledIndex:
        """Sort the rows by their hashes, a range of these at a time."""
        total = rows.num_rows
        paths = (spill.next_path(), spill.next_path(), spill.next_path())
        hashes, positions, firsts = (np.memmap(path, np.int64, "w+", shape=total) for path in paths)
        firsts[:] = NO_ROW
        unsorted = np.memmap(spill.next_path(), np.int64, "w+", shape=total)
        for start, batch in rows.pieces(names):
            unsorted[start : start + batch.num_rows] = _hashes(batch.columns, types)
        count, is_unique = 0, True
        parts = -(-total // PIECES.indexed_rows)
        for part in range(parts):
            own = _rows_between(unsorted, part * HASHES // parts, (part + 1) * HASHES // parts)
            found = unsorted[own]
            order = np.argsort(found, kind="stable")
            own, found = own[order], found[order]
            is_first = _first_ones(rows, names, own, found, firsts)
            is_unique &= bool(is_first.all())
            end = count + int(is_first.sum())
            hashes[count:end], positions[count:end] = found[is_first], own[is_first]
            count = end
        return SpilledIndex(rows, names, types, paths, count, is_unique)

    @cached_property
    def _hashes(self) -> np.ndarray:
        return np.memmap(self.paths[0], np.int64, "r")[: self.count]

    @cached_property
    def _positions(self) -> np.ndarray:
        return np.memmap(self.paths[1], np.int64, "r")

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.memmap(self.paths[2], np.int64, "r")

    def __reduce__(self) -> tuple[Any, ...]:
        return SpilledIndex, (self.rows, self.names, self.types, self.paths, self.count, self.is_unique)

    def rows_of(self, columns: Sequence[pa.Array]) -> np.ndarray:
        hashes = _hashes(columns, self.types)
        result = np.full(len(hashes), NO_ROW, np.int64)
        order = np.argsort(hashes, kind="stable")  # neighbours read the same pages
        at = np.searchsorted(self._hashes, hashes[order])
        while len(order):
            within = at < self.count
            order, at = order[within], at[within]
            proposed = self._hashes[at] == hashes[order]
            order, at = order[proposed], at[proposed]
            candidates = np.asarray(self._positions[at])
            is_equal = _equal(
                self.rows.take(candidates, self.names).columns, [column.take(pa.array(order)) for column in columns]
            )
            result[order[is_equal]] = candidates[is_equal]
            order, at = order[~is_equal], at[~is_equal] + 1  # other values may have the same hash
        return result

    def repeats(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._firsts[rows]) != NO_ROW

    def all_like(self, rows: np.ndarray) -> np.ndarray:
        repeated = rows if self.is_unique else rows[self.repeats(rows)]
        if self.is_unique or not len(repeated):
            return rows
        steps = range(0, len(self._firsts), PIECES.hash_scan_rows)
        like = [start + np.flatnonzero(np.isin(self._firsts[start : start + PIECES.hash_scan_rows], repeated)) for start in steps]
        return np.union1d(rows, np.concatenate(like))

    def first_repeated(self) -> int:
        return int(np.argmax(self._firsts != NO_ROW))


def _hashes(columns: Sequence[pa.Array], types: Sequence[DataType]) -> np.ndarray:
    """The hashes of the rows (int64, not negative); `NOT_INDEXED` for rows with a null."""
    hashes = hash_rows(columns, types).view(np.uint32).astype(np.int64)
    for column in columns:
        if column.null_count:
            hashes[column.is_null().to_numpy(zero_copy_only=False)] = NOT_INDEXED
    return hashes


def _rows_between(hashes: np.ndarray, low: int, high: int) -> np.ndarray:
    """The positions of the hashes from `low` up to `high`, which is excluded."""
    found = [NO_POSITIONS]
    for start in range(0, len(hashes), PIECES.hash_scan_rows):
        piece = hashes[start : start + PIECES.hash_scan_rows]
        found.append(start + np.flatnonzero((piece >= low) & (piece < high)))
    return np.concatenate(found)


def _first_ones(rows: StoredRows, names: Sequence[str], own: np.ndarray, hashes: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """Which rows, sorted by their hashes, are the first ones with their values. Sets `firsts` of those that are repeated."""
    is_first = np.ones(len(own), bool)
    same = hashes[1:] == hashes[:-1]
    shares = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    if len(shares):
        columns = rows.take(own[shares], names).columns
        index = KeyIndex(columns)
        first = index.rows_of(columns)
        is_first[shares] = first == np.arange(len(first))
        is_repeated = index.repeats(first)
        firsts[own[shares[is_repeated]]] = own[shares[first[is_repeated]]]
    return is_first


def _equal(some: Sequence[pa.Array], others: Sequence[pa.Array]) -> np.ndarray:
    is_equal = np.ones(len(some[0]), bool)
    for one, other in zip(some, others, strict=True):
        is_equal &= pc.equal(one, other).to_numpy(zero_copy_only=False)
    return is_equal
