"""Thrift's compact protocol, the encoding of Parquet's footers and page headers: structs as dictionaries, or left encoded.

Unknown fields are kept. Malformed bytes raise `ValueError` or `LookupError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

_LAST_SHIFT = 63
"""Of the tenth byte of a number; Python would go on, in time that grows with the square of its bytes."""
TRUE, FALSE, BYTE, I16, I32, I64, _DOUBLE, BINARY, LIST, _SET, MAP, STRUCT = range(1, 13)


class Struct(dict[int, tuple[int, Any]]):
    """Field number -> (wire type, value). The value of a list is a pair: the wire type of its elements, and the elements."""

    def value(self, field: int, default: Any = None) -> Any:
        return self[field][1] if field in self else default

    def required(self, field: int) -> Any:
        """The value of the field. Raises `LookupError` if it is missing."""
        return self[field][1]

    def elements(self, field: int) -> list[Any]:
        """The elements of a list field; empty if it is missing."""
        _, elements = self.value(field, (STRUCT, []))
        return list(elements)


Lists = Mapping[int, "Lists | None"]
"""Field number of a list of structs -> the same for these structs, or None to leave them as encoded bytes."""


def decode(data: bytes, encoded: Lists = MappingProxyType({})) -> Struct:
    """The struct at the beginning of `data`. Structs in the lists of `encoded` stay bytes, which takes a third of the time."""
    return _struct(data, 0, encoded)[0]


def decode_prefix(data: bytes) -> tuple[Struct, int]:
    """The struct at the beginning of `data`, and where it ends."""
    return _struct(data, 0)


def _struct(data: bytes, at: int, encoded: Lists = MappingProxyType({})) -> tuple[Struct, int]:
    """The fields, and where they end. A footer has thousands of numbers and strings, so these are decoded inline."""
    fields = Struct()
    field = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, at = read_number(data, at)
        value: Any
        if kind in (I64, I32):
            value = data[at]
            if value < 0x80:
                value, at = value >> 1 ^ -(value & 1), at + 1
            else:
                value, at = read_number(data, at)
        elif kind == BINARY:
            value, at = _bytes(data, at)
        elif kind <= FALSE:
            value = kind == TRUE
        elif field in encoded:
            value, at = _partly_encoded(data, at, encoded[field])
        else:
            value, at = _value(kind, data, at)
        fields[field] = (kind, value)
    return fields, at + 1


def _value(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    if kind == STRUCT:
        return _struct(data, at)
    if kind in (LIST, _SET):
        return _list(data, at)
    if kind == BINARY:
        return _bytes(data, at)
    if kind in (I32, I64, I16):
        return read_number(data, at)
    if kind in (BYTE, TRUE, FALSE):  # as an element of a list, a bool takes one byte
        return data[at], at + 1
    if kind == _DOUBLE:
        return _cut(data, at, 8), at + 8
    raise ValueError(f"unknown Thrift type {kind}")


def _list(data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    size, kind, at = list_head(data, at)
    if kind == BINARY and size and data[at] < 0x80:  # probably bounds of numbers, all of the same width
        width = data[at]
        step, end = width + 1, at + size * (width + 1)
        if len(data) >= end and data[at:end:step] == bytes([width]) * size:
            return (kind, [data[begin : begin + width] for begin in range(at + 1, end + 1, step)]), end
    if kind in (TRUE, FALSE, BYTE):
        return (kind, list(_cut(data, at, size))), at + size
    if kind in (I64, I32, I16):
        return _numbers(kind, size, data, at)
    elements = []
    for _ in range(size):
        element, at = _value(kind, data, at)
        elements.append(element)
    return (kind, elements), at


def _partly_encoded(data: bytes, at: int, encoded: Lists | None) -> tuple[tuple[int, list[Any]], int]:
    elements: list[Struct | bytes] = []
    size, kind, at = list_head(data, at)
    for _ in range(size):
        if encoded is None:
            end = skip(data, at, kind)
            elements.append(_cut(data, at, end - at))
        else:
            element, end = _struct(data, at, encoded)
            elements.append(element)
        at = end
    return (kind, elements), at


def _numbers(kind: int, size: int, data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    """Decode a list of integers. Page indexes have one for each column, mostly of numbers that take one byte."""
    content = data[at : at + size]
    if len(content) == size and content.isascii():
        return (kind, [value >> 1 ^ -(value & 1) for value in content]), at + size
    elements = []
    for _ in range(size):
        value = data[at]
        if value < 0x80:
            elements.append(value >> 1 ^ -(value & 1))
            at += 1
        else:
            value, at = read_number(data, at)
            elements.append(value)
    return (kind, elements), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size = data[at]
    if size < 0x80:
        at += 1
    else:
        size, at = read_varint(data, at)
    return _cut(data, at, size), at + size


def _cut(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) < size:
        raise ValueError("it is cut off")
    return found


def read_number(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 0x80:
        return value >> 1 ^ -(value & 1), at + 1
    value, at = read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value, shift, at = byte & 0x7F, 7, at + 1
    while byte >= 0x80:
        if shift > _LAST_SHIFT:
            raise ValueError("a number has more than ten bytes")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value, at


def encode(fields: Struct) -> bytes:
    """The bytes that `decode` reads."""
    out = bytearray()
    _put_struct(out, fields)
    return bytes(out)


def _put_struct(out: bytearray, fields: Struct) -> None:
    previous = 0
    for field in sorted(fields):
        kind, value = fields[field]
        head = kind if kind > FALSE else TRUE if value else FALSE
        if 0 < field - previous < 16:
            out.append(field - previous << 4 | head)
        else:
            out.append(head)
            put_number(out, field)
        if kind > FALSE:
            _put(out, kind, value)
        previous = field
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I32, I64, I16):
        put_number(out, value)
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, _SET):
        _put_list(out, *value)
    else:
        out += bytes([value]) if kind in (BYTE, TRUE, FALSE) else bytes(value)


def _put_list(out: bytearray, kind: int, elements: Sequence[Any]) -> None:
    put_list_head(out, kind, len(elements))
    for element in elements:
        _put(out, kind, element)


def put_list_head(out: bytearray, kind: int, size: int) -> None:
    if size < 15:
        out.append(size << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _put_varint(out, size)


def put_number(out: bytearray, number: int) -> None:
    _put_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def number(value: int, kind: int = I64) -> tuple[int, int]:
    """The value of an integer field in a `Struct`, with its wire type."""
    return kind, value


def struct_list(elements: Sequence[Struct]) -> tuple[int, tuple[int, list[Struct]]]:
    """The value of a list field in a `Struct`, with its wire type."""
    return LIST, (STRUCT, list(elements))


class Number(NamedTuple):
    """A number in encoded bytes: its value, and the byte range that holds it."""

    begin: int
    end: int
    value: int


Wanted = Mapping[int, "Wanted | None"]
"""Wanted fields of a struct: field number -> None for a number, or the wanted fields of a struct or list of structs."""


_UNWANTED: Wanted = {}


class EncodedStruct(NamedTuple):
    """A struct of which only some numbers are decoded, much faster than decoding all of it.

    `begin` and `end` are its byte range in `data`. `numbers` holds the wanted numbers by field number, `parts` the structs of the
    other wanted fields, and `others` the numbers of all remaining fields.
    """

    data: bytes
    begin: int
    end: int
    numbers: dict[int, Number]
    parts: dict[int, list[EncodedStruct]]
    others: tuple[int, ...]

    def value(self, field: int) -> int:
        """The wanted number of that field; 0 if it is missing."""
        return self.numbers[field].value if field in self.numbers else 0


def encoded_struct(data: bytes, begin: int, wanted: Wanted) -> EncodedStruct:
    """The struct at `begin`. A footer has thousands of fields, so numbers are decoded inline, without a call for each."""
    at, field = begin, 0
    numbers: dict[int, Number] = {}
    parts: dict[int, list[EncodedStruct]] = {}
    others = []
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, at = read_number(data, at)
        inside = wanted.get(field, _UNWANTED)
        if kind in (I64, I32, I16):
            start = at
            value = byte = data[at]
            at += 1
            if byte >= 0x80:
                value, shift = byte & 0x7F, 7
                while byte >= 0x80:
                    if shift > _LAST_SHIFT:
                        raise ValueError("a number has more than ten bytes")
                    byte = data[at]
                    value |= (byte & 0x7F) << shift
                    shift += 7
                    at += 1
            if inside is not _UNWANTED:
                numbers[field] = tuple.__new__(Number, (start, at, value >> 1 ^ -(value & 1)))
                continue
            others.append(field)
        elif kind == STRUCT and inside:
            part = encoded_struct(data, at, inside)
            parts[field], at = [part], part.end
        elif kind == LIST and inside:
            parts[field], at = encoded_structs(data, at, inside)
        else:
            others.append(field)
            if kind > FALSE:
                at = skip(data, at, kind)
    return EncodedStruct(data, begin, at + 1, numbers, parts, tuple(others))


def encoded_structs(data: bytes, at: int, wanted: Wanted) -> tuple[list[EncodedStruct], int]:
    """The structs of the list at `at`, and where the list ends. Raises `ValueError` for a list of anything else."""
    size, kind, at = list_head(data, at)
    if kind != STRUCT:
        raise ValueError(f"expected a list of structs, found elements of Thrift type {kind}")
    structs = []
    for _ in range(size):
        structs.append(encoded_struct(data, at, wanted))
        at = structs[-1].end
    return structs, at


def list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """The size of a list, the wire type of its elements, and where they begin."""
    size, kind = data[at] >> 4, data[at] & 15
    if size < 15:
        return size, kind, at + 1
    size, at = read_varint(data, at + 1)
    return size, kind, at


def skip(data: bytes, at: int, kind: int) -> int:
    """Where the value that begins at `at` ends."""
    if kind in (I64, I32, I16):
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if kind == BINARY:
        size = data[at]
        if size < 0x80:
            return at + 1 + size
        size, at = read_varint(data, at)
        return at + size
    if kind == STRUCT:
        while head := data[at]:
            at += 1
            if not head >> 4:
                at = skip(data, at, I16)
            kind = head & 15
            if kind in (I64, I32):  # inline, since these and short strings are by far the most frequent
                while data[at] >= 0x80:
                    at += 1
                at += 1
            elif kind == BINARY and data[at] < 0x80:
                at += 1 + data[at]
            elif kind > FALSE:
                at = skip(data, at, kind)
        return at + 1
    if kind in (LIST, _SET):
        size, inner, at = list_head(data, at)
        if inner in (TRUE, FALSE, BYTE):
            return at + size
        for _ in range(size):
            at = skip(data, at, inner)
        return at
    if kind in (BYTE, _DOUBLE):
        return at + (1 if kind == BYTE else 8)
    raise ValueError(f"unknown Thrift type {kind}")
