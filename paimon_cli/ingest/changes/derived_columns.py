"""Columns that events do not have themselves: computed from one of theirs, or facts about the event, such as its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import BIGINT, INT, STRING, DataType, TimestampType
from paimon_cli.errors import UsageError
from paimon_cli.ingest.changes.change_rows import UNCHANGED
from paimon_cli.ingest.changes.computed_columns import ComputedColumn
from paimon_cli.ingest.changes.event_images import Images
from paimon_cli.ingest.changes.event_lines import PositionUnit
from paimon_cli.ingest.changes.event_values import ValueForm, as_column
from paimon_cli.ingest.changes.table_events import TableEvents
from paimon_cli.ingest.faults import WrongType

_OF_TOPICS = ("topic", "partition", "offset")
_METADATA: Mapping[str, DataType] = {
    "op_ts": TimestampType("TIMESTAMP_LTZ", precision=3),
    "database": STRING,
    "schema": STRING,
    "table": STRING,
    "topic": STRING,
    "partition": INT,
    "offset": BIGINT,
}
"""The facts about an event, with the types of their columns."""
_TIMES = {
    "debezium": (("source.ts_ms", 1), ("ts_ms", 1)),
    "debezium-flat": (("__source_ts_ms", 1), ("__ts_ms", 1)),
    "canal": (("es", 1), ("ts", 1)),
    "maxwell": (("ts", 1000),),
}
"""Where events say when the change was made, by format, and how many milliseconds the number counts."""


@dataclass(frozen=True)
class MetadataColumn:
    """A column with a fact about each event."""

    name: str
    fact: str

    @staticmethod
    def of(text: str) -> MetadataColumn:
        """`op_ts`, or `changed_at=op_ts` for another name. Raises `UsageError`."""
        first, sign, second = (part.strip() for part in text.partition("="))
        name, fact = (first, second) if sign else (first, first)
        if fact not in _METADATA or not name:
            raise UsageError(f"--metadata-column {text}", f"there are {', '.join(_METADATA)}", "such as changed_at=op_ts")
        return MetadataColumn(name, fact)

    @property
    def type(self) -> DataType:
        return _METADATA[self.fact]

    def values(self, events: TableEvents) -> pa.Array:
        """The fact of each event. Raises `UsageError` if events of this source have none."""
        lines, table, count = events.read.lines, events.table, len(events.read.lines)
        if self.fact == "op_ts":
            return _times(events)
        if self.fact not in _OF_TOPICS:
            return pa.repeat(pa.scalar(getattr(table, self.fact), pa.string()), count)
        if lines.unit != PositionUnit.OFFSET:
            raise UsageError(f"--metadata-column {self.fact}", f"{lines.source} is no topic", "leave it out")
        topic, _, number = lines.source.rpartition("/")
        if self.fact == "offset":
            return pa.array(lines.positions)
        return pa.repeat(topic if self.fact == "topic" else pa.scalar(int(number), pa.int32()), count)


def newest_millis(events: TableEvents) -> int | None:
    """When the newest of the changes was made, in epoch millis; None if the events do not say it."""
    found = _told_times(events)
    newest = None if found is None else pa.compute.max(found[0]).as_py()
    return None if found is None or newest is None else newest * found[1]


def _told_times(events: TableEvents) -> tuple[pa.Array, int] | None:
    """The times of changes as the events tell them, and how many milliseconds a unit of them is; None if they do not."""
    for path, millis in _TIMES.get(events.format.name, ()):
        found = events.read.part(path)
        if found is not None and pa.types.is_integer(found.type):
            return found.cast(pa.int64()), millis
    return None


def _times(events: TableEvents) -> pa.Array:
    if (told := _told_times(events)) is not None:
        return pa.compute.multiply(*told).cast(pa.timestamp("ms", "UTC"))
    if events.format.name not in _TIMES:
        raise UsageError("--metadata-column op_ts", f"events of {events.format.name} have no time", "leave it out")
    return pa.nulls(len(events.read.lines), pa.timestamp("ms", "UTC"))


@dataclass(frozen=True)
class DerivedColumns:
    """All such columns of a table."""

    computed: tuple[ComputedColumn, ...] = ()
    metadata: tuple[MetadataColumn, ...] = ()

    @staticmethod
    def of(computed: Sequence[str], metadata: Sequence[str]) -> DerivedColumns:
        """As options name them. Raises `UsageError`."""
        found = DerivedColumns(tuple(map(ComputedColumn.of, computed)), tuple(map(MetadataColumn.of, metadata)))
        if len(set(found.names)) < len(found.names):
            raise UsageError("--computed and --metadata-column name a column twice", ", ".join(found.names), "name each once")
        return found

    @property
    def names(self) -> list[str]:
        return [*(column.name for column in self.computed), *(column.name for column in self.metadata)]

    def told_by(self, key: Set[str]) -> set[str]:
        """The columns that stay as they are while these columns of the source do, or that each event tells itself."""
        return {column.name for column in self.computed if column.source in key} | {column.name for column in self.metadata}

    def types(self, types: Mapping[str, DataType]) -> dict[str, DataType]:
        """The types of these columns, beside columns of events with these types. Raises `UsageError`.

        What is computed from a column that events lack is null: not all tables of a source have it. But where a name differs only
        in case, that column is meant, and all rows would silently get null.
        """
        for name in self.names:
            if name in types:
                raise UsageError(f"events have a column {name} of their own", "--computed and --metadata-column add others")
        for column in self.computed:
            same = (name for name in types if name.casefold() == column.source.casefold())
            if column.source not in types and (meant := next(same, None)) is not None:
                what = f"--computed {column.name}: events have no column {column.source}"
                raise UsageError(what, f"they have {meant}, and names are taken as they are written", f"write {meant}")
        computed = {column.name: column.type(types.get(column.source, STRING)) for column in self.computed}
        return {**computed, **{column.name: column.type for column in self.metadata}}

    def added(self, events: TableEvents, types: Mapping[str, DataType]) -> tuple[TableEvents, dict[int, str]]:
        """The events with these columns in both images, and why some events, by index, cannot have them.

        `types`: the table's.
        """
        if not self.names or events.truncates:
            return events, {}
        read, wrong = events.read, dict[int, str]()
        forms = {**events.forms, **{column.name: ValueForm(column.type) for column in self.metadata}}
        facts = {column.name: column.values(events).take(pa.array(read.event)) for column in self.metadata}
        images = []
        for image in (read.before, read.after):
            columns = {**image.columns, **facts}
            for column in self.computed:
                source = image.columns.get(column.source)
                form = events.form(column.source)
                kind = types.get(column.source, form.type)
                if source is None and column.refuses(kind) is not None:
                    kind = form.type  # no event has the column: all cells are null
                cells = pa.nulls(len(image.present)) if source is None else source
                if image is read.after:
                    cells = _with_values_before(cells, read.before.columns.get(column.source))
                try:
                    typed, misfits = as_column(cells, form, kind)
                except WrongType as problem:  # its own column stops the table, at the event that has the first such value
                    typed, misfits = pa.nulls(len(cells), arrow_type(kind)), problem.cells
                values, refused = column.values(typed, kind)
                values = _left_out_where(cells, values)
                forms[column.name] = ValueForm(column.type(kind))
                columns[column.name] = values
                rows = [*(cell.row for cell in misfits), *refused]
                wrong |= {
                    int(read.event[row]): f"'{column.name}' cannot be computed from '{column.source}'"
                    for row in rows
                    if image.present[row]
                }
            images.append(Images(image.present, columns))
        return replace(events, read=replace(read, before=images[0], after=images[1]), forms=forms), wrong


def _with_values_before(cells: pa.Array, before: pa.Array | None) -> pa.Array:
    """Values that Debezium left out, because they have not changed, are those of the row before; null without one."""
    if before is None or not pa.types.is_string(cells.type) or not pa.types.is_string(before.type):
        return cells
    return pa.compute.if_else(_left_out(cells), before, cells)


def _left_out_where(cells: pa.Array, values: pa.Array) -> pa.Array:
    """What is computed of a value that was left out is left out as well: it must not be taken for a value."""
    if not pa.types.is_string(cells.type) or not pa.types.is_string(values.type):
        return values
    return pa.compute.if_else(_left_out(cells), UNCHANGED, values)


def _left_out(cells: pa.Array) -> pa.Array:
    return pa.compute.fill_null(pa.compute.equal(cells, UNCHANGED), False)


NOTHING_DERIVED = DerivedColumns()
