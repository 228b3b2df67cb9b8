"""Rows of one bucket in arrival order -> merged, sorted rows in a level-0 file (Java MergeTreeWriter, format section 7.3)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER

ROWS_PER_PIECE = 65536


def flush_rows(context: TableContext, batches: Sequence[pa.RecordBatch], writer: DataFileWriter) -> int:
    """Sort the batches together, merge rows of equal keys and write the result; returns the rows written."""
    engine = merge_engine(context.schema, context.options)
    ordered = sorted_rows(pa.concat_batches(batches), context.schema.trimmed_primary_keys, engine)
    written = 0
    for piece in ordered.pieces(ROWS_PER_PIECE):
        merged = engine.merge(piece)
        writer.write(merged)
        written += merged.num_rows
    return written


def numbered(batch: pa.RecordBatch, first_sequence: int) -> pa.RecordBatch:
    """Turn places in the order of arrival into sequence numbers of the bucket."""
    if first_sequence == 0:
        return batch
    index = batch.schema.get_field_index(SEQUENCE_NUMBER)
    sequence = pc.add(batch.column(index), pa.scalar(first_sequence, pa.int64()))
    return batch.set_column(index, batch.schema.field(index), sequence)
