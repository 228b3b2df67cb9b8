"""The merge engine deduplicate: the newest row of a key wins (Java DeduplicateMergeFunction)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.lsm.sorted_rows import SortedRows, WholeRowEngine
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class Deduplicate(WholeRowEngine):
    """The newest row wins, whatever its kind, unless `ignore_delete` skips retractions."""

    ignore_delete: bool = False

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        if self.ignore_delete and (ignored := rows.retractions).any():
            positions = np.where(ignored, -1, np.arange(len(rows.order)))
            newest = np.maximum.reduceat(positions, rows.starts)
            return rows.taken(rows.order[newest[newest >= 0]])
        return rows.taken(rows.last_of_each_key)


def engine(schema: TableSchema, options: TableOptions) -> Deduplicate:
    return Deduplicate(options.sequence_fields, options.sequence_descending, options.ignore_delete)
