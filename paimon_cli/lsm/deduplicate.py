"""Merge engines that choose rows: the newest of a key (deduplicate), the oldest (first-row), or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.row_kind import DELETE
from paimon_cli.errors import BadInput
from paimon_cli.lsm.sorted_rows import SortedRows
from paimon_cli.metadata.data_file_schema import VALUE_KIND


@dataclass(frozen=True)
class Deduplicate:
    """The newest row wins, whatever its kind; retractions may be ignored (Java DeduplicateMergeFunction)."""

    sequence_fields: tuple[str, ...] = ()
    descending: bool = False
    ignore_delete: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        return None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        if self.ignore_delete and (ignored := _retractions(rows)).any():
            positions = np.where(ignored, -1, np.arange(len(rows.order)))
            newest = np.maximum.reduceat(positions, rows.starts)
            return rows.rows.take(pa.array(rows.order[newest[newest >= 0]]))
        return rows.rows.take(pa.array(rows.last_of_each_key))


@dataclass(frozen=True)
class FirstRow:
    """The oldest row wins; a retraction is refused, or ignored if so configured (Java FirstRowMergeFunction)."""

    ignore_delete: bool = False
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        if self.ignore_delete:
            return None
        return BadInput(
            "merge-engine=first-row takes no rows of kind -D or -U",
            "the first row of a key stays, and cannot be deleted",
            "drop them from the input, or set the option ignore-delete=true",
        )

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        ignored = _retractions(rows)
        if not ignored.any():
            return rows.rows.take(pa.array(rows.order[rows.starts]))
        refused = self.refusal(DELETE)
        if refused is not None:
            raise refused
        positions = np.where(ignored, len(rows.order), np.arange(len(rows.order)))
        oldest = np.minimum.reduceat(positions, rows.starts)
        return rows.rows.take(pa.array(rows.order[oldest[oldest < len(rows.order)]]))


def _retractions(rows: SortedRows) -> np.ndarray:
    """Which rows (in `order`) take something back and do not pass unmerged."""
    retracted = (rows.rows.column(VALUE_KIND).to_numpy()[rows.order] & 1) == 1
    untouched = rows.untouched
    retracted[rows.starts[untouched]] = False
    return retracted


@dataclass(frozen=True)
class KeepAllVersions:
    """A `MergeEngine` that keeps all rows."""

    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        return None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        return rows.rows.take(pa.array(rows.order))
