"""Reads the rows that events carry: their images before and after a change, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines
from paimon_cli.ingest.changes.event_values import text_of_json
from paimon_cli.ingest.changes.json_shapes import (
    EXACT_INTEGER,
    MAX_LEVELS,
    JsonKind,
    Shape,
    TooWide,
    arrow_of,
    column_of,
    merged,
    shape_of,
)
from paimon_cli.ingest.json_rows import parsed_line

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
_DOUBLE = pa.float64()
_FIRST_EVENTS = 8
"""The shape of a new table is learned from this many events."""


@dataclass(frozen=True)
class Images:
    """One image of each row. `present`: whether the event has it; `columns`: null where it has none, or none with the key."""

    present: Flags
    columns: Mapping[str, pa.Array]

    def column(self, name: str) -> pa.Array:
        return self.columns[name] if name in self.columns else pa.nulls(len(self.present))

    def slice(self, begin: int, count: int) -> Images:
        """The images of consecutive rows."""
        columns = {name: cells.slice(begin, count) for name, cells in self.columns.items()}
        return Images(self.present[begin : begin + count], columns)


@dataclass(frozen=True)
class ImageKeys:
    """Where the images are. `after`, `before`: keys of an event; the event itself is the image if `after` is ''.

    `is_list`: they hold lists of rows. `is_partial`: `before` has only the columns that have changed. `not_columns`: the
    beginning of keys that are no columns, where the event is the image.
    """

    after: str
    before: str = ""
    is_list: bool = False
    is_partial: bool = False
    not_columns: str = ""


@dataclass(frozen=True)
class ImageOrder:
    """How a connector writes events: with the images at the beginning (`is_first`), before and after, or at the end, after and
    before. `keys`: as bytes with comma and colon, the key of the second image and what follows it, or the keys of both images.
    `opening`: how events with the images at the beginning begin.
    """

    keys: tuple[bytes, bytes]
    is_first: bool = False
    opening: bytes = b""


@dataclass(frozen=True)
class ReadEvents:
    """The rows of events of one table. `lines`: the events that could be read; `event`: of each row, the index of its event.

    `before`, `after`: the images. `parts`: top-level keys that hold no image, such as `source`, one value an event.
    `keys`: where events have their images.
    """

    lines: EventLines
    event: Indices
    before: Images
    after: Images
    parts: Mapping[str, pa.Array]
    keys: ImageKeys

    def names_before(self, row: int) -> frozenset[str]:
        """The columns that the event of a row names in its image before, or in its only one. The event is parsed again."""
        parsed, problem = parsed_line(self.lines.texts[int(self.event[row])].as_py())
        pairs = None if problem else _pairs_of(parsed, self.keys)
        if not pairs:
            return frozenset()
        after, before = pairs[row - int(np.searchsorted(self.event, self.event[row]))]
        return frozenset(after or () if before is None else before)

    def part(self, path: str) -> pa.Array | None:
        """A value of each event outside of its images, such as `source.lsn`; None if they have none there."""
        key, _, inner = path.partition(".")
        found = self.parts.get(key)
        if found is None or not inner:
            return found
        if not pa.types.is_struct(found.type) or found.type.get_field_index(inner) < 0:
            return None
        return pc.struct_field(found, inner)


@dataclass
class ImageReader:
    """Reads events of one table, and remembers what they look like."""

    keys: ImageKeys
    shape: dict[str, Shape] = field(default_factory=dict)
    _schema: tuple[Mapping[str, pa.DataType], Shape, pa.Schema | None] | None = None
    _row_schema: tuple[Mapping[str, pa.DataType], Shape, pa.Schema | None] | None = None

    def read(
        self,
        lines: EventLines,
        numbers: Mapping[str, pa.DataType],
        bad: list[BadEvent],
        table: str,
        *,
        tells_absent: bool = False,
    ) -> ReadEvents:
        """The rows of these events. Events that are no JSON objects are added to `bad`, and left out.

        `numbers`: Arrow types of columns whose numbers must be exact. `tells_absent`: a null in a partial image must be told from
        a column that it lacks, which Arrow does not do.
        """
        if not tells_absent:
            self._learn_first(lines)
            if self.shape and (found := self._by_arrow(lines, numbers)) is not None:
                return found
        kept, objects = list[int](), list[dict[str, Any]]()
        for index in range(len(lines)):  # events that differ from all before; Arrow reads those that follow
            parsed, problem = parsed_line(lines.texts[index].as_py(), Decimal)
            problem = problem or self._learn(parsed)
            if problem:
                bad.append(lines.bad(index, problem, table))
            else:
                kept.append(index)
                objects.append(parsed)
        if len(kept) < len(lines):
            lines = lines.take(np.array(kept, np.int64))
        if not tells_absent and len(lines) and (found := self._by_arrow(lines, numbers)) is not None:
            return found
        return self._by_python(lines, objects, numbers, bad, table)

    def row_schema(self, lines: EventLines, places: Indices, numbers: Mapping[str, pa.DataType]) -> pa.Schema | None:
        """The types with which Arrow can read both images of the events at these places as rows of one table; None if it cannot.

        `numbers`: as in `read`.
        """
        if not self.shape:
            self._learn_first(lines.take(places[:_FIRST_EVENTS]))
        if self._row_schema is None or self._row_schema[:2] != (numbers, self.shape):
            after, before = (self.shape.get(key) for key in (self.keys.after, self.keys.before))
            self._row_schema = numbers, self.shape, _schema_of_rows(after or {}, before or {}, numbers)
        return self._row_schema[2]

    def _learn_first(self, lines: EventLines) -> None:
        """Learn the shape of a new table from its first events."""
        for index in range(0 if self.shape else min(_FIRST_EVENTS, len(lines))):
            parsed, problem = parsed_line(lines.texts[index].as_py(), Decimal)
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

    def _by_arrow(self, lines: EventLines, numbers: Mapping[str, pa.DataType]) -> ReadEvents | None:
        if self._schema is None or self._schema[:2] != (numbers, self.shape):
            kind = arrow_of(self.shape, numbers)
            self._schema = numbers, self.shape, None if kind is None else pa.schema(list(kind))
        schema = self._schema[2]
        table = None if schema is None else lines.parsed(schema, "error")
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
        elif keys.is_list:
            found = self._rows_of_lists(columns)
            if found is None:
                return None
            after, before, event = found
            parts = columns
        else:
            after, before = (_image(columns.get(key), count) for key in (keys.after, keys.before))
            event, parts = np.arange(count), columns
        if rounded_rows(after).any() or rounded_rows(before).any():
            return None
        if keys.is_partial:
            before = overlaid(before, after)
        parts = {key: cells for key, cells in parts.items() if key not in (keys.after, keys.before)}
        return ReadEvents(lines, event, before, after, parts, keys)

    def _rows_of_lists(self, columns: Mapping[str, pa.Array]) -> tuple[Images, Images, Indices] | None:
        """The images of events that hold lists of rows; None if the lists of an event do not fit each other."""
        rows = columns[self.keys.after]
        if not pa.types.is_list(rows.type):
            return None
        sizes = pc.fill_null(pc.list_value_length(rows), 0).to_numpy().astype(np.int64)
        event = np.repeat(np.arange(len(rows)), sizes)
        after = _image(rows.flatten(), len(event))
        if not after.present.all():
            return None
        old = columns.get(self.keys.before)
        if old is None or not pa.types.is_list(old.type):
            return after, Images(np.zeros(len(event), bool), {}), event
        old_sizes = pc.fill_null(pc.list_value_length(old), 0).to_numpy().astype(np.int64)
        if ((old_sizes != sizes) & (old_sizes > 0)).any():
            return None
        first = np.cumsum(old_sizes) - old_sizes
        within = np.arange(len(event)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places = pa.array(first[event] + within, mask=old_sizes[event] == 0)
        return after, _image(old.flatten().take(places), len(event)), event

    def _by_python(
        self,
        lines: EventLines,
        objects: Sequence[dict[str, Any]],
        numbers: Mapping[str, pa.DataType],
        bad: list[BadEvent],
        table: str,
    ) -> ReadEvents:
        """The rows of events that hold what Arrow cannot read: nested values, huge numbers, texts where others have numbers."""
        keys, kept, event = self.keys, list[int](), list[int]()
        rows = list[tuple[dict[str, Any], dict[str, Any] | None]]()
        for index, parsed in enumerate(objects):
            found = _pairs_of(parsed, keys)
            problem = "its lists of rows differ in length" if found is None else _surrogate(parsed)
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
        images = []
        for image in ([after for after, _ in rows], [before for _, before in rows]):
            columns = {
                n: column_of([None if o is None else o.get(n) for o in image], s, numbers.get(n)) for n, s in names.items()
            }
            images.append(Images(np.array([one is not None for one in image], bool), columns))
        outside = {k: s for k, s in self.shape.items() if k not in (keys.after, keys.before) and (keys.after or k not in names)}
        parts = {key: _part([one.get(key) for one in objects], inner) for key, inner in outside.items()}
        return ReadEvents(lines.take(np.array(kept, np.int64)), np.array(event, np.int64), images[1], images[0], parts, keys)


def _schema_of_rows(after: Shape, before: Shape, numbers: Mapping[str, pa.DataType]) -> pa.Schema | None:
    """The schema of rows of both images, in which no column differs in kind: it would be read as text."""
    after, before = ({} if shape == JsonKind.NULL else shape for shape in (after, before))
    if not isinstance(after, dict) or not isinstance(before, dict) or not (after or before):
        return None
    if any(one != after[name] and JsonKind.NULL not in (one, after[name]) for name, one in before.items() if name in after):
        return None
    kind = arrow_of(merged(after, before), numbers)
    return None if kind is None else pa.schema(list(kind))


def _pairs_of(parsed: dict[str, Any], keys: ImageKeys) -> list[tuple[Any, dict[str, Any] | None]] | None:
    """The images (after, before) of an event; None if its lists do not fit each other. A partial image is completed."""
    if not keys.after:
        return [(parsed, None)]
    after, before = parsed.get(keys.after), parsed.get(keys.before)
    if not keys.is_list:
        after, before = [after], [before]
    after = after or []
    before = before or [None] * len(after)
    if len(before) != len(after) or (keys.is_list and not all(isinstance(one, dict) for one in after)):
        return None
    if keys.is_partial:
        before = [None if old is None else {**(new or {}), **old} for new, old in zip(after, before, strict=True)]
    return list(zip(after, before, strict=True))


def _surrogate(parsed: dict[str, Any]) -> str:
    """Why a parsed event holds text that is no Unicode, or ''."""
    texts: Iterator[str] = _texts(parsed)
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            return "it holds text that is not valid Unicode"
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _part(values: list[Any], shape: Shape) -> pa.Array:
    """A part of an envelope as a column; what Arrow could not have read is text."""
    kind = arrow_of(shape, {})
    try:
        return pa.array([float(v) if shape == JsonKind.FLOAT and v is not None else v for v in values], kind or pa.string())
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([column_of([value], JsonKind.MIXED, None)[0].as_py() for value in values], pa.string())


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _image(rows: pa.Array | None, count: int) -> Images:
    if rows is None or not pa.types.is_struct(rows.type):
        return Images(np.zeros(count, bool), {})
    present = rows.is_valid().to_numpy(zero_copy_only=False)
    return Images(present, dict(zip([one.name for one in rows.type], rows.flatten(), strict=True)))


def of_one_type(one: pa.Array, other: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The values of a column in both images, as text if they differ in type."""
    if one.type == other.type:
        return one, other
    if pa.types.is_null(one.type):
        return one.cast(other.type), other
    if pa.types.is_null(other.type):
        return one, other.cast(one.type)
    return text_of_json(one), text_of_json(other)


def overlaid(old: Images, new: Images) -> Images:
    """A partial image completed by the other one, which has the columns that have not changed."""
    none = pa.array(~old.present)
    columns = {}
    for name in {**new.columns, **old.columns}:
        ours, theirs = old.column(name), new.column(name)
        whole = pc.coalesce(*of_one_type(ours, theirs))
        columns[name] = pc.if_else(none, pa.scalar(None, whole.type), whole)
    return Images(old.present, columns)


def rounded_rows(image: Images) -> Flags:
    """The rows with numbers that may have been whole numbers that a DOUBLE does not hold."""
    found = np.zeros(len(image.present), bool)
    with np.errstate(invalid="ignore"):
        for cells in image.columns.values():
            if cells.type == _DOUBLE:
                found |= np.abs(cells.to_numpy(zero_copy_only=False)) >= EXACT_INTEGER
    return found
