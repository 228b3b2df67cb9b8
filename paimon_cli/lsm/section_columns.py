"""Sections of disjoint key ranges, and their packing into splits, for very many files at once (see `key_intervals`).

Each bucket is a place: an integer, the same for all of its files.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def section_starts(places: _Ints, lows: _Ints, highs: _Ints) -> tuple[_Ints, _Flags]:
    """The files in the order of places and key ranges, and which of them begin a section."""
    order = np.lexsort((highs, lows, places))
    places, lows, reach = places[order], lows[order], highs[order]
    distance = 1
    # The greatest upper end so far: each round doubles how far back it has looked, the last one finds nothing greater.
    while distance < len(order):
        further = (places[distance:] == places[:-distance]) & (reach[:-distance] > reach[distance:])
        if not further.any():
            break
        reach[distance:] = np.where(further, reach[:-distance], reach[distance:])
        distance *= 2
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (places[1:] != places[:-1]) | (lows[1:] > reach[:-1])
    return order, starts


def pack_starts(places: _Ints, weights: _Ints, limit: int) -> _Ints:
    """Where packs begin: neighbours of one place together as long as they weigh no more than `limit`; one alone may.

    The sum of the weights, and of them and the limit, must fit 64 bits.
    """
    count = len(places)
    ends = np.cumsum(weights)
    bounds = np.append(np.flatnonzero(places[1:] != places[:-1]) + 1, count)
    place_ends = np.repeat(bounds, np.diff(bounds, prepend=0)) if count else bounds
    following = np.searchsorted(ends, ends - weights + limit, side="right")
    steps = np.minimum(np.maximum(following, np.arange(1, count + 1)), place_ends).tolist()
    starts, item = [], 0
    while item < count:
        starts.append(item)
        item = steps[item]
    return np.array(starts, dtype=np.int64)
