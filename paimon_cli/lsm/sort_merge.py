"""Merges sorted runs into one stream of merged rows, in bounded memory (Java SortMergeReader, FORMAT.md, section 11.2).

One batch of each run is in memory. The *frontier* is the smallest last key of these batches: no run can still return a row up to
it, so the rows up to it are cut off, sorted together and merged as one piece.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import (
    Key,
    comparable,
    count_up_to,
    group_starts,
    key_at,
    null_first_words,
    order_words,
    stable_order,
)
from paimon_cli.lsm.sorted_rows import KeepAllVersions, MergeEngine, SortedRows
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.pieces import PIECES


def merge_sorted_runs(
    runs: Sequence[Iterator[pa.RecordBatch]],
    key_columns: Sequence[str],
    engine: MergeEngine,
    *,
    keys_repeat: bool = False,
    batch_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs into one row per key, retractions included, in batches in key order. No key spans two batches.

    `runs`: batches in `merge_schema` (or a projection with the key, `_SEQUENCE_NUMBER` and `_VALUE_KIND`), with keys ascending
    and unique within a run; it is fastest if the oldest run comes first. Without `_SEQUENCE_NUMBER` rows of a later run are
    newer. A single run is returned as it is, whatever its columns.
    `keys_repeat`: a run may hold a key several times, but not in two batches; then single runs are merged, too. `batch_bytes`:
    the approximate size of batches.
    """
    if len(runs) == 1 and not keys_repeat:
        yield from runs[0]
        return
    cursors = [cursor for run in runs if (cursor := RunCursor(run, key_columns)).fill()]
    while len(cursors) > 1:
        frontier = min(cursor.last_key for cursor in cursors)
        size = -sum(cursor.bytes_left for cursor in cursors)
        slices = [piece for cursor in cursors if (piece := cursor.take_up_to(frontier)).num_rows]
        size += sum(cursor.bytes_left for cursor in cursors)
        if -size > max(PIECES.merged_at_once_bytes, 4 * PIECES.run_column_bytes * slices[0].num_columns):
            yield from merge_in_memory(slices, key_columns, engine, rows_of(slices, batch_bytes or PIECES.merged_piece_bytes))
        else:
            yield from merge_piece(slices, key_columns, engine, keys_repeat=keys_repeat, batch_bytes=batch_bytes)
        cursors = [cursor for cursor in cursors if cursor.fill()]
    for cursor in cursors:
        for batch in cursor.rest():
            yield from merge_piece([batch], key_columns, engine, keys_repeat=keys_repeat)


