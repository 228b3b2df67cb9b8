"""Blocks of records of any supported type are decoded in parallel as they are one by one; other schemas are left to others."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from paimon_cli.metadata.avro_columns import PADDING, NotColumnar, decode_columns
from paimon_cli.metadata.avro_writer import encode_value


def columns(types: dict[str, Any], blocks: list[list[dict[str, Any]]], wanted: list[str]) -> dict[str, list[int]]:
    """The wanted columns, decoded."""
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}
    encoded = [b"".join(encode_value(schema, record) for record in block) for block in blocks]
    data = np.frombuffer(b"".join(encoded) + bytes(PADDING), np.uint8)
    counts, sizes = np.array([len(block) for block in blocks]), np.array([len(block) for block in encoded])
    return {name: found.tolist() for name, found in decode_columns(data, schema, counts, sizes, wanted).items()}


@pytest.mark.parametrize(
    ("kind", "value"), [("null", None), ("boolean", True), ("float", 1.5), ("double", -2.5), ("int", -7), ("string", "längere")]
)
def test_values_of_every_supported_type_are_passed_over(kind: str, value: Any) -> None:
    blocks = [[{"a": 300 * row, "skipped": value, "b": -row} for row in range(size)] for size in (3, 1, 5)]
    found = columns({"a": "long", "skipped": kind, "b": "int"}, blocks, ["a", "b"])
    assert found["a"] == [record["a"] for block in blocks for record in block]
    assert found["b"] == [record["b"] for block in blocks for record in block]


@pytest.mark.parametrize("kind", ["unknown", {"type": "map", "values": "int"}, {"type": "fixed", "size": 2, "name": "f"}])
def test_other_types_are_read_record_by_record(kind: Any) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    with pytest.raises(NotColumnar):
        decode_columns(np.zeros(PADDING + 1, np.uint8), schema, np.array([1]), np.array([1]), ["a"])


def test_a_small_schema_of_very_many_fields_is_refused_at_once() -> None:
    """Each record type has the one before it twice, nowhere deeper than ten: 2**9 numbers in a record, a thousand parts."""
    fields: list[dict[str, Any]] = []
    kind: Any = "int"
    for level in range(9):
        kind = {
            "type": "record",
            "name": f"r{level}",
            "fields": [{"name": "a", "type": kind}, {"name": "b", "type": f"r{level - 1}"}],
        }
        if level == 0:
            kind["fields"][1]["type"] = "int"
    fields.append({"name": "root", "type": kind})
    schema = {"type": "record", "name": "root", "fields": fields}
    with pytest.raises(NotColumnar):
        decode_columns(np.zeros(PADDING + 512, np.uint8), schema, np.array([1]), np.array([512]), [])


def test_a_long_block_among_many_short_ones_takes_no_room_in_each_of_them() -> None:
    rows = [{f"c{number}": 7 for number in range(20)}]
    names = list(rows[0])
    types = dict.fromkeys(names, "int")
    tracemalloc.start()
    try:
        with pytest.raises(NotColumnar):
            columns(types, [rows] * 4_000 + [rows * 250], names)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    found = columns(types, [rows] * 200 + [rows * 250], names)
    assert {name: found[name] for name in names} == {name: [7] * 450 for name in names}


def test_places_of_values_that_may_be_null() -> None:
    """Records are read from copies of their bytes, and places are those in the data."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "b", "type": ["null", "bytes"]}, {"name": "n", "type": "int"}]}
    values = [[None if (block + at) % 3 == 0 else bytes([block, at]) for at in range(1 + block % 4)] for block in range(20)]
    blocks = [b"".join(encode_value(schema, {"b": value, "n": 1}) for value in block) for block in values]
    data = np.frombuffer(b"".join(blocks) + bytes(PADDING), np.uint8)
    counts, sizes = np.array(list(map(len, values))), np.array(list(map(len, blocks)))
    found = decode_columns(data, schema, counts, sizes, {"b"})
    ends = zip(found["b.begin"].tolist(), found["b.end"].tolist(), strict=True)
    read = [None if begin < 0 else data[begin:end].tobytes() for begin, end in ends]
    assert read == [value for block in values for value in block]
