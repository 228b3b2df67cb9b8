"""The schema of a table that gets events: it is created for the columns of its source, or follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paimon_cli.catalog.alter_table import alter_table, altered_schema
from paimon_cli.catalog.column_changes import AddColumn
from paimon_cli.catalog.schema_drift import changes_to_follow
from paimon_cli.datatypes.data_type import BIGINT, DataField, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import AlreadyExists, BadInput, UsageError
from paimon_cli.ingest.changes.derived_columns import NOTHING_DERIVED, DerivedColumns
from paimon_cli.ingest.changes.key_images import ChangeKey
from paimon_cli.ingest.changes.table_events import SourceTable, TableEvents, Wanted
from paimon_cli.lsm.aggregators.catalog import function_of
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.options.column_options import SEQUENCE_FIELD

if TYPE_CHECKING:
    from paimon_cli.api.writing import Writing
    from paimon_cli.metadata.table_schema import TableSchema

MAX_ALTERS = 5
"""How often a change of the schema is tried again because others have changed it at the same time."""


def sequence_column(path: str) -> str:
    """The column for a number of events, `source_lsn` for `source.lsn`."""
    return path.replace(".", "_").strip("_")


@dataclass(frozen=True)
class EventColumns:
    """The columns that events have. `table`: of the source; `types`: by column; `declared`: those whose types the events say;
    `keys`: the primary key that they name.
    """

    table: SourceTable
    types: Mapping[str, DataType]
    declared: frozenset[str]
    keys: tuple[str, ...]

    @staticmethod
    def of(events: TableEvents) -> EventColumns:
        found = {name: form.type for name, form in events.forms.items()}
        for image in (events.read.after, events.read.before):
            for name in image.columns:
                found.setdefault(name, events.form(name).type)
        return EventColumns(events.table, found, frozenset(events.forms), events.keys)


@dataclass
class ColumnRoom:
    """How many columns the tables of a run may have in sum: each takes memory as long as the run lasts."""

    most: int
    taken: int = 0

    def take(self, name: str, columns: int) -> None:
        """Take room for more columns of a table. Raises `BadInput` if there is none."""
        if self.taken + columns > self.most:
            what = f"{name}: the tables have more than {self.most:,} columns"
            raise BadInput(what, "each takes memory while events are applied", "raise --memory, or choose tables with --include")
        self.taken += columns


@dataclass
class FollowingTable:
    """A table that follows the columns of its source. `create` makes it from columns and a key; in a dry run `define` makes only
    its schema, `planned`.

    `keys`: the primary key of a new table, if the options name it. `sequence`: the number of events that orders rows. `derived`:
    columns that events lack. `room`: for its columns. `table`: None while it does not exist. `added`, `widened`: columns with
    their types, and `followed_millis`: when that was last done.
    """

    name: str
    keys: tuple[str, ...]
    allows_append: bool
    create: Callable[[Sequence[DataField], tuple[str, ...]], Writing]
    define: Callable[[Sequence[DataField], tuple[str, ...]], TableSchema]
    is_dry: bool = False
    sequence: str | None = None
    derived: DerivedColumns = NOTHING_DERIVED
    table: Writing | None = None
    planned: TableSchema | None = None
    created: bool = False
    followed_millis: int | None = None
    room: ColumnRoom | None = None
    _columns: int = 0
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)

    @property
    def schema(self) -> TableSchema | None:
        """The schema, in a dry run the one that it would have."""
        return self.planned if self.planned is not None else None if self.table is None else self.table.context.schema

    def wanted(self) -> Wanted:
        """What a decoder must know of the table."""
        schema = self.schema
        types = {} if schema is None else {column.name: column.type for column in schema.fields}
        return Wanted(types, self.needs_before)

    @property
    def needs_before(self) -> bool:
        """Whether updates must retract the row before: the table sums its rows up, or writes its input as its changelog."""
        schema = self.schema
        if schema is None or not schema.primary_keys:
            return False
        options = schema.typed_options
        if options.changelog_producer.records_input:
            return True
        rules = options.merge_engine
        is_summed = rules.combines_versions and not rules.missing_columns_stay
        return is_summed or not (rules.newest_wins or RowKind.UPDATE_BEFORE in refused_kinds(schema))

    def retracted(self, schema: TableSchema) -> list[str]:
        """The columns outside of the key, if deletions and updates take their values back, write them into the changelog, or are
        ordered by some of them: a deletion without its sequence field, or those of a sequence group, would lose against the row.
        What an event tells itself, such as its time, a deletion has, too.
        """
        options = schema.typed_options
        engine = options.merge_engine
        aggregates = not engine.missing_columns_stay or any(function_of(name, options) for name in schema.field_names)
        takes_back = engine.combines_versions and aggregates and not options.ignore_delete
        number = None if self.sequence is None else sequence_column(self.sequence)
        groups = {} if options.ignore_delete else options.sequence_groups
        told = {number, *schema.primary_keys, *self.derived.told_by({*schema.primary_keys})}
        is_ordered = not told.issuperset([*options.sequence_fields, *(name for names, _ in groups.values() for name in names)])
        if not schema.primary_keys or not (takes_back or is_ordered or options.changelog_producer.records_input):
            return []
        known = {*schema.primary_keys, *self.derived.names, number}
        return [name for name in schema.field_names if name not in known]

    def change_key(self, schema: TableSchema, named: Sequence[str]) -> ChangeKey:
        """The primary key, and what of it is not of the source's. `named`: the key that the events name. If they name none, it is
        taken to be the table's without what partitions add.
        """
        source_key = set(named) or set(schema.primary_keys) - {*schema.partition_keys, *self.derived.names}
        told = source_key | self.derived.told_by(source_key)
        own = {*source_key, *self.derived.names, None if self.sequence is None else sequence_column(self.sequence)}
        moving = tuple(name for name in schema.primary_keys if name not in told)
        return ChangeKey(schema.primary_keys, moving, tuple(name for name in schema.field_names if name not in own))

    def follow(self, events: EventColumns) -> None:
        """Create the table, or let it follow the columns of the events."""
        schema = self.schema
        own = {} if schema is None else {column.name: column.type for column in schema.fields if column.name in events.types}
        found = {**events.types, **self.derived.types({**events.types, **own})}
        if self.sequence is not None:
            number = sequence_column(self.sequence)
            if number in events.types:
                raise UsageError(
                    f"{self.name}: events have a column {number} of their own",
                    f"--sequence {self.sequence} would put its number there",
                    f"let the column order a new table with --option {SEQUENCE_FIELD}={number}, or choose another number",
                )
            found[number] = BIGINT
        self._expect_own_names(found)
        if self.room is not None and (more := len(found.keys() | own.keys()) - self._columns) > 0:
            self.room.take(self.name, more)
            self._columns += more
        if self.schema is None:
            self._create(found, events)
            return
        for attempt in range(MAX_ALTERS):
            schema = self.schema
            changes = changes_to_follow(schema, found, events.declared)
            if not changes:
                return
            try:
                self._alter(schema, changes)
            except AlreadyExists:
                if attempt == MAX_ALTERS - 1 or self.table is None:
                    raise
                self.table.refresh()
                continue
            for change in changes:
                named = self.added if isinstance(change, AddColumn) else self.widened
                named.append(f"{change.path[0]} {type_to_sql(change.type)}")  # type: ignore[union-attr, arg-type]

    def _expect_own_names(self, found: Mapping[str, DataType]) -> None:
        """Raise `BadInput` for a new column whose name differs only in case from another: engines may take them for one."""
        own = frozenset(() if self.schema is None else self.schema.field_names)
        new = [name for name in found if name not in own]
        known = {name.casefold(): name for name in own} if new else {}
        for name in new:
            if (other := known.setdefault(name.casefold(), name)) != name:
                where = "it has" if other in own else "they have"
                raise BadInput(
                    f"{self.name}: events have a column '{name}', and {where} '{other}'",
                    "the names differ only in case, and many engines would take them for one",
                    "rename one of them, or map the table to a new one",
                    column=name,
                )

    def _alter(self, schema: TableSchema, changes: Sequence[Any]) -> None:
        if self.is_dry or self.table is None:
            self.planned = altered_schema(schema, changes, True, 0)
            return
        alter_table(self.table.context, changes)
        self.table.refresh()
        self.followed_millis = self.table.context.clock.now_millis()

    def _create(self, found: Mapping[str, DataType], events: EventColumns) -> None:
        keys = self.keys or events.keys
        if not keys and not self.allows_append:
            raise UsageError(
                f"the primary key of {self.name} is not known",
                "its events do not name it",
                f"name it: --primary-key {events.table.name}=COLUMN, or create the table",
            )
        if missing := [key for key in keys if key not in found]:
            raise UsageError(
                f"{self.name} cannot have the primary key {','.join(keys)}",
                f"its events have no column '{missing[0]}'; they have {', '.join(list(found)[:20]) or 'none'}",
                "name other columns with --primary-key",
            )
        fields = [DataField(n, name, kind.with_nullable(name not in keys)) for n, (name, kind) in enumerate(found.items())]
        if self.is_dry:
            self.planned = self.define(fields, tuple(keys))
        else:
            self.table = self.create(fields, tuple(keys))
        self.created = True


def refused_kinds(schema: TableSchema) -> dict[int, str]:
    """The kinds of rows that the table does not take, and why not."""
    if not schema.primary_keys:
        return {}
    engine = merge_engine(schema, schema.typed_options)
    refusals = {kind: engine.refusal(kind) for kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE)}
    return {kind: str(refusal) for kind, refusal in refusals.items() if refusal is not None}
