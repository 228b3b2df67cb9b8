"""Whether an update or delete comes about in a table whose merge engine mixes the new row with the old one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.row_kind import DELETE
from paimon_cli.errors import BadInput
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.metadata.data_file_schema import VALUE_KIND

REMOVING = {
    "partial-update": "partial-update.remove-record-on-delete=true (or partial-update.remove-record-on-sequence-group)",
    "aggregation": "aggregation.remove-record-on-delete=true",
}


def check_effect(context: TableContext, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """Merge the rows as they are with those to be written: BadInput for the first key that would not show what was asked for."""
    engine = merge_engine(context.schema, context.options)
    merged = engine.merge(sorted_rows(pa.concat_batches([before, after]), context.schema.trimmed_primary_keys, engine))
    deletes = int(after.column(VALUE_KIND)[0].as_py()) == DELETE if after.num_rows else False
    if deletes:
        kinds = merged.column(VALUE_KIND).to_numpy()
        wrong = np.flatnonzero(kinds & 1 == 0)
        if len(wrong) or len(kinds) < after.num_rows:
            name = context.options.merge_engine
            hint = f"set {REMOVING[name]}" if name in REMOVING and not context.options.ignore_delete else ""
            raise BadInput(
                f"merge-engine={name} does not delete rows of this table", "the row would remain, without its values", hint
            )
        return
    for name in context.schema.field_names:
        shown, wanted = merged.column(name), after.column(name)
        if not shown.equals(wanted) and (different := _first_difference(shown, wanted)) is not None:
            key = ", ".join(f"{k} = {after.column(k)[different]}" for k in context.schema.primary_keys)
            raise BadInput(
                f"column {name} of the row with {key} would not become {wanted[different]}",
                f"merge-engine={context.options.merge_engine} would show {shown[different]}",
                "nothing was committed; write rows that the merge engine turns into the values you want",
                column=name,
                row=key,
            )


def _first_difference(shown: pa.Array, wanted: pa.Array) -> int | None:
    """By text, so that NaN equals itself."""
    pairs = enumerate(zip(shown.to_pylist(), wanted.to_pylist(), strict=True))
    return next((row for row, (left, right) in pairs if repr(left) != repr(right)), None)
