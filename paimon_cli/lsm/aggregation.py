"""merge-engine=aggregation: each column has a function (Java AggregateMergeFunction, FORMAT.md, section 11.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.row_kind import DELETE, INSERT
from paimon_cli.errors import BadInput
from paimon_cli.lsm.aggregators.aggregator import Aggregator
from paimon_cli.lsm.sorted_rows import ADD, RETRACT, SET, SKIP, SortedRows, column_history
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND


@dataclass(frozen=True)
class Aggregation:
    """`functions`: by column, sequence fields included; `deaf`: columns that ignore retractions."""

    functions: Mapping[str, Aggregator]
    deaf: frozenset[str]
    primary_keys: frozenset[str]
    remove_record_on_delete: bool = False
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        if kind == DELETE and self.remove_record_on_delete:
            return None
        without = [name for name, function in self.functions.items() if not function.retracts and name not in self.deaf]
        return no_retraction(without[0]) if without else None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        kinds = rows.rows.column(VALUE_KIND).to_numpy()[rows.order]
        codes = self._codes(rows, kinds)
        retractions = codes == RETRACT
        history = column_history(rows.order, rows.starts, codes)
        quiet = history
        if retractions.any():
            quiet = column_history(rows.order, rows.starts, np.where(retractions, SKIP, codes))
        newest = rows.last_of_each_key
        columns = []
        for name in rows.rows.schema.names:
            column = rows.rows.column(name)
            if name == VALUE_KIND:
                columns.append(pa.array(self._result_kinds(rows, kinds), pa.int8()))
            elif name == SEQUENCE_NUMBER or name in self.primary_keys:
                columns.append(column.take(pa.array(newest)))
            else:
                function = self.functions[name]
                if retractions.any() and not function.retracts and name not in self.deaf:
                    raise no_retraction(name)
                columns.append(function.merge(column, quiet if name in self.deaf else history))
        return pa.RecordBatch.from_arrays(columns, schema=rows.rows.schema)

    def _codes(self, rows: SortedRows, kinds: np.ndarray) -> np.ndarray:
        codes = np.where((kinds & 1) == 1, RETRACT, ADD).astype(np.int8)
        if self.remove_record_on_delete:
            codes[kinds == DELETE] = SET
        codes[rows.starts[rows.untouched]] = SET
        return codes

    def _result_kinds(self, rows: SortedRows, kinds: np.ndarray) -> np.ndarray:
        last = kinds[rows.ends - 1]
        removed = self.remove_record_on_delete & (last == DELETE)
        return np.where(rows.untouched, last, np.where(removed, DELETE, INSERT)).astype(np.int8)


def no_retraction(column: str) -> BadInput:
    """A row of kind -D or -U reached a column whose function has no inverse."""
    return BadInput(
        f"column {column} cannot retract a row of kind -D or -U",
        "its aggregate function has no inverse",
        f"set fields.{column}.ignore-retract=true, or leave such rows out of the input",
        column=column,
    )
