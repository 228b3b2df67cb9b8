"""The rows of a scan that Python workers read, and merge where files overlap, in tasks that return Arrow batches.

`paimon_cli.spark.read` sends the tasks itself; for `format("paimon")` they are Spark's partitions of a data source.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from paimon_cli.datatypes.arrow_types import retyped
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.jobs.spark.submit import send_package
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.read.scan_plan import Split
from paimon_cli.spark.spark_types import nullable_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def merged_frame(spark: SparkSession, scan: RowScan, splits: Sequence[Split]) -> DataFrame:
    """The splits read by Python workers, one task for each."""
    schema = nullable_schema(scan.fields)
    if not splits:
        return spark.createDataFrame([], schema)
    send_package(spark)
    tasks = [pickle.dumps(part) for part in task_parts(scan, splits)]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reading(tasks, to_arrow_schema(schema, timezone="UTC")), schema)


def task_parts(scan: RowScan, splits: Sequence[Split]) -> list[RowScan]:
    """The part of the scan that each task of Python workers reads."""
    return list(replace(scan, plan=replace(scan.plan, splits=tuple(splits))).parts())


def _reading(tasks: Sequence[bytes], schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of all tasks: a task receives all parts of the scan, and unpickles only its own."""

    def read_tasks(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
            yield from _spark_rows(pickle.loads(tasks[number]), schema)

    return read_tasks


def _spark_rows(part: RowScan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one part of a scan, in a task, in the Arrow types that Spark accepts."""
    with called_by_spark():
        for rows in part.rows():
            columns = [retyped(rows.column(column.name), column.type, pa.Array.cast) for column in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class PlannedInTask:
    """A partition of a data source with all rows of the table, at this snapshot unless the options say otherwise.

    If waiting rows are merged in, the plan distributes them into files on local disk, which last as long as its process.
    """

    snapshot: int | None


def split_partitions(scan: RowScan) -> list[InputPartition]:
    """For a data source: one partition for each split of the scan, or one without rows if there are no splits."""
    return [InputPartition(part) for part in scan.parts()] or [InputPartition(None)]


def planned(plan: Callable[[], Sequence[InputPartition]]) -> Sequence[InputPartition]:
    """The partitions; after an error of the plan a single one, whose task raises the error.

    The process in which Spark plans belongs to no job, and so cannot sign an error for the driver; a task can.
    """
    try:
        return plan()
    except PaimonError as error:
        return [InputPartition(error)]


def read_partition(partition: InputPartition, schema: T.StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a partition of `split_partitions`, in the Arrow schema that Spark derives from `schema`."""
    if isinstance(partition.value, PaimonError):
        with called_by_spark():
            raise partition.value
    return iter(()) if partition.value is None else _spark_rows(partition.value, to_arrow_schema(schema, timezone="UTC"))


def check_types(schema: T.StructType, scan: RowScan) -> None:
    """Raise `UsageError` if the type of a column in the user's schema is not that of the table."""
    for requested, stored in zip(schema, nullable_schema(scan.fields), strict=True):
        if requested.dataType != stored.dataType:
            name, type_name = requested.name, requested.dataType.simpleString()
            raise UsageError(
                f"column {name} is read as {type_name}",
                f"in the table it is {stored.dataType.simpleString()}",
                f'give it that type, or cast it afterwards: .selectExpr("CAST({name} AS {type_name})")',
            )
