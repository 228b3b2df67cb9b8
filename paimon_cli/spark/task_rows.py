"""The rows of a DataFrame as a source of a write: each task checks and numbers those that it receives from Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import ARROW, RowSource
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import RawRows, SourceSplit
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.write.write_plan import WritePlan

ROWS_OF_PARTITION = 1 << 40
"""Arrival numbers reserved for each partition of the DataFrame: more than a partition can have rows."""


@dataclass(frozen=True)
class FrameRows(RowSource):
    """Rows that a task receives as Arrow batches. The driver has none of them, and so no splits to plan.

    `timezone`: used to convert instants for columns without time zone.
    """

    timezone: str | None = None
    batches: Iterable[pa.RecordBatch] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def form(self) -> TextForm:
        return TextForm(timezone=self.timezone)

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        return []

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        row = 0
        for batch in self.batches:
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows


def checked_rows(plan: WritePlan, batches: Iterable[pa.RecordBatch], partition: int, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows of one partition of the DataFrame, converted to the types of the table. Raises `BadInput`."""
    return _checked(plan, batches, partition, f"partition {partition} of the DataFrame", tally)


def check_columns(plan: WritePlan, schema: StructType) -> None:
    """Raise `BadInput`, before any task runs, for unknown or missing columns, and types that cannot be converted."""
    columns = arrow_columns(schema)
    no_rows = pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in columns], schema=columns)
    for _ in _checked(plan, [no_rows], 0, "the DataFrame", Tally()):
        continue


def arrow_columns(schema: StructType) -> pa.Schema:
    """The columns of a DataFrame as its tasks get them. Raises `BadInput` for a type that Arrow does not have."""
    return pa.schema([_arrow_field(column) for column in schema.toNullable()])


def partition_number() -> int:
    """The number of the partition that this task of Spark computes."""
    task = TaskContext.get()
    assert task is not None, "Spark runs tasks with a context"
    return int(task.partitionId())


def _arrow_field(column: StructField) -> pa.Field:
    """The column of a nullable schema in Arrow. Raises `BadInput` for `map()`, whose keys have no type and may not be null."""
    try:
        return to_arrow_schema(StructType([column]), timezone="UTC").field(0)
    except ValueError as problem:
        what = f"the DataFrame: column '{column.name}' has type {column.dataType.simpleString()}"
        hint = "cast it, for example to map<string, string>"
        raise BadInput(what, "Arrow has no maps whose keys have no type", hint, column=column.name) from problem


def _checked(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], partition: int, name: str, tally: Tally
) -> Iterator[pa.RecordBatch]:
    incoming = plan.incoming
    assert isinstance(incoming, IncomingRows)
    assert isinstance(incoming.source, FrameRows)
    split = SourceSplit("", ARROW, 0, None, 0, partition * ROWS_OF_PARTITION, name, arrivals=ROWS_OF_PARTITION)
    return replace(incoming, source=replace(incoming.source, batches=batches)).read(split, tally)


def is_of_frame(plan: WritePlan) -> bool:
    """Whether the plan writes the rows of a DataFrame, rather than rows that tasks read from files."""
    return isinstance(plan.incoming, IncomingRows) and isinstance(plan.incoming.source, FrameRows)
