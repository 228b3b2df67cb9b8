"""Rows as Python has them, in dicts: as an Arrow table with the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paimon_cli.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.metadata.table_schema import TableSchema


def table_of_rows(rows: Sequence[Mapping[str, Any]], schema: TableSchema) -> pa.Table:
    """Rows with values by column; a column that a row lacks is null in it. Raises `BadInput`, which names the column."""
    names = dict.fromkeys(name for row in rows for name in row)
    return table_of_columns({name: [row.get(name) for row in rows] for name in names}, schema)


def table_of_columns(columns: Mapping[str, Any], schema: TableSchema) -> pa.Table:
    """Columns of values by name, such as lists or arrays. Raises `BadInput`, which names the column."""
    import pyarrow as pa

    return pa.table({name: _array(str(name), values, schema) for name, values in columns.items()})


def _array(name: str, values: Any, schema: TableSchema) -> pa.Array:
    import pyarrow as pa

    from paimon_cli.ingest.python_values import python_array

    field = schema.find(name)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        what = f"column '{name}' is a {type(values).__name__}"
        raise BadInput(what, "a column is a list of values", "for one row: [{...}]", column=name)
    try:
        return python_array(values if hasattr(values, "dtype") else list(values), None if field is None else field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise BadInput(f"column '{name}' cannot be converted", str(error), column=name) from error
