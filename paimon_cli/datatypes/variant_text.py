"""VARIANT values as JSON text, a column at a time (Java GenericVariant.toJson; FORMAT.md, section 2.4).

The texts are put together from the innermost level to the outermost: Arrow writes names, brackets and commas around the texts of
all nodes of a level, so that those of neighbours are the text of their parent. Numbers, names and texts are converted by Arrow,
all of a kind at once.

Fractions have no trailing zeros. Dates and times are texts, bytes are Base64, NaN and infinite numbers are texts, as in Java.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.internal_values import Timestamp, date_text, timestamp_parts
from paimon_cli.datatypes.value_texts import FIRST_DAY, LAST_DAY, escaped, float_texts, hex_texts, quoted, without_zeros
from paimon_cli.datatypes.variant_columns import TextTooLarge, of_variants
from paimon_cli.datatypes.variant_nodes import PAYLOADS, MalformedVariant, NodeKind, NodeLevel, Primitive, Variants
from paimon_cli.errors import NotSupported

MAX_VARIANT_TEXT = 256 << 20
"""Bytes of the JSON text of one value: names are stored once, but may occur often."""
_BYTES_OF_NUMBER = 48
"""No number, date or UUID has a longer text."""
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


def variant_texts(column: pa.StructArray) -> pa.StringArray:
    """Each VARIANT as JSON text; nulls remain null. `column`: of `arrow_type(VARIANT)`.

    Raises `DamagedFile` for bytes that are no VARIANT, `NotSupported` for a value whose text would be too large.
    """
    return of_variants(column, pa.string(), lambda variants: node_texts(variants, variants.roots()))


def check_variants(column: pa.StructArray) -> None:
    """Raise `DamagedFile` for bytes that are no VARIANT. A value whose text would be too large is not looked at."""
    with contextlib.suppress(NotSupported):
        variant_texts(column)


def variant_value(value: tuple[bytes, bytes]) -> Any:
    """The JSON of one VARIANT, given as its value and metadata. Raises what `variant_texts` does."""
    column = pa.StructArray.from_arrays([pa.array([part], pa.binary()) for part in value], names=["value", "metadata"])
    return json.loads(variant_texts(column)[0].as_py())


def node_texts(variants: Variants, roots: NodeLevel) -> pa.StringArray:
    """The JSON text of each of these nodes. Raises `MalformedVariant` and `TextTooLarge`."""
    levels = variants.levels(replace(roots, key_lengths=np.full(len(roots.rows), -1, np.int64)))
    _check_sizes(levels)
    below = pa.array([], pa.string())
    for level, above in zip(reversed(levels), [*reversed(levels[:-1]), None], strict=True):
        below = _level_texts(variants, level, below, above)
    return below


def _level_texts(variants: Variants, level: NodeLevel, below: pa.StringArray, above: NodeLevel | None) -> pa.StringArray:
    """The texts of the nodes of a level, with what their parents of the level `above` write around them.

    `below`: the texts of their children. Those of one parent are neighbours and have its brackets and commas, so that together
    they are its text.
    """
    has_children, is_nested = level.counts > 0, level.kinds >= NodeKind.OBJECT
    full, empty, scalar = map(np.flatnonzero, (has_children, is_nested & ~has_children, ~is_nested))
    parts = []
    if len(full):
        bounds = np.concatenate([[0], np.cumsum(level.counts[full])])
        _, offsets, data = below.buffers()
        ends = np.frombuffer(offsets, np.int32)[bounds + below.offset]
        parts.append(pa.Array.from_buffers(pa.string(), len(full), [None, pa.py_buffer(ends), data]))
    if len(empty):
        parts.append(pa.array(["{}", "[]"]).take(pa.array(level.kinds[empty] - NodeKind.OBJECT)))
    if len(scalar):
        parts.append(_scalar_texts(variants, level if len(scalar) == len(is_nested) else level.leaves(scalar)))
    texts = _in_order(parts, [part for part in (full, empty, scalar) if len(part)])
    return texts if above is None else _within(variants, level, texts, above)


def _within(variants: Variants, level: NodeLevel, texts: pa.StringArray, above: NodeLevel) -> pa.StringArray:
    """The texts with their names, and with the brackets and commas of the nodes above."""
    parents = np.flatnonzero(above.counts)
    last = np.cumsum(above.counts[parents]) - 1
    first = last + 1 - above.counts[parents]
    brackets = above.kinds[parents] - NodeKind.OBJECT
    names, numbers = _names(variants, level)
    before = pa.concat_arrays([pc.binary_join_element_wise(mark, names, "") for mark in (",", "{", "[")])
    marks, ends = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int8)
    marks[first], ends[last] = 1 + brackets, 1 + brackets
    after = pa.array(["", "}", "]"]).take(pa.array(ends))
    return pc.binary_join_element_wise(before.take(pa.array(marks * len(names) + numbers)), texts, after, "")


def _in_order(parts: list[pa.Array], positions: list[np.ndarray]) -> pa.Array:
    """The parts as one array, each value at its position."""
    if len(parts) == 1:
        return parts[0]
    places = np.concatenate(positions) if positions else np.zeros(0, np.int64)
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return pa.concat_arrays(parts).take(pa.array(order)) if parts else pa.array([], pa.string())


def _names(variants: Variants, level: NodeLevel) -> tuple[pa.StringArray, np.ndarray]:
    """The names of the nodes, quoted and with a colon, and the number of each node's; an empty text for elements of arrays."""
    is_field = level.key_lengths >= 0
    fields = np.flatnonzero(is_field)
    stored, of_field = _distinct(variants, level.key_starts[fields], level.key_lengths[fields])
    names = _decoded(stored, level.rows[fields])
    written = pa.concat_arrays([pc.binary_join_element_wise(quoted(escaped(names)), ":", ""), pa.array([""])])
    numbers = np.full(len(is_field), len(names), np.int64)
    numbers[fields] = of_field
    return written, numbers


