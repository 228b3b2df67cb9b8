"""Rows -> level-0 files of all buckets of one task, compacted as they grow: a local write, or a writer task on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import reduce
from types import TracebackType

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import check_writable
from paimon_cli.datatypes.key_order import order_words, stable_order
from paimon_cli.ingest.rejects import Tally
from paimon_cli.metadata.data_file import BucketId, CommitMessage
from paimon_cli.options.option_catalog import WRITE
from paimon_cli.storage.threads import ReadAhead
from paimon_cli.storage.trace import Step
from paimon_cli.write.bucket_writer import BucketWriter, Compactions, InThisThread, WrittenBucket
from paimon_cli.write.write_buffer import BufferUse, WriteBuffer
from paimon_cli.write.write_plan import Tallies, WritePlan

READ_AHEAD_BYTES = 32 << 20


@dataclass(frozen=True)
class Written:
    """What a task did, or all tasks of a write. `steps`: those of its trace that nobody has been shown."""

    buckets: tuple[WrittenBucket, ...] = ()
    buffer: BufferUse = field(default_factory=BufferUse)
    steps: tuple[Step, ...] = ()

    @property
    def messages(self) -> list[CommitMessage]:
        return [bucket.message for bucket in self.buckets]

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
    """Write all splits; `on_rows` hears of progress. When it fails, its level-0 files are removed.

    `tallies` gets what was found in each split. With several `threads` input is decoded ahead, and buckets are sorted, written
    and compacted side by side in the end.
    """
    plan.context.mode.check(WRITE, plan.context.address)
    check_writable(plan.context.schema, plan.context.options)
    tallies.update((number, Tally()) for number in range(len(plan.splits)))
    batches = (batch for number, split in enumerate(plan.splits) for batch in plan.incoming.read(split, tallies[number]))
    with TableWriter(plan, threads) as writer:
        with ReadAhead(batches, READ_AHEAD_BYTES) if threads > 1 else nullcontext(batches) as rows:
            for batch in rows:
                writer.write(batch)
                on_rows(batch.num_rows)
        return writer.finish()


class TableWriter:
    """Writes the buckets of one task; leave its `with` block by an exception, and the files are removed.

    All buckets share one write buffer. A bucket with `num-sorted-run.stop-trigger` runs is compacted before its next flush (a
    stall), and every bucket is offered to the compaction at the end. Where the plan compacts beside the writing, each flush
    offers its bucket, and compactions run in `threads` of their own; `executor` runs them instead where it is given.
    """

    def __init__(self, plan: WritePlan, threads: int = 1, executor: Executor | None = None) -> None:
        self._plan = plan
        self._threads = threads
        self._router = plan.router()
        self._keys = plan.context.schema.trimmed_primary_keys
        self._buffer = WriteBuffer(plan.context)
        self._compactions = None
        if plan.compact_bucket is not None:
            self._compactions = Compactions(plan.context, plan.compact_bucket, executor or self._executor())
        self._buckets: dict[BucketId, BucketWriter] = {}

    def _executor(self) -> Executor:
        is_beside = self._plan.compacts_beside and self._plan.context.read_threads > 1
        return ThreadPoolExecutor(self._threads, "compaction") if is_beside else InThisThread()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._compactions is not None:
            if kind is not None:
                self._compactions.give_up()
            self._compactions.close()
        self._buffer.close()
        if kind is not None:
            for bucket in self._buckets.values():
                bucket.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows in `merge_schema` in the order of arrival, in pieces that a buffer has room for."""
        if self._compactions is not None:
            self._compactions.check()
        step = max(1, batch.num_rows * self._plan.context.options.write_buffer_size // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            self._write(batch.slice(start, step))

    def _write(self, batch: pa.RecordBatch) -> None:
        # Sorted while they are in the processor's cache: the flush then merges runs instead of gathering rows from everywhere.
        order = stable_order(order_words([batch.column(name) for name in self._keys]))
        for bucket_id, rows in self._router.route(batch).pieces(batch, order):
            if bucket_id not in self._buckets:
                self._plan.check_total(bucket_id.partition)
                self._buckets[bucket_id] = BucketWriter(self._plan, bucket_id, self._buffer, self._compactions)
            self._buckets[bucket_id].write(rows)

    def finish(self) -> Written:
        """Flush what is left and compact; one result per bucket that got rows."""
        written = tuple(self._finished(list(self._buckets.values())))
        return Written(written, self._buffer.use, self._plan.context.trace.taken())

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
