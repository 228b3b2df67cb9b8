"""Decodes deletion vectors from an index file: magic, length, bitmap, checksum (FORMAT.md, section 8)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyroaring import BitMap, BitMap64

from paimon_cli.errors import DamagedFile

MAGIC_32 = 1581511376
MAGIC_64 = 1681511377


@dataclass(frozen=True)
class DeletionVector:
    """Positions (0-based row numbers) of the deleted rows of one data file."""

    positions: Any  # BitMap or BitMap64: the same methods, no common type

    def live_mask(self, start: int, end: int) -> np.ndarray:
        """For rows [start, end): True where the row is not deleted."""
        mask = np.ones(end - start, dtype=bool)
        window = type(self.positions)(range(start, end)) & self.positions
        if window:
            mask[np.array(window.to_array(), dtype=np.int64) - start] = False
        return mask


def decode_deletion_vector(content: bytes, offset: int, length: int, path: str) -> DeletionVector:
    """One entry of an index file; `offset` and `length` come from the index manifest. Raises `DamagedFile`."""
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
            f"index file {path} is damaged", f"a deletion vector of {size} bytes is listed with {length}", path=path
        )
    if zlib.crc32(content[offset + 4 : end]) != struct.unpack_from(">I", content, end)[0]:
        raise DamagedFile(f"index file {path} is damaged", f"wrong checksum of the deletion vector at byte {offset}", path=path)
    kind = BitMap if magic == MAGIC_32 else BitMap64
    try:
        return DeletionVector(kind.deserialize(content[bitmap_start:end]))
    except ValueError as error:
        raise DamagedFile(f"index file {path} is damaged", f"the bitmap at byte {offset} cannot be read", path=path) from error