def merge_in_memory(
    batches: Sequence[pa.RecordBatch], key_columns: Sequence[str], engine: MergeEngine, rows_per_piece: int
) -> Iterator[pa.RecordBatch]:
    """Like `merge_sorted_runs`, for runs in memory, oldest first, which may hold a key several times.

    Each batch is merged from about `rows_per_piece` rows of input. Runs are cut at sampled keys, so that a piece fits into the
    processor's cache.
    """
    total = sum(batch.num_rows for batch in batches)
    if total <= rows_per_piece:
        yield from merge_piece(batches, key_columns, engine, keys_repeat=True)
        return
    cursors = [cursor for batch in _long_runs(batches, key_columns) if (cursor := RunCursor(iter([batch]), key_columns)).fill()]
    step = max(1, rows_per_piece // PIECES.samples_per_piece)
    samples = sorted(itertools.chain.from_iterable(cursor.sample(step) for cursor in cursors))
    cuts = [key for key, _ in itertools.groupby(samples[PIECES.samples_per_piece - 1 :: PIECES.samples_per_piece])]
    for cut in cuts:
        slices = [piece for cursor in cursors if (piece := cursor.take_up_to(cut)).num_rows]
        yield from merge_piece(slices, key_columns, engine, keys_repeat=True)
    rest = [piece for cursor in cursors for piece in cursor.rest()]
    if rest:
        yield from merge_piece(rest, key_columns, engine, keys_repeat=True)


def rows_of(batches: Sequence[pa.RecordBatch], size: int) -> int:
    """The number of these rows that take about `size` bytes: at least 1, at most the limit of a piece."""
    rows, taken = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
    return min(PIECES.merged_piece_rows, max(1, rows * size // max(1, taken)))


def _long_runs(batches: Sequence[pa.RecordBatch], key_columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches, small neighbours sorted together, because merging slices of many small batches is slow."""
    group: list[pa.RecordBatch] = []
    rows = 0
    for number, batch in enumerate(batches, 1):
        group.append(batch)
        rows += batch.num_rows
        if number == len(batches) or rows >= PIECES.merged_run_rows:
            yield from merge_piece(group, key_columns, KeepAllVersions(), keys_repeat=len(group) > 1)
            group, rows = [], 0


class RunCursor:
    """A cursor over a sorted run: the rest of its current batch, and the batches after it."""

    def __init__(self, batches: Iterator[pa.RecordBatch], key_columns: Sequence[str]) -> None:
        self._batches = batches
        self._key_columns = key_columns
        self._batch: pa.RecordBatch | None = None
        self._row_bytes = 0.0
        self._keys: list[pa.Array] = []

    def fill(self) -> bool:
        """Read the next batch if the current one is empty. Returns false at the end of the run."""
        while self._batch is None or self._batch.num_rows == 0:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
            self._row_bytes = self._batch.nbytes / max(1, self._batch.num_rows)  # Arrow looks at each column, which takes time
            self._keys = [comparable(self._batch.column(name)) for name in self._key_columns]
        return True

    @property
    def bytes_left(self) -> float:
        """About the bytes of the rest of the current batch."""
        return 0 if self._batch is None else self._row_bytes * self._batch.num_rows

    @property
    def last_key(self) -> Key:
        return key_at(self._keys, len(self._keys[0]) - 1)

    def sample(self, step: int) -> list[Key]:
        """Every `step`-th key of the current batch."""
        return [key_at(self._keys, row) for row in range(step - 1, len(self._keys[0]), step)]

    def take_up_to(self, frontier: Key) -> pa.RecordBatch:
        """Cut off the rows whose key is <= `frontier`."""
        assert self._batch is not None
        count = count_up_to(self._keys, frontier)
        head, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        self._keys = [keys.slice(count) for keys in self._keys]
        return head

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._batch is not None and self._batch.num_rows:
            yield self._batch
        yield from self._batches


def merge_piece(
    slices: Sequence[pa.RecordBatch],
    key_columns: Sequence[str],
    engine: MergeEngine,
    *,
    keys_repeat: bool = False,
    batch_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Merge slices that hold all rows of their keys. A single slice of a run with unique keys is returned as it is."""
    if len(slices) == 1 and not keys_repeat:
        yield slices[0]
        return
    rows = sorted_rows(pa.concat_batches(slices), key_columns, engine)
    for piece in [rows] if batch_bytes is None else rows.pieces_of(batch_bytes):
        yield engine.merge(piece)


def sorted_rows(rows: pa.RecordBatch, key_columns: Sequence[str], engine: MergeEngine) -> SortedRows:
    """Sort rows by key, sequence fields and sequence number; of rows with equal numbers, retractions come first.

    Rows without sequence numbers keep the order of their arrival.
    """
    words = order_words([rows.column(name) for name in key_columns])
    order = stable_order(words)
    starts = group_starts([word[order] for word in words])
    numbers = rows.column(SEQUENCE_NUMBER).to_numpy() if SEQUENCE_NUMBER in rows.schema.names else None
    if not engine.sequence_fields and (numbers is None or _ascends_in_groups(numbers[order], starts)):
        return SortedRows(rows, order, starts)
    ties = [word for name in engine.sequence_fields for word in null_first_words(rows.column(name), engine.descending)]
    if numbers is not None:
        ties += [numbers, ((rows.column(VALUE_KIND).to_numpy() & 1) == 0).astype(np.int64)]
    return SortedRows(rows, stable_order([*words, *ties]), starts)


def _ascends_in_groups(sequence: np.ndarray, starts: np.ndarray) -> bool:
    """Whether sequence numbers ascend strictly within every group, so that sorting by key is enough."""
    rising = sequence[1:] > sequence[:-1]
    rising[starts[1:] - 1] = True
    return bool(rising.all())
