"""What the values of events look like: shapes that are learned from them, and the Arrow schemas with which they are parsed.

A shape is learned by Python's parser from events that do not fit the shape so far, which are few, and Arrow parses all others
with it. Nothing is inferred by Arrow, so that no event chooses how deep or how wide a type becomes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from paimon_cli.ingest.changes.double_text import double_text
from paimon_cli.options.option_text import is_utf8

Shape = Any
"""A `JsonKind`; a dict of shapes by key for an object; a list with the shape of the elements."""


class JsonKind:
    """What a value is; MIXED if values differ in kind, or are nested: then they are read as text."""

    NULL, BOOL, INT, FLOAT, TEXT, MIXED = "null", "bool", "int", "float", "text", "mixed"


_ARROW = {
    JsonKind.NULL: pa.string(),
    JsonKind.BOOL: pa.bool_(),
    JsonKind.INT: pa.int64(),
    JsonKind.FLOAT: pa.float64(),
    JsonKind.TEXT: pa.string(),
}
EXACT_INTEGER = 1 << 53
"""Whole numbers below this are exact as DOUBLE."""
_INT64 = 1 << 63
MAX_LEVELS = 4
"""Levels of an envelope: `payload`, `source`, a list of rows, a row."""
MAX_KEYS = 10_000


class TooWide(ValueError):
    """An event has more keys than any table has columns."""


def shape_of(value: Any, levels: int) -> Shape:
    """The shape of a parsed value. Objects and lists more than `levels` deep are JsonKind.MIXED: text of JSON."""
    if value is None:
        return JsonKind.NULL
    if isinstance(value, bool):
        return JsonKind.BOOL
    if isinstance(value, int):
        return JsonKind.INT if -_INT64 <= value < _INT64 else JsonKind.MIXED
    if isinstance(value, Decimal):
        return JsonKind.FLOAT
    if isinstance(value, str):
        return JsonKind.TEXT
    if levels <= 0:
        return JsonKind.MIXED
    if isinstance(value, dict):
        if len(value) > MAX_KEYS:
            raise TooWide(f"it has more than {MAX_KEYS:,} keys")
        return {key: shape_of(one, levels - 1) for key, one in value.items()}
    shape: Shape = JsonKind.NULL
    for one in value:
        shape = merged(shape, shape_of(one, levels - 1))
    return [shape]


def merged(a: Shape, b: Shape) -> Shape:
    """The shape that takes the values of both. Raises `TooWide`."""
    if a == b or b == JsonKind.NULL:
        return a
    if a == JsonKind.NULL:
        return b
    if isinstance(a, dict) and isinstance(b, dict):
        if len(a.keys() | b.keys()) > MAX_KEYS:
            raise TooWide(f"the events of its table have more than {MAX_KEYS:,} keys")
        return {key: merged(a.get(key, JsonKind.NULL), b.get(key, JsonKind.NULL)) for key in {**a, **b}}
    if isinstance(a, list) and isinstance(b, list):
        return [merged(a[0], b[0])]
    return JsonKind.FLOAT if {str(a), str(b)} == {JsonKind.INT, JsonKind.FLOAT} else JsonKind.MIXED


def arrow_of(shape: Shape, numbers: Mapping[str, pa.DataType], name: str = "") -> pa.DataType | None:
    """The Arrow type of a shape, None if it has a JsonKind.MIXED part, or a key that no text in UTF-8 is. `numbers`: types for
    keys whose numbers must be exact, or told from texts.
    """
    if not is_utf8(name):
        return None
    if isinstance(shape, dict):
        fields = {key: arrow_of(inner, numbers, key) for key, inner in shape.items()}
        return None if None in fields.values() else pa.struct(list(fields.items()))
    if isinstance(shape, list):
        element = arrow_of(shape[0], numbers)
        return None if element is None else pa.list_(element)
    if shape in (JsonKind.INT, JsonKind.FLOAT) and name in numbers:
        return numbers[name]
    return _ARROW.get(shape)


def cell_text(value: Any) -> str | None:
    """A parsed value as text: numbers as Java prints them, objects and lists as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        number = float(value)
        return double_text(number) if math.isfinite(number) else str(value)
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def pointed_text(value: Any) -> str | None:
    """A parsed value as text, with a point in numbers and booleans, which no base64 has: 12 is `12.`, and "12" stays `12`."""
    if value is None or isinstance(value, str):
        return value
    text = str(value) if isinstance(value, Decimal) else cell_text(value) or ""
    number, exponent, power = text.partition("E")
    return text if "." in number else f"{number}.{exponent}{power}"


def _is_finite_fraction(value: Any) -> bool:
    """Whether a number, or none, has the same text as the DOUBLE that is made of it."""
    return value is None or (not isinstance(value, int) and math.isfinite(float(value)))


def column_of(values: list[Any], shape: Shape, numbers: pa.DataType | None, *, is_text: bool = False) -> pa.Array:
    """Parsed values as Arrow would have read them, and as text if they are JsonKind.MIXED. Raises `UnicodeEncodeError`,
    `pa.ArrowInvalid`. With `numbers` (as in `arrow_of`) they are texts that tell numbers from texts. `is_text`: they become text,
    in which whole numbers have no point, and none is infinite.
    """
    if numbers is not None:
        return pa.array(list(map(pointed_text, values)), pa.string())
    if shape == JsonKind.FLOAT and is_text and not all(map(_is_finite_fraction, values)):
        return pa.array([cell_text(value) for value in values], pa.string())
    if shape == JsonKind.FLOAT and not any(isinstance(value, int) and abs(value) >= EXACT_INTEGER for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if shape in (JsonKind.BOOL, JsonKind.INT):
        return pa.array(values, _ARROW[shape])
    return pa.array([cell_text(value) for value in values], pa.string())
