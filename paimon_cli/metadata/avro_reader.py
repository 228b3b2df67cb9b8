"""Reads Avro object container files of any writer: manifests and their lists whole, data files block by block.

Damaged files are reported as such, and small files that claim to hold very much are refused before memory is taken. Other
writers may order fields differently, wrap them in unions, or add fields of their own (FORMAT.md, section 4.1).
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.avro_writer import (
    HEADER,
    MAGIC,
    SYNC_SIZE,
    AvroSchema,
    RecordSchema,
    array,
    schema_of_text,
    zstd_module,
)

_PIECE_BYTES = 64 << 10
_MOST_READ = 64 << 20
_LONGEST_NUMBER = 10
_DEEPEST = 100

_SMALL_BLOCK_BYTES = 16 << 20
_MOST_EXPANSION = 256
_MOST_BLOCK_BYTES = 1 << 30


def most_bytes(compressed: int) -> int:
    """The most that a block of a manifest may expand to: 16 MB, or 256 times its size. Statistics compress some 30 times."""
    return min(_MOST_BLOCK_BYTES, max(_SMALL_BLOCK_BYTES, _MOST_EXPANSION * compressed))


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


def _encoded_long(number: int) -> bytes:
    """The inverse of `_long`, for a number that is not negative."""
    encoded, rest = bytearray(), number << 1
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def _read(source: BinaryIO, size: int) -> bytes:
    """`size` bytes or, at the end of the file, what is left: read in pieces, since a damaged size could exceed the memory."""
    pieces = []
    while size > 0 and (piece := source.read(min(size, _MOST_READ))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def decoded_records(content: bytes, count: int, schema: RecordSchema) -> list[Any]:
    """The records of a block in one call: with its count before it and an end mark after it, it is an Avro array."""
    if not 0 <= count <= len(content):
        raise ValueError(f"a block of {len(content)} bytes cannot hold {count} records")
    if not count:
        return []
    source = io.BytesIO(_encoded_long(count) + content + b"\0")
    records: list[Any] = read_value(source, schema.items)
    if source.read(1):
        raise ValueError("a block holds more than its records")
    return records


def decode_container(data: bytes, path: str, expected: RecordSchema) -> list[dict[str, Any]]:
    """All records. Fields may come in any order, as any union, be unknown or missing; what is there must have our types.

    Raises `DamagedFile` that names `path` and what does not fit.
    """
    try:
        container = open_container(io.BytesIO(data))
        return records_of(container.blocks, checked_schema(container.schema, expected))
    except damage_errors() as error:
        raise damaged(path, error) from error


def records_of(blocks: Iterable[tuple[int, bytes]], schema: RecordSchema) -> list[dict[str, Any]]:
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
    schema = schema_of_text(container.schema)
    refuse_endless(array(schema.plain))
    for count, content in container.blocks:
        yield decoded_records(content, count, schema)


def record_count(source: BinaryIO) -> int:
    """How many records a data file holds; none of them is decoded. Raises what `open_container` does."""
    return sum(count for count, _ in _data_file(source).blocks)


def _data_file(source: BinaryIO) -> Container:
    buffered = io.BufferedReader(source, _PIECE_BYTES) if isinstance(source, io.RawIOBase) else source
    return open_container(buffered, lambda size: _MOST_BLOCK_BYTES)


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


def read_value(source: BinaryIO, schema: AvroSchema) -> Any:
    """The value that comes next."""
    import fastavro

    return fastavro.schemaless_reader(source, schema, None)


def damage_errors() -> tuple[type[BaseException], ...]:
    """What fastavro and the codecs raise for bytes that are not what they should be."""
    from fastavro.schema import SchemaParseException, UnknownType

    broken = (MemoryError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, OSError)
    return (*broken, zlib.error, zstd_module().ZstdError, SchemaParseException, UnknownType)


def damaged(path: str, error: BaseException) -> DamagedFile:
    """The error for a file that is no Avro, or not of our types."""
    why = "a length in it exceeds the memory" if isinstance(error, MemoryError) else f"{error}" or type(error).__name__
    return DamagedFile(f"{path} is not a readable Avro file", why, "restore the file, or go back to an older snapshot", path=path)


@lru_cache(maxsize=64)
def checked_schema(text: bytes, expected: RecordSchema) -> RecordSchema:
    """The schema of a file. Raises `ValueError` if its records are not those of `expected`."""
    schema = schema_of_text(text)
    refuse_endless(schema.plain)
    _check_fields(_without_null(schema.plain), expected.declared, "record")
    return schema


def _check_fields(theirs: AvroSchema, ours: AvroSchema, path: str) -> None:
    """Raise `ValueError` if a field that both know has another type, or one that we cannot do without is missing."""
    theirs, ours = _without_null(theirs), _without_null(ours)
    # A file may declare a record once and repeat its name; then its fields were checked where they stood first.
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
    """The one type of a union with null."""
    if isinstance(schema, list):
        options = [t for t in schema if t != "null"]
        return _without_null(options[0]) if len(options) == 1 else schema
    return schema


def _type_name(schema: AvroSchema) -> str:
    name = schema["type"] if isinstance(schema, dict) else schema
    return "long" if name == "int" else str(name)


def refuse_endless(schema: AvroSchema) -> None:
    """Raise `ValueError` for an array or map whose items take no bytes: its count, eight bytes long, could be any number."""
    _least_bytes(schema, {}, 0)


def _least_bytes(schema: AvroSchema, named: dict[str, int], depth: int) -> int:
    """The least number of bytes that a value takes."""
    if depth > _DEEPEST:
        raise ValueError("its schema is nested too deeply")
    if isinstance(schema, list):
        for part in schema:
            _least_bytes(part, named, depth + 1)
        return 1
    if isinstance(schema, str):
        # A name that is still being declared can only be met inside of a union or array, which take a byte anyway.
        return 0 if schema == "null" else named.get(schema, 1)
    kind = schema["type"]
    if kind in ("record", "error"):
        named[schema["name"]] = sum(_least_bytes(field["type"], named, depth + 1) for field in schema["fields"])
        return named[schema["name"]]
    if kind == "fixed":
        named[schema["name"]] = int(schema["size"])
        return named[schema["name"]]
    if kind == "array":
        if _least_bytes(schema["items"], named, depth + 1) < 1:
            raise ValueError("its schema has an array of items that take no bytes")
        return 1
    if kind == "map":
        _least_bytes(schema["values"], named, depth + 1)
        return 1
    return _least_bytes(kind, named, depth + 1) if isinstance(kind, (dict, list)) or kind == "null" else 1
