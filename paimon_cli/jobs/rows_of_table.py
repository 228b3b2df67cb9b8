"""Rows of a table as a write takes them in: what readers see of a snapshot, to be written anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from paimon_cli.datatypes.row_kind import INSERT
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.rejects import Tally
from paimon_cli.metadata.data_file_schema import merge_rows
from paimon_cli.read.split import Split
from paimon_cli.read.split_reader import read_split


@dataclass(frozen=True)
class NumberedSplit:
    """A split with the first of the numbers of arrival that its rows may take."""

    split: Split
    first_arrival: int


@dataclass(frozen=True)
class RowsOfTable:
    """Rows as `context` shows them, all +I; picklable, a `RowSource` of a `WritePlan`."""

    context: TableContext

    def read(self, numbered: NumberedSplit, tally: Tally) -> Iterator[pa.RecordBatch]:
        """In `merge_schema`, keys ascending."""
        arrival = numbered.first_arrival
        schema = self.context.schema
        for batch in read_split(self.context, numbered.split, schema.field_names):
            columns = {name: batch.column(name) for name in schema.field_names}
            yield merge_rows(schema, columns, INSERT, arrival)
            arrival += batch.num_rows
            tally.rows += batch.num_rows


def numbered_splits(splits: Iterable[Split]) -> tuple[NumberedSplit, ...]:
    """Each split gets as many numbers as its files have rows: it never shows more."""
    numbered: list[NumberedSplit] = []
    arrival = 0
    for split in splits:
        numbered.append(NumberedSplit(split, arrival))
        arrival += split.row_count
    return tuple(numbered)
