"""Finds a key in the texts of a block: all places at once, with a few passes over its bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paimon_cli.pieces import PIECES

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
_WINDOW = np.dtype("<u4")


@dataclass
class BlockSearch:
    """Searches texts that stand one after the other in a block.

    Arrow compares each text byte by byte. Here whole passes look for the two bytes of the key that are the rarest in the block;
    only where these are found the rest is compared.
    """

    block: Bytes
    _frequency: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        step = max(1, len(self.block) // PIECES.search_sample_bytes)
        self._frequency = np.bincount(self.block[::step], minlength=256)

    def places(self, key: bytes) -> Places:
        """Where a key of at least four bytes begins, in ascending order."""
        letters, size = np.frombuffer(key, np.uint8), len(key)
        assert size >= _WINDOW.itemsize
        one, other = np.argsort(self._frequency[letters], kind="stable")[:2].tolist()
        found, count = [np.empty(0, np.int64)], len(self.block) - size + 1
        for begin in range(0, count, PIECES.search_bytes):
            end = min(begin + PIECES.search_bytes, count)
            flags = self.block[begin + one : end + one] == letters[one]
            flags &= self.block[begin + other : end + other] == letters[other]
            found.append(np.flatnonzero(flags) + begin)
        places = np.concatenate(found)
        for within in dict.fromkeys((0, size - _WINDOW.itemsize, *range(0, size - _WINDOW.itemsize, _WINDOW.itemsize))):
            same = self._windows[places + within] == np.frombuffer(key, _WINDOW, 1, within)[0]
            places = places if same.all() else places[same]
        return places

    def first(self, key: bytes, starts: Places, ends: Places) -> Places:
        """The first place of a key in each text between these bounds, -1 where it has none."""
        places = np.append(self.places(key), len(self.block))
        found = places[np.searchsorted(places, starts)]
        return np.where(found + len(key) <= ends, found, -1)

    def last(self, key: bytes, starts: Places, ends: Places) -> Places:
        """The last place of a key in each text between these bounds, -1 where it has none."""
        places = np.append(-1, self.places(key))
        found = places[np.searchsorted(places, ends - len(key), side="right") - 1]
        return np.where(found >= starts, found, -1)

    @property
    def _windows(self) -> npt.NDArray[np.uint32]:
        """The four bytes that begin at each position, as one number."""
        count = len(self.block) - _WINDOW.itemsize + 1
        return np.ndarray((count,), _WINDOW, self.block, strides=(1,))
