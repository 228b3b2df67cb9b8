"""VARIANT as JSON text: against a decoder that reads value by value, and against bytes that nobody should trust."""

from __future__ import annotations

import base64
import json
import struct
import tracemalloc
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.datatypes import variant_columns, variant_nodes
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.datatypes.variant_building import variant_of, variants_of_texts
from paimon_cli.datatypes.variant_node_texts import node_texts
from paimon_cli.datatypes.variant_nodes import MalformedVariant, NodeKind, Primitive, Variants
from paimon_cli.datatypes.variant_shapes import shaped_texts
from paimon_cli.datatypes.variant_text import variant_texts
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.pieces import PIECES

NO_NAMES = b"\x01\0\0"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


@pytest.fixture(autouse=True, params=[PIECES.shape_nodes, 1])
def _shape_nodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with few shapes, as these tests have few values, and with a shape for each value."""
    monkeypatch.setattr(PIECES, "shape_nodes", request.param)


def column(*pairs: tuple[bytes, bytes] | None) -> pa.StructArray:
    rows = [None if pair is None else {"value": pair[0], "metadata": pair[1]} for pair in pairs]
    return pa.array(rows, arrow_type(VARIANT))


def primitive(kind: int, payload: bytes = b"") -> bytes:
    return bytes([kind << 2]) + payload


@given(st.lists(JSON, max_size=6))
def test_json_comes_back(documents: list[Any]) -> None:
    texts = pa.array([json.dumps(document) for document in documents], pa.string())
    found, wrong = variants_of_texts(texts)
    assert not wrong
    assert [json.loads(text) for text in variant_texts(found).to_pylist()] == documents


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (primitive(Primitive.INT8, b"\x80"), "-128"),
        (primitive(Primitive.INT64, struct.pack("<q", -(2**63))), "-9223372036854775808"),
        (primitive(Primitive.FLOAT, struct.pack("<f", 0.1)), "0.1"),
        (primitive(Primitive.DOUBLE, struct.pack("<d", float("nan"))), '"NaN"'),
        (primitive(Primitive.DOUBLE, struct.pack("<d", float("-inf"))), '"-Infinity"'),
        (primitive(Primitive.DECIMAL4, b"\x02" + struct.pack("<i", -250)), "-2.5"),
        (primitive(Primitive.DECIMAL8, b"\x09" + struct.pack("<q", 1)), "0.000000001"),
        (primitive(Primitive.DECIMAL16, b"\x00" + (-(10**37)).to_bytes(16, "little", signed=True)), str(-(10**37))),
        (primitive(Primitive.DECIMAL4, b"\0" + struct.pack("<i", 1 - 10**9)), str(1 - 10**9)),
        (primitive(Primitive.DECIMAL8, b"\0" + struct.pack("<q", 10**18 - 1)), str(10**18 - 1)),
        (primitive(Primitive.DECIMAL16, b"\0" + (10**38 - 1).to_bytes(16, "little")), str(10**38 - 1)),
        (primitive(Primitive.DECIMAL16, b"\0" + (1 - 10**38).to_bytes(16, "little", signed=True)), str(1 - 10**38)),
        (primitive(Primitive.DECIMAL16, b"\x26" + (7).to_bytes(16, "little")), "0." + "0" * 37 + "7"),
        (primitive(Primitive.DATE, struct.pack("<i", -1)), '"1969-12-31"'),
        (primitive(Primitive.DATE, struct.pack("<i", 4_000_000)), '"+12921-08-18"'),
        (primitive(Primitive.TIMESTAMP, struct.pack("<q", 1)), '"1970-01-01 00:00:00.000001+00:00"'),
        (primitive(Primitive.TIMESTAMP_NTZ, struct.pack("<q", -1_000_000)), '"1969-12-31 23:59:59"'),
        (primitive(Primitive.TIMESTAMP_NTZ_NANOS, struct.pack("<q", 120)), '"1970-01-01 00:00:00.00000012"'),
        (primitive(Primitive.TIME, struct.pack("<q", 3_600_000_000)), '"01:00:00"'),
        (primitive(Primitive.BINARY, b"\x02\0\0\0\0\xff"), f'"{base64.b64encode(bytes([0, 255])).decode()}"'),
        (primitive(Primitive.UUID, uuid.UUID(int=5).bytes), f'"{uuid.UUID(int=5)}"'),
        (primitive(Primitive.TEXT, b'\x03\0\0\0a"\n'), r'"a\"\n"'),
    ],
)
def test_every_kind_of_value(node: bytes, text: str) -> None:
    assert variant_texts(column((node, NO_NAMES), None, (node, NO_NAMES))).to_pylist() == [text, None, text]


def test_values_of_all_sizes() -> None:
    """Wide offsets, numbers of names and counts; more children than one byte counts."""
    many = {f"name{number}": number for number in range(300)}
    long = ["x" * 70_000, list(range(300)), {"z": [], "a": {}}]
    found = variant_texts(column(variant_of(many), variant_of(long))).to_pylist()
    assert [json.loads(text) for text in found] == [many, long]
    assert list(json.loads(found[0])) == sorted(many)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_pieces(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [{"n": number, "text": "é" * number} if number % 3 else None for number in range(30)]
    values = column(*(variant_of(document) if document else None for document in documents))
    monkeypatch.setattr(PIECES, "variant_bytes", size)
    found = variant_texts(values.slice(2)).to_pylist()
    assert [text and json.loads(text) for text in found] == documents[2:]


HOSTILE = {
    "nothing": (b"", NO_NAMES),
    "no metadata": (b"\0", b""),
    "a version of metadata": (b"\0", b"\x02\0\0"),
    "metadata that is cut off": (b"\0", b"\x01\xff\0"),
    "metadata with a size that is cut off": (b"\0", b"\xc1\xff"),
    "an unknown type": (primitive(21), NO_NAMES),
    "a number that is cut off": (primitive(Primitive.INT64, b"\0\0"), NO_NAMES),
    "a text longer than its bytes": (primitive(Primitive.TEXT, b"\xff\xff\xff\xff"), NO_NAMES),
    "a text that is no UTF-8": (b"\x05\xff", NO_NAMES),
    "an array of four billion values": (bytes([1 << 4 | NodeKind.ARRAY]) + b"\xff\xff\xff\xff\0", NO_NAMES),
    "an array whose value lies behind it": (bytes([NodeKind.ARRAY]) + b"\x01\x05\x01\0", NO_NAMES),
    "an array that is longer than its bytes": (bytes([NodeKind.ARRAY]) + b"\x01\0\xff\0", NO_NAMES),
    "an object without names": (bytes([NodeKind.OBJECT]) + b"\x01\0\0\x01\0", NO_NAMES),
    "a name outside of its metadata": (bytes([NodeKind.OBJECT]) + b"\x01\0\0\x01\0", b"\x01\x01\0\xffa"),
    "a name that ends before it begins": (bytes([NodeKind.OBJECT]) + b"\x01\0\0\x01\0", b"\x01\x01\x01\0a"),
    "a decimal of too many digits": (primitive(Primitive.DECIMAL4, b"\x0a\0\0\0\0"), NO_NAMES),
    "a decimal of ten digits": (primitive(Primitive.DECIMAL4, b"\0" + struct.pack("<i", -(10**9))), NO_NAMES),
    "a decimal of 19 digits": (primitive(Primitive.DECIMAL8, b"\0" + struct.pack("<q", 10**18)), NO_NAMES),
    "a decimal of 39 digits": (primitive(Primitive.DECIMAL16, b"\0" + (10**38).to_bytes(16, "little")), NO_NAMES),
    "a negative decimal of 39 digits": (
        primitive(Primitive.DECIMAL16, b"\0" + (-(10**38)).to_bytes(16, "little", signed=True)),
        NO_NAMES,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_damage(name: str) -> None:
    sound = variant_of({"a": 1})
    with pytest.raises(DamagedFile, match="VARIANT"):
        variant_texts(column(sound, None, HOSTILE[name], sound))


def shared_arrays(levels: int) -> bytes:
    """Arrays of two values that are the same bytes: 2^levels values if they were all followed."""
    node = primitive(Primitive.NULL)
    for _ in range(levels):
        node = bytes([1 << 2 | NodeKind.ARRAY, 2]) + struct.pack("<HHH", 0, 0, len(node)) + node
    return node


def test_values_that_share_bytes_do_not_multiply() -> None:
    with pytest.raises(DamagedFile, match="more values than bytes"):
        variant_texts(column((shared_arrays(40), NO_NAMES)))


def test_a_quadratic_number_of_values_is_refused_before_they_are_made() -> None:
    """Ten thousand values that are all one array of ten thousand."""
    count = 10_000
    inner = bytes([1 << 4 | NodeKind.ARRAY]) + struct.pack("<I", count) + bytes(count + 1) + b"\0"
    inner = inner[:5] + bytes(count) + b"\x01" + b"\0"
    wide = bytes([(1 << 2 | 1) << 2 | NodeKind.ARRAY]) + struct.pack("<I", count)
    outer = wide + bytes(2 * count) + struct.pack("<H", len(inner)) + inner
    with pytest.raises(DamagedFile, match="more values than bytes"):
        variant_texts(column((outer, NO_NAMES)))


def test_objects_that_share_a_long_head_are_not_copied() -> None:
    """Ten thousand values that are all one object of ten thousand fields: their heads would be gigabytes."""
    count = 10_000
    inner = (
        bytes([(1 << 4 | 1 << 2) << 2 | NodeKind.OBJECT]) + struct.pack("<I", count) + bytes(2 * count) + bytes(count) + b"\x01\0"
    )
    wide = bytes([(1 << 2 | 1) << 2 | NodeKind.ARRAY]) + struct.pack("<I", count)
    outer = wide + bytes(2 * count) + struct.pack("<H", len(inner)) + inner
    tracemalloc.start()
    with pytest.raises(DamagedFile, match="more values than bytes"):
        variant_texts(column((outer, b"\x01\x01\0\x01a")))
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def nested(levels: int) -> bytes:
    node = primitive(Primitive.TRUE)
    for _ in range(levels):
        node = bytes([3 << 2 | NodeKind.ARRAY, 1]) + struct.pack("<II", 0, len(node)) + node
    return node


def test_nesting() -> None:
    deepest = variant_nodes.MAX_VARIANT_DEPTH
    assert variant_texts(column((nested(deepest), NO_NAMES)))[0].as_py() == "[" * deepest + "true" + "]" * deepest
    with pytest.raises(DamagedFile, match="nested more than"):
        variant_texts(column((nested(deepest + 1), NO_NAMES)))


def test_a_name_that_occurs_often_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    value, metadata = variant_of([{"name" * 500: number} for number in range(100)])
    assert len(value) + len(metadata) < 5_000
    monkeypatch.setattr(variant_columns, "MAX_VARIANT_TEXT", 300_000)
    assert len(variant_texts(column((value, metadata), (value, metadata)))) == 2  # one after the other
    monkeypatch.setattr(variant_columns, "MAX_VARIANT_TEXT", 100_000)
    with pytest.raises(NotSupported, match="too large"):
        variant_texts(column((value, metadata)))


@given(st.data())
def test_changed_bytes_are_read_or_damage(data: st.DataObject) -> None:
    value, metadata = map(bytearray, variant_of({"a": [1, "two", {"b": None}], "c": Decimal("1.50"), "d": "x" * 70}))
    for _ in range(data.draw(st.integers(1, 4))):
        part = data.draw(st.sampled_from([value, metadata]))
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    sound = variant_of({"a": 1})
    try:
        texts = variant_texts(column(sound, (bytes(value), bytes(metadata)), sound)).to_pylist()
    except DamagedFile:
        return
    assert texts[0] == texts[2] == '{"a":1}'
    json.loads(texts[1])


SHAPED = st.fixed_dictionaries(
    {"id": st.integers(-(2**70), 2**70), "t": st.text(max_size=70)},
    optional={"deep": JSON, "list": st.lists(JSON, max_size=3), "d": st.decimals(-(10**20), 10**20, places=4).map(str)},
)
NODES = st.sampled_from(
    [
        primitive(Primitive.DECIMAL4, b"\x03" + struct.pack("<i", -25_000)),
        primitive(Primitive.DECIMAL8, b"\x12" + struct.pack("<q", 70)),
        primitive(Primitive.DECIMAL8, b"\x02" + struct.pack("<q", 0)),
        primitive(Primitive.DOUBLE, struct.pack("<d", 1e-7)),
        primitive(Primitive.FLOAT, struct.pack("<f", 0.1)),
        primitive(Primitive.DATE, struct.pack("<i", 4_000_000)),
        primitive(Primitive.TIMESTAMP, struct.pack("<q", 1)),
        primitive(Primitive.BINARY, b"\x02\0\0\0\0\xff"),
        primitive(Primitive.TEXT, b'\x03\0\0\0a"\n'),
        primitive(Primitive.UUID, bytes(16)),
    ]
)


def outcome(pairs: list[tuple[bytes, bytes]], by_shape: bool) -> list[str] | tuple[int, str]:
    """The texts, or the row and reason of the first malformed value."""
    try:
        variants = Variants(*(pa.array([pair[part] for pair in pairs], pa.binary()) for part in (0, 1)))
        return (shaped_texts(variants) if by_shape else node_texts(variants, variants.roots())).to_pylist()
    except MalformedVariant as problem:
        return problem.row, problem.why


@given(st.lists(SHAPED.map(variant_of) | JSON.map(variant_of) | NODES.map(lambda node: (node, NO_NAMES)), max_size=12), st.data())
def test_by_shape_and_level_by_level_are_the_same(pairs: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    """Also of bytes that were changed: the same value is malformed, for the same reason."""
    pairs = [pairs[place] for place in data.draw(st.lists(st.integers(0, max(len(pairs) - 1, 0)), max_size=40 if pairs else 0))]
    for _ in range(data.draw(st.integers(0, 2)) if pairs else 0):
        row = data.draw(st.integers(0, len(pairs) - 1))
        parts = [bytearray(part) for part in pairs[row]]
        part = parts[data.draw(st.integers(0, 1))]
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
        pairs[row] = (bytes(parts[0]), bytes(parts[1]))
    least = data.draw(st.sampled_from([1, 2, 5]))
    kept, PIECES.shape_nodes = PIECES.shape_nodes, least
    try:
        assert outcome(pairs, by_shape=True) == outcome(pairs, by_shape=False)
    finally:
        PIECES.shape_nodes = kept


def test_rare_shapes_beside_a_frequent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of one size, among others: each keeps its own text."""
    monkeypatch.setattr(PIECES, "shape_nodes", 2)
    documents = [[{"a": 1}, {"a": 2, "b": 3}, {"a": 4, "c": 5}], [{"a": 6, "b": 7}, {"a": 8, "b": 9}, {"c": 10}]]
    found, _ = variants_of_texts(pa.array(map(json.dumps, documents), pa.string()))
    assert [json.loads(text) for text in variant_texts(found).to_pylist()] == documents


