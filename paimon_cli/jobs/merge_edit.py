"""What a merge does to the rows of a table: each row that meets a row of the source is updated or deleted by the first clause
whose condition holds; so are, by other clauses, rows that meet none.

Expressions and conditions read the columns of the table, and `source.x` and `target.x`: the joined rows have two more columns, of
type ROW.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.column_cast import with_default
from paimon_cli.datatypes.data_type import DataField, RowType
from paimon_cli.errors import BadInput, NotSupported
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.ingest.faults import python_value, shown
from paimon_cli.jobs.key_index import NO_ROW
from paimon_cli.jobs.merge_source import MergeSource
from paimon_cli.jobs.row_change import Edit, EditedRows, Matches, NameRow, new_columns
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS, fields_of_star
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.clauses import SetClause, SetItem
from paimon_cli.sql.expressions import columns_within
from paimon_cli.sql.predicate import Predicate

SOURCE, TARGET = "source", "target"
"""The names of the two rows in conditions and expressions."""


@dataclass(frozen=True)
class Clause:
    """One WHEN of a merge. `condition`: None for always; `new_values`: None to delete, or to insert nothing."""

    condition: Predicate | None = None
    new_values: SetClause | None = None

    def holds(self, batch: pa.RecordBatch) -> np.ndarray:
        if self.condition is None:
            return np.ones(batch.num_rows, bool)
        return self.condition.condition.matches(batch).fill_null(False).to_numpy(zero_copy_only=False)


def chosen_clauses(clauses: Sequence[Clause], batch: pa.RecordBatch) -> np.ndarray:
    """For each row the number of the first clause whose condition holds; -1 for none."""
    chosen = np.full(batch.num_rows, -1, np.int64)
    for number, clause in enumerate(clauses):
        chosen[(chosen < 0) & clause.holds(batch)] = number
    return chosen


@dataclass(frozen=True)
class MergeEdit(Edit):
    """The clauses for rows that meet a row of the source (`matched`), and for the others (`unmatched`).

    `fixed`: columns of the source that must have the value that the row has, because it decides where the row is stored.
    """

    where: Predicate
    source: MergeSource
    matched: tuple[Clause, ...]
    unmatched: tuple[Clause, ...]
    fixed: tuple[str, ...] = ()
    narrows = True

    @property
    def set_columns(self) -> Collection[str]:
        found = (item.column.name for clause in (*self.matched, *self.unmatched) for item in _items(clause))
        return list(dict.fromkeys(found))

    @property
    def drops_all(self) -> bool:
        return False

    def read_columns(self, schema: TableSchema) -> Collection[str]:
        if not any(clause.condition for clause in (*self.matched, *self.unmatched)):
            return self.source.on
        return [*(field.name for field in fields_of_star(schema)), *self.tracking_columns]

    @property
    def tracking_columns(self) -> Collection[str]:
        clauses = (*self.matched, *self.unmatched)
        conditions = [clause.condition.condition for clause in clauses if clause.condition is not None]
        columns = list(columns_within((*conditions, *(item.expression for clause in clauses for item in _items(clause)))))
        read = {column.path[0] if column.path and column.name == TARGET else column.name for column in columns}
        return [name for name in TRACKING_COLUMNS if name in read or name in self.source.on]

    def matches(self, batch: pa.RecordBatch) -> Matches:
        positions, chosen = self._chosen(batch)
        met = np.unique(positions[positions != NO_ROW])
        return Matches(chosen >= 0, self.source.numbers(self.source.index.all_like(met)))

    def for_bucket(self, bucket: BucketFiles) -> MergeEdit:
        source = self.source.for_bucket(bucket)
        return self if source is self.source else replace(self, source=source)

    def edited(self, schema: TableSchema, batch: pa.RecordBatch, name_row: NameRow) -> EditedRows:
        positions, chosen = self._chosen(batch)
        self._check_fixed(batch, positions, name_row)
        columns = {name: batch.column(name) for name in schema.field_names}
        is_deleted = np.zeros(batch.num_rows, bool)
        for number, clause in enumerate((*self.matched, *self.unmatched)):
            rows = np.flatnonzero(chosen == number)
            if not len(rows):
                continue
            if clause.new_values is None:
                is_deleted[rows] = True
                continue
            place = np.arange(batch.num_rows)
            place[rows] = batch.num_rows + np.arange(len(rows))
            part = self._joined(batch.take(pa.array(rows)), positions[rows])
            for name, values in new_columns(_items(clause), part, _named(name_row, rows)).items():
                columns[name] = pa.concat_arrays([columns[name], values]).take(pa.array(place))
        return EditedRows({name: with_default(values, schema.field(name)) for name, values in columns.items()}, is_deleted)

    def _chosen(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """For each row the row of the source that it meets, and the number of the clause that changes it; -1 for none."""
        index = self.source.index
        positions = index.rows_of([batch.column(name) for name in self.source.on])
        met = positions != NO_ROW
        if self.matched and not index.is_unique and (repeated := met & index.repeats(positions)).any():
            row = int(np.argmax(repeated))
            values = ", ".join(f"{name} = {batch.column(name)[row]}" for name in self.source.on)
            raise BadInput(
                f"several rows of the source have {values}",
                "the table's row with these values would be changed by each of them",
                "nothing was committed; leave one row for each in the source",
            )
        chosen = np.full(batch.num_rows, -1, np.int64)
        for clauses, is_row, first in ((self.matched, met, 0), (self.unmatched, ~met, len(self.matched))):
            rows = np.flatnonzero(is_row)
            if clauses and clauses[0].condition is None:
                chosen[rows] = first
            elif clauses and len(rows):
                found = chosen_clauses(clauses, self._joined(batch.take(pa.array(rows)), positions[rows]))
                chosen[rows] = np.where(found >= 0, found + first, -1)
        return positions, chosen

    def _joined(self, batch: pa.RecordBatch, positions: np.ndarray) -> pa.RecordBatch:
        """The rows with the columns `source` and `target`."""
        target = pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)
        return batch.append_column(SOURCE, self.source.rows(positions)).append_column(TARGET, target)

    def _check_fixed(self, batch: pa.RecordBatch, positions: np.ndarray, name_row: NameRow) -> None:
        rows = np.flatnonzero(positions != NO_ROW)
        for name in self.fixed:
            own = batch.column(name).take(pa.array(rows))
            other = self.source.column(name, positions[rows])
            if (differs := _differs(own, other)).any():
                row = int(np.argmax(differs))
                old, new = python_value(own[row]), python_value(other[row])
                raise BadInput(
                    f"column '{name}' of {name_row(int(rows[row]))} cannot become {shown(new)}",
                    f"it is {shown(old)}, and decides where the row is stored",
                    "nothing was committed; leave the column out of the source, or delete the row and insert another one",
                    column=name,
                )


def _differs(some: pa.Array, others: pa.Array) -> np.ndarray:
    """Where the values differ; null and NaN are equal to themselves."""
    differs = pc.fill_null(pc.not_equal(some, others), pc.xor(some.is_null(), others.is_null()))
    if pa.types.is_floating(some.type):
        differs = pc.and_not(differs, pc.fill_null(pc.and_(pc.is_nan(some), pc.is_nan(others)), False))
    return differs.to_numpy(zero_copy_only=False)


def _items(clause: Clause) -> Iterable[SetItem]:
    return clause.new_values.assignments if clause.new_values else ()


def _named(name_row: NameRow, rows: np.ndarray) -> NameRow:
    return lambda row: name_row(int(rows[row]))


def joined_schema(schema: TableSchema, source: MergeSource) -> TableSchema:
    """The columns of the table, `schema` as queries see it, and the two rows.

    Raises `NotSupported` if the table has columns of their names.
    """
    for name in (SOURCE, TARGET):
        if schema.find(name) is not None:
            raise NotSupported(f"a merge into a table with a column '{name}'", f"conditions call a row of the merge {name}")
    target = RowType(tuple(replace(field, id=number) for number, field in enumerate(schema.fields)))
    rows = (DataField(-1, SOURCE, source.row_type), DataField(-2, TARGET, target))
    return replace(schema, fields=(*schema.fields, *rows))


def source_schema(schema: TableSchema, source: MergeSource) -> TableSchema:
    """The columns that an insert assigns and reads: the table's, those of the source, and the row of the source; without keys."""
    others = [field for field in source.fields if schema.find(field.name) is None and field.name not in (SOURCE, TARGET)]
    fields = [replace(field, default_value=None) for field in schema.fields]
    return TableSchema(0, (*fields, *others, DataField(-1, SOURCE, source.row_type)), 0, (), (), {}, None, 0)
