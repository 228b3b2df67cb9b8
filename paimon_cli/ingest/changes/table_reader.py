"""Reads the rows of the events of tables: of many tables at once where their rows look the same, else table by table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.data_type import DecimalType, StringType
from paimon_cli.errors import BadInput
from paimon_cli.ingest.changes.debezium_types import EventSchema
from paimon_cli.ingest.changes.event_cuts import EventPart
from paimon_cli.ingest.changes.event_formats import EventFormat, EventKind
from paimon_cli.ingest.changes.event_frames import FramedEvents, FrameParts
from paimon_cli.ingest.changes.event_images import Images, Indices, images_in, one_array, overlaid, rounded_rows
from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines, parsed_objects
from paimon_cli.ingest.changes.event_payloads import names_in_key
from paimon_cli.ingest.changes.event_values import ValueForm
from paimon_cli.ingest.changes.image_reader import ImageReader
from paimon_cli.ingest.changes.mysql_types import form_of_mysql
from paimon_cli.ingest.changes.read_events import ReadEvents, ReadParts
from paimon_cli.ingest.changes.table_events import Codes, SourceTable, TableEvents, Wanted
from paimon_cli.ingest.changes.whole_numbers import events_with_whole_numbers, rows_in_doubt

MAX_TABLES = 10_000
"""Tables of one stream. More names than that come from a source that makes them up."""


@dataclass(frozen=True)
class TablePart:
    """Consecutive events of a table: their `places` in the block, and what they do. `schema`: that they declare."""

    table: SourceTable
    places: Indices
    operations: Codes
    schema: EventSchema | None
    wanted: Wanted

    @property
    def truncates(self) -> bool:
        return int(self.operations[0]) == EventKind.TRUNCATE

    @property
    def numeric(self) -> frozenset[str]:
        """The columns that are known to be no text."""
        declared = {} if self.schema is None else {name: form.type for name, form in self.schema.columns.items()}
        types = {**self.wanted.types, **declared}
        return frozenset(name for name, kind in types.items() if not isinstance(kind, StringType))

    @property
    def numbers(self) -> dict[str, pa.DataType]:
        """Arrow types of the columns whose numbers must be exact, or told from texts."""
        if self.schema is not None:
            return {n: f.numbers for n, f in self.schema.columns.items() if f.numbers is not None}
        return {n: pa.decimal128(38, t.scale) for n, t in self.wanted.types.items() if isinstance(t, DecimalType)}


@dataclass
class TableReader:
    """Reads the events of all tables of a stream, and remembers what they look like."""

    format: EventFormat
    _readers: dict[SourceTable, ImageReader] = field(default_factory=dict)

    def read_cut(self, parts: Sequence[TablePart], lines: EventLines, framed: FramedEvents) -> dict[int, TableEvents]:
        """The rows of those parts, by their index, whose events were cut, and are as they were before."""
        alike, order = dict[tuple[pa.Schema, tuple[str, ...]], list[int]](), self.format.order
        joints = order.joints(EventPart.IMAGES) if order is not None else frozenset[str]()
        for index, part in enumerate(parts):
            if part.truncates or self._tells_absent(part) or not (framed.at[part.places] >= 0).all():
                continue
            found_schema = self._reader(part.table, lines).cut_schema(lines, part.places, part.numbers, joints)
            if found_schema is not None:
                schema, doubles = found_schema
                if doubles:
                    numeric = part.numeric
                    doubles = tuple(name for name in doubles if name not in numeric)
                alike.setdefault((schema, doubles), []).append(index)
        found = dict[int, TableEvents]()
        for (schema, doubles), chosen in alike.items():
            places = [(index, parts[index].places) for index in chosen]
            for index, events in self._read_alike(places, schema, doubles, lines, framed):
                found[index] = self._events(parts[index], events, parts[index].operations, [])
        return found

    def _read_alike(
        self,
        tables: Sequence[tuple[int, Indices]],
        schema: pa.Schema,
        doubles: Sequence[str],
        lines: EventLines,
        framed: FramedEvents,
    ) -> Iterator[tuple[int, ReadEvents]]:
        """The rows of tables with these columns, read as one table of Arrow, without those of tables that it cannot read.

        `doubles`: columns that become text, in which it cannot tell whole numbers from others.
        """
        order = np.concatenate([places for _, places in tables])
        at, keys = framed.at[order], self.format.images
        table = parsed_objects(framed.cut.images.of(at).texts(), schema, "error")
        columns = None if table is None else {name: one_array(table[name]) for name in table.column_names}
        images = None if columns is None else images_in(columns, keys, len(order))
        if images is None:  # an event of one table is not to slow the others
            half = len(tables) // 2
            for some in (tables[:half], tables[half:]) if half else ():
                yield from self._read_alike(some, schema, doubles, lines, framed)
            return
        after, before, event = images
        ordered, begin = lines.sharing(order), 0
        refused = rounded_rows(before) | rounded_rows(after)
        in_doubt = rows_in_doubt((before, after), doubles, len(event))
        if in_doubt.any():
            refused |= np.isin(event, events_with_whole_numbers(ordered, event, in_doubt, doubles))
        if keys.is_partial:
            before = overlaid(before, after)
        ends = list(accumulate(len(places) for _, places in tables))
        if keys.is_list:
            ends = np.searchsorted(event, ends).tolist()
        bad_rows = np.flatnonzero(refused)
        spoiled = frozenset(np.searchsorted(ends, bad_rows, side="right").tolist() if len(bad_rows) else ())
        for number, ((index, places), first, last) in enumerate(zip(tables, (0, *ends), ends, strict=False)):
            end = begin + len(places)
            if number not in spoiled:
                rows, parts = slice(first, last), FrameParts(framed, at[begin:end])
                read = ordered.slice(begin, len(places)), event[rows] - begin, before.slice(rows), after.slice(rows)
                yield index, ReadEvents(*read, parts, keys)
            begin = end

    def read(self, part: TablePart, lines: EventLines) -> TableEvents:
        """The rows of a part, whatever its events look like. `lines`: its events."""
        bad, positions = list[BadEvent](), lines.positions
        tells_absent = self._tells_absent(part)
        reader = self._reader(part.table, lines)
        read = reader.read(lines, part.numbers, bad, part.table.name, part.numeric, tells_absent=tells_absent)
        operations = part.operations
        if len(read.lines) < len(positions):
            operations = operations[np.isin(positions, read.lines.positions)]
        return self._events(part, read, operations, bad)

    def refused(self, table: SourceTable, lines: EventLines, bad: tuple[BadEvent, ...]) -> TableEvents:
        """Events of a table of which nothing is read. `lines`: of their source."""
        none, nothing = np.empty(0, np.int64), Images(np.empty(0, bool), {})
        read = ReadEvents(lines.take(none), none, nothing, nothing, ReadParts({}), self.format.images)
        return TableEvents(table, self.format, read, none, {}, bad=bad)

    def _reader(self, table: SourceTable, lines: EventLines) -> ImageReader:
        if table not in self._readers:
            if len(self._readers) >= MAX_TABLES:
                what = f"{lines.source} names more than {MAX_TABLES:,} tables"
                raise BadInput(what, "no database has that many", "choose some with --include", source=lines.source)
            self._readers[table] = ImageReader(self.format.images)
        return self._readers[table]

    def _tells_absent(self, part: TablePart) -> bool:
        return self.format.images.is_partial and part.wanted.needs_before

    def _events(self, part: TablePart, read: ReadEvents, operations: Codes, bad: list[BadEvent]) -> TableEvents:
        truncates = bool(len(operations)) and int(operations[0]) == EventKind.TRUNCATE
        of_rows = np.empty(0, np.int64) if truncates else operations[read.event]
        forms, keys = self._forms(read, part.schema), self._keys(read)
        return TableEvents(part.table, self.format, read, of_rows, forms, keys, tuple(bad), truncates)

    def cut_by_types(self, events: TableEvents) -> list[TableEvents]:
        """The events, cut where the types differ that they declare for columns beside their images, as Canal's do."""
        key, lines = self.format.types, events.read.lines
        cuts = np.flatnonzero(events.read.parts.changes(key)) + 1 if key and not events.truncates else ()
        if not len(cuts):
            return [events]
        found, bad = list[TableEvents](), list(events.bad)
        for begin, end in pairwise((0, *cuts, len(lines))):
            read = events.read.between(begin, end)
            before = [one for one in bad if end == len(lines) or one.position < lines.positions[end]]
            bad = [one for one in bad if one not in before]
            operations = events.operations[events.read.rows_between(begin, end)]
            forms = self._forms(read, None)
            found.append(replace(events, read=read, operations=operations, forms=forms, bad=tuple(before)))
        return found

    def _forms(self, read: ReadEvents, schema: EventSchema | None) -> Mapping[str, ValueForm]:
        if schema is not None:
            hidden = self.format.images.not_columns
            return {n: form for n, form in schema.columns.items() if not n.startswith(hidden)} if hidden else schema.columns
        types = read.parts.last_texts(self.format.types) if self.format.types else {}
        return {name: form_of_mysql(text) for name, text in types.items()}

    def _keys(self, read: ReadEvents) -> tuple[str, ...]:
        names = read.parts.last(self.format.key_names) if self.format.key_names else None
        return tuple(map(str, names)) if isinstance(names, list) else names_in_key(read.lines.keys, self.format)
