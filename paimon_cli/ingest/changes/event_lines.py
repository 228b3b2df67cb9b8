"""The lines of a stream of events, with their positions in it, and the events that cannot be read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from lzma import LZMAError
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from paimon_cli.errors import BadInput
from paimon_cli.ingest.text_blocks import BYTE_ORDER_MARK, line_bounds

Positions = npt.NDArray[np.int64]
Places = npt.NDArray[np.integer[Any]]
NEWLINE_TEXT = pa.scalar(b"\n", pa.large_binary())
MAX_EVENT_BYTES = 256 << 20
"""A longer line is no event: nothing could hold it beside others."""


class PositionUnit:
    """What the positions of a source count: bytes of its text, or events of a partition of a topic, some of which may be gone."""

    BYTE, OFFSET, ROW = "byte", "offset", "row"


class BadEvent(NamedTuple):
    """An event that cannot be applied. `position`: where it begins in the text of `source`, or its offset in a topic, by `unit`.

    `table`: `db.table` as the event names it, '' if that cannot be told.
    """

    source: str
    position: int
    table: str
    reason: str
    text: bytes
    unit: str = PositionUnit.BYTE


def in_order_read(bad: Iterable[BadEvent]) -> list[BadEvent]:
    """Bad events of one block, however they were found, in the order of the source."""
    return sorted(bad, key=lambda event: event.position)


@dataclass(frozen=True)
class EventLines:
    """Events of one source, in order. `stored`: large binary, one JSON text each; `positions`, `unit`: as in `BadEvent`; `end`:
    the position after the last one, from which a later run goes on. `keys`: those of the messages of a topic, as binary. `at`:
    where the texts of these events are among the stored ones; None if they are all of them. `whole`: the events of which these
    are the payloads, and perhaps others.
    """

    source: str
    stored: pa.Array
    positions: Positions
    end: int
    unit: str = PositionUnit.BYTE
    keys: pa.Array | None = None
    at: Places | None = None
    whole: EventLines | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def __reduce__(self) -> tuple[Any, ...]:
        whole = None if self.whole is None else self.whole.take(np.searchsorted(self.whole.positions, self.positions))
        return EventLines, (self.source, self.texts, self.positions, self.end, self.unit, self.keys, None, whole)

    @property
    def texts(self) -> pa.Array:
        """Large binary, one JSON text each."""
        return self.stored if self.at is None else self.stored.take(pa.array(self.at))

    def text(self, index: int) -> bytes:
        """The JSON text of one event."""
        return self.stored[index if self.at is None else int(self.at[index])].as_py()

    def take(self, chosen: npt.NDArray[np.integer[Any]]) -> EventLines:
        """The events at these indices."""
        return replace(self.sharing(chosen), stored=self.texts.take(pa.array(chosen)), at=None)

    def sharing(self, chosen: npt.NDArray[np.integer[Any]]) -> EventLines:
        """The same, whose texts are only taken out of these when they are asked for."""
        keys = None if self.keys is None else self.keys.take(pa.array(chosen))
        at = chosen if self.at is None else self.at[chosen]
        return replace(self, positions=self.positions[chosen], keys=keys, at=at)

    def slice(self, begin: int, count: int) -> EventLines:
        """Consecutive events, which share the texts of these."""
        keys = None if self.keys is None else self.keys.slice(begin, count)
        positions = self.positions[begin : begin + count]
        if self.at is not None:
            return replace(self, positions=positions, keys=keys, at=self.at[begin : begin + count])
        return replace(self, stored=self.stored.slice(begin, count), positions=positions, keys=keys)

    def followed_by(self, other: EventLines) -> EventLines:
        """These events and the next ones of the same source, neither of which are payloads."""
        assert self.whole is None and other.whole is None
        keys = None if self.keys is None or other.keys is None else pa.concat_arrays([self.keys, other.keys])
        texts, positions = pa.concat_arrays([self.texts, other.texts]), np.concatenate([self.positions, other.positions])
        return replace(self, stored=texts, positions=positions, keys=keys, end=other.end, at=None)

    def parts(self, size: int) -> Iterator[EventLines]:
        """These events in parts of at most `size` events; one part if there are none."""
        if len(self) <= size:
            yield self
            return
        for begin in range(0, len(self), size):
            end = begin + size
            position = int(self.positions[end]) if end < len(self) else self.end
            yield replace(self.take(np.arange(begin, min(end, len(self)))), end=position)

    def with_texts(self, texts: pa.Array) -> EventLines:
        """The same events with other texts."""
        return replace(self, stored=texts, at=None)

    def payloads(self, texts: pa.Array) -> EventLines:
        """The payloads of these events."""
        return replace(self.with_texts(texts), whole=self)

    def bad(self, index: int, reason: str, table: str = "") -> BadEvent:
        """An event that cannot be applied, with all of its text."""
        whole = self.whole
        text = self.text(index) if whole is None else whole.text(int(np.searchsorted(whole.positions, self.positions[index])))
        return BadEvent(self.source, int(self.positions[index]), table, reason, text, self.unit)

    def parsed(self, schema: pa.Schema, unexpected: str) -> pa.Table | None:
        """The events in the columns of a schema; see `parsed_objects`."""
        return parsed_objects(self.texts, schema, unexpected)


def parsed_objects(texts: pa.Array, schema: pa.Schema, unexpected: str) -> pa.Table | None:
    """JSON objects in the columns of a schema, as Arrow parses them; None if it refuses one, or if a text is not one object.

    Nothing is inferred: a value nested without end would otherwise become a type nested without end. `unexpected`: what
    becomes of other keys, `ignore` or `error`.
    """
    # Only the line ends, which no string of JSON holds, keep a text that ends in a string from going on in the next one.
    block = pc.binary_join(pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts), NEWLINE_TEXT)
    text = block[0].as_buffer()
    try:
        table = pajson.read_json(
            pa.BufferReader(text),
            read_options=pajson.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
        table.validate(full=True)  # Arrow does not check UTF-8 when it parses
    except pa.ArrowInvalid:
        return None
    return table.combine_chunks() if table.num_rows == len(texts) else None


def bounds_of(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], Positions, Positions]:
    """The bytes of texts, as large binary without nulls, and where each of them begins and ends there."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    base = int(offsets[0])
    block = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[base : int(offsets[-1])]
    return block, offsets[:-1] - base, offsets[1:] - base


