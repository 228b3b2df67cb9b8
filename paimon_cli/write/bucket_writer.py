"""One bucket in the hands of its writer: rows -> its buffer -> level-0 files, which are compacted as they become many."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_writer import DataFileNames, DataFileWriter
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.metadata.data_file import BucketId, CommitMessage, file_facts
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.write.bucket_tree import BucketTree, Compactions
from paimon_cli.write.write_buffer import SortBuffer, WriteBuffer
from paimon_cli.write.write_plan import WritePlan


@dataclass(frozen=True)
class WrittenBucket:
    """What a write did to one bucket.

    `stalls`: how often the write had to wait for a compaction, `stall_millis` in all; `wait_millis`: how long it waited for
    compactions at the end, before the commit. `compaction_lost`: why its compaction was dropped.
    """

    message: CommitMessage
    stalls: int = 0
    stall_millis: int = 0
    wait_millis: int = 0
    compaction_lost: str | None = None


class BucketWriter:
    """One bucket of a task: its part of the write buffer, its tree, and the files of this task in it."""

    def __init__(self, plan: WritePlan, key: BucketId, pool: WriteBuffer, compactions: Compactions | None) -> None:
        self._plan = plan
        self._key = key
        self._place = plan.context.bucket_path(*key)
        self._first_sequence = plan.first_sequence(*key)
        self._tree = BucketTree(plan.context, plan.existing.get(key, BucketFiles(*key, plan.total_buckets, ())), compactions)
        self._names = DataFileNames(plan.context, plan.file_stamp)
        self._writers: list[DataFileWriter] = []
        self._stalls = self._stall_millis = 0
        self._pool = pool
        self.buffer = SortBuffer(pool, self._place)
        pool.join(self)

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows in key order, which bear their places in the order of arrival as sequence numbers."""
        self._pool.add(self, _numbered(rows, self._first_sequence))

    def flush(self) -> None:
        self._flush("the write buffer is full")
        if self._plan.compacts_beside:
            self._tree.begin_compaction()

    def finish(self) -> WrittenBucket:
        """Flush what is left, and compact: a commit waits for that."""
        if not self.buffer.is_empty:
            self._flush("no more rows")
        clock = self._plan.context.clock
        started = clock.now_millis()
        self._tree.take_result(wait=True)
        if self._tree.begin_compaction():
            self._tree.take_result(wait=True)
        waited = clock.now_millis() - started
        message = self._tree.message(self._plan.read_snapshot_id)
        return WrittenBucket(message, self._stalls, self._stall_millis, waited, self._tree.compaction_lost)

    def _flush(self, reason: str) -> None:
        self._wait_for_room()
        with self._plan.context.trace.timed("flush", bucket=self._place, reason=reason, level=0) as facts:
            writer = self._plan.level_0_writer(*self._key, self._names)
            self._writers.append(writer)
            self.buffer.flush(writer)
            files = writer.close()
            facts |= file_facts("", files)
        self._tree.flushed(files)

    def _wait_for_room(self) -> None:
        """Back pressure: more runs would make every read, and the compaction itself, slower than this write is worth."""
        self._tree.take_result(wait=False)
        context, runs = self._plan.context, self._tree.run_count
        if not self._tree.is_compacted or runs < context.options.stop_trigger:
            return
        started = context.clock.now_millis()
        with context.trace.timed("stall", bucket=self._place, runs=runs, stop_trigger=context.options.stop_trigger) as facts:
            self._compact_until_there_is_room()
            facts["runs_left"] = self._tree.run_count
        self._stalls += 1
        self._stall_millis += context.clock.now_millis() - started

    def _compact_until_there_is_room(self) -> None:
        """Or until nothing is left that the triggers ask for."""
        while self._tree.is_compacted and self._tree.run_count >= self._plan.context.options.stop_trigger:
            self._tree.begin_compaction()
            if not self._tree.take_result(wait=True) and not self._tree.has_unseen_runs:
                return

    def abort(self) -> None:
        """Remove the level-0 files; compacted ones bear the job's stamp and go with it."""
        for writer in self._writers:
            writer.abort()


def _numbered(batch: pa.RecordBatch, first_sequence: int) -> pa.RecordBatch:
    """The batch with `first_sequence` added to each row's place (FORMAT.md, section 7.3)."""
    if first_sequence == 0:
        return batch
    index = batch.schema.get_field_index(SEQUENCE_NUMBER)
    sequence = pc.add(batch.column(index), pa.scalar(first_sequence, pa.int64()))
    return batch.set_column(index, batch.schema.field(index), sequence)
