"""Casts from text to other types, by Java's lenient parsers (Java BinaryStringUtils, DateTimeUtils)."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.cast_numbers import impossible, per_distinct_value, rounded
from paimon_cli.datatypes.data_type import DataType, DecimalType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import MILLIS_OF_DAY, Timestamp, days_of_month, epoch_day
from paimon_cli.errors import UsageError

_MAX_INT = 2**31 - 1
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_WHOLE_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)
"""A string of this form is not a date or time but a number of days, millis or other units (Java StringUtils.isNumeric)."""
_DATE = re.compile(r"(?P<year>[^-]*)(?:-(?P<month>[^-]*)(?:-(?P<day>.*))?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"(?P<year>[0-9]{4}|\+[0-9]{5,9})-(?P<month>[0-9]{1,2})?-(?P<day>[0-9]{1,2})?"
    r"(?: (?P<h>[0-9]{1,2}):(?P<m>[0-9]{1,2}):(?P<s>[0-9]{1,2})(?:\.(?P<f>[0-9]{0,9}))?"
    r"|T(?P<th>[0-9]{1,2}):(?P<tm>[0-9]{1,2})(?::(?P<ts>[0-9]{1,2})(?:\.(?P<tf>[0-9]{0,9}))?)?)?",
    re.ASCII,
)
MAX_LONG_DIGITS = 1000
_NANOS_PER_UNIT = {0: 1_000_000_000, 3: 1_000_000, 6: 1_000, 9: 1}


def to_date(array: pa.Array) -> pa.Array:
    """Parse `y-M[-d]`, ignoring anything after a space; a whole number is a day since the epoch."""
    return per_distinct_value(array, _date, pa.int32()).cast(pa.date32())


def _date(text: str) -> int:
    if _WHOLE_NUMBER.fullmatch(text):
        return _java_int(text, "DATE")
    blank = text.find(" ")
    match = _DATE.fullmatch(text[:blank] if blank > 0 else text)
    if match is None:
        raise impossible(text, "DATE")
    year, month, day = (1 if part is None else _int(part, text, "DATE") for part in match.group("year", "month", "day"))
    if not (0 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= days_of_month(year, month)):
        raise impossible(text, "DATE")
    return epoch_day(year, month, day)


def _int(part: str, text: str, target: str) -> int:
    """The int in `part`, surrounded by optional whitespace. Raises the error for `text` if there is none."""
    digits = part.strip("".join(map(chr, range(0x21))))
    if not _DIGITS.fullmatch(digits):
        raise impossible(text, target)
    return _java_int(digits, target, text)


def _java_int(number: str, target: str, text: str = "") -> int:
    """The value of a Java int; longer digit strings are rejected without parsing them. Leading zeros are ignored."""
    digits = number.lstrip("-").lstrip("0")
    value = int(digits or "0") if len(digits) < len("10000000000") else _MAX_INT + 2
    value = -value if number.startswith("-") else value
    if not -_MAX_INT - 1 <= value <= _MAX_INT:
        raise impossible(text or number, target)
    return value


def to_time(array: pa.Array) -> pa.Array:
    """Parse `H[:m[:s[.f]]]` with an optional signed zone, rounded to millis; a whole number is millis of the day."""
    return per_distinct_value(array, _time, pa.int32()).view(pa.time32("ms"))


def _time(text: str) -> int:
    if _WHOLE_NUMBER.fullmatch(text):
        return _java_int(text, "TIME")
    sign = "-" if "-" in text else "+"
    clock, _, zone = text.partition(sign)
    hours, minutes, seconds, millis = _clock(clock, text)
    zone_hours, zone_minutes = _zone(zone, text) if sign in text else (0, 0)
    factor = -1 if sign == "-" else 1
    total = (hours + factor * zone_hours) * 3_600_000 + (minutes + factor * zone_minutes) * 60_000 + seconds * 1000 + millis
    return (total + 2**31) % 2**32 - 2**31  # overflows as an int does in Java


def _clock(clock: str, text: str) -> tuple[int, int, int, int]:
    hours, *rest = clock.split(":", 2)
    minutes, seconds = [*rest, "0", "0"][:2] if rest else ("0", "0")
    whole, dot, fraction = seconds.partition(".")
    parts = (_int(part, text, "TIME") for part in (hours, minutes, whole))
    return (*parts, _millis(fraction) if dot else 0)  # type: ignore[return-value]


def _millis(fraction: str) -> int:
    """Milliseconds from the fractional digits of a second, rounded by the fourth; other characters count as 0."""
    digits = [int(c) if c in "0123456789" else 0 for c in fraction.strip()]
    padded = [*digits[:3], 0, 0, 0][:3]
    rounds_up = len(digits) > 3 and fraction.strip()[3] >= "5"
    return padded[0] * 100 + padded[1] * 10 + padded[2] + rounds_up


def _zone(zone: str, text: str) -> tuple[int, int]:
    hours, colon, minutes = zone.partition(":")
    return _int(hours, text, "TIME"), _int(minutes, text, "TIME") if colon else 0


def to_timestamp(array: pa.Array, target: TimestampType) -> pa.Array:
    """Parse `y-M-d[ H:m:s[.f]]` or `y-M-dTH:m[:s[.f]]`, truncated to the precision.

    Except for TIMESTAMP_LTZ, a whole number is a time since the epoch in units of the precision.
    """
    encoded = array.dictionary_encode()
    parsed = [_timestamp(text, target) for text in encoded.dictionary.to_pylist()]
    return values_to_arrow(parsed, target).cast(arrow_type(target)).take(encoded.indices)


def _timestamp(text: str, target: TimestampType) -> Timestamp:
    precision = target.precision
    if target.root == "TIMESTAMP" and _WHOLE_NUMBER.fullmatch(text):
        if precision not in _NANOS_PER_UNIT or len(text) > MAX_LONG_DIGITS or not -(2**63) <= int(text) < 2**63:
            raise impossible(text, type_to_sql(target))
        millis, nanos = divmod(int(text) * _NANOS_PER_UNIT[precision], 1_000_000)
        return Timestamp(millis, nanos)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise impossible(text, type_to_sql(target))
    year, month, day = int(match["year"]), int(match["month"] or 1), int(match["day"] or 1)
    hour, minute, second = (int(match[name] or match["t" + name] or 0) for name in "hms")
    midnight = (hour, minute, second) == (24, 0, 0)
    if not (1 <= month <= 12 and 1 <= day <= 31 and (hour <= 23 or midnight) and minute <= 59 and second <= 59):
        raise impossible(text, type_to_sql(target))
    # a day after the end of the month is its last day
    days = epoch_day(year, month, min(day, days_of_month(year, month)))
    nanos = int(((match["f"] or match["tf"] or "")[:precision]).ljust(9, "0"))
    millis, nano_of_milli = divmod(nanos, 1_000_000)
    return Timestamp(days * MILLIS_OF_DAY + ((hour * 60 + minute) * 60 + second) * 1000 + millis, nano_of_milli)


TRUE_TEXTS = ("t", "true", "y", "yes", "1")
FALSE_TEXTS = ("f", "false", "n", "no", "0")
_WHOLE = r"^[+-]?[0-9]*(\.[0-9]*)?$"
_FLOAT = re.compile(
    r"[+-]?(?:(?P<word>NaN|Infinity)"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r"|(?P<plain>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)",
    re.ASCII,
)
_MAX_DIGITS = 19
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
JAVA_TRIMMED = "".join(map(chr, range(0x21)))
"""The characters that Java's `String.trim` removes."""