def pieces_of(block: bytes | npt.NDArray[np.uint8], starts: Places, ends: Places) -> pa.Array:
    """The pieces of a block between these positions, as large binary. They may not overlap, and must be in order."""
    return every_piece(block, starts, ends).take(pa.array(np.arange(0, 2 * len(starts), 2)))


def every_piece(block: bytes | npt.NDArray[np.uint8], starts: Places, ends: Places) -> pa.Array:
    """The same, and after each of them what stands before the next one. They share the bytes of the block."""
    bounds = np.empty(2 * len(starts) + 1, np.int64)
    bounds[0:-1:2], bounds[1::2] = starts, ends
    bounds[-1] = ends[-1] if len(ends) else 0
    return pa.Array.from_buffers(pa.large_binary(), 2 * len(starts), [None, pa.py_buffer(bounds), pa.py_buffer(block)])


def event_blocks(
    stream: BinaryIO,
    source: str,
    size: int,
    begin: int = 0,
    *,
    is_growing: bool = False,
    on_torn: Callable[[], None] | None = None,
) -> Iterator[EventLines]:
    """The lines of a stream in blocks of about `size` bytes. Empty lines are left out.

    `begin`: the position where the stream stands. `is_growing`: a last line without an end is not read yet. `on_torn`: is called
    for one that is no JSON, which is not read yet either.

    Raises `BadInput` for a damaged archive, and for a line of more than `MAX_EVENT_BYTES`.
    """
    position = begin
    with reading(source):
        while block := stream.read(size):
            if not block.endswith(b"\n"):
                whole = block.rfind(b"\n") + 1
                block += stream.readline(MAX_EVENT_BYTES)
                if len(block) > MAX_EVENT_BYTES and not block.endswith(b"\n"):
                    if whole:
                        yield lines_of(block[:whole], source, position)
                    what = f"{source}: an event of more than {MAX_EVENT_BYTES >> 20} MB"
                    raise BadInput(what, f"it begins before byte {position + len(block)}", source=source)
            is_torn = is_growing and not block.endswith(b"\n")
            whole = block.rfind(b"\n") + 1
            if on_torn is not None and _is_torn(block[whole:]):
                is_torn = True
                on_torn()
            if is_torn:
                block = block[:whole]
            if block:
                yield lines_of(block, source, position)
            if is_torn:  # the stream stands within a line, also if its rest has come meanwhile
                return
            position += len(block)


def _is_torn(line: bytes) -> bool:
    """Whether a line without an end looks as if more of it is to come."""
    try:
        json.loads(line)
    except RecursionError:
        return False
    except ValueError:
        return bool(line.strip())
    return False


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Raise `BadInput` if a source cannot be read, such as a damaged archive."""
    try:
        yield
    except (OSError, EOFError, LZMAError, zlib.error, pa.ArrowException) as problem:
        hint = "if it was cut short or damaged, copy it again: what came before is applied once"
        raise BadInput(f"cannot read {source}", str(problem), hint, source=source) from problem


def lines_of(block: bytes, source: str, position: int) -> EventLines:
    """The lines of a block that begins at a position of its source."""
    starts, ends = line_bounds(block)
    if position == 0 and block.startswith(BYTE_ORDER_MARK):
        starts = starts.copy()
        starts[0] = len(BYTE_ORDER_MARK)
    return EventLines(source, pieces_of(block, starts, ends), starts.astype(np.int64) + position, position + len(block))
