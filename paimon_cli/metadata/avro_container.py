"""Avro object container files: schema, compressed blocks, sync markers (format section 4.1). Records are plain dicts.

fastavro does the records. The frame is ours, so that one call decodes a block, every codec that Paimon writes can be
read, times stay integers, and equal records give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, BinaryIO

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.avro_limits import MOST_BLOCK_BYTES, most_bytes, refuse_endless

AvroSchema = Any
"""A parsed JSON schema: dict, list (union) or the name of a primitive type."""

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
_ROLLED_RECORDS = 1000
"""After so many a writer looks at the size of its file (Java does so too)."""
_BLOCK_RECORDS = 200
"""Small blocks, so that a single file already decodes side by side (`avro_columns`)."""
_ZSTD_LEVEL = 1
_NAMESPACE = "org.apache.paimon.avro.generated"
_HEADER = {"type": "map", "values": "bytes"}


def record(name: str, fields: Sequence[tuple[str, AvroSchema]]) -> AvroSchema:
    """A record schema; a field that is a union with null first gets the default null, as Java writes it."""
    listed = [
        {"name": field, "type": t, "default": None} if isinstance(t, list) else {"name": field, "type": t} for field, t in fields
    ]
    if name == "record":
        return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": listed}
    return {"type": "record", "name": name, "fields": listed}


def nullable(t: AvroSchema) -> AvroSchema:
    return ["null", t]


def array(items: AvroSchema) -> AvroSchema:
    return {"type": "array", "items": items}


class ContainerWriter:
    """Builds one container in memory; `size` counts the bytes so far, so that a caller can roll to the next file."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._out = io.BytesIO()
        self._marker = b""

    @property
    def size(self) -> int:
        return self._out.tell()

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Blocks of these records; the first block also fixes the sync marker."""
        for start in range(0, max(len(records), 1), _BLOCK_RECORDS):
            self._append_block(records[start : start + _BLOCK_RECORDS])

    def _append_block(self, records: Sequence[Mapping[str, Any]]) -> None:
        content = encode_value(array(self._schema), records)
        # An array is its count, its items and a zero: what lies between is the block.
        self._append_items(len(records), content[encoded_long_size(content) : -1] if records else b"")

    def _append_items(self, count: int, items: bytes) -> None:
        if not self._marker:
            self._begin(items)
        if count:
            compressed = zstd_module().compress(items, _ZSTD_LEVEL)
            self._out.write(encode_value("long", count) + encode_value("long", len(compressed)))
            self._out.write(compressed + self._marker)

    def append_encoded(self, records: Sequence[bytes]) -> None:
        """The same from records that are encoded already, in the same schema."""
        for start in range(0, max(len(records), 1), _BLOCK_RECORDS):
            block = records[start : start + _BLOCK_RECORDS]
            self._append_items(len(block), b"".join(block))

    def finish(self) -> bytes:
        if not self._marker:
            self._begin(b"")
        return self._out.getvalue()

    def _begin(self, items: bytes) -> None:
        schema = json.dumps(self._schema, separators=(",", ":")).encode()
        self._marker = hashlib.blake2b(schema + items, digest_size=SYNC_SIZE).digest()
        header = {"avro.schema": schema, "avro.codec": b"zstandard"}
        self._out.write(MAGIC + encode_value(_HEADER, header) + self._marker)


def encode_container(schema: AvroSchema, records: Sequence[Mapping[str, Any]]) -> bytes:
    """All records as one zstandard container."""
    writer = ContainerWriter(schema)
    for block in blocks(records):
        writer.append(block)
    return writer.finish()


def blocks(records: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut into the portions after which a writer looks at the size of its file."""
    return (records[start : start + _ROLLED_RECORDS] for start in range(0, len(records), _ROLLED_RECORDS))


def decode_container(data: bytes, path: str, expected: AvroSchema) -> list[dict[str, Any]]:
    """All records. Fields may come in any order, as any union, be unknown or missing; what is there must have our types.

    Raises `DamagedFile` that names `path` and what does not fit.
    """
    try:
        return _decode(data, expected)
    except MemoryError as error:
        raise damaged(path, "a length in it exceeds the memory") from error
    except damage_errors() as error:
        raise damaged(path, f"{error}" or type(error).__name__) from error


def _decode(data: bytes, expected: AvroSchema) -> list[dict[str, Any]]:
    return decoded_records(container_content(data, expected))


def decoded_records(content: ContainerContent) -> list[dict[str, Any]]:
    """All records of its blocks; one of `damage_errors` for malformed ones."""
    return [record for count, block in content.blocks for record in _records(block, count, content.schema)]


@dataclass(frozen=True)
class ContainerContent:
    """A container taken apart: the writer's schema without logical times, and (records, decompressed bytes) of each block.

    Blocks are decompressed, once, as they are asked for.
    """

    schema: AvroSchema
    blocks: Iterable[tuple[int, bytes]]


