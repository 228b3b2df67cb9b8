"""What becomes of incoming rows of kind -D and -U: dropped, refused, or written (Java RowKindFilter, format section 11.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.row_kind import DELETE, UPDATE_BEFORE
from paimon_cli.errors import BadInput
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class RowKindFilter:
    """`dropped`: kinds that the table ignores; `refused`: why it takes none of a kind that it does not ignore."""

    dropped: frozenset[int] = frozenset()
    refused: tuple[tuple[int, BadInput], ...] = ()

    @staticmethod
    def of(schema: TableSchema, options: TableOptions) -> RowKindFilter:
        """`ignore-delete` drops both kinds, `ignore-update-before` drops -U; the rest is for the merge engine to say."""
        dropped = {UPDATE_BEFORE, DELETE} if options.ignore_delete else {UPDATE_BEFORE} if options.ignore_update_before else set()
        engine = merge_engine(schema, options)
        asked = [(kind, engine.refusal(kind)) for kind in (UPDATE_BEFORE, DELETE) if kind not in dropped]
        return RowKindFilter(frozenset(dropped), tuple((kind, refusal) for kind, refusal in asked if refusal is not None))

    def kept(self, rows: pa.RecordBatch, source: str) -> pa.RecordBatch:
        """The rows to write. BadInput that names `source` for a kind that the table does not take."""
        kinds = rows.column(VALUE_KIND).to_numpy()
        if not (kinds & 1).any():
            return rows
        for kind, refusal in self.refused:
            if (kinds == kind).any():
                raise BadInput(f"{source}: {refusal.what}", refusal.why, refusal.hint, source=source)
        unwanted = np.isin(kinds, list(self.dropped))
        return rows.filter(pa.array(~unwanted)) if unwanted.any() else rows
