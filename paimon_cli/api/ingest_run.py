"""One run of `ingest`: blocks of events are decoded, their rows held by table, and committed when they fill their share of
memory.

1. a reading (`ingest_reading`) hands over the blocks of its sources: files, or topics of Kafka.
2. decode a block (`EventDecoder`), which leaves out what a table has applied before.
3. each table converts its rows to its types; it may have to be created, or to follow the columns of its source, first.
4. once all tables hold enough, or the input has ended, each commits its rows in one snapshot, which also says how far they go.

A run that is killed has committed some tables further than others. The next one reads the sources again, and each table takes
what comes after its own marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from paimon_cli.api.dead_letters import MOST_SHOWN, DeadLetters, bad_event
from paimon_cli.api.ingest_places import IngestPlace, TableNames
from paimon_cli.api.ingest_rows import StoppingEvent
from paimon_cli.api.ingest_schema import ColumnRoom, sequence_column
from paimon_cli.api.ingest_site import IngestSite
from paimon_cli.api.ingest_target import IngestTarget
from paimon_cli.api.ingested_table import IngestedTable
from paimon_cli.errors import BadInput, PaimonError, PartialSuccess, UsageError, as_paimon_error
from paimon_cli.ingest.changes.derived_columns import DerivedColumns
from paimon_cli.ingest.changes.event_decoder import Decoded, EventDecoder
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS, PLAIN_JSON
from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines, in_order_read
from paimon_cli.ingest.changes.read_marks import BlockMarks, Mark, check_mark, has_changed
from paimon_cli.ingest.changes.table_events import SourceTable, TableEvents, Wanted
from paimon_cli.ingest.changes.table_reader import MAX_TABLES
from paimon_cli.options.choices import OnError
from paimon_cli.options.column_options import SEQUENCE_FIELD
from paimon_cli.options.option_text import counted, printable
from paimon_cli.pieces import PIECES
from paimon_cli.requests.ingesting import INTERVAL_MILLIS

if TYPE_CHECKING:
    from paimon_cli.api.ingest_call import IngestCall

DEFAULT_USER = "paimon-cli-ingest"
HELD_SHARE, BLOCK_SHARE = 4, 16
"""The shares of `--memory` that rows take before they are committed, and the text of a block."""
_MOST_NAMED, _MOST_REFUSED = 5, 20
CUT = "…"
COLUMN_BYTES, _LEAST_COLUMNS = 1024, 10_000
"""What a column takes of `--memory` while the run lasts, and how many there may always be."""
INCOMPLETE = "came without the row before; if one of them changed a key, the row of the old key stays"


@dataclass
class IngestRun:
    """One call: the tables that it has met. `targets`: by name; `by_source`: those that take events. `letters`: where
    bad events are set apart. `gone`: of sources whose first events are gone, the position of the first one that is left.
    `behind`: of topics, how many events are yet to be read. `continued`: topics of which this run does not read the first
    events; `unread`: for such a topic, a table that has read nothing of it, so that its events are left out. `nameless`: bad
    events that belong to no table, and were not set apart before. `leaves_out`: there are tables that the call does not choose.
    """

    site: IngestSite
    call: IngestCall
    letters: DeadLetters
    is_dry: bool = False
    targets: dict[str, IngestTarget] = field(default_factory=dict)
    by_source: dict[SourceTable, IngestTarget] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    continued: set[str] = field(default_factory=set)
    unread: dict[str, str] = field(default_factory=dict)
    nameless: int = 0
    leaves_out: bool = False
    _key: str = ""
    _block: tuple[EventLines, int] | None = None
    _stopped: int = 0
    _refused: list[IngestTarget] = field(default_factory=list)

    def __post_init__(self) -> None:
        call, site = self.call, self.site
        place = IngestPlace.of(call.into) if site.table is None else IngestPlace(table=site.table.name)
        self.names = TableNames(place, call)
        self.user = call.commit_user or DEFAULT_USER
        self.memory = call.memory or 0
        if place.warehouse is not None:
            self.site = site = replace(site, warehouse=place.warehouse)
        self.format = EVENT_FORMATS[call.format]
        if self.format.name == PLAIN_JSON and place.table is None:
            what = "rows of plain JSON name no table"
            raise UsageError(what, "the events go into the tables of a database", "name a table: --into DB.TABLE")
        self.derived = DerivedColumns.of(call.computed or (), call.metadata_column or ())
        self.stops = call.on_error == OnError.FAIL
        self.room = ColumnRoom(max(_LEAST_COLUMNS, self.memory // COLUMN_BYTES))
        self.decoder = EventDecoder(self.format, self.wanted, self._position)

    @property
    def interval_millis(self) -> int:
        """The time between two commits of a run that follows its sources."""
        return INTERVAL_MILLIS if self.call.interval is None else self.call.interval

    @property
    def block_bytes(self) -> int:
        """The size of a block of events."""
        return min(PIECES.event_block_bytes, max(1, self.memory // BLOCK_SHARE))

    @property
    def is_full(self) -> bool:
        """Whether the tables hold their share of the memory, so that they must commit."""
        return sum(target.held_bytes for target in self.targets.values()) >= self.memory // HELD_SHARE

    @property
    def has_stopped(self) -> bool:
        """Whether no table can go on."""
        return bool(self.targets) and all(target.failure is not None for target in self.targets.values())

    def apply(self, key: str, lines: EventLines, begin: int, previous: Mark | None) -> Mark | None:
        """Apply the next block of a source, and return the mark after it.

        `key`: of the source; `begin`: where the block begins; `previous`: the mark after the block before. Raises `BadInput` for
        a bad event whose table is not known, once those before it are held.
        """
        self._key, self._block = key, (lines, begin)
        for target in self.resumed(key):
            self._check_mark(target)
        for part in lines.parts(PIECES.event_block_rows):
            self.letters.expect_room()
            marks = BlockMarks(key, part, previous)
            self._apply(part, marks)
            previous = marks.end
        self._block = None
        return previous

    def resumed(self, key: str) -> list[IngestTarget]:
        """The tables that have read from this source before."""
        return [target for target in self.targets.values() if target.failure is None and key in target.marks]

    def _check_mark(self, target: IngestTarget) -> None:
        """Stop a table that has read this source before, if the source has another event before the mark now."""
        if self._block is None or (mark := target.marks.get(self._key)) is None:
            return
        lines, begin = self._block
        try:
            if self._key in self.behind and mark.position > lines.end + self.behind[self._key]:
                raise has_changed(lines.source, mark, lines.unit)
            check_mark(mark, lines, begin, self.gone.get(self._key, 0))
        except PaimonError as failure:
            self.stop(target, failure)

    def _apply(self, lines: EventLines, marks: BlockMarks) -> None:
        found = self.decoder.decode(lines)
        if found.bad and self.stops:
            first = min(found.bad, key=lambda event: event.position)
            before = lines.take(np.flatnonzero(lines.positions < first.position))
            self._apply_decoded(self.decoder.decode(before), replace(marks, lines=replace(before, end=first.position)))
            raise bad_event(first)
        self._apply_decoded(found, marks)

    def _apply_decoded(self, found: Decoded, marks: BlockMarks) -> None:
        bad, blocks = list(found.bad), dict[str, list[TableEvents]]()
        for events in found.events:
            target = self.by_source[events.table]
            if target.failure is None:
                blocks.setdefault(target.name, []).append(events)
        for name, parts in blocks.items():
            self._apply_parts(self.targets[name], parts, marks, bad)
        self._set_apart(bad)

    def _apply_parts(
        self, target: IngestTarget, parts: Sequence[TableEvents], marks: BlockMarks, set_apart: list[BadEvent]
    ) -> None:
        """Apply what a block of events has for one table, perhaps of several tables of the source.

        These come one after the other, as they begin: a truncation then knows whose rows the table has. If one has an event that
        the table cannot take, the events of the others before it count.
        `set_apart`: bad events of the block that are yet to be; those of the table are added.
        """
        bad = list[BadEvent]()
        failure: PaimonError | None = None
        for events in sorted(parts, key=lambda part: part.begin):
            at = events.begin
            if target.end is not None and at >= target.end:
                continue
            if events.truncates:  # commits at once
                self._set_apart([event for event in (*set_apart, *bad) if event.position < at])
                self.letters.flush()
            of_part = list(events.bad)
            try:
                stopping = target.apply(events, marks, of_part)
                if of_part and self.stops:
                    first = min(of_part, key=lambda event: event.position)
                    stopping = StoppingEvent(first.position, bad_event(first))
                if stopping is not None:
                    at = stopping.position
                    raise stopping.failure
            except Exception as problem:  # not even a bug that one table meets holds the others back
                failure = as_paimon_error(problem) if target.end_at(at) else failure
            bad += of_part
        bad = [event for event in bad if target.end is None or event.position <= target.end]
        target.bad_events += len(bad)
        set_apart += bad
        target.hold(marks)
        if failure is not None:
            self.stop(target, failure)

    def _set_apart(self, bad: Sequence[BadEvent]) -> None:
        """In the order in which they were read: so they are applied again."""
        for event in in_order_read(bad):
            is_new = self.letters.add(event, self.format.name)
            self.nameless += is_new and not event.table

    def stop(self, target: IngestTarget, failure: PaimonError) -> None:
        """Let a table take no more events."""
        target.failure = failure
        self._stopped += 1
        if self._stopped <= _MOST_REFUSED:
            self.site.runtime.warn(f"{target.name} has stopped: {failure.message}")

    def reopen(self, target: IngestTarget) -> None:
        """Drop what a table has not committed, and look how far it has come."""
        try:
            target.reopen()
        except PaimonError as failure:
            self.stop(target, failure)

    def commit(self) -> None:
        """Commit what all tables hold. One that fails stops, and the others go on."""
        self.letters.flush()
        for target in list(self.targets.values()):
            if not target.held or self.is_dry:
                continue
            try:
                target.commit()
            except Exception as failure:  # as above
                self.stop(target, as_paimon_error(failure))
                continue
            if self.call.on_commit is not None:
                self.call.on_commit(target.result())

    def wanted(self, table: SourceTable) -> Wanted | None:
        """What the decoder asks of a table; None if its events are left out, or it has stopped."""
        target = self.by_source.get(table) or self._target(table)
        if target is None or target.failure is not None:
            return None
        if self._key in self.continued and self._key not in target.marks.keys() | target.pending.keys():
            self.unread[self._key] = target.name
            return None
        try:
            return target.wanted()
        except PaimonError as failure:  # such as a damaged schema
            self.stop(target, failure)
            return None

    def _position(self, table: SourceTable) -> int:
        mark = self.by_source[table].marks.get(self._key)
        return 0 if mark is None else mark.position

    def _target(self, table: SourceTable) -> IngestTarget | None:
        """The table for these events, opened if it exists; None if they are left out.

        One that cannot be opened stops before its first event, and so does one above the limit, or whose name no table can have:
        of these only the first are kept, for the result.
        """
        if not self.names.is_wanted(table):
            self.leaves_out = True
            return None
        failure: PaimonError | None = None
        try:
            name = self.names.target(table)
        except UsageError as problem:
            name, failure = f"{printable(table.name[:MOST_SHOWN])}{CUT if len(table.name) > MOST_SHOWN else ''}", problem
        if failure is None and len(self.by_source) >= MAX_TABLES:
            failure = BadInput(
                f"the events name more than {MAX_TABLES:,} tables", "no database has that many", "choose some with --include"
            )
        if name not in self.targets:
            same = [] if failure is None else [one for one in self._refused if type(one.failure) is type(failure)]
            if len(same) == (1 if isinstance(failure, BadInput) else _MOST_REFUSED):
                return same[-1]
            target = self.targets[name] = self._new(name, table, failure)
            if failure is not None:
                self._refused.append(target)
        target = self.targets[name]
        if failure is None:
            self.by_source[table] = target
        elif target.failure is None:  # it has the rows of other tables of the source
            self.stop(target, failure)
        return target

    def _new(self, name: str, table: SourceTable, failure: PaimonError | None = None) -> IngestTarget:
        site = self.site
        target = IngestTarget(
            name=name,
            user=self.user,
            keys=self.names.key(table),
            allows_append=self.format.name == PLAIN_JSON,
            create=lambda fields, keys: self._ordered(keys).created(name, fields, keys),
            define=lambda fields, keys: self._ordered(keys).defined(fields, keys),
            is_dry=self.is_dry,
            sequence=self.call.sequence,
            derived=self.derived,
            behind=self.behind,
            room=self.room,
        )
        if failure is None:
            try:
                target.open(site.opened(name))
            except PaimonError as error:
                failure = error
        if failure is not None:
            if len(table.name) <= MOST_SHOWN:
                target.sources.add(table)
            self.stop(target, failure)
        else:
            self._check_mark(target)
        return target

    def _ordered(self, keys: tuple[str, ...]) -> IngestSite:
        """The site, whose new tables are ordered by the number that the call names."""
        ordered = {} if self.call.sequence is None or not keys else {SEQUENCE_FIELD: sequence_column(self.call.sequence)}
        return replace(self.site, table_options={**ordered, **self.site.table_options})

    def results(self) -> list[IngestedTable]:
        """What was done to each table."""
        return [target.result() for target in self.targets.values()]

    def ended(self, failure: PaimonError | None) -> list[IngestedTable]:
        """The results of all tables. Raises the failure of the run, or of the tables that have stopped."""
        results = self.results()
        if not self.is_dry:
            self._warn()
        unmatched = self.names.unmatched(self.by_source) if self.by_source or self.leaves_out else []
        if unmatched:
            self.site.runtime.warn(f"of no table were events read that {' and '.join(unmatched[:_MOST_NAMED])} could mean")
        columns = [column for one in results for column in one.columns]
        for column in self.derived.computed:  # null in the tables that lack it; if all do, its name may be wrong
            if columns and not any(one.startswith(f"{column.source} ") for one in columns):
                self.site.runtime.warn(
                    f"'{column.name}' is null in all tables: none has a column {column.source} to compute it from"
                )
        stopped = [target for target in self.targets.values() if target.failure is not None]
        if failure is not None:
            failure.details["tables"] = results
            raise failure
        if stopped and not self.is_dry:
            raise self._failure(stopped, results)
        return results

    def _warn(self) -> None:
        """Say what the results of the tables do not say, with few lines for many tables."""
        warn = self.site.runtime.warn
        incomplete = [target for target in self.targets.values() if target.incomplete]
        if len(incomplete) > _MOST_NAMED:
            updates = sum(target.incomplete for target in incomplete)
            warn(f"{counted(len(incomplete), 'table')}: {counted(updates, 'update')} {INCOMPLETE}")
        else:
            for target in incomplete:
                warn(f"{target.name}: {counted(target.incomplete, 'update')} {INCOMPLETE}")
        if self.nameless:
            where = "" if self.stops else f", set apart in {self.call.on_error}"
            warn(f"{counted(self.nameless, 'bad event')} without the name of a table{where}")

    def _failure(self, stopped: Sequence[IngestTarget], results: list[IngestedTable]) -> PaimonError:
        first = stopped[0].failure
        assert first is not None
        if len(self.targets) == 1:
            first.details["tables"] = results
            return first
        names = ", ".join(target.name for target in stopped[:_MOST_NAMED])
        more = f" and {len(stopped) - _MOST_NAMED} more" if len(stopped) > _MOST_NAMED else ""
        what = f"{counted(len(stopped), 'table')} of {len(self.targets)} stopped: {names}{more}"
        hint = (
            f"{first.hint}; then run it again: the other tables have their events"
            if first.hint
            else "run it again when it is mended"
        )
        return PartialSuccess(what, first.message, hint, tables=results)
