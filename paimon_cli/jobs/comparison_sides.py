"""The two sides of a comparison (a table at some version, or files) and the columns that they share."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.column_cast import cast_column, keeps_values, same_type
from paimon_cli.datatypes.data_type import DataField, DataType, NestedType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import UsageError
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.row_scan import ReadRequest, RowScan, plan_rows
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.requests.conditions import BoundSql
from paimon_cli.sql.predicate import parse_predicate

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.metadata.snapshot import Snapshot


class Side(Protocol):
    """One side of a comparison. `key`: the columns that identify a row; may be empty."""

    @property
    def name(self) -> str: ...
    @property
    def fields(self) -> Sequence[DataField]: ...
    @property
    def key(self) -> Sequence[str]: ...
    def batches(self, fields: Sequence[DataField], where: BoundSql | None) -> Iterator[pa.RecordBatch]:
        """The rows that match `where`, with columns of these names and types."""
        ...


@dataclass(frozen=True)
class TableSide:
    """A table at the version that `request` names."""

    name: str
    table: TableContext
    request: ReadRequest

    @functools.cached_property
    def _planned(self) -> RowScan:
        return plan_rows(self.table, replace(self.request, limit=0))

    @property
    def _schema(self) -> TableSchema:
        return self._planned.context.schema

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read; None if the table has none."""
        return self._planned.plan.snapshot

    @property
    def waiting_text(self) -> str:
        """What to tell the user about records that wait for a compaction; empty if there are none."""
        return self._planned.waiting_text

    @property
    def fields(self) -> Sequence[DataField]:
        return self._schema.fields

    @property
    def key(self) -> Sequence[str]:
        return self._schema.primary_keys

    def batches(self, fields: Sequence[DataField], where: BoundSql | None) -> Iterator[pa.RecordBatch]:
        chosen = ",".join(quoted_name(field.name) for field in fields)
        own = self._schema.fields_of([field.name for field in fields])
        sql, params = (None, None) if where is None else where
        for batch in plan_rows(self.table, replace(self.request, columns=chosen, where=sql, params=params)).rows():
            columns = [_as_type(c, f.type, wanted.type) for c, f, wanted in zip(batch.columns, own, fields, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


@dataclass(frozen=True)
class FileSide:
    """Input files, read as `write` reads them. `fields`: the columns, with the types of the table on the other side."""

    name: str
    source: FileRows
    fields: Sequence[DataField]
    key: Sequence[str] = ()

    def batches(self, fields: Sequence[DataField], where: BoundSql | None) -> Iterator[pa.RecordBatch]:
        schema = TableSchema(0, tuple(_nullable(field) for field in self.fields), 0, (), (), {}, None, 0)
        predicate = None if where is None else parse_predicate(where.sql, schema, where.params)
        wanted = {field.name for field in fields} | set(predicate.columns if predicate else ())
        read = replace(schema, fields=tuple(field for field in schema.fields if field.name in wanted))
        rows, tally, names = IncomingRows(read, source=self.source), Tally(), [field.name for field in fields]
        for split in self.source.plan():
            for raw in self.source.raw_rows(split, schema.fields, Needed()):
                kept = raw.batch.select([name for name in raw.batch.schema.names if name in wanted])
                batch = rows.conform(raw._replace(batch=kept), split, tally)
                yield (batch if predicate is None else predicate.filtered(batch)).select(names)


def _nullable(field: DataField) -> DataField:
    return DataField(field.id, field.name, field.type.with_nullable(True))


def _as_type(column: pa.Array, own: DataType, wanted: DataType) -> pa.Array:
    if same_type(own, wanted) or isinstance(own, NestedType):
        return column
    return cast_column(column, own, wanted)


def shared_key(here: Side, there: Side) -> tuple[str, ...]:
    """The primary key of either side; empty if neither has one.

    Raises `UsageError` if the sides have different keys, or if one side lacks a column of the key.
    """
    keys = [tuple(side.key) for side in (here, there) if side.key]
    if not keys:
        return ()
    if len(set(map(frozenset, keys))) > 1:
        why = f"{', '.join(keys[0])} and {', '.join(keys[1])}"
        raise UsageError("the tables have different primary keys", why, "name the columns of one with --key")
    both = {field.name for field in here.fields} & {field.name for field in there.fields}
    if missing := [name for name in keys[0] if name not in both]:
        raise UsageError(f"column '{missing[0]}' of the primary key is not on both sides", hint="name other columns with --key")
    return keys[0]


def compared_fields(here: Side, there: Side, key: Sequence[str], columns: Sequence[str]) -> list[DataField]:
    """The key and the chosen columns (default: all shared columns), with types that hold the values of both sides.

    Raises `UsageError` for unknown columns, incompatible types, a key of a nested type, or if there is nothing to compare.
    """
    sides = [{field.name: field.type for field in side.fields} for side in (here, there)]
    for name in (*key, *columns):
        for side, known in zip((here, there), sides, strict=True):
            if name not in known:
                hint = did_you_mean(name, known).strip()
                raise UsageError(f"{side.name} has no column '{name}'", f"its columns are {', '.join(known)}", hint)
    chosen = [name for name in (columns or sides[0]) if name in sides[1] and name not in key]
    if not chosen and not key:
        raise UsageError("there is nothing to compare", f"{here.name} and {there.name} have no column in common")
    fields = [DataField(0, name, _common_type(name, *(side[name] for side in sides))) for name in (*key, *chosen)]
    nested = next((field for field in fields[: len(key)] if isinstance(field.type, NestedType)), None)
    if nested is not None:
        raise UsageError(f"column '{nested.name}' cannot be a key", f"{type_to_sql(nested.type)} has no order")
    return fields


_HELD_BY_DOUBLE = frozenset(["FLOAT", "INT", "SMALLINT", "TINYINT"])


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Whether the wide type can represent every value of the narrow one."""
    return keeps_values(narrow, wide) or (wide.root == "DOUBLE" and narrow.root in _HELD_BY_DOUBLE)


def _common_type(name: str, here: DataType, there: DataType) -> DataType:
    is_nested = isinstance(here, NestedType) or isinstance(there, NestedType)
    if is_nested:
        wanted = here if nullable_inside(arrow_type(here)).equals(nullable_inside(arrow_type(there))) else None
    else:
        wanted = here if _holds(here, there) else there if _holds(there, here) else None
    if wanted is None:
        what = f"column '{name}' is {type_to_sql(here)} on one side and {type_to_sql(there)} on the other"
        why = "nested types must be the same" if is_nested else "neither type can hold every value of the other"
        raise UsageError(what, why, "choose other columns with --select")
    return wanted.with_nullable(True)


def nullable_inside(t: pa.DataType) -> pa.DataType:
    """The type with all nested fields nullable."""
    if pa.types.is_struct(t):
        return pa.struct([pa.field(inner.name, nullable_inside(inner.type)) for inner in t])
    if pa.types.is_map(t):
        return pa.map_(nullable_inside(t.key_type), nullable_inside(t.item_type))
    if pa.types.is_list(t):
        return pa.list_(pa.field("element", nullable_inside(t.value_type)))
    return t
