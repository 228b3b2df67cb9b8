"""Reads Avro object container files of any writer: manifests and manifest lists at once, data files block by block.

Damaged files raise `DamagedFile`, and small files that claim huge contents are refused before memory is allocated for them. Other
writers may order fields differently, wrap them in unions, or add fields of their own (FORMAT.md, section 4.1).
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.avro_writer import (
    AVRO_MAGIC,
    HEADER,
    SYNC_SIZE,
    AvroSchema,
    RecordSchema,
    array,
    encode_value,
    schema_of_text,
    zstd_module,
)
from paimon_cli.pieces import PIECES

_MAX_PIECE_BYTES = 64 << 20
_MAX_NUMBER_BYTES = 10
_MAX_DEPTH = 100

_SMALL_BLOCK_BYTES = 16 << 20
_MAX_EXPANSION = 256
_MAX_BLOCK_BYTES = 1 << 30


def max_block_bytes(compressed: int) -> int:
    """The maximum decompressed size of a block of a manifest, in bytes: 16 MiB or 256 times its size, at most 1 GiB.

    Column statistics compress to about a thirtieth of their size.
    """
    return min(_MAX_BLOCK_BYTES, max(_SMALL_BLOCK_BYTES, _MAX_EXPANSION * compressed))


@dataclass(frozen=True)
class Container:
    """An opened container: the writer's schema as JSON, and (number of records, decompressed bytes) of each block.

    Blocks are read and decompressed lazily, and can be iterated over only once.
    """

    schema: bytes
    blocks: Iterable[tuple[int, bytes]]


def open_container(source: BinaryIO, max_bytes: Callable[[int], int] = max_block_bytes) -> Container:
    """Read the header. Malformed bytes raise one of `damage_errors`, here or while iterating over the blocks.

    `max_bytes` gives the largest allowed decompressed size of a block for its compressed size, both in bytes.
    """
    if source.read(len(AVRO_MAGIC)) != AVRO_MAGIC:
        raise ValueError("it does not begin with the magic bytes of an Avro file")
    header = read_value(source, HEADER)
    codec = header.get("avro.codec", b"null").decode()
    marker = source.read(SYNC_SIZE)
    if len(marker) < SYNC_SIZE:
        raise ValueError("its header is cut off")
    return Container(header["avro.schema"], _blocks(source, codec, marker, max_bytes))


def _blocks(source: BinaryIO, codec: str, marker: bytes, max_bytes: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while first := source.read(1):
        number += 1
        count, size = _long(source, first), _long(source, source.read(1))
        stored = _read(source, size)
        if len(stored) != size or source.read(SYNC_SIZE) != marker:
            raise ValueError(f"block {number} is cut off or its sync marker is wrong")
        yield count, decompressed(stored, codec, max_bytes(size))


def _long(source: BinaryIO, first: bytes) -> int:
    """A variable-length number whose first byte has been read already."""
    encoded = first
    while not encoded or encoded[-1] & 0x80:
        more = source.read(1)
        if not more or len(encoded) == _MAX_NUMBER_BYTES:
            raise ValueError("the file ends within a number" if not more else "a number is too long")
        encoded += more
    groups = sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(encoded))
    return (groups >> 1) ^ -(groups & 1)


def _encoded_long(number: int) -> bytes:
    """The inverse of `_long`, for a number that is not negative."""
    encoded, rest = bytearray(), number << 1
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def _read(source: BinaryIO, size: int) -> bytes:
    """`size` bytes, or fewer at the end of the file; read in pieces, since a damaged size could exceed the available memory."""
    pieces = []
    while size > 0 and (piece := source.read(min(size, _MAX_PIECE_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def decoded_records(content: bytes, count: int, schema: RecordSchema) -> list[Any]:
    """The records of a block, decoded in one call: preceded by its count and followed by a zero, a block is an Avro array."""
    if not 0 <= count <= len(content):
        raise ValueError(f"a block of {len(content)} bytes cannot hold {count} records")
    if not count:
        return []
    source = io.BytesIO(_encoded_long(count) + content + b"\0")
    records: list[Any] = read_value(source, schema.items)
    if source.read(1):
        raise ValueError("a block has bytes after its last record")
    return records


def decode_container(data: bytes, path: str, expected: RecordSchema) -> list[dict[str, Any]]:
    """All records of a container. Fields may come in any order, be nullable, unknown or missing; known ones must have our types.

    Raises a `DamagedFile` that names `path` and the mismatch.
    """
    try:
        container = open_container(io.BytesIO(data))
        return records_of(container.blocks, checked_schema(container.schema, expected))
    except damage_errors() as error:
        raise damaged(path, error) from error


def records_of(blocks: Iterable[tuple[int, bytes]], schema: RecordSchema) -> list[dict[str, Any]]:
    """All records of the blocks. Malformed bytes raise one of `damage_errors`."""
    records = [record for count, content in blocks for record in decoded_records(content, count, schema)]
    if any(not isinstance(record, dict) for record in records):
        raise ValueError("a record is null")
    return records


def data_blocks(source: BinaryIO) -> tuple[RecordSchema, Iterator[tuple[int, bytes]]]:
    """The schema of a data file, and the number of records and the bytes of each block; a block may expand to 1 GiB. Raises what
    `open_container` does.
    """
    container = _data_file(source)
    schema = schema_of_text(container.schema)
    refuse_endless(array(schema.plain))
    return schema, iter(container.blocks)


def record_count(source: BinaryIO) -> int:
    """The number of records in a data file, without decoding them. Raises what `open_container` does."""
    return sum(count for count, _ in _data_file(source).blocks)


def stored_names(source: BinaryIO) -> list[str]:
    """The names of the fields of a data file's records, from any position in it. Raises what `open_container` does."""
    source.seek(0)
    schema = json.loads(_data_file(source).schema)
    kinds = schema if isinstance(schema, list) else [schema]
    return [field["name"] for kind in kinds if isinstance(kind, dict) for field in kind.get("fields", ())]


