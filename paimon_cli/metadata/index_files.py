"""Index files: deletion vectors, key hashes, file indexes of data files, and the Bloom filters in these.

See FORMAT.md, sections 6.4, 7.4 and 8 (Java HashIndexFile, FileIndexFormat, BloomFilter64).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import DeletionVectorRange

MAGIC_32 = 1581511376
MAGIC_64 = 1681511377
VECTORS_VERSION = b"\x01"
"""The first byte of an index file of deletion vectors."""
MAX_SORTED = 1 << 24
"""The most positions that a vector keeps as an array, which takes 8 bytes for each."""


@dataclass(frozen=True)
class DeletionVector:
    """Positions (0-based row numbers) of the deleted rows of one data file."""

    positions: Any  # BitMap or BitMap64: the same methods, no common type

    @staticmethod
    def marking(positions: Any, *, bitmap64: bool) -> DeletionVector:
        """A vector with these positions, given as an array or another bitmap."""
        return DeletionVector((BitMap64 if bitmap64 else BitMap)(positions))

    def with_deleted(self, positions: Any) -> DeletionVector:
        """A vector of the same kind that also marks the rows at `positions`."""
        return DeletionVector(self.positions | type(self.positions)(positions))

    def live_rows(self, count: int, first: int = 0) -> np.ndarray:
        """Boolean mask of `count` rows of the file from row `first` on: True for live rows, False for deleted ones.

        A reader asks for the rows that it has decoded: the count in the metadata of a file may be false.
        """
        live = np.ones(count, dtype=bool)
        if len(self.positions) > MAX_SORTED:
            deleted = self._among(range(first, first + count))
        else:
            begin, end = np.searchsorted(self._sorted, (first, first + count))
            deleted = self._sorted[begin:end]
        live[deleted - first] = False
        return live

    def marks(self, rows: np.ndarray) -> np.ndarray:
        """Boolean mask of `rows`, row numbers in any order: True for deleted ones. Negative numbers give False."""
        large = len(self.positions) > MAX_SORTED
        deleted = self._among(rows[(rows >= 0) & (rows <= self.positions.max())]) if large else self._sorted
        positions = np.searchsorted(deleted, rows)
        marked = positions < len(deleted)
        marked[marked] = deleted[positions[marked]] == rows[marked]
        return marked

    @cached_property
    def _sorted(self) -> np.ndarray:
        return np.array(self.positions.to_array(), dtype=np.int64)

    def _among(self, rows: range | np.ndarray) -> np.ndarray:
        """The deleted ones of some rows, sorted: a few bytes can mark as many positions as the type has numbers."""
        kind = type(self.positions)
        numbers = rows if isinstance(rows, range) else kind(rows.astype(np.uint64 if kind is BitMap64 else np.uint32))
        return np.array((self.positions & kind(numbers)).to_array(), dtype=np.int64)


def decode_deletion_vector(content: bytes, offset: int, length: int, path: str) -> DeletionVector:
    """The vector at byte `offset` of an index file; the index manifest gives `offset` and `length`. Raises `DamagedFile`."""
    if offset < 1 or offset + 8 > len(content):
        raise DamagedFile(f"index file {path} is damaged", f"it has no deletion vector at byte {offset}", path=path)
    size, magic = struct.unpack_from(">ii", content, offset)
    if magic == MAGIC_32:
        expected, bitmap_start = size, offset + 8
    elif struct.unpack_from("<i", content, offset + 4)[0] == MAGIC_64:
        expected, bitmap_start = size + 8, offset + 8
    else:
        raise DamagedFile(f"index file {path} is damaged", f"no deletion vector begins at byte {offset}", path=path)
    end = offset + 4 + size
    if size < 4 or expected != length or end + 4 > len(content):
        raise DamagedFile(
            f"index file {path} is damaged",
            f"the deletion vector at byte {offset} has {expected} bytes instead of {length}, or is cut off",
            path=path,
        )
    if zlib.crc32(content[offset + 4 : end]) != struct.unpack_from(">I", content, end)[0]:
        raise DamagedFile(f"index file {path} is damaged", f"wrong checksum of the deletion vector at byte {offset}", path=path)
    kind = BitMap if magic == MAGIC_32 else BitMap64
    try:
        return DeletionVector(kind.deserialize(content[bitmap_start:end]))
    except (ValueError, IndexError) as error:  # the latter without any bytes
        raise DamagedFile(f"index file {path} is damaged", f"the bitmap at byte {offset} cannot be read", path=path) from error


def encode_deletion_vectors(
    vectors: Mapping[str, DeletionVector], target_size: int | None = None
) -> Iterator[tuple[bytes, tuple[DeletionVectorRange, ...]]]:
    """Index files with these vectors (data file name -> vector), byte for byte as Java writes them, with their ranges.

    A new file is begun once one exceeds `target_size` bytes. With None, one file holds all vectors, even if there are none.
    """
    content, ranges, rolled = bytearray(VECTORS_VERSION), list[DeletionVectorRange](), False
    for name, vector in vectors.items():
        entry, length = _vector_entry(vector.positions)
        ranges.append(DeletionVectorRange(name, len(content), length, len(vector.positions)))
        content += entry
        if target_size is not None and len(content) > target_size:
            yield bytes(content), tuple(ranges)
            content, ranges, rolled = bytearray(VECTORS_VERSION), [], True
    if ranges or not rolled:
        yield bytes(content), tuple(ranges)


def _vector_entry(positions: Any) -> tuple[bytes, int]:
    """Size, magic, bitmap and checksum; and the length for the index manifest, which is defined differently for each kind."""
    is_wide = isinstance(positions, BitMap64)
    if is_wide:
        body = struct.pack("<i", MAGIC_64) + _wide_bitmap(positions)
    else:
        body = struct.pack(">i", MAGIC_32) + roaring_bytes(positions)
    entry = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return entry, len(entry) if is_wide else len(body)


def roaring_bytes(positions: BitMap) -> bytes:
    """A 32-bit bitmap in the portable form, with runs where they are shorter, as Java's RoaringBitmap32 writes it."""
    shortest = positions.copy()
    shortest.run_optimize()
    return bytes(shortest.serialize())


