"""Converts the columns of a data file to the read schema (FORMAT.md, section 2).

Columns of an older schema are matched by field id and cast in one step. Columns that were added later are null; system columns
that the file does not store have the values that its layout implies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.shredded_variants import whole_variants
from paimon_cli.datatypes.arrow_types import arrow_type, retyped, values_to_arrow
from paimon_cli.datatypes.column_cast import cast_column, cast_of, same_type
from paimon_cli.datatypes.data_type import ArrayType, DataField, DataType, NestedType, RowType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.variant_columns import holds_variants
from paimon_cli.errors import DamagedFile, NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ROW_ID, SOURCE_APPEND, SOURCE_COMPACT, DataFileMeta
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, TRACKING_COLUMNS, VALUE_KIND, RowKind
from paimon_cli.storage.threads import cached_property

SYSTEM_COLUMNS = {SEQUENCE_NUMBER: pa.int64(), VALUE_KIND: pa.int8(), ROW_ID: pa.int64()}


@dataclass(frozen=True)
class ColumnSource:
    """A column of the read schema, and the file's column from which it comes (None: it was added later, and is null)."""

    field: DataField
    file_field: DataField | None

    def column(self, stored: pa.Array | None, rows: int) -> pa.Array:
        """The column in the read schema's Arrow type. `stored`: as the file's reader returned it; `rows`: their number."""
        if self.file_field is None or stored is None:
            return pa.nulls(rows, arrow_type(self.field.type))
        if stored.type == self._stored_type and self._is_as_stored:  # first, because a table may have a thousand columns
            return stored
        self._check_layout(stored.type)
        if holds_variants(self.file_field.type):
            stored = whole_variants(stored, self.file_field.type)
        declared = as_declared(stored, self._stored_type)
        if self._is_as_stored:
            return declared
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

    def _check_layout(self, stored: pa.DataType) -> None:
        """Newer versions of Paimon can spread a MAP over columns (`map.storage-layout`), also where the option was taken back."""
        if pa.types.is_map(self._stored_type) and pa.types.is_struct(stored):
            raise NotSupported(
                f"a data file does not store column '{self.field.name}' as a MAP",
                "it stores it as shared-shredding, a layout of newer versions of Paimon",
                column=self.field.name,
            )

    @cached_property
    def _stored_type(self) -> pa.DataType:
        return arrow_type(self.file_field.type if self.file_field else self.field.type)

    @cached_property
    def _is_as_stored(self) -> bool:
        return self.file_field is not None and same_type(self.file_field.type, self.field.type)


def column_sources(read_fields: tuple[DataField, ...], file_fields: tuple[DataField, ...]) -> list[ColumnSource]:
    """The source of each read column, by field id: renamed columns match, dropped and re-added ones do not."""
    by_id = {field.id: field for field in file_fields}
    return [ColumnSource(field, by_id.get(field.id)) for field in read_fields]


def as_declared(stored: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values in the Arrow type `target` that the schema declares. Files of other writers use equivalent types."""
    if stored.type == target:
        return stored
    if pa.types.is_dictionary(stored.type):
        return as_declared(stored.dictionary_decode(), target)
    return retyped(stored, target, pa.Array.cast)


def evolved(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Cast a column from `arrow_type(source)` to `arrow_type(target)`; fields of ROWs are matched by id at any depth."""
    if same_type(source, target):
        return column
    if source.root != target.root or not isinstance(source, NestedType):
        if cast_of(source, target) is None and source.root == target.root:
            return column  # TIME(0) and TIME(3): the same values
        return cast_column(column, source, target)
    absent = column.is_null() if column.null_count else None
    wanted = arrow_type(target)
    if isinstance(source, RowType) and isinstance(target, RowType):
        children = _fields(column, source.fields, target.fields)
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=absent)
    offsets = column.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    starts = pa.array(offsets - offsets[0])
    if isinstance(source, ArrayType):
        (old,), (new,) = source.children, target.children
        return pa.ListArray.from_arrays(starts, evolved(column.values[inside], old, new), type=wanted, mask=absent)
    (old_key, old_value), (key, value) = source.children, target.children
    keys, items = evolved(column.keys[inside], old_key, key), evolved(column.items[inside], old_value, value)
    return pa.MapArray.from_arrays(starts, keys, items, type=wanted, mask=absent)


def _fields(column: pa.Array, old: tuple[DataField, ...], new: tuple[DataField, ...]) -> list[pa.Array]:
    positions = {field.id: i for i, field in enumerate(old)}
    # `field` respects the slice of a struct; `flatten` would also copy the struct's nulls into its fields
    return [
        pa.nulls(len(column), arrow_type(field.type))
        if field.id not in positions
        else evolved(column.field(positions[field.id]), old[positions[field.id]].type, field.type)
        for field in new
    ]