def test_missing_parts_are_damage() -> None:
    parts = [pa.array([b"\0", None], pa.binary()), pa.array([NO_NAMES, NO_NAMES], pa.binary())]
    with pytest.raises(DamagedFile, match="null"):
        variant_texts(pa.StructArray.from_arrays(parts, names=["value", "metadata"]))


def test_the_row_of_a_malformed_value() -> None:
    values = column(None, variant_of(1), (b"", NO_NAMES))
    with pytest.raises(variant_nodes.MalformedVariant) as problem:
        variant_columns._of_variants(values, pa.string(), shaped_texts)
    assert problem.value.row == 2
    assert np.array_equal(values.is_valid(), [False, True, True])


@pytest.mark.parametrize("copies", [1, 60])
def test_names_of_rows_that_share_their_metadata(copies: int) -> None:
    """Names may be empty, and in damaged metadata one may begin where another does, and be longer."""
    overlapping = (bytes.fromhex("0202" + "0002" + "000102" + "0000"), bytes.fromhex("0103" + "00020001") + b"ab")
    documents = [{"": 1, "a": {"": [], "b": {}}}, {"b": [{"a": 1}, {"b": "x"}], "": None}, {'ä"': [[], [1, []]]}]
    pairs = [overlapping, *(variant_of(document) for document in documents)] * copies
    texts = variant_texts(column(*pairs)).to_pylist()
    assert texts[::4] == ['{"ab":null,"a":null}'] * copies
    assert [json.loads(text) for place, text in enumerate(texts) if place % 4] == documents * copies


