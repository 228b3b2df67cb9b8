"""Casts between BOOLEAN, numbers, DATE, TIME and both TIMESTAMPs, in time zone UTC (Java DecimalUtils, DateTimeUtils)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, low_words
from paimon_cli.datatypes.data_type import DataType, DecimalType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import MILLIS_OF_DAY
from paimon_cli.datatypes.java_float_text import java_double_text
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options.option_text import shortened


def per_distinct_value(array: pa.Array, function: Callable[[Any], Any], target: pa.DataType) -> pa.Array:
    """Apply `function`, which may return None, once to each distinct value that is not null; the result has type `target`."""
    encoded = array.dictionary_encode()
    converted = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(converted, target).take(encoded.indices)


def impossible(value: object, target: str) -> UsageError:
    """The error for a value that a cast cannot convert; Paimon's readers fail on such a value, too."""
    return UsageError(
        f"cannot cast {shortened(repr(value))} to {target}",
        "the type of a column was changed, and an old value has no equivalent in the new type",
        "read a snapshot from before the change, or change the type again",
    )


_NUMPY: dict[str, type[np.generic]] = {
    "TINYINT": np.int8,
    "SMALLINT": np.int16,
    "INT": np.int32,
    "BIGINT": np.int64,
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
}
_WIDE = 76
"""Precision of Arrow's widest decimals, enough for any DECIMAL at any scale."""
_LONG_DIGITS = 18
"""The most decimal digits that always fit an int64."""


def _masked(values: npt.NDArray[np.generic], like: pa.Array, target: pa.DataType) -> pa.Array:
    """An array of type `target`, whose bit width `values` must have; null where `like` is null."""
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values, mask=mask).view(target)


