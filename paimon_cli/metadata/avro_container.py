"""Avro object container files: a header, then compressed blocks with a sync marker after each (FORMAT.md, section 4.1).

fastavro encodes and decodes the records. The frame around them is ours, so that one call decodes a block, every codec that
Paimon writes can be read, times stay integers, equal records give equal bytes, and small files that claim to hold very much
are refused before memory is taken. Manifests and their lists are read whole, data files block by block.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.avro_schema import AvroSchema, array, checked_schema, parsed_items, plain_times, refuse_endless

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
"""Names of `file.compression`, and Avro's own names for them."""

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
HEADER = {"type": "map", "values": "bytes"}
BLOCK_RECORDS = 200
"""Blocks of manifests are small, so that a single file can already be decoded side by side (`avro_columns`)."""

_ROLLED_RECORDS = 1000
"""After this many records a writer looks at the size of its file, as Java does."""
_ZSTD_LEVEL = 1
_PIECE_BYTES = 64 << 10
_MOST_READ = 64 << 20
_LONGEST_NUMBER = 10

_SMALL_BLOCK_BYTES = 16 << 20
_MOST_EXPANSION = 256
_MOST_BLOCK_BYTES = 1 << 30


def most_bytes(compressed: int) -> int:
    """The most that a block of a manifest may expand to: 16 MB, or 256 times its size. Statistics compress some 30 times."""
    return min(_MOST_BLOCK_BYTES, max(_SMALL_BLOCK_BYTES, _MOST_EXPANSION * compressed))


class ContainerWriter:
    """Writes one container to `sink`; equal records give equal bytes. `size` counts the bytes written so far."""

    def __init__(
        self, sink: BinaryIO, schema: AvroSchema, codec: str = "zstandard", zstd_level: int = _ZSTD_LEVEL, block_records: int = 0
    ) -> None:
        self._sink = sink
        self._schema = json.dumps(schema, separators=(",", ":")).encode()
        self._items = parsed_items(schema)
        self._codec, self._level = codec, zstd_level
        self._block_records = block_records
        self._marker = b""
        self.size = 0

    def append(self, records: Sequence[Any]) -> None:
        """Append records as one block, or as blocks of `block_records`. The first block also determines the sync marker."""
        for block in self._cut(records):
            content = encode_value(self._items, block)
            # An array is its count, its items and a zero: what lies between is the block.
            self._append_block(len(block), content[_number_size(content) : -1])

    def append_encoded(self, records: Sequence[bytes]) -> None:
        """Append records that are encoded already, in the schema of this container."""
        for block in self._cut(records):
            self._append_block(len(block), b"".join(block))

    def finish(self) -> None:
        """A container without records still has a header."""
        if not self._marker:
            self._begin(b"")

    def _cut(self, records: Sequence[Any]) -> Iterator[Sequence[Any]]:
        size = self._block_records or max(len(records), 1)
        return (records[start : start + size] for start in range(0, len(records), size))

    def _append_block(self, count: int, items: bytes) -> None:
        if not self._marker:
            self._begin(items)
        stored = compressed(items, self._codec, self._level)
        self._write(encode_value("long", count) + encode_value("long", len(stored)) + stored + self._marker)

    def _begin(self, items: bytes) -> None:
        self._marker = hashlib.blake2b(self._schema + items, digest_size=SYNC_SIZE).digest()
        header = {"avro.schema": self._schema, "avro.codec": self._codec.encode()}
        self._write(MAGIC + encode_value(HEADER, header) + self._marker)

    def _write(self, content: bytes) -> None:
        self._sink.write(content)
        self.size += len(content)


def encode_container(schema: AvroSchema, records: Sequence[Mapping[str, Any]]) -> bytes:
    """All records as one container in memory."""
    sink, writer = _in_memory(schema)
    writer.append(records)
    writer.finish()
    return sink.getvalue()


