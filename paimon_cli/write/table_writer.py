"""Writes the rows of one task (a local write, or a writer task on Spark) into level-0 files, and compacts them if required.

`write_rows` reads the splits. A `TableWriter` routes their rows to one `BucketWriter` per bucket, which holds them in the common
`WriteBuffer` until they are flushed into level-0 files. A `BucketTree` keeps track of the files of a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_writer import DataFileWriter, changelog_writer
from paimon_cli.ingest.faults import Tally
from paimon_cli.metadata.data_file import BucketId, CommitMessage, IndexFileMeta, file_facts
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.storage.injected import Step
from paimon_cli.storage.threads import ReadAhead
from paimon_cli.write.bucket_tree import BucketTree, Compactions, InThisThread
from paimon_cli.write.write_buffer import BufferUse, WriteBuffer
from paimon_cli.write.write_plan import Tallies, WritePlan

READ_AHEAD_BYTES = 32 << 20


@dataclass(frozen=True)
class WrittenBucket:
    """The result of a write in one bucket.

    `stalls`, `stall_millis`: how often and how long rows had to wait for a compaction. `wait_millis`: how long the write waited
    for compactions at the end. `compaction_lost`: why compactions of the bucket were dropped, if they were.
    """

    message: CommitMessage
    stalls: int = 0
    stall_millis: int = 0
    wait_millis: int = 0
    compaction_lost: str | None = None


@dataclass(frozen=True)
class Written:
    """The result of one task, or of all tasks of a write. `steps`: steps of the trace that have not been shown yet."""

    buckets: tuple[WrittenBucket, ...] = ()
    buffer: BufferUse = field(default_factory=BufferUse)
    steps: tuple[Step, ...] = ()

    @cached_property
    def messages(self) -> list[CommitMessage]:
        return [bucket.message for bucket in self.buckets]

    def with_index_files(self, index_files: Mapping[BucketId, IndexFileMeta]) -> Written:
        """The result with new hash index files. Each of their buckets has a message, because new keys have rows."""
        if not index_files:
            return self
        buckets = []
        for bucket in self.buckets:
            index = index_files.get(bucket.message.bucket_id)
            message = bucket.message if index is None else replace(bucket.message, new_index_files=(index,))
            buckets.append(replace(bucket, message=message))
        return replace(self, buckets=tuple(buckets))

    @staticmethod
    def of_tasks(parts: Iterable[Written]) -> Written:
        tasks = tuple(parts)
        return Written(
            tuple(bucket for task in tasks for bucket in task.buckets),
            reduce(BufferUse.with_other_task, (task.buffer for task in tasks), BufferUse()),
            tuple(step for task in tasks for step in task.steps),
        )


def write_rows(
    plan: WritePlan, tallies: Tallies, on_rows: Callable[[int], None] = lambda rows: None, threads: int = 1
) -> Written:
    """Write all splits. `on_rows` is called with the number of rows of each batch. After a failure all new files are removed.

    `tallies` is filled with the tally of each split. With several `threads`, input is decoded ahead, and buckets are sorted,
    written and compacted in parallel at the end.
    """
    tallies.update((number, Tally()) for number in range(len(plan.splits)))
    batches = (batch for number, split in enumerate(plan.splits) for batch in plan.incoming.read(split, tallies[number]))
    with TableWriter(plan, threads) as writer:
        with ReadAhead(batches, READ_AHEAD_BYTES) if threads > 1 else nullcontext(batches) as rows:
            for batch in plan.placed(rows):
                writer.write(batch)
                on_rows(batch.num_rows)
        return writer.finish()


class TableWriter:
    """Writes the buckets of one task. An exception that leaves its `with` block removes all new files.

    All buckets share one write buffer. A bucket with `num-sorted-run.stop-trigger` runs is compacted before its next flush (a
    stall), and every bucket is checked for a compaction at the end. If the plan compacts while rows are being written, each flush
    checks its bucket, and compactions run in `threads` of their own, or on `executor`.
    """

    def __init__(self, plan: WritePlan, threads: int = 1, executor: Executor | None = None) -> None:
        self._plan = plan
        self._threads = threads
        self._router = plan.router()
        self._postpones = plan.postpones
        self._memory = WriteBuffer(plan.context, postpones=self._postpones, sort_keys=plan.sort_keys)
        self._compactions = None
        if plan.compact_bucket is not None:
            self._compactions = Compactions(plan.context, plan.compact_bucket, executor or self._executor())
        self._buckets: dict[BucketId, BucketWriter] = {}

    def _executor(self) -> Executor:
        is_beside = self._plan.compacts_beside and self._plan.context.read_threads > 1
        return ThreadPoolExecutor(self._threads, "compaction") if is_beside else InThisThread()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._compactions is not None:
            if error_type is not None:
                self._compactions.give_up()
            self._compactions.close()
        self._memory.close()
        if error_type is not None:
            for bucket in self._buckets.values():
                bucket.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows in `merge_schema`, which come in the order of arrival, in pieces that fit into the write buffer."""
        if self._compactions is not None:
            self._compactions.check()
        step = max(1, batch.num_rows * self._plan.context.options.write_buffer_size // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            self._write(batch.slice(start, step))

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._postpones:
            self._memory.refuse_impossible_retractions(batch)
        routed = self._router.route(batch)
        for bucket_id, rows in routed.pieces(self._memory.order_of(routed.rows)):
            if bucket_id not in self._buckets:
                self._buckets[bucket_id] = BucketWriter(self._plan, bucket_id, self._memory, self._compactions)
            self._buckets[bucket_id].write(rows)

    def finish(self) -> Written:
        """Flush the remaining rows and compact. The result has one entry per bucket that got rows."""
        written = tuple(self._finished(list(self._buckets.values())))
        index_files = self._router.finish()
        return Written(written, self._memory.use, self._plan.context.trace.taken()).with_index_files(index_files)

    def _finished(self, buckets: list[BucketWriter]) -> list[WrittenBucket]:
        if self._threads == 1 or len(buckets) == 1:
            return [bucket.finish() for bucket in buckets]
        pool = ThreadPoolExecutor(self._threads, "flush")
        try:
            return list(pool.map(BucketWriter.finish, buckets))
        except BaseException:
            if self._compactions is not None:
                self._compactions.give_up()  # the other buckets' threads wait for them
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class BucketWriter:
    """Writes one bucket of a task: holds its rows in the write buffer, flushes them, and compacts its files."""

    def __init__(self, plan: WritePlan, bucket_id: BucketId, memory: WriteBuffer, compactions: Compactions | None) -> None:
        self._plan = plan
        self._bucket_id = bucket_id
        before, self._first_sequence, self._names = plan.start_of(bucket_id)
        self.path = plan.context.bucket_path(*bucket_id)
        self._tree = BucketTree(plan.context, before, compactions)
        self._writers: list[DataFileWriter] = []
        self._open: DataFileWriter | None = None
        self._arrived = 0
        self._stalls = self._stall_millis = 0
        self._memory = memory
        self.buffer = memory.row_buffer(self.path, self._level_0_files)
        memory.join(self)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows in the order of the buffer. Their sequence numbers are positions in the order of arrival.

        In append tables the rows of a bucket are renumbered without gaps.
        """
        if self._plan.context.mode.has_keys:
            self._memory.add(self, _numbered(rows, self._first_sequence))
            return
        self._memory.add(self, consecutively_numbered(rows, self._first_sequence + self._arrived))
        self._arrived += rows.num_rows

    def flush(self) -> None:
        self._flush("the write buffer is full")
        if self._plan.compacts_beside:
            self._tree.begin_compaction()

    def finish(self) -> WrittenBucket:
        """Flush the remaining rows, and wait until compactions have ended."""
        if not self.buffer.is_empty:
            self._flush("no more rows")
        waited = self._compact() if self._tree.is_compacted else 0
        message = self._tree.message(self._plan.read_snapshot_id)
        read_hash_index = self._plan.hash_index_state(self._bucket_id.partition)
        message = replace(message, read_hash_index=read_hash_index, keys_read_at=self._plan.keys_read_at)
        return WrittenBucket(message, self._stalls, self._stall_millis, waited, self._tree.compaction_lost)

    def _compact(self) -> int:
        """Compact the bucket if the triggers ask for it. Returns how many milliseconds this took."""
        started = self._plan.context.clock.now_millis()
        self._tree.take_result(wait=True)
        if self._tree.begin_compaction():
            self._tree.take_result(wait=True)
        return self._plan.context.clock.now_millis() - started

    def _flush(self, reason: str) -> None:
        self._wait_for_room()
        with self._plan.context.trace.timed("flush", bucket=self.path, reason=reason, level=0) as facts:
            writer, changelog = self._level_0_files(), None
            if self._plan.records_input:
                changelog = changelog_writer(self._plan.context, self._bucket_id, 0, self._plan.file_stamp)
                self._writers.append(changelog)
            self.buffer.flush(writer, changelog)
            self._open = None
            files, changes = writer.close(), changelog.close() if changelog else ()
            facts |= {**file_facts("", files), **(file_facts("changelog_", changes) if changes else {})}
        self._tree.flushed(files, changes)

    def _level_0_files(self) -> DataFileWriter:
        """The writer for the files of the next flush."""
        if self._open is None:
            self._open = self._plan.level_0_writer(self._bucket_id, self._names)
            self._writers.append(self._open)
        return self._open

    def _wait_for_room(self) -> None:
        """Back pressure: wait until the bucket has fewer runs than the stop trigger, which more runs would make slow to read."""
        self._tree.take_result(wait=False)
        context, runs = self._plan.context, self._tree.run_count
        if not self._tree.is_compacted or runs < context.options.stop_trigger:
            return
        started = context.clock.now_millis()
        with context.trace.timed("stall", bucket=self.path, runs=runs, stop_trigger=context.options.stop_trigger) as facts:
            self._compact_until_there_is_room()
            facts["runs_left"] = self._tree.run_count
        self._stalls += 1
        self._stall_millis += context.clock.now_millis() - started

    def _compact_until_there_is_room(self) -> None:
        """Compact until the bucket has fewer runs than the stop trigger, or the triggers ask for nothing more."""
        while self._tree.is_compacted and self._tree.run_count >= self._plan.context.options.stop_trigger:
            self._tree.begin_compaction()
            if not self._tree.take_result(wait=True) and not self._tree.has_unseen_runs:
                return

    def abort(self) -> None:
        """Remove the level-0 files. Files of compactions are removed with the job, by its stamp."""
        for writer in self._writers:
            writer.abort()


def _numbered(batch: pa.RecordBatch, first_sequence: int) -> pa.RecordBatch:
    """The batch with `first_sequence` added to each sequence number (FORMAT.md, section 7.3)."""
    if first_sequence == 0:
        return batch
    index = batch.schema.get_field_index(SEQUENCE_NUMBER)
    sequence = pc.add(batch.column(index), pa.scalar(first_sequence, pa.int64()))
    return batch.set_column(index, batch.schema.field(index), sequence)


def consecutively_numbered(batch: pa.RecordBatch, first_sequence: int) -> pa.RecordBatch:
    """The batch with consecutive sequence numbers, from `first_sequence` on."""
    index = batch.schema.get_field_index(SEQUENCE_NUMBER)
    numbers = pa.array(np.arange(first_sequence, first_sequence + batch.num_rows, dtype=np.int64))
    return batch.set_column(index, batch.schema.field(index), numbers)
