"""Avro files block by block: wherever one is cut off, it ends in an error or in fewer blocks."""

from __future__ import annotations

import io

import pytest

from paimon_cli.metadata.avro_blocks import BlockWriter, read_blocks

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]}
BLOCKS = [[{"text": "x" * 90} for _ in range(100)], [{"text": "y"}]]


def avro_file() -> bytes:
    sink = io.BytesIO()
    writer = BlockWriter(sink, SCHEMA, "null", 1)
    for records in BLOCKS:
        writer.append(records)
    writer.finish()
    return sink.getvalue()


def test_round_trip() -> None:
    assert list(read_blocks(io.BytesIO(avro_file()))) == BLOCKS


@pytest.mark.timeout(20)
def test_every_cut_is_noticed() -> None:
    """Counts and sizes of more than one byte among them: a reader must not wait for the rest of a number."""
    whole = avro_file()
    ends = []
    for end in range(4, len(whole)):
        try:
            blocks = list(read_blocks(io.BytesIO(whole[:end])))
        except (ValueError, LookupError, EOFError):
            continue
        ends.append((end, len(blocks)))
    assert [count for _, count in ends] == [0, 1]
