"""Shapes of values: what is learned from one, what two have in common, and the texts that their values become."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.ingest.changes.json_shapes import MAX_LEVELS, JsonKind, arrow_of, column_of, merged, pointed_text, shape_of

INT, FLOAT, TEXT, BOOL, NULL, MIXED = (getattr(JsonKind, name) for name in ("INT", "FLOAT", "TEXT", "BOOL", "NULL", "MIXED"))


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ([1, "a"], [MIXED]),
        (["a", 1, 2], [MIXED]),
        ([{"a": 1}, {"b": "x"}, None], [{"a": INT, "b": TEXT}]),
        ([Decimal("1.5"), 1], [FLOAT]),
        ([], [NULL]),
        (2**63 - 1, INT),
        (-(2**63), INT),
        (2**63, MIXED),
        (-(2**63) - 1, MIXED),
        (True, BOOL),
        ({"a": {"b": {"c": {"d": {}}}}}, {"a": {"b": {"c": {"d": MIXED}}}}),
    ],
)
def test_a_shape_takes_all_parts_of_its_value(value: Any, shape: Any) -> None:
    assert shape_of(value, MAX_LEVELS) == shape


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"a": INT}, {"b": TEXT}, {"a": INT, "b": TEXT}),
        ({"a": INT, "b": {"x": NULL}}, {"a": FLOAT, "b": {"x": BOOL, "y": INT}}, {"a": FLOAT, "b": {"x": BOOL, "y": INT}}),
        ([{"a": NULL}], [{"a": TEXT, "b": INT}], [{"a": TEXT, "b": INT}]),
        (INT, FLOAT, FLOAT),
        (INT, TEXT, MIXED),
        (BOOL, INT, MIXED),
        (BOOL, FLOAT, MIXED),
        ({"a": INT}, [INT], MIXED),
        ({"a": INT}, TEXT, MIXED),
        (MIXED, FLOAT, MIXED),
    ],
)
def test_two_shapes_have_one_that_takes_both(one: Any, other: Any, both: Any) -> None:
    assert merged(one, other) == both and merged(other, one) == both
    assert merged(one, NULL) == one and merged(NULL, one) == one


def test_a_shape_with_values_of_several_kinds_has_no_arrow_type() -> None:
    assert arrow_of({"a": INT, "b": [MIXED]}, {}) is None
    assert arrow_of({"a": INT, "b\ud800": INT}, {}) is None
    assert arrow_of({"a": [{"n": INT}], "n": TEXT}, {"n": pa.binary()}) == pa.struct(
        [("a", pa.list_(pa.struct([("n", pa.binary())]))), ("n", pa.string())]
    )


@pytest.mark.parametrize("number", [2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 2**62])
def test_whole_numbers_that_no_double_tells_apart_keep_their_digits(number: int) -> None:
    assert column_of([Decimal("1.5"), number, None], FLOAT, None).to_pylist() == ["1.5", str(number), None]


def test_numbers_beside_fractions() -> None:
    values = [Decimal("1.5"), 2, None]
    assert column_of(values, FLOAT, None).to_pylist() == [1.5, 2.0, None]
    assert column_of(values, FLOAT, None, is_text=True).to_pylist() == ["1.5", "2", None]
    assert column_of([Decimal("1.5"), None], FLOAT, None, is_text=True).to_pylist() == [1.5, None]
    assert column_of([Decimal("1e999"), None], FLOAT, None, is_text=True).to_pylist() == ["1E+999", None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, "12."),
        ("12", "12"),
        (Decimal("1E+2"), "1.E+2"),
        (Decimal("1.5E+20"), "1.5E+20"),
        (Decimal("-0.5"), "-0.5"),
        (True, "true."),
        (None, None),
    ],
)
def test_numbers_have_a_point_that_texts_have_not(value: Any, text: str | None) -> None:
    assert pointed_text(value) == text
    assert column_of([value], INT, pa.string()).to_pylist() == [text]
