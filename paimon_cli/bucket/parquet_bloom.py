"""The split-block Bloom filters that Parquet files may hold for a column of a row group (parquet-format, BloomFilter.md).

Readers of other engines skip row groups by them; `verify` asks them for the rows that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.bucket.bloom_index import Hashes, byte_hashes
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.metadata.compact_thrift import Struct, decode_prefix
from paimon_cli.metadata.parquet_footer import Footer

_SALTS = np.array([0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32)
_BLOCK_BYTES, _HEADER_BYTES = 32, 128
_MAX_BYTES = 128 << 20
"""The largest filter that Parquet's writers make."""
_OFFSET = 14
"""Field of a chunk's metadata: where its filter begins."""
_STORED_AS = {"TINYINT": np.int32, "SMALLINT": np.int32, "INT": np.int32, "DATE": np.int32, "BIGINT": np.int64}
_BYTES = frozenset({"VARCHAR", "VARBINARY"})


def hashes_in_parquet(column: pa.Array, t: DataType) -> Hashes | None:
    """The hashes of the values that are not null: xxHash64 of their PLAIN encoding. None for types whose encoding depends on the
    writer."""
    present = column.drop_null()
    if t.root in _BYTES:
        return byte_hashes(present)
    if t.root not in _STORED_AS:
        return None
    integers = present.cast(pa.int32()) if t.root == "DATE" else present
    stored = integers.to_numpy().astype(_STORED_AS[t.root])
    offsets = np.arange(len(stored) + 1, dtype=np.int32) * stored.itemsize
    return byte_hashes(pa.Array.from_buffers(pa.binary(), len(stored), [None, pa.py_buffer(offsets), pa.py_buffer(stored)]))


@dataclass(frozen=True)
class BlockFilter:
    """A filter of blocks of 256 bits: a value sets one bit in each of the eight words of its block."""

    words: npt.NDArray[np.uint32]
    """Of shape (blocks, 8)."""

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Boolean mask of `hashes`: False for values that were certainly not added."""
        blocks = ((hashes >> np.uint64(32)) * np.uint64(len(self.words))) >> np.uint64(32)
        with np.errstate(over="ignore"):
            bits = np.uint32(1) << ((hashes.astype(np.uint32)[:, None] * _SALTS) >> np.uint32(27))
        return np.asarray(((self.words[blocks] & bits) == bits).all(axis=1))


def block_filter(source: BinaryIO, footer: Footer, group: int, leaf: int) -> BlockFilter | None:
    """The filter of a column chunk; None if it has none, or one of a kind that parquet-format does not describe.

    Raises `ValueError` or `LookupError` if it is malformed.
    """
    offset = footer.chunk(group, leaf).required(3).value(_OFFSET)
    if offset is None:
        return None
    source.seek(offset)
    header, begin = decode_prefix(source.read(_HEADER_BYTES))
    if not all(1 in header.value(field, Struct()) for field in (2, 3, 4)):  # split blocks, xxHash, not compressed
        return None
    size = header.required(1)
    if not 0 < size <= _MAX_BYTES or size % _BLOCK_BYTES:
        raise ValueError(f"a Bloom filter of {size} bytes")
    source.seek(offset + begin)
    data = source.read(size)
    if len(data) < size:
        raise ValueError(f"a Bloom filter of {size} bytes does not fit into it")
    return BlockFilter(np.frombuffer(data, "<u4").reshape(-1, 8))
