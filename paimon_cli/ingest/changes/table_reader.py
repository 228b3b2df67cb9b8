"""Reads the rows of the events of tables: of many tables at once where their rows look the same, else table by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import DecimalType
from paimon_cli.errors import BadInput
from paimon_cli.ingest.changes.debezium_types import EventSchema
from paimon_cli.ingest.changes.event_cuts import FramedEvents
from paimon_cli.ingest.changes.event_formats import EventFormat, EventKind
from paimon_cli.ingest.changes.event_images import ImageReader, Images, Indices, ReadEvents, one_array, overlaid, rounded_rows
from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines
from paimon_cli.ingest.changes.event_payloads import names_in_key
from paimon_cli.ingest.changes.event_values import ValueForm
from paimon_cli.ingest.changes.mysql_types import form_of_mysql
from paimon_cli.ingest.changes.table_events import Codes, SourceTable, TableEvents, Wanted

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
        alike = dict[pa.Schema, list[int]]()
        for index, part in enumerate(parts):
            if part.truncates or self._tells_absent(part) or not (framed.at[part.places] >= 0).all():
                continue
            reader = self._reader(part.table, lines)
            schema = reader.row_schema(lines, part.places, part.numbers)
            if schema is not None:
                alike.setdefault(schema, []).append(index)
        found = dict[int, TableEvents]()
        for schema, chosen in alike.items():
            read = self._read_rows([parts[index].places for index in chosen], schema, lines, framed)
            for index, events in zip(chosen, read, strict=True):
                if events is not None:
                    found[index] = self._events(parts[index], events, parts[index].operations, [])
        return found

    def _read_rows(
        self, places: Sequence[Indices], schema: pa.Schema, lines: EventLines, framed: FramedEvents
    ) -> list[ReadEvents | None]:
        """The rows of tables with these columns, in one table of Arrow; None for those that it cannot read."""
        order = np.concatenate(places)
        at, count = framed.at[order], len(order)
        chosen, cut, keys = pa.array(at), framed.cut, self.format.images
        texts = pa.concat_arrays([cut.before.take(chosen), cut.after.take(chosen)])
        table = EventLines(lines.source, texts, np.zeros(2 * count, np.int64), 0).parsed(schema, "error")
        if table is None:
            return [None] * len(places)
        cells = {name: one_array(table[name]) for name in table.column_names}
        rows = Images(np.concatenate([cut.has_before[at], cut.has_after[at]]), cells)
        before, after = rows.slice(0, count), rows.slice(count, count)
        rounded = rounded_rows(before) | rounded_rows(after)
        if keys.is_partial:
            before = overlaid(before, after)
        ordered, beside = lines.take(order), {name: one.take(chosen) for name, one in framed.columns.items()}
        found, begin = list[ReadEvents | None](), 0
        for size in map(len, places):
            parts = {name: one.slice(begin, size) for name, one in beside.items()}
            images = before.slice(begin, size), after.slice(begin, size)
            read = ReadEvents(ordered.slice(begin, size), np.arange(size), *images, parts, keys)
            found.append(None if rounded[begin : begin + size].any() else read)
            begin += size
        return found

    def read(self, part: TablePart, lines: EventLines) -> TableEvents:
        """The rows of a part, whatever its events look like. `lines`: its events."""
        bad, positions = list[BadEvent](), lines.positions
        tells_absent = self._tells_absent(part)
        reader = self._reader(part.table, lines)
        read = reader.read(lines, part.numbers, bad, part.table.name, tells_absent=tells_absent)
        operations = part.operations
        if len(read.lines) < len(positions):
            operations = operations[np.isin(positions, read.lines.positions)]
        return self._events(part, read, operations, bad)

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

    def _forms(self, read: ReadEvents, schema: EventSchema | None) -> Mapping[str, ValueForm]:
        if schema is not None:
            return {name: form for name, form in schema.columns.items() if self._is_column(name)}
        types = read.parts.get(self.format.types) if self.format.types else None
        if types is None or not pa.types.is_struct(types.type):
            return {}
        forms = dict[str, ValueForm]()
        for name, texts in zip([one.name for one in types.type], types.flatten(), strict=True):
            named = pc.drop_null(texts)
            if len(named) and pa.types.is_string(named.type):
                forms[name] = form_of_mysql(named[len(named) - 1].as_py())
        return forms

    def _is_column(self, name: str) -> bool:
        hidden = self.format.images.not_columns
        return not (hidden and name.startswith(hidden))

    def _keys(self, read: ReadEvents) -> tuple[str, ...]:
        names = read.parts.get(self.format.key_names) if self.format.key_names else None
        if names is None or not pa.types.is_list(names.type):
            return names_in_key(read.lines.keys)
        named = pc.drop_null(names)
        return tuple(str(one) for one in named[len(named) - 1].as_py()) if len(named) else ()
