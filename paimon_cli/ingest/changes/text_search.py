"""Finds a key in the texts of a block: all places at once, with a few passes over its bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from paimon_cli.pieces import PIECES

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
_WINDOW, _WORD = np.dtype("<u4"), np.dtype("<u8")


@dataclass
class BlockSearch:
    """Searches texts that stand one after the other in a block.

    Arrow compares each text byte by byte. Here whole passes look for the two bytes of the key that are the rarest in the block;
    only where these are found the rest is compared. `opening`: two bytes with which all keys begin, if several will be looked
    for: then one pass looks for these, and is followed by one comparison a key.
    """

    block: Bytes
    opening: bytes = b""
    _frequency: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        step = max(1, len(self.block) // PIECES.search_sample_bytes)
        self._frequency = np.bincount(self.block[::step], minlength=256)

    def places(self, key: bytes) -> Places:
        """Where a key of at least four bytes begins, in ascending order."""
        letters, size = np.frombuffer(key, np.uint8), len(key)
        assert size >= _WINDOW.itemsize
        count = len(self.block) - size + 1
        if self.opening and key.startswith(self.opening):
            begun, words = self._begun
            known = min(size, words.itemsize)
            mask = np.uint64(-1 % (1 << 8 * known))
            places = begun[(words & mask) == np.uint64(int.from_bytes(key[:known], "little"))]
            places = places[places < count]
        else:
            one, other = np.argsort(self._frequency[letters], kind="stable")[:2].tolist()
            places = self._with_bytes((one, int(letters[one])), (other, int(letters[other])), count)
        for within in dict.fromkeys((0, size - _WINDOW.itemsize, *range(0, size - _WINDOW.itemsize, _WINDOW.itemsize))):
            same = self._windows[places + within] == np.frombuffer(key, _WINDOW, 1, within)[0]
            places = places if same.all() else places[same]
        return places

    def _with_bytes(self, one: tuple[int, int], other: tuple[int, int], count: int) -> Places:
        """Those of the first `count` positions from which both bytes are found; each is given as its distance and its value."""
        found = [np.empty(0, np.int64)]
        for begin in range(0, count, PIECES.search_bytes):
            end = min(begin + PIECES.search_bytes, count)
            flags = self.block[begin + one[0] : end + one[0]] == one[1]
            flags &= self.block[begin + other[0] : end + other[0]] == other[1]
            found.append(np.flatnonzero(flags) + begin)
        return np.concatenate(found)

    @cached_property
    def _begun(self) -> tuple[Places, npt.NDArray[np.uint64]]:
        """Where keys may begin, and the eight bytes there as one number, in which zeros follow the end of the block."""
        places = self._with_bytes((0, self.opening[0]), (1, self.opening[1]), len(self.block) - 1)
        whole = np.searchsorted(places, len(self.block) - _WORD.itemsize, side="right")
        words = np.ndarray((max(0, len(self.block) - _WORD.itemsize + 1),), _WORD, self.block, strides=(1,))
        last = [int.from_bytes(self.block[place:].tobytes(), "little") for place in places[whole:].tolist()]
        return places, np.concatenate([words[places[:whole]], np.array(last, _WORD)])

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
        count = max(0, len(self.block) - _WINDOW.itemsize + 1)  # a block may be a single `{}`
        return np.ndarray((count,), _WINDOW, self.block, strides=(1,))
