"""How a table follows the columns of its source: new columns are added, types are widened (Java
UpdatedDataFieldsProcessFunction).

Nothing is dropped, renamed or narrowed. Columns of the primary key and of partitions keep their types, which no table can change.
A change of another kind is no change of the table; what then does not fit its columns is found when the rows are converted.
"""

from __future__ import annotations

from collections.abc import Mapping

from paimon_cli.catalog.column_changes import AddColumn, AlterColumn, SchemaChange
from paimon_cli.datatypes.data_type import (
    MAX_DECIMAL_PRECISION,
    BinaryType,
    DataType,
    DecimalType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.metadata.table_schema import TableSchema

_ORDERS = (("TINYINT", "SMALLINT", "INT", "BIGINT"), ("FLOAT", "DOUBLE"))


def changes_to_follow(schema: TableSchema, found: Mapping[str, DataType], declared: frozenset[str]) -> list[SchemaChange]:
    """The changes after which a table has columns for these types. `declared`: the columns whose types the source has stated."""
    known = {field.name: field.type for field in schema.fields}
    added: list[SchemaChange] = [AddColumn((name,), kind) for name, kind in found.items() if name not in known]
    widened: list[SchemaChange] = []
    for name in found:
        if (
            name in known
            and name in declared - schema.fixed_columns
            and (wider := wider_type(known[name], found[name])) is not None
        ):
            widened.append(AlterColumn((name,), type=wider))
    return [*widened, *added]


def wider_type(old: DataType, new: DataType) -> DataType | None:
    """The type to which a column must be widened for values of the other one; None if it needs no change, or cannot have it."""
    if any(old.root in order and new.root in order and order.index(new.root) > order.index(old.root) for order in _ORDERS):
        return new.with_nullable(old.nullable)
    match old, new:
        case StringType(), StringType():
            wider: DataType | None = StringType("VARCHAR", new.length) if new.length > old.length else None
        case BinaryType(), BinaryType():
            wider = BinaryType("VARBINARY", new.length) if new.length > old.length else None
        case DecimalType(), DecimalType():
            whole, scale = max(old.precision - old.scale, new.precision - new.scale), max(old.scale, new.scale)
            fits = whole + scale <= MAX_DECIMAL_PRECISION and (whole, scale) != (old.precision - old.scale, old.scale)
            wider = DecimalType(whole + scale, scale) if fits else None
        case TimestampType(), TimestampType() if new.root == old.root:
            wider = new if new.precision > old.precision else None
        case TimeType(), TimeType():
            wider = new if new.precision > old.precision else None
        case _:
            wider = None
    return None if wider is None else wider.with_nullable(old.nullable)
