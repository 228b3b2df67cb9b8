"""Columns of an old data file as the read schema wants them: matched by field id, cast by one step (format section 2)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import DataField, DataType, type_to_sql
from paimon_cli.datatypes.hidden_nulls import retyped
from paimon_cli.errors import NotSupported

WIDENING = {
    "TINYINT": ("SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"),
    "SMALLINT": ("INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"),
    "INT": ("BIGINT", "DOUBLE", "DECIMAL"),
    "BIGINT": ("DECIMAL",),
    "FLOAT": ("DOUBLE",),
}


@dataclass(frozen=True)
class ColumnSource:
    """Where a read column comes from: the file's column (None: added later, all null) and both types."""

    field: DataField
    file_field: DataField | None

    def column(self, stored: pa.Array | None, rows: int) -> pa.Array:
        """The stored column (as the file's format spelled it) as the read schema's Arrow type."""
        target = arrow_type(self.field.type)
        if self.file_field is None or stored is None:
            return pa.nulls(rows, target)
        return _cast(as_declared(stored, arrow_type(self.file_field.type)), self.file_field.type, self.field)


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


def _cast(column: pa.Array, source: DataType, field: DataField) -> pa.Array:
    target = field.type
    if source.with_nullable(True) == target.with_nullable(True) or arrow_type(source) == arrow_type(target):
        return column
    same_family = source.root == target.root and source.root in ("DECIMAL", "TIMESTAMP", "TIMESTAMP_LTZ", "TIME")
    widens = same_family and (target.precision or 0) >= (source.precision or 0) and (target.scale or 0) >= (source.scale or 0)
    if widens or target.root in WIDENING.get(source.root, ()):
        return column.cast(arrow_type(target))
    raise NotSupported(
        f"column {field.name} was changed from {type_to_sql(source)} to {type_to_sql(target)}",
        "this version reads old files only where the type was widened",
        "read a snapshot from before the change",
    )
