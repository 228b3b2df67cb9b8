"""Shredded VARIANTs of Parquet files: the same values as plain ones, whatever is in which column."""

from __future__ import annotations

import itertools
import json
import random
import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.bucket.shredded_variants import _widths, whole_variants
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.datatypes.variant_text import variant_texts
from paimon_cli.errors import NotSupported


def group(typed: pa.DataType) -> pa.DataType:
    return pa.struct([("value", pa.binary()), ("typed_value", typed)])


def shredded(typed: pa.DataType) -> pa.DataType:
    return pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])


OBJECT = shredded(
    pa.struct([("b", group(pa.int64())), ("a", group(pa.string())), ("o", group(pa.struct([("x", group(pa.int32()))])))])
)
NAMES = variant_of({name: 1 for name in ("z", "b", "a", "o", "x", "rest")})[1]
NOTHING = {"value": None, "typed_value": None}


def typed(value: Any) -> dict[str, Any]:
    return {"value": None, "typed_value": value}


def plain(document: Any) -> dict[str, Any]:
    return {"value": variant_of(document)[0], "typed_value": None}


def row(**fields: Any) -> dict[str, Any]:
    return {"b": NOTHING, "a": NOTHING, "o": NOTHING, **fields}


def texts(rows: list[Any], t: pa.DataType) -> list[Any]:
    found = whole_variants(pa.array(rows, t), VARIANT)
    assert found.type == arrow_type(VARIANT)
    return [None if text is None else json.loads(text) for text in variant_texts(found).to_pylist()]


def test_fields_of_objects() -> None:
    value, metadata = variant_of({"z": [1], "rest": "r"})
    rows = [
        {"metadata": NAMES, "value": None, "typed_value": row(b=typed(70_000), a=typed("y" * 100), o=typed({"x": typed(-3)}))},
        None,
        {"metadata": NAMES, "value": None, "typed_value": row(b=plain(2.5), a=plain(None), o=plain(True))},
        {"metadata": NAMES, "value": None, "typed_value": row()},
        {"metadata": NAMES, "value": variant_of([1, "two"])[0], "typed_value": None},
        {"metadata": NAMES, "value": None, "typed_value": None},
        {"metadata": metadata, "value": value, "typed_value": row()},
        {"metadata": NAMES, "value": None, "typed_value": row(o={"value": None, "typed_value": {"x": NOTHING}})},
    ]
    assert texts(rows, OBJECT) == [
        {"a": "y" * 100, "b": 70_000, "o": {"x": -3}},
        None,
        {"b": 2.5, "a": None, "o": True},
        {},
        [1, "two"],
        None,
        {"rest": "r", "z": [1]},
        {"o": {}},
    ]


def test_fields_that_are_not_shredded_are_put_between_the_others() -> None:
    value, metadata = variant_of({"aa": 1, "z": {"b": 2}})
    rest = {"metadata": metadata, "value": value, "typed_value": row(b=typed(5))}
    found = variant_texts(whole_variants(pa.array([rest] * 3, OBJECT), VARIANT))
    assert found.to_pylist() == ['{"aa":1,"b":5,"z":{"b":2}}'] * 3


def test_fields_are_in_the_order_of_their_names() -> None:
    """Readers search for them by halves."""
    t = shredded(pa.struct([(name, group(pa.int64())) for name in ("c", "d", "a")]))
    metadata = variant_of(dict.fromkeys("acd", 1))[1]
    document = {"metadata": metadata, "value": None, "typed_value": {"c": typed(1), "d": typed(2), "a": typed(3)}}
    found = whole_variants(pa.array([document], t), VARIANT)
    assert variant_texts(found).to_pylist() == ['{"a":3,"c":1,"d":2}']


def test_a_field_whose_group_is_null_is_missing() -> None:
    rows = [{"metadata": NAMES, "value": None, "typed_value": row(b=part)} for part in (typed(1), None, plain(2), NOTHING)]
    assert texts(rows, OBJECT) == [{"b": 1}, {}, {"b": 2}, {}]
    elements = {"metadata": NAMES, "value": None, "typed_value": [typed(1), None, plain(2)]}
    assert texts([elements], shredded(pa.list_(group(pa.int64())))) == [[1, None, 2]]


def test_an_object_and_another_value_for_one_place() -> None:
    """Beside rows whose further fields are an object."""
    (right, metadata), (wrong, _) = variant_of({"z": 1}), variant_of(1)
    rows = [{"metadata": metadata, "value": value, "typed_value": row()} for value in (right, wrong)]
    assert texts(rows[:1], OBJECT) == [{"z": 1}]
    with pytest.raises(ValueError, match="two values for one place"):
        whole_variants(pa.array(rows, OBJECT), VARIANT)