def to_boolean(array: pa.Array, target: DataType) -> pa.Array:
    lowered = pc.utf8_lower(array)
    true, false = (pc.is_in(lowered, pa.array(texts)) for texts in (TRUE_TEXTS, FALSE_TEXTS))
    _refuse_where(pc.invert(pc.or_(true, false)), array, target)
    return pc.if_else(array.is_valid(), true, pa.scalar(None, pa.bool_()))


def to_integer(array: pa.Array, target: DataType) -> pa.Array:
    """Parse an optional sign and digits; a fraction must be well-formed and is dropped."""
    _refuse_where(pc.invert(_are_whole(array)), array, target)
    digits = pc.replace_substring_regex(array, r"\..*$", "")
    digits = pc.replace_substring_regex(digits, r"^\+", "")
    digits = pc.if_else(pc.is_in(digits, pa.array(["", "-"])), "0", digits)
    try:
        return digits.cast(arrow_type(target))
    except pa.ArrowInvalid:
        return per_distinct_value(array, lambda text: _in_range(text, target), arrow_type(target))


def _are_whole(texts: pa.Array) -> pa.Array:
    """Whether each text is a number without an exponent."""
    return pc.and_(pc.match_substring_regex(texts, _WHOLE), pc.invert(pc.is_in(texts, pa.array(["", "+", "-"]))))