def uncompressed_container(data: bytes) -> bytes:
    """The container with the same records in blocks that are not compressed, for a library that bounds no block itself.

    All blocks together may expand to what `max_block_bytes` allows for the whole file. Raises what `open_container` does, also
    for blocks that cannot hold as many records as they claim, and for arrays whose items take no bytes.
    """
    container, allowed = open_container(io.BytesIO(data)), max_block_bytes(len(data))
    refuse_endless(array(schema_of_text(container.schema).plain))
    out, marker = io.BytesIO(), bytes(SYNC_SIZE)
    out.write(AVRO_MAGIC)
    out.write(encode_value(HEADER, {"avro.schema": container.schema, "avro.codec": b"null"}))
    out.write(marker)
    for count, content in container.blocks:
        if not 0 <= count <= len(content):
            raise ValueError(f"a block of {len(content)} bytes cannot hold {count} records")
        allowed -= len(content)
        if allowed < 0:
            raise ValueError("its blocks are unreasonably large")
        out.write(_encoded_long(count) + _encoded_long(len(content)))
        out.write(content)
        out.write(marker)
    return out.getvalue()


def _data_file(source: BinaryIO) -> Container:
    buffered = io.BufferedReader(source, PIECES.avro_buffer_bytes) if isinstance(source, io.RawIOBase) else source
    return open_container(buffered, lambda size: _MAX_BLOCK_BYTES)


def decompressed(block: bytes, codec: str, max_bytes: int) -> bytes:
    """The content of a block. Raises one of `damage_errors` for an unknown codec or a damaged block.

    A block that is cut off, or expands to more than `max_bytes` bytes, raises one, too.
    """
    if codec == "zstandard":
        decompressor = zstd_module().ZstdDecompressor()
        content: bytes = decompressor.decompress(block, max_bytes)
        if not decompressor.eof:
            raise ValueError("a block is cut off or unreasonably large")
        return content
    if codec == "null":
        return block
    if codec == "deflate":
        inflating = zlib.decompressobj(-15)
        content = inflating.decompress(block, max_bytes)
        if not inflating.eof:
            raise ValueError("a block is cut off or unreasonably large")
        return content
    if codec == "snappy":
        import pyarrow as pa

        size = _uncompressed_snappy_size(block, max_bytes)
        return bytes(pa.decompress(block[:-4], decompressed_size=size, codec="snappy", asbytes=True))
    raise ValueError(f"codec '{codec}' is not one of null, snappy, zstandard, deflate")


