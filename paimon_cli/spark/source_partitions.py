"""Splits of a scan as partitions of a data source: each brings what its task needs, since Spark shares nothing between them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from paimon_cli.errors import UsageError
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.spark.reading import as_spark_rows
from paimon_cli.spark.spark_types import nullable_schema


def split_partitions(scan: RowScan) -> list[InputPartition]:
    """A partition for each split of the scan; without any, one that holds no rows, as Spark would make it."""
    return [InputPartition(part) for part in scan.parts()] or [InputPartition(None)]


def read_partition(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in the Arrow schema that Spark derives from `schema`."""
    expected = to_arrow_schema(schema, timezone="UTC")
    if partition.value is not None:
        for rows in partition.value.rows():
            yield as_spark_rows(rows, expected)


def check_types(schema: StructType, scan: RowScan) -> None:
    """`UsageError` if the user's schema gives a column another type than the table."""
    for given, own in zip(schema, nullable_schema(scan.fields), strict=True):
        if given.dataType != own.dataType:
            raise UsageError(
                f"column {given.name} is read as {given.dataType.simpleString()}",
                f"in the table it is {own.dataType.simpleString()}",
                f'give it that type, or cast it afterwards: .selectExpr("CAST({given.name} AS {given.dataType.simpleString()})")',
            )
