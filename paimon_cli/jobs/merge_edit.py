"""What a merge does to the rows of a table: each row that meets a row of the source is updated or deleted by the first clause
whose condition holds; so are, by other clauses, rows that meet none.

Expressions and conditions read the columns of the table, and `source.x` and `target.x`: the joined rows have two more columns, of
type ROW.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, type_from_arrow
from paimon_cli.datatypes.column_cast import with_default
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, NestedType, RowType
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import BadInput, NotSupported, UsageError
from paimon_cli.ingest.faults import BadCells, WrongType, shown
from paimon_cli.ingest.source_files import no_rows
from paimon_cli.ingest.typed_columns import CastRules, cast_column
from paimon_cli.jobs.key_index import NO_ROW
from paimon_cli.jobs.row_change import Edit, EditedRows, Matches, NameRow, new_columns
from paimon_cli.jobs.source_rows import RowIndex, SourceRows, SpilledIndex, SpillPlace, batches_of, index_in_memory, spilled_index
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.pieces import PIECES
from paimon_cli.sql.clauses import SetClause, SetItem
from paimon_cli.sql.predicate import Predicate, parse_predicate

SOURCE, TARGET = "source", "target"
"""The names of the two rows in conditions and expressions."""
_PRUNED_ROOTS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "CHAR", "VARCHAR", "STRING"}


@dataclass(frozen=True)
class MergeSource:
    """The rows to merge, typed as the columns of the table that have their names. `on`: the columns that must be equal."""

    stored: SourceRows
    fields: tuple[DataField, ...]
    on: tuple[str, ...]
    spilled: SpilledIndex | None = None

    @cached_property
    def index(self) -> RowIndex:
        """The rows by the values in which a row of the table must be equal."""
        return index_in_memory(self.stored, self.on) if self.spilled is None else self.spilled

    @staticmethod
    def of(
        data: pa.RecordBatchReader, schema: TableSchema, on: Sequence[str], timezone: str | None, place: SpillPlace
    ) -> MergeSource:
        """Read the rows. Raises `BadInput` for rows that do not fit, `UsageError` for wrong columns in `on`."""
        names = data.schema.names
        for name in names:
            if names.count(name) > 1:
                raise BadInput(f"the source has two columns '{name}'", column=name)
        _check_on(on, names, schema)
        fields = []
        for number, column in enumerate(data.schema):
            known = schema.find(column.name)
            t = (type_from_arrow(column.type) if known is None else known.type).with_nullable(True)
            fields.append(DataField(number, column.name, t))
        empty = _typed_batch(no_rows(data.schema), fields, timezone, 0)
        stored = SourceRows.collected(empty.schema, _typed_batches(data, fields, timezone), place)
        return MergeSource.indexed(stored, fields, on, place)

    @staticmethod
    def indexed(stored: SourceRows, fields: Sequence[DataField], on: Sequence[str], place: SpillPlace) -> MergeSource:
        """A source of rows that are typed already. Of spilled rows the index is made now, and is on disk, too."""
        types = {field.name: field.type for field in fields}
        spilled = spilled_index(stored, on, [types[name] for name in on], place)
        return MergeSource(stored, tuple(fields), tuple(on), spilled)

    @property
    def row_type(self) -> RowType:
        return RowType(self.fields)

    def rows(self, positions: np.ndarray) -> pa.StructArray:
        """The rows at these positions, as values of one column; null for `NO_ROW`."""
        fields = list(arrow_type(self.row_type))
        columns = self.stored.take(positions).columns
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(positions == NO_ROW))

    def condition(self, schema: TableSchema) -> Predicate:
        """A condition that holds for all rows of the table that meet a row of the source, to skip files."""
        texts, params = list[str](), dict[str, object]()
        for number, name in enumerate(self.on):
            if schema.field(name).type.root not in _PRUNED_ROOTS:
                continue
            distinct, low, high = self._values(name)
            if low is None:
                return parse_predicate("FALSE", schema)
            if distinct is not None:
                params[f"p{number}"] = distinct
                texts.append(f"{quoted_name(name)} IN :p{number}")
                continue
            params |= {f"low{number}": low, f"high{number}": high}
            texts.append(f"{quoted_name(name)} BETWEEN :low{number} AND :high{number}")
        return parse_predicate(" AND ".join(texts) or "TRUE", schema, params)

    def _values(self, name: str) -> tuple[pa.Array | None, pa.Scalar | None, pa.Scalar | None]:
        """The distinct values of a column, None if there are many; the least and the greatest one, None if all are null."""
        known: pa.Array | None = pa.array([], self.stored.schema.field(name).type)
        ends = list[pa.Scalar]()
        for _, batch in self.stored.pieces([name]):
            if known is not None:
                found = pa.concat_arrays([known, batch.column(0).unique().drop_null()]).unique()
                known = found if len(found) <= PIECES.max_bucket_keys else None
            piece = pc.min_max(batch.column(0))
            ends += [end for end in (piece["min"], piece["max"]) if end.is_valid]
        if not ends:
            return known, None, None
        all_ends = pc.min_max(pa.concat_arrays([pa.repeat(end, 1) for end in ends]))
        return known, all_ends["min"], all_ends["max"]


def _check_on(on: Sequence[str], names: Sequence[str], schema: TableSchema) -> None:
    if not on:
        raise UsageError("no columns to merge on", "they say which rows are the same", "such as on=['id']")
    for name in on:
        known = schema.find(name)
        if known is None or name not in names:
            where, found = ("source", names) if known is not None else ("table", schema.field_names)
            what = f"no column '{name}' in the {where}"
            raise UsageError(
                what, "a merge is on columns that both have", f"{did_you_mean(name, found)}columns: {', '.join(found)}"
            )
        if isinstance(known.type, NestedType) or known.type.root in FLOATING_ROOTS:
            raise NotSupported(
                f"a merge on column '{name}'", "nested values and floating-point numbers have no exact equality here"
            )


def _typed_batches(data: pa.RecordBatchReader, fields: Sequence[DataField], timezone: str | None) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches_of(data):
        yield _typed_batch(batch, fields, timezone, row)
        row += batch.num_rows


def _typed_batch(batch: pa.RecordBatch, fields: Sequence[DataField], timezone: str | None, row: int) -> pa.RecordBatch:
    """The batch, whose first row has this number, with the types of the fields."""
    columns = [_typed(values, field, timezone, row) for values, field in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def _typed(values: pa.Array, field: DataField, timezone: str | None, row: int) -> pa.Array:
    name = field.name
    try:
        return cast_column(values, field.type, CastRules(timezone=timezone))
    except BadCells as problem:
        first = problem.first
        number = row + first.row + 1
        what = f"row {number} of the source, column {name}: {shown(first.value)}"
        raise BadInput(what, first.why, column=name, row=number) from problem
    except WrongType as problem:
        why = problem.why or f"{values.type} cannot become {field.type.root}"
        raise BadInput(f"column '{name}' of the source does not fit", why, column=name) from problem


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
        return schema.field_names if any(c.condition for c in (*self.matched, *self.unmatched)) else self.source.on

    def matches(self, batch: pa.RecordBatch) -> Matches:
        positions, chosen = self._chosen(batch)
        sources = np.unique(positions[positions != NO_ROW])
        return Matches(chosen >= 0, sources)

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
            other = self.source.stored.take(positions[rows], [name]).column(0)
            if not own.equals(other):
                pairs = enumerate(zip(own.to_pylist(), other.to_pylist(), strict=True))
                row, (old, new) = next((row, pair) for row, pair in pairs if pair[0] != pair[1])
                raise BadInput(
                    f"column '{name}' of {name_row(int(rows[row]))} cannot become {shown(new)}",
                    f"it is {shown(old)}, and decides where the row is stored",
                    "nothing was committed; leave the column out of the source, or delete the row and insert another one",
                    column=name,
                )


@dataclass(frozen=True)
class PlannedMerge:
    """A merge that was checked against the schema. `inserts`: the clauses for rows of the source that meet no row."""

    edit: MergeEdit
    inserts: tuple[Clause, ...]
    place: SpillPlace

    @property
    def source(self) -> MergeSource:
        return self.edit.source


def _items(clause: Clause) -> Iterable[SetItem]:
    return clause.new_values.assignments if clause.new_values else ()


def _named(name_row: NameRow, rows: np.ndarray) -> NameRow:
    return lambda row: name_row(int(rows[row]))


def joined_schema(schema: TableSchema, source: MergeSource) -> TableSchema:
    """The table's columns, and the two rows. Raises `NotSupported` if the table has columns of their names."""
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
