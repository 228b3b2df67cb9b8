"""VARIANT of JSON: the bytes that pypaimon 2.1 makes of the same values."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.variant_building import variant_of, variant_of_text, variants_of_texts
from paimon_cli.datatypes.variant_text import variant_texts

OF_PYPAIMON = [
    (
        {"age": 30, "city": "Beijing", "list": [1, -200, 70000, 2**40, True, None]},
        "020300010200020a280c1e1d4265696a696e6703060002050a1314150c011038ff14701101001800000000000100000400",
        "01030003070b616765636974796c697374",
    ),
    (
        {"b": {"x": Decimal("2.50")}, "a": "x" * 70},
        "020202000b005602010100062002fa00000040460000" + "00" + "78" * 70,
        "010300010203627861",
    ),
    ([], "030000", "010000"),
    ({}, "020000", "010000"),
    (1.5, "1c000000000000f83f", "010000"),
]


@pytest.mark.parametrize(("document", "value", "metadata"), OF_PYPAIMON)
def test_bytes_of_pypaimon(document: Any, value: str, metadata: str) -> None:
    found = variant_of(document)
    # pypaimon numbers a name before it reads the value, as the field is met
    assert (found[0].hex(), found[1].hex()) == (value, metadata)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("1.5", 8 << 2),
        ("1e2", 7 << 2),
        ("1e-400", 7 << 2),
        ("-0", 3 << 2),
        (str(2**63), 10 << 2),
        ("1" * 39, 7 << 2),
        ("-" + "9" * 38, 10 << 2),
        ("-" + "9" * 300, 7 << 2),
        ("0." + "1" * 39, 7 << 2),
        ("0." + "1" * 4400, 7 << 2),
    ],
)
def test_types_of_numbers(text: str, first: int) -> None:
    assert variant_of_text(text)[0][0] == first


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[1,]", '{"a":1,"a":2}', "[" * 100_000, "1e999", "7" * 5_000, '"\\ud800"', "'a'", "nul"]
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as problem:
        variant_of_text(text)
    assert len(str(problem.value)) < 200
    found, wrong = variants_of_texts(pa.array(["1", text, None, text]))
    assert sorted(wrong) == [1, 3]
    assert found.is_valid().to_pylist() == [True, False, False, False]


def test_python_that_is_nested_too_deep() -> None:
    value: Any = 1
    for _ in range(20_000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deep"):
        variant_of(value)


def test_equal_texts_share_nothing_but_their_bytes() -> None:
    found, _ = variants_of_texts(pa.array(['{"a": 1}', '{"a":1}', '{"a": 1}']))
    assert len({json.dumps({k: v.hex() for k, v in row.items()}) for row in found.to_pylist()}) == 1


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_whole_number_takes_the_smallest_type_that_holds_it(size: int) -> None:
    low, high = -(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1
    for number in (low, high):
        assert len(variant_of(number)[0]) == 1 + size
    for number in (low - 1, high + 1):
        assert len(variant_of(number)[0]) > 1 + size


def test_few_fields_may_have_names_of_large_numbers() -> None:
    """A name has one number in the whole value: that of an inner field may take two bytes where the count of fields takes one."""
    document = {**{f"k{number}": number for number in range(300)}, "inner": {"last": {"k299": 1, "z": "end"}}}
    column, wrong = variants_of_texts(pa.array([json.dumps(document)]))
    assert not wrong
    assert json.loads(variant_texts(column)[0].as_py()) == document


def read_again(document: Any) -> Any:
    """The document after it was stored."""
    column, wrong = variants_of_texts(pa.array([json.dumps(document)]))
    assert not wrong
    return json.loads(variant_texts(column)[0].as_py())


@pytest.mark.parametrize("size", [62, 63, 64, 65, 255, 256, 65_535, 65_536])
def test_texts_of_every_length(size: int) -> None:
    assert read_again({"a": "x" * size, "b": 1}) == {"a": "x" * size, "b": 1}


@pytest.mark.parametrize("size", [1, 255, 256, 257, 65_536])
def test_names_of_every_length(size: int) -> None:
    """The bounds of names need more bytes than their number."""
    document = {"n" * size: 1, "m": [{"n" * size: 2, "a": 3}]}
    assert read_again(document) == document


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257])
def test_any_number_of_children(count: int) -> None:
    document = {"list": list(range(count)), "object": {f"k{number}": number for number in range(count)}}
    assert read_again(document) == document


def test_equal_names_have_one_number() -> None:
    document = {"b": {"a": 1, "b": {"b": 2}}, "a": {"c": 3, "a": 4}}
    assert read_again(document) == document
    assert variant_of(document)[1].hex() == "010300010203626163"


def test_fields_are_in_the_order_of_their_bytes() -> None:
    """Readers search by halving, in bytes of UTF-8."""
    names = ["z", "ä", "a", "\U0001f600", "\uffff", "B"]
    value, metadata = variant_of(dict.fromkeys(names))
    ids = list(value[2 : 2 + len(names)])
    assert metadata[1] == len(names)
    assert [names[number] for number in ids] == sorted(names, key=str.encode)


@pytest.mark.parametrize("text", ["0.00000000012", "0." + "0" * 20 + "1", "0." + "0" * 37 + "1", "1." + "0" * 9, "-0.0000000001"])
def test_small_fractions_keep_their_scale(text: str) -> None:
    column, _ = variants_of_texts(pa.array([text]))
    assert Decimal(variant_texts(column)[0].as_py()) == Decimal(text)
    value = column[0].as_py()["value"]
    assert value[1] == len(text.partition(".")[2]) and value[0] >> 2 in (8, 9, 10)
    assert (value[0] >> 2, len(value)) in ((8, 6), (9, 10), (10, 18))
    assert value[1] <= {8: 9, 9: 18, 10: 38}[value[0] >> 2]


def test_each_row_of_a_wrong_text_is_null_and_no_other() -> None:
    texts = ["{", "1", None, "{", '{"a":1,"b":2,"a":3}', "2"]
    found, wrong = variants_of_texts(pa.array(texts))
    assert sorted(wrong) == [0, 3, 4] and "twice" in wrong[4]
    assert variant_texts(found).to_pylist() == [None, "1", None, None, None, "2"]


def test_names_and_values_have_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.datatypes.variant_building.MAX_VARIANT_BYTES", 100)
    assert variant_of({"n" * 80: "x" * 80})
    for document in ({"n" * 101: 1}, {"n": "x" * 101}):
        with pytest.raises(ValueError, match="a VARIANT has at most"):
            variant_of(document)
