"""Casts to BOOLEAN, integers, FLOAT, DOUBLE and DECIMAL from numbers (Java NumericPrimitiveCastRule, DecimalUtils)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.casts.distinct_values import impossible, per_distinct_value
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataType, DecimalType
from paimon_cli.datatypes.java_float_text import java_double_text

_NUMPY: dict[str, type[np.generic]] = {
    "TINYINT": np.int8,
    "SMALLINT": np.int16,
    "INT": np.int32,
    "BIGINT": np.int64,
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
}
_WIDE = 76
"""Digits of Arrow's widest decimals: room for any DECIMAL at any scale."""
_LONG_DIGITS = 18
"""Numbers of this many digits fit an int64."""


def _masked(values: npt.NDArray[np.generic], like: pa.Array, target: pa.DataType) -> pa.Array:
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values, target, mask=mask)


def _numpy(array: pa.Array) -> npt.NDArray[np.generic]:
    """Values as numpy, something below nulls."""
    filled = array.fill_null(False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def between_primitives(array: pa.Array, target: DataType) -> pa.Array:
    """BOOLEAN, integers and floats to one another: low bits of integers are kept, floats saturate at INT or BIGINT, NaN is 0."""
    values = _numpy(array)
    if np.issubdtype(values.dtype, np.floating) and target.root not in ("FLOAT", "DOUBLE"):
        values = _saturated(values, np.int64 if target.root == "BIGINT" else np.int32)
    with np.errstate(over="ignore", invalid="ignore"):
        return _masked(values.astype(_NUMPY[target.root]), array, arrow_type(target))


def _saturated(values: npt.NDArray[np.generic], whole: type[np.signedinteger[Any]]) -> npt.NDArray[np.generic]:
    limits = np.iinfo(whole)
    floats = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # float(2**63 - 1) is 2**63 already, so whatever reaches it is beyond
    high, low = floats >= float(limits.max), floats <= float(limits.min)
    inside = np.trunc(np.where(high | low, 0.0, floats)).astype(whole)
    return np.where(high, whole(limits.max), np.where(low, whole(limits.min), inside))


def number_to_boolean(array: pa.Array) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def decimal_to_primitive(array: pa.Array, target: DataType) -> pa.Array:
    """Integers: cut toward zero, then the low bits. Floats: nearest."""
    if target.root in ("FLOAT", "DOUBLE"):
        return between_primitives(_doubles(array), target)
    whole = pc.round(array.cast(pa.decimal256(_WIDE, array.type.scale)), ndigits=0, round_mode="towards_zero")
    whole = whole.cast(pa.decimal128(38, 0))
    return _masked(_low_words(whole).astype(_NUMPY[target.root]), array, arrow_type(target))


def _low_words(array: pa.Array) -> npt.NDArray[np.int64]:
    """The low 64 bits of unscaled values; anything below nulls."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype=np.int64)
    return np.frombuffer(data, dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array)) : 2].copy()


def _doubles(array: pa.Array) -> pa.Array:
    if array.type.precision > _LONG_DIGITS:
        return per_distinct_value(array, float, pa.float64())
    quotients = _low_words(array).astype(np.float64) / float(10**array.type.scale)
    return _masked(quotients, array, pa.float64())


def to_decimal(array: pa.Array, target: DecimalType) -> pa.Array:
    """From BOOLEAN, integers, floats and decimals: half up (away from zero), null where the digits do not suffice."""
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
    """Half up to the target's scale; None when it then needs more digits than the type has."""
    precision, scale = target.precision, target.scale
    if not value.is_finite():
        raise ArithmeticError("no number")
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