@pytest.mark.parametrize(
    ("t", "value", "found"),
    [
        (pa.bool_(), True, True),
        (pa.bool_(), False, False),
        (pa.int8(), -1, -1),
        (pa.int64(), 2**62, 2**62),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), -1e300, -1e300),
        (pa.decimal128(9, 2), Decimal("-12.50"), -12.5),
        (pa.decimal128(18, 0), Decimal(10**17), 10**17),
        (pa.decimal128(38, 38), Decimal("0.1"), 0.1),
        (pa.date32(), date(2024, 2, 29), "2024-02-29"),
        (pa.timestamp("ms"), datetime(2024, 1, 1, 1), "2024-01-01 01:00:00"),
        (pa.timestamp("us", "UTC"), datetime(1960, 1, 1, tzinfo=timezone.utc), "1960-01-01 00:00:00+00:00"),
        (pa.timestamp("ns"), datetime(2024, 1, 1), "2024-01-01 00:00:00"),
        (pa.string(), "é" * 40, "é" * 40),
        (pa.string(), "", ""),
        (pa.binary(), b"\xff", "/w=="),
        (pa.binary(16), bytes(16), "00000000-0000-0000-0000-000000000000"),
        (pa.list_(group(pa.int64())), [typed(1), plain("x"), NOTHING], [1, "x", None]),
        (pa.list_(group(pa.list_(group(pa.string())))), [typed([]), typed([typed("a")])], [[], ["a"]]),
    ],
)
def test_every_type(t: pa.DataType, value: Any, found: Any) -> None:
    rows = [{"metadata": NAMES, "value": None, "typed_value": value}, {"metadata": NAMES, **plain({"z": 1})}, None]
    assert texts(rows, shredded(t)) == [found, {"z": 1}, None]
    assert texts(rows[:1] * 300, shredded(t)) == [found] * 300


def test_many_children() -> None:
    rows = [
        {"metadata": NAMES, "value": None, "typed_value": [typed(number) for number in range(count)]}
        for count in (0, 300, 255, 256)
    ]
    assert texts(rows, shredded(pa.list_(group(pa.int32())))) == [list(range(count)) for count in (0, 300, 255, 256)]


def test_variants_within_other_types() -> None:
    """The parts of a plain VARIANT may be in any order; nothing else changes."""
    swapped = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    value, metadata = variant_of({"k": 1})
    cell = {"metadata": metadata, "value": value}
    t = parse_sql_type("ROW<a INT, b ARRAY<VARIANT>, c MAP<STRING, VARIANT>>")
    stored = pa.struct([("a", pa.int32()), ("b", pa.list_(swapped)), ("c", pa.map_(pa.string(), swapped))])
    rows: list[Any] = [{"a": 1, "b": [cell, None], "c": [("x", cell)]}, None, {"a": 2, "b": [], "c": None}]
    found = whole_variants(pa.array(rows, stored), t)
    assert found.to_pylist() == [
        {"a": 1, "b": [{"value": value, "metadata": metadata}, None], "c": [("x", {"value": value, "metadata": metadata})]},
        None,
        {"a": 2, "b": [], "c": None},
    ]


def encoded(document: Any, ids: dict[str, int]) -> bytes:
    """A value in the widest forms; `ids`: the numbers of names in its metadata."""
    if document is None:
        return b"\0"
    if isinstance(document, int):
        return bytes([6 << 2]) + struct.pack("<q", document)
    if isinstance(document, str):
        return bytes([16 << 2]) + struct.pack("<I", len(document.encode())) + document.encode()
    names = sorted(document) if isinstance(document, dict) else []
    parts = [encoded(one, ids) for one in ([document[name] for name in names] or document)]
    ends = [0, *itertools.accumulate(map(len, parts))]
    head = bytes([2 | 0b11111 << 2 if isinstance(document, dict) else 3 | 0b111 << 2])
    numbers = [len(parts), *(ids[name] for name in names), *ends]
    return head + struct.pack(f"<{len(numbers)}I", *numbers) + b"".join(parts)


def metadata_of(ids: dict[str, int]) -> bytes:
    names = [name.encode() for name in sorted(ids, key=ids.__getitem__)]
    numbers = [len(names), *itertools.accumulate(map(len, names), initial=0)]
    return b"\xc1" + struct.pack(f"<{len(numbers)}I", *numbers) + b"".join(names)


