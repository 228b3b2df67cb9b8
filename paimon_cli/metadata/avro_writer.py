"""Writes Avro object container files, and holds the schemas of their records (FORMAT.md, section 4.1).

A container is a header, then compressed blocks with a sync marker after each. fastavro encodes and decodes the records
(`metadata/avro_reader` reads them). This package writes the framing itself, so that one call handles a whole block, every codec
that Paimon uses is supported, timestamps stay integers, and equal records give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, BinaryIO

from paimon_cli.pieces import PIECES

AvroSchema = Any
"""A parsed JSON schema: dict, list (union) or the name of a primitive type."""

AVRO_CODECS = {
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
"""Values of the option `file.compression` -> Avro's names of the codecs."""

AVRO_MAGIC = b"Obj\x01"
SYNC_SIZE = 16
HEADER = {"type": "map", "values": "bytes"}

_ZSTD_LEVEL = 1
_NAMESPACE = "org.apache.paimon.avro.generated"


def record(name: str, fields: Sequence[tuple[str, AvroSchema]]) -> AvroSchema:
    """A record schema. Fields whose type is a union get the default null, as Java writes them."""
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


def plain_times(schema: AvroSchema) -> AvroSchema:
    """The schema without logical types other than decimal: times are read as stored integers, not as a datetime object each."""
    if isinstance(schema, dict):
        decimal = schema.get("logicalType") == "decimal"
        return {key: plain_times(value) for key, value in schema.items() if key != "logicalType" or decimal}
    if isinstance(schema, list):
        return [plain_times(value) for value in schema]
    return schema


@dataclass(frozen=True, eq=False)
class RecordSchema:
    """The schema of the records of a file, parsed once for all files that share it."""

    declared: AvroSchema

    @cached_property
    def text(self) -> bytes:
        return json.dumps(self.declared, separators=(",", ":")).encode()

    @cached_property
    def plain(self) -> AvroSchema:
        """The schema without logical types other than decimal."""
        return plain_times(self.declared)

    @cached_property
    def items(self) -> AvroSchema:
        """Array of the records, parsed by fastavro; a block is such an array without its count and its end marker."""
        from fastavro import parse_schema

        return parse_schema(array(self.plain))

    @cached_property
    def item(self) -> AvroSchema:
        """A single record, parsed by fastavro."""
        from fastavro import parse_schema

        return parse_schema(self.plain)


@lru_cache(maxsize=64)
def schema_of_text(text: bytes) -> RecordSchema:
    """The schema for the JSON text in a file's header; the same text gives the same object."""
    return RecordSchema(json.loads(text))


class ContainerWriter:
    """Writes one container to `sink`; equal records give equal bytes. `size` counts the bytes written so far."""

    def __init__(
        self,
        sink: BinaryIO,
        schema: RecordSchema,
        codec: str = "zstandard",
        zstd_level: int = _ZSTD_LEVEL,
        block_records: int = 0,
    ) -> None:
        self._sink = sink
        self._schema = schema
        self._codec, self._level = codec, zstd_level
        self._block_records = block_records
        self._marker = b""
        self.size = 0

    def append(self, records: Sequence[Any]) -> None:
        """Append records as one block, or as blocks of `block_records`. The first block determines the sync marker."""
        for block in self._cut(records):
            content = encode_value(self._schema.items, block)
            # An encoded array is its count, its items and a zero; the items alone are the block.
            self.append_block(len(block), content[_number_size(content) : -1])

    def append_encoded(self, records: Sequence[bytes]) -> None:
        """Append records that are already encoded in the schema of this container."""
        for block in self._cut(records):
            self.append_block(len(block), b"".join(block))

    def finish(self) -> None:
        """Write the header if there were no records: even an empty container has one."""
        if not self._marker:
            self._begin(b"")

    def _cut(self, records: Sequence[Any]) -> Iterator[Sequence[Any]]:
        size = self._block_records or max(len(records), 1)
        return (records[start : start + size] for start in range(0, len(records), size))

    def append_block(self, count: int, items: bytes) -> None:
        """Append a block of `count` records, whose bytes are `items`."""
        if not self._marker:
            self._begin(items)
        stored = compressed(items, self._codec, self._level)
        self._write(encode_value("long", count) + encode_value("long", len(stored)) + stored + self._marker)

    def _begin(self, items: bytes) -> None:
        self._marker = hashlib.blake2b(self._schema.text + items, digest_size=SYNC_SIZE).digest()
        header = {"avro.schema": self._schema.text, "avro.codec": self._codec.encode()}
        self._write(AVRO_MAGIC + encode_value(HEADER, header) + self._marker)

    def _write(self, content: bytes) -> None:
        self._sink.write(content)
        self.size += len(content)


def encode_container(schema: RecordSchema, records: Sequence[Mapping[str, Any]]) -> bytes:
    """The bytes of one container with all the records."""
    sink, writer = _in_memory(schema)
    writer.append(records)
    writer.finish()
    return sink.getvalue()


def rolled_containers(
    schema: RecordSchema, records: Sequence[Any], target_size: int, are_encoded: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Containers of about `target_size` bytes, each with its number of records; none if there are no records.

    With `are_encoded` the records are Avro bytes in the same schema, which are copied.
    """
    begin = end = 0
    sink, writer = _in_memory(schema)
    for start in range(0, len(records), PIECES.manifest_rolled_records):
        portion = records[start : start + PIECES.manifest_rolled_records]
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


def _in_memory(schema: RecordSchema) -> tuple[io.BytesIO, ContainerWriter]:
    sink = io.BytesIO()
    return sink, ContainerWriter(sink, schema, block_records=PIECES.manifest_block_records)


def compressed(items: bytes, codec: str, zstd_level: int) -> bytes:
    """The compressed block; `codec` is Avro's name of the codec, and any but zstandard, snappy and deflate leaves it as it is."""
    if codec == "zstandard":
        return bytes(zstd_module().compress(items, zstd_level))
    if codec == "snappy":
        import pyarrow as pa

        return bytes(pa.compress(items, codec="snappy", asbytes=True)) + zlib.crc32(items).to_bytes(4, "big")
    if codec == "deflate":
        packer = zlib.compressobj(wbits=-15)
        return packer.compress(items) + packer.flush()
    return items


def encode_value(schema: AvroSchema, value: Any) -> bytes:
    """The Avro bytes of one value."""
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def _number_size(encoded: bytes) -> int:
    """The size in bytes of the number at the beginning; all its bytes but the last have the top bit set."""
    size = 1
    while encoded[size - 1] & 0x80:
        size += 1
    return size


@cache
def zstd_module() -> Any:
    """The `zstd` module of the standard library, or its backport for older Pythons."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        from backports import zstd
    return zstd
