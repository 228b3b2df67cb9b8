"""Floating-point numbers as Java before 19 prints them (all values here were printed by a JDK 17)."""

from __future__ import annotations

import math
import random
import struct

import pytest

from paimon_cli.datatypes.java_float_text import java_double_text, java_float_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1e10, "1.0E10"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e-5, "1.0E-5"),
        (123456789.125, "1.23456789125E8"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (2e-3, "0.002"),
        (2e23, "1.9999999999999998E23"),
        (1e23, "9.999999999999999E22"),
        (8.41e21, "8.409999999999999E21"),
        (2.9799999999999996e25, "2.9799999999999995E25"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_doubles(value: float, text: str) -> None:
    assert java_double_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5e10, "1.50000005E10"),
        (0.1, "0.1"),
        (2.0**83, "9.6714065E24"),
        (2.0**30, "1.07374182E9"),
        (16777216.0, "1.6777216E7"),
        (1e-45, "1.4E-45"),
        (3.4028235e38, "3.4028235E38"),
    ],
)
def test_floats(value: float, text: str) -> None:
    assert java_float_text(value) == text


def test_texts_parse_to_the_number_they_came_from() -> None:
    draw = random.Random(7)
    for _ in range(3000):
        (double,) = struct.unpack("<d", draw.randbytes(8))
        (single,) = struct.unpack("<f", draw.randbytes(4))
        if math.isfinite(double):
            assert float(java_double_text(double)) == double
        if math.isfinite(single):
            assert struct.pack("<f", float(java_float_text(single))) == struct.pack("<f", single)
