"""Casts of columns: which casts are allowed, and their functions (FORMAT.md, section 2.3; Java DataTypeCasts, CastExecutors)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes import cast_from_text, cast_numbers, cast_to_text
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import (
    BINARY_ROOTS,
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    NEWER_ROOTS,
    STRING,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    NestedType,
    StringType,
    TimestampType,
    TimeType,
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
    """Whether a column may change its type; `explicit` also allows casts that can lose values.

    Some allowed casts have no function: see `cast_of`.
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
    """Whether two types are equal apart from top-level nullability."""
    return a.with_nullable(True) == b.with_nullable(True)


def keeps_values(source: DataType, target: DataType) -> bool:
    """Whether the cast preserves every value, so that column bounds in the old type are valid for the new one."""
    if same_type(source, target):
        return True
    if source.root in INTEGER_ROOTS and target.root in INTEGER_ROOTS:
        return source.root in _IMPLICIT.get(target.root, ())
    match source, target:
        case StringType(), StringType(root="VARCHAR"):
            return target.length >= source.length
        case DecimalType(), DecimalType():
            return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
        case TimestampType(), TimestampType():
            return target.root == source.root and target.precision >= source.precision
    return False


def keeps_buckets(source: DataType, target: DataType) -> bool:
    """Whether every value hashes after the cast as before it, so that rows are in the buckets of their new values.

    The hash is that of the binary form, which is the same for all lengths of texts, but not for numbers of different widths.
    """
    both_texts = isinstance(source, StringType) and isinstance(target, StringType)
    return same_type(source, target) or (both_texts and keeps_values(source, target))


Cast = Callable[[pa.Array], pa.Array]
"""Converts a column from the Arrow type of the source to that of the target."""


def cast_column(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """The column in the target type.

    Raises `UsageError` for a value that cannot be converted, and `NotSupported` if Paimon does not have such a cast.
    """
    cast = cast_of(source, target)
    if cast is None:
        raise NotSupported(f"there is no cast from {type_to_sql(source)} to {type_to_sql(target)}")
    return cast(array)


def cast_of(source: DataType, target: DataType) -> Cast | None:
    """The function of the cast; None if Paimon has none, as for BOOLEAN, DATE and TIME to themselves."""
    match source, target:
        case _, StringType():
            return _to_text(source, target)
        case StringType(), _:
            return _from_text(target)
        case BinaryType(), BinaryType():
            return lambda array: cast_to_text.fitted_bytes(array, target)
        case TimestampType(), _:
            return _from_timestamp(source, target)
    if target.root == "BOOLEAN":
        return cast_numbers.number_to_boolean if source.root in INTEGER_ROOTS else None
    return _from_number(source, target) if source.root in NUMERIC_ROOTS | {"BOOLEAN"} else _from_day_or_time(source, target)


def _from_number(source: DataType, target: DataType) -> Cast | None:
    match target:
        case DecimalType():
            return lambda array: cast_numbers.to_decimal(array, target)
        case TimestampType() if source.root in ("INT", "BIGINT"):
            return lambda array: cast_numbers.seconds_to_timestamp(array, target)
    if target.root not in INTEGER_ROOTS | FLOATING_ROOTS:
        return None
    cast = cast_numbers.decimal_to_primitive if isinstance(source, DecimalType) else cast_numbers.between_primitives
    return lambda array: cast(array, target)


def _from_day_or_time(source: DataType, target: DataType) -> Cast | None:
    if not isinstance(target, TimestampType) or source.root not in ("DATE", "TIME"):
        return None
    cast = cast_numbers.date_to_timestamp if source.root == "DATE" else cast_numbers.time_to_timestamp
    return lambda array: cast(array, target)


def _from_timestamp(source: TimestampType, target: DataType) -> Cast | None:
    if isinstance(target, TimestampType):
        return lambda array: cast_numbers.timestamp_to_timestamp(array, source, target)
    if target.root in ("INT", "BIGINT"):
        return lambda array: cast_numbers.timestamp_to_seconds(array, target)
    return {"DATE": cast_numbers.timestamp_to_date, "TIME": cast_numbers.timestamp_to_time}.get(target.root)


def _from_text(target: DataType) -> Cast | None:
    match target:
        case BinaryType():
            return lambda array: cast_to_text.fitted_bytes(array.cast(pa.binary()), target)
        case TimestampType():
            return lambda array: cast_from_text.to_timestamp(array, target)
        case DecimalType():
            return lambda array: cast_from_text.to_decimal(array, target)
        case TimeType():
            return cast_from_text.to_time
    if target.root == "DATE":
        return cast_from_text.to_date
    if target.root == "BOOLEAN":
        return lambda array: cast_from_text.to_boolean(array, target)
    if target.root in INTEGER_ROOTS:
        return lambda array: cast_from_text.to_integer(array, target)
    return (lambda array: cast_from_text.to_float(array, target)) if target.root in FLOATING_ROOTS else None


def _to_text(source: DataType, target: StringType) -> Cast | None:
    if source.root in BINARY_ROOTS | {"ARRAY", "MAP", "ROW"}:  # not truncated to the length of the target
        return lambda array: cast_to_text.text_of(array, source)
    if source.root not in PREDEFINED_ROOTS or (source.root in DATETIME_ROOTS and not same_type(target, STRING)):
        return None
    return lambda array: cast_to_text.fitted_text(cast_to_text.text_of(array, source), target)


def default_column(text: str, t: DataType) -> pa.Array:
    """The default value as a column of one row; single quotes around `text` are removed. Raises what `cast_column` does."""
    if isinstance(t, NestedType):
        raise NotSupported(f"a default for {type_to_sql(t)}", "only defaults of primitive types are supported")
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    return cast_column(pa.array([text], arrow_type(STRING)), STRING, t)


def with_default(values: pa.Array, column: DataField) -> pa.Array:
    """The values with every null replaced by the default of the column, if it has one, as Paimon's writers do."""
    if column.default_value is None or values.null_count == 0:
        return values
    return pc.if_else(values.is_valid(), values, default_column(column.default_value, column.type)[0])
