"""The merge that is none: every row of a key stays, in order. For passes of a merge before its last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_cli.errors import BadInput
from paimon_cli.lsm.sorted_rows import SortedRows


@dataclass(frozen=True)
class Interleave:
    """A `MergeEngine` that keeps all rows."""

    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        return None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        return rows.rows.take(pa.array(rows.order))
