"""Where the lines of a block of text lie; JSON lines are counted, numbered and parsed by these bounds."""

from __future__ import annotations

import numpy as np

NEWLINE, RETURN = 0x0A, 0x0D


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
