"""Writes the rows of one task (a local write, or a writer task on Spark) into level-0 files, and compacts them if required.

`write_rows` reads the splits. A `TableWriter` routes their rows to one `BucketWriter` per bucket, which holds them in the common
`WriteBuffer` until they are flushed into level-0 files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from types import TracebackType
from typing import Any

import pyarrow as pa

from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.metadata.data_file import BucketId, CommitMessage, IndexFileMeta
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import Step
from paimon_cli.storage.threads import JobThreads, ReadAhead, map_ahead
from paimon_cli.write.bucket_writer import BucketWriter, Compactions, InThisThread, WrittenBucket
from paimon_cli.write.write_buffer import BufferUse, WriteBuffer
from paimon_cli.write.write_plan import Tallies, WritePlan


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
            message = bucket.message
            if (index := index_files.get(message.bucket_id)) is not None:
                message = replace(message, append=replace(message.append, added_indexes=(index,)))
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

    `tallies` is filled with the tally of each split. With several `threads`, input is decoded and sorted ahead, unless it is
    little and in memory, and buckets are merged, written and compacted in parallel at the end.
    """
    few = PIECES.written_at_once_bytes
    ahead = 1 if sum(split.size if _is_in_memory(split) else few for split in plan.splits) < few else threads
    tallies.update((number, Tally()) for number in range(len(plan.splits)))
    batches = (batch for number, split in enumerate(plan.splits) for batch in plan.incoming.read(split, tallies[number]))
    with TableWriter(plan, threads) as writer:
        with ReadAhead(batches, PIECES.read_ahead_bytes) if ahead > 1 else nullcontext(batches) as rows:
            writer.write_all(plan.placed(rows), on_rows, ahead)
        return writer.finish()


def _is_in_memory(split: Any) -> bool:
    return isinstance(split, SourceSplit) and not split.path


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
        self._memory = WriteBuffer(plan.context, plan.buffer_size, postpones=self._postpones, sort_keys=plan.sort_keys)
        self._compactions = None
        if (compaction := plan.compaction) is not None:
            executor = executor or self._executor(compaction.beside)
            self._compactions = Compactions(plan.context, compaction.compact_bucket, executor)
        self._buckets: dict[BucketId, BucketWriter] = {}

    def _executor(self, beside: bool) -> Executor:
        has_threads = beside and self._plan.context.read_threads > 1
        return JobThreads(self._threads, "compaction") if has_threads else InThisThread()

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

    def write_all(self, batches: Iterable[pa.RecordBatch], on_rows: Callable[[int], None], threads: int) -> None:
        """Write batches one by one. With several `threads` they are routed and sorted ahead, if the router allows that."""
        threads = threads if self._router.routes_in_any_order else 1
        with closing(map_ahead(self._routed_ahead, batches, threads)) as routed:
            for rows, pieces in routed:
                self._add(pieces)
                on_rows(rows)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows in `merge_schema`, which come in the order of arrival, in pieces that fit into the write buffer."""
        self._add(self._routed(batch))

    def _routed_ahead(self, batch: pa.RecordBatch) -> tuple[int, Iterable[tuple[BucketId, pa.RecordBatch]]]:
        """The number of rows, and their pieces; those of a large batch are made when they are needed."""
        return batch.num_rows, list(self._routed(batch)) if batch.nbytes <= PIECES.sort_ahead_bytes else self._routed(batch)

    def _routed(self, batch: pa.RecordBatch) -> Iterator[tuple[BucketId, pa.RecordBatch]]:
        step = max(1, batch.num_rows * self._plan.buffer_size // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            rows = batch.slice(start, step)
            routed = self._router.route(rows)
            yield from routed.pieces(self._memory.order_of(routed.rows))

    def _add(self, pieces: Iterable[tuple[BucketId, pa.RecordBatch]]) -> None:
        if self._compactions is not None:
            self._compactions.check()
        for bucket_id, rows in pieces:
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
        pool = JobThreads(self._threads, "flush")
        try:
            return list(pool.map(BucketWriter.finish, buckets))
        except BaseException:
            if self._compactions is not None:
                self._compactions.give_up()  # the other buckets' threads wait for them
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
