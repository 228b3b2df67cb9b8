"""The rows that a table gets from events: in its types, and ordered by the number that the user has named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_cli.api.ingest_schema import EventColumns, FollowingTable, refused_kinds, sequence_column
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput, PaimonError, UsageError
from paimon_cli.ingest.changes.change_rows import ChangeRows, rows_of
from paimon_cli.ingest.changes.derived_columns import newest_millis
from paimon_cli.ingest.changes.event_lines import BadEvent, Positions
from paimon_cli.ingest.changes.event_values import as_column
from paimon_cli.ingest.changes.key_images import KeyImages
from paimon_cli.ingest.changes.table_events import SourceTable, TableEvents
from paimon_cli.ingest.faults import WrongType, shown
from paimon_cli.ingest.typed_columns import cast_column
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, RowKind
from paimon_cli.options.column_options import SEQUENCE_FIELD

if TYPE_CHECKING:
    from paimon_cli.metadata.table_schema import TableSchema

KIND_COLUMN = "_ROW_KIND"


class StoppingEvent(NamedTuple):
    """An event that its table cannot take, at a position, and why."""

    position: int
    failure: PaimonError


class PlacedRows(NamedTuple):
    """Rows, and the position of the event of each. `stop`: the event before which they end, if the table cannot take one."""

    rows: pa.Table
    positions: Positions
    stop: StoppingEvent | None = None


@dataclass(kw_only=True)
class EventTable(FollowingTable):
    """A table that makes its rows of events. `sources`: the tables whose rows it has. `incomplete`: updates without the row
    before. `newest_millis`: when the newest of its changes was made.
    """

    sources: set[SourceTable] = field(default_factory=set)
    incomplete: int = 0
    newest_millis: int | None = None
    key_images: KeyImages = field(default_factory=KeyImages)

    def rows(self, events: TableEvents, bad: list[BadEvent]) -> PlacedRows:
        """The rows of events in the types of the table."""
        self.expect_one_schema(events.table)
        self.follow(EventColumns.of(events))
        schema = self.schema
        assert schema is not None
        events, wrong = self.derived.added(events, {column.name: column.type for column in schema.fields})
        rows = rows_of(
            events,
            self.change_key(schema, events.keys),
            needs_before=self.needs_before,
            bad=bad,
            retracted=self.retracted(schema),
            key_images=self.key_images,
            refused=refused_kinds(schema),
        )
        if wrong:
            known = {event.position for event in bad}
            found = (events.read.lines.bad(index, why, events.table.name) for index, why in sorted(wrong.items()))
            bad += [event for event in found if event.position not in known]
            rows = rows.without(np.isin(rows.event, list(wrong)))
        if not schema.primary_keys and (rows.kinds != RowKind.INSERT).any():
            raise UsageError(
                f"{self.name} has no primary key, and events update or delete rows",
                "without a key no row can be found again",
                "create it with a primary key, such as --primary-key id",
            )
        self.incomplete += rows.incomplete
        if self.sequence is not None:
            rows = self._sequenced(rows, events, self.sequence, bad)
        self._note_time(events)
        return self._typed(rows, events, schema, bad)

    def _note_time(self, events: TableEvents) -> None:
        if (newest := newest_millis(events)) is not None:
            self.newest_millis = max(newest, self.newest_millis or newest)

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

    def _typed(self, rows: ChangeRows, events: TableEvents, schema: TableSchema, bad: list[BadEvent]) -> PlacedRows:
        """The rows in the types of the table. Events with values that do not fit are added to `bad`, and left out.

        A column of another kind stops the table at the first event with a value for it, wherever the events were cut: nulls fit.
        """
        columns, wrong = dict[str, pa.Array](), dict[int, str]()
        positions = events.read.lines.positions[rows.event]
        stop: StoppingEvent | None = None
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
                failure = BadInput(what, why, "alter the column, or map the table to a new one", column=column.name)
                failure.__cause__ = problem
                at = int(positions[problem.row])
                stop = StoppingEvent(at, failure) if stop is None or at < stop.position else stop
                cells, misfits = pa.nulls(len(rows), arrow_type(column.type)), problem.cells
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
            table, positions = table.filter(pa.array(keep)), positions[keep]
        if stop is not None:
            bad[:] = [one for one in bad if one.position < stop.position]
            before = positions < stop.position
            table, positions = table.filter(pa.array(before)), positions[before]
        return PlacedRows(table, positions, stop)

    def in_order(self, parts: Sequence[PlacedRows]) -> pa.Table:
        """The rows of one block of events in the order in which they were read: each part is of one table of the source."""
        if len(parts) == 1:
            return parts[0].rows
        rows, positions = self.united([part.rows for part in parts]), np.concatenate([part.positions for part in parts])
        return rows.take(np.argsort(positions, kind="stable")) if (positions[1:] < positions[:-1]).any() else rows

    def united(self, parts: Sequence[pa.Table]) -> pa.Table:
        """All rows in the latest types: columns may have been added or widened since the first of them."""
        schema, tables = self.schema, list[pa.Table]()
        assert schema is not None
        alike = all(part.schema == parts[0].schema for part in parts)
        for part in [pa.concat_tables(parts)] if alike else parts:
            given = dict(zip(part.column_names, part.columns, strict=True))
            columns = {column.name: _in_type(given.get(column.name), column.type, part.num_rows) for column in schema.fields}
            tables.append(pa.table({**columns, KIND_COLUMN: given[KIND_COLUMN].cast(pa.string())}))
        return pa.concat_tables(tables)

    def expect_one_schema(self, table: SourceTable) -> None:
        """Raise `UsageError` if tables of several schemas have one name: only tables of several databases are shards."""
        sources = self.sources | {table}
        if len({source.schema for source in sources}) > 1:
            names = ", ".join(sorted(f"{source.schema}.{source.table}" for source in sources))
            raise UsageError(
                f"{names} would be merged in {self.name}", "they are different tables", "name one with --table-mapping"
            )
        self.sources = sources


def _in_type(cells: pa.ChunkedArray | None, t: DataType, rows: int) -> pa.ChunkedArray | pa.Array:
    """A column that was made when it had this type, or a narrower one; null if it did not exist then."""
    kind = arrow_type(t)
    if cells is None:
        return pa.nulls(rows, kind)
    return cells if cells.type == kind else pa.chunked_array([cast_column(one, t) for one in cells.chunks], kind)
