"""All rows of a scan in memory, its splits read side by side (Arrow works outside of Python's lock)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file_schema import read_schema
from paimon_cli.read.predicate import Predicate
from paimon_cli.read.side_by_side import read_side_by_side
from paimon_cli.read.split import Split
from paimon_cli.read.split_reader import read_split


def scan_to_arrow(
    context: TableContext,
    splits: Sequence[Split],
    columns: Sequence[str],
    predicate: Predicate | None = None,
    keep_kinds: bool = False,
    threads: int = 1,
) -> pa.Table:
    """What `read_split` gives of all splits, in their order, `threads` of them at a time; chunks are not put together."""

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        return read_split(context, split, columns, predicate, keep_kinds)

    schema = read_schema(context.schema, columns)
    found = read_side_by_side(splits, read, threads)
    batches = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in found]
    return pa.Table.from_batches(batches, schema=schema)
