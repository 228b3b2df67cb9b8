"""Avro's numbers of variable length, read at many places of a buffer at once."""

from __future__ import annotations

import numpy as np

LONGEST = 8
"""Bytes that a number may take here; Avro's own limit is ten, which no count, size or time needs."""
_STOP_BITS = np.uint64(0x8080808080808080)
_SHORT = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(128)], dtype=np.int8)
_AT_ONCE = 8192


class NotColumnar(Exception):
    """Bytes or a schema that have to be read record by record; never shown to users."""


class NumberBuffer:
    """Bytes with numbers in them. Cursors are places in `bytes` (uint8), at least `LONGEST` before its end; never none.

    Raises `NotColumnar` for numbers that are longer.
    """

    def __init__(self, data: np.ndarray) -> None:
        self.bytes = data
        self._words = np.ndarray((len(data) - LONGEST + 1,), dtype="<u8", buffer=data.data, strides=(1,))

    def words(self, cursors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cursors after the number at each, and words that begin with the numbers, for `numbers_in`."""
        first = self.bytes[cursors]
        if np.maximum.reduce(first) < 0x80:
            return cursors + 1, first
        words = self._words[cursors]
        return cursors + (np.bitwise_count(_groups(words)) >> 3), words

    def numbers(self, cursors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cursors after the number at each, and the numbers."""
        after, words = self.words(cursors)
        return after, numbers_in(words)


def numbers_in(words: np.ndarray) -> np.ndarray:
    """The numbers that words, little-endian, begin with: integers of any width. Some at a time, which stay in the cache."""
    if np.maximum.reduce(words, initial=0) < 0x80:
        return _SHORT[words]
    if len(words) <= _AT_ONCE:
        return _unzigzag(words & _groups(words))
    return np.concatenate([numbers_in(words[start : start + _AT_ONCE]) for start in range(0, len(words), _AT_ONCE)])


def _groups(words: np.ndarray) -> np.ndarray:
    """All bits of the bytes of the number that each word begins with: up to the first byte without its top bit."""
    stops = ~words & _STOP_BITS
    if not np.logical_and.reduce(stops):
        raise NotColumnar
    return stops ^ (stops - np.uint64(1))


def _unzigzag(groups: np.ndarray) -> np.ndarray:
    """Eight groups of seven bits, the lowest first, as signed numbers."""
    bits = groups & np.uint64(0x7F7F7F7F7F7F7F7F)
    bits = (bits & np.uint64(0x007F007F007F007F)) | ((bits & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
    bits = (bits & np.uint64(0x00003FFF00003FFF)) | ((bits & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    bits = (bits & np.uint64(0x000000000FFFFFFF)) | ((bits & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
    signs = (bits & np.uint64(1)).view(np.int64)
    return (bits >> np.uint64(1)).view(np.int64) ^ -signs