def _numpy(array: pa.Array) -> npt.NDArray[np.generic]:
    """The values as numpy, with zeros in place of nulls."""
    filled = array.fill_null(False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def between_primitives(array: pa.Array, target: DataType) -> pa.Array:
    """Cast among BOOLEAN, integers and floats, as Java does.

    Integers keep their low bits. Floats saturate at the bounds of INT, or of BIGINT for that target, and NaN becomes 0.
    """
    values = _numpy(array)
    if np.issubdtype(values.dtype, np.floating) and target.root not in ("FLOAT", "DOUBLE"):
        values = _saturated(values, np.int64 if target.root == "BIGINT" else np.int32)
    with np.errstate(over="ignore", invalid="ignore"):
        return _masked(values.astype(_NUMPY[target.root]), array, arrow_type(target))


def _saturated(values: npt.NDArray[np.generic], whole: type[np.signedinteger[Any]]) -> npt.NDArray[np.generic]:
    limits = np.iinfo(whole)
    floats = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # float(2**63 - 1) is rounded up to 2**63, so a value that equals it is too large
    high, low = floats >= float(limits.max), floats <= float(limits.min)
    inside = np.trunc(np.where(high | low, 0.0, floats)).astype(whole)
    return np.where(high, whole(limits.max), np.where(low, whole(limits.min), inside))


def number_to_boolean(array: pa.Array) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def decimal_to_primitive(array: pa.Array, target: DataType) -> pa.Array:
    """Integers are truncated toward zero and keep their low bits, floats are rounded to nearest."""
    if target.root in ("FLOAT", "DOUBLE"):
        return between_primitives(_doubles(array), target)
    whole = pc.round(array.cast(pa.decimal256(_WIDE, array.type.scale)), ndigits=0, round_mode="towards_zero")
    whole = whole.cast(pa.decimal128(38, 0))
    return _masked(low_words(whole).astype(_NUMPY[target.root]), array, arrow_type(target))


def _doubles(array: pa.Array) -> pa.Array:
    if array.type.precision > _LONG_DIGITS:
        return per_distinct_value(array, float, pa.float64())
    quotients = low_words(array).astype(np.float64) / float(10**array.type.scale)
    return _masked(quotients, array, pa.float64())


def to_decimal(array: pa.Array, target: DecimalType) -> pa.Array:
    """Cast BOOLEAN, integers, floats and decimals: rounded half away from zero; null where a value exceeds the precision."""
    if pa.types.is_floating(array.type):
        return per_distinct_value(array.cast(pa.float64()), lambda value: _from_double(value, target), arrow_type(target))
    exact = array if pa.types.is_decimal(array.type) else array.cast(pa.int64()).cast(pa.decimal128(19, 0))
    precision, scale = target.precision, target.scale
    wide = exact.cast(pa.decimal256(_WIDE, exact.type.scale))
    if scale < exact.type.scale:
        wide = pc.round(wide, ndigits=scale, round_mode="half_towards_infinity")
    wide = wide.cast(pa.decimal256(_WIDE, scale))
    limit = pa.scalar(Decimal(10) ** (precision - scale), pa.decimal256(_WIDE, scale))
    fits = pc.less(pc.abs(wide), limit)
    return pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(arrow_type(target))


def _from_double(value: float, target: DecimalType) -> Decimal | None:
    try:
        return rounded(Decimal(java_double_text(value)), target)
    except ArithmeticError:
        raise impossible(value, "DECIMAL") from None


def rounded(value: Decimal, target: DecimalType) -> Decimal | None:
    """The value rounded half away from zero to the target's scale; None if it then exceeds the precision.

    Raises `ArithmeticError` for NaN and infinity.
    """
    precision, scale = target.precision, target.scale
    if not value.is_finite():
        raise ArithmeticError("not a finite number")
    if value == 0 or value.adjusted() < -scale - 1:
        return Decimal(0).scaleb(-scale)
    if value.adjusted() >= precision - scale:
        return None
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    drop = -scale - int(exponent)
    if drop > 0:
        unscaled = (unscaled + 5 * 10 ** (drop - 1)) // 10**drop
    else:
        unscaled *= 10**-drop
    if unscaled >= 10**precision:
        return None
    return Decimal((sign, tuple(map(int, str(unscaled))), -scale))


_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_Ints = npt.NDArray[np.int64]
_MILLI_DIGITS = 3


def date_to_timestamp(array: pa.Array, target: TimestampType) -> pa.Array:
    """Midnight of each date."""
    return _from_millis(_numbers(array.cast(pa.int32())) * MILLIS_OF_DAY, array, target)


def time_to_timestamp(array: pa.Array, target: TimestampType) -> pa.Array:
    """Each time on 1970-01-01, not truncated to the target's precision."""
    return _from_millis(_numbers(array.cast(pa.int32())), array, target)


def seconds_to_timestamp(array: pa.Array, target: TimestampType) -> pa.Array:
    with np.errstate(over="ignore"):
        return _from_millis(_numbers(array) * 1000, array, target)


def timestamp_to_seconds(array: pa.Array, target: DataType) -> pa.Array:
    """Seconds since the epoch, truncated toward zero; INT keeps the low bits."""
    millis = _millis(array)
    seconds = (millis - np.fmod(millis, 1000)) // 1000
    return between_primitives(_masked(seconds, array, pa.int64()), target)


def timestamp_to_date(array: pa.Array) -> pa.Array:
    return _masked((_millis(array) // MILLIS_OF_DAY).astype(np.int32), array, pa.date32())


def timestamp_to_time(array: pa.Array) -> pa.Array:
    return _masked((_millis(array) % MILLIS_OF_DAY).astype(np.int32), array, pa.time32("ms"))


def timestamp_to_timestamp(array: pa.Array, source: TimestampType, target: TimestampType) -> pa.Array:
    """Change the precision of timestamps; a lower one truncates.

    At precisions up to 3, epoch milliseconds are truncated toward zero, so that times before 1970 become later.
    """
    per_milli = _PER_MILLI[array.type.unit]
    numbers, precision = _numbers(array), target.precision
    if source.precision <= precision:
        return _in_unit(numbers, per_milli, array, target)
    if precision > _MILLI_DIGITS:
        step = per_milli // 10 ** (precision - _MILLI_DIGITS)
        return _in_unit(numbers // step * step, per_milli, array, target)
    millis = numbers // per_milli
    return _from_millis(millis - np.fmod(millis, 10 ** (_MILLI_DIGITS - precision)), array, target)


def _numbers(array: pa.Array) -> _Ints:
    return _numpy(array.cast(pa.int64())).astype(np.int64, copy=False)


def _millis(array: pa.Array) -> _Ints:
    return _numbers(array) // _PER_MILLI[array.type.unit]


def _from_millis(millis: _Ints, like: pa.Array, target: TimestampType) -> pa.Array:
    return _in_unit(millis, 1, like, target)


def _in_unit(numbers: _Ints, per_milli: int, like: pa.Array, target: TimestampType) -> pa.Array:
    """Numbers in units of 1/`per_milli` milliseconds as the target's Arrow type. Raises `NotSupported` on overflow."""
    stored = arrow_type(target)
    unit = _PER_MILLI[stored.unit]
    if unit < per_milli:
        return _masked(numbers // (per_milli // unit), like, stored)
    factor = unit // per_milli
    limit = np.iinfo(np.int64).max // factor
    if len(numbers) and (numbers.max() > limit or numbers.min() < -limit):
        raise NotSupported(f"a value does not fit {type_to_sql(target)}", f"such timestamps are 64-bit numbers of {stored.unit}")
    return _masked(numbers * factor, like, stored)
