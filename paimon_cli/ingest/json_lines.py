"""JSON text as lines: the elements of an array, or the lines of JSON lines, in blocks that end with a whole one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO

import numpy as np

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE, RETURN, SPACE, COMMA, QUOTE, BACKSLASH = b'\n\r ,"\\'
OPENING, CLOSING = b"[{", b"]}"
BLANKS = b" \t\r\n"


class NotAnArray(ValueError):
    """The text of an array does not end as one."""


def begins_array(beginning: bytes) -> bool:
    return beginning.removeprefix(BYTE_ORDER_MARK).lstrip(BLANKS).startswith(b"[")


def array_blocks(source: BinaryIO, beginning: bytes, block_bytes: int) -> Iterator[bytes]:
    """The elements of one array as JSON lines. `beginning`: what was read of it already. Raises NotAnArray.

    Line ends between the parts of an element become blanks. Only whole elements are looked for here, by quotes and
    brackets; whether each is sound JSON is for the parser of its line to say.
    """
    held = beginning.removeprefix(BYTE_ORDER_MARK).lstrip(BLANKS)[1:]
    begun = False
    while True:
        read = source.read(block_bytes)
        held += read
        text, depth, outside = _structure(held)
        separators = np.flatnonzero(outside & (((text == COMMA) & (depth == 0)) | (depth < 0)))
        closed = np.flatnonzero(depth[separators] < 0)
        separators = separators[: closed[0] + 1] if len(closed) else separators
        if not len(closed) and not read:
            raise NotAnArray("the array has no end")
        if len(separators):
            elements = _elements(text, outside, separators)
            if b"" in elements and (begun or elements != [b""]):
                raise NotAnArray("an element of the array is empty")
            begun = True
            yield b"".join(element + b"\n" for element in elements if element)
            end = int(separators[-1])
            if len(closed):
                if held[end : end + 1] != b"]" or (held[end + 1 :] + source.read(block_bytes)).strip(BLANKS):
                    raise NotAnArray("the array does not end where the file does")
                return
            held = held[end + 1 :]


def _elements(text: np.ndarray, outside: np.ndarray, separators: np.ndarray) -> list[bytes]:
    """What stands before each separator, on one line."""
    lines = text[: separators[-1]].copy()
    lines[outside[: len(lines)] & ((lines == NEWLINE) | (lines == RETURN))] = SPACE
    flat = lines.tobytes()
    return [flat[before + 1 : place].strip(BLANKS) for before, place in pairwise([-1, *separators.tolist()])]


def _structure(held: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bytes, how deep each is nested (a closing bracket as what follows it), and whether it is outside of texts."""
    text = np.frombuffer(held, np.uint8)
    inside = np.cumsum((text == QUOTE) & ~_escaped(text), dtype=np.int32) & 1
    outside = inside == 0
    steps = np.isin(text, list(OPENING)).astype(np.int8) - np.isin(text, list(CLOSING)).astype(np.int8)
    return text, np.cumsum(steps * outside, dtype=np.int32), outside


def _escaped(text: np.ndarray) -> np.ndarray:
    """Bytes behind an odd number of backslashes."""
    escaped = np.zeros(len(text), bool)
    slashes = np.flatnonzero(text == BACKSLASH)
    if len(slashes):
        breaks = np.flatnonzero(np.diff(slashes) != 1) + 1
        starts, ends = slashes[np.append(0, breaks)], slashes[np.append(breaks - 1, len(slashes) - 1)]
        odd = ends[(ends - starts) % 2 == 0] + 1
        escaped[odd[odd < len(text)]] = True
    return escaped


def line_bounds(block: bytes) -> tuple[np.ndarray, np.ndarray]:
    """First byte and end of every line that holds something, without its line end; empty lines are no rows."""
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == NEWLINE)
    if len(text) and text[-1] != NEWLINE:
        ends = np.append(ends, len(text))
    if not len(ends):
        return ends, ends
    starts = np.append(0, ends[:-1] + 1)
    ends = ends - ((ends > starts) & (text[ends - 1] == RETURN))
    filled = ends > starts
    return starts[filled], ends[filled]
