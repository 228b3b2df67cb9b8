"""A manifest as the bytes of its records: two manifests that hold the same bytes need not both be decoded."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

from paimon_cli.metadata.avro_container import (
    MAGIC,
    SYNC_SIZE,
    AvroSchema,
    damage_errors,
    decompressed,
    plain_times,
    read_value,
)
from paimon_cli.metadata.avro_limits import most_bytes, refuse_endless

_HEADER = {"type": "map", "values": "bytes"}


@dataclass(frozen=True)
class RawManifest:
    """The records of all blocks, one behind the other, as `schema` (its text) spells them."""

    schema: bytes
    content: bytes
    counts: int

    @staticmethod
    def read(data: bytes) -> RawManifest | None:
        """None if the file is damaged: whoever decodes it says how."""
        try:
            return _read(data)
        except _damage():
            return None

    def records(self) -> list[bytes] | None:
        """Where one record ends and the next begins; None if the content is not what the schema says."""
        schema = _item_schema(self.schema)
        source, records, begin = io.BytesIO(self.content), [], 0
        try:
            for _ in range(self.counts):
                read_value(source, schema)
                end = source.tell()
                records.append(self.content[begin:end])
                begin = end
        except _damage():
            return None
        return records if begin == len(self.content) else None


def _damage() -> tuple[type[BaseException], ...]:
    return (MemoryError, *damage_errors())


def _item_schema(text: bytes) -> AvroSchema:
    from fastavro.schema import parse_schema

    schema = plain_times(json.loads(text))
    refuse_endless(schema)
    return parse_schema(schema)


def _read(data: bytes) -> RawManifest:
    source = io.BytesIO(data)
    if source.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin as an Avro file")
    header = read_value(source, _HEADER)
    codec = header.get("avro.codec", b"null").decode()
    marker = source.read(SYNC_SIZE)
    parts, total = [], 0
    while source.tell() < len(data):
        count, size = read_value(source, "long"), read_value(source, "long")
        block = source.read(size) if 0 <= size <= len(data) else b""
        if len(block) != size or count < 0 or source.read(SYNC_SIZE) != marker:
            raise ValueError("a block is cut off or its sync marker is wrong")
        parts.append(decompressed(block, codec, most_bytes(len(block))))
        total += count
    return RawManifest(header["avro.schema"], b"".join(parts), total)
