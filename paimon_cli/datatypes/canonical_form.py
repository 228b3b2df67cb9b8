"""The canonical JSON form of rows, which `read -o ndjson` prints and `write --format json` reads back.

Integers are numbers. FLOAT and DOUBLE are numbers, or "NaN", "Infinity", "-Infinity". DECIMAL is a string with the digits of its
scale. DATE, TIME and TIMESTAMP are ISO strings without trailing zeros, with a final `Z` for WITH LOCAL TIME ZONE. Binary is a hex
string. ARRAY is a list, MAP and MULTISET are lists of [key, value] sorted by the key's JSON, ROW is an object.

Output is rendered by Arrow, a column at a time: as plain text for CSV and tables, as JSON text for JSON lines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, Inexact, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import values_from_arrow
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_BITS,
    INTEGER_ROOTS,
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    NestedType,
    PlainType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import (
    MILLIS_OF_DAY,
    date_text,
    decimal_of,
    epoch_day,
    parse_date,
    parse_time,
    parse_timestamp,
    time_text,
    timestamp_text,
    unscaled_value,
)
from paimon_cli.options.option_text import TERMINAL_CONTROLS, json_text

_FIRST_DAY, _LAST_DAY = epoch_day(1, 1, 1), epoch_day(9999, 12, 31)
_PER_DAY = {"ms": MILLIS_OF_DAY, "us": MILLIS_OF_DAY * 1_000, "ns": MILLIS_OF_DAY * 1_000_000}


def canonical_json(value: Any, t: DataType) -> Any:
    """An internal value in canonical form, as JSON-able data."""
    if value is None:
        return None
    if t.root in FLOATING_ROOTS:
        return _float_json(value)
    if isinstance(t, DecimalType):
        return format(value, "f")
    if isinstance(t, BinaryType):
        return value.hex()
    if t.root == "DATE":
        return date_text(value)
    if isinstance(t, TimeType):
        return time_text(value) if 0 <= value < MILLIS_OF_DAY else {"raw_millis": value}
    if isinstance(t, TimestampType):
        return timestamp_text(value) + ("Z" if t.root == "TIMESTAMP_LTZ" else "")
    if isinstance(t, ArrayType):
        return [canonical_json(item, t.element) for item in value]
    if isinstance(t, (MapType, MultisetType)):
        entries = [[canonical_json(key, t.key), canonical_json(item, t.value)] for key, item in value]
        return sorted(entries, key=lambda entry: json.dumps(entry[0], ensure_ascii=False, separators=(",", ":")))
    if isinstance(t, RowType):
        return {field.name: canonical_json(item, field.type) for field, item in zip(t.fields, value, strict=True)}
    return value


def canonical_rows(batch: pa.RecordBatch | pa.Table, fields: Sequence[DataField]) -> Iterator[dict[str, Any]]:
    """The rows as JSON-able dicts, with the columns of `fields` in their order, looked up by name."""
    names = [field.name for field in fields]
    columns = [canonical_column(batch.column(field.name), field.type) for field in fields]
    if not columns:
        return ({} for _ in range(batch.num_rows))
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def canonical_column(array: pa.Array | pa.ChunkedArray, t: DataType) -> list[Any]:
    """All values of a column in canonical form, as JSON-able data."""
    if t.root in INTEGER_ROOTS or isinstance(t, StringType) or t.root == "BOOLEAN":
        return list(array.to_pylist())
    if t.root in FLOATING_ROOTS:
        finite = pc.all(pc.is_finite(array)).as_py()
        values = array.cast(pa.float64()).to_pylist()
        return list(values) if finite is not False else [None if v is None else _float_json(v) for v in values]
    if isinstance(t, DecimalType):
        # Arrow prints small numbers with an exponent
        texts = array.cast(pa.string()).to_pylist()
        return [format(Decimal(text), "f") if text is not None and "E" in text else text for text in texts]
    if isinstance(t, BinaryType):
        return [None if value is None else value.hex() for value in array.to_pylist()]
    texts = calendar_texts(array, t)
    return list(texts.to_pylist()) if texts is not None else [canonical_json(value, t) for value in values_from_arrow(array, t)]


def calendar_texts(array: pa.Array | pa.ChunkedArray, t: DataType) -> pa.Array | None:
    """DATE, TIME and TIMESTAMP columns as canonical text; None for other types, or if values exceed what Arrow can print."""
    if t.root == "DATE":
        return array.cast(pa.string()) if _within(array, pa.int32(), _FIRST_DAY, _LAST_DAY) else None
    if isinstance(t, TimeType):
        if not _within(array, pa.int32(), 0, MILLIS_OF_DAY - 1):
            return None
        return _without_zeros(array.cast(pa.string()))
    if isinstance(t, TimestampType):
        per_day = _PER_DAY[array.type.unit]
        if not _within(array, pa.int64(), _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1):
            return None
        local = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit)).cast(pa.string())
        texts = _without_zeros(pc.replace_substring(local, " ", "T"))
        return pc.binary_join_element_wise(texts, "Z", "") if t.root == "TIMESTAMP_LTZ" else texts
    return None


def _within(array: pa.Array | pa.ChunkedArray, number: pa.DataType, low: int, high: int) -> bool:
    found = pc.min_max(array.cast(number)).as_py()
    return found["min"] is None or (found["min"] >= low and found["max"] <= high)


def _without_zeros(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"\.?0+$", "")


def _float_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def from_canonical(json_value: Any, t: DataType) -> Any:
    """The internal value of canonical JSON. Raises `ValueError` that says what is expected if it does not fit the type."""
    if json_value is None:
        return None
    try:
        return _internal(json_value, t)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        reason = f": {error}" if isinstance(error, ValueError) and str(error) else ""
        raise ValueError(
            f"{json.dumps(json_value, default=str)} is not a valid {type_to_sql(t.with_nullable(True))}{reason}"
        ) from None


def _internal(value: Any, t: DataType) -> Any:
    match t:
        case StringType():
            return _expected(value, str, "a text")
        case BinaryType():
            return bytes.fromhex(value)
        case DecimalType(precision, scale):
            return _decimal(value, precision, scale)
        case TimeType():
            return int(value["raw_millis"]) if isinstance(value, dict) else parse_time(value)
        case TimestampType():
            return parse_timestamp(value)
        case ArrayType(element):
            return [from_canonical(item, element) for item in _expected(value, list, "a list")]
        case MapType() | MultisetType():
            return [(from_canonical(key, t.key), from_canonical(item, t.value)) for key, item in value]
        case RowType(fields):
            return _row(value, fields)
        case PlainType("DATE"):
            return parse_date(value)
        case PlainType("BOOLEAN"):
            return _expected(value, bool, "true or false")
    return _float(value) if t.root in FLOATING_ROOTS else _integer(value, 1 << (INTEGER_BITS[t.root] - 1))


def _expected(value: Any, wanted: type, what: str) -> Any:
    if not isinstance(value, wanted):
        raise ValueError(f"{what} is expected")
    return value


def _integer(value: Any, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise ValueError(f"a whole number from {-limit} to {limit - 1} is expected")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity")):
        raise ValueError('a number, "NaN", "Infinity" or "-Infinity" is expected')
    return float(value)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, (bool, float)):
        raise ValueError("a text is expected")
    number = Decimal(value)
    with localcontext() as context:
        context.prec, context.traps[Inexact] = 80, True
        exact = number.quantize(Decimal(1).scaleb(-scale)) if number.is_finite() else None
    if exact is None or (exact != 0 and exact.adjusted() >= precision - scale):
        raise ValueError(f"at most {precision - scale} digits before the point are expected")
    return decimal_of(unscaled_value(exact, scale), scale)


def _row(value: Any, fields: tuple[DataField, ...]) -> tuple[Any, ...]:
    unknown = [name for name in value if name not in {field.name for field in fields}]
    if unknown:
        raise ValueError(f"unknown fields {unknown}")
    return tuple(from_canonical(value.get(field.name), field.type) for field in fields)


_RARE = rf"\x00-\x1f{TERMINAL_CONTROLS}"
"""Control characters that JSON strings must escape, and those that `json_text` escapes."""
CONTROL = rf'[{_RARE}"\\]'
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
_SHORTEST_PLAIN = 1e-4
"""Python prints smaller numbers with an exponent, Arrow only those below 1e-5."""
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def canonical_texts(array: pa.Array, t: DataType) -> pa.Array:
    """Each value as plain text: canonical strings without quotes, nested values as JSON. Nulls remain null."""
    if isinstance(t, StringType):
        return array
    if t.root in INTEGER_ROOTS or t.root == "BOOLEAN":
        return array.cast(pa.string())
    if t.root in FLOATING_ROOTS:
        return _floats(array.cast(pa.float64()))
    if isinstance(t, DecimalType):
        texts = array.cast(pa.string())
        return _replaced(
            texts, pc.match_substring(texts, "E"), lambda found: [format(Decimal(x), "f") for x in found.to_pylist()]
        )
    if isinstance(t, BinaryType):
        return _hex(array.cast(pa.binary()))
    found = calendar_texts(array, t)
    if found is not None:
        return found
    values = (canonical_json(value, t) for value in values_from_arrow(array, t))
    return pa.array([value if value is None or isinstance(value, str) else compact_json(value) for value in values], pa.string())


def json_texts(array: pa.Array, t: DataType) -> tuple[pa.Array, bool]:
    """Each value as JSON text, and whether every value still has to be enclosed in quotes. There are no nulls in the result."""
    if isinstance(t, (NestedType, TimeType)):
        values = (canonical_json(value, t) for value in values_from_arrow(array, t))
        return pa.array([json_text(value, separators=(",", ":")) for value in values], pa.string()), False
    texts = canonical_texts(array, t)
    if isinstance(t, StringType):
        texts = _escaped(texts)
    if t.root in INTEGER_ROOTS or t.root == "BOOLEAN":
        return texts.fill_null("null"), False
    if t.root in FLOATING_ROOTS:
        quoted = pc.if_else(pc.is_finite(array), texts, _quoted(texts))
        return quoted.fill_null("null"), False
    return (_quoted(texts).fill_null("null"), False) if texts.null_count else (texts, True)


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _replaced(texts: pa.Array, mask: pa.Array, replace: Callable[[pa.Array], Sequence[str]]) -> pa.Array:
    """The texts, with those where `mask` is true replaced by `replace` of them."""
    mask = mask.fill_null(False)
    if not mask.true_count:
        return texts
    return pc.replace_with_mask(texts, mask, pa.array(replace(texts.filter(mask)), pa.string()))


def _escaped(texts: pa.Array) -> pa.Array:
    marks = pc.match_substring_regex(texts, CONTROL)
    if not marks.true_count:
        return texts
    found = texts.filter(marks.fill_null(False))
    for character, escape in _ESCAPES:
        found = pc.replace_substring(found, character, escape)
    rare = pc.match_substring_regex(found, f"[{_RARE}]")
    if rare.true_count:
        originals = texts.filter(marks.fill_null(False)).filter(rare).to_pylist()
        found = pc.replace_with_mask(found, rare, pa.array([json_text(text)[1:-1] for text in originals], pa.string()))
    return pc.replace_with_mask(texts, marks.fill_null(False), found)


def _floats(array: pa.Array) -> pa.Array:
    """Numbers as Python's repr prints them; Arrow omits `.0` and uses exponents in another range."""
    texts = array.cast(pa.string())
    exponents, finite = pc.match_substring(texts, "e"), pc.is_finite(array)
    bare = pc.and_not(pc.and_(pc.equal(pc.floor(array), array), finite), exponents).fill_null(False)
    if bare.true_count:
        whole = pc.binary_join_element_wise(texts.filter(bare), ".0", "")
        texts = pc.replace_with_mask(texts, bare, whole)
    if finite.false_count:
        texts = _replaced(texts, pc.invert(finite), lambda found: [_NON_FINITE[text] for text in found.to_pylist()])
    small = pc.and_(pc.less(pc.abs(array), _SHORTEST_PLAIN), pc.not_equal(array, 0.0))
    differs = pc.and_(pc.or_(exponents, small), finite).fill_null(False)
    if not differs.true_count:
        return texts
    return pc.replace_with_mask(texts, differs, pa.array(list(map(repr, array.filter(differs).to_pylist())), pa.string()))


def _hex(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.array([], pa.string())
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"\0", dtype=np.uint8)[offsets[0] : offsets[-1]]
    ends = (offsets.astype(np.int64) - offsets[0]) * 2
    texts = pa.LargeStringArray.from_buffers(len(array), pa.py_buffer(ends), pa.py_buffer(_HEX[data])).cast(pa.string())
    return pc.if_else(array.is_valid(), texts, None)
