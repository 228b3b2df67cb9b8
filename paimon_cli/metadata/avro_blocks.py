"""Avro object container files as a stream of blocks, for data files that should not lie in memory whole (format section 7.2).

fastavro does the records; a block is one call of it, times stay integers.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from paimon_cli.metadata.avro_container import (
    MAGIC,
    SYNC_SIZE,
    AvroSchema,
    array,
    decompressed,
    encode_value,
    encoded_long_size,
    plain_times,
    read_value,
    zstd_module,
)
from paimon_cli.metadata.avro_limits import refuse_endless

HEADER = {"type": "map", "values": "bytes"}
CODECS = {
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "snappy": "snappy",
    "deflate": "deflate",
    "gzip": "deflate",
    "zlib": "deflate",
    "none": "null",
    "null": "null",
    "uncompressed": "null",
}
"""Names of `file.compression` -> Avro's own."""

_PIECE = 64 << 10


class BlockWriter:
    """Writes a header and blocks to `sink`; equal records give equal bytes."""

    def __init__(self, sink: BinaryIO, schema: AvroSchema, codec: str, zstd_level: int) -> None:
        self._sink = sink
        self._codec = codec
        self._level = zstd_level
        self._schema = json.dumps(schema, separators=(",", ":")).encode()
        self._items = array(plain_times(schema))
        self._marker = b""

    def append(self, records: Sequence[Any]) -> None:
        """One block."""
        content = encode_value(self._items, records)
        # An array is its count, its items and a zero: what lies between is the block.
        items = content[encoded_long_size(content) : -1] if records else b""
        if not self._marker:
            self._begin(items)
        if records:
            stored = self._compressed(items)
            self._sink.write(encode_value("long", len(records)) + encode_value("long", len(stored)) + stored + self._marker)

    def finish(self) -> None:
        """A file without records has a header all the same."""
        if not self._marker:
            self._begin(b"")

    def _begin(self, items: bytes) -> None:
        self._marker = hashlib.blake2b(self._schema + items, digest_size=SYNC_SIZE).digest()
        header = {"avro.schema": self._schema, "avro.codec": self._codec.encode()}
        self._sink.write(MAGIC + encode_value(HEADER, header) + self._marker)

    def _compressed(self, items: bytes) -> bytes:
        if self._codec == "zstandard":
            return bytes(zstd_module().compress(items, self._level))
        if self._codec == "snappy":
            import pyarrow as pa

            return bytes(pa.compress(items, codec="snappy", asbytes=True)) + zlib.crc32(items).to_bytes(4, "big")
        if self._codec == "deflate":
            packer = zlib.compressobj(wbits=-15)
            return packer.compress(items) + packer.flush()
        return items


def read_blocks(source: BinaryIO) -> Iterator[list[Any]]:
    """The records of each block. `ValueError`, or what fastavro and the codecs raise, for bytes that are no such file."""
    reader = io.BufferedReader(source, _PIECE) if isinstance(source, io.RawIOBase) else source
    if reader.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin as an Avro file")
    header = read_value(reader, HEADER)
    items = array(plain_times(json.loads(header["avro.schema"])))
    refuse_endless(items)
    codec = header.get("avro.codec", b"null").decode()
    marker = reader.read(SYNC_SIZE)
    if len(marker) != SYNC_SIZE:
        raise ValueError("the file ends inside of its header")
    while begin := reader.read(1):
        count, size = _long(reader, begin), _long(reader, reader.read(1))
        block = reader.read(size) if size >= 0 else b""
        if len(block) != size or reader.read(SYNC_SIZE) != marker:
            raise ValueError("a block is cut off or its sync marker is wrong")
        yield _records(decompressed(block, codec), count, items)


def _records(content: bytes, count: int, items: AvroSchema) -> list[Any]:
    """Decode a block in one call: with count and end mark around it, it is an Avro array."""
    if count < 0:
        raise ValueError("a block has a negative count")
    if not count:
        return []
    source = io.BytesIO(encode_value("long", count) + content + b"\0")
    records: list[Any] = read_value(source, items)
    if source.read(1):
        raise ValueError("a block holds more than its records")
    return records


def _long(reader: BinaryIO, begin: bytes) -> int:
    """A variable-length number whose first byte was read."""
    encoded = begin
    while encoded and encoded[-1] & 0x80 and len(encoded) < 10:
        more = reader.read(1)
        if not more:
            raise ValueError("the file ends inside of a number")
        encoded += more
    return int(read_value(io.BytesIO(encoded), "long"))