def _uncompressed_snappy_size(block: bytes, max_bytes: int) -> int:
    """Snappy begins with the size as a little-endian base-128 number; Avro appends a checksum of 4 bytes."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    if size > max_bytes:
        raise ValueError("a block is unreasonably large")
    return size


def read_value(source: BinaryIO, schema: AvroSchema) -> Any:
    """The next value in `source`."""
    import fastavro

    return fastavro.schemaless_reader(source, schema, None)


def damage_errors() -> tuple[type[BaseException], ...]:
    """The exceptions that fastavro and the codecs raise for malformed bytes."""
    from fastavro.schema import SchemaParseException, UnknownType

    broken = (MemoryError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, OSError)
    return (*broken, zlib.error, zstd_module().ZstdError, SchemaParseException, UnknownType)


def damaged(path: str, error: BaseException) -> DamagedFile:
    """The error for a file that is not valid Avro, or whose fields have unexpected types."""
    why = "a declared length exceeds the memory" if isinstance(error, MemoryError) else f"{error}" or type(error).__name__
    return DamagedFile(f"{path} is not a readable Avro file", why, path=path)


@lru_cache(maxsize=64)
def checked_schema(text: bytes, expected: RecordSchema) -> RecordSchema:
    """The schema in a file's header. Raises `ValueError` if its records do not match those of `expected`."""
    if text == expected.text:
        return expected
    schema = schema_of_text(text)
    refuse_endless(schema.plain)
    _check_fields(_without_null(schema.plain), expected.declared, "record")
    return schema


def _check_fields(theirs: AvroSchema, ours: AvroSchema, path: str) -> None:
    """Raise `ValueError` if a field of both schemas has different types, or if a required field is missing."""
    theirs, ours = _without_null(theirs), _without_null(ours)
    # A file may declare a record once and repeat its name; its fields were then checked at the first occurrence.
    if _type_name(ours) == "record" and isinstance(theirs, str) and theirs.startswith("record"):
        return
    if _type_name(theirs) != _type_name(ours) and not (path.endswith("_FILE_SOURCE") and _type_name(theirs) == "string"):
        raise ValueError(f"{path} should be {_type_name(ours)}, not {_type_name(theirs)}")
    if _type_name(ours) == "array":
        _check_fields(theirs["items"], ours["items"], f"{path} items")
    if _type_name(ours) == "record":
        known = {field["name"]: field["type"] for field in theirs["fields"]}
        for field in ours["fields"]:
            if field["name"] in known:
                _check_fields(known[field["name"]], field["type"], f"{path}.{field['name']}")
            elif "default" not in field and field["name"] != "_EXTRA_FILES":
                raise ValueError(f"{path} has no {field['name']}")


def _without_null(schema: AvroSchema) -> AvroSchema:
    """The type that a union with null makes nullable; other schemas are returned unchanged."""
    if isinstance(schema, list):
        options = [t for t in schema if t != "null"]
        return _without_null(options[0]) if len(options) == 1 else schema
    return schema


def _type_name(schema: AvroSchema) -> str:
    name = schema["type"] if isinstance(schema, dict) else schema
    return "long" if name == "int" else str(name)


def refuse_endless(schema: AvroSchema) -> None:
    """Raise `ValueError` for an array whose items take no bytes: a few bytes could then declare any number of items."""
    _min_bytes(schema, {}, 0)


def _min_bytes(schema: AvroSchema, named: dict[str, int], depth: int) -> int:
    """The smallest number of bytes that a value can take."""
    if depth > _MAX_DEPTH:
        raise ValueError("its schema is nested too deeply")
    if isinstance(schema, list):
        for part in schema:
            _min_bytes(part, named, depth + 1)
        return 1
    if isinstance(schema, str):
        # A name that is still being declared can only occur within a union or array, which takes at least one byte anyway.
        return 0 if schema == "null" else named.get(schema.rpartition(".")[2], 1)
    kind = schema["type"]
    if kind in ("record", "error", "fixed"):
        fields = [_min_bytes(field["type"], named, depth + 1) for field in schema.get("fields", ())]
        least = int(schema["size"]) if kind == "fixed" else sum(fields)
        if least < 0:
            raise ValueError("its schema has a type of less than no bytes")
        name = str(schema["name"]).rpartition(".")[2]  # of types in several namespaces, the least one counts
        named[name] = min(least, named.get(name, least))
        return least
    if kind == "array":
        if _min_bytes(schema["items"], named, depth + 1) < 1:
            raise ValueError("its schema has an array of items that take no bytes")
        return 1
    if kind == "map":
        _min_bytes(schema["values"], named, depth + 1)
        return 1
    return _min_bytes(kind, named, depth + 1)
