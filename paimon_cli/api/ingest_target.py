"""A table that gets events: they become rows in its types, which are committed with the marks of their sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from paimon_cli.api.ingest_schema import FollowingTable, refused_kinds, sequence_column
from paimon_cli.commit.deduplication import last_commit
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput, Conflict, NotSupported, PaimonError, Refused, UsageError
from paimon_cli.ingest.changes.change_rows import ChangeRows, rows_of
from paimon_cli.ingest.changes.event_decoder import SourceTable, TableEvents
from paimon_cli.ingest.changes.event_lines import BadEvent, Positions
from paimon_cli.ingest.changes.event_values import as_column
from paimon_cli.ingest.changes.key_images import KeyImages
from paimon_cli.ingest.changes.read_marks import (
    MARKS_PROPERTY,
    TABLES_PROPERTY,
    BlockMarks,
    Mark,
    Marks,
    marks_of_text,
    marks_text,
    tables_of_text,
    tables_text,
)
from paimon_cli.ingest.faults import WrongType, shown
from paimon_cli.ingest.row_sources import ArrowRows
from paimon_cli.ingest.typed_columns import cast_column
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, RowKind
from paimon_cli.options.column_options import SEQUENCE_FIELD
from paimon_cli.read.html_text import ShownAsTable

if TYPE_CHECKING:
    from paimon_cli.api.writing import Writing
    from paimon_cli.metadata.table_schema import TableSchema

KIND_COLUMN = "_ROW_KIND"
MAX_LISTED = 100
"""Snapshots that a result lists, the last ones: a run that follows its sources makes any number."""
APPLYING, STOPPED = "applied", "stopped"


@dataclass(frozen=True)
class IngestedTable(ShownAsTable):
    """What an ingest did to a table. `sources`: tables of the source; `state`: `applied`, or `stopped` with the `error` and its
    code.

    `inserts`, `updates`, `deletes`: rows by kind; `truncations`: how often it was emptied; `bad_events`: stopped it, or set
    apart. `created`, `columns_added`, `types_changed`: its schema. `incomplete`: updates without the row before.
    """

    table: str
    sources: tuple[str, ...] = ()
    state: str = APPLYING
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncations: int = 0
    bad_events: int = 0
    incomplete: int = 0
    created: bool = False
    columns: tuple[str, ...] = ()
    columns_added: tuple[str, ...] = ()
    types_changed: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()
    error: str | None = None
    error_code: int | None = None


@dataclass(kw_only=True)
class IngestTarget(FollowingTable):
    """One table of an ingest, and the rows that it is yet to commit.

    `sources`: the tables whose rows it has. `held`: rows that are not yet committed, of `held_bytes`. `pending`: marks of the
    sources of these rows; `marks`: of those that are committed. `failure`: why it has stopped. `stops_on_bad`: a bad event stops
    it.
    """

    user: str
    stops_on_bad: bool = True
    sources: set[SourceTable] = field(default_factory=set)
    held: list[pa.Table] = field(default_factory=list)
    held_bytes: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)
    pending: dict[str, Mark] = field(default_factory=dict)
    failure: PaimonError | None = None
    counts: Counter[int] = field(default_factory=Counter)
    truncations: int = 0
    bad_events: int = 0
    incomplete: int = 0
    snapshots: list[int] = field(default_factory=list)
    key_images: KeyImages = field(default_factory=KeyImages)
    _next_id: int = 0

    def open(self, table: Writing | None) -> None:
        """Take a table that exists, and find out how far it has come. Raises `Refused` if that cannot be told."""
        self.table = table
        if table is None:
            return
        last = last_commit(table.context, self.user)
        if last is None:
            return
        properties = last.properties or {}
        marks, tables = marks_of_text(properties.get(MARKS_PROPERTY)), tables_of_text(properties.get(TABLES_PROPERTY, "[]"))
        if marks is None or tables is None:
            raise Refused(
                f"cannot determine how far user {self.user} has read its sources for {self.name}",
                "the snapshot of its last commit has expired, and its record does not say it",
                "look which events are there, and go on with another --commit-user and sources that begin after them",
            )
        self.marks, self.sources, self._next_id = marks, tables, last.identifier + 1

    def apply(self, events: TableEvents, marks: BlockMarks, bad: list[BadEvent]) -> None:
        """Convert events to rows, and hold them. Raises errors that stop the table.

        `bad`: those among the events that could not be read, to which others are added. If a bad event stops the table, what
        comes after it is left out, so that what is held is complete up to its mark.
        """
        if events.truncates:
            self._truncate(events, marks)
            return
        try:
            rows, positions = self._rows(events, bad)
        except PaimonError:
            self._mark(marks, int(events.read.lines.positions[0]) if len(events.read.lines) else None)
            raise
        if self.stops_on_bad and bad:
            end = min(event.position for event in bad)
            rows = rows.filter(pa.array(positions < end))
            self._mark(marks, end)
        self._count(rows)
        if rows.num_rows and not self.is_dry:
            self.held.append(rows)
            self.held_bytes += rows.nbytes

    def _expect_one_schema(self, table: SourceTable) -> None:
        """Raise `UsageError` if tables of several schemas have one name: only those of several databases are shards."""
        sources = self.sources | {table}
        if len({source.schema for source in sources}) > 1:
            names = ", ".join(sorted(f"{source.schema}.{source.table}" for source in sources))
            raise UsageError(
                f"{names} would be merged in {self.name}", "they are different tables", "name one with --table-mapping"
            )
        self.sources = sources

    def _truncate(self, events: TableEvents, marks: BlockMarks) -> None:
        """Commit what is held, and then empty the table, in a commit that says that it is done."""
        position = int(events.read.lines.positions[0])
        self._mark(marks, position)
        sources = self.sources | {events.table}
        if len(sources) > 1:
            names = ", ".join(sorted(source.name for source in sources))
            what = f"{self.name}: {events.table.name} was emptied by a truncation"
            raise NotSupported(
                what, f"the table has the rows of {names}, which cannot be told apart", "map them to tables of their own"
            )
        self.sources = sources
        self.truncations += 1
        if self.table is None or self.is_dry:
            return
        from paimon_cli.jobs.metadata_jobs import plan_drop, run_drop
        from paimon_cli.jobs.table_change import identity_of

        self.commit()
        self.table.check_commit()
        after = {**self.marks, marks.key: marks.after(position)}
        context = self.table.context
        identity = replace(identity_of(context, self.user, self._next_id), properties=self._properties(after))
        done = run_drop(context, (), plan_drop(context, (), identity), identity)
        if done.already_committed:
            self._expect_same(after)
        if done.snapshots:
            self.snapshots = [*self.snapshots, *(snapshot.id for snapshot in done.snapshots)][-MAX_LISTED:]
            self.marks, self._next_id = after, self._next_id + 1

    def _properties(self, marks: Marks) -> tuple[tuple[str, str], ...]:
        return (MARKS_PROPERTY, marks_text(marks, self.user)), (TABLES_PROPERTY, tables_text(self.sources))

    def _mark(self, marks: BlockMarks, position: int | None) -> None:
        """Remember that events are held up to a position within a block."""
        if position is not None and (mark := marks.before(position)) is not None:
            self.pending[marks.key] = mark

    def _rows(self, events: TableEvents, bad: list[BadEvent]) -> tuple[pa.Table, Positions]:
        """The rows of events in the types of the table, and the position of the event of each."""
        self._expect_one_schema(events.table)
        self.follow(events)
        schema = self.schema
        assert schema is not None
        rows = rows_of(
            events,
            schema.primary_keys,
            needs_before=self.needs_before,
            bad=bad,
            retracted=self.retracted(schema),
            key_images=self.key_images,
            refused=refused_kinds(schema),
        )
        if not schema.primary_keys and (rows.kinds != RowKind.INSERT).any():
            raise UsageError(
                f"{self.name} has no primary key, and events update or delete rows",
                "without a key no row can be found again",
                "create it with a primary key, such as --primary-key id",
            )
        self.incomplete += rows.incomplete
        if self.sequence is not None:
            rows = self._sequenced(rows, events, self.sequence, bad)
        return self._typed(rows, events, schema, bad)

    def _sequenced(self, rows: ChangeRows, events: TableEvents, path: str, bad: list[BadEvent]) -> ChangeRows:
        """The rows with the number that orders them. Events without it are added to `bad`, and left out.

        Raises `UsageError` if the table ignores the number, `BadInput` if no event has it.
        """
        column = sequence_column(path)
        schema = self.schema
        assert schema is not None
        if schema.primary_keys and column not in schema.options.get(SEQUENCE_FIELD, "").split(","):
            why = f"its option {SEQUENCE_FIELD} is {schema.options.get(SEQUENCE_FIELD) or 'not set'}"
            raise UsageError(
                f"{self.name} is not ordered by {column}", why, f"set {SEQUENCE_FIELD}={column}, or leave --sequence out"
            )
        numbers = events.read.part(path)
        if numbers is None or not pa.types.is_integer(numbers.type):
            is_column = path in events.read.after.columns
            hint = f"a column orders new tables with --option {SEQUENCE_FIELD}={path}" if is_column else "name another one"
            raise BadInput(f"{self.name}: an event has no number '{path}'", "--sequence orders rows by it", hint)
        lacks = numbers.is_null().to_numpy(zero_copy_only=False)[rows.event]
        for index in np.unique(rows.event[lacks]):
            bad.append(events.read.lines.bad(int(index), f"it has no number '{path}', which orders rows", events.table.name))
        numbered = replace(rows, cells={**rows.cells, column: numbers.take(pa.array(rows.event))})
        return numbered.without(lacks) if lacks.any() else numbered

    def _typed(
        self, rows: ChangeRows, events: TableEvents, schema: TableSchema, bad: list[BadEvent]
    ) -> tuple[pa.Table, Positions]:
        """The rows in the types of the table. Events with values that do not fit are added to `bad`, and left out."""
        columns, wrong = dict[str, pa.Array](), dict[int, str]()
        for column in schema.fields:
            if column.name not in rows.cells:
                if not column.type.nullable and column.default_value is None:
                    wrong |= dict.fromkeys(range(len(rows)), f"it lacks column '{column.name}', which is NOT NULL")
                columns[column.name] = pa.nulls(len(rows), arrow_type(column.type))
                continue
            try:
                cells, misfits = as_column(rows.cells[column.name], events.form(column.name), column.type)
            except WrongType as problem:
                what = f"{self.name}: column '{column.name}' is {type_to_sql(column.type)}, and events have {problem.found}"
                why = problem.why or "types are only widened, within their kind"
                raise BadInput(what, why, "alter the column, or map the table to a new one", column=column.name) from problem
            wrong |= {cell.row: f"column '{column.name}' cannot take {shown(cell.value)}: {cell.why}" for cell in misfits}
            if not column.type.nullable and column.name not in schema.primary_keys and column.default_value is None:
                nulls = np.flatnonzero(cells.is_null().to_numpy(zero_copy_only=False) & (rows.kinds != RowKind.DELETE))
                wrong |= {int(row): f"column '{column.name}' is NOT NULL" for row in nulls if int(row) not in wrong}
            columns[column.name] = cells
        texts = pa.DictionaryArray.from_arrays(pa.array(rows.kinds), pa.array(KIND_TEXTS))
        table, event = pa.table({**columns, KIND_COLUMN: texts}), rows.event
        if wrong:
            left_out = {int(event[row]): why for row, why in sorted(wrong.items(), reverse=True)}
            bad += [events.read.lines.bad(index, why, events.table.name) for index, why in left_out.items()]
            keep = ~np.isin(event, list(left_out))
            table, event = table.filter(pa.array(keep)), event[keep]
        return table, events.read.lines.positions[event]

    def _count(self, rows: pa.Table) -> None:
        for counted in rows[KIND_COLUMN].cast(pa.string()).value_counts().to_pylist():
            self.counts[KIND_TEXTS.index(counted["values"])] += counted["counts"]

    def note_read(self, marks: BlockMarks) -> None:
        """Remember that the events of a block are held, unless the table stopped within it."""
        if self.failure is None and (mark := marks.end()) is not None:
            self.pending[marks.key] = mark

    def commit(self) -> None:
        """Commit the rows that are held, with the marks of their sources, as one snapshot."""
        rows, marks = self.held, {**self.marks, **self.pending}
        self.held, self.held_bytes, self.pending = [], 0, {}
        if not rows or self.table is None:
            return
        from paimon_cli.jobs.write_request import WriteRequest

        data = self._united(rows)
        request = WriteRequest(
            source=ArrowRows(data, f"the events of {self.name}"),
            op_column=KIND_COLUMN,
            commit_user=self.user,
            commit_id=self._next_id,
            properties=self._properties(marks),
        )
        self.table.check_commit()
        done = self.table._write(request, None)
        if done.already_committed:
            self._expect_same(marks)
        self.snapshots = [*self.snapshots, *(snapshot.id for snapshot in done.snapshots)][-MAX_LISTED:]
        self.marks, self._next_id = marks, self._next_id + 1

    def _united(self, parts: Sequence[pa.Table]) -> pa.Table:
        """All rows in the latest types: columns may have been added or widened since the first of them."""
        assert self.table is not None
        schema, tables = self.table.context.schema, list[pa.Table]()
        for part in parts:
            columns = {
                column.name: pa.chunked_array([cast_column(one, column.type) for one in part[column.name].chunks])
                if column.name in part.column_names
                else pa.nulls(part.num_rows, arrow_type(column.type))
                for column in schema.fields
            }
            tables.append(pa.table({**columns, KIND_COLUMN: part[KIND_COLUMN].cast(pa.string())}))
        return pa.concat_tables(tables)

    def _expect_same(self, marks: Marks) -> None:
        """Raise `Conflict` if another process has committed under our name, and other events."""
        assert self.table is not None
        last = last_commit(self.table.context, self.user)
        found = None if last is None else marks_of_text((last.properties or {}).get(MARKS_PROPERTY))
        if found != marks:
            raise Conflict(
                f"another ingest of user {self.user} has committed to {self.name}",
                "it began from the same events",
                "let one process at a time ingest for a user, or give each its own --commit-user",
            )

    def result(self) -> IngestedTable:
        """What was done so far."""
        schema, failure = self.schema, self.failure
        return IngestedTable(
            table=self.name,
            sources=tuple(sorted(source.name for source in self.sources)),
            state=APPLYING if failure is None else STOPPED,
            inserts=self.counts[RowKind.INSERT],
            updates=self.counts[RowKind.UPDATE_AFTER],
            deletes=self.counts[RowKind.DELETE],
            truncations=self.truncations,
            bad_events=self.bad_events,
            incomplete=self.incomplete,
            created=self.created,
            columns=() if schema is None else tuple(f"{column.name} {type_to_sql(column.type)}" for column in schema.fields),
            columns_added=tuple(self.added),
            types_changed=tuple(self.widened),
            primary_key=() if schema is None else schema.primary_keys,
            snapshots=tuple(self.snapshots),
            error=None if failure is None else failure.message,
            error_code=None if failure is None else failure.exit_code,
        )