def _wide_bitmap(positions: BitMap64) -> bytes:
    """One 32-bit bitmap for each upper half from 0 to the greatest, including empty ones."""
    values = np.array(positions.to_array(), dtype=np.uint64)
    uppers = int(values[-1] >> np.uint64(32)) + 1 if len(values) else 0
    bounds = np.searchsorted(values, np.arange(uppers + 1, dtype=np.uint64) << np.uint64(32))
    halves = (values & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    encoded = struct.pack("<q", uppers)
    for upper in range(uppers):
        encoded += struct.pack("<i", upper) + roaring_bytes(BitMap(halves[bounds[upper] : bounds[upper + 1]]))
    return encoded


KeyHashes = npt.NDArray[np.int32]
"""Hashes of keys, as computed by `bucket_hash.hash_rows`."""
KEY_HASH_BYTES = 4


def encode_key_hashes(hashes: KeyHashes) -> bytes:
    """The content of a hash index file: the hashes as big-endian 32-bit integers."""
    return hashes.astype(">i4").tobytes()


def decode_key_hashes(content: bytes, path: str) -> KeyHashes:
    """The hashes in a hash index file. Raises `DamagedFile`."""
    if len(content) % KEY_HASH_BYTES:
        raise DamagedFile(f"index file {path} is damaged", f"{len(content)} bytes are not a sequence of 32-bit hashes", path=path)
    return np.frombuffer(content, ">i4").astype(np.int32)


FILE_INDEX_MAGIC, FILE_INDEX_VERSION = 1493475289347502, 1
_EMPTY = -1
_HEAD = struct.Struct(">qiii")
_INT = struct.Struct(">i")

Bodies = Mapping[str, Mapping[str, bytes | None]]
"""Column -> index type -> body; None for an index without a body, which cannot rule out any value."""


def encode_file_index(columns: Bodies) -> bytes:
    """The bytes of a file index, the container of all indexes of one data file."""
    head_length = _HEAD.size + 4
    for column, indexes in columns.items():
        head_length += _name_size(column) + 4 + sum(_name_size(kind) + 8 for kind in indexes)
    head = bytearray(_HEAD.pack(FILE_INDEX_MAGIC, FILE_INDEX_VERSION, head_length, len(columns)))
    body = bytearray()
    for column, indexes in columns.items():
        head += _name(column) + _INT.pack(len(indexes))
        for kind, content in indexes.items():
            start = _EMPTY if content is None else head_length + len(body)
            head += _name(kind) + _INT.pack(start) + _INT.pack(len(content or b""))
            body += content or b""
    return bytes(head + _INT.pack(0) + body)


def decode_file_index(data: bytes) -> dict[str, dict[str, bytes | None]]:
    """The indexes in a file index, the inverse of `encode_file_index`. Raises a `ValueError` that names the malformed part."""
    try:
        magic, version, head_length, count = _HEAD.unpack_from(data)
        if (magic, version) != (FILE_INDEX_MAGIC, FILE_INDEX_VERSION) or not 0 <= head_length <= len(data):
            raise ValueError(f"magic {magic}, version {version}, head of {head_length} bytes")
        position = _HEAD.size
        columns: dict[str, dict[str, bytes | None]] = {}
        for _ in range(count):
            name, position = _read_name(data, position)
            (indexes,) = _INT.unpack_from(data, position)
            position += 4
            columns[name] = {}
            for _ in range(indexes):
                kind, position = _read_name(data, position)
                start, length = struct.unpack_from(">ii", data, position)
                position += 8
                columns[name][kind] = None if start == _EMPTY else _slice(data, start, length)
    except struct.error as error:
        raise ValueError(f"it is cut off: {error}") from error
    return columns


def _slice(data: bytes, start: int, length: int) -> bytes:
    if start < 0 or length < 0 or start + length > len(data):
        raise ValueError(f"the {length} bytes at {start} lie outside the file index")
    return data[start : start + length]


def _name(text: str) -> bytes:
    encoded = modified_utf8(text)
    return struct.pack(">H", len(encoded)) + encoded


def _name_size(text: str) -> int:
    return 2 + len(modified_utf8(text))


def _read_name(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">H", data, position)
    end = position + 2 + size
    return from_modified_utf8(_slice(data, position + 2, size)), end


def modified_utf8(text: str) -> bytes:
    """Java's modified UTF-8: U+0000 in two bytes, characters above U+FFFF as two surrogates of three bytes each."""
    units = text.encode("utf-16-be", "surrogatepass")
    encoded = bytearray()
    for (unit,) in struct.iter_unpack(">H", units):
        encoded += b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass")
    return bytes(encoded)


def from_modified_utf8(data: bytes) -> str:
    """The inverse of `modified_utf8`. Malformed bytes raise `ValueError`."""
    units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


Hashes = npt.NDArray[np.uint64]


@dataclass
class BloomFilter:
    """A Bloom filter that sets `hash_functions` bits per value. `bits` are packed into bytes, the lowest bit first."""

    hash_functions: int
    bits: npt.NDArray[np.uint8]

    @staticmethod
    def sized(items: int, false_positives: float) -> BloomFilter:
        """An empty filter for `items` values with a false-positive rate of `false_positives`, between 0 and 1."""
        bits = int(-items * math.log(false_positives) / math.log(2) ** 2)
        bits += 8 - bits % 8
        functions = max(1, math.floor(bits / items * math.log(2) + 0.5))
        return BloomFilter(functions, np.zeros(bits // 8, np.uint8))

    def add(self, hashes: Hashes) -> None:
        for positions in self._positions(hashes):
            np.bitwise_or.at(self.bits, positions >> 3, np.left_shift(1, positions & 7).astype(np.uint8))

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Boolean mask of `hashes`: False for values that were certainly not added."""
        found = np.ones(len(hashes), bool)
        for positions in self._positions(hashes):
            found &= (self.bits[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).astype(bool)
        return found

    def _positions(self, hashes: Hashes) -> list[npt.NDArray[np.int64]]:
        low, high = hashes.astype(np.uint32).view(np.int32), (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
        positions = []
        with np.errstate(over="ignore"):
            for number in range(1, self.hash_functions + 1):
                combined = low + np.int32(number) * high
                positive = np.where(combined < 0, ~combined, combined)
                positions.append(positive.astype(np.int64) % (len(self.bits) * 8))
        return positions

    def to_bytes(self) -> bytes:
        return self.hash_functions.to_bytes(4, "big") + self.bits.tobytes()

    @staticmethod
    def from_bytes(body: bytes) -> BloomFilter:
        """The filter from its body in a file index. Raises `ValueError` if it is malformed."""
        functions = int.from_bytes(body[:4], "big")
        if len(body) < 5 or not 1 <= functions <= 1000:
            raise ValueError(f"{len(body)} bytes with {functions} hash functions are not a Bloom filter")
        return BloomFilter(functions, np.frombuffer(body[4:], np.uint8).copy())
