"""The default value of a column as one Arrow cell, and columns filled with it (Java DefaultValueUtils, DefaultValueRow)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.casts.column_cast import STRING, cast_column
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import DataField, DataType, type_to_sql
from paimon_cli.errors import NotSupported


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
