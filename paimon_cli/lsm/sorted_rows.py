"""Rows sorted by key and sequence number, and the operations on one column that a merge engine derives from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from paimon_cli.errors import BadInput

LEVEL = "_LEVEL"
"""Column of rows in a merge whose result depends on it: the level of the file that a row comes from."""


def with_level(rows: pa.RecordBatch, level: int) -> pa.RecordBatch:
    """The rows with a column LEVEL."""
    levels = pa.array(np.full(rows.num_rows, level, np.int32))
    return rows.append_column(pa.field(LEVEL, pa.int32(), nullable=False), levels)


@dataclass(frozen=True)
class SortedRows:
    """Rows in arrival order with the `order` that sorts them and, in that order, the first row of each key.

    `merge_lone`: keys with a single row go through the engine too, as lookup compactions want it; else such a row stays as it is.
    """

    rows: pa.RecordBatch
    order: np.ndarray
    starts: np.ndarray
    merge_lone: bool = False

    @property
    def ends(self) -> np.ndarray:
        """Behind the last row of each key, in `order`."""
        return np.append(self.starts[1:], len(self.order))

    @property
    def last_of_each_key(self) -> np.ndarray:
        """Row numbers (into `rows`) of each key's newest row."""
        return self.order[self.ends - 1]

    @property
    def is_lone(self) -> np.ndarray:
        """Which keys have one row."""
        return (self.ends - self.starts) == 1

    @property
    def untouched(self) -> np.ndarray:
        """Which keys pass unmerged, because they have one row."""
        if self.merge_lone:
            return np.zeros(len(self.starts), dtype=bool)
        return self.is_lone

    def pieces_of(self, size: int) -> Iterator[SortedRows]:
        """The rows in pieces of about `size` bytes, cut between keys."""
        return self.pieces(max(1, self.rows.num_rows * size // max(1, self.rows.nbytes)))

    def pieces(self, rows_per_piece: int) -> Iterator[SortedRows]:
        """The rows in pieces of about `rows_per_piece` rows, cut between keys."""
        wanted = np.arange(0, len(self.order), rows_per_piece)
        first_groups = np.unique(np.searchsorted(self.starts, wanted))
        cuts = [*first_groups[first_groups < len(self.starts)].tolist(), len(self.starts)]
        bounds = np.append(self.starts, len(self.order))
        for first, end in itertools.pairwise(cuts):
            low, high = bounds[first], bounds[end]
            yield SortedRows(self.rows, self.order[low:high], self.starts[first:end] - low, self.merge_lone)


class MergeEngine(Protocol):
    """Merges the rows of each key; retractions are kept, who may drop them is decided elsewhere."""

    @property
    def sequence_fields(self) -> Sequence[str]:
        """Columns that order the rows of a key before the sequence number does (option `sequence.field`)."""
        ...

    @property
    def descending(self) -> bool:
        """Whether the smallest value of the sequence fields is the newest (option `sequence.field.sort-order`)."""
        ...

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        """Columns that must be read besides `columns`, so that those can be merged."""
        ...

    def refusal(self, kind: int) -> BadInput | None:
        """Why the table takes no rows of kind -D or -U; None when it does. Asked of rows on their way in."""
        ...

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        """At most one row per key, in key order. BadInput when the engine refuses a row, such as a retraction."""
        ...


SKIP, ADD, REVERSED, RETRACT, SET = -1, 0, 1, 2, 3
"""The row is skipped | aggregated | aggregated as the older one | retracted | replaces everything before it."""


@dataclass(frozen=True)
class ColumnHistory:
    """Operations of all keys, key by key, oldest first.

    `rows`: row number of each operation; `starts`: first operation of each key, and the end of the last;
    `codes`: ADD, REVERSED or RETRACT, or SET as the first of a key;
    `whole`: this history with the operations that a SET hides, if there are any (first_value remembers that it began).
    """

    rows: np.ndarray
    starts: np.ndarray
    codes: np.ndarray
    whole: ColumnHistory | None = None

    @property
    def keys(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """Operations of each key."""
        return np.diff(self.starts)

    @cached_property
    def longest(self) -> int:
        return int(self.sizes.max(initial=0))

    @cached_property
    def has_retractions(self) -> bool:
        return bool((self.codes == RETRACT).any())

    @cached_property
    def has_reversed(self) -> bool:
        return bool((self.codes == REVERSED).any())

    @cached_property
    def key_of_operation(self) -> np.ndarray:
        return np.repeat(np.arange(self.keys), self.sizes)

    @cached_property
    def untouched(self) -> np.ndarray:
        """Keys whose value is the stored one, because their only operation is a SET."""
        lone = self.sizes == 1
        lone[lone] = self.codes[self.starts[:-1][lone]] == SET
        return lone

    def only(self, wanted: np.ndarray) -> ColumnHistory:
        """The history of the wanted operations."""
        if wanted.all():
            return self
        counted = np.concatenate(([0], np.cumsum(wanted)))
        return ColumnHistory(self.rows[wanted], counted[self.starts], self.codes[wanted], self.whole)


def column_history(order: np.ndarray, starts: np.ndarray, codes: np.ndarray) -> ColumnHistory:
    """The history from one code per row in `order`; `starts`: first row of each key."""
    history = ColumnHistory(order, np.append(starts, len(order)), codes)
    is_set = codes == SET
    is_set[starts] = False
    if not is_set.any():
        return history.only(codes != SKIP)
    positions = np.arange(len(order))
    last_set = np.maximum.accumulate(np.where(is_set, positions, -1))[history.starts[1:] - 1]
    hidden = positions < np.maximum(starts, last_set)[history.key_of_operation]
    return replace(history, whole=history.only(codes != SKIP)).only(~hidden & (codes != SKIP))
