"""A manifest as the bytes of its records: two manifests that hold the same bytes need not both be decoded."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

from paimon_cli.metadata.avro_container import damage_errors, open_container, read_value
from paimon_cli.metadata.avro_schema import AvroSchema, plain_times, refuse_endless


@dataclass(frozen=True)
class RawManifest:
    """The records of all blocks, one after the other, in `schema` (its text)."""

    schema: bytes
    content: bytes
    counts: int

    @staticmethod
    def read(data: bytes) -> RawManifest | None:
        """None if the file is damaged; decoding it then raises the error."""
        try:
            return _read(data)
        except damage_errors():
            return None

    def records(self) -> list[bytes] | None:
        """Where each record begins and the last one ends; None if the content does not match the schema."""
        schema = _item_schema(self.schema)
        source, records, begin = io.BytesIO(self.content), [], 0
        try:
            for _ in range(self.counts):
                read_value(source, schema)
                end = source.tell()
                records.append(self.content[begin:end])
                begin = end
        except damage_errors():
            return None
        return records if begin == len(self.content) else None


def _item_schema(text: bytes) -> AvroSchema:
    from fastavro.schema import parse_schema

    schema = plain_times(json.loads(text))
    refuse_endless(schema)
    return parse_schema(schema)


def _read(data: bytes) -> RawManifest:
    container = open_container(io.BytesIO(data))
    blocks = list(container.blocks)
    if any(count < 0 for count, _ in blocks):
        raise ValueError("a block has a negative count")
    return RawManifest(container.schema, b"".join(content for _, content in blocks), sum(count for count, _ in blocks))
