"""Parts of VARIANTs as values of a type, as Spark's `variant_get` casts them (Spark VariantGet, Cast in ANSI mode).

A part comes as what JSON has for it: a text, a number, true or false, or the JSON of an object or array. So one that a query has
as JSON and one that is stored as a VARIANT become the same value. A number with an exponent, or with `.0`, is a DOUBLE; others
are exact. Dates, times, bytes and UUIDs, which JSON does not have, are their texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.cast_from_text import FALSE_TEXTS, JAVA_TRIMMED, TRUE_TEXTS, java_float
from paimon_cli.datatypes.cast_numbers import per_distinct_value, rounded
from paimon_cli.datatypes.cast_to_text import fitted_bytes, fitted_text
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    BinaryType,
    DataType,
    DecimalType,
    NestedType,
    StringType,
    TimestampType,
    VariantType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.java_float_text import java_double_text
from paimon_cli.datatypes.variant_times import date_of, ticks_of_seconds, time_of, timestamp_of
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import shortened

_BLANKS = JAVA_TRIMMED + "\x7f"
"""What Spark drops around a text: blanks and control characters."""
_IS_DOUBLE = r"[eE]|\.0$"
_WHOLE = r"^-?[0-9]{1,18}$"
_SIGNED = r"^[+-]?[0-9]+$"
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_PLAIN = r"^[+-]?[0-9]{1,38}(\.[0-9]{1,37})?$"
_WIDEST = 76
"""Digits of Arrow's widest decimals."""
_MAX_DIGITS = 19
"""Digits of a BIGINT; Python takes no int of thousands."""


@dataclass(frozen=True)
class VariantParts:
    """`texts`: one for each row, null where there is no part, or a null of JSON. `is_text`: whether it is a text of JSON."""

    texts: pa.StringArray
    is_text: np.ndarray


def check_target(t: DataType) -> None:
    """Raise `UsageError` for a type that no part can have."""
    if isinstance(t, (NestedType, VariantType)):
        why = "it is read as a text, a number, a time, or true or false"
        raise UsageError(f"a part of a VARIANT cannot be read as {t.root}", why)


def values_of_parts(parts: VariantParts, t: DataType, *, tries: bool) -> pa.Array:
    """The parts as `arrow_type(t)`. One that is no value of the type is an error, or with `tries` null. Raises `UsageError`."""
    check_target(t)
    texts, first = parts.texts, pc.utf8_slice_codeunits(parts.texts, 0, 1)
    is_nested = np.array(pc.is_in(first, pa.array(["{", "["])).to_numpy(zero_copy_only=False)) & ~parts.is_text
    is_word = np.array(pc.is_in(texts, pa.array(["true", "false"])).to_numpy(zero_copy_only=False)) & ~parts.is_text
    is_number = ~(parts.is_text | is_nested | is_word)
    casts = ((parts.is_text, _text_cast), (is_word, _word_cast), (is_number, _number_cast), (is_nested, _nested_cast))
    found = pa.nulls(len(texts), arrow_type(t))
    for chosen, cast_for in casts:
        if chosen.any() and (cast := cast_for(t)) is not None:
            mask = pa.array(chosen)
            found = cast(texts) if chosen.all() else pc.replace_with_mask(found, mask, cast(texts.filter(mask)))
    if not tries and found.null_count > texts.null_count:
        bad = texts.filter(pc.and_(texts.is_valid(), found.is_null()))[0].as_py()
        what = f"variant_get: cannot cast {shortened(repr(bad))} to {type_to_sql(t)}"
        raise UsageError(what, "this part of a VARIANT is no value of the type", "read it as a STRING, or use try_variant_get")
    return found


Cast = Callable[[pa.StringArray], pa.Array]


def _each(function: Callable[[str], Any], t: DataType) -> Cast:
    return lambda texts: per_distinct_value(texts, function, arrow_type(t))


def _nested_cast(t: DataType) -> Cast | None:
    """Objects and arrays are texts of JSON, and nothing else."""
    return (lambda texts: fitted_text(texts, t)) if isinstance(t, StringType) else None


def _word_cast(t: DataType) -> Cast | None:
    if isinstance(t, StringType):
        return lambda texts: fitted_text(texts, t)
    if isinstance(t, DecimalType):
        return _each(lambda text: rounded(Decimal(text == "true"), t), t)
    if t.root in INTEGER_ROOTS | FLOATING_ROOTS or t.root == "BOOLEAN":
        return lambda texts: pc.equal(texts, "true").cast(pa.int8()).cast(arrow_type(t))
    return None


def _text_cast(t: DataType) -> Cast | None:
    match t:
        case StringType():
            return lambda texts: fitted_text(texts, t)
        case BinaryType():
            return lambda texts: fitted_bytes(texts.cast(pa.binary()), t)
        case DecimalType():
            return lambda texts: _decimals(pc.utf8_trim(texts, JAVA_TRIMMED), t)
        case TimestampType():
            return lambda texts: _ticks(texts, t, lambda text: timestamp_of(text.strip(_BLANKS), t))
    if t.root in INTEGER_ROOTS:
        return lambda texts: _integers(pc.utf8_trim(texts, _BLANKS), t)
    if t.root in FLOATING_ROOTS:
        return _each(lambda text: java_float(text, t), t)
    if t.root == "BOOLEAN":
        return _booleans
    if t.root == "DATE":
        return lambda texts: per_distinct_value(texts, lambda text: date_of(text.strip(_BLANKS)), pa.int32()).cast(pa.date32())
    return lambda texts: per_distinct_value(texts, lambda text: time_of(text.strip(_BLANKS)), pa.int32()).view(pa.time32("ms"))