def test_the_row_of_malformed_metadata_that_others_share() -> None:
    good = variant_of({"a": 1})
    with pytest.raises(variant_nodes.MalformedVariant) as caught:
        variant_nodes.Variants(pa.array([good[0]] * 4), pa.array([good[1], good[1], b"\x02", b"\x02"]))
    assert caught.value.row == 2


@pytest.mark.parametrize(
    ("names", "ids"),
    [(b"\x01\x01\x00\x01a", b"\x00\x00"), (b"\x01\x02\x00\x01\x02aa", b"\x00\x01")],
    ids=["one name", "two names"],
)
def test_an_object_with_a_name_twice_is_damaged(names: bytes, ids: bytes) -> None:
    """Some readers would take the first of its fields, others the last."""
    twice = b"\x02\x02" + ids + b"\x00\x02\x04" + b"\x0c\x01\x0c\x02"
    within = b"\x03\x01\x00" + bytes([len(twice)]) + twice
    for value in (twice, within):
        with pytest.raises(DamagedFile, match="VARIANT value is damaged"):
            variant_texts(column((value, names), (value, names)))
    with pytest.raises(MalformedVariant, match="two fields of one name"):
        shaped_texts(Variants(pa.array([twice, twice], pa.binary()), pa.array([names, names], pa.binary())))
