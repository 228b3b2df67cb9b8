"""Casts to text and to bytes (Java BinaryStringUtils, *ToStringCastRule)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.casts.distinct_values import per_distinct_value
from paimon_cli.datatypes.data_type import MAX_LENGTH, DataType
from paimon_cli.datatypes.internal_values import clock_text, date_text, sql_time_text
from paimon_cli.datatypes.java_float_text import java_double_text, java_float_text

_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
TextOf = Callable[[pa.Array, DataType], pa.Array]


def fitted_text(array: pa.Array, target: DataType) -> pa.Array:
    """Cut to the length of CHAR or VARCHAR in code points; CHAR is padded with blanks."""
    length = target.length or 0
    if length < MAX_LENGTH:
        array = pc.utf8_slice_codeunits(array, 0, length)
    return pc.utf8_rpad(array, length, " ") if target.root == "CHAR" else array


def fitted_bytes(array: pa.Array, target: DataType) -> pa.Array:
    """Cut to the length of BINARY or VARBINARY; BINARY is padded with zeros."""
    length = target.length or 0
    if target.root == "BINARY":
        zeros = pa.scalar(bytes(length), pa.binary())
        array = pc.binary_join_element_wise(array, zeros, pa.scalar(b"", pa.binary()))
    return array if length == MAX_LENGTH else pc.binary_slice(array, 0, length)


def text_of_bytes(array: pa.Array, source: DataType) -> pa.Array:
    """UTF-8 decoded; what is no UTF-8 becomes U+FFFD."""
    return per_distinct_value(array, lambda value: value.decode("utf-8", "replace"), pa.string())


def plain_text(array: pa.Array, source: DataType) -> pa.Array:
    """Integers and booleans."""
    return array.cast(pa.string())


def text_of_float(array: pa.Array, source: DataType) -> pa.Array:
    bits = array.view(pa.int64() if source.root == "DOUBLE" else pa.int32())  # 0.0 and -0.0 are two values
    kind = np.float64 if source.root == "DOUBLE" else np.float32
    bit_kind = np.int64 if source.root == "DOUBLE" else np.int32
    text = java_double_text if source.root == "DOUBLE" else java_float_text
    return per_distinct_value(bits, lambda n: text(float(np.array(n, bit_kind).view(kind))), pa.string())


def text_of_decimal(array: pa.Array, source: DataType) -> pa.Array:
    return per_distinct_value(array, lambda value: format(value, "f"), pa.string())


def text_of_date(array: pa.Array, source: DataType) -> pa.Array:
    return per_distinct_value(array.cast(pa.int32()), date_text, pa.string())


def text_of_time(array: pa.Array, source: DataType) -> pa.Array:
    precision = source.precision or 0
    return per_distinct_value(array.cast(pa.int32()), lambda millis: sql_time_text(millis, precision), pa.string())


def text_of_timestamp(array: pa.Array, source: DataType) -> pa.Array:
    """`yyyy-MM-dd HH:mm:ss` and at least as many digits of the second as the type has."""
    per_second = _PER_SECOND[array.type.unit]
    seconds, fraction = np.divmod(array.cast(pa.int64()).fill_null(0).to_numpy(), per_second)
    days, seconds = np.divmod(seconds, 86_400)
    date = per_distinct_value(pa.array(days), date_text, pa.string())
    clock = per_distinct_value(pa.array(seconds), clock_text, pa.string())
    digits = pc.utf8_lpad(pa.array(fraction * (1_000_000_000 // per_second)).cast(pa.string()), 9, "0")
    digits = pc.utf8_rpad(pc.utf8_rtrim(digits, "0"), source.precision or 0, "0")
    dotted = pc.if_else(pc.equal(digits, ""), "", pc.binary_join_element_wise(".", digits, ""))
    text = pc.binary_join_element_wise(pc.binary_join_element_wise(date, clock, " "), dotted, "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def text_of_list(array: pa.Array, source: DataType, text_of: TextOf) -> pa.Array:
    """`[a, b, null]`."""
    return _enclosed(_joined(array, _with_null(text_of(array.flatten(), source.element_type()))), "[", "]")


def text_of_map(array: pa.Array, source: DataType, text_of: TextOf) -> pa.Array:
    """`{k -> v, k2 -> null}`."""
    key, value = source.entry_types()
    offsets = array.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    pairs = pc.binary_join_element_wise(
        _with_null(text_of(array.keys[inside], key)), _with_null(text_of(array.items[inside], value)), " -> "
    )
    return _enclosed(_joined(array, pairs), "{", "}")


def text_of_row(array: pa.Array, source: DataType, text_of: TextOf) -> pa.Array:
    """`{a, null, c}`."""
    columns = [_with_null(text_of(c, f.type)) for c, f in zip(array.flatten(), source.row_fields(), strict=True)]
    joined = pc.binary_join_element_wise(*columns, ", ") if columns else pa.array([""] * len(array))
    return _enclosed(pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.string())), "{", "}")


def _with_null(texts: pa.Array) -> pa.Array:
    return texts.fill_null("null")


def _joined(array: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of all elements, joined by row of the list or map; null rows have no elements in `texts`."""
    offsets = array.offsets.to_numpy()
    lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(starts), texts)
    return pc.if_else(array.is_valid(), pc.binary_join(lists, ", "), pa.scalar(None, pa.string()))


def _enclosed(texts: pa.Array, begin: str, end: str) -> pa.Array:
    return pc.binary_join_element_wise(begin, texts, end, "")
