"""The cast of one column: which type may become which, and how (FORMAT.md, section 2.3; Java DataTypeCasts, CastExecutors)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.casts import instants, numbers, parsing, texts
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import (
    BINARY_ROOTS,
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    MAX_LENGTH,
    NEWER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    DataField,
    DataType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported

NUMERIC_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}
DATETIME_ROOTS = TIMESTAMP_ROOTS | {"DATE", "TIME"}
CONSTRUCTED_ROOTS = frozenset({"ARRAY", "MAP", "MULTISET", "ROW"})
PREDEFINED_ROOTS = NUMERIC_ROOTS | DATETIME_ROOTS | STRING_ROOTS | BINARY_ROOTS | {"BOOLEAN"}
_TO_NUMBER = NUMERIC_ROOTS | STRING_ROOTS | TIMESTAMP_ROOTS | {"BOOLEAN"}

_IMPLICIT: dict[str, frozenset[str]] = {
    "VARCHAR": STRING_ROOTS,
    "VARBINARY": BINARY_ROOTS,
    "DECIMAL": NUMERIC_ROOTS,
    "SMALLINT": frozenset({"TINYINT"}),
    "INT": frozenset({"TINYINT", "SMALLINT"}),
    "BIGINT": frozenset({"TINYINT", "SMALLINT", "INT"}),
    "FLOAT": INTEGER_ROOTS | {"DECIMAL"},
    "DOUBLE": NUMERIC_ROOTS,
    "DATE": frozenset({"TIMESTAMP"}),
    "TIME": frozenset({"TIMESTAMP"}),
    "TIMESTAMP": TIMESTAMP_ROOTS,
    "TIMESTAMP_LTZ": TIMESTAMP_ROOTS,
}
_EXPLICIT: dict[str, frozenset[str]] = {
    "CHAR": PREDEFINED_ROOTS | CONSTRUCTED_ROOTS,
    "VARCHAR": PREDEFINED_ROOTS | CONSTRUCTED_ROOTS,
    "BOOLEAN": STRING_ROOTS | INTEGER_ROOTS,
    "BINARY": STRING_ROOTS | {"VARBINARY"},
    "VARBINARY": STRING_ROOTS | {"BINARY"},
    **{root: _TO_NUMBER for root in NUMERIC_ROOTS},
    "DATE": TIMESTAMP_ROOTS | STRING_ROOTS,
    "TIME": TIMESTAMP_ROOTS | STRING_ROOTS,
    "TIMESTAMP": DATETIME_ROOTS | STRING_ROOTS | NUMERIC_ROOTS,
    "TIMESTAMP_LTZ": DATETIME_ROOTS | STRING_ROOTS | NUMERIC_ROOTS,
}


def may_cast(source: DataType, target: DataType, *, explicit: bool) -> bool:
    """Whether a column may change its type; with `explicit` also where values can be lost.

    A type that may be cast needs not have a cast: see `column_cast.cast_of`.
    """
    if source.nullable and not target.nullable and not explicit:
        return False
    if same_type(source, target):
        return True
    if source.root in NEWER_ROOTS or target.root in NEWER_ROOTS:
        return source.root == target.root
    if source.root == target.root or source.root in _IMPLICIT.get(target.root, ()):
        return True
    return explicit and source.root in _EXPLICIT.get(target.root, ())


def same_type(a: DataType, b: DataType) -> bool:
    """Equal but for whether null is allowed at the top."""
    return a.with_nullable(True) == b.with_nullable(True)


def keeps_values(source: DataType, target: DataType) -> bool:
    """Whether a cast leaves every value what it is, so that bounds of the old type hold for the new one."""
    if same_type(source, target):
        return True
    if source.root in INTEGER_ROOTS and target.root in INTEGER_ROOTS:
        return source.root in _IMPLICIT.get(target.root, ())
    if target.root == "VARCHAR" and source.root in STRING_ROOTS:
        return (target.length or 0) >= (source.length or 0)
    if source.root != target.root or source.root not in TIMESTAMP_ROOTS | {"DECIMAL"}:
        return False
    scale, digits = _scale_and_digits(source)
    new_scale, new_digits = _scale_and_digits(target)
    return new_scale >= scale and new_digits >= digits


def _scale_and_digits(t: DataType) -> tuple[int, int]:
    """Digits after and before the decimal point; a TIMESTAMP always has enough before it."""
    precision, scale = t.precision or 0, t.scale or 0
    return (scale, precision - scale) if t.root == "DECIMAL" else (precision, 0)


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
        return parsing.to_timestamp
    if target.root in INTEGER_ROOTS:
        return parsing.to_whole_number
    casts: dict[str, Cast] = {
        "BOOLEAN": parsing.to_boolean,
        "FLOAT": parsing.to_float,
        "DOUBLE": parsing.to_float,
        "DECIMAL": parsing.to_decimal,
        "DATE": parsing.to_date,
        "TIME": parsing.to_time,
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
"""Types whose text is not cut to the length of the target."""


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


def default_column(text: str, t: DataType) -> pa.Array:
    """One row with the value; quotes around the text are not part of it. Raises as casts from text do."""
    if t.is_nested:
        raise NotSupported(f"a default for {type_to_sql(t)}", "this version knows defaults of plain types only")
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    return cast_column(pa.array([text], arrow_type(STRING)), STRING, t)


def with_default(values: pa.Array, column: DataField) -> pa.Array:
    """The values with nulls replaced, as Paimon's writers do with every null of a column that has a default."""
    if column.default_value is None or values.null_count == 0:
        return values
    return pc.if_else(values.is_valid(), values, default_column(column.default_value, column.type)[0])
