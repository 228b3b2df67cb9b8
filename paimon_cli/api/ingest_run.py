"""One run of `ingest`: blocks of events are decoded, their rows held by table, and committed when they fill their share of
memory.

1. decode a block (`EventDecoder`), which leaves out what a table has applied before.
2. each table converts its rows to its types; it may have to be created, or to follow the columns of its source, first.
3. once all tables hold enough, or the input has ended, each commits its rows in one snapshot, which also says how far they go.

A run that is killed has committed some tables further than others. The next one reads the sources again, and each table takes
what comes after its own marks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from paimon_cli.api.dead_letters import MOST_SHOWN, DeadLetters, bad_event
from paimon_cli.api.definition import create_defined
from paimon_cli.api.ingest_places import IngestPlace, TableNames
from paimon_cli.api.ingest_schema import sequence_column
from paimon_cli.api.ingest_sources import EventSource, EventSources
from paimon_cli.api.ingest_target import IngestedTable, IngestTarget
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.writing import Writing
from paimon_cli.catalog.definition_check import check_definition
from paimon_cli.catalog.metastore.settings import find_metastore
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_definition import TableDefinition, to_schema, with_key_options, with_postponed_writes
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import NotFound, PaimonError, PartialSuccess, UsageError
from paimon_cli.ingest.changes.event_decoder import Decoded, EventDecoder, SourceTable, Wanted
from paimon_cli.ingest.changes.event_formats import EVENT_FORMATS, PLAIN_JSON
from paimon_cli.ingest.changes.event_lines import EventLines
from paimon_cli.ingest.changes.read_marks import BlockMarks, LastEvent, check_mark, has_changed
from paimon_cli.ingest.input_files import SourceFile
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.choices import OnError
from paimon_cli.options.column_options import SEQUENCE_FIELD
from paimon_cli.options.option_text import counted, printable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import SystemClock

if TYPE_CHECKING:
    from paimon_cli.api.ingest_call import IngestCall

DEFAULT_USER = "paimon-cli-ingest"
HELD_SHARE, BLOCK_SHARE = 4, 16
"""The shares of `--memory` that rows take before they are committed, and the text of a block."""
_MOST_NAMED = 5
INCOMPLETE = "came without the row before; if one of them changed a key, the row of the old key stays"


@dataclass(frozen=True)
class IngestSite:
    """Where the tables are. `options`: of the catalog; `table_options`: of new tables; `table`: the only one, if it is open."""

    runtime: Runtime
    warehouse: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    table_options: Mapping[str, str] = field(default_factory=dict)
    branch: str | None = None
    allow_unsafe_commit: bool = False
    table: Writing | None = None


@dataclass
class IngestRun:
    """One call: the tables that it has met. `targets`: by name; `by_source`: None for tables that are left out. `_sizes`: of the
    files when they were last read, by path; `_last`: the last event that was read of each source.
    """

    site: IngestSite
    call: IngestCall
    is_dry: bool = False
    targets: dict[str, IngestTarget] = field(default_factory=dict)
    by_source: dict[SourceTable, IngestTarget | None] = field(default_factory=dict)
    _key: str = ""
    _sizes: dict[str, int] = field(default_factory=dict)
    _last: dict[str, LastEvent] = field(default_factory=dict)
    _block: tuple[EventLines, int, str] | None = None

    def __post_init__(self) -> None:
        call, site = self.call, self.site
        place = IngestPlace.of(call.into) if site.table is None else IngestPlace(table=site.table.name)
        self.names = TableNames(place, call)
        self.user = call.commit_user or DEFAULT_USER
        self.memory = call.memory or 0
        self.warehouse = site.warehouse if place.warehouse is None else place.warehouse
        self.runtime = replace(site.runtime, engine="local")
        self.format = EVENT_FORMATS[call.format]
        if self.format.name == PLAIN_JSON and place.table is None:
            what = "rows of plain JSON name no table"
            raise UsageError(what, "the events go into the tables of a database", "name a table: --into DB.TABLE")
        self.stops = call.on_error == OnError.FAIL
        self.decoder = EventDecoder(self.format, self._wanted, self._position)

    def run(self) -> list[IngestedTable]:
        """Read all sources to their ends."""
        given = self.call.sources
        names = tuple(os.fspath(one) for one in ([given] if isinstance(given, (str, os.PathLike)) else given))
        sources = EventSources(names, self.site.options)
        follows, rounds = self.call.follow and not self.is_dry, 0
        failure: PaimonError | None = None
        with DeadLetters(None if self.stops or self.is_dry else self.call.on_error, names) as self.letters:
            while failure is None:
                files = sources.files(may_come=follows)
                try:
                    for file in files:
                        self._read_file(sources, file, follows)
                except PaimonError as error:
                    failure = error  # what comes before is committed
                self._commit()
                rounds += 1
                is_over = not follows or rounds == self.call.max_rounds
                if is_over or (self.targets and all(target.failure is not None for target in self.targets.values())):
                    break
                SystemClock().sleep((self.call.interval or 0) / 1000)
        return self._ended(failure)

    def _read_file(self, sources: EventSources, file: SourceFile | None, follows: bool) -> None:
        """Read a file from where this run has read it to. One of the same size has nothing new."""
        if follows and file is not None and self._sizes.get(file.path) == file.size:
            return
        with sources.opened(file) as source:
            if follows and not source.is_begun:
                return
            self._read(source, follows)
        if file is not None:
            self._sizes[file.path] = file.size

    def _read(self, source: EventSource, is_growing: bool) -> None:
        self._key = source.key
        last = self._last.get(source.key)
        begin = 0 if last is None else last.begin
        previous = None if last is None else last.mark
        size = min(PIECES.event_block_bytes, max(1, self.memory // BLOCK_SHARE))
        for lines in source.blocks(size, begin, is_growing=is_growing):
            if last is not None:
                lines, last = last.following(lines), None
            self._block = lines, begin, source.name
            for target in self._resumed(source.key):
                self._check_mark(target)
            marks = BlockMarks(source.key, lines, previous)
            self._apply(lines, marks)
            begin, previous = lines.end, marks.end()
            if len(lines) and previous is not None:
                self._last[source.key] = LastEvent(int(lines.positions[-1]), previous)
            if sum(target.held_bytes for target in self.targets.values()) >= self.memory // HELD_SHARE:
                self._commit()
        self._block = None
        if last is not None:
            raise has_changed(source.name, last.mark)
        for target in self._resumed(source.key):
            if not is_growing and target.marks[source.key].position > begin:
                self._stop(target, has_changed(source.name, target.marks[source.key]))

    def _resumed(self, key: str) -> list[IngestTarget]:
        """The tables that have read from this source before."""
        return [target for target in self.targets.values() if target.failure is None and key in target.marks]

    def _check_mark(self, target: IngestTarget) -> None:
        """Stop a table that has read this source before, if the source has another event before the mark now."""
        if self._block is None or (mark := target.marks.get(self._key)) is None:
            return
        try:
            check_mark(mark, *self._block)
        except PaimonError as failure:
            self._stop(target, failure)

    def _apply(self, lines: EventLines, marks: BlockMarks) -> None:
        """Apply a block of events. Raises `BadInput` for a bad event whose table is not known, once those before it are held."""
        found = self.decoder.decode(lines)
        if found.bad and self.stops:
            first = min(found.bad, key=lambda event: event.position)
            before = lines.take(np.flatnonzero(lines.positions < first.position))
            self._apply_decoded(self.decoder.decode(before), replace(marks, lines=replace(before, end=first.position)))
            raise bad_event(first)
        self._apply_decoded(found, marks)

    def _apply_decoded(self, found: Decoded, marks: BlockMarks) -> None:
        for event in found.bad:
            self.letters.add(event, self.format.name)
        touched = dict[str, IngestTarget]()
        for events in found.events:
            target = self.by_source[events.table]
            if target is None or target.failure is not None:
                continue
            touched[target.name] = target
            bad = list(events.bad)
            if events.truncates:  # commits at once
                self.letters.flush()
            try:
                target.apply(events, marks, bad)
                if bad and self.stops:
                    raise bad_event(min(bad, key=lambda event: event.position))
            except PaimonError as failure:
                self._stop(target, failure)
            target.bad_events += len(bad)
            for event in bad:
                self.letters.add(event, self.format.name)
        for target in touched.values():
            target.note_read(marks)

    def _stop(self, target: IngestTarget, failure: PaimonError) -> None:
        target.failure = failure
        self.site.runtime.warn(f"{target.name} has stopped: {failure.message}")

    def _commit(self) -> None:
        """Commit what all tables hold. One that fails stops, and the others go on."""
        self.letters.flush()
        for target in list(self.targets.values()):
            if not target.held or self.is_dry:
                continue
            try:
                target.commit()
            except PaimonError as failure:
                self._stop(target, failure)
                continue
            if self.call.on_commit is not None:
                self.call.on_commit(target.result())

    def _wanted(self, table: SourceTable) -> Wanted | None:
        """What the decoder asks of a table; None if its events are left out, or it has stopped."""
        if table not in self.by_source:
            self.by_source[table] = self._target(table) if self.names.is_wanted(table) else None
        target = self.by_source[table]
        return None if target is None or target.failure is not None else target.wanted()

    def _position(self, table: SourceTable) -> int:
        target = self.by_source[table]
        mark = None if target is None else target.marks.get(self._key)
        return 0 if mark is None else mark.position

    def _target(self, table: SourceTable) -> IngestTarget:
        """The table for these events, opened if it exists. One that cannot be opened stops before its first event."""
        try:
            name = self.names.target(table)
        except UsageError as failure:
            name = printable(table.name[:MOST_SHOWN])
            return self.targets.setdefault(name, self._new(name, table, failure))
        if name not in self.targets:
            self.targets[name] = self._new(name, table)
        return self.targets[name]

    def _new(self, name: str, table: SourceTable, failure: PaimonError | None = None) -> IngestTarget:
        target = IngestTarget(
            name=name,
            user=self.user,
            keys=self.names.key(table),
            allows_append=self.format.name == PLAIN_JSON,
            create=lambda fields, keys: self._created(name, fields, keys),
            define=self._defined,
            is_dry=self.is_dry,
            stops_on_bad=self.stops,
            sequence=self.call.sequence,
        )
        if failure is None:
            try:
                target.open(self._opened(name))
            except PaimonError as error:
                failure = error
        if failure is not None:
            target.sources.add(table)
            self._stop(target, failure)
        else:
            self._check_mark(target)
        return target

    def _opened(self, name: str) -> Writing | None:
        """The table, with its own options; None if it does not exist."""
        if self.site.table is not None:
            return Writing(self.site.table.context, self.runtime)
        try:
            location = locate_table(name, self.warehouse, self.site.options, self.site.branch)
            location = replace(location, allow_unsafe_commit=self.site.allow_unsafe_commit)
            return Writing(open_table(location, {}, self.runtime.trace), self.runtime)
        except NotFound:
            return None

    def _definition(self, fields: Sequence[DataField], keys: tuple[str, ...]) -> TableDefinition:
        ordered = {} if self.call.sequence is None or not keys else {SEQUENCE_FIELD: sequence_column(self.call.sequence)}
        return TableDefinition(tuple(fields), keys, (), {**ordered, **self.site.table_options}, if_not_exists=True)

    def _created(self, name: str, fields: Sequence[DataField], keys: tuple[str, ...]) -> Writing:
        location = locate_table(name, self.warehouse, self.site.options, is_new=True)
        if location.identifier is not None:
            self._expect_database(location.identifier.database)
        location = replace(location, allow_unsafe_commit=self.site.allow_unsafe_commit)
        for warning in create_defined(location, self._definition(fields, keys)).warnings:
            self.site.runtime.warn(warning)
        opened = self._opened(name)
        assert opened is not None
        return opened

    def _expect_database(self, name: str) -> None:
        """Create the database if there is none."""
        metastore = find_metastore(self.warehouse, self.site.options)
        try:
            metastore.database(name)
        except NotFound:
            metastore.create_database(name)

    def _defined(self, fields: Sequence[DataField], keys: tuple[str, ...]) -> TableSchema:
        definition = with_key_options(self._definition(fields, keys))
        check_definition(definition)
        return to_schema(with_postponed_writes(definition), 0)

    def _ended(self, failure: PaimonError | None) -> list[IngestedTable]:
        """The results of all tables. Raises the failure of the run, or of the tables that have stopped."""
        results = [target.result() for target in self.targets.values()]
        for target in self.targets.values():
            if target.incomplete and not self.is_dry:
                self.site.runtime.warn(f"{target.name}: {counted(target.incomplete, 'update')} {INCOMPLETE}")
        stopped = [target for target in self.targets.values() if target.failure is not None]
        if failure is not None:
            failure.details["tables"] = results
            raise failure
        if stopped and not self.is_dry:
            raise self._failure(stopped, results)
        return results

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
