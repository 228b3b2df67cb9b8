"""Computes the changes between two versions of rows, by key or by whole rows (Java IncrementalDiffSplitRead)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import comparable, group_starts, stable_order
from paimon_cli.lsm.aggregators.aggregator import python_values
from paimon_cli.lsm.aggregators.collected_values import identity
from paimon_cli.lsm.sorted_rows import SortedRows, WholeRowEngine
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, RowKind

_NULL = -1


def equality_codes(column: pa.Array) -> list[np.ndarray]:
    """One or more int64 arrays with a code for each row: two rows are equal if their codes are equal in every array.

    Codes of different calls cannot be compared. Equality is that of Java: NaN equals NaN, -0.0 differs from 0.0, null equals
    null, and the order of map entries is ignored.
    """
    if pa.types.is_struct(column.type):
        present = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return [present, *(codes for inner in column.flatten() for codes in equality_codes(inner))]
    if pa.types.is_list(column.type) or pa.types.is_map(column.type):
        return [_codes_of_collections(column)]
    codes = comparable(column).dictionary_encode().indices.fill_null(_NULL).to_numpy(zero_copy_only=False)
    return [np.where(column.is_valid().to_numpy(zero_copy_only=False), codes, _NULL).astype(np.int64)]


def _codes_of_collections(column: pa.Array) -> np.ndarray:
    """The codes of lists and maps. Arrow cannot compare them, so they are compared as Python objects."""
    known: dict[Hashable, int] = {None: _NULL}
    values = python_values(column)
    return np.array([known.setdefault(identity(value, column.type), len(known)) for value in values], dtype=np.int64)


BEFORE, AFTER = 0, 1
"""The version that a row belongs to, used as its sequence number in the merge."""


@dataclass(frozen=True)
class Difference(WholeRowEngine):
    """A `MergeEngine` that compares two versions of rows, with each key at most once in each.

    `_SEQUENCE_NUMBER` is BEFORE or AFTER.
    A key that is only in the older version becomes a -D row; equal rows are dropped; otherwise the result is the newer row. With
    `both_sides`, a new key becomes +I, and a changed one -U and +U.
    """

    both_sides: bool = False

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        batch, first, last = rows.rows, rows.order[rows.starts], rows.last_of_each_key
        is_new = batch.column(SEQUENCE_NUMBER).to_numpy() == AFTER
        kinds = batch.column(VALUE_KIND).to_numpy().copy()
        lone = first == last
        changed = ~lone & differing(batch, first, last, batch.schema.names)
        kept = np.zeros(batch.num_rows, dtype=bool)
        kept[first[lone]] = kept[last[changed]] = True
        kinds[first[lone & ~is_new[first]]] = RowKind.DELETE
        if self.both_sides:
            kinds[first[lone & is_new[first]]] = RowKind.INSERT
            kept[first[changed]] = True
            kinds[first[changed]], kinds[last[changed]] = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
        at = batch.schema.get_field_index(VALUE_KIND)
        changes = batch.set_column(at, batch.schema.field(at), pa.array(kinds, pa.int8()))
        return changes.take(pa.array(rows.order[kept[rows.order]]))


def differing(batch: pa.RecordBatch, first: np.ndarray, last: np.ndarray, columns: Sequence[str]) -> np.ndarray:
    """Whether the rows of each pair (`first`, `last`) differ in one of the columns, other than sequence number and row kind."""
    found = np.zeros(len(first), dtype=bool)
    for name in columns:
        if name not in (SEQUENCE_NUMBER, VALUE_KIND):
            for codes in equality_codes(batch.column(name)):
                found |= codes[first] != codes[last]
    return found


def unmatched(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of each side without an equal row on the other side. Repeated rows are matched one to one."""
    both = pa.concat_tables([old, new]).combine_chunks()
    words = [codes for column in both.columns for codes in equality_codes(_whole(column))]
    if not both.num_rows or not words:
        return old, new
    order = stable_order(words)
    starts = group_starts([word[order] for word in words])
    sizes = np.diff(np.append(starts, len(order)))
    is_new = order >= old.num_rows
    olds = sizes - np.add.reduceat(is_new.astype(np.int64), starts)
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    matched = np.repeat(np.minimum(olds, sizes - olds), sizes)
    spare = np.where(is_new, rank - np.repeat(olds, sizes), rank) >= matched
    kept = np.zeros(len(order), dtype=bool)
    kept[order] = spare
    return old.filter(pa.array(kept[: old.num_rows])), new.filter(pa.array(kept[old.num_rows :]))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
