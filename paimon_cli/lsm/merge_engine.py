"""What becomes of several rows of one key: the merge engine's part of a merge, on sorted Arrow rows.

`SortedRows` carries the rows of a piece in (key, sequence) order with their groups; an engine gives one row per group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from paimon_cli.errors import NotSupported
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class SortedRows:
    """Rows in arrival order with the `order` that sorts them and, in that order, the first row of each key."""

    rows: pa.RecordBatch
    order: np.ndarray
    starts: np.ndarray

    @property
    def last_of_each_key(self) -> np.ndarray:
        """Row numbers (into `rows`) of each key's newest row."""
        ends = np.append(self.starts[1:], len(self.order)) - 1
        return self.order[ends]

    def pieces(self, rows_per_piece: int) -> Iterator[SortedRows]:
        """The same rows in pieces of about `rows_per_piece` rows, cut between keys."""
        wanted = np.arange(0, len(self.order), rows_per_piece)
        first_groups = np.unique(np.searchsorted(self.starts, wanted))
        cuts = [*first_groups[first_groups < len(self.starts)].tolist(), len(self.starts)]
        bounds = np.append(self.starts, len(self.order))
        for first, end in itertools.pairwise(cuts):
            low, high = bounds[first], bounds[end]
            yield SortedRows(self.rows, self.order[low:high], self.starts[first:end] - low)


class MergeEngine(Protocol):
    """Merges the rows of each key; retractions are kept, who may drop them is decided elsewhere."""

    @property
    def sequence_fields(self) -> Sequence[str]:
        """Columns that order the rows of a key before the sequence number does (option `sequence.field`)."""
        ...

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        """One row per key, in key order."""
        ...


@dataclass(frozen=True)
class Deduplicate:
    """The newest row wins, whatever its kind (Java DeduplicateMergeFunction)."""

    sequence_fields: tuple[str, ...] = ()

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        return rows.rows.take(pa.array(rows.last_of_each_key))


def merge_engine(options: TableOptions) -> MergeEngine:
    """The table's engine; `NotSupported` for those that this version does not have."""
    if options.merge_engine != "deduplicate":
        raise NotSupported(f"merge-engine={options.merge_engine}", "this version merges with deduplicate only")
    if options.sequence_sort_order != "ascending":
        raise NotSupported("sequence.field.sort-order=descending", "this version orders by ascending sequence fields only")
    if "record-level.expire-time" in options.raw:
        raise NotSupported("record-level.expire-time", "this version does not expire single records")
    return Deduplicate(options.sequence_fields)