def _in_range(text: str, target: DataType) -> int:
    whole = text.partition(".")[0].rstrip("+-") or "0"
    if len(whole.lstrip("+-0")) > _MAX_DIGITS:  # Python's `int` has a limit of its own
        raise impossible(text, type_to_sql(target))
    number = int(whole[: len(whole) - len(whole.lstrip("+-"))] + (whole.lstrip("+-0") or "0"))
    limit = 1 << (arrow_type(target).bit_width - 1)
    if not -limit <= number < limit:
        raise impossible(text, type_to_sql(target))
    return number


def _refuse_where(bad: pa.Array, array: pa.Array, target: DataType) -> None:
    """Raise the error for the first non-null value of `array` that is marked in `bad`."""
    position = pc.index(pc.and_(bad, array.is_valid()), True).as_py()
    if position >= 0:
        raise impossible(array[position].as_py(), type_to_sql(target))


def to_float(array: pa.Array, target: DataType) -> pa.Array:
    """Parse as Java's `Double.parseDouble` and `Float.parseFloat` do."""
    parse = _double if target.root == "DOUBLE" else _single
    return per_distinct_value(array, parse, arrow_type(target))


_SPARK_WORDS = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE | re.ASCII)


def java_float(text: str, target: DataType) -> float | None:
    """The DOUBLE or FLOAT of a text as Spark reads it: in any case and with `inf`, else as Java; None if it is none."""
    trimmed = text.strip(JAVA_TRIMMED)
    if _SPARK_WORDS.fullmatch(trimmed):
        return float(trimmed)
    try:
        return _double(trimmed) if target.root == "DOUBLE" else _single(trimmed)
    except UsageError:
        return None


def _double(text: str) -> float:
    trimmed = text.strip(JAVA_TRIMMED)
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
    """The nearest float, rounded only once: a double halfway between two floats may itself be rounded from either side."""
    value = _double(text)
    with np.errstate(over="ignore"):
        near = np.float32(value)
    match = _FLOAT.fullmatch(text.strip(JAVA_TRIMMED))
    if not np.isfinite(near) or float(near) == value or match is None or not match["plain"]:
        return float(near)
    other = np.nextafter(near, np.float32(np.inf if value > near else -np.inf))
    if abs(float(other) - value) != abs(float(near) - value):
        return float(near)
    exact = Decimal(match["plain"]).copy_sign(Decimal(value))
    if exact == Decimal(value):
        return float(near)
    return float(max(near, other) if exact > Decimal(value) else min(near, other))


def to_decimal(array: pa.Array, target: DecimalType) -> pa.Array:
    return per_distinct_value(array, lambda text: _decimal(text, target), arrow_type(target))


def _decimal(text: str, target: DecimalType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        raise impossible(text, type_to_sql(target))
    try:
        return rounded(Decimal(text), target)
    except InvalidOperation:  # the exponent exceeds the limits of `Decimal`
        raise impossible(text, type_to_sql(target)) from None
