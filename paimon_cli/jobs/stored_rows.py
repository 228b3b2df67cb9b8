"""Rows that the table holds already, as the input of a job that writes them again: `SplitRows` for a `WritePlan`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, RowKind, merge_rows, merge_schema
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import Split
from paimon_cli.read.split_reader import read_split


@dataclass(frozen=True)
class NumberedSplit:
    """A split, with the arrival number of its first row."""

    split: Split
    first_arrival: int


@dataclass(frozen=True)
class RowsOfTable:
    """The rows that readers of `context` see, all `+I`: picklable `SplitRows` for a `WritePlan`."""

    context: TableContext

    def read(self, numbered: NumberedSplit, tally: Tally) -> Iterator[pa.RecordBatch]:
        """The rows of one split in `merge_schema`, keys ascending."""
        arrival = numbered.first_arrival
        schema = self.context.schema
        for batch in read_split(self.context, numbered.split, schema.field_names):
            columns = {name: batch.column(name) for name in schema.field_names}
            yield merge_rows(schema, columns, RowKind.INSERT, arrival)
            arrival += batch.num_rows
            tally.rows += batch.num_rows


def numbered_splits(splits: Iterable[Split]) -> tuple[NumberedSplit, ...]:
    """Give each split as many arrival numbers as its files have rows, which is the most that it can return."""
    numbered: list[NumberedSplit] = []
    arrival = 0
    for split in splits:
        numbered.append(NumberedSplit(split, arrival))
        arrival += split.row_count
    return tuple(numbered)


def rows_as_written(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, first_arrival: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a data file in `merge_schema`, in file order, with their row kinds, numbered from `first_arrival`."""
    schema, arrival = merge_schema(context.schema), first_arrival
    columns = [name for name in schema.names if name != SEQUENCE_NUMBER]
    for batch in read_data_file(context, bucket_id, file, columns, PIECES.batch_rows):
        numbers = pa.array(np.arange(arrival, arrival + batch.num_rows, dtype=np.int64))
        read = {SEQUENCE_NUMBER: numbers, **dict(zip(columns, batch.columns, strict=True))}
        yield pa.RecordBatch.from_arrays([read[name] for name in schema.names], schema=schema)
        arrival += batch.num_rows
