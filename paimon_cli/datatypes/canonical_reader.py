"""Canonical JSON (see `canonical_form`) back to internal values, checked against the type."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal, Inexact, localcontext
from typing import Any

from paimon_cli.datatypes.calendar_time import Timestamp, parse_date, parse_time, parse_timestamp
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.datatypes.decimals import decimal_of, unscaled_value
from paimon_cli.datatypes.field_types import type_to_sql

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def from_canonical(json_value: Any, t: DataType) -> Any:
    """The internal value of canonical JSON. `ValueError` that says what is expected when it does not fit the type."""
    if json_value is None:
        return None
    try:
        return _READERS[t.root](json_value, t)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        reason = f": {error}" if isinstance(error, ValueError) and str(error) else ""
        raise ValueError(
            f"{json.dumps(json_value, default=str)} is not a valid {type_to_sql(t.with_nullable(True))}{reason}"
        ) from None


def _read_boolean(value: Any, t: DataType) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false is expected")
    return value


def _read_integer(value: Any, t: DataType) -> int:
    limit = 1 << (_BITS[t.root] - 1)
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise ValueError(f"a whole number from {-limit} to {limit - 1} is expected")
    return value


def _read_float(value: Any, t: DataType) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity")):
        raise ValueError('a number, "NaN", "Infinity" or "-Infinity" is expected')
    return float(value)


def _read_decimal(value: Any, t: DataType) -> Decimal:
    if isinstance(value, (bool, float)):
        raise ValueError("a text is expected")
    number, precision, scale = Decimal(value), t.precision or 0, t.scale or 0
    with localcontext() as context:
        context.prec, context.traps[Inexact] = 80, True
        exact = number.quantize(Decimal(1).scaleb(-scale)) if number.is_finite() else None
    if exact is None or (exact != 0 and exact.adjusted() >= precision - scale):
        raise ValueError(f"at most {precision - scale} digits before the point are expected")
    return decimal_of(unscaled_value(exact, scale), scale)


def _read_text(value: Any, t: DataType) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is expected")
    return value


def _read_timestamp(value: Any, t: DataType) -> Timestamp:
    return parse_timestamp(value)


def _read_row(value: Any, t: DataType) -> tuple[Any, ...]:
    unknown = [name for name in value if name not in {field.name for field in t.row_fields()}]
    if unknown:
        raise ValueError(f"unknown fields {unknown}")
    return tuple(from_canonical(value.get(field.name), field.type) for field in t.row_fields())


def _read_array(value: Any, t: DataType) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("a list is expected")
    return [from_canonical(item, t.element_type()) for item in value]


def _read_entries(value: Any, t: DataType) -> list[tuple[Any, Any]]:
    key_type, value_type = t.entry_types()
    return [(from_canonical(key, key_type), from_canonical(item, value_type)) for key, item in value]


def _read_date(value: Any, t: DataType) -> int:
    return parse_date(value)


def _read_time(value: Any, t: DataType) -> int:
    return int(value["raw_millis"]) if isinstance(value, dict) else parse_time(value)


def _read_binary(value: Any, t: DataType) -> bytes:
    return bytes.fromhex(value)


_READERS: dict[str, Callable[[Any, DataType], Any]] = {
    "BOOLEAN": _read_boolean,
    "TINYINT": _read_integer,
    "SMALLINT": _read_integer,
    "INT": _read_integer,
    "BIGINT": _read_integer,
    "FLOAT": _read_float,
    "DOUBLE": _read_float,
    "DECIMAL": _read_decimal,
    "CHAR": _read_text,
    "VARCHAR": _read_text,
    "BINARY": _read_binary,
    "VARBINARY": _read_binary,
    "DATE": _read_date,
    "TIME": _read_time,
    "TIMESTAMP": _read_timestamp,
    "TIMESTAMP_LTZ": _read_timestamp,
    "ARRAY": _read_array,
    "MAP": _read_entries,
    "MULTISET": _read_entries,
    "ROW": _read_row,
}
