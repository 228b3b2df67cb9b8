"""Byte strings of a file as positions in its bytes, compared and numbered without copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paimon_cli.pieces import PIECES

_BYTE_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)
"""Masks for the first 0 to 8 bytes of a little-endian word."""


@dataclass(frozen=True)
class ByteRanges:
    """Byte strings in a shared buffer `data` (uint8): string i is `data[begins[i]:ends[i]]`."""

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
        """The eight bytes at `offsets` within each string, as little-endian int64, padded with zeros after its end."""
        positions = self.begins.astype(np.int64) + offsets
        left = self.ends - positions
        view = np.ndarray((max(len(self.data) - 7, 0),), dtype="<u8", buffer=self.data.data, strides=(1,))
        if np.minimum.reduce(left, initial=8) >= 8:
            return view[positions].view(np.int64)
        left = np.clip(left, 0, 8)
        words = view[np.where(left > 0, positions, 0)]
        return (words & _BYTE_MASKS[left]).view(np.int64)

    def _runs(self) -> np.ndarray:
        """Rows whose string differs from that of the previous row, found in chunks whose bytes fit the cache."""
        lengths = self.ends - self.begins
        other = np.ones(len(self), dtype=bool)
        other[1:] = lengths[1:] != lengths[:-1]
        for start in range(0, len(self) - 1, PIECES.compared_entries):
            rows = slice(start, start + PIECES.compared_entries + 1)
            some = ByteRanges(self.data, self.begins[rows], self.ends[rows])
            changed = other[start + 1 : start + PIECES.compared_entries + 1]
            for offset in range(0, int(lengths[rows].max()), 8):
                words = some.words(offset)
                changed |= words[1:] != words[:-1]
        return np.flatnonzero(other)

    def hashes(self) -> np.ndarray:
        """One int64 per string, which depends only on its bytes, not on the other strings or the buffer."""
        hashed = np.empty(len(self), np.uint64)
        for start in range(0, len(self), PIECES.compared_entries):
            rows = slice(start, start + PIECES.compared_entries)
            hashed[rows] = ByteRanges(self.data, self.begins[rows], self.ends[rows])._chunk_hashes()
        return hashed.view(np.int64)

    def _chunk_hashes(self) -> np.ndarray:
        """Hashes of a non-empty chunk of strings. The last word of a string of eight bytes or more is its last eight bytes, which
        overlap the word before, so that strings of almost the same length take the same steps.
        """
        lengths = self.ends.astype(np.int64) - self.begins
        shortest, longest = int(lengths.min()), int(lengths.max())
        view = np.ndarray((max(len(self.data) - 7, 0),), dtype="<u8", buffer=self.data.data, strides=(1,))
        begins, last = self.begins.astype(np.int64), np.maximum(lengths - 8, 0)
        hashed = (lengths.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
        for offset in range(0, longest, 8):
            offsets = np.minimum(last, offset) if offset + 8 > shortest else offset
            mixed = view[begins + offsets] if shortest >= 8 else self.words(offsets).view(np.uint64)
            mixed ^= hashed
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
            hashed = mixed if offset < shortest else np.where(offset < lengths, mixed, hashed)
        return hashed

    def coded(self) -> tuple[np.ndarray, list[bytes]]:
        """Dictionary-encode: the index of each string's value, and the distinct values. Fast if equal strings are adjacent."""
        if len(self) <= PIECES.few_entries:
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
        return self._coded_one_by_one()  # a hash collision

    def _coded_one_by_one(self) -> tuple[np.ndarray, list[bytes]]:
        values = list(self)
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
        return np.array([codes[value] for value in values], dtype=np.int64), list(codes)

    @staticmethod
    def of(values: Sequence[bytes]) -> ByteRanges:
        sizes = np.array([len(value) for value in values], dtype=np.int64)
        ends = np.cumsum(sizes)
        return ByteRanges(np.frombuffer(b"".join(values) + bytes(8), dtype=np.uint8), ends - sizes, ends)