def _distinct(variants: Variants, starts: np.ndarray, lengths: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The names at these places of the metadata, each about once, and for each place the number of its name."""
    length_at = np.full(len(variants.names.data), -1, np.int64)
    length_at[starts] = lengths
    if len(length_at) > len(starts) or (length_at[starts] != lengths).any():  # too many, or names that overlap
        stored = variants.names.binary(starts, lengths).dictionary_encode()
        return stored.dictionary, stored.indices.to_numpy()
    used = np.flatnonzero(length_at >= 0)
    return variants.names.binary(used, length_at[used]), np.cumsum(length_at >= 0)[starts] - 1


def _decoded(texts: pa.Array, rows: np.ndarray) -> pa.StringArray:
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid as problem:
        raise MalformedVariant(int(rows[0]), "a text in it, or in a value near it, is not valid UTF-8") from problem


def plain_texts(variants: Variants, level: NodeLevel) -> pa.StringArray:
    """The contents of text nodes, without quotes."""
    return _decoded(variants.values.binary(*variants.texts(level)), level.rows)


def _scalar_texts(variants: Variants, level: NodeLevel) -> pa.StringArray:
    """The JSON texts of nodes that are no objects or arrays."""
    kinds = np.where(level.kinds == NodeKind.SHORT_TEXT, Primitive.TEXT, level.details)
    kinds = np.where((kinds >= Primitive.INT8) & (kinds <= Primitive.INT64), Primitive.INT64, kinds)
    found = [int(kind) for kind in np.flatnonzero(np.bincount(kinds, minlength=1))]
    positions = [np.flatnonzero(kinds == kind) for kind in found]
    parts = [
        _texts_of(variants, level if len(found) == 1 else level.leaves(places), kind)
        for kind, places in zip(found, positions, strict=True)
    ]
    return _in_order(parts, positions)


def _texts_of(variants: Variants, level: NodeLevel, kind: int) -> pa.StringArray:
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
    low = content.signed(starts + 2, np.full(len(starts), min(size, 8)))
    high = content.fixed(starts + 10, "<i8") if size == 16 else low >> 63
    words = np.stack([low, high], axis=1)
    if (scales > digits).any():
        raise MalformedVariant(int(level.rows[np.flatnonzero(scales > digits)[0]]), f"a number has more than {digits} decimals")
    parts, positions = [], []
    for scale in np.flatnonzero(np.bincount(scales)):
        places = np.flatnonzero(scales == scale)
        wide = pa.decimal256(_MOST_DIGITS + 1, int(scale))
        quads = np.concatenate([words[places], np.repeat(words[places][:, 1:] >> 63, 2, axis=1)], axis=1)
        numbers = pa.Array.from_buffers(wide, len(places), [None, pa.py_buffer(np.ascontiguousarray(quads))])
        parts.append(_plain_decimals(numbers) if scale else numbers.cast(pa.string()))
        positions.append(places)
    return _in_order(parts, positions)


def _plain_decimals(numbers: pa.Array) -> pa.StringArray:
    texts = numbers.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():  # Arrow prints small numbers with an exponent
        texts = _one_by_one(numbers, lambda number: format(number, "f"))
    return without_zeros(texts)


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


def _check_sizes(levels: list[NodeLevel]) -> None:
    """Raise `TextTooLarge` if the texts may take more than `MAX_VARIANT_TEXT`, for names that occur often."""
    size = sum(
        int(np.maximum(level.key_lengths, 0).sum()) + int((level.ends - level.starts)[level.counts == 0].sum())
        for level in levels
    )
    size += _BYTES_OF_NUMBER * sum(len(level.rows) for level in levels)
    if size > MAX_VARIANT_TEXT:
        raise TextTooLarge
