"""The cast of one column: which function leads from one type to another (Java CastExecutors)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from paimon_cli.casts import instants, numbers, parsing, parsing_times, texts
from paimon_cli.casts.permission import NUMERIC_ROOTS
from paimon_cli.datatypes.data_type import (
    BINARY_ROOTS,
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    MAX_LENGTH,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported

Cast = Callable[[pa.Array, DataType, DataType], pa.Array]
"""Column in `arrow_type(source)`, source, target -> column in `arrow_type(target)`."""

STRING = DataType("VARCHAR", length=MAX_LENGTH)
_PRIMITIVE_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS


def cast_column(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Raises `UsageError` for a value without counterpart, `NotSupported` where Paimon has no such cast."""
    cast = cast_of(source, target)
    if cast is None:
        raise NotSupported(f"there is no cast from {type_to_sql(source)} to {type_to_sql(target)}")
    return cast(array, source, target)


def cast_of(source: DataType, target: DataType) -> Cast | None:
    """None where Paimon knows no cast: also from BOOLEAN, DATE and TIME to themselves."""
    if target.root in STRING_ROOTS:
        return _to_text(source, target)
    if source.root in STRING_ROOTS:
        return _from_text(target)
    if source.root in BINARY_ROOTS and target.root in BINARY_ROOTS:
        return lambda array, _, to: texts.fitted_bytes(array, to)
    if source.root == "BOOLEAN":
        return numbers.boolean_to_number if target.root in NUMERIC_ROOTS else None
    if target.root == "BOOLEAN":
        return numbers.number_to_boolean if source.root in INTEGER_ROOTS else None
    if source.root in NUMERIC_ROOTS:
        return _from_number(source, target)
    return _from_instant(source, target)


def _from_number(source: DataType, target: DataType) -> Cast | None:
    if target.root == "DECIMAL":
        return numbers.to_decimal
    if target.root in _PRIMITIVE_ROOTS:
        return numbers.decimal_to_primitive if source.root == "DECIMAL" else numbers.between_primitives
    if target.root in TIMESTAMP_ROOTS and source.root in ("INT", "BIGINT"):
        return instants.seconds_to_timestamp
    return None


def _from_instant(source: DataType, target: DataType) -> Cast | None:
    if target.root in TIMESTAMP_ROOTS:
        to_timestamp: dict[str, Cast] = {"DATE": instants.date_to_timestamp, "TIME": instants.time_to_timestamp}
        return instants.timestamp_to_timestamp if source.root in TIMESTAMP_ROOTS else to_timestamp.get(source.root)
    if source.root not in TIMESTAMP_ROOTS:
        return None
    from_timestamp: dict[str, Cast] = {
        "DATE": instants.timestamp_to_date,
        "TIME": instants.timestamp_to_time,
        "INT": instants.timestamp_to_seconds,
        "BIGINT": instants.timestamp_to_seconds,
    }
    return from_timestamp.get(target.root)


def _from_text(target: DataType) -> Cast | None:
    if target.root in BINARY_ROOTS:
        return lambda array, _, to: texts.fitted_bytes(array.cast(pa.binary()), to)
    if target.root in TIMESTAMP_ROOTS:
        return parsing_times.to_timestamp
    if target.root in INTEGER_ROOTS:
        return parsing.to_whole_number
    casts: dict[str, Cast] = {
        "BOOLEAN": parsing.to_boolean,
        "FLOAT": parsing.to_float,
        "DOUBLE": parsing.to_float,
        "DECIMAL": parsing.to_decimal,
        "DATE": parsing_times.to_date,
        "TIME": parsing_times.to_time,
    }
    return casts.get(target.root)


_TEXTS: dict[str, Callable[[pa.Array, DataType], pa.Array]] = {
    "BOOLEAN": texts.plain_text,
    **dict.fromkeys(INTEGER_ROOTS, texts.plain_text),
    "FLOAT": texts.text_of_float,
    "DOUBLE": texts.text_of_float,
    "DECIMAL": texts.text_of_decimal,
    "DATE": texts.text_of_date,
    "TIME": texts.text_of_time,
    **dict.fromkeys(TIMESTAMP_ROOTS, texts.text_of_timestamp),
    **dict.fromkeys(BINARY_ROOTS, texts.text_of_bytes),
}
_WHOLE_STRINGS_ONLY = TIMESTAMP_ROOTS | {"DATE", "TIME"}
_UNCUT = BINARY_ROOTS | {"ARRAY", "MAP", "ROW"}
"""Their text is as long as it is, whatever the target says."""


def _to_text(source: DataType, target: DataType) -> Cast | None:
    if source.root in STRING_ROOTS:
        return lambda array, _, to: texts.fitted_text(array, to)
    if source.root in _WHOLE_STRINGS_ONLY and target.with_nullable(True) != STRING:
        return None
    if source.root in ("ARRAY", "MAP", "ROW"):
        return lambda array, t, _: _nested_text(array, t)
    if source.root not in _TEXTS:
        return None
    if source.root in _UNCUT:
        return lambda array, t, _: _TEXTS[t.root](array, t)
    return lambda array, t, to: texts.fitted_text(_TEXTS[t.root](array, t), to)


def _nested_text(array: pa.Array, t: DataType) -> pa.Array:
    make = {"ARRAY": texts.text_of_list, "MAP": texts.text_of_map, "ROW": texts.text_of_row}[t.root]
    return make(array, t, _text)


def _text(array: pa.Array, t: DataType) -> pa.Array:
    return cast_column(array, t, STRING)
