"""Batches on their way through Spark: columns without names, times as integers, so that nothing is converted.

Spark has no TIME, keeps timestamps in microseconds and shifts some dates. Hence DATE, TIME and TIMESTAMP columns (nested
ones too) travel as the integers they consist of; in both directions that is a view of the same memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from paimon_cli.datatypes.hidden_nulls import retyped


def carrier_type(t: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark carries `t` in: same bytes in memory, nullable throughout."""
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return pa.int32()
    if pa.types.is_timestamp(t):
        return pa.int64()
    if pa.types.is_map(t):
        return pa.map_(carrier_type(t.key_type), carrier_type(t.item_type))
    if pa.types.is_list(t):
        return pa.list_(pa.field("element", carrier_type(t.value_type)))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(f"_{i}", carrier_type(t.field(i).type)) for i in range(t.num_fields)])
    return t


def carrier_name(position: int) -> str:
    """Name of a column in Spark: table columns may hold dots, quotes, or differ in case only."""
    return f"c{position}"


def carrier_schema(types: Iterable[pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(carrier_name(i), carrier_type(t)) for i, t in enumerate(types)])


def spark_schema(carrier: pa.Schema) -> StructType:
    return from_arrow_schema(carrier)


def to_carrier(columns: Iterable[pa.Array], carrier: pa.Schema) -> pa.RecordBatch:
    """Columns as Spark takes them."""
    views = [column.view(field.type) for column, field in zip(columns, carrier, strict=True)]
    return pa.RecordBatch.from_arrays(views, schema=carrier)


def from_carrier(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The exact inverse; `schema` names and types the columns by position."""
    views = [retyped(column, field.type, pa.Array.view) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(views, schema=schema)
