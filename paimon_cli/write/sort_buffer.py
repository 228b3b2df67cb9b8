"""One bucket's rows between their arrival and their level-0 file: in memory, then as sorted runs on local disk."""

from __future__ import annotations

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.merge_passes import OpenRun, merge_in_passes
from paimon_cli.bucket.spilled_runs import SPILLED_BATCH_BYTES, SpillDirectory, SpilledRun
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.interleave import Interleave
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.lsm.sorted_rows import SortedRows

ROWS_PER_PIECE = 65536


class SortBuffer:
    """Collects batches in `merge_schema` in the order of arrival and flushes them as one sorted run.

    (Java SortBufferWriteBuffer, format section 7.3.)
    """

    def __init__(self, context: TableContext, spill: SpillDirectory) -> None:
        self._context = context
        self._engine = merge_engine(context.schema, context.options)
        self._keys = context.schema.trimmed_primary_keys
        self._spill = spill
        self._batches: list[pa.RecordBatch] = []
        self._runs: list[SpilledRun] = []
        self.size = 0
        """Bytes in memory."""

    def add(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)
        self.size += rows.nbytes

    @property
    def is_empty(self) -> bool:
        return not (self._batches or self._runs)

    def spill(self) -> None:
        """Move the rows in memory to disk, all of them: merging is for the flush, which sees every row of a key."""
        rows = self._sorted()
        pieces = (Interleave().merge(piece) for piece in rows.pieces_of(SPILLED_BATCH_BYTES))
        self._runs.append(self._spill.write(pieces, rows.rows.schema))

    def flush(self, writer: DataFileWriter) -> None:
        """Merge all rows by key and write them; empty afterwards."""
        if not self._runs:
            for piece in self._sorted().pieces(ROWS_PER_PIECE):
                writer.write(self._engine.merge(piece))
            return
        if self._batches:
            self.spill()
        runs, self._runs = self._runs, []
        opened: list[OpenRun] = [run.read for run in runs]
        most = self._context.options.local_sort_max_file_handles
        for batch in merge_in_passes(opened, self._keys, self._engine, most, keys_repeat=True):
            writer.write(batch)
        for run in runs:
            self._spill.remove(run)

    def _sorted(self) -> SortedRows:
        batches, self._batches, self.size = self._batches, [], 0
        return sorted_rows(_in_one(batches), self._keys, self._engine)


def _in_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch; empties the list, column by column, so that they are never in memory twice."""
    schema = batches[0].schema
    parts = [[batch.column(number) for batch in batches] for number in range(len(schema))]
    batches.clear()
    columns = []
    for part in parts:
        columns.append(pa.concat_arrays(part))
        part.clear()
        # Small buffers make no room for big ones: without this they would be in memory twice after all.
        pa.default_memory_pool().release_unused()
    return pa.RecordBatch.from_arrays(columns, schema=schema)