def container_content(data: bytes, expected: AvroSchema) -> ContainerContent:
    """Raises, now or when blocks are asked for, one of `damage_errors` for bytes that are no container, or not of our records."""
    source = io.BytesIO(data)
    if source.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin as an Avro file")
    header = read_value(source, _HEADER)
    schema = _checked_schema(header["avro.schema"], _Same(expected))
    codec = header.get("avro.codec", b"null").decode()
    marker = source.read(SYNC_SIZE)
    if len(marker) < SYNC_SIZE:
        raise ValueError("its header is cut off")
    return ContainerContent(schema, _blocks(source, len(data), codec, marker))


def _blocks(source: BinaryIO, end: int, codec: str, marker: bytes) -> Iterator[tuple[int, bytes]]:
    while source.tell() < end:
        count, size = read_value(source, "long"), read_value(source, "long")
        block = source.read(size) if 0 <= size <= end else b""
        if len(block) != size or source.read(SYNC_SIZE) != marker:
            raise ValueError(f"the block behind byte {source.tell()} is cut off or its sync marker is wrong")
        yield count, decompressed(block, codec, most_bytes(len(block)))


class _Same:
    """An object as a key by its identity, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: AvroSchema) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


@lru_cache(maxsize=64)
def _checked_schema(text: bytes, expected: _Same) -> AvroSchema:
    """A file's schema, fit for what we expect. The files of one writer have one schema: looked at once."""
    schema = plain_times(json.loads(text))
    refuse_endless(schema)
    _check_fields(_plain(schema), expected.value, "record")
    return schema


def _records(content: bytes, count: int, schema: AvroSchema) -> list[dict[str, Any]]:
    """Decode a block in one call: with count and end mark around it, it is an Avro array."""
    if not 0 <= count <= len(content):
        raise ValueError(f"a block of {len(content)} bytes cannot hold {count} records")
    source = io.BytesIO(encode_value("long", count) + content + b"\0")
    decoded = read_value(source, array(schema)) if count else []
    if count and source.read(1):
        raise ValueError("a block holds more than its records")
    if any(not isinstance(item, dict) for item in decoded):
        raise ValueError("a record is null")
    return decoded


def decompressed(block: bytes, codec: str, most: int = MOST_BLOCK_BYTES) -> bytes:
    """The content of a block; `ValueError` for an unknown codec, or a block that is damaged or unfolds to more than `most`."""
    if codec == "zstandard":
        decompressor = zstd_module().ZstdDecompressor()
        content = decompressor.decompress(block, most)
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
        return pa.decompress(block[:-4], decompressed_size=size, codec="snappy", asbytes=True)
    raise ValueError(f"codec '{codec}' is none of null, snappy, zstandard, deflate")


def _uncompressed_snappy_size(block: bytes, most: int) -> int:
    """Snappy begins with the size as a little-endian base-128 number; Avro puts a CRC of 4 bytes behind."""
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    if size > most:
        raise ValueError("a block is unreasonably big")
    return size


def _plain(schema: AvroSchema) -> AvroSchema:
    """A union without its null: the one type left."""
    if isinstance(schema, list):
        options = [t for t in schema if t != "null"]
        return _plain(options[0]) if len(options) == 1 else schema
    return schema


def _kind(schema: AvroSchema) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "long" if kind == "int" else str(kind)


def _check_fields(theirs: AvroSchema, ours: AvroSchema, place: str) -> None:
    """Raise `ValueError` if a field that both know has another type, or one that we cannot do without is missing."""
    theirs, ours = _plain(theirs), _plain(ours)
    # A file may declare a record once and repeat its name; then its fields were checked where they stood first.
    if _kind(ours) == "record" and isinstance(theirs, str) and theirs.startswith("record"):
        return
    if _kind(theirs) != _kind(ours) and not (place.endswith("_FILE_SOURCE") and _kind(theirs) == "string"):
        raise ValueError(f"{place} should be {_kind(ours)}, not {_kind(theirs)}")
    if _kind(ours) == "array":
        _check_fields(theirs["items"], ours["items"], f"{place} items")
    if _kind(ours) == "record":
        known = {field["name"]: field["type"] for field in theirs["fields"]}
        for field in ours["fields"]:
            if field["name"] in known:
                _check_fields(known[field["name"]], field["type"], f"{place}.{field['name']}")
            elif "default" not in field and field["name"] != "_EXTRA_FILES":
                raise ValueError(f"{place} has no {field['name']}")


def plain_times(schema: AvroSchema) -> AvroSchema:
    """Times as the integers that the file holds: fastavro would build a datetime for each. Decimals stay decimals."""
    if isinstance(schema, dict):
        decimal = schema.get("logicalType") == "decimal"
        return {key: plain_times(value) for key, value in schema.items() if key != "logicalType" or decimal}
    if isinstance(schema, list):
        return [plain_times(value) for value in schema]
    return schema


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


def encoded_long_size(encoded: bytes) -> int:
    """Bytes of the variable-length number at the beginning: all but its last byte have the top bit set."""
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

    broken = (EOFError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, OSError)
    return (*broken, zlib.error, zstd_module().ZstdError, SchemaParseException, UnknownType)


def damaged(path: str, why: str) -> DamagedFile:
    """The error for a file that is no Avro, or not of our types."""
    return DamagedFile(f"{path} is not a readable Avro file", why, "restore the file, or go back to an older snapshot", path=path)
