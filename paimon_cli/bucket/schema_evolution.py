"""Columns of an old data file as the read schema wants them: matched by field id, cast by one step (FORMAT.md, section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from paimon_cli.casts.column_cast import cast_column, cast_of
from paimon_cli.casts.permission import same_type
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import DataField, DataType, type_to_sql
from paimon_cli.datatypes.hidden_nulls import retyped
from paimon_cli.errors import NotSupported, UsageError


@dataclass(frozen=True)
class ColumnSource:
    """Where a read column comes from: the file's column (None: added later, all null) and both types."""

    field: DataField
    file_field: DataField | None

    def column(self, stored: pa.Array | None, rows: int) -> pa.Array:
        """The stored column (as the file's format spelled it) as the read schema's Arrow type."""
        if self.file_field is None or stored is None:
            return pa.nulls(rows, arrow_type(self.field.type))
        declared = as_declared(stored, arrow_type(self.file_field.type))
        try:
            return evolved(declared, self.file_field.type, self.field.type)
        except (NotSupported, UsageError) as problem:
            change = f"from {type_to_sql(self.file_field.type)} to {type_to_sql(self.field.type)}"
            raise type(problem)(
                f"column {self.field.name} was changed {change}: {problem.what}",
                problem.why or "an old data file has the old type",
                problem.hint or "read a snapshot from before the change",
                column=self.field.name,
            ) from problem


def column_sources(read_fields: tuple[DataField, ...], file_fields: tuple[DataField, ...]) -> list[ColumnSource]:
    """Match by field id: renamed columns are found, a re-added name is another column."""
    by_id = {field.id: field for field in file_fields}
    return [ColumnSource(field, by_id.get(field.id)) for field in read_fields]


def as_declared(stored: pa.Array, target: pa.DataType) -> pa.Array:
    """What another writer's file calls the type -> the Arrow type that the schema declares; same values."""
    if stored.type == target:
        return stored
    if pa.types.is_dictionary(stored.type):
        stored = stored.dictionary_decode()
    return retyped(stored, target, pa.Array.cast)


def evolved(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """A column in `arrow_type(source)` as `arrow_type(target)`; ROW fields are matched by id at any depth."""
    if same_type(source, target):
        return column
    if source.root != target.root or not source.is_nested:
        if cast_of(source, target) is None and source.root == target.root:
            return column  # TIME(0) and TIME(3): the same values
        return cast_column(column, source, target)
    absent = column.is_null() if column.null_count else None
    wanted = arrow_type(target)
    if source.root == "ROW":
        children = _fields(column, source.row_fields(), target.row_fields())
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=absent)
    offsets = column.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    starts = pa.array(offsets - offsets[0])
    if source.root == "ARRAY":
        items = evolved(column.values[inside], source.element_type(), target.element_type())
        return pa.ListArray.from_arrays(starts, items, type=wanted, mask=absent)
    (old_key, old_value), (key, value) = source.entry_types(), target.entry_types()
    keys = evolved(column.keys[inside], old_key, key)
    return pa.MapArray.from_arrays(starts, keys, evolved(column.items[inside], old_value, value), type=wanted, mask=absent)


def _fields(column: pa.Array, old: tuple[DataField, ...], new: tuple[DataField, ...]) -> list[pa.Array]:
    positions = {field.id: i for i, field in enumerate(old)}
    # `field` of a sliced struct is cut to the slice, `flatten` would also put the struct's nulls into its fields
    return [
        pa.nulls(len(column), arrow_type(field.type))
        if field.id not in positions
        else evolved(column.field(positions[field.id]), old[positions[field.id]].type, field.type)
        for field in new
    ]
