"""The JSON texts of the leaves of VARIANTs: numbers, texts, times and bytes, all nodes of a kind at once."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.internal_values import Timestamp, date_text, timestamp_parts
from paimon_cli.datatypes.value_texts import FIRST_DAY, LAST_DAY, escaped, float_texts, hex_texts, quoted, without_zeros
from paimon_cli.datatypes.variant_columns import in_order
from paimon_cli.datatypes.variant_nodes import PAYLOADS, MalformedVariant, NodeKind, NodeLevel, Primitive, Variants

_MOST_DIGITS = 38
_DECIMAL_SIZES = {Primitive.DECIMAL4: (4, 9), Primitive.DECIMAL8: (8, 18), Primitive.DECIMAL16: (16, 38)}
_PER_MILLI = 1_000_000
_UNITS = {
    Primitive.TIMESTAMP: ("us", "+00:00"),
    Primitive.TIMESTAMP_NTZ: ("us", ""),
    Primitive.TIMESTAMP_NANOS: ("ns", "+00:00"),
    Primitive.TIMESTAMP_NTZ_NANOS: ("ns", ""),
}
_UUID_PARTS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))


def decoded(texts: pa.Array, rows: np.ndarray) -> pa.StringArray:
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid as problem:
        raise MalformedVariant(int(rows[0]), "a text in it, or in a value near it, is not valid UTF-8") from problem


def plain_texts(variants: Variants, level: NodeLevel) -> pa.StringArray:
    """The contents of text nodes, without quotes."""
    return decoded(variants.values.binary(*variants.texts(level)), level.rows)


def leaf_texts(variants: Variants, level: NodeLevel) -> pa.StringArray:
    """The JSON texts of nodes that are no objects or arrays."""
    kinds = np.where(level.kinds == NodeKind.SHORT_TEXT, Primitive.TEXT, level.details)
    kinds = np.where((kinds >= Primitive.INT8) & (kinds <= Primitive.INT64), Primitive.INT64, kinds)
    found = [int(kind) for kind in np.flatnonzero(np.bincount(kinds, minlength=1))]
    positions = [np.flatnonzero(kinds == kind) for kind in found]
    parts = [
        texts_of_kind(variants, level if len(found) == 1 else level.leaves(places), kind)
        for kind, places in zip(found, positions, strict=True)
    ]
    return in_order(parts, positions)


def texts_of_kind(variants: Variants, level: NodeLevel, kind: int) -> pa.StringArray:
    """The JSON texts of nodes of one kind."""
    content, starts = variants.values, level.starts + 1
    if kind == Primitive.TEXT:
        return quoted(escaped(plain_texts(variants, level)))
    if kind in (Primitive.NULL, Primitive.TRUE, Primitive.FALSE):
        word = {Primitive.NULL: "null", Primitive.TRUE: "true", Primitive.FALSE: "false"}[kind]
        return pa.repeat(pa.scalar(word), len(starts))
    if kind == Primitive.INT64:
        return pa.array(content.signed(starts, PAYLOADS[level.details])).cast(pa.string())
    if kind in (Primitive.DOUBLE, Primitive.FLOAT):
        return _float_texts(content.fixed(starts, "<f8" if kind == Primitive.DOUBLE else "<f4"))
    if kind in _DECIMAL_SIZES:
        return _decimal_texts(variants, level, kind)
    if kind == Primitive.DATE:
        days = pa.array(content.fixed(starts, "<i4"))
        texts = days.cast(pa.date32()).cast(pa.string()) if _is_civil(days, 1) else _one_by_one(days, date_text)
    elif kind == Primitive.TIME:
        texts = without_zeros(pa.array(content.fixed(starts, "<i8")).cast(pa.time64("us")).cast(pa.string()))
    elif kind in _UNITS:
        texts = _time_texts(pa.array(content.fixed(starts, "<i8")), *_UNITS[kind])
    elif kind == Primitive.BINARY:
        texts = _one_by_one(content.binary(*variants.texts(level)), lambda value: base64.b64encode(value).decode())
    else:
        digits = hex_texts(content.binary(starts, np.full(len(starts), 16)))
        texts = pc.binary_join_element_wise(*(pc.utf8_slice_codeunits(digits, *part) for part in _UUID_PARTS), "-")
    return quoted(texts)


def _float_texts(numbers: np.ndarray) -> pa.StringArray:
    """FLOATs have the digits that tell them from other FLOATs."""
    array = pa.array(numbers)
    wide = array if pa.types.is_float64(array.type) else array.cast(pa.string()).cast(pa.float64())
    return pc.if_else(pc.is_finite(wide), float_texts(wide), quoted(float_texts(wide)))


def _decimal_texts(variants: Variants, level: NodeLevel, kind: int) -> pa.StringArray:
    """Decimals without zeros at the end of their fraction."""
    size, digits = _DECIMAL_SIZES[kind]
    content, starts = variants.values, level.starts
    scales = content.data[starts + 1].astype(np.int64)
    if (scales > digits).any():
        raise MalformedVariant(int(level.rows[np.flatnonzero(scales > digits)[0]]), f"a number has more than {digits} decimals")
    low = content.signed(starts + 2, np.full(len(starts), min(size, 8)))
    high = content.fixed(starts + 10, "<i8") if size == 16 else low >> 63
    wide = _reaches(high, low, 10**digits)
    if wide.any():
        raise MalformedVariant(int(level.rows[np.flatnonzero(wide)[0]]), f"a number has more than {digits} digits")
    if size < 16:
        low, scales = _shortest(low, scales)
    words = np.stack([low, high], axis=1)
    positions = [np.flatnonzero(scales == scale) for scale in np.flatnonzero(np.bincount(scales, minlength=1))]
    return in_order([_plain_decimals(words[places], int(scales[places[0]]), size == 16) for places in positions], positions)


def _reaches(high: np.ndarray, low: np.ndarray, bound: int) -> np.ndarray:
    """Whether whole numbers of 16 bytes, as the signed halves of each, are `bound` or more, or its negative or less."""
    unsigned = low.view(np.uint64)
    (above, least), (below, most) = divmod(bound, 1 << 64), divmod(-bound, 1 << 64)
    is_above = (high > above) | ((high == above) & (unsigned >= np.uint64(least)))
    return is_above | (high < below) | ((high == below) & (unsigned <= np.uint64(most)))


def _shortest(numbers: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The unscaled numbers and scales of the same decimals without zeros at the end of their fraction."""
    numbers, places = numbers.copy(), np.arange(len(numbers))
    while len(places := places[(scales[places] > 0) & (numbers[places] % 10 == 0)]):
        numbers[places] //= 10
        scales[places] -= 1
    return numbers, scales


