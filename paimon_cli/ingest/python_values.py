"""Python values as columns: what a caller of the library has in lists and dicts, with the types of a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import (
    ArrayType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    NestedType,
    RowType,
    VariantType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.ingest.faults import BadCells, WrongType, shown
from paimon_cli.ingest.typed_columns import cast_column
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import did_you_mean

_STORED = {"value", "metadata"}
"""The fields of a VARIANT as it is stored; any other dict is a document."""


def values_of_columns(values: Mapping[str, Any], schema: TableSchema) -> dict[str, pa.Array]:
    """One value for each of these columns, as arrays of one.

    Raises `UsageError` for an unknown column, `BadInput` for a value that its column cannot hold.
    """
    found = {}
    for name, value in values.items():
        field = schema.find(name)
        if field is None:
            meant, names = did_you_mean(name, schema.field_names), ", ".join(schema.field_names)
            raise UsageError(f"no column '{name}'", "the table has no such column", f"{meant}columns: {names}")
        try:
            found[name] = cast_column(python_array([value], field.type), field.type)
        except BadCells as problem:
            raise _misfit(field, value, problem.first.why) from problem
        except WrongType as problem:
            raise _misfit(field, value, problem.why or f"its type is {type(value).__name__}") from problem
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
            raise _misfit(field, value, str(problem)) from problem
    return found


def _misfit(field: DataField, value: Any, why: str) -> BadInput:
    what = f"{shown(value)} is no value of column '{field.name}' ({type_to_sql(field.type)})"
    return BadInput(what, why, column=field.name)


def table_of_rows(rows: Sequence[Mapping[str, Any]], schema: TableSchema) -> pa.Table:
    """Rows with values by column; a column that a row lacks is null in it. Without rows, the columns are those of the table.

    Raises `BadInput`, which names the column.
    """
    if not rows:
        return pa.schema([(field.name, arrow_type(field.type)) for field in schema.fields]).empty_table()
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:  # Arrow counts the rows by a column
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return table_of_columns({name: [row.get(name) for row in rows] for name in names}, schema)


def table_of_columns(columns: Mapping[str, Any], schema: TableSchema) -> pa.Table:
    """Columns of values by name, such as lists or arrays. Raises `BadInput`, which names the column."""
    return pa.table({name: _column(str(name), values, schema) for name, values in columns.items()})


def _column(name: str, values: Any, schema: TableSchema) -> pa.Array:
    field = schema.find(name)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        what = f"column '{name}' is no list of values"
        raise BadInput(what, f"its type is {type(values).__name__}", "for one row: [{...}]", column=name)
    try:
        return python_array(values if hasattr(values, "dtype") else list(values), None if field is None else field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise BadInput(f"column '{name}' cannot be converted", str(error), column=name) from error


def python_array(values: Sequence[Any], t: DataType | None) -> pa.Array:
    """The values as Arrow infers them, for a column of this type (None: not of the table). Nested values have the type already.

    Raises Arrow's errors, `ValueError`, `TypeError` and `OverflowError` for values that are no column.
    """
    if isinstance(t, VariantType) and not any(isinstance(value, Mapping) and value.keys() == _STORED for value in values):
        return pa.array([_json(value) for value in values], pa.string())
    if isinstance(t, NestedType):
        return pa.array([_nested(value, t) for value in values], arrow_type(t))
    if isinstance(t, DecimalType):
        values = [_decimal(value) for value in values]
    found = pa.array(values)
    is_wide = t is not None and t.root == "FLOAT" and pa.types.is_float64(found.type)
    return found.cast(pa.float32()) if is_wide and _are_finite_as_floats(found) else found


def _are_finite_as_floats(numbers: pa.Array) -> bool:
    """Whether no number becomes infinite as a FLOAT. Python has no FLOAT, so that 0.1 becomes the nearest one."""
    narrow, wide = (part.to_numpy(zero_copy_only=False) for part in (numbers.cast(pa.float32()), numbers))
    return bool((np.isfinite(narrow) | ~np.isfinite(wide)).all())


def _json(value: Any) -> str | None:
    """A document as JSON; a text is JSON already, as in a column of texts."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def _nested(value: Any, t: DataType) -> Any:
    """The value as Arrow takes it: a dict for a MAP is a list of pairs."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(t, ArrayType) and isinstance(value, (list, tuple, set, frozenset)):
        return [_nested(one, t.element) for one in value]
    if isinstance(t, (MapType, MultisetType)) and value is not None:
        return [(_nested(key, t.key), _nested(one, t.value)) for key, one in _pairs(value)]
    if isinstance(t, RowType) and isinstance(value, Mapping):
        types = {field.name: field.type for field in t.fields}
        if unknown := [name for name in value if name not in types]:
            raise ValueError(f"the ROW has no field '{unknown[0]}'")
        return {name: _nested(one, types[name]) for name, one in value.items()}
    return _decimal(value) if isinstance(t, DecimalType) else value


def _pairs(value: Any) -> Iterable[Sequence[Any]]:
    """The keys and values of a MAP. Raises `ValueError` for what has none: Arrow ends the process for a pair that is None."""
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, (list, tuple)) or any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pairs):
        raise ValueError("a MAP is a dict, or a list of pairs")
    return pairs


def _decimal(value: Any) -> Any:
    """A number as the decimal that it is written as; other values unchanged. Raises `ValueError` for NaN and infinity."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        raise ValueError(f"a DECIMAL cannot be {value}")
    return Decimal(str(value)) if isinstance(value, (int, float)) else value