def parts_of(document: Any, t: pa.DataType, ids: dict[str, int]) -> dict[str, Any]:
    """A value in the columns of a group: what fits into `typed_value` is there."""
    if pa.types.is_struct(t) and isinstance(document, dict):
        inner = {
            field.name: parts_of(document[field.name], field.type.field("typed_value").type, ids)
            if field.name in document
            else NOTHING
            for field in t
        }
        rest = {name: one for name, one in document.items() if name not in inner}
        return {"value": encoded(rest, ids) if rest else None, "typed_value": inner}
    if pa.types.is_list(t) and isinstance(document, list):
        return typed([parts_of(one, t.value_type.field("typed_value").type, ids) for one in document])
    if (pa.types.is_integer(t) and isinstance(document, int)) or (pa.types.is_string(t) and isinstance(document, str)):
        return typed(document)
    return {"value": encoded(document, ids), "typed_value": None}


@pytest.mark.parametrize("seed", range(4))
def test_random_documents_with_metadata_of_their_own(seed: int) -> None:
    """The numbers of names differ from row to row, also where objects are in arrays, or have further fields."""
    chance, names = random.Random(seed), ["b", "a", "o", "l", "x", "rest", "more"]
    element = pa.struct([("x", group(pa.int64())), ("o", group(pa.struct([("a", group(pa.string()))])))])
    t = pa.struct([("b", group(pa.int64())), ("o", group(element)), ("l", group(pa.list_(group(element))))])

    def document(depth: int) -> Any:
        kind = chance.randrange(7) if depth < 4 else chance.randrange(3)
        if kind < 3:
            return [None, chance.randrange(-9, 9), "y" * chance.choice([0, 3, 300])][kind]
        if kind < 5:
            return [document(depth + 1) for _ in range(chance.randrange(4))]
        return {name: document(depth + 1) for name in chance.sample(names, chance.randrange(len(names)))}

    documents, rows = list[Any](), list[Any]()
    for _ in range(60):
        order = [*names, *(f"n{number}" for number in range(chance.choice([0, 0, 300])))]
        chance.shuffle(order)
        ids = {name: number for number, name in enumerate(order)}
        documents.append({name: document(1) for name in chance.sample(names, chance.randrange(len(names)))})
        rows.append({"metadata": metadata_of(ids), **parts_of(documents[-1], t, ids)})
    documents.insert(7, None)
    rows.insert(7, None)
    for at in (0, 20):  # so that places among the objects are not rows
        documents.insert(at, at)
        rows.insert(at, {"metadata": metadata_of({}), **parts_of(at, t, {})})
    assert texts(rows, shredded(t)) == documents


def test_the_bytes_of_numbers() -> None:
    numbers = [0, 255, 256, 65_535, 65_536, (1 << 24) - 1, 1 << 24, (1 << 32) - 1]
    assert _widths(np.array(numbers)).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


WRONG = {
    "no metadata": {"metadata": None, "value": None, "typed_value": row(b=typed(1))},
    "a name that the metadata lacks": {"metadata": variant_of({"q": 1})[1], "value": None, "typed_value": row(b=typed(1))},
    "two values": {"metadata": NAMES, "value": variant_of(1)[0], "typed_value": row(b=typed(1))},
    "a name twice beside others": {
        "metadata": NAMES,
        "value": variant_of({"z": 1, "b": 1})[0],
        "typed_value": row(a=typed("x"), b=typed(1)),
    },
    "two values of a field": {"metadata": NAMES, "value": None, "typed_value": row(b={"value": b"\0", "typed_value": 1})},
    "a name twice": {"metadata": NAMES, "value": variant_of({"z": 1, "b": 1})[0], "typed_value": row(b=typed(1))},
    "bytes that are no object": {"metadata": NAMES, "value": b"\x02\x01", "typed_value": row(b=typed(1))},
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("beside", [0, 2])
def test_contradictions(name: str, beside: int) -> None:
    """Also of one row beside others."""
    right = {"metadata": NAMES, "value": None, "typed_value": row(b=typed(1))}
    whole_variants(pa.array([right], OBJECT), VARIANT)
    with pytest.raises(ValueError, match=r"VARIANT"):
        whole_variants(pa.array([right] * beside + [WRONG[name]], OBJECT), VARIANT)


@pytest.mark.parametrize("part", ["value", "metadata"])
def test_plain_variants_without_a_part(part: str) -> None:
    cell = {"metadata": NAMES, "value": variant_of(1)[0]}
    t = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    assert whole_variants(pa.array([cell, None], t), VARIANT).to_pylist() == [cell, None]
    with pytest.raises(ValueError, match="no value or no metadata"):
        whole_variants(pa.array([cell, None, cell | {part: None}], t), VARIANT)


def test_types_that_no_variant_has() -> None:
    rows = [{"metadata": NAMES, "value": None, "typed_value": 1}]
    with pytest.raises(NotSupported, match="uint64"):
        whole_variants(pa.array(rows, shredded(pa.uint64())), VARIANT)
    with pytest.raises(ValueError, match="not as value and metadata"):
        whole_variants(pa.array([1]), VARIANT)