def _number_cast(t: DataType) -> Cast | None:
    match t:
        case StringType():
            return lambda texts: fitted_text(_number_texts(texts), t)
        case DecimalType():
            return lambda texts: _decimals(texts, t)
        case TimestampType(root="TIMESTAMP_LTZ"):
            return lambda texts: _ticks(texts, t, lambda text: ticks_of_seconds(Decimal(text), t))
    if t.root in INTEGER_ROOTS:
        return lambda texts: _whole_parts(texts, t)
    if t.root in FLOATING_ROOTS:
        return lambda texts: _floats(texts, t)
    return (lambda texts: pc.not_equal(texts.cast(pa.float64()), 0.0)) if t.root == "BOOLEAN" else None


def _number_texts(texts: pa.StringArray) -> pa.StringArray:
    """Numbers as texts: DOUBLEs as Java prints them, exact ones as they are."""
    is_double = pc.match_substring_regex(texts, _IS_DOUBLE)
    if not is_double.true_count:
        return texts
    printed = per_distinct_value(texts.filter(is_double), lambda text: java_double_text(float(text)), pa.string())
    return pc.replace_with_mask(texts, is_double, printed)


def _floats(texts: pa.StringArray, t: DataType) -> pa.Array:
    """The nearest number. A DOUBLE is rounded to a FLOAT as Java does, from the number that it is."""
    if t.root == "DOUBLE":
        return texts.cast(pa.float64())
    is_double = pc.match_substring_regex(texts, _IS_DOUBLE)
    with np.errstate(over="ignore"):
        narrowed = texts.cast(pa.float64()).cast(pa.float32(), safe=False)
    return pc.if_else(is_double, narrowed, texts.cast(pa.float32()))


def _whole_parts(texts: pa.StringArray, t: DataType) -> pa.Array:
    """Numbers without their fraction, null for those out of range."""
    if pc.all(pc.match_substring_regex(texts, _WHOLE), min_count=0).as_py():
        return _in_range(texts.cast(pa.int64()), t)
    return per_distinct_value(texts, lambda text: _whole_part(text, t), arrow_type(t))


def _whole_part(text: str, t: DataType) -> int | None:
    """Spark cuts the fraction of a DECIMAL as a BIGINT exactly, as a smaller type from the nearest DOUBLE."""
    limit = 1 << (arrow_type(t).bit_width - 1)
    is_double, is_exact = re.search(_IS_DOUBLE, text) is not None, "." not in text or t.root == "BIGINT"
    if is_double or not is_exact:
        number = float(text)
        if not math.isfinite(number) or not (math.floor(number) <= limit - 1 and math.ceil(number) >= -limit):
            # the bound of a BIGINT is no DOUBLE: Java takes 2^63, and gives the largest number
            return limit - 1 if number == float(limit - 1) else None
        return min(int(number), limit - 1)
    number = int(Decimal(text)) if len(text) <= 2 * _MAX_DIGITS + 4 else limit
    return number if -limit <= number < limit else None


def _in_range(numbers: pa.Array, t: DataType) -> pa.Array:
    target = arrow_type(t)
    limit = 1 << (target.bit_width - 1)
    if target.bit_width == 64:
        return numbers
    fits = pc.and_(pc.greater_equal(numbers, -limit), pc.less(numbers, limit))
    return pc.if_else(fits, numbers, pa.scalar(None, numbers.type)).cast(target)


def _integers(texts: pa.StringArray, t: DataType) -> pa.Array:
    """Texts of a sign and digits; a fraction is none."""
    digits = pc.if_else(pc.match_substring_regex(texts, _SIGNED), texts, pa.scalar(None, pa.string()))
    digits = pc.replace_substring_regex(digits, r"^(?:\+|(-))?0*([0-9])", r"\1\2")
    if pc.all(pc.match_substring_regex(digits, _WHOLE), min_count=0).as_py():
        return _in_range(digits.cast(pa.int64()), t)
    return per_distinct_value(digits, lambda text: _whole_part(text, t), arrow_type(t))


def _booleans(texts: pa.StringArray) -> pa.Array:
    lowered = pc.utf8_lower(pc.utf8_trim(texts, _BLANKS))
    true, false = (pc.is_in(lowered, pa.array(words)) for words in (TRUE_TEXTS, FALSE_TEXTS))
    return pc.if_else(pc.or_(true, false), true, pa.scalar(None, pa.bool_()))


def _decimals(texts: pa.StringArray, t: DecimalType) -> pa.Array:
    """Numbers rounded half away from zero, null for those that are too large. Those without an exponent take no call each."""
    if not pc.all(pc.match_substring_regex(texts, _PLAIN), min_count=0).as_py():
        return per_distinct_value(texts, lambda text: _decimal(text, t), arrow_type(t))
    places = pc.max(pc.utf8_length(pc.replace_substring_regex(texts, r"^[^.]*\.?", ""))).as_py() or 0
    exact = texts.cast(pa.decimal256(_WIDEST, places))
    if places > t.scale:
        exact = pc.round(exact, t.scale, round_mode="half_towards_infinity")
    fits = pc.less(pc.abs(exact), pa.scalar(Decimal(10) ** (t.precision - t.scale), exact.type))
    kept = pc.if_else(fits, exact, pa.scalar(None, exact.type))
    return kept.cast(pa.decimal256(_WIDEST, t.scale)).cast(arrow_type(t))


def _decimal(text: str, t: DecimalType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        return rounded(Decimal(text), t)
    except InvalidOperation:  # the exponent exceeds the limits of `Decimal`
        return None


def _ticks(texts: pa.StringArray, t: TimestampType, ticks: Callable[[str], int | None]) -> pa.Array:
    return per_distinct_value(texts, ticks, pa.int64()).view(arrow_type(t))
