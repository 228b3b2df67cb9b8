"""One bucket's rows between their arrival and their level-0 file: in memory, then as sorted runs on local disk."""

from __future__ import annotations

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.merge_passes import OpenRun, merge_in_passes
from paimon_cli.bucket.spilled_runs import SPILLED_BATCH_BYTES, SpillDirectory, SpilledRun
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.interleave import Interleave
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import PIECE_BYTES, merge_in_memory, rows_of


class SortBuffer:
    """Collects batches in `merge_schema`, each sorted by key, in the order of arrival and flushes them as one sorted run.

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
        """Take rows in key order."""
        self._batches.append(rows)
        self.size += rows.nbytes

    @property
    def is_empty(self) -> bool:
        return not (self._batches or self._runs)

    def spill(self) -> None:
        """Move the rows in memory to disk, all of them: merging is for the flush, which sees every row of a key."""
        batches = self._taken()
        pieces = merge_in_memory(batches, self._keys, Interleave(), rows_of(batches, SPILLED_BATCH_BYTES))
        self._runs.append(self._spill.write(pieces, batches[0].schema))

    def flush(self, writer: DataFileWriter) -> None:
        """Merge all rows by key and write them; empty afterwards."""
        if not self._runs:
            batches = self._taken()
            for batch in merge_in_memory(batches, self._keys, self._engine, rows_of(batches, PIECE_BYTES)):
                writer.write(batch)
            return
        if self._batches:
            self.spill()
        # What small buffers have left is no room for the big ones of a merge.
        pa.default_memory_pool().release_unused()
        runs, self._runs = self._runs, []
        opened: list[OpenRun] = [run.read for run in runs]
        most = self._context.options.local_sort_max_file_handles
        for batch in merge_in_passes(opened, self._keys, self._engine, most, keys_repeat=True):
            writer.write(batch)
        for run in runs:
            self._spill.remove(run)

    def _taken(self) -> list[pa.RecordBatch]:
        batches, self._batches, self.size = self._batches, [], 0
        return batches
