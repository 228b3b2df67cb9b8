"""Many byte strings in one buffer, compared and numbered without making an object of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

_AT_ONCE = 4096
_FEW = 64


@dataclass(frozen=True)
class ByteRanges:
    """Byte strings that lie somewhere in a buffer (uint8)."""

    data: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)

    def __iter__(self) -> Iterator[bytes]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.begins[row] : self.ends[row]].tobytes()

    def take(self, rows: np.ndarray) -> ByteRanges:
        return replace(self, begins=self.begins[rows], ends=self.ends[rows])

    def words(self, offsets: np.ndarray | int) -> np.ndarray:
        """The eight bytes at `offsets` of each string, little-endian, as int64, with zeros after its end."""
        places = self.begins.astype(np.int64) + offsets
        left = self.ends - places
        view = np.ndarray((max(len(self.data) - 7, 0),), dtype="<u8", buffer=self.data.data, strides=(1,))
        if np.minimum.reduce(left, initial=8) >= 8:
            return view[places].view(np.int64)
        left = np.clip(left, 0, 8)
        words = view[np.where(left > 0, places, 0)]
        masks = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)
        return (words & masks[left]).view(np.int64)

    def _runs(self) -> np.ndarray:
        """Rows whose string is not that of the row before; some rows at a time, whose bytes then stay in the cache."""
        lengths = self.ends - self.begins
        other = np.ones(len(self), dtype=bool)
        other[1:] = lengths[1:] != lengths[:-1]
        for start in range(0, len(self) - 1, _AT_ONCE):
            rows = slice(start, start + _AT_ONCE + 1)
            some = ByteRanges(self.data, self.begins[rows], self.ends[rows])
            changed = other[start + 1 : start + _AT_ONCE + 1]
            for offset in range(0, int(lengths[rows].max()), 8):
                words = some.words(offset)
                changed |= words[1:] != words[:-1]
        return np.flatnonzero(other)

    def hashes(self) -> np.ndarray:
        """One int64 each; equal strings have equal ones."""
        lengths = self.ends - self.begins
        hashed = (lengths.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
        for offset in range(0, int(lengths.max(initial=0)), 8):
            hashed = (hashed ^ self.words(offset).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            hashed ^= hashed >> np.uint64(29)
        return hashed.view(np.int64)

    def coded(self) -> tuple[np.ndarray, list[bytes]]:
        """For each string the place of its value in the list of distinct ones. Fast where equal ones are neighbours."""
        if len(self) <= _FEW:
            return self._coded_one_by_one()
        begins = self._runs()
        if 2 * len(begins) < len(self):
            codes, values = self.take(begins).coded()
            return np.repeat(codes, np.diff(begins, append=len(self))), values
        _, firsts, codes = np.unique(self.hashes(), return_index=True, return_inverse=True)
        values = [self[int(row)] for row in firsts]
        same = self.take(firsts[codes])
        longest = int((self.ends - self.begins).max(initial=0))
        if all((self.words(offset) == same.words(offset)).all() for offset in range(0, longest, 8)):
            return codes, values
        return self._coded_one_by_one()  # two values have one hash

    def _coded_one_by_one(self) -> tuple[np.ndarray, list[bytes]]:
        values = list(self)
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
        return np.array([codes[value] for value in values], dtype=np.int64), list(codes)

    @staticmethod
    def of(values: Sequence[bytes]) -> ByteRanges:
        sizes = np.array([len(value) for value in values], dtype=np.int64)
        ends = np.cumsum(sizes)
        return ByteRanges(np.frombuffer(b"".join(values) + bytes(8), dtype=np.uint8), ends - sizes, ends)
