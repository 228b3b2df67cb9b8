"""Reads what events have beside their images, where these were cut out of their text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_cuts import CutEvents, EventOrder, EventPart, Indices, cut_events
from paimon_cli.ingest.changes.event_formats import EventFormat, Path
from paimon_cli.ingest.changes.event_images import Flags, one_array, surrogate_in
from paimon_cli.ingest.changes.event_lines import parsed_objects
from paimon_cli.ingest.changes.json_shapes import MAX_LEVELS, JsonKind, Shape, TooWide, arrow_of, merged, shape_of
from paimon_cli.ingest.changes.read_events import EventParts, ReadParts, changes_in, field_of
from paimon_cli.ingest.json_rows import parsed_line

_MAX_LESSONS = 4
"""How many events a block of frames may have that differ from all before, until it is parsed without cuts."""
_FIRST_FRAMES = 8
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class FramedEvents:
    """Cut events whose frames were read. `columns`: the keys of the frames; `at`: of each event of the block, where it is among
    them; -1 if it could not be cut. `repeated`: the distinct texts of what repeats, parsed; `codes`: which one each cut event
    has.
    """

    cut: CutEvents
    columns: Mapping[str, pa.Array]
    at: Indices
    repeated: tuple[Mapping[str, Any], ...]
    codes: Indices
    _fields: dict[tuple[str, str], pa.Array | None] = field(default_factory=dict, compare=False, repr=False)

    def field(self, key: str, name: str) -> pa.Array | None:
        """The values of this name in the objects at a key of the frames. All tables ask for the same ones."""
        if (key, name) not in self._fields:
            self._fields[key, name] = field_of(self.columns[key], name)
        return self._fields[key, name]

    def take(self, kept: Indices) -> FramedEvents:
        """Those of some events of the block."""
        return replace(self, at=self.at[kept])


@dataclass(frozen=True)
class FrameParts(EventParts):
    """The parts of some cut events, at `at` among them. They are only taken when they are asked for."""

    framed: FramedEvents
    at: Indices

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadParts, (dict(self),)  # not with the events of all other tables

    def __getitem__(self, key: str) -> pa.Array:
        if key in self.framed.columns:
            return self.framed.columns[key].take(pa.array(self.at))
        if key not in self._repeated_keys:
            raise KeyError(key)
        numbers, places = np.unique(self.framed.codes[self.at], return_inverse=True)
        return pa.array([self.framed.repeated[number].get(key) for number in numbers]).take(pa.array(places))

    def __iter__(self) -> Iterator[str]:
        yield from self.framed.columns
        yield from self._repeated_keys

    def __len__(self) -> int:
        return len(self.framed.columns) + len(self._repeated_keys)

    @property
    def _repeated_keys(self) -> list[str]:
        return list(dict.fromkeys(key for one in self.framed.repeated for key in one))

    def inner(self, key: str, name: str) -> pa.Array | None:
        if key not in self.framed.columns:
            return super().inner(key, name)
        found = self.framed.field(key, name)
        return None if found is None else found.take(pa.array(self.at))

    def last(self, key: str) -> Any:
        newest = self.framed.columns[key][int(self.at[-1])].as_py() if key in self.framed.columns and len(self.at) else None
        return super().last(key) if newest is None else newest

    def last_texts(self, key: str) -> Mapping[str, str]:
        codes = self.framed.codes[self.at]
        if not self.framed.repeated or not len(codes):
            return super().last_texts(key)
        if (codes == codes[0]).all():
            return _texts_of(self.framed.repeated[codes[0]].get(key))
        found = dict[str, str]()
        numbers, from_end = np.unique(codes[::-1], return_index=True)
        for number in numbers[np.argsort(-from_end)]:
            found |= _texts_of(self.framed.repeated[number].get(key))
        return found

    def changes(self, key: str) -> Flags:
        if not self.framed.repeated:
            return super().changes(key)
        numbers, places = np.unique(self.framed.codes[self.at], return_inverse=True)
        if len(numbers) < 2:  # as almost always: all events have one text there
            return np.zeros(max(len(places) - 1, 0), bool)
        texts = [_texts_of(self.framed.repeated[number].get(key)) for number in numbers]
        names = dict.fromkeys(name for one in texts for name in one)
        columns = (pa.array([one.get(name) for one in texts], pa.string()).take(pa.array(places)) for name in names)
        return changes_in(columns, len(places))

    def slice(self, begin: int, count: int) -> FrameParts:
        return replace(self, at=self.at[begin : begin + count])


def _texts_of(value: Mapping[str, str | None] | None) -> Mapping[str, str]:
    return {name: text for name, text in (value or _NOTHING).items() if text is not None}


@dataclass
class FrameReader:
    """Reads what events have beside their images, and remembers what it looks like."""

    format: EventFormat
    shape: dict[str, Shape] = field(default_factory=dict)
    _known: dict[bytes, Mapping[str, Any] | None] = field(default_factory=dict)

    def framed(self, events: pa.Array) -> FramedEvents | None:
        """The events of a block, as large binary, that can be cut and whose frames can be read; None if there are none."""
        order = self.format.order
        cut = None if order is None or not len(events) else cut_events(events, order)
        if order is None or cut is None:
            return None
        repeated, codes = tuple[Mapping[str, Any], ...](), np.zeros(len(cut.chosen), np.int64)
        if EventPart.REPEATED in order.parts:
            cut, repeated, codes = self._repeated(cut, order)
        for _ in range(_MAX_LESSONS):
            if not len(cut.chosen):
                return None
            frames = cut.texts[EventPart.FRAME]
            for index in range(0 if self.shape else min(_FIRST_FRAMES, len(frames))):
                self._learn(frames[index].as_py(), order)
            if self.schema is None:
                return None
            table = self._parsed(frames)
            if table is not None:
                columns = {name: one_array(table[name]) for name in table.column_names}
                if not all(_has_text(columns, path) for path in self.format.paths):
                    return None
                kept = np.flatnonzero(self._told(columns, len(cut.chosen)))
                if len(kept) < len(cut.chosen):
                    cut, codes = cut.take(kept), codes[kept]
                    columns = {name: cells.take(pa.array(kept)) for name, cells in columns.items()}
                at = np.full(len(events), -1)
                at[cut.chosen] = np.arange(len(cut.chosen))
                return FramedEvents(cut, columns, at, repeated, codes) if len(kept) else None
            strange, before = self._strange(frames), self.shape
            if not self._learn(frames[strange].as_py(), order) or self.shape == before:
                kept = np.delete(np.arange(len(cut.chosen)), strange)
                cut, codes = cut.take(kept), codes[kept]
        return None

    def _told(self, columns: Mapping[str, pa.Array], count: int) -> Flags:
        """Which frames say what the event does, and to which table. Others may say it beside the images, not read yet."""
        told = np.ones(count, bool)
        for paths in ((self.format.operation,), self.format.database, self.format.table):
            texts = [text for path in paths if (text := text_at(columns, path)) is not None]
            told &= pc.coalesce(*texts).is_valid().to_numpy(zero_copy_only=False) if texts else False
        return told

    def _repeated(self, cut: CutEvents, order: EventOrder) -> tuple[CutEvents, tuple[Mapping[str, Any], ...], Indices]:
        """The events in which what repeats is as it should be, its distinct texts, parsed, and which one each event has."""
        encoded = pc.dictionary_encode(cut.texts[EventPart.REPEATED])
        texts, names, known = encoded.dictionary.to_pylist(), order.names(EventPart.REPEATED), self._known
        self._known = {text: known[text] if text in known else _types_in(text, names, self.format.types) for text in texts}
        codes = encoded.indices.to_numpy().astype(np.int64)
        fits = np.array([one is not None for one in self._known.values()])[codes]
        cut = cut if fits.all() else cut.take(np.flatnonzero(fits))
        return cut, tuple(one or _NOTHING for one in self._known.values()), codes[fits]

    @property
    def schema(self) -> pa.Schema | None:
        kind = arrow_of(self.shape, {})
        return None if kind is None else pa.schema(list(kind))

    def _parsed(self, frames: pa.Array) -> pa.Table | None:
        schema = self.schema
        return None if schema is None else parsed_objects(frames, schema, "error")

    def _strange(self, frames: pa.Array) -> int:
        """The first event that cannot be parsed, found by halving."""
        begin, count = 0, len(frames)
        while count > 1:
            half = count // 2
            if self._parsed(frames.slice(begin, half)) is not None:
                begin, count = begin + half, count - half
            else:
                count = half
        return begin

    def _learn(self, frame: bytes, order: EventOrder) -> bool:
        """Adapt the shape to an event. Returns whether that is possible."""
        parsed, problem = parsed_line(frame)
        images = self.format.images
        if problem or not parsed.keys().isdisjoint((images.after, images.before, *order.names(EventPart.REPEATED))):
            return False
        if order.joints(EventPart.FRAME) and any(
            isinstance(value, (dict, list)) and _holds_object(value) for value in parsed.values()
        ):
            return False
        try:
            self.shape = merged(self.shape, shape_of(parsed, MAX_LEVELS))
        except TooWide:
            return False
        return True


def _holds_object(value: Any) -> bool:
    """Whether there are keys within a value, which could be those between which a frame was joined."""
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_holds_object, value)))


def _types_in(text: bytes, names: Sequence[str], types: str) -> Mapping[str, Any] | None:
    """The objects of these names: the types of columns as texts, and others as numbers. None if it holds anything else."""
    parsed, problem = parsed_line(text)
    if problem or parsed.keys() != set(names):
        return None
    for name, value in parsed.items():
        wanted = (JsonKind.NULL, JsonKind.TEXT if name == types else JsonKind.INT)
        kinds = shape_of(value, 1) if value is not None else {}
        if not isinstance(kinds, dict) or not all(kind in wanted for kind in kinds.values()):
            return None
    return None if surrogate_in(parsed) else parsed


def text_at(columns: Mapping[str, pa.Array], path: Path) -> pa.Array | None:
    """The column at a path of one or two keys; None if there is none."""
    cells = columns.get(path[0])
    return cells if len(path) == 1 else field_of(cells, path[1])


def _has_text(columns: Mapping[str, pa.Array], path: Path) -> bool:
    """Whether there is a text at a path, or nothing."""
    above, found = columns.get(path[0]), text_at(columns, path)
    if above is not None and len(path) > 1 and not pa.types.is_struct(above.type):
        return above.null_count == len(above)
    return found is None or pa.types.is_string(found.type)
