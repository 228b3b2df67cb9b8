"""Makes VARIANT values of JSON, as Paimon's Java does (GenericVariantBuilder; FORMAT.md, section 2.4).

JSON comes as Python objects from the parser, value by value, so it is encoded value by value: only where rows enter the table. A
number takes the smallest integer type that holds it; a fraction is a DECIMAL if it has at most 38 digits, else a DOUBLE.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import VARIANT
from paimon_cli.datatypes.variant_nodes import (
    DECIMAL_FORMS,
    LONGEST_SHORT_TEXT,
    MOST_SHORT_CHILDREN,
    VARIANT_VERSION,
    NodeKind,
    Primitive,
)
from paimon_cli.options.option_text import shortened

MAX_VARIANT_BYTES = 128 << 20
"""Bytes of a value and of its metadata: the limit of Paimon's Java."""
_INTEGERS = ((Primitive.INT8, 1), (Primitive.INT16, 2), (Primitive.INT32, 4), (Primitive.INT64, 8))
_MOST_DIGITS = 40
"""A sign, and more digits than a DECIMAL has."""
_TOO_DEEP = "it is nested too deep"


class NoNumber(str):
    """NaN, Infinity or -Infinity as a bare word of a text, which many programs write though JSON has no such words."""


def variant_of(parsed: Any) -> tuple[bytes, bytes]:
    """The value and metadata of JSON that was parsed. Fractions are `Decimal` or float.

    Raises `ValueError` for what no VARIANT can hold.
    """
    numbers: dict[str, int] = {}
    try:
        value = _encoded(parsed, numbers)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    names = [_utf8(name) for name in numbers]
    size = sum(map(len, names))
    width = _width(max(size, len(names)))
    bounds, place = [0], 0
    for name in names:
        place += len(name)
        bounds.append(place)
    head = bytes([VARIANT_VERSION | (width - 1) << 6]) + len(names).to_bytes(width, "little")
    metadata = head + b"".join(bound.to_bytes(width, "little") for bound in bounds) + b"".join(names)
    if max(len(value), len(metadata)) > MAX_VARIANT_BYTES:
        raise ValueError(f"a VARIANT has at most {MAX_VARIANT_BYTES >> 20} MiB")
    return value, metadata


def variant_of_text(text: str, *, shown: bool = False) -> tuple[bytes, bytes]:
    """The value and metadata of JSON text; `shown`: as `variant_texts` writes it. Raises `ValueError`."""
    try:
        fraction = _shown_fraction if shown else _fraction
        parsed = json.loads(
            text, parse_float=fraction, parse_int=whole_number, parse_constant=_refused, object_pairs_hook=_object
        )
        return variant_of(parsed)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise ValueError(why_no_json(error)) from None


def why_no_json(error: json.JSONDecodeError) -> str:
    """Why a text is no JSON, in other words than those of Python's parser."""
    if not error.doc.strip():
        return "the text is empty"
    rest = error.doc[error.pos :]
    if not rest.strip():
        return "it ends too early"
    return f"at character {error.pos + 1}, {shortened(repr(rest))} does not go on as JSON"


def variants_of_texts(texts: pa.StringArray, *, shown: bool = False) -> tuple[pa.StructArray, dict[int, str]]:
    """JSON texts as a column of `arrow_type(VARIANT)`, and why some rows are no JSON; they are null in it. Nulls remain null.

    Equal texts are encoded once. `shown`: they are as `variant_texts` writes them, where a DOUBLE has a fraction or an exponent.
    """
    stored = texts.dictionary_encode()
    pairs, wrong = [], dict[int, str]()
    for number, text in enumerate(stored.dictionary.to_pylist()):
        try:
            pairs.append(variant_of_text(text, shown=shown))
        except ValueError as problem:
            pairs.append((b"", b""))
            wrong[number] = str(problem)
    rows = {row: wrong[number] for row, number in enumerate(stored.indices.to_pylist()) if number in wrong} if wrong else {}
    absent = np.array(texts.is_null().to_numpy(zero_copy_only=False))
    absent[list(rows)] = True
    return variant_column(pairs, stored.indices.fill_null(0), absent), rows


def variant_column(pairs: Sequence[tuple[bytes, bytes]], indices: pa.Array, absent: np.ndarray) -> pa.StructArray:
    """For each index its pair of value and metadata; null where `absent` is true."""
    known = pairs or [(b"", b"")]
    parts = [pa.array([pair[place] for pair in known], pa.binary()).take(indices) for place in (0, 1)]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(VARIANT)), mask=pa.array(absent))


def _refused(word: str) -> Any:
    raise ValueError(f"JSON has no number {word}")


