"""The merge engine aggregation: each column has an aggregate function (FORMAT.md, section 11.3; Java AggregateMergeFunction)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.errors import BadInput, UsageError
from paimon_cli.lsm.aggregators.aggregator import ADD, RETRACT, SET, SKIP, Aggregator, column_history, no_retraction
from paimon_cli.lsm.aggregators.builder import ignores_retractions
from paimon_cli.lsm.aggregators.catalog import aggregator_of, function_of
from paimon_cli.lsm.aggregators.chosen_values import LAST_NON_NULL, LastValue
from paimon_cli.lsm.sorted_rows import SortedRows
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class Aggregation:
    """The merge engine aggregation.

    `functions`: column -> aggregator, including sequence fields; `ignore_retract`: columns that ignore retractions.
    """

    functions: Mapping[str, Aggregator]
    ignore_retract: frozenset[str]
    fixed_columns: frozenset[str]
    remove_record_on_delete: bool = False
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        if kind == RowKind.DELETE and self.remove_record_on_delete:
            return None
        without = [name for name, function in self.functions.items() if not function.retracts and name not in self.ignore_retract]
        return no_retraction(without[0]) if without else None

    def refusal_of_values(self, rows: pa.RecordBatch) -> BadInput | None:
        return None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        kinds = rows.rows.column(VALUE_KIND).to_numpy()[rows.order]
        codes = self._codes(rows, kinds)
        retractions = codes == RETRACT
        history = column_history(rows.order, rows.starts, codes)
        without_retractions = history
        if retractions.any():
            without_retractions = column_history(rows.order, rows.starts, np.where(retractions, SKIP, codes))
        newest = rows.last_of_each_key
        columns = []
        for name in rows.rows.schema.names:
            column = rows.rows.column(name)
            if name == VALUE_KIND:
                columns.append(pa.array(self._result_kinds(rows, kinds), pa.int8()))
            elif name == SEQUENCE_NUMBER or name in self.fixed_columns:
                columns.append(column.take(pa.array(newest)))
            else:
                function = self.functions[name]
                if retractions.any() and not function.retracts and name not in self.ignore_retract:
                    raise no_retraction(name)
                columns.append(function.merge(column, without_retractions if name in self.ignore_retract else history))
        return pa.RecordBatch.from_arrays(columns, schema=rows.rows.schema)

    def _codes(self, rows: SortedRows, kinds: np.ndarray) -> np.ndarray:
        codes = np.where((kinds & 1) == 1, RETRACT, ADD).astype(np.int8)
        if self.remove_record_on_delete:
            codes[kinds == RowKind.DELETE] = SET
        codes[rows.starts[rows.passes_unmerged]] = SET
        return codes

    def _result_kinds(self, rows: SortedRows, kinds: np.ndarray) -> np.ndarray:
        last = kinds[rows.ends - 1]
        removed = self.remove_record_on_delete & (last == RowKind.DELETE)
        return np.where(rows.passes_unmerged, last, np.where(removed, RowKind.DELETE, RowKind.INSERT)).astype(np.int8)


def engine(schema: TableSchema, options: TableOptions) -> Aggregation:
    functions: dict[str, Aggregator] = {name: LastValue() for name in options.sequence_fields}
    for field in schema.fields:
        if field.name not in functions and field.name not in schema.fixed_columns:
            functions[field.name] = aggregator_of(function_of(field.name, options) or LAST_NON_NULL, field, options)
    ignore_retract = frozenset(
        field.name for field in schema.fields if field.name in functions and ignores_retractions(field, options)
    )
    if ignore_retract and options.aggregation_remove_record_on_delete:
        raise UsageError(
            f"fields.{min(ignore_retract)}.ignore-retract and aggregation.remove-record-on-delete contradict each other",
            "a -D row either is ignored or removes the row",
        )
    return Aggregation(
        functions,
        ignore_retract - set(options.sequence_fields),
        schema.fixed_columns,
        options.aggregation_remove_record_on_delete,
        options.sequence_fields,
        options.sequence_descending,
    )
