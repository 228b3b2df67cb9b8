"""The canonical JSON form of rows, which `read -o ndjson` prints and `write --format json` reads back.

Integers are numbers. FLOAT and DOUBLE are numbers, or "NaN", "Infinity", "-Infinity". DECIMAL is a string with the digits of its
scale. DATE, TIME and TIMESTAMP are ISO strings without trailing zeros, with a final `Z` for WITH LOCAL TIME ZONE. Binary is a hex
string. ARRAY is a list, MAP and MULTISET are lists of [key, value] sorted by the key's JSON, ROW is an object. VARIANT is the
JSON that it holds.

Output is rendered by Arrow, a column at a time: as plain text for CSV and tables, as JSON text for JSON lines.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, Inexact, localcontext
from typing import Any

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
    JsonText,
    MapType,
    MultisetType,
    NestedType,
    PlainType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
    VariantType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import (
    MILLIS_OF_DAY,
    date_text,
    decimal_of,
    parse_date,
    parse_time,
    parse_timestamp,
    time_text,
    timestamp_text,
    unscaled_value,
)
from paimon_cli.datatypes.value_texts import calendar_texts, escaped, float_texts, hex_texts, quoted, replaced
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.datatypes.variant_columns import holds_variants
from paimon_cli.datatypes.variant_text import ODD_JSON, parsed, shown_json, variant_text, variant_texts, variant_value
from paimon_cli.options.option_text import json_text, shortened, without_controls

_RAW_MILLIS = "raw_millis"
"""The key of a TIME outside of the day, which casts can make."""
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[0-9a-fA-F]*")
"""Python's own parsers also take blanks, underscores, and digits of other alphabets. Neither of these goes back over digits, nor
remembers groups, of which a cell may have millions.
"""


def canonical_json(value: Any, t: DataType) -> Any:
    """An internal value in canonical form, as JSON-able data."""
    if value is None:
        return None
    if t.root in FLOATING_ROOTS:
        return _float_json(value)
    if isinstance(t, VariantType):
        return variant_value(value)
    if isinstance(t, DecimalType):
        return format(value, "f")
    if isinstance(t, BinaryType):
        return value.hex()
    if t.root == "DATE":
        return date_text(value)
    if isinstance(t, TimeType):
        return time_text(value) if 0 <= value < MILLIS_OF_DAY else {_RAW_MILLIS: value}
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
    if isinstance(t, VariantType):
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        return [None if text is None else parsed(text) for text in variant_texts(array).to_pylist()]
    texts = calendar_texts(array, t)
    return list(texts.to_pylist()) if texts is not None else [canonical_json(value, t) for value in values_from_arrow(array, t)]


def _float_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def from_canonical(json_value: Any, t: DataType) -> Any:
    """The internal value of canonical JSON. Raises `ValueError` that says what is expected if it does not fit the type."""
    if json_value is None:
        return None
    if isinstance(t, VariantType):
        return variant_of(json_value)
    try:
        return _internal(json_value, t)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        reason = f": {error}" if isinstance(error, ValueError) and str(error) else ""
        raise ValueError(
            f"{shortened(json.dumps(json_value, default=str))} is not a valid {type_to_sql(t.with_nullable(True))}{reason}"
        ) from None


def _internal(value: Any, t: DataType) -> Any:
    match t:
        case StringType():
            return _expected(value, str, "a text")
        case BinaryType():
            return _bytes(value)
        case DecimalType(precision, scale):
            return _decimal(value, precision, scale)
        case TimeType():
            return _integer(value.get(_RAW_MILLIS), 1 << 31) if isinstance(value, dict) else parse_time(value)
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


def _bytes(value: Any) -> bytes:
    if len(_expected(value, str, "a text")) % 2 or not _HEX.fullmatch(value):
        raise ValueError("pairs of hex digits are expected")
    return bytes.fromhex(value)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not _NUMBER.fullmatch(str(value)):
        raise ValueError("the text of a number is expected")
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


def canonical_texts(array: pa.Array, t: DataType) -> pa.Array:
    """Each value as plain text: canonical strings without quotes, nested values as JSON. Nulls remain null."""
    if isinstance(t, StringType):
        return array
    if t.root in INTEGER_ROOTS or t.root == "BOOLEAN":
        return array.cast(pa.string())
    if t.root in FLOATING_ROOTS:
        return float_texts(array.cast(pa.float64()))
    if isinstance(t, DecimalType):
        texts = array.cast(pa.string())
        return replaced(texts, pc.match_substring(texts, "E"), lambda found: [format(Decimal(x), "f") for x in found.to_pylist()])
    if isinstance(t, BinaryType):
        return hex_texts(array.cast(pa.binary()))
    if isinstance(t, VariantType):
        return variant_texts(array)
    found = calendar_texts(array, t)
    if found is not None:
        return found
    if isinstance(t, NestedType) and _holds_json(t):
        texts = (None if value is None else _nested_text(value, t) for value in values_from_arrow(array, t))
        return pa.array(texts, pa.string())
    values = (canonical_json(value, t) for value in values_from_arrow(array, t))
    return pa.array([value if value is None or isinstance(value, str) else compact_json(value) for value in values], pa.string())


def _holds_json(t: DataType) -> bool:
    return holds_variants(t) or any(isinstance(part, JsonText) for part in t.parts())


def _nested_text(value: Any, t: DataType) -> str:
    """Canonical JSON of a value with VARIANTs in it, whose numbers keep digits that Python's floats have not."""
    if value is None:
        return "null"
    if isinstance(t, VariantType):
        return variant_text(value)
    if isinstance(t, JsonText):
        return shown_json(value)
    if isinstance(t, ArrayType):
        return f"[{','.join(_nested_text(item, t.element) for item in value)}]"
    if isinstance(t, (MapType, MultisetType)):
        entries = sorted((_nested_text(key, t.key), _nested_text(item, t.value)) for key, item in value)
        return f"[{','.join(f'[{key},{item}]' for key, item in entries)}]"
    if isinstance(t, RowType):
        fields = zip(t.fields, value, strict=True)
        return f"{{{','.join(f'{compact_json(field.name)}:{_nested_text(item, field.type)}' for field, item in fields)}}}"
    return compact_json(canonical_json(value, t))


def json_texts(array: pa.Array, t: DataType) -> tuple[pa.Array, bool]:
    """Each value as JSON text, and whether every value still has to be enclosed in quotes. There are no nulls in the result."""
    if isinstance(t, VariantType):
        return variant_texts(array).fill_null("null"), False
    if isinstance(t, JsonText):
        odd = pc.match_substring_regex(array, ODD_JSON)
        return replaced(array, odd, lambda found: list(map(shown_json, found.to_pylist()))).fill_null("null"), False
    if isinstance(t, NestedType) and _holds_json(t):
        return pa.array([without_controls(_nested_text(value, t)) for value in values_from_arrow(array, t)], pa.string()), False
    if isinstance(t, (NestedType, TimeType)):
        values = (canonical_json(value, t) for value in values_from_arrow(array, t))
        return pa.array([json_text(value, separators=(",", ":")) for value in values], pa.string()), False
    texts = canonical_texts(array, t)
    if isinstance(t, StringType):
        texts = escaped(texts)
    if t.root in INTEGER_ROOTS or t.root == "BOOLEAN":
        return texts.fill_null("null"), False
    if t.root in FLOATING_ROOTS:
        return pc.if_else(pc.is_finite(array), texts, quoted(texts)).fill_null("null"), False
    return (quoted(texts).fill_null("null"), False) if texts.null_count else (texts, True)


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
