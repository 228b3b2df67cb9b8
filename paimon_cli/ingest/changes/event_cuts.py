"""Cuts the text of events into parts, so that each byte is parsed at most once, and what repeats only once.

Connectors write the keys of an event in the same order, without blanks. The text is cut where the next key begins, as if the key
were found there and not within another value. Whether that was right shows when the parts are parsed: an event is valid, and cut
between its own keys, if each part is one object with the keys that it should have. All others are parsed as they are, which costs
more.

A part that is joined from several pieces could be an object although a piece ends within a value: if the next key were found in a
row that has such a column. Who reads it has to exclude that, by the names of `joints`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.event_lines import bounds_of, every_piece
from paimon_cli.ingest.changes.text_search import BlockSearch, Bytes

_OPENING, _CLOSING, _COMMA = b"{},"
_KEY_OPENING = b',"'
Indices = npt.NDArray[np.int64]


class EventPart:
    """What a piece of an event belongs to: the images of its rows, what differs from event to event beside them, or what is
    mostly the same text.
    """

    IMAGES, FRAME, REPEATED = range(3)


@dataclass(frozen=True)
class EventOrder:
    """How a connector writes events, as far as they are cut. `opening`: how they begin; `first`: the part that begins there.
    `keys`: those where another part begins, with comma and colon. `images_first`: names of columns stand before the keys, and not
    behind them, so that the last place of a key is taken.
    """

    first: int
    keys: Mapping[bytes, int]
    opening: bytes = b'{"'
    images_first: bool = False

    @property
    def parts(self) -> tuple[int, ...]:
        """The part of each piece, in order."""
        return (self.first, *self.keys.values())

    def names(self, part: int) -> tuple[str, ...]:
        """The names of the keys with which the pieces of a part begin."""
        begun = (key for one, key in zip(self.parts, (self.opening, *self.keys), strict=True) if one == part)
        return tuple(key.decode().strip('{,":') for key in begun)

    def joints(self, part: int) -> frozenset[str]:
        """Those of the second piece of a part and the next ones."""
        return frozenset(self.names(part)[1:])


@dataclass(frozen=True)
class CutEvents:
    """The events that could be cut. `chosen`: their indices; `images`: an object of each event; `texts`: one by each other
    `EventPart`, as large binary.
    """

    chosen: Indices
    images: PartTexts
    texts: Mapping[int, pa.Array]

    def take(self, kept: Indices) -> CutEvents:
        """Those at some places."""
        texts = {part: one.take(pa.array(kept)) for part, one in self.texts.items()}
        return CutEvents(self.chosen[kept], self.images.of(kept), texts)


@dataclass(frozen=True)
class PartTexts:
    """One part of each event, where its text is. `pieces`: of all events, `count` of each, as `every_piece` gives them; `at`: the
    events, in any order.
    """

    pieces: pa.Array
    count: int
    at: Indices

    def of(self, kept: Indices) -> PartTexts:
        """Those of the events at some places."""
        return replace(self, at=self.at[kept])

    def texts(self) -> pa.Array:
        """The pieces of each event, joined, as large binary: they are copied once, into the order in which they are read."""
        chosen = (self.at[:, None] * self.count + np.arange(self.count)).ravel()
        pieces = self.pieces.take(pa.array(2 * chosen))
        if self.count == 1:
            return pieces
        offsets = np.ascontiguousarray(np.frombuffer(pieces.buffers()[1], np.int64)[:: self.count])
        return pa.Array.from_buffers(pa.large_binary(), len(self.at), [None, pa.py_buffer(offsets), pieces.buffers()[2]])


def cut_events(texts: pa.Array, order: EventOrder) -> CutEvents | None:
    """The events whose keys are in this order; None if there is none. `texts`: of a block of events, as large binary."""
    block, starts, ends = bounds_of(texts)
    opening = _KEY_OPENING if len(order.keys) > 2 else b""
    search, fits = BlockSearch(block, opening), pc.starts_with(texts, order.opening).to_numpy(zero_copy_only=False)
    bounds = [starts, ends]
    if order.images_first:
        for key in reversed(tuple(order.keys)):
            bounds.insert(1, search.last(key, starts, bounds[1]))
            fits = fits & (bounds[1] >= 0)
    else:
        for key in order.keys:
            bounds.insert(-1, search.first(key, bounds[-2], ends))
            fits = fits & (bounds[-2] >= 0)
    chosen = np.flatnonzero(fits)
    if not len(chosen):
        return None
    edges = [one[chosen] for one in bounds]
    pieces = {part: [n for n, one in enumerate(order.parts) if one == part] for part in order.parts}
    block, texts = block.copy(), dict[int, pa.Array]()
    for part in pieces.keys() - {EventPart.IMAGES}:
        texts[part] = _objects(block, edges, pieces[part]).texts()
        for edge in edges[1:-1]:
            block[edge] = _COMMA
    return CutEvents(chosen, _objects(block, edges, pieces[EventPart.IMAGES]), texts)


def _objects(block: Bytes, edges: Sequence[Indices], numbers: Sequence[int]) -> PartTexts:
    """These pieces of each event, as one object. `edges`: the bounds of all pieces. The block gets the braces of the object."""
    begin, end = edges[numbers[0]], edges[numbers[-1] + 1]
    is_first, is_last = numbers[0] == 0, numbers[-1] == len(edges) - 2
    starts, ends = [edges[number] for number in numbers], [edges[number + 1] for number in numbers]
    if not is_first:
        block[begin] = _OPENING
    if not is_last:
        block[end] = _CLOSING
        ends[-1] = end + 1
    first, last = (np.stack(one, axis=1).ravel() for one in (starts, ends))
    return PartTexts(every_piece(block, first, last), len(numbers), np.arange(len(begin)))