def _plain_decimals(words: np.ndarray, scale: int, has_zeros: bool) -> pa.StringArray:
    """Decimals of one scale. `words`: the low and the high half of each unscaled number."""
    quads = np.concatenate([words, np.repeat(words[:, 1:] >> 63, 2, axis=1)], axis=1)
    t = pa.decimal256(_MOST_DIGITS + 1, scale)
    numbers = pa.Array.from_buffers(t, len(words), [None, pa.py_buffer(np.ascontiguousarray(quads))])
    texts = numbers.cast(pa.string())
    if scale and pc.any(pc.match_substring(texts, "E")).as_py():  # Arrow prints small numbers with an exponent
        texts = _one_by_one(numbers, lambda number: format(number, "f"))
    return without_zeros(texts) if has_zeros and scale else texts


def _time_texts(ticks: pa.Array, unit: str, zone: str) -> pa.StringArray:
    per_milli = 1_000 if unit == "us" else _PER_MILLI
    if _is_civil(ticks, 86_400_000 * per_milli):
        texts = without_zeros(ticks.cast(pa.timestamp(unit)).cast(pa.string()))
    else:
        texts = _one_by_one(ticks, lambda n: _far_time(Timestamp(n // per_milli, n % per_milli * (_PER_MILLI // per_milli))))
    return pc.binary_join_element_wise(texts, zone, "")


def _far_time(time: Timestamp) -> str:
    date, clock, nanos = timestamp_parts(time)
    return f"{date} {clock}" + (f".{nanos:09d}".rstrip("0") if nanos else "")


def _is_civil(ticks: pa.Array, per_day: int) -> bool:
    """Whether all days are in the years 1 to 9999, which Arrow can print."""
    found = pc.min_max(ticks).as_py()
    return found["min"] is None or (found["min"] >= FIRST_DAY * per_day and found["max"] < (LAST_DAY + 1) * per_day)


def _one_by_one(values: pa.Array, text: Callable[[Any], str]) -> pa.StringArray:
    """Texts of rare values, for which Arrow has no function."""
    return pa.array([text(value) for value in values.to_pylist()], pa.string())
