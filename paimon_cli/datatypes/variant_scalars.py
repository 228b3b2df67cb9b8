"""Columns of plain types as nodes of VARIANTs: the bytes of each value (Java GenericVariantBuilder)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.byte_slices import little_endian, rows_of_bytes
from paimon_cli.datatypes.variant_nodes import DECIMAL_FORMS, LONGEST_SHORT_TEXT, NodeKind, Primitive
from paimon_cli.errors import NotSupported

_FIXED = {
    pa.float64(): (Primitive.DOUBLE, "<f8"),
    pa.float32(): (Primitive.FLOAT, "<f4"),
    pa.date32(): (Primitive.DATE, "<i4"),
    pa.time64("us"): (Primitive.TIME, "<i8"),
    pa.timestamp("us"): (Primitive.TIMESTAMP_NTZ, "<i8"),
    pa.timestamp("us", "UTC"): (Primitive.TIMESTAMP, "<i8"),
    pa.timestamp("ns"): (Primitive.TIMESTAMP_NTZ_NANOS, "<i8"),
    pa.timestamp("ns", "UTC"): (Primitive.TIMESTAMP_NANOS, "<i8"),
}
_NO_SEPARATOR = b""  # no Arrow scalar: making one imports pandas


def scalar_nodes(values: pa.Array) -> pa.BinaryArray:
    """The bytes of each value; there are no nulls. Raises `NotSupported` for types that no VARIANT has."""
    t = values.type
    if pa.types.is_timestamp(t) and t.unit in ("s", "ms"):
        return scalar_nodes(values.cast(pa.timestamp("us", t.tz)))
    if pa.types.is_integer(t) and t.bit_width <= 64 and not pa.types.is_unsigned_integer(t):
        return _integers(values.cast(pa.int64()).to_numpy())
    if pa.types.is_boolean(t):
        is_true = values.to_numpy(zero_copy_only=False)
        return rows_of_bytes(np.where(is_true, Primitive.TRUE, Primitive.FALSE).astype(np.uint8)[:, None] << 2)
    if pa.types.is_string(t) or pa.types.is_large_string(t):
        return _texts(values.cast(pa.string()).cast(pa.binary()))
    if pa.types.is_binary(t) or pa.types.is_large_binary(t):
        return _sized(Primitive.BINARY, values.cast(pa.binary()))
    if pa.types.is_fixed_size_binary(t) and t.byte_width == 16:
        heads = rows_of_bytes(np.full((len(values), 1), Primitive.UUID << 2, np.uint8))
        return pc.binary_join_element_wise(heads, values.cast(pa.binary()), _NO_SEPARATOR)
    if pa.types.is_decimal128(t) and t.scale >= 0:
        return _decimals(values)
    if t not in _FIXED:
        raise NotSupported(f"a data file stores values of a VARIANT as {t}", "no VARIANT has values of this type")
    kind, dtype = _FIXED[t]
    numbers = values if pa.types.is_floating(t) else values.view(pa.int32() if dtype == "<i4" else pa.int64())
    return _fixed(kind, numbers.to_numpy().astype(dtype))


def _fixed(kind: int, numbers: np.ndarray) -> pa.BinaryArray:
    size = numbers.dtype.itemsize
    content = np.empty((len(numbers), 1 + size), np.uint8)
    content[:, 0] = kind << 2
    content[:, 1:] = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, size)
    return rows_of_bytes(content)


def _integers(numbers: np.ndarray) -> pa.BinaryArray:
    """Each number in the smallest type that holds it."""
    size = np.zeros(len(numbers), np.int64)
    for bits in (7, 15, 31):
        size += (numbers < -(1 << bits)) | (numbers >= 1 << bits)
    content = np.empty((len(numbers), 9), np.uint8)
    content[:, 0] = (Primitive.INT8 + size) << 2
    content[:, 1:] = numbers.astype("<i8").view(np.uint8).reshape(-1, 8)
    return rows_of_bytes(content, 1 + (1 << size))


def _texts(values: pa.BinaryArray) -> pa.BinaryArray:
    lengths = pc.binary_length(values).to_numpy().astype(np.int64)
    is_short = lengths <= LONGEST_SHORT_TEXT
    heads = np.empty((len(values), 5), np.uint8)
    heads[:, 0] = np.where(is_short, lengths << 2 | NodeKind.SHORT_TEXT, Primitive.TEXT << 2)
    heads[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return pc.binary_join_element_wise(rows_of_bytes(heads, np.where(is_short, 1, 5)), values, _NO_SEPARATOR)


def _sized(kind: int, values: pa.BinaryArray) -> pa.BinaryArray:
    lengths = pc.binary_length(values).to_numpy().astype(np.int64)
    ones = np.ones(len(lengths), np.int64)
    heads = little_endian(np.full(len(lengths), kind << 2), ones, ones)
    return pc.binary_join_element_wise(heads, little_endian(lengths, 4 * ones, ones), values, _NO_SEPARATOR)


def _decimals(values: pa.Array) -> pa.BinaryArray:
    t = values.type
    kind, _, size = next(form for form in DECIMAL_FORMS if max(t.precision, t.scale) <= form[1])
    words = np.frombuffer(values.buffers()[1], np.uint8)[16 * values.offset : 16 * (values.offset + len(values))].reshape(-1, 16)
    content = np.empty((len(values), 2 + size), np.uint8)
    content[:, 0], content[:, 1] = kind << 2, t.scale
    content[:, 2:] = words[:, :size]
    return rows_of_bytes(content)
