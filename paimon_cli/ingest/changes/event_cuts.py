"""Cuts the images out of the text of events, so that each byte of an event is parsed once.

Connectors write the keys of an event in the same order, without blanks. The text is cut where the next key begins, as if keys had
no such names inside of images. Whether that was right shows when the pieces are parsed: an event is valid, and cut at its own
keys, if each piece is one whole value. All others are parsed as they are, which costs twice as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_formats import EventFormat, Path
from paimon_cli.ingest.changes.event_images import Flags, ImageOrder, Indices, one_array
from paimon_cli.ingest.changes.event_lines import EventLines, pieces_of
from paimon_cli.ingest.changes.json_shapes import MAX_LEVELS, Shape, TooWide, arrow_of, merged, shape_of
from paimon_cli.ingest.json_rows import parsed_line

_OPENING, _NO_IMAGE, _EMPTY = b"{", b"null", b"{}"
_MAX_LESSONS = 4
"""How many events a block of frames may have that differ from all before, until it is parsed without cuts."""
_FIRST_FRAMES = 8
Bounds = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CutEvents:
    """The events that could be cut. `chosen`: their indices. `frames`: their texts without images; `before`, `after`: the images,
    `{}` for none; `has_before`, `has_after`: whether there is one.
    """

    chosen: Indices
    frames: pa.Array
    before: pa.Array
    after: pa.Array
    has_before: Flags
    has_after: Flags


def cut_events(lines: EventLines, order: ImageOrder) -> CutEvents | None:
    """The events of a block whose keys are in this order; None if there is none."""
    texts = lines.texts
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    base = int(offsets[0])
    block = np.frombuffer(texts.buffers()[2], np.uint8)[base : int(offsets[-1])].copy()
    starts, ends = offsets[:-1] - base, offsets[1:] - base
    places = [pc.find_substring(texts, key).to_numpy(zero_copy_only=False).astype(np.int64) for key in order.keys]
    if order.is_first:
        begins = pc.starts_with(texts, order.opening).to_numpy(zero_copy_only=False)
        chosen = np.flatnonzero(begins & (places[0] > 0) & (places[1] > places[0]))
        starts, ends = starts[chosen], ends[chosen]
        middle, end = starts + places[0][chosen], starts + places[1][chosen]
        block[end] = _OPENING[0]
        frames = pieces_of(block, end, ends)
        before = _images(block, starts + len(order.opening), middle)
        after = _images(block, middle + len(order.keys[0]), end)
    else:
        chosen = np.flatnonzero((places[0] > 0) & ((places[1] < 0) | (places[1] > places[0])))
        starts, ends = starts[chosen], ends[chosen]
        begin, last, lacks = starts + places[0][chosen], ends - 1, places[1][chosen] < 0
        middle = np.where(lacks, last, starts + places[1][chosen])
        block[begin] = block[last]
        frames = pieces_of(block, starts, begin + 1)
        after = _images(block, begin + len(order.keys[0]), middle)
        before = _images(block, np.where(lacks, last, middle + len(order.keys[1])), last, lacks)
    fits = after[1] & before[1]
    if not fits.any():
        return None
    found = CutEvents(chosen, frames, before[0], after[0], before[2], after[2])
    return found if fits.all() else _taken(found, np.flatnonzero(fits))


def _taken(cut: CutEvents, kept: Indices) -> CutEvents:
    places = pa.array(kept)
    frames, before, after = (one.take(places) for one in (cut.frames, cut.before, cut.after))
    return CutEvents(cut.chosen[kept], frames, before, after, cut.has_before[kept], cut.has_after[kept])


def _images(
    block: npt.NDArray[np.uint8], starts: Bounds, ends: Bounds, lacks: Flags | None = None
) -> tuple[pa.Array, Flags, Flags]:
    """The images between these positions, whether each looks like an image or like none, and whether it is one. `lacks`: of
    events without the key of the image.
    """
    pieces, sizes = pieces_of(block, starts, ends), ends - starts
    is_row = (sizes >= len(_EMPTY)) & (block[starts] == _EMPTY[0]) & (block[ends - 1] == _EMPTY[1])
    if is_row.all():
        return pieces, is_row, is_row
    is_none = pc.equal(pieces, pa.scalar(_NO_IMAGE, pa.large_binary())).to_numpy(zero_copy_only=False)
    is_none = is_none if lacks is None else is_none | lacks
    return pc.if_else(pa.array(is_row), pieces, pa.scalar(_EMPTY, pa.large_binary())), is_row | is_none, is_row


@dataclass(frozen=True)
class FramedEvents:
    """Cut events whose frames were read. `columns`: their top-level keys; `at`: of each event of the block, where it is among
    them; -1 if it could not be cut.
    """

    cut: CutEvents
    columns: Mapping[str, pa.Array]
    at: Indices

    def take(self, kept: Indices) -> FramedEvents:
        """Those of some events of the block."""
        return replace(self, at=self.at[kept])


@dataclass
class FrameReader:
    """Reads what events have beside their images, and remembers what it looks like."""

    format: EventFormat
    shape: dict[str, Shape] = field(default_factory=dict)

    def framed(self, lines: EventLines) -> FramedEvents | None:
        """The events of a block that can be cut; None if none can, or if the frame of one cannot be read."""
        cut = None if self.format.order is None or not len(lines) else cut_events(lines, self.format.order)
        columns = None if cut is None else self._read(lines.take(cut.chosen).with_texts(cut.frames))
        if cut is None or columns is None:
            return None
        at = np.full(len(lines), -1)
        at[cut.chosen] = np.arange(len(cut.chosen))
        return FramedEvents(cut, columns, at)

    def _read(self, frames: EventLines) -> Mapping[str, pa.Array] | None:
        for index in range(0 if self.shape else min(_FIRST_FRAMES, len(frames))):
            if not self._learn(frames.texts[index].as_py()):
                return None
        for _ in range(_MAX_LESSONS):
            table = self._parsed(frames)
            if table is not None:
                found = {name: one_array(table[name]) for name in table.column_names}
                return found if all(_has_text(found, path) for path in self.format.paths) else None
            before = self.shape
            if self.schema is None or not self._learn(frames.texts[self._strange(frames)].as_py()) or self.shape == before:
                return None
        return None

    @property
    def schema(self) -> pa.Schema | None:
        kind = arrow_of(self.shape, {})
        return None if kind is None else pa.schema(list(kind))

    def _parsed(self, frames: EventLines) -> pa.Table | None:
        schema = self.schema
        return None if schema is None else frames.parsed(schema, "error")

    def _strange(self, frames: EventLines) -> int:
        """The first event that cannot be parsed, found by halving."""
        begin, count = 0, len(frames)
        while count > 1:
            half = count // 2
            if self._parsed(frames.slice(begin, half)) is not None:
                begin, count = begin + half, count - half
            else:
                count = half
        return begin

    def _learn(self, frame: bytes) -> bool:
        """Adapt the shape to an event. Returns whether that is possible."""
        parsed, problem = parsed_line(frame)
        images = self.format.images
        if problem or images.after in parsed or images.before in parsed:
            return False
        try:
            self.shape = merged(self.shape, shape_of(parsed, MAX_LEVELS))
        except TooWide:
            return False
        return True


def text_at(columns: Mapping[str, pa.Array], path: Path) -> pa.Array | None:
    """The column at a path of one or two keys; None if there is none."""
    cells = columns.get(path[0])
    if cells is None or len(path) == 1:
        return cells
    is_object = pa.types.is_struct(cells.type) and cells.type.get_field_index(path[1]) >= 0
    return pc.struct_field(cells, path[1]) if is_object else None


def _has_text(columns: Mapping[str, pa.Array], path: Path) -> bool:
    """Whether there is a text at a path, or nothing."""
    above, found = columns.get(path[0]), text_at(columns, path)
    if above is not None and len(path) > 1 and not pa.types.is_struct(above.type):
        return above.null_count == len(above)
    return found is None or pa.types.is_string(found.type)
