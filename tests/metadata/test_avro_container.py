"""Avro containers of all writers are read, ours equal Java's byte by byte, and damage is reported instead of decoded."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from paimon_cli.errors import DamagedFile, PaimonError
from paimon_cli.metadata.avro_reader import data_blocks, decode_container, decoded_records
from paimon_cli.metadata.avro_writer import ContainerWriter, RecordSchema, array, encode_container, nullable, record
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, EntryKind, ManifestEntry, SimpleStats
from paimon_cli.metadata.manifests import decode_manifest
from tests.metadata.one_manifest import encode_manifest

FIELDS = [("_NAME", "string"), ("_SIZE", "long"), ("_NOTE", nullable("string")), ("_EXTRA_FILES", array("string"))]
SCHEMA = RecordSchema(record("record", FIELDS))
RECORDS = [{"_NAME": f"n{i}", "_SIZE": i, "_NOTE": None if i % 2 else "x", "_EXTRA_FILES": ["e"] * (i % 3)} for i in range(2500)]


def record_batches(source: Any) -> Iterator[list[Any]]:
    schema, blocks = data_blocks(source)
    return (decoded_records(content, count, schema) for count, content in blocks)


def fastavro_container(schema: Any, records: list[dict[str, Any]], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec)
    return out.getvalue()


def test_records_survive_and_fastavro_agrees() -> None:
    data = encode_container(SCHEMA, RECORDS)
    assert decode_container(data, "f", SCHEMA) == RECORDS
    reader = fastavro.reader(io.BytesIO(data))
    assert list(reader) == RECORDS and reader.codec == "zstandard"


def test_no_records_are_a_file_too() -> None:
    data = encode_container(SCHEMA, [])
    assert decode_container(data, "f", SCHEMA) == []
    assert list(fastavro.reader(io.BytesIO(data))) == []


def test_equal_records_give_equal_bytes_and_others_another_marker() -> None:
    assert encode_container(SCHEMA, RECORDS) == encode_container(SCHEMA, RECORDS)
    assert encode_container(SCHEMA, RECORDS[:10])[-16:] != encode_container(SCHEMA, RECORDS[1:11])[-16:]


def test_the_size_of_a_container_can_be_watched() -> None:
    sink = io.BytesIO()
    writer = ContainerWriter(sink, SCHEMA)
    sizes = [writer.size]
    for start in range(0, 2000, 500):
        writer.append(RECORDS[start : start + 500])
        sizes.append(writer.size)
    assert sizes == sorted(set(sizes))
    writer.finish()
    assert len(sink.getvalue()) == sizes[-1]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_every_codec_is_read_by_the_header(codec: str) -> None:
    assert decode_container(fastavro_container(SCHEMA.declared, RECORDS, codec), "f", SCHEMA) == RECORDS


def test_snappy_blocks_are_read() -> None:
    """As Java 0.9 writes them for any other name in manifest.compression."""
    plain = fastavro_container(SCHEMA.declared, RECORDS[:100])
    marker = plain[-16:]
    header_end = plain.index(marker) + 16
    source = io.BytesIO(plain[header_end:])
    count, size = (fastavro.schemaless_reader(source, "long", None) for _ in range(2))
    assert isinstance(size, int)
    block = pa.compress(source.read(size), codec="snappy", asbytes=True) + b"\0\0\0\0"
    out = io.BytesIO()
    out.write(plain[:header_end].replace(b"\x08null", b"\x0csnappy"))
    for number in (count, len(block)):
        fastavro.schemaless_writer(out, "long", number)
    out.write(block + marker)
    assert decode_container(out.getvalue(), "f", SCHEMA) == RECORDS[:100]


def test_unions_field_order_and_unknown_fields_do_not_matter() -> None:
    theirs = {
        "type": "record",
        "name": "Whatever",
        "fields": [
            {"name": "_NEW", "type": ["null", "bytes"]},
            {"name": "_NOTE", "type": ["string", "null"]},
            {"name": "_SIZE", "type": ["null", "int"]},
            {"name": "_NAME", "type": "string"},
        ],
    }
    record_in = {"_NEW": b"?", "_NOTE": "x", "_SIZE": 3, "_NAME": "n"}
    for schema in (theirs, ["null", theirs], [theirs, "null"]):
        assert decode_container(fastavro_container(schema, [record_in]), "f", SCHEMA) == [record_in]


def test_times_stay_whole_numbers() -> None:
    timed = {"type": "long", "logicalType": "timestamp-millis"}
    schema = RecordSchema(record("record", [("_CREATION_TIME", nullable(timed))]))
    data = encode_container(schema, [{"_CREATION_TIME": 1_700_000_000_123}])
    assert decode_container(data, "f", schema) == [{"_CREATION_TIME": 1_700_000_000_123}]
    (with_zone,) = fastavro.reader(io.BytesIO(data))
    assert isinstance(with_zone, dict) and with_zone["_CREATION_TIME"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([("_NAME", "bytes"), ("_SIZE", "long")], "record._NAME should be string, not bytes"),
        ([("_NAME", "string")], "record has no _SIZE"),
        ([("_NAME", "string"), ("_SIZE", "string")], "record._SIZE should be long, not string"),
        ([("_NAME", "string"), ("_SIZE", "long"), ("_EXTRA_FILES", array("long"))], "_EXTRA_FILES items should be string"),
    ],
)
def test_other_types_are_damage(fields: list[tuple[str, Any]], why: str) -> None:
    with pytest.raises(DamagedFile, match=why) as failure:
        decode_container(encode_container(RecordSchema(record("record", fields)), []), "manifest-x", SCHEMA)
    assert "manifest-x" in failure.value.what and failure.value.exit_code == 10


def small_manifest() -> bytes:
    stats = SimpleStats(EMPTY_ROW, EMPTY_ROW, (0, None))
    file = DataFileMeta(
        "data-1.parquet", 9, 9, EMPTY_ROW, EMPTY_ROW, stats, stats, 0, 8, 0, 0, ("x.index",), 5, 1, b"i", 0, ("k",)
    )
    return encode_manifest([ManifestEntry(EntryKind.ADD, EMPTY_ROW, b, 3, file) for b in range(3)])


def test_a_cut_file_is_damaged_at_every_length() -> None:
    data = small_manifest()
    header = data.index(data[-16:]) + 16
    for length in range(len(data)):
        if length == header:
            continue  # a whole container without records
        with pytest.raises(DamagedFile):
            decode_manifest(data[:length], "m")


def test_a_flipped_bit_never_escapes_as_another_error() -> None:
    data = small_manifest()
    found = decode_manifest(data, "m")
    unnoticed = 0
    for place in range(len(data)):
        for bit in (0, 3, 7):
            broken = bytearray(data)
            broken[place] ^= 1 << bit
            try:
                unnoticed += decode_manifest(bytes(broken), "m") == found
            except PaimonError:
                continue
    assert unnoticed < len(data)


def test_damage_names_the_file_and_keeps_to_one_line() -> None:
    for data in (b"", b"hello", b"Obj\x01", small_manifest()[:-5], b"Obj\x01" + b"\xff" * 100):
        with pytest.raises(DamagedFile) as failure:
            decode_manifest(data, "/wh/t/manifest/manifest-1")
        assert "/wh/t/manifest/manifest-1" in failure.value.what
        assert failure.value.why and failure.value.details["path"] == "/wh/t/manifest/manifest-1"


def test_the_header_is_plain_json_with_the_names_of_java() -> None:
    schema = json.loads(fastavro.reader(io.BytesIO(small_manifest())).metadata["avro.schema"])
    assert (schema["type"], schema["name"], schema["namespace"]) == ("record", "record", "org.apache.paimon.avro.generated")


TEXT = RecordSchema({"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]})
BLOCKS = [[{"text": "x" * 90} for _ in range(100)], [{"text": "y"}]]


def data_file(codec: str = "null") -> bytes:
    sink = io.BytesIO()
    writer = ContainerWriter(sink, TEXT, codec)
    for records in BLOCKS:
        writer.append(records)
    writer.finish()
    return sink.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_data_files_are_read_block_by_block(codec: str) -> None:
    assert list(record_batches(io.BytesIO(data_file(codec)))) == BLOCKS


@pytest.mark.timeout(300)
def test_every_cut_is_noticed() -> None:
    """Counts and sizes of more than one byte among them: a reader must not wait for the rest of a number."""
    whole = data_file()
    ends = []
    for end in range(4, len(whole)):
        try:
            blocks = list(record_batches(io.BytesIO(whole[:end])))
        except (ValueError, LookupError, EOFError):
            continue
        ends.append((end, len(blocks)))
    assert [count for _, count in ends] == [0, 1]


def test_a_block_of_a_data_file_may_expand_further_than_one_of_a_manifest() -> None:
    sink = io.BytesIO()
    writer = ContainerWriter(sink, TEXT)
    writer.append([{"text": "x" * (17 << 20)}])
    (batch,) = record_batches(io.BytesIO(sink.getvalue()))
    assert len(batch[0]["text"]) == 17 << 20
    with pytest.raises(DamagedFile, match="not a readable Avro file") as failure:
        decode_container(sink.getvalue(), "f", TEXT)
    assert "unreasonably large" in str(failure.value.why)


@pytest.mark.parametrize("number", [b"\xff" * 11, b"\xff" * 9])
def test_a_number_of_too_many_bytes_is_damage(number: bytes) -> None:
    header = encode_container(SCHEMA, [])
    with pytest.raises(ValueError, match="number"):
        list(record_batches(io.BytesIO(header + number)))
    with pytest.raises(DamagedFile):
        decode_container(header + number, "f", SCHEMA)
