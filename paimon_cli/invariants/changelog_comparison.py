"""How the rows of snapshots and the changes between them are compared, key by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.lsm.row_difference import differing
from paimon_cli.lsm.sorted_rows import SortedRows, WholeRowEngine
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, RowKind

NUMBER_BEFORE, NUMBER_AFTER = 0, 1 << 62
"""Sequence numbers assigned to the rows of the first and the last snapshot; changes are numbered between them."""


WRONG = "_WRONG"
"""A column with the reason (a key of `MEANINGS`) why a row is wrong."""


NOTHING = -1


REPEATED, ALONE, BASELESS, OTHER_BASE, UNSHOWN, OTHER_ROW, LEFT_OUT, STRANGE = range(1, 9)


MEANINGS = {
    REPEATED: "a +I of a key that has a row",
    ALONE: "half of a pair of -U and +U",
    BASELESS: "a -U or -D of a key without a row",
    OTHER_BASE: "a -U or -D with values that the row did not have",
    UNSHOWN: "no change for a key that was added",
    OTHER_ROW: "changes that end with another row than the table has",
    LEFT_OUT: "no -D for a key that was removed",
    STRANGE: "rows that the commit did not write",
}


class LastRow(WholeRowEngine):
    """Keeps the last row of each key that is not a retraction, or its last row if all are retractions."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        added = (rows.rows.column(VALUE_KIND).to_numpy()[rows.order] & 1) == 0
        positions = np.arange(len(rows.order)) + np.where(added, len(rows.order), 0)
        last = np.maximum.reduceat(positions, rows.starts) if len(positions) else positions
        return rows.taken(rows.order[last % max(1, len(rows.order))])


@dataclass(frozen=True)
class ChangelogComparison(WholeRowEngine):
    """Compares the rows that a commit wrote with those of its changelog, at most one of each per key.

    `all_values`: compare `columns` as well, not only keys.
    """

    columns: Sequence[str] = ()
    all_values: bool = True

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        batch, first, last = rows.rows, rows.order[rows.starts], rows.last_of_each_key
        is_shown = batch.column(SEQUENCE_NUMBER).to_numpy() == NUMBER_AFTER
        added = (batch.column(VALUE_KIND).to_numpy() & 1) == 0
        lone = first == last
        wrong = np.where(lone & ~is_shown[first], UNSHOWN, 0)
        wrong[lone & is_shown[first] & (added[first] | self.all_values)] = STRANGE
        if self.all_values:
            other = differing(batch, first, last, self.columns) | (added[first] != added[last])
            wrong[~lone & other] = OTHER_ROW
        return _marked(batch, first, wrong)


def _marked(batch: pa.RecordBatch, rows: np.ndarray, wrong: np.ndarray) -> pa.RecordBatch:
    found = np.flatnonzero(wrong)
    marked = batch.take(pa.array(rows[found]))
    return marked.append_column(pa.field(WRONG, pa.int8()), pa.array(wrong[found], pa.int8()))


@dataclass(frozen=True)
class Replayed(WholeRowEngine):
    """Follows each key from its row before through its changes to its row after; returns mismatching rows with a column WRONG.

    `compared`: the columns that decide whether rows are equal. `adds_only`: a single +U adds a row, as in first-row tables, whose
    changelog contains each new row with the kind that it was written with.
    """

    compared: Sequence[str] = ()
    adds_only: bool = False

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        batch, order = rows.rows, rows.order
        numbers = batch.column(SEQUENCE_NUMBER).to_numpy()[order]
        kinds = batch.column(VALUE_KIND).to_numpy()[order].astype(np.int64)
        is_after = numbers == NUMBER_AFTER
        if self.adds_only:
            kinds[kinds == RowKind.UPDATE_AFTER] = RowKind.INSERT
        kinds[(numbers == NUMBER_BEFORE) | is_after] = RowKind.INSERT
        previous = np.append(np.int64(NOTHING), kinds[:-1])
        previous[rows.starts] = NOTHING
        exists = (previous == RowKind.INSERT) | (previous == RowKind.UPDATE_AFTER)
        is_back = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
        is_new = (kinds == RowKind.INSERT) & ~is_after & (numbers != NUMBER_BEFORE)
        wrong = np.zeros(len(order), dtype=np.int64)
        wrong[is_new & exists] = REPEATED
        wrong[((previous == RowKind.UPDATE_BEFORE) != (kinds == RowKind.UPDATE_AFTER))] = ALONE
        wrong[is_back & ~exists & (previous != RowKind.UPDATE_BEFORE)] = BASELESS
        wrong[is_after & (previous == NOTHING)] = UNSHOWN
        wrong[is_after & (previous == RowKind.DELETE)] = OTHER_ROW
        followed = np.flatnonzero((is_back | is_after) & exists)
        unlike = followed[differing(batch, order[followed - 1], order[followed], self.compared)]
        wrong[unlike] = np.where(is_after[unlike], OTHER_ROW, OTHER_BASE)
        ends = rows.ends - 1
        left = ~is_after[ends] & (wrong[ends] == 0)
        wrong[ends[left & ((kinds[ends] == RowKind.INSERT) | (kinds[ends] == RowKind.UPDATE_AFTER))]] = LEFT_OUT
        wrong[ends[left & (kinds[ends] == RowKind.UPDATE_BEFORE)]] = ALONE
        return _marked(batch, order, wrong)
