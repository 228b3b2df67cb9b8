"""A table that gets events: it holds their rows, and commits them with the marks of their sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from paimon_cli.api.ingest_rows import KIND_COLUMN, EventTable, PlacedRows, StoppingEvent
from paimon_cli.api.ingested_table import APPLYING, STOPPED, IngestedTable
from paimon_cli.commit.deduplication import last_commit
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import Conflict, NotSupported, PaimonError, Refused
from paimon_cli.ingest.changes.change_rows import has_rows
from paimon_cli.ingest.changes.event_lines import BadEvent, PositionUnit
from paimon_cli.ingest.changes.read_lag import LAG_PROPERTY, ReadLag
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
from paimon_cli.ingest.changes.table_events import TableEvents
from paimon_cli.ingest.row_sources import ArrowRows, RowSource
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, RowKind

if TYPE_CHECKING:
    from paimon_cli.api.writing import Writing
    from paimon_cli.jobs.write_job import WriteSummary
    from paimon_cli.jobs.write_request import WriteRequest

MAX_LISTED = 100
"""Snapshots that a result lists, the last ones: a run that follows its sources makes any number."""
MAX_COMMITS = 5
"""How often a commit is tried that conflicts with other commits."""


NO_ROWS: Mapping[int, int] = MappingProxyType({})


def counts_of(rows: pa.Table) -> Counter[int]:
    """How many rows there are of each kind."""
    found = Counter[int]()
    for chunk in rows[KIND_COLUMN].chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        kinds, counts = encoded.dictionary.to_pylist(), np.bincount(encoded.indices.to_numpy()).tolist()
        found.update({KIND_TEXTS.index(kind): count for kind, count in zip(kinds, counts, strict=False) if count})
    return found


@dataclass(kw_only=True)
class IngestTarget(EventTable):
    """One table of an ingest, and the rows that it is yet to commit.

    `block`: rows of the block of events that is being applied; `end`: the position of the first of its events that the table
    cannot take. `held`: rows that are not yet committed, of `held_bytes`. `pending`: marks of the sources of these rows; `marks`:
    of those that are committed; `next_id`: the identifier of the next commit. `behind`: events of each topic that are yet to be
    read. `failure`: why it has stopped.
    """

    user: str
    block: list[PlacedRows] = field(default_factory=list)
    end: int | None = None
    held: list[pa.Table] = field(default_factory=list)
    held_bytes: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)
    pending: dict[str, Mark] = field(default_factory=dict)
    failure: PaimonError | None = None
    counts: Counter[int] = field(default_factory=Counter)
    truncations: int = 0
    bad_events: int = 0
    snapshots: list[int] = field(default_factory=list)
    behind: Mapping[str, int] = field(default_factory=dict)
    next_id: int = 0

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
            lost = "the snapshot of its last commit has expired, and its record does not say it"
            raise Refused(
                f"cannot determine how far user {self.user} has read its sources for {self.name}",
                lost if MARKS_PROPERTY not in properties else "the properties of its last commit cannot be read",
                "look which events are there, and go on with another --commit-user and sources that begin after them",
            )
        self.marks, self.sources, self.next_id = marks, self.sources | tables, last.identifier + 1
        lag = ReadLag.of(properties) or ReadLag()
        self.newest_millis = self.newest_millis or lag.time
        self.followed_millis = self.followed_millis or lag.schema

    def reopen(self) -> None:
        """Drop what is not committed, and find out how far the table has come, perhaps by another process."""
        self.block, self.end = [], None
        self.held, self.held_bytes, self.pending = [], 0, {}
        if self.table is not None and not self.is_dry:
            self.table.refresh()
            self.open(self.table)

    def apply(self, events: TableEvents, marks: BlockMarks, bad: list[BadEvent]) -> StoppingEvent | None:
        """Convert events of a block to rows. Returns the first one that the table cannot take, if there is one.

        Raises errors that stop the table before all of them. `bad`: those among the events that could not be read, to which
        others are added.
        """
        if events.truncates:
            self._truncate(events, marks)
        elif has_rows(events, bad):
            self.block.append(self.rows(events, bad))
            return self.block[-1].stop
        return None

    def end_at(self, position: int) -> bool:
        """Leave out this event of the block and those after it. Returns whether there was no such event before it."""
        is_first = self.end is None or position < self.end
        self.end = position if is_first else self.end
        return is_first

    def hold(self, marks: BlockMarks) -> None:
        """Hold the rows of the block in the order in which they were read, so that what is held is complete up to its mark."""
        block, end, self.block, self.end = self.block, self.end, [], None
        if end is not None:
            block = [PlacedRows(rows.filter(pa.array(at < end)), at[at < end]) for rows, at, _ in block]
        mark = marks.end if end is None else marks.before(end)
        if mark is not None:
            self.pending[marks.key] = mark
        parts = [part for part in block if part.rows.num_rows]
        if self.is_dry:
            for part in parts:
                self.counts += counts_of(part.rows)
        elif parts:
            rows = self.in_order(parts)
            self.held.append(rows)
            self.held_bytes += rows.nbytes

    def _truncate(self, events: TableEvents, marks: BlockMarks) -> None:
        """Commit what is held, and then empty the table, in a commit that says that it is done."""
        position = int(events.read.lines.positions[0])
        sources = self.sources | {events.table}
        if len(sources) > 1:
            names = ", ".join(sorted(source.name for source in sources))
            what = f"{self.name}: {events.table.name} was emptied by a truncation"
            raise NotSupported(
                what, f"the table has the rows of {names}, which cannot be told apart", "map them to tables of their own"
            )
        if events.read.lines.unit == PositionUnit.OFFSET and len(self.marks.keys() | self.pending.keys() | {marks.key}) > 1:
            raise NotSupported(
                f"{self.name}: {events.table.name} was emptied by a truncation",
                "its events come from several partitions of topics, so that it cannot be told which rows came before",
                "empty the table yourself, and begin after the event with ?offsets=PARTITION:OFFSET",
            )
        self.sources, self.end = sources, position
        self.hold(marks)
        self.truncations += 1
        if self.table is None or self.is_dry:
            return
        from paimon_cli.jobs.metadata_jobs import plan_drop, run_drop
        from paimon_cli.jobs.table_change import identity_of

        self.commit()
        self.table.check_commit()
        after = {**self.marks, marks.key: marks.after(position)}
        context = self.table.context
        identity = replace(identity_of(context, self.user, self.next_id), properties=self._properties(after))
        done = run_drop(context, (), plan_drop(context, (), identity), identity)
        if done.already_committed:
            self._expect_same(after)
        if done.snapshots or done.already_committed:
            self.snapshots = [*self.snapshots, *(snapshot.id for snapshot in done.snapshots)][-MAX_LISTED:]
            self.marks, self.next_id = after, self.next_id + 1

    def _properties(self, marks: Marks, counts: Mapping[int, int] = NO_ROWS) -> tuple[tuple[str, str], ...]:
        rows = [counts.get(kind, 0) for kind in (RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE)]
        known = [self.behind[key] for key in marks if key in self.behind]
        lag = ReadLag(self.newest_millis, sum(known) if known else None, self.followed_millis, *rows)
        marked = (MARKS_PROPERTY, marks_text(marks, self.user)), (TABLES_PROPERTY, tables_text(self.sources))
        return *marked, (LAG_PROPERTY, lag.text())

    def commit(self) -> None:
        """Commit the rows that are held, with the marks of their sources, as one snapshot.

        Raises `Conflict` if another process has applied events of the same sources meanwhile, or was faster each time. One that
        reads other sources for the same user is met: its marks are kept.
        """
        rows, pending = self.held, self.pending
        self.held, self.held_bytes, self.pending = [], 0, {}
        if not rows or self.table is None:
            return
        counts = sum(map(counts_of, rows), Counter[int]())  # their kinds are texts, or numbers with a dictionary
        for attempt in range(MAX_COMMITS):
            marks = {**self.marks, **pending}
            try:
                done = self._write(rows, marks, counts)
            except Conflict:
                if attempt == MAX_COMMITS - 1:
                    raise
            else:
                if not done.already_committed:
                    self.snapshots = [*self.snapshots, *(snapshot.id for snapshot in done.snapshots)][-MAX_LISTED:]
                    self.marks, self.next_id = marks, self.next_id + 1
                    break
                if not pending:  # a batch of Spark has no marks: its number says whether it is committed
                    break
            if self._met_others(pending):
                break
        else:
            why = f"in each of {MAX_COMMITS} attempts another ingest of user {self.user} committed first"
            raise Conflict(f"events were not committed to {self.name}", why, "run it again, or give each its own --commit-user")
        self.counts += counts

    def _write(self, rows: Sequence[pa.Table], marks: Marks, counts: Mapping[int, int]) -> WriteSummary:
        assert self.table is not None
        request = self.request(ArrowRows(self.united(rows), f"the events of {self.name}"), marks, counts)
        self.table.check_commit()
        return self.table._write(request, None)

    def request(self, source: RowSource, marks: Marks, counts: Mapping[int, int]) -> WriteRequest:
        """The write of rows of events, with the marks of their sources. `counts`: of the rows, by kind."""
        from paimon_cli.jobs.write_request import WriteRequest

        return WriteRequest(
            source=source,
            op_column=KIND_COLUMN,
            commit_user=self.user,
            commit_id=self.next_id,
            properties=self._properties(marks, counts),
        )

    def _met_others(self, pending: Marks) -> bool:
        """Take over what other processes have committed under our name. Returns whether these rows are among it.

        Raises `Conflict` if they have applied other events of the same sources.
        """
        assert self.table is not None
        before = self.marks
        self.table.refresh()
        if not pending:
            return False
        self.open(self.table)
        if all(self.marks.get(key) == mark for key, mark in pending.items()):
            return True
        if any(self.marks.get(key) != before.get(key) for key in pending):
            raise self._overtaken()
        return False

    def _expect_same(self, marks: Marks) -> None:
        """Raise `Conflict` if another process has committed under our name, and other events."""
        assert self.table is not None
        last = last_commit(self.table.context, self.user)
        found = None if last is None else marks_of_text((last.properties or {}).get(MARKS_PROPERTY))
        if found != marks:
            raise self._overtaken()

    def _overtaken(self) -> Conflict:
        return Conflict(
            f"another ingest of user {self.user} has committed to {self.name}",
            "it began from the same events",
            "let one process at a time read a source for a user, or give each its own --commit-user",
        )

    def result(self) -> IngestedTable:
        """What was done so far."""
        failure = self.failure
        try:
            schema = self.schema
        except PaimonError:
            if failure is None:
                raise
            schema = None  # which is why it has stopped
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
