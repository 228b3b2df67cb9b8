"""Reads the events of one table whatever they look like: by Arrow in the shape of those before, else by Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.ingest.changes.event_images import (
    ImageKeys,
    Images,
    Indices,
    images_in,
    one_array,
    overlaid,
    pairs_of,
    rounded_rows,
    surrogate_in,
)
from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines, parsed_objects
from paimon_cli.ingest.changes.json_shapes import (
    MAX_LEVELS,
    JsonKind,
    Shape,
    TooWide,
    arrow_of,
    column_of,
    merged,
    shape_of,
)
from paimon_cli.ingest.changes.read_events import ReadEvents, ReadParts
from paimon_cli.ingest.changes.whole_numbers import (
    events_with_whole_numbers,
    number_texts,
    rows_in_doubt,
    with_quoted_numbers,
)
from paimon_cli.ingest.json_rows import parsed_line
from paimon_cli.options.option_text import is_utf8

_FIRST_EVENTS = 8
"""The shape of a new table is learned from this many events."""


@dataclass
class ImageReader:
    """Reads events of one table, and remembers what they look like."""

    keys: ImageKeys
    shape: dict[str, Shape] = field(default_factory=dict)
    _schema: tuple[Mapping[str, pa.DataType], Shape, pa.Schema | None] | None = None
    _cut_schema: tuple[Mapping[str, pa.DataType], Shape, tuple[pa.Schema, tuple[str, ...]] | None] | None = None

    def read(
        self,
        lines: EventLines,
        numbers: Mapping[str, pa.DataType],
        bad: list[BadEvent],
        table: str,
        numeric: Set[str] = frozenset(),
        *,
        tells_absent: bool = False,
    ) -> ReadEvents:
        """The rows of these events. Events that are no JSON objects are added to `bad`, and left out.

        `numbers`: Arrow types of columns whose numbers must be exact; `numeric`: columns that are no text. `tells_absent`: a null
        in a partial image must be told from a column that it lacks, which Arrow does not do.
        """
        if not tells_absent:
            self._learn_first(lines)
            if self.shape and (found := self._by_arrow(lines, numbers, numeric)) is not None:
                return found
        kept, objects = list[int](), list[dict[str, Any]]()
        for index in range(len(lines)):  # events that differ from all before; Arrow reads those that follow
            parsed, problem = parsed_line(lines.text(index), Decimal)
            problem = problem or self._learn(parsed)
            if problem:
                bad.append(lines.bad(index, problem, table))
            else:
                kept.append(index)
                objects.append(parsed)
        if len(kept) < len(lines):
            lines = lines.take(np.array(kept, np.int64))
        if not tells_absent and len(lines) and (found := self._by_arrow(lines, numbers, numeric)) is not None:
            return found
        return self._by_python(lines, objects, numbers, numeric, bad, table)

    def cut_schema(
        self, lines: EventLines, places: Indices, numbers: Mapping[str, pa.DataType], joints: Set[str]
    ) -> tuple[pa.Schema, tuple[str, ...]] | None:
        """The types with which Arrow can read both images of the events at these places, cut out of them, and those of their
        columns that are DOUBLE; None if it cannot.

        `numbers`: as in `read`; `joints`: of `EventPart.IMAGES`.
        """
        if not self.shape:
            self._learn_first(lines.take(places[:_FIRST_EVENTS]))
        if self._cut_schema is None or self._cut_schema[:2] != (numbers, self.shape):
            schema = _schema_of_cut(self.shape, self.keys, joints, numbers)
            self._cut_schema = numbers, self.shape, None if schema is None else (schema, _doubles_of(schema))
        return self._cut_schema[2]

    def _learn_first(self, lines: EventLines) -> None:
        """Learn the shape of a new table from its first events."""
        for index in range(0 if self.shape else min(_FIRST_EVENTS, len(lines))):
            parsed, problem = parsed_line(lines.text(index), Decimal)
            if not problem:
                self._learn(parsed)

    def _learn(self, parsed: dict[str, Any]) -> str:
        """Adapt the shape to an event; returns why that is impossible, or ''."""
        keys = self.keys
        try:
            found = shape_of(parsed, MAX_LEVELS if keys.after else 1)
            for key in filter(None, (keys.after, keys.before)):
                value = parsed.get(key)
                rows = value if keys.is_list else [value]
                if value is not None and not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
                    return f"its '{key}' is no {'list of rows' if keys.is_list else 'row'}"
                if key in parsed:
                    found[key] = shape_of(value, 2 if keys.is_list else 1)
            self.shape = merged(self.shape, found)
        except TooWide as problem:
            return str(problem)
        return ""

    def _by_arrow(
        self, lines: EventLines, numbers: Mapping[str, pa.DataType], numeric: Set[str], quoted: Sequence[str] = ()
    ) -> ReadEvents | None:
        """`quoted`: columns whose numbers are read as texts, because some are whole and others have a point."""
        if quoted:
            numbers = {**numbers, **dict.fromkeys(quoted, pa.string())}
        if self._schema is None or self._schema[:2] != (numbers, self.shape):
            self._schema = numbers, self.shape, _schema_of_events(self.shape, self.keys, numbers)
        schema = self._schema[2]
        texts = with_quoted_numbers(lines.texts, quoted) if quoted else lines.texts
        table = None if schema is None or texts is None else parsed_objects(texts, schema, "error")
        if table is None:
            return None
        columns = {name: one_array(table[name]) for name in table.column_names}
        keys, count = self.keys, len(lines)
        if not keys.after:
            rows = {
                name: cells for name, cells in columns.items() if not (keys.not_columns and name.startswith(keys.not_columns))
            }
            parts = {name: cells for name, cells in columns.items() if name not in rows}
            none = Images(np.zeros(count, bool), {})
            after, before, event = Images(np.ones(count, bool), rows), none, np.arange(count)
        else:
            found = images_in(columns, keys, count)
            if found is None:
                return None
            after, before, event = found
            parts = columns
        if quoted:
            after, before = (one.with_texts(quoted, number_texts) for one in (after, before))
        elif doubles := sorted({*after.doubles, *before.doubles} - numeric):
            in_doubt = rows_in_doubt((after, before), doubles, len(event))
            if len(events_with_whole_numbers(lines, event, in_doubt, doubles)):
                return self._by_arrow(lines, numbers, numeric, doubles)
        if rounded_rows(after).any() or rounded_rows(before).any():
            return None
        if keys.is_partial:
            before = overlaid(before, after)
        parts = {key: cells for key, cells in parts.items() if key not in (keys.after, keys.before)}
        return ReadEvents(lines, event, before, after, ReadParts(parts), keys)

    def _by_python(
        self,
        lines: EventLines,
        objects: Sequence[dict[str, Any]],
        numbers: Mapping[str, pa.DataType],
        numeric: Set[str],
        bad: list[BadEvent],
        table: str,
    ) -> ReadEvents:
        """The rows of events that hold what Arrow cannot read: nested values, huge numbers, texts where others have numbers."""
        keys, kept, event = self.keys, list[int](), list[int]()
        rows = list[tuple[dict[str, Any], dict[str, Any] | None]]()
        for index, parsed in enumerate(objects):
            found = pairs_of(parsed, keys)
            problem = "its lists of rows differ in length" if found is None else surrogate_in(parsed)
            if problem:
                bad.append(lines.bad(index, problem, table))
                continue
            event += [len(kept)] * len(found or ())
            rows += found or ()
            kept.append(index)
        objects = [objects[index] for index in kept]
        shape: Any = self.shape if not keys.after else self.shape.get(keys.after) or {}
        shape = shape[0] if isinstance(shape, list) else shape
        old: Any = self.shape.get(keys.before) or {}
        old = old[0] if isinstance(old, list) else old
        names = merged(shape if isinstance(shape, dict) else {}, old if isinstance(old, dict) else {})
        if not keys.after:
            names = {name: one for name, one in names.items() if not (keys.not_columns and name.startswith(keys.not_columns))}
        names = {name: one for name, one in names.items() if is_utf8(name)}  # only bad events have others
        images = []
        for image in ([after for after, _ in rows], [before for _, before in rows]):
            columns = {
                n: column_of([None if o is None else o.get(n) for o in image], s, numbers.get(n), is_text=n not in numeric)
                for n, s in names.items()
            }
            images.append(Images(np.array([one is not None for one in image], bool), columns))
        outside = {k: s for k, s in self.shape.items() if k not in (keys.after, keys.before) and (keys.after or k not in names)}
        outside = {key: one for key, one in outside.items() if is_utf8(key)}
        parts = {key: _part([one.get(key) for one in objects], inner) for key, inner in outside.items()}
        return ReadEvents(
            lines.take(np.array(kept, np.int64)), np.array(event, np.int64), images[1], images[0], ReadParts(parts), keys
        )


def _schema_of_events(shapes: Mapping[str, Shape], keys: ImageKeys, numbers: Mapping[str, pa.DataType]) -> pa.Schema | None:
    """The schema of whole events. A key beside the images may have the name of a column, but not its type."""
    outside = shapes.keys() - {keys.after, keys.before} if keys.after else frozenset[str]()
    kinds = {key: arrow_of(one, {} if key in outside else numbers, key) for key, one in shapes.items()}
    return None if None in kinds.values() else pa.schema(list(kinds.items()))


def _schema_of_cut(
    shapes: Mapping[str, Shape], keys: ImageKeys, joints: Set[str], numbers: Mapping[str, pa.DataType]
) -> pa.Schema | None:
    """The schema of both images, in which no column differs in kind: it would be read as text. `joints`: see `event_cuts`."""
    after, before = (_row_shape(shapes.get(key), keys) for key in (keys.after, keys.before))
    if not isinstance(after, dict) or not isinstance(before, dict) or not (after or before):
        return None
    if any(one != after[name] and JsonKind.NULL not in (one, after[name]) for name, one in before.items() if name in after):
        return None
    both = merged(after, before)
    row = None if joints & both.keys() else arrow_of(both, numbers)
    if row is None:
        return None
    kind = pa.list_(row) if keys.is_list else row
    return pa.schema([(keys.after, kind), (keys.before, kind)])


def _doubles_of(schema: pa.Schema) -> tuple[str, ...]:
    """The columns of the images that are DOUBLE."""
    row = schema.field(0).type
    row = row.value_type if pa.types.is_list(row) else row
    return tuple(column.name for column in row if pa.types.is_float64(column.type))


def _row_shape(shape: Shape, keys: ImageKeys) -> Shape:
    """The shape of the rows of an image; that of none if there were none so far."""
    shape = shape[0] if keys.is_list and isinstance(shape, list) else shape
    return {} if shape is None or shape == JsonKind.NULL else shape


def _part(values: list[Any], shape: Shape) -> pa.Array:
    """A part of an envelope as a column; what Arrow could not have read is text."""
    kind = arrow_of(shape, {})
    try:
        return pa.array([float(v) if shape == JsonKind.FLOAT and v is not None else v for v in values], kind or pa.string())
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([column_of([value], JsonKind.MIXED, None)[0].as_py() for value in values], pa.string())
