"""DOUBLE values as Java prints them."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from paimon_cli.ingest.changes.double_text import double_text, double_texts

VALUES = {
    0.0: "0.0",
    1.0: "1.0",
    -1.5: "-1.5",
    0.001: "0.001",
    0.00099: "9.9E-4",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    12345678.9: "1.23456789E7",
    1.7976931348623157e308: "1.7976931348623157E308",
    5e-324: "5.0E-324",
    -1e22: "-1.0E22",
    0.1: "0.1",
    1 / 3: "0.3333333333333333",
    math.inf: "Infinity",
    -math.inf: "-Infinity",
}


@pytest.mark.parametrize("value", VALUES)
def test_one_number(value: float) -> None:
    assert double_text(value) == VALUES[value]


def test_a_column() -> None:
    texts = double_texts(pa.array([*VALUES, None, math.nan, -0.0]))
    assert texts.to_pylist() == [*VALUES.values(), None, "NaN", "-0.0"]
