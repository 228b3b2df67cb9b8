"""Merge engines that also report the rows of changelog files: the input of a flush, or the changes that a compaction makes.

They wrap the table's merge engine, so that a changelog takes no second pass over the rows (FORMAT.md, section 9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import group_starts, order_words, stable_order
from paimon_cli.lsm.row_difference import differing
from paimon_cli.lsm.sorted_rows import LEVEL_COLUMN, EngineAround, MergeEngine, SortedRows
from paimon_cli.metadata.data_file_schema import VALUE_KIND, RowKind
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

NO_ROW = -1
"""The row number of a key that has no row."""

TakeRows = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True)
class ChangedKeys:
    """Reports changed keys: a new key as +I, a deleted one as -D, a changed one as -U and +U.

    Keys whose rows are equal in all `compared` columns are left out. Without such columns, every key whose row was merged counts
    as changed (option `changelog-producer.row-deduplicate`).
    """

    compared: tuple[str, ...] = ()

    @staticmethod
    def of(schema: TableSchema, options: TableOptions) -> ChangedKeys:
        if not options.changelog_row_deduplicate:
            return ChangedKeys()
        ignored = options.changelog_row_deduplicate_ignore_fields
        return ChangedKeys(tuple(name for name in schema.field_names if name not in ignored))

    def rows(self, before: pa.RecordBatch, before_at: np.ndarray, after: pa.RecordBatch, after_at: np.ndarray) -> pa.RecordBatch:
        """The changelog rows. For each key, row `before_at` of `before` became row `after_at` of `after`.

        `NO_ROW` or a retraction means that the key has no row. -U and -D have the sequence numbers of `before`, the others those
        of `after`.
        """
        both = pa.concat_batches([before, after])
        numbers = np.stack([before_at, np.where(after_at == NO_ROW, NO_ROW, after_at + before.num_rows)], axis=1)
        added = (both.column(VALUE_KIND).to_numpy() & 1) == 0
        is_there = np.append(added, False)[numbers]  # `NO_ROW` is the number of the last one
        pairs = np.all(is_there, axis=1)
        reported = is_there.copy()
        if self.compared and pairs.any():
            first, last = numbers[pairs].T
            reported[pairs] = differing(both, first, last, self.compared)[:, np.newaxis]
        kinds = np.where(
            pairs[:, np.newaxis], [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], [RowKind.DELETE, RowKind.INSERT]
        ).astype(np.int8)
        return _of_kind(both.take(pa.array(numbers[reported])), kinds[reported])


def _of_kind(rows: pa.RecordBatch, kinds: np.ndarray) -> pa.RecordBatch:
    column = rows.schema.get_field_index(VALUE_KIND)
    return rows.set_column(column, rows.schema.field(column), pa.array(kinds, pa.int8()))


def inserts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The changelog of rows whose keys are all new: a +I for each row that is not a retraction."""
    added = rows.filter(pa.array((rows.column(VALUE_KIND).to_numpy() & 1) == 0))
    return _of_kind(added, np.full(added.num_rows, RowKind.INSERT, np.int8))


class InputChanges(EngineAround):
    """Passes all rows to `take` before they are merged, in merge order (`changelog-producer=input`)."""

    def __init__(self, engine: MergeEngine, take: TakeRows) -> None:
        super().__init__(engine)
        self._take = take

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        self._take(rows.taken(rows.order))
        return self.engine.merge(rows)


class FullCompactionChanges(EngineAround):
    """Passes the changes that a compaction makes at the top level to `take` (Java FullChangelogMergeFunctionWrapper).

    Rows have a column `LEVEL_COLUMN`, which merged rows lack. A key whose only row is at the top level is unchanged.
    """

    def __init__(self, engine: MergeEngine, take: TakeRows, keys: Sequence[str], max_level: int, changes: ChangedKeys) -> None:
        super().__init__(engine)
        self._take = take
        self._keys = keys
        self._max_level = max_level
        self._changes = changes

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        is_top = rows.rows.column(LEVEL_COLUMN).to_numpy()[rows.order] == self._max_level
        plain = replace(rows, rows=rows.rows.drop_columns([LEVEL_COLUMN]))
        merged = self.engine.merge(plain)
        before = np.maximum.reduceat(np.where(is_top, rows.order, NO_ROW), rows.starts)
        after = merged_row_numbers(plain, merged, self._keys)
        changed = ~(rows.is_lone & (before != NO_ROW))
        changes = self._changes.rows(plain.rows, before[changed], merged, after[changed])
        if changes.num_rows:
            self._take(changes)
        return merged


def merged_row_numbers(rows: SortedRows, merged: pa.RecordBatch, keys: Sequence[str]) -> np.ndarray:
    """For each key of the rows, the number of its merged row; `NO_ROW` if the engine has dropped it."""
    count = len(rows.starts)
    if merged.num_rows == count:
        return np.arange(count)
    heads = rows.rows.select(list(keys)).take(pa.array(rows.order[rows.starts]))
    words = order_words([pa.concat_arrays([heads.column(name), merged.column(name)]) for name in keys])
    order = stable_order(words)  # each key comes right before its merged row
    starts = group_starts([word[order] for word in words])
    last = order[np.append(starts[1:], len(order)) - 1]
    return np.where(last >= count, last - count, NO_ROW)