def rolled_containers(
    schema: AvroSchema, records: Sequence[Any], target_size: int, are_encoded: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Containers of about `target_size` bytes, each with the number of its records; none for no records.

    `are_encoded`: the records are Avro bytes of the same schema, to be copied.
    """
    begin = end = 0
    sink, writer = _in_memory(schema)
    for start in range(0, len(records), _ROLLED_RECORDS):
        portion = records[start : start + _ROLLED_RECORDS]
        if are_encoded:
            writer.append_encoded(portion)
        else:
            writer.append(portion)
        end += len(portion)
        if writer.size >= target_size:
            yield sink.getvalue(), end - begin
            begin = end
            sink, writer = _in_memory(schema)
    if end > begin:
        yield sink.getvalue(), end - begin


def _in_memory(schema: AvroSchema) -> tuple[io.BytesIO, ContainerWriter]:
    sink = io.BytesIO()
    return sink, ContainerWriter(sink, schema, block_records=BLOCK_RECORDS)


@dataclass(frozen=True)
class Container:
    """An opened container: the text of the writer's schema, and (number of records, decompressed bytes) of each block.

    Blocks are read and decompressed, once, as they are asked for.
    """

    schema: bytes
    blocks: Iterable[tuple[int, bytes]]


def open_container(source: BinaryIO, most: Callable[[int], int] = most_bytes) -> Container:
    """Read the header. Raises, here or when blocks are asked for, one of `damage_errors` for bytes that are no container.

    `most`: what a block may expand to, given its compressed size.
    """
    if source.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin as an Avro file")
    header = read_value(source, HEADER)
    codec = header.get("avro.codec", b"null").decode()
    marker = source.read(SYNC_SIZE)
    if len(marker) < SYNC_SIZE:
        raise ValueError("its header is cut off")
    return Container(header["avro.schema"], _blocks(source, codec, marker, most))


def _blocks(source: BinaryIO, codec: str, marker: bytes, most: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while first := source.read(1):
        number += 1
        count, size = _long(source, first), _long(source, source.read(1))
        stored = _read(source, size)
        if len(stored) != size or source.read(SYNC_SIZE) != marker:
            raise ValueError(f"block {number} is cut off or its sync marker is wrong")
        yield count, decompressed(stored, codec, most(size))


def _long(source: BinaryIO, first: bytes) -> int:
    """A number of variable length whose first byte has been read."""
    encoded = first
    while not encoded or encoded[-1] & 0x80:
        more = source.read(1)
        if not more or len(encoded) == _LONGEST_NUMBER:
            raise ValueError("the file ends inside of a number" if not more else "a number is too long")
        encoded += more
    groups = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(encoded))
    return (groups >> 1) ^ -(groups & 1)


def _read(source: BinaryIO, size: int) -> bytes:
    """`size` bytes or, at the end of the file, what is left: read in pieces, since a damaged size could exceed the memory."""
    pieces = []
    while size > 0 and (piece := source.read(min(size, _MOST_READ))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def decoded_records(content: bytes, count: int, schema: AvroSchema) -> list[Any]:
    """The records of a block in one call: with its count before it and an end mark after it, it is an Avro array."""
    if not 0 <= count <= len(content):
        raise ValueError(f"a block of {len(content)} bytes cannot hold {count} records")
    if not count:
        return []
    source = io.BytesIO(encode_value("long", count) + content + b"\0")
    records: list[Any] = read_value(source, parsed_items(schema))
    if source.read(1):
        raise ValueError("a block holds more than its records")
    return records


def decode_container(data: bytes, path: str, expected: AvroSchema) -> list[dict[str, Any]]:
    """All records. Fields may come in any order, as any union, be unknown or missing; what is there must have our types.

    Raises `DamagedFile` that names `path` and what does not fit.
    """
    try:
        container = open_container(io.BytesIO(data))
        return records_of(container.blocks, checked_schema(container.schema, expected))
    except damage_errors() as error:
        raise damaged(path, error) from error


def records_of(blocks: Iterable[tuple[int, bytes]], schema: AvroSchema) -> list[dict[str, Any]]:
    """All records of blocks; one of `damage_errors` for malformed ones."""
    records = [record for count, content in blocks for record in decoded_records(content, count, schema)]
    if any(not isinstance(record, dict) for record in records):
        raise ValueError("a record is null")
    return records


def record_batches(source: BinaryIO) -> Iterator[list[Any]]:
    """The records of each block of a data file, whose blocks may expand without a limit but the memory's.

    Raises what `open_container` does.
    """
    container = _data_file(source)
    schema = plain_times(json.loads(container.schema))
    refuse_endless(array(schema))
    for count, content in container.blocks:
        yield decoded_records(content, count, schema)


def record_count(source: BinaryIO) -> int:
    """How many records a data file holds; none of them is decoded. Raises what `open_container` does."""
    return sum(count for count, _ in _data_file(source).blocks)


def _data_file(source: BinaryIO) -> Container:
    buffered = io.BufferedReader(source, _PIECE_BYTES) if isinstance(source, io.RawIOBase) else source
    return open_container(buffered, lambda size: _MOST_BLOCK_BYTES)


def compressed(items: bytes, codec: str, zstd_level: int) -> bytes:
    """A block as it is stored; `codec` is one of Avro's own names."""
    if codec == "zstandard":
        return bytes(zstd_module().compress(items, zstd_level))
    if codec == "snappy":
        import pyarrow as pa

        return bytes(pa.compress(items, codec="snappy", asbytes=True)) + zlib.crc32(items).to_bytes(4, "big")
    if codec == "deflate":
        packer = zlib.compressobj(wbits=-15)
        return packer.compress(items) + packer.flush()
    return items


def decompressed(block: bytes, codec: str, most: int) -> bytes:
    """The content of a block; `ValueError` for an unknown codec, or a block that is damaged or expands to more than `most`."""
    if codec == "zstandard":
        decompressor = zstd_module().ZstdDecompressor()
        content: bytes = decompressor.decompress(block, most)
        if not decompressor.eof:
            raise ValueError("a block is cut off or unreasonably big")
        return content
    if codec == "null":
        return block
    if codec == "deflate":
        return zlib.decompressobj(-15).decompress(block, most)
    if codec == "snappy":
        import pyarrow as pa

        size = _uncompressed_snappy_size(block, most)
        return bytes(pa.decompress(block[:-4], decompressed_size=size, codec="snappy", asbytes=True))
    raise ValueError(f"codec '{codec}' is none of null, snappy, zstandard, deflate")


def _uncompressed_snappy_size(block: bytes, most: int) -> int:
    """Snappy begins with the size as a little-endian base-128 number; Avro appends a checksum of 4 bytes."""
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    if size > most:
        raise ValueError("a block is unreasonably big")
    return size


def encode_value(schema: AvroSchema, value: Any) -> bytes:
    """The bytes of one value."""
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read_value(source: BinaryIO, schema: AvroSchema) -> Any:
    """The value that comes next."""
    import fastavro

    return fastavro.schemaless_reader(source, schema, None)


def _number_size(encoded: bytes) -> int:
    """Bytes of the number at the beginning: all but its last byte have the top bit set."""
    size = 1
    while encoded[size - 1] & 0x80:
        size += 1
    return size


@cache
def zstd_module() -> Any:
    """Python's own zstd, or its backport."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        from backports import zstd
    return zstd


def damage_errors() -> tuple[type[BaseException], ...]:
    """What fastavro and the codecs raise for bytes that are not what they should be."""
    from fastavro.schema import SchemaParseException, UnknownType

    broken = (MemoryError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, OSError)
    return (*broken, zlib.error, zstd_module().ZstdError, SchemaParseException, UnknownType)


def damaged(path: str, error: BaseException) -> DamagedFile:
    """The error for a file that is no Avro, or not of our types."""
    why = "a length in it exceeds the memory" if isinstance(error, MemoryError) else f"{error}" or type(error).__name__
    return DamagedFile(f"{path} is not a readable Avro file", why, "restore the file, or go back to an older snapshot", path=path)
