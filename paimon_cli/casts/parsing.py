"""Casts from text: Java's parsers, value by value (Java BinaryStringUtils, DateTimeUtils)."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.casts.distinct_values import impossible, per_distinct_value
from paimon_cli.casts.numbers import rounded
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.datatypes.field_types import type_to_sql

TRUE_TEXTS = ("t", "true", "y", "yes", "1")
FALSE_TEXTS = ("f", "false", "n", "no", "0")
_WHOLE = r"^[+-]?[0-9]*(\.[0-9]*)?$"
_FLOAT = re.compile(
    r"[+-]?(?:(?P<word>NaN|Infinity)"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r"|(?P<plain>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)",
    re.ASCII,
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_JAVA_TRIMMED = "".join(map(chr, range(0x21)))
"""What Java's `trim` takes away."""


def to_boolean(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    lowered = pc.utf8_lower(array)
    true, false = (pc.is_in(lowered, pa.array(texts)) for texts in (TRUE_TEXTS, FALSE_TEXTS))
    _refuse_where(pc.invert(pc.or_(true, false)), array, target)
    return pc.if_else(array.is_valid(), true, pa.scalar(None, pa.bool_()))


def to_whole_number(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """A sign and digits; a fraction is checked and cut off."""
    well_formed = pc.and_(pc.match_substring_regex(array, _WHOLE), pc.invert(pc.is_in(array, pa.array(["", "+", "-"]))))
    _refuse_where(pc.invert(well_formed), array, target)
    digits = pc.replace_substring_regex(array, r"\..*$", "")
    digits = pc.replace_substring_regex(digits, r"^\+", "")
    digits = pc.if_else(pc.is_in(digits, pa.array(["", "-"])), "0", digits)
    try:
        return digits.cast(arrow_type(target))
    except pa.ArrowInvalid:
        return per_distinct_value(array, lambda text: _in_range(text, target), arrow_type(target))


def _in_range(text: str, target: DataType) -> int:
    number = int(text.partition(".")[0].rstrip("+-") or "0")
    limit = 1 << (arrow_type(target).bit_width - 1)
    if not -limit <= number < limit:
        raise impossible(text, type_to_sql(target))
    return number


def _refuse_where(bad: pa.Array, array: pa.Array, target: DataType) -> None:
    """`bad` counts only where there is a value."""
    position = pc.index(pc.and_(bad, array.is_valid()), True).as_py()
    if position >= 0:
        raise impossible(array[position].as_py(), type_to_sql(target))


def to_float(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """`Double.parseDouble` and `Float.parseFloat`."""
    parse = _double if target.root == "DOUBLE" else _single
    return per_distinct_value(array, parse, arrow_type(target))


def _double(text: str) -> float:
    trimmed = text.strip(_JAVA_TRIMMED)
    match = _FLOAT.fullmatch(trimmed)
    if match is None:
        raise impossible(text, "DOUBLE")
    sign = -1.0 if trimmed.startswith("-") else 1.0
    if match["word"]:
        return sign * float(match["word"].lower())
    if match["plain"]:
        return sign * float(match["plain"])
    try:
        return sign * float.fromhex(match["hex"])
    except OverflowError:
        return sign * float("inf")


def _single(text: str) -> float:
    """Rounded once: a double that lies half way between two floats hides on which side the text was."""
    value = _double(text)
    with np.errstate(over="ignore"):
        near = np.float32(value)
    match = _FLOAT.fullmatch(text.strip(_JAVA_TRIMMED))
    if not np.isfinite(near) or float(near) == value or match is None or not match["plain"]:
        return float(near)
    other = np.nextafter(near, np.float32(np.inf if value > near else -np.inf))
    if abs(float(other) - value) != abs(float(near) - value):
        return float(near)
    exact = Decimal(match["plain"]).copy_sign(Decimal(value))
    if exact == Decimal(value):
        return float(near)
    return float(max(near, other) if exact > Decimal(value) else min(near, other))


def to_decimal(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    return per_distinct_value(array, lambda text: _decimal(text, target), arrow_type(target))


def _decimal(text: str, target: DataType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        raise impossible(text, type_to_sql(target))
    try:
        return rounded(Decimal(text), target)
    except InvalidOperation:  # an exponent beyond all bounds
        raise impossible(text, type_to_sql(target)) from None
