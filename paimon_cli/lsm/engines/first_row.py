"""The merge engine first-row: the oldest row of a key wins (Java FirstRowMergeFunction)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.errors import BadInput
from paimon_cli.lsm.sorted_rows import SortedRows, WholeRowEngine
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class FirstRow(WholeRowEngine):
    """The oldest row wins. A retraction is refused, or skipped with `ignore_delete`."""

    ignore_delete: bool = False

    def refusal(self, kind: int) -> BadInput | None:
        if self.ignore_delete:
            return None
        return BadInput(
            "merge-engine=first-row does not accept rows of kind -D or -U",
            "the first row of a key is kept for good",
            "drop them from the input, or set the option ignore-delete=true",
        )

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        ignored = rows.retractions
        if not ignored.any():
            return rows.taken(rows.order[rows.starts])
        refused = self.refusal(RowKind.DELETE)
        if refused is not None:
            raise refused
        positions = np.where(ignored, len(rows.order), np.arange(len(rows.order)))
        oldest = np.minimum.reduceat(positions, rows.starts)
        return rows.taken(rows.order[oldest[oldest < len(rows.order)]])


def engine(schema: TableSchema, options: TableOptions) -> FirstRow:
    return FirstRow(ignore_delete=options.ignore_delete)
