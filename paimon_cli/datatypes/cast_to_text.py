"""Casts to text and bytes, fitted to the declared length of their column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.cast_numbers import per_distinct_value
from paimon_cli.datatypes.data_type import (
    INTEGER_ROOTS,
    MAX_LENGTH,
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import (
    clock_text,
    date_text,
    sql_time_text,
)
from paimon_cli.datatypes.java_float_text import java_double_text, java_float_text
from paimon_cli.errors import NotSupported

_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def fitted_text(array: pa.Array, target: StringType) -> pa.Array:
    """Truncate to the length of CHAR or VARCHAR, in code points; CHAR is padded with spaces."""
    if target.length < MAX_LENGTH:
        array = pc.utf8_slice_codeunits(array, 0, target.length)
    return pc.utf8_rpad(array, target.length, " ") if target.root == "CHAR" else array


def fitted_bytes(array: pa.Array, target: BinaryType) -> pa.Array:
    """Truncate to the length of BINARY or VARBINARY, in bytes; BINARY is padded with zeros."""
    if target.root == "BINARY":
        zeros = pa.scalar(bytes(target.length), pa.binary())
        array = pc.binary_join_element_wise(array, zeros, pa.scalar(b"", pa.binary()))
    return array if target.length == MAX_LENGTH else pc.binary_slice(array, 0, target.length)


def text_of(array: pa.Array, t: DataType) -> pa.Array:
    """Each value as Java prints it: bytes as UTF-8, lists as `[a, null]`, maps as `{k -> v}`, rows as `{a, b}`.

    Raises `NotSupported` for types without a cast to STRING.
    """
    match t:
        case StringType():
            return array
        case BinaryType():
            return per_distinct_value(array, lambda value: value.decode("utf-8", "replace"), pa.string())
        case DecimalType():
            return per_distinct_value(array, lambda value: format(value, "f"), pa.string())
        case TimeType(precision):
            return per_distinct_value(array.cast(pa.int32()), lambda millis: sql_time_text(millis, precision), pa.string())
        case TimestampType():
            return _text_of_timestamps(array, t.precision)
        case ArrayType(element):
            return _enclosed(_joined(array, _with_null(text_of(array.flatten(), element))), "[", "]")
        case MapType():
            return _text_of_maps(array, t)
        case RowType(fields):
            return _text_of_rows(array, fields)
        case PlainType("DATE"):
            return per_distinct_value(array.cast(pa.int32()), date_text, pa.string())
        case PlainType("FLOAT"):
            return _text_of_floats(array.view(pa.int32()), np.int32, np.float32, java_float_text)
        case PlainType("DOUBLE"):
            return _text_of_floats(array.view(pa.int64()), np.int64, np.float64, java_double_text)
    if t.root in INTEGER_ROOTS or t.root == "BOOLEAN":
        return array.cast(pa.string())
    raise NotSupported(f"there is no cast from {type_to_sql(t)} to STRING")


def _text_of_floats(
    bits: pa.Array, whole: type[np.integer[Any]], floating: type[np.floating[Any]], text: Callable[[float], str]
) -> pa.Array:
    """The text of floats, given as their bits, so that 0.0 and -0.0 are distinct values."""
    return per_distinct_value(bits, lambda n: text(float(np.array(n, whole).view(floating))), pa.string())


def _text_of_timestamps(array: pa.Array, precision: int) -> pa.Array:
    """`yyyy-MM-dd HH:mm:ss` and at least `precision` fractional digits."""
    per_second = _PER_SECOND[array.type.unit]
    seconds, fraction = np.divmod(array.cast(pa.int64()).fill_null(0).to_numpy(), per_second)
    days, seconds = np.divmod(seconds, 86_400)
    date = per_distinct_value(pa.array(days), date_text, pa.string())
    clock = per_distinct_value(pa.array(seconds), clock_text, pa.string())
    digits = pc.utf8_lpad(pa.array(fraction * (1_000_000_000 // per_second)).cast(pa.string()), 9, "0")
    digits = pc.utf8_rpad(pc.utf8_rtrim(digits, "0"), precision, "0")
    dotted = pc.if_else(pc.equal(digits, ""), "", pc.binary_join_element_wise(".", digits, ""))
    text = pc.binary_join_element_wise(pc.binary_join_element_wise(date, clock, " "), dotted, "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _text_of_maps(array: pa.Array, t: MapType) -> pa.Array:
    offsets = array.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    keys, values = text_of(array.keys[inside], t.key), text_of(array.items[inside], t.value)
    return _enclosed(_joined(array, pc.binary_join_element_wise(_with_null(keys), _with_null(values), " -> ")), "{", "}")


def _text_of_rows(array: pa.Array, fields: tuple[DataField, ...]) -> pa.Array:
    columns = [_with_null(text_of(c, f.type)) for c, f in zip(array.flatten(), fields, strict=True)]
    joined = pc.binary_join_element_wise(*columns, ", ") if columns else pa.array([""] * len(array))
    return _enclosed(pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.string())), "{", "}")


def _with_null(texts: pa.Array) -> pa.Array:
    return texts.fill_null("null")


def _joined(array: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of the elements, joined for each row of the list or map; `texts` has no elements of null rows."""
    offsets = array.offsets.to_numpy()
    lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(starts), texts)
    return pc.if_else(array.is_valid(), pc.binary_join(lists, ", "), pa.scalar(None, pa.string()))


def _enclosed(texts: pa.Array, begin: str, end: str) -> pa.Array:
    return pc.binary_join_element_wise(begin, texts, end, "")