def whole_number(digits: str) -> int | Decimal:
    """A whole number of JSON; a `Decimal` if it has more digits than any type, because Python takes no int of thousands."""
    return int(digits) if len(digits) <= _MOST_DIGITS else Decimal(digits)


def _fraction(digits: str) -> Decimal | float:
    """A number with an exponent is a DOUBLE, as in Java."""
    return float(digits) if "e" in digits or "E" in digits else Decimal(digits)


def _shown_fraction(digits: str) -> Decimal | float:
    """No DECIMAL is shown with zeros at its end."""
    return float(digits) if digits.endswith(".0") else _fraction(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        raise ValueError("a key appears twice")
    return parsed


def _encoded(parsed: Any, numbers: dict[str, int]) -> bytes:
    """The bytes of a node. `numbers`: of the names so far."""
    match parsed:
        case None:
            return _header(Primitive.NULL)
        case bool():
            return _header(Primitive.TRUE if parsed else Primitive.FALSE)
        case int():
            return _integer(parsed)
        case NoNumber():
            _refused(parsed)
        case str():
            return _text(_utf8(parsed))
        case dict():
            children = [_encoded(child, numbers) for child in _numbered(parsed, numbers)]
            return _object_node(parsed, children, numbers)
        case list():
            return _array_node([_encoded(child, numbers) for child in parsed])
        case Decimal():
            return _decimal(parsed)
        case float():
            return _double(parsed)
    raise ValueError(f"JSON has no values like {type(parsed).__name__}")


def _numbered(parsed: dict[str, Any], numbers: dict[str, int]) -> Any:
    for name, child in parsed.items():
        numbers.setdefault(name, len(numbers))
        yield child


def _header(details: int, kind: int = NodeKind.PRIMITIVE) -> bytes:
    return bytes([details << 2 | kind])


def _integer(number: int) -> bytes:
    for details, size in _INTEGERS:
        if -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
            return _header(details) + number.to_bytes(size, "little", signed=True)
    return _decimal(Decimal(number))


def _decimal(number: Decimal) -> bytes:
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"JSON has no number {number}")
    if exponent > 0:
        return _double(float(number))
    scale, precision = -exponent, len(digits)
    for details, most, size in DECIMAL_FORMS:
        if scale <= most and precision <= most:
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            return _header(details) + bytes([scale]) + unscaled.to_bytes(size, "little", signed=True)
    return _double(float(number))


def _double(number: float) -> bytes:
    if not math.isfinite(number):
        raise ValueError("a number in it is too large")
    return _header(Primitive.DOUBLE) + struct.pack("<d", number)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ValueError(f"it holds half a character, \\u{code:04x}, without its other half") from None


def _text(encoded: bytes) -> bytes:
    if len(encoded) <= LONGEST_SHORT_TEXT:
        return _header(len(encoded), NodeKind.SHORT_TEXT) + encoded
    return _header(Primitive.TEXT) + len(encoded).to_bytes(4, "little") + encoded


def _object_node(parsed: dict[str, Any], children: list[bytes], numbers: dict[str, int]) -> bytes:
    """Names are in the order of their bytes; the values are stored as they came."""
    offsets, size = _offsets(children)
    fields = sorted(zip((_utf8(name) for name in parsed), (numbers[name] for name in parsed), offsets, strict=True))
    width, id_width = _width(size), _width(max((number for _, number, _ in fields), default=0))
    is_large = len(fields) > MOST_SHORT_CHILDREN
    head = _header(is_large << 4 | (id_width - 1) << 2 | (width - 1), NodeKind.OBJECT) + len(fields).to_bytes(
        4 if is_large else 1, "little"
    )
    ids = b"".join(number.to_bytes(id_width, "little") for _, number, _ in fields)
    places = b"".join(place.to_bytes(width, "little") for place in (*(place for _, _, place in fields), size))
    return b"".join((head, ids, places, *children))


def _array_node(children: list[bytes]) -> bytes:
    offsets, size = _offsets(children)
    width, is_large = _width(size), len(children) > MOST_SHORT_CHILDREN
    head = _header(is_large << 2 | (width - 1), NodeKind.ARRAY) + len(children).to_bytes(4 if is_large else 1, "little")
    return b"".join((head, *(place.to_bytes(width, "little") for place in (*offsets, size)), *children))


def _offsets(children: list[bytes]) -> tuple[list[int], int]:
    offsets, place = [], 0
    for child in children:
        offsets.append(place)
        place += len(child)
    return offsets, place


def _width(number: int) -> int:
    """The bytes of an unsigned number, at least one. Raises `ValueError` for one of more than 4."""
    if number >= 1 << 32:
        raise ValueError(f"a VARIANT has at most {MAX_VARIANT_BYTES >> 20} MiB")
    return max(1, (number.bit_length() + 7) // 8)