class ReadColumns:
    """The columns of a read, and how to get them from the columns that a data file stores."""

    def __init__(self, context: TableContext, file: DataFileMeta, columns: Sequence[str], partition: bytes | None = None) -> None:
        """`partition`: that of the file, which has the values of partition columns that the file does not store."""
        self._context, self._partition = context, partition
        self.file_schema = context.schema if file.schema_id == context.schema.id else context.schemas.named(file.schema_id)
        self._columns = list(columns)
        self._has_kinds = bool(context.file_layout.keys)
        self._system = [name for name in columns if name in SYSTEM_COLUMNS and self._has_kinds]
        self._tracked = [name for name in columns if name in TRACKING_COLUMNS] if context.mode.tracks_rows else []
        # Writers before 1.3.2 do not list the columns of compacted files, which store them all the same.
        stores = file.stores_row_ids or (file.first_row_id is None and file.file_source == SOURCE_COMPACT)
        self._stored_tracking = self._tracked if stores else []
        self._file = file
        self._keys = [name for name in columns if name.startswith(KEY_PREFIX)]
        names = [name for name in columns if name not in SYSTEM_COLUMNS and name not in self._keys]
        orders_by_snapshot = context.options.sequence_snapshot_ordering and file.file_source == SOURCE_APPEND
        self._number = file.max_sequence_number if orders_by_snapshot else None
        stored = tuple(field for field in self.file_schema.fields if file.stores(field.name))
        self._sources = column_sources(context.schema.fields_of(names), stored)

    @cached_property
    def stored(self) -> frozenset[str]:
        """The columns to read that the file stores."""
        return frozenset(source.field.name for source in self._sources if source.file_field is not None)

    @property
    def physical(self) -> list[str]:
        """The names of the file's columns that must be read."""
        return [
            *self._system,
            *self._stored_tracking,
            *self._keys,
            *(s.file_field.name for s in self._sources if s.file_field is not None),
        ]

    def tracked(self, stored: pa.RecordBatch, position: int) -> pa.RecordBatch:
        """The batch with the ids and sequence numbers of its rows, if they are read (Java DataFileRecordReader).

        `position`: that of its first row in the file. What the file does not store follows from its metadata.
        """
        if not self._tracked:
            return stored
        file, rows = self._file, stored.num_rows
        columns = dict(zip(stored.schema.names, stored.columns, strict=True))
        first = file.first_row_id
        for name in self._tracked:
            known = as_declared(columns[name], pa.int64()) if name in columns else pa.nulls(rows, pa.int64())
            if known.null_count and name == SEQUENCE_NUMBER:
                known = pc.fill_null(known, file.to_be_numbered().max_sequence_number)
            elif known.null_count and first is not None:
                known = pc.coalesce(known, pa.array(np.arange(first + position, first + position + rows)))
            elif known.null_count and self._context.first_new_row_id is not None:
                what, why = "the ids of rows that this transaction has written", "they get their ids with its commit"
                raise NotSupported(what, why, "name the rows by other columns, or change them in a transaction of their own")
            elif known.null_count:
                raise DamagedFile(f"data file {file.file_name} is damaged", "it has rows without an id")
            columns[name] = known
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def of(self, stored: pa.RecordBatch, kind: int | None = None, omits_kinds: bool = False) -> pa.RecordBatch:
        """Convert rows with the `physical` columns to the read schema.

        `kind`: the kind of all rows, if known; `stored` has no column of kinds then. With `omits_kinds` the result has none
        either, unless that kind is a retraction.
        """
        kind = kind if self._has_kinds else RowKind.INSERT
        wanted = [
            name
            for name in self._columns
            if name != VALUE_KIND or kind not in (RowKind.INSERT, RowKind.UPDATE_AFTER) or not omits_kinds
        ]
        read = [name for name in self._system if name != VALUE_KIND or kind is None]
        arrays = {name: as_declared(stored.column(name), SYSTEM_COLUMNS[name]) for name in read}
        if self._number is not None and SEQUENCE_NUMBER in arrays:
            arrays[SEQUENCE_NUMBER] = pa.array(np.full(stored.num_rows, self._number, np.int64))
        if kind is not None and VALUE_KIND in wanted:
            arrays[VALUE_KIND] = pa.array(np.full(stored.num_rows, kind, np.int8))
        arrays |= {name: stored.column(name) for name in self._tracked}
        for name in self._keys:
            own = name.removeprefix(KEY_PREFIX)
            declared = arrow_type(self.file_schema.field(own).type)
            arrays[name] = as_declared(stored.column(name if name in stored.schema.names else own), declared)
        for source in self._sources:
            raw = None if source.file_field is None else self._stored(stored, source.file_field.name)
            arrays[source.field.name] = source.column(raw, stored.num_rows)
        return pa.RecordBatch.from_arrays([arrays[name] for name in wanted], names=wanted)

    def _stored(self, stored: pa.RecordBatch, name: str) -> pa.Array:
        """A column of the file. Files that were made for Hive, and then adopted, do not store partition columns."""
        keys = self.file_schema.partition_keys
        if name in stored.schema.names or self._partition is None or name not in keys:
            return stored.column(name)
        value, t = self._context.partition_values(self._partition)[keys.index(name)], self.file_schema.field(name).type
        return pa.repeat(values_to_arrow([value], t)[0], stored.num_rows)
