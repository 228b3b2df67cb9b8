"""The two sides of a comparison (a table at some version, or files) and the columns that they share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class SharedColumns:
    """The columns that both sides have. They go by their names on the second side: `names_here` are those on the first, by these.

    Versions of one table share columns by field id: a renamed column is the same, one that was dropped and added again is not.
    """

    here: Side
    there: Side
    names_here: Mapping[str, str]

    @staticmethod
    def of(here: Side, there: Side) -> SharedColumns:
        own, last = {field.name: field.id for field in here.fields}, _last_shared_id(here, there)
        by_id = {field.id: field.name for field in here.fields}
        pairs = dict[str, str]()
        for field in there.fields:
            if field.id <= last:
                pairs |= {field.name: by_id[field.id]} if field.id in by_id else {}
            elif own.get(field.name, NO_SHARED_ID) > last:
                pairs[field.name] = field.name
        return SharedColumns(here, there, pairs)

    @functools.cached_property
    def names_there(self) -> Mapping[str, str]:
        return {here: there for there, here in self.names_here.items()}

    @property
    def renamed(self) -> dict[str, str]:
        """The names there of columns that have another name here, by the latter."""
        return {here: there for there, here in self.names_here.items() if here != there}

    @property
    def only_here(self) -> list[str]:
        return [field.name for field in self.here.fields if field.name not in self.names_there]

    @property
    def only_there(self) -> list[str]:
        return [field.name for field in self.there.fields if field.name not in self.names_here]

    def named(self, name: str) -> str:
        """The name there of a column that may be given by its name here. Raises `UsageError` if a side lacks it."""
        if name in self.names_here:
            return name
        known = [{field.name for field in side.fields} for side in (self.here, self.there)]
        if name in self.names_there and name not in known[1]:
            return self.names_there[name]
        for side, names in zip((self.here, self.there), known, strict=True):
            if name not in names:
                listed = [field.name for field in side.fields]
                raise UsageError(
                    f"{side.name} has no column '{name}'",
                    f"its columns are {', '.join(listed)}",
                    did_you_mean(name, listed).strip(),
                )
        what = f"column '{name}' of {self.here.name} is another one than that of {self.there.name}"
        raise UsageError(
            what, "columns of one table are the same by their field ids, not by their names", "choose other columns with --select"
        )

    def primary_key(self) -> tuple[str, ...]:
        """The primary key of either side; empty if neither has one.

        Raises `UsageError` if the sides have different keys, or if one side lacks a column of the key.
        """
        own = tuple(self.names_there.get(name, name) for name in self.here.key)
        keys = [key for key in (own, tuple(self.there.key)) if key]
        if not keys:
            return ()
        if len(set(map(frozenset, keys))) > 1:
            why = f"{', '.join(keys[0])} and {', '.join(keys[1])}"
            raise UsageError("the tables have different primary keys", why, "name the columns of one with --key")
        if missing := [name for name in keys[0] if name not in self.names_here]:
            raise UsageError(
                f"column '{missing[0]}' of the primary key is not on both sides", hint="name other columns with --key"
            )
        return keys[0]

    def fields(self, key: Sequence[str], columns: Sequence[str]) -> list[DataField]:
        """The key and the chosen columns (default: all), with types that hold the values of both sides.

        Raises `UsageError` for incompatible types, a key of a nested type, or if there is nothing to compare.
        """
        here, there = ({field.name: field.type for field in side.fields} for side in (self.here, self.there))
        order = [self.names_there[field.name] for field in self.here.fields if field.name in self.names_there]
        chosen = [name for name in columns or order if name not in key]
        if not chosen and not key:
            what = f"{self.here.name} and {self.there.name} have no column in common"
            raise UsageError("there is nothing to compare", what)
        names = (*key, *chosen)
        fields = [DataField(0, name, _common_type(name, here[self.names_here[name]], there[name])) for name in names]
        nested = next((field for field in fields[: len(key)] if isinstance(field.type, NestedType)), None)
        if nested is not None:
            raise UsageError(f"column '{nested.name}' cannot be a key", f"{type_to_sql(nested.type)} has no order")
        return fields

    def check_condition(self, where: BoundSql | None) -> None:
        """Raise `UsageError` for a condition that would read different columns on the two sides."""
        if where is None or all(here == there for there, here in self.names_here.items()):
            return
        known = TableSchema(0, tuple(self.there.fields), 0, (), (), {}, None, 0)
        both = {field.name for field in self.here.fields}
        for name in parse_predicate(where.sql, known, where.params).columns:
            if self.names_here.get(name) != name and (name in both or name in self.names_here):
                what = f"the condition reads column '{name}', which is not the same on both sides"
                why = f"it is {quoted_name(self.names_here[name])} on the other side" if name in self.names_here else ""
                raise UsageError(what, why or "it was dropped and added again", "use columns that have kept their names")


NO_SHARED_ID = -1
"""Where `_last_shared_id` ends if field ids mean nothing: those of fields are not negative."""


def _last_shared_id(here: Side, there: Side) -> int:
    """The last field id that means the same column on both sides: of a branch and its origin, up to where it was created."""
    if not isinstance(here, TableSide) or not isinstance(there, TableSide) or here.table.url != there.table.url:
        return NO_SHARED_ID
    if here.table.branch == there.table.branch:
        return sys.maxsize
    own, other = here.table.schemas, there.table.schemas
    for number in sorted({*own.ids()} & {*other.ids()}, reverse=True):
        schema = own.find(number)
        if schema is not None and schema == other.find(number):
            return schema.highest_field_id
    return NO_SHARED_ID


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
