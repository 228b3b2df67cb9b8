"""Rows sorted by key and sequence number, and the interface of merge engines, which make one row of the rows of a key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import UNORDERED_ROOTS
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput, NotSupported
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.metadata.table_schema import TableSchema

LEVEL_COLUMN = "_LEVEL"
"""The column with the level of a row's file, for merges whose result depends on it."""


def with_level(rows: pa.RecordBatch, level: int) -> pa.RecordBatch:
    """The rows with an additional column `LEVEL_COLUMN`."""
    levels = pa.array(np.full(rows.num_rows, level, np.int32))
    return rows.append_column(pa.field(LEVEL_COLUMN, pa.int32(), nullable=False), levels)


@dataclass(frozen=True)
class SortedRows:
    """Rows, the `order` (row numbers) that sorts them by key and age, and `starts`: the index in `order` of each key's first row.

    `merge_lone`: keys with a single row are merged, too, as lookup compactions require; otherwise such a row is unchanged.
    """

    rows: pa.RecordBatch
    order: np.ndarray
    starts: np.ndarray
    merge_lone: bool = False

    @property
    def ends(self) -> np.ndarray:
        """The end of each key's rows, in `order`."""
        return np.append(self.starts[1:], len(self.order))

    @property
    def last_of_each_key(self) -> np.ndarray:
        """Row numbers (into `rows`) of each key's newest row."""
        return self.order[self.ends - 1]

    def taken(self, numbers: np.ndarray) -> pa.RecordBatch:
        """The rows with these numbers, all of which must be valid: Arrow's bounds check would take a fifth of the time."""
        taken: pa.RecordBatch = pc.take(self.rows, pa.array(numbers), boundscheck=False)
        return taken

    @property
    def is_lone(self) -> np.ndarray:
        """Whether each key has a single row."""
        return (self.ends - self.starts) == 1

    @property
    def passes_unmerged(self) -> np.ndarray:
        """Whether each key has a single row that is not merged."""
        if self.merge_lone:
            return np.zeros(len(self.starts), dtype=bool)
        return self.is_lone

    @property
    def retractions(self) -> np.ndarray:
        """Whether each row (in `order`) is a retraction of a key that is merged."""
        retracted = (self.rows.column(VALUE_KIND).to_numpy()[self.order] & 1) == 1
        retracted[self.starts[self.passes_unmerged]] = False
        return retracted

    def chosen(self, kept: np.ndarray) -> SortedRows:
        """Only the `kept` rows (bool, in `order`), without keys that have none."""
        sizes = np.add.reduceat(kept, self.starts, dtype=np.int64)
        sizes = sizes[sizes > 0]
        return replace(self, order=self.order[kept], starts=np.cumsum(sizes) - sizes)

    def lowest_level_above_0(self) -> SortedRows:
        """Of each key, the rows of level 0 and of the lowest level above 0 that has any. Rows have a column `LEVEL_COLUMN`."""
        levels = self.rows.column(LEVEL_COLUMN).to_numpy()[self.order]
        if not len(levels) or np.add.reduceat(levels > 0, self.starts, dtype=np.int64).max() <= 1:
            return self
        old = np.where(levels > 0, levels, np.iinfo(levels.dtype).max)
        lowest = np.repeat(np.minimum.reduceat(old, self.starts), self.ends - self.starts)
        return self.chosen((levels == 0) | (levels == lowest))

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
    """Merges the rows of each key. Retractions are kept; the caller decides whether to drop them.

    Results are merged again, with older and with newer rows: for added rows a, b, c in this order, merging a with the result of
    b and c must give the same as merging the result of a and b with c. `tests/lsm/test_engine_contract.py` tests each engine with
    its default options. As in Java, sequence groups break the rule where rows that arrived late are aggregated in order.
    """

    @property
    def sequence_fields(self) -> Sequence[str]:
        """Columns by which the rows of a key are ordered before the sequence number (option `sequence.field`)."""
        ...

    @property
    def descending(self) -> bool:
        """Whether the smallest value of the sequence fields is the newest (option `sequence.field.sort-order`)."""
        ...

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        """Columns that must be read in addition to `columns` to merge them."""
        ...

    def refusal(self, kind: int) -> BadInput | None:
        """Why the table does not accept rows of this kind (-D or -U), None if it does. Checked before rows are written."""
        ...

    def refusal_of_values(self, rows: pa.RecordBatch) -> BadInput | None:
        """Why a retraction among the rows cannot be merged because of its values, although its kind is accepted; else None.

        Checked before rows are written: a row alone of its key is stored unmerged, and then nobody could read the key again.
        """
        ...

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        """At most one row per key, in key order. Raises `BadInput` for a row that the engine does not accept."""
        ...


def check_order(schema: TableSchema, option: str, names: Sequence[str]) -> None:
    """Raise `NotSupported` for sequence fields of nested types, which only Java can compare. `option`: where they are named."""
    for field in map(schema.field, names):
        if field.type.root in UNORDERED_ROOTS:
            what = f"{option} with {field.name} {type_to_sql(field.type)}"
            raise NotSupported(what, "values of nested types cannot be compared")


class EngineAround:
    """The base of merge engines that wrap another one."""

    def __init__(self, engine: MergeEngine) -> None:
        self.engine = engine

    @property
    def sequence_fields(self) -> Sequence[str]:
        return self.engine.sequence_fields

    @property
    def descending(self) -> bool:
        return self.engine.descending

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return self.engine.columns_for(columns)

    def refusal(self, kind: int) -> BadInput | None:
        return self.engine.refusal(kind)

    def refusal_of_values(self, rows: pa.RecordBatch) -> BadInput | None:
        return self.engine.refusal_of_values(rows)


class LowestLevel(EngineAround):
    """A `MergeEngine` that merges, for each key, the rows of level 0 with those of the lowest level above 0 that has any.

    Rows have a column `LEVEL_COLUMN`, which merged rows lack.
    """

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        chosen = rows.lowest_level_above_0()
        return self.engine.merge(replace(chosen, rows=chosen.rows.drop_columns([LEVEL_COLUMN])))


@dataclass(frozen=True)
class WholeRowEngine:
    """The base of merge engines that choose among whole rows: they need no additional columns, and accept rows of any kind."""

    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        return None

    def refusal_of_values(self, rows: pa.RecordBatch) -> BadInput | None:
        return None


class KeepAllVersions(WholeRowEngine):
    """A `MergeEngine` that keeps all rows."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        return rows.taken(rows.order)
