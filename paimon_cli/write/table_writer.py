"""Routed rows -> sort buffers -> level-0 files -> inline compaction: a write in this process, or a writer task on Spark."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileNames, DataFileWriter, check_writable
from paimon_cli.bucket.spilled_runs import SpillDirectory
from paimon_cli.datatypes.key_order import order_words
from paimon_cli.datatypes.stable_order import stable_order
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.storage.read_ahead import ReadAhead
from paimon_cli.write.bucket_router import BucketRouter
from paimon_cli.write.bucket_tree import BucketTree
from paimon_cli.write.sequence_numbers import numbered
from paimon_cli.write.sort_buffer import SortBuffer
from paimon_cli.write.write_plan import WritePlan

BucketKey = tuple[bytes, int]
READ_AHEAD_BYTES = 32 << 20


@dataclass(frozen=True)
class WrittenBucket:
    """What a write did to one bucket. `stalls`: how often it had to compact before it could go on; `stall_millis` in all."""

    message: CommitMessage
    stalls: int = 0
    stall_millis: int = 0


def write_rows(plan: WritePlan, on_rows: Callable[[int], None] = lambda rows: None, threads: int = 1) -> list[WrittenBucket]:
    """Write all splits; `on_rows` hears of progress. When it fails, its level-0 files are removed.

    With several `threads` input is decoded ahead, and buckets are sorted, written and compacted side by side in the end.
    """
    check_writable(plan.context)
    batches = (batch for split in plan.splits for batch in plan.incoming.read(split))
    with TableWriter(plan) as writer:
        with ReadAhead(batches, READ_AHEAD_BYTES) if threads > 1 else nullcontext(batches) as rows:
            for batch in rows:
                writer.write(batch)
                on_rows(batch.num_rows)
        return writer.finish(threads)


class TableWriter:
    """Writes the buckets of one task; leave its `with` block by an exception, and the files are removed.

    Buffers of all buckets share `write-buffer-size`. When it is full the biggest buffer is spilled, so that a bucket gets
    one sorted run however much is written; without `write-buffer-spillable`, or with `write-buffer-spill.max-disk-size`
    spent, it is flushed. A bucket with `num-sorted-run.stop-trigger` runs is compacted before its next flush (a stall), and
    every bucket is offered to the compaction at the end.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._options = plan.context.options
        self._router = BucketRouter(plan.context.schema, self._options)
        self._keys = plan.context.schema.trimmed_primary_keys
        self._spill = SpillDirectory()
        self._buckets: dict[BucketKey, _BucketWriter] = {}

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._spill.close()
        if kind is not None:
            for bucket in self._buckets.values():
                bucket.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows in `merge_schema` in the order of arrival, in pieces that a buffer has room for."""
        step = max(1, batch.num_rows * self._options.write_buffer_size // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            self._write(batch.slice(start, step))

    def _write(self, batch: pa.RecordBatch) -> None:
        # Sorted while they are in the processor's cache: the flush then merges runs instead of gathering rows from everywhere.
        order = stable_order(order_words([batch.column(name) for name in self._keys]))
        for partition, number, rows in self._router.split(batch, order):
            key = (partition, number)
            if key not in self._buckets:
                self._plan.check_total(partition)
                self._buckets[key] = _BucketWriter(self._plan, key, self._spill)
            self._buckets[key].buffer.add(numbered(rows, self._plan.first_sequence(*key)))
        while sum(bucket.buffer.size for bucket in self._buckets.values()) > self._options.write_buffer_size:
            biggest = max(self._buckets.values(), key=lambda bucket: bucket.buffer.size)
            if self._may_spill():
                biggest.buffer.spill()
            else:
                biggest.flush()

    def _may_spill(self) -> bool:
        options = self._options
        return options.write_buffer_spillable and self._spill.size < options.write_buffer_spill_max_disk_size

    def finish(self, threads: int = 1) -> list[WrittenBucket]:
        """Flush what is left and compact; one result per bucket that got rows."""
        buckets = list(self._buckets.values())
        if threads == 1 or len(buckets) == 1:
            return [bucket.finish() for bucket in buckets]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(_BucketWriter.finish, buckets))


class _BucketWriter:
    """One bucket: its buffer, its tree and the files of this task in it."""

    def __init__(self, plan: WritePlan, key: BucketKey, spill: SpillDirectory) -> None:
        self._plan = plan
        self._key = key
        self._tree = BucketTree(plan.context, plan.existing.get(key, BucketFiles(*key, plan.total_buckets, ())))
        self._names = DataFileNames(plan.context, plan.file_stamp)
        self._writers: list[DataFileWriter] = []
        self._stalls = 0
        self._stall_millis = 0
        self.buffer = SortBuffer(plan.context, spill)

    def flush(self) -> None:
        self._wait_for_room()
        writer = self._plan.level_0_writer(*self._key, self._names)
        self._writers.append(writer)
        self.buffer.flush(writer)
        self._tree.flushed(writer.close())

    def _wait_for_room(self) -> None:
        """Back pressure: more runs would make every read, and the compaction itself, slower than this write is worth."""
        compact_bucket, clock = self._plan.compact_bucket, self._plan.context.clock
        if compact_bucket is None or self._tree.run_count < self._plan.context.options.stop_trigger:
            return
        started = clock.now_millis()
        self._tree.compact(compact_bucket)
        self._stalls += 1
        self._stall_millis += clock.now_millis() - started

    def finish(self) -> WrittenBucket:
        if not self.buffer.is_empty:
            self.flush()
        if self._plan.compact_bucket is not None:
            self._tree.compact(self._plan.compact_bucket)
        return WrittenBucket(self._tree.message(self._plan.read_snapshot_id), self._stalls, self._stall_millis)

    def abort(self) -> None:
        """Remove the level-0 files; compacted ones bear the job's stamp and go with it."""
        for writer in self._writers:
            writer.abort()
