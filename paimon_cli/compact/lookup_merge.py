"""Merges level 0 in tables whose compactions look up old rows above the output level (FORMAT.md, section 12).

With deletion vectors, an old row is marked in the vector of its file; elsewhere the new row hides it. If the result depends on
its values, they take part in the merge. Where the oldest row wins, it stays and the new one is dropped. With
`changelog-producer=lookup` all old values are read, since the changelog shows them. Java class: LookupMergeTreeCompactRewriter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import FilePart, read_data_file
from paimon_cli.bucket.deletion_vectors import ChangedVectors
from paimon_cli.bucket.key_lookup import FoundRows, find_keys, rows_at
from paimon_cli.bucket.merged_rows import RecordExpiry, merge_section
from paimon_cli.bucket.snapshot_order import SnapshotOrder
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.changelog import NO_ROW, ChangedKeys, TakeRows, merged_row_numbers
from paimon_cli.lsm.key_search import ABSENT
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.lsm.sorted_rows import LEVEL_COLUMN, KeepAllVersions, MergeEngine, SortedRows, with_level
from paimon_cli.lsm.sorted_runs import Section
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.pieces import PIECES


@dataclass(frozen=True)
class LookupMerge:
    """The merges of one compaction task. `columns`: of the merged rows, as `merge_columns` returns them.

    `on_changes` is called with rows of the changelog; None if there is no changelog.
    """

    context: TableContext
    task: CompactionTask
    columns: Sequence[str]
    expiry: RecordExpiry | None
    on_changes: TakeRows | None = None

    @cached_property
    def vectors(self) -> ChangedVectors:
        return ChangedVectors(self.context, self.task.picked, self.task.file_stamp)

    @cached_property
    def _engine(self) -> MergeEngine:
        return merge_engine(self.context.schema, self.context.options)

    @property
    def _oldest_wins(self) -> bool:
        return self.context.options.merge_engine.oldest_wins

    @cached_property
    def _above(self) -> tuple[DataFileMeta, ...]:
        """The files that may hold older rows of level-0 keys."""
        return tuple(file for file in self.task.others if file.level > self.task.output_level)

    @cached_property
    def _order(self) -> SnapshotOrder:
        return SnapshotOrder.of(self.context, self.task.picked)

    @cached_property
    def _changes(self) -> ChangedKeys:
        return ChangedKeys.of(self.context.schema, self.context.options)

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        return self.context.schema.trimmed_primary_keys

    def must_rewrite(self, file: DataFileMeta) -> bool:
        """Whether a file must be rewritten to reach the output level: its format differs, or old rows affect its rows."""
        if file.level != 0:
            return False
        options = self.context.options
        if options.format_at(0) != options.format_at(self.task.output_level):
            return True
        return any(not self._wins_over(file.min_sequence_number, old) for old in self._above)

    def moves(self, file: DataFileMeta) -> None:
        """For a level-0 file that is upgraded: mark the old rows of its keys, and report the changes."""
        if file.level != 0:
            return
        columns = self._keys if self.on_changes is None else self.columns
        if self.on_changes is None and not (self._above and self.context.mode.deletion_vectors):
            return
        for batch in read_data_file(self.context, self.task.bucket_id, file, columns, PIECES.looked_up_rows):
            if self.on_changes is None:
                self._mark(self._found(batch))
            else:
                for _ in self._resolved(with_level(self._order.in_merge(batch, file), 0), merge_lone=False):
                    pass

    def merged(self, section: Section, parts: Mapping[str, FilePart]) -> Iterator[pa.RecordBatch]:
        """The merged rows of a section, one per key, including retractions. `parts`: as for `merge_section`."""
        context, task, before = self.context, self.task, self.vectors.before
        given = task.picked, section, self.columns, task.memory, self.expiry, before
        merge = partial(merge_section, context, *given, parts=parts, compacts=True)
        if all(file.level for run in section for file in run.files):
            yield from merge()
            return
        for rows in _chunks(merge(level_engine=KeepAllVersions()), looked_up=bool(self._above)):
            yield from self._resolved(rows)

    def _resolved(self, chunk: pa.RecordBatch, merge_lone: bool = True) -> Iterator[pa.RecordBatch]:
        """Merge all versions of some keys with their old rows above the output level.

        `merge_lone`: also keys with a single row, as in Java. In a file that is upgraded such a row stays as it is.

        Example: what a key becomes with merge engine deduplicate and `changelog-producer=lookup`. Rows above the output level are
        looked up, and only for keys without a row at a picked level above 0, since that one is newer:

        | level 0 | picked, above level 0 | looked up | row | changelog |
        |---|---|---|---|---|
        | b | | | b | +I b |
        | b | | a | b | -U a, +U b |
        | b | a | | b | -U a, +U b |
        | deleted | | a | deleted | -D a |
        | b, then c | | a | c | -U a, +U c |
        | | a | | a | |
        """
        engine = self._engine
        rows = sorted_rows(chunk, self._keys, engine)
        rows = self._without_later_rows(rows) if self._oldest_wins else rows.lowest_level_above_0()
        if self._above:
            is_new = self._old_rows(rows, _levels(rows)) == NO_ROW
            new_keys = chunk.take(pa.array(rows.order[rows.starts[is_new]])).select(list(self._keys))
            found = self._found(new_keys)
            if self._oldest_wins:
                is_new[is_new] = found.file != ABSENT
                rows = _keys_of(rows, ~is_new)
            else:
                self._mark(found)
                rows = self._with_old_rows(rows, found)
        levels = rows.rows.column(LEVEL_COLUMN).to_numpy()
        merging = replace(rows, rows=rows.rows.drop_columns([LEVEL_COLUMN]), merge_lone=merge_lone)
        for piece in merging.pieces_of(PIECES.lookup_piece_bytes):
            merged = engine.merge(piece)
            if self.on_changes is not None:
                self._report_changes(piece, levels[piece.order], merged, self.on_changes)
            yield merged

    def _report_changes(self, rows: SortedRows, levels: np.ndarray, merged: pa.RecordBatch, on_changes: TakeRows) -> None:
        """Report the changes of keys in level 0; where the oldest row wins, new keys only, with their row."""
        after, old = merged_row_numbers(rows, merged, self._keys), self._old_rows(rows, levels)
        if self._oldest_wins:
            changes = merged.take(pa.array(after[(old == NO_ROW) & (after != NO_ROW)]))
        else:
            is_touched = np.minimum.reduceat(levels, rows.starts) == 0
            changes = self._changes.rows(rows.rows, old[is_touched], merged, after[is_touched])
        if changes.num_rows:
            on_changes(changes)

    def _old_rows(self, rows: SortedRows, levels: np.ndarray) -> np.ndarray:
        """The row of each key above level 0, `NO_ROW` if there is none. Retractions do not count where the oldest row wins."""
        is_old = levels > 0
        if self._oldest_wins:
            is_old &= (rows.rows.column(VALUE_KIND).to_numpy()[rows.order] & 1) == 0
        return np.asarray(np.maximum.reduceat(np.where(is_old, rows.order, NO_ROW), rows.starts))

    def _without_later_rows(self, rows: SortedRows) -> SortedRows:
        """Where the oldest row wins: the rows without those of level 0 whose key has a row above it, which readers have seen.

        It stays, although writers that did not know of each other may have given the row of level 0 a lower sequence number.
        """
        levels = _levels(rows)
        has_old = np.repeat(self._old_rows(rows, levels) != NO_ROW, rows.ends - rows.starts)
        return rows.chosen((levels > 0) | ~has_old)

    def _found(self, keys: pa.RecordBatch) -> FoundRows:
        table = pa.Table.from_batches([keys])
        return find_keys(self.context, self.task.bucket_id, self._above, table, self.vectors.before)

    def _mark(self, found: FoundRows) -> None:
        if not self.context.mode.deletion_vectors:
            return
        for number, positions in _by_file(found):
            self.vectors.mark(self._above[number].file_name, positions)

    def _with_old_rows(self, rows: SortedRows, found: FoundRows) -> SortedRows:
        """The rows, and before them the old rows that affect the result or that the changelog shows."""
        if (found.file == ABSENT).all():
            return rows
        is_new = _levels(rows) == 0
        oldest = self._order.number(int(rows.rows.column(SEQUENCE_NUMBER).to_numpy()[rows.order[is_new]].min()))
        old: list[pa.RecordBatch] = []
        for number, positions in _by_file(found):
            file = self._above[number]
            if self.on_changes is None and self._wins_over(oldest, file):
                continue
            for batch in rows_at(self.context, self.task.bucket_id, file, positions, self.columns).to_batches():
                unexpired = batch if self.expiry is None else self.expiry.kept(batch)
                leveled = with_level(self._order.in_merge(unexpired, file), file.level)
                old.append(pa.RecordBatch.from_arrays(leveled.columns, schema=rows.rows.schema))
        if not old:
            return rows
        both = pa.concat_batches([*old, rows.taken(rows.order)])
        return sorted_rows(both, self._keys, self._engine)

    def _wins_over(self, oldest_sequence: int, old: DataFileMeta) -> bool:
        """Whether new rows replace those of an old file whatever their values are, so that the old rows need not be read."""
        options = self.context.options
        newest_wins = options.merge_engine.newest_wins and not options.sequence_fields and not options.ignore_delete
        return newest_wins and oldest_sequence > old.max_sequence_number


def _chunks(batches: Iterable[pa.RecordBatch], looked_up: bool) -> Iterator[pa.RecordBatch]:
    """Consecutive batches combined into chunks: large ones if their keys are looked up. No key spans two batches, so none spans
    two chunks.
    """
    most_rows = PIECES.looked_up_rows if looked_up else PIECES.resolved_rows
    most_bytes = PIECES.looked_up_bytes if looked_up else PIECES.lookup_piece_bytes
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if pending and (rows + batch.num_rows > most_rows or size + batch.nbytes > most_bytes):
            combined, pending, rows, size = pa.concat_batches(pending), [], 0, 0
            yield combined
        if batch.num_rows:
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    if pending:
        yield pa.concat_batches(pending)


def _levels(rows: SortedRows) -> np.ndarray:
    """The level of each row, in the order of `rows.order`."""
    return np.asarray(rows.rows.column(LEVEL_COLUMN).to_numpy()[rows.order])


def _keys_of(rows: SortedRows, wanted: np.ndarray) -> SortedRows:
    """The rows of the wanted keys."""
    return rows.chosen(np.repeat(wanted, rows.ends - rows.starts))


def _by_file(found: FoundRows) -> Iterator[tuple[int, np.ndarray]]:
    """Each file that holds some of the keys (its index), and their positions in it, ascending."""
    for number in np.unique(found.file[found.file != ABSENT]).tolist():
        yield number, found.position[found.file == number]
