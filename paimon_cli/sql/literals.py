"""Converts SQL literals to values of a column's type: exactly, except for FLOAT and DOUBLE, which get the nearest value.

Columns of type INT, DECIMAL, DATE, TIME and TIMESTAMP hold whole numbers of a unit, so `int_col < 3.5` becomes `int_col < 4`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_BITS,
    INTEGER_ROOTS,
    TIMESTAMP_ROOTS,
    BinaryType,
    DataType,
    DecimalType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import ZONED_TIME, Timestamp, decimal_of, epoch_nanos, parse_date, parse_time
from paimon_cli.errors import UsageError

BITS = {**INTEGER_BITS, "DATE": 32, "TIME": 32, "TIMESTAMP": 64, "TIMESTAMP_LTZ": 64}
NANOS_OF_DAY = 86_400 * 10**9
ONE_DIGIT = re.compile(r"(?<=^\d{4}-)(?=\d-)|(?<=^\d{4}-\d-)(?=\d(?:[T ]|$))|(?<=^\d{4}-\d\d-)(?=\d(?:[T ]|$))")
"""Where a month or day of one digit, as CSV files have it, lacks its zero."""


@dataclass(frozen=True)
class Literal:
    """The value of a SQL literal: bool, Decimal, str, bytes, or None for NULL.

    `keyword`: DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ if that keyword precedes the string, else empty.
    """

    value: bool | Decimal | str | bytes | None
    keyword: str = ""

    def __str__(self) -> str:
        if isinstance(self.value, bytes):
            return f"X'{self.value.hex()}'"
        quoted = f"'{self.value}'" if isinstance(self.value, str) else str(self.value)
        return f"{self.keyword} {quoted}".strip()


@dataclass(frozen=True)
class WholeNumber:
    """A column type whose values are whole numbers of a unit, from `low` to `high`."""

    type: DataType
    low: int
    high: int

    def value(self, number: int) -> Any:
        """The internal value for this number of units."""
        if isinstance(self.type, DecimalType):
            return decimal_of(number, self.type.scale)
        if isinstance(self.type, TimestampType):
            per_milli = _per_second(self.type) // 1000
            return Timestamp(number // per_milli, number % per_milli * (1_000_000 // per_milli))
        return number


def _per_second(t: TimestampType) -> int:
    """Stored units per second: milliseconds, microseconds or nanoseconds."""
    return 10 ** (3 if t.precision <= 3 else 6 if t.precision <= 6 else 9)


def integer(t: DataType) -> WholeNumber | None:
    """The range of a type that holds whole numbers of a unit; None for strings, binaries, booleans and floats."""
    if isinstance(t, DecimalType):
        largest = 10**t.precision - 1
        return WholeNumber(t, -largest, largest)
    bits = BITS.get(t.root)
    return WholeNumber(t, -(1 << (bits - 1)), (1 << (bits - 1)) - 1) if bits is not None else None


def units_of(literal: Literal, t: DataType) -> Fraction:
    """The exact number of units that a literal stands for. Raises `UsageError` if it cannot be compared with the column."""
    try:
        if t.root in INTEGER_ROOTS:
            return _number(literal)
        if isinstance(t, DecimalType):
            return _number(literal) * 10**t.scale
        nanos = _nanos(literal, t)
    except (ValueError, ArithmeticError) as problem:
        raise _not_comparable(literal, t) from problem
    if isinstance(t, TimestampType):
        return Fraction(nanos * _per_second(t), 10**9)
    return Fraction(nanos, NANOS_OF_DAY if t.root == "DATE" else 10**6)


def _number(literal: Literal) -> Fraction:
    value = literal.value
    if literal.keyword or isinstance(value, (bool, bytes)) or value is None:
        raise ValueError("not a number")
    number = Decimal(value)
    if abs(number.adjusted()) > 1000:
        raise ValueError("far out of range")
    return Fraction(number)


def _nanos(literal: Literal, t: DataType) -> int:
    """Nanoseconds since the epoch; for TIME, since midnight."""
    text = literal.value if not isinstance(literal.value, str) else ONE_DIGIT.sub("0", literal.value)
    if not isinstance(text, str) or ((literal.keyword == "TIME") != isinstance(t, TimeType) and literal.keyword):
        raise ValueError("not a string")
    if isinstance(t, TimeType):
        return parse_time(text) * 10**6
    if literal.keyword == "DATE":
        return parse_date(text) * NANOS_OF_DAY
    if ZONED_TIME.match(text) and t.root != "TIMESTAMP_LTZ":
        raise ValueError("a time zone, but the column has none")
    return epoch_nanos(text)


def value_of(literal: Literal, t: DataType) -> Any:
    """The internal value to compare with a string, binary, boolean or floating-point column. Raises `UsageError`."""
    value = literal.value
    if isinstance(t, StringType) and isinstance(value, str) and not literal.keyword:
        return value
    if isinstance(t, BinaryType) and isinstance(value, bytes):
        return value
    if t.root == "BOOLEAN" and isinstance(value, bool):
        return value
    if t.root == "BOOLEAN" and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if t.root in FLOATING_ROOTS and not isinstance(value, (bool, bytes)) and value is not None and not literal.keyword:
        try:
            return values_to_arrow([float(value)], t)[0].as_py()
        except ValueError as problem:
            raise _not_comparable(literal, t) from problem
    raise _not_comparable(literal, t)


def scalar_of(value: Any, t: DataType) -> pa.Scalar:
    return values_to_arrow([value], t)[0]


def _not_comparable(literal: Literal, t: DataType) -> UsageError:
    value = literal.value
    if isinstance(value, str) and (integer(t) is not None or t.root in FLOATING_ROOTS):
        wanted = {"DATE": "a day, such as '2024-01-31'", "TIME": "a time of day, such as '12:30:00'"}
        wanted |= dict.fromkeys(TIMESTAMP_ROOTS, "a point in time, such as '2024-01-31 12:30:00'")
        hint = f"{literal} is not {wanted.get(t.root, 'a number')}"
    elif isinstance(t, StringType):
        hint = "write strings in single quotes"
    elif isinstance(t, BinaryType):
        hint = "write binary values as X'0aff'"
    else:
        hint = "write strings in single quotes, binary values as X'0aff', dates as DATE '2024-01-31'"
    return UsageError(f"cannot compare {literal} with {type_to_sql(t.with_nullable(True))}", hint=hint)
