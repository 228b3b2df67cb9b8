"""Encodes and decodes BinaryRows: keys, partitions and statistics in manifests, and keys to hash (FORMAT.md, section 5)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from paimon_cli.datatypes.data_type import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    StringType,
    TimestampType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import Timestamp, decimal_of, unscaled_value
from paimon_cli.errors import NotSupported

_NUMBERS = {
    "BOOLEAN": struct.Struct("<?"),
    "TINYINT": struct.Struct("<b"),
    "SMALLINT": struct.Struct("<h"),
    "INT": struct.Struct("<i"),
    "DATE": struct.Struct("<i"),
    "TIME": struct.Struct("<i"),
    "BIGINT": struct.Struct("<q"),
    "FLOAT": struct.Struct("<f"),
    "DOUBLE": struct.Struct("<d"),
}
_LONG = struct.Struct("<q")
_POINTER = struct.Struct("<II")
_ARITY = struct.Struct(">i")
_COUNT = struct.Struct("<i")
_INLINE_LIMIT = 7


def encode_row(values: Sequence[Any], types: Sequence[DataType], kind: int = 0) -> bytes:
    """Row bytes without the leading arity; `kind` is the row kind byte.

    Space is reserved for a null DECIMAL(>18) or TIMESTAMP(>3), as in current versions of Paimon.
    """
    part = _Part(header_size(len(types)) + 8 * len(types))
    part.head[0] = kind
    slots = header_size(len(types))
    for i, (value, t) in enumerate(zip(values, types, strict=True)):
        if value is None:
            part.head[(i + 8) >> 3] |= 1 << ((i + 8) & 7)
            part.reserve(slots + 8 * i, t)
        else:
            part.put(slots + 8 * i, value, t)
    return part.to_bytes()


def serialize_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """Row bytes preceded by the arity (4 bytes, big-endian), as stored in manifests."""
    return _ARITY.pack(len(types)) + encode_row(values, types)


def deserialize_row(data: bytes, types: Sequence[DataType], positions: Iterable[int] | None = None) -> tuple[Any, ...]:
    """Internal values of a row serialised by any version of Paimon. Raises `ValueError` for malformed bytes or another arity.

    `positions`: positions of the fields to decode, all by default.
    """
    if not data and not types:
        return ()
    try:
        (arity,) = _ARITY.unpack_from(data)
        if arity != len(types):
            raise ValueError(f"the row has {arity} fields where {len(types)} are expected")
        return _read_row(memoryview(data)[4:], types, range(arity) if positions is None else positions)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ValueError(f"malformed row bytes: {error}") from error


def header_size(arity: int) -> int:
    """Size in bytes of the row kind and the null bits."""
    return (arity + 63 + 8) // 64 * 8


class _Part:
    """Builder of a row or array: a head of fixed size and a variable-length part, whose offsets are relative to the head."""

    def __init__(self, head_size: int) -> None:
        self.head = bytearray(head_size)
        self.tail = bytearray()

    def to_bytes(self) -> bytes:
        return bytes(self.head + self.tail)

    def reserve(self, slot: int, t: DataType) -> None:
        """Reserve the space of a null value in the variable part, where Paimon may update it in place."""
        if not t.is_compact:
            self._append(slot, bytes(16 if isinstance(t, DecimalType) else 8), 0)

    def put(self, slot: int, value: Any, t: DataType) -> None:
        number = _NUMBERS.get(t.root)
        if number is not None:
            number.pack_into(self.head, slot, value)
        elif isinstance(t, StringType):
            self._put_bytes(slot, value.encode("utf-8"))
        elif isinstance(t, BinaryType):
            self._put_bytes(slot, value)
        elif isinstance(t, DecimalType):
            self._put_decimal(slot, value, t)
        elif isinstance(t, TimestampType):
            if t.is_compact:
                _LONG.pack_into(self.head, slot, value.millis)
            else:
                self._append(slot, _LONG.pack(value.millis), value.nano_of_milli)
        else:
            nested = _encode_nested(value, t)
            self._append(slot, nested, len(nested))

    def _put_bytes(self, slot: int, data: bytes) -> None:
        if len(data) <= _INLINE_LIMIT:
            self.head[slot : slot + len(data)] = data
            self.head[slot + 7] = 0x80 | len(data)
        else:
            self._append(slot, data, len(data))

    def _put_decimal(self, slot: int, value: Decimal, t: DecimalType) -> None:
        unscaled = unscaled_value(value, t.scale)
        if t.is_compact:
            _LONG.pack_into(self.head, slot, unscaled)
            return
        size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() >> 3) + 1
        self._append(slot, unscaled.to_bytes(size, "big", signed=True).ljust(16, b"\0"), size)

    def _append(self, slot: int, data: bytes, low: int) -> None:
        """Append `data`, padded to 8 bytes, to the variable part; the slot gets its offset and `low`."""
        _POINTER.pack_into(self.head, slot, low, len(self.head) + len(self.tail))
        self.tail += data + bytes(-len(data) % 8)


def _encode_nested(value: Any, t: DataType) -> bytes:
    if isinstance(t, ArrayType):
        return _encode_array(value, t.element)
    if isinstance(t, RowType):
        return encode_row(value, [field.type for field in t.fields])
    if isinstance(t, (MapType, MultisetType)):
        keys = _encode_array([key for key, _ in value], t.key)
        return _COUNT.pack(len(keys)) + keys + _encode_array([item for _, item in value], t.value)
    raise _not_supported(t)


def _encode_array(values: Sequence[Any], element: DataType) -> bytes:
    width, elements = _element_width(element), _array_header(len(values))
    part = _Part((elements + width * len(values) + 7) // 8 * 8)
    _COUNT.pack_into(part.head, 0, len(values))
    for i, value in enumerate(values):
        if value is None:
            part.head[4 + (i >> 3)] |= 1 << (i & 7)
        else:
            part.put(elements + width * i, value, element)
    return part.to_bytes()


def _array_header(count: int) -> int:
    """Size in bytes of the element count and the null bits."""
    return 4 + (count + 31) // 32 * 4


def _element_width(element: DataType) -> int:
    number = _NUMBERS.get(element.root)
    return 8 if number is None else number.size


def _read_row(data: memoryview, types: Sequence[DataType], positions: Iterable[int]) -> tuple[Any, ...]:
    slots = header_size(len(types))
    return tuple(None if data[(i + 8) >> 3] & 1 << ((i + 8) & 7) else _read(data, slots + 8 * i, types[i]) for i in positions)


def _read(data: memoryview, slot: int, t: DataType) -> Any:
    number = _NUMBERS.get(t.root)
    if number is not None:
        return number.unpack_from(data, slot)[0]
    if isinstance(t, StringType):
        return str(_read_bytes(data, slot), "utf-8")
    if isinstance(t, BinaryType):
        return bytes(_read_bytes(data, slot))
    if isinstance(t, DecimalType):
        unscaled = _LONG.unpack_from(data, slot)[0] if t.is_compact else int.from_bytes(_pointed(data, slot), "big", signed=True)
        return decimal_of(unscaled, t.scale)
    if isinstance(t, TimestampType):
        if t.is_compact:
            return Timestamp(_LONG.unpack_from(data, slot)[0])
        nanos, offset = _POINTER.unpack_from(data, slot)
        return Timestamp(_LONG.unpack_from(data, offset)[0], nanos)
    return _read_nested(_pointed(data, slot), t)


def _read_bytes(data: memoryview, slot: int) -> memoryview:
    mark = data[slot + 7]
    return data[slot : slot + (mark & 0x7F)] if mark & 0x80 else _pointed(data, slot)


def _pointed(data: memoryview, slot: int) -> memoryview:
    size, offset = _POINTER.unpack_from(data, slot)
    if offset + size > len(data):
        raise ValueError(f"malformed row bytes: a value of {size} bytes at {offset} ends after the row of {len(data)} bytes")
    return data[offset : offset + size]


def _read_nested(data: memoryview, t: DataType) -> Any:
    if isinstance(t, ArrayType):
        return _read_array(data, t.element)
    if isinstance(t, RowType):
        return _read_row(data, [field.type for field in t.fields], range(len(t.fields)))
    if isinstance(t, (MapType, MultisetType)):
        (split,) = _COUNT.unpack_from(data)
        keys = _read_array(data[4 : 4 + split], t.key)
        return list(zip(keys, _read_array(data[4 + split :], t.value), strict=True))
    raise _not_supported(t)


def _read_array(data: memoryview, element: DataType) -> list[Any]:
    (count,) = _COUNT.unpack_from(data)
    width, elements = _element_width(element), _array_header(count)
    return [None if data[4 + (i >> 3)] & 1 << (i & 7) else _read(data, elements + width * i, element) for i in range(count)]


def _not_supported(t: DataType) -> NotSupported:
    return NotSupported(f"rows with a value of type {type_to_sql(t)} are not supported", "their binary form is not implemented")
