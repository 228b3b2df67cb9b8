"""Casts between DATE, TIME, both TIMESTAMPs and epoch seconds; the local zone is UTC (Java DateTimeUtils)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.casts.numbers import between_primitives
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import MILLIS_OF_DAY
from paimon_cli.errors import NotSupported

_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_Ints = npt.NDArray[np.int64]
MILLI_DIGITS = 3


def date_to_timestamp(array: pa.Array, target: TimestampType) -> pa.Array:
    """Midnight."""
    return _from_millis(_numbers(array.cast(pa.int32())) * MILLIS_OF_DAY, array, target)


def time_to_timestamp(array: pa.Array, target: TimestampType) -> pa.Array:
    """That time of 1970-01-01; the target's precision cuts nothing."""
    return _from_millis(_numbers(array.cast(pa.int32())), array, target)


def seconds_to_timestamp(array: pa.Array, target: TimestampType) -> pa.Array:
    with np.errstate(over="ignore"):
        return _from_millis(_numbers(array) * 1000, array, target)


def timestamp_to_seconds(array: pa.Array, target: DataType) -> pa.Array:
    """Toward zero, low bits."""
    millis = _millis(array)
    seconds = (millis - np.fmod(millis, 1000)) // 1000
    return between_primitives(_array(seconds, array, pa.int64()), target)


def timestamp_to_date(array: pa.Array) -> pa.Array:
    return _array((_millis(array) // MILLIS_OF_DAY).astype(np.int32), array, pa.date32())


def timestamp_to_time(array: pa.Array) -> pa.Array:
    return _array((_millis(array) % MILLIS_OF_DAY).astype(np.int32), array, pa.time32("ms"))


def timestamp_to_timestamp(array: pa.Array, source: TimestampType, target: TimestampType) -> pa.Array:
    """More digits: the same instant. Fewer: cut, by decimal digits of the millis toward zero (a later time before 1970)."""
    per_milli = _PER_MILLI[array.type.unit]
    numbers, precision = _numbers(array), target.precision
    if source.precision <= precision:
        return _in_unit(numbers, per_milli, array, target)
    if precision > MILLI_DIGITS:
        step = per_milli // 10 ** (precision - MILLI_DIGITS)
        return _in_unit(numbers // step * step, per_milli, array, target)
    millis = numbers // per_milli
    return _from_millis(millis - np.fmod(millis, 10 ** (MILLI_DIGITS - precision)), array, target)


def _numbers(array: pa.Array) -> _Ints:
    return np.asarray(array.cast(pa.int64()).fill_null(0).to_numpy())


def _millis(array: pa.Array) -> _Ints:
    return _numbers(array) // _PER_MILLI[array.type.unit]


def _from_millis(millis: _Ints, like: pa.Array, target: TimestampType) -> pa.Array:
    return _in_unit(millis, 1, like, target)


def _in_unit(numbers: _Ints, per_milli: int, like: pa.Array, target: TimestampType) -> pa.Array:
    """Numbers of 1/per_milli milliseconds as the target's Arrow type."""
    wanted = arrow_type(target)
    unit = _PER_MILLI[wanted.unit]
    if unit < per_milli:
        return _array(numbers // (per_milli // unit), like, wanted)
    factor = unit // per_milli
    limit = np.iinfo(np.int64).max // factor
    if len(numbers) and (numbers.max() > limit or numbers.min() < -limit):
        raise NotSupported(
            f"a value does not fit {type_to_sql(target)}", f"this version keeps such timestamps as 64-bit counts of {wanted.unit}"
        )
    return _array(numbers * factor, like, wanted)


def _array(values: npt.NDArray[np.generic], like: pa.Array, target: pa.DataType) -> pa.Array:
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    plain = pa.array(values, mask=mask)
    return plain.view(target)
