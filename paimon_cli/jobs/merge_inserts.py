"""The rows that a merge inserts: those of the source that have met no row of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_field, arrow_type
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.key_index import NO_ROW
from paimon_cli.jobs.merge_edit import MergeSource, PlannedMerge, chosen_clauses, source_schema
from paimon_cli.jobs.row_change import ChangedBucket, new_columns
from paimon_cli.jobs.source_rows import SourceRows
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split


def rows_to_insert(
    context: TableContext, snapshot: Snapshot | None, merge: PlannedMerge, changed: Sequence[ChangedBucket]
) -> pa.Table:
    """The rows of the source that have met no row of the table, by the first insert clause whose condition holds."""
    is_new = np.ones(merge.source.stored.num_rows, bool)
    for bucket in changed:
        if bucket.sources is not None:
            is_new[bucket.sources] = False
    is_new = _with_repeated(merge.source, is_new)
    positions = np.flatnonzero(is_new) if merge.inserts else np.empty(0, np.int64)
    origins = list[np.ndarray]()

    def inserted() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(positions), PIECES.batch_rows):
            for batch, at in _inserts_of(context.schema, merge, positions[start : start + PIECES.batch_rows]):
                origins.append(at)
                yield batch

    schema = pa.schema([arrow_field(_nullable(context.schema.field(name))) for name in _inserted_columns(merge)])
    found = SourceRows.collected(schema, inserted(), merge.place)
    if found.num_rows and context.schema.primary_keys:
        _check_keys(context, snapshot, merge, found, np.concatenate(origins))
    return found.table


def _inserts_of(schema: TableSchema, merge: PlannedMerge, positions: np.ndarray) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows to insert for these rows of the source, with the position of each, by clause."""
    batch = _batch_of_source(schema, merge.source, positions)
    chosen, names = chosen_clauses(merge.inserts, batch), _inserted_columns(merge)
    for number, clause in enumerate(merge.inserts):
        rows = np.flatnonzero(chosen == number)
        if clause.new_values is None or not len(rows):
            continue

        def name_row(row: int, at: np.ndarray = positions[rows]) -> str:
            return f"row {at[row] + 1} of the source"

        columns = new_columns(clause.new_values.assignments, batch.take(pa.array(rows)), name_row)
        arrays = [
            columns[name] if name in columns else pa.nulls(len(rows), arrow_type(schema.field(name).type)) for name in names
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=names), positions[rows]


def _inserted_columns(merge: PlannedMerge) -> list[str]:
    """The columns that some clause sets."""
    clauses = (clause.new_values for clause in merge.inserts if clause.new_values is not None)
    return list(dict.fromkeys(item.column.name for values in clauses for item in values.assignments))


def _nullable(column: DataField) -> DataField:
    return replace(column, type=column.type.with_nullable(True))


def _with_repeated(source: MergeSource, is_new: np.ndarray) -> np.ndarray:
    """`is_new` without rows whose values another row has that has met a row: the join finds the first of such rows."""
    if source.index.is_unique or is_new.all():
        return is_new
    result = is_new.copy()
    for start, batch in source.stored.pieces(source.on):
        first = source.index.rows_of(batch.columns)
        met = (first != NO_ROW) & ~is_new[first]
        result[start : start + len(met)] &= ~met
    return result


def _batch_of_source(schema: TableSchema, source: MergeSource, positions: np.ndarray) -> pa.RecordBatch:
    """These rows of the source with the columns of `source_schema`."""
    of_source = source_schema(schema, source)
    rows = source.stored.take(positions)
    columns = {name: rows.column(name) for name in rows.schema.names}
    columns |= {"source": source.rows(positions)}
    target = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in of_source.fields])
    arrays = [columns.get(field.name, pa.nulls(len(positions), field.type)) for field in target]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _check_keys(
    context: TableContext, snapshot: Snapshot | None, merge: PlannedMerge, rows: SourceRows, origins: np.ndarray
) -> None:
    """Raise `BadInput` if two rows to insert have the same key, or one has the key of a row of the table.

    `origins`: the positions of the rows in the source. The table has no such row if the columns of the merge are part of the key,
    and are inserted as they are: it would have met the row of the source.
    """
    names, on = context.schema.primary_keys, merge.source.on
    if missing := next((name for name in names if name not in rows.schema.names), None):
        raise UsageError(f"key column '{missing}' is not set", "each row that is inserted needs its key", "set it in the insert")
    keys = MergeSource.indexed(rows, context.schema.fields_of(names), names, merge.place)
    hint = "nothing was committed; merge on the key, or leave the row out of the source"
    if not keys.index.is_unique:
        repeated = _key_text(rows, names, keys.index.first_repeated())
        raise BadInput(f"two rows to insert have {repeated}", "a key has one row", hint)
    if snapshot is None or (set(on) <= set(names) and _keeps_values(merge.source, rows, origins)):
        return
    seen, where = context.with_level_0(), keys.condition(context.schema)
    for split in plan_scan(seen, snapshot, where).splits:
        for batch in read_split(seen, split, list(names), where):
            met = keys.index.rows_of([batch.column(name) for name in names])
            if (met != NO_ROW).any():
                what = f"a row to insert has the key of a row of the table: {_key_text(rows, names, int(met.max()))}"
                raise BadInput(what, f"its row of the source differs in {', '.join(on)}", hint)


def _keeps_values(merged: MergeSource, rows: SourceRows, origins: np.ndarray) -> bool:
    """Whether the rows to insert have the values of their rows of the source in the columns of the merge."""
    for start, batch in rows.pieces(merged.on):
        source = merged.stored.take(origins[start : start + batch.num_rows], merged.on)
        if not all(own.equals(other) for own, other in zip(batch.columns, source.columns, strict=True)):
            return False
    return True


def _key_text(rows: SourceRows, names: Sequence[str], row: int) -> str:
    key = rows.take(np.array([row]), names)
    return ", ".join(f"{name} = {key.column(name)[0]}" for name in names)
