"""Writes the rows of one bucket into level-0 files, and keeps track of its files: flushes add some, compactions replace them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_writer import DataFileWriter, changelog_writer
from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    BucketId,
    CommitMessage,
    DataFileMeta,
    FileChanges,
    IndexFileMeta,
    file_facts,
    upper_file_names,
    vector_file_names,
)
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.write.write_buffer import WriteBuffer
from paimon_cli.write.write_plan import CompactBucket, WritePlan


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
        if self._plan.compaction is not None and self._plan.compaction.beside:
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
        self._tree.compact()
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
        """Back pressure: wait until the bucket has fewer runs than the stop trigger, so that it does not become slow to read."""
        self._tree.take_result(wait=False)
        context, runs = self._plan.context, self._tree.run_count
        if not self._tree.is_compacted or runs < context.options.stop_trigger:
            return
        started = context.clock.now_millis()
        with context.trace.timed("stall", bucket=self.path, runs=runs, stop_trigger=context.options.stop_trigger) as facts:
            self._tree.make_room()
            facts["runs_left"] = self._tree.run_count
        self._stalls += 1
        self._stall_millis += context.clock.now_millis() - started

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


class InThisThread(Executor):
    """An executor that runs each task when it is submitted, so that runs are reproducible."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class Compactions:
    """Runs the compactions of one task on `executor`, until `close`."""

    def __init__(self, context: TableContext, compact_bucket: CompactBucket, executor: Executor) -> None:
        self._context = context
        self._compact_bucket = compact_bucket
        self._executor = executor
        self._given_up = threading.Event()
        self._first_failure: BaseException | None = None

    def begin(self, bucket: BucketFiles) -> Future[CommitMessage | None]:
        return self._executor.submit(self._run, bucket)

    def _run(self, bucket: BucketFiles) -> CommitMessage | None:
        try:
            return self._compact_bucket(self._context, bucket, self._given_up.is_set)
        except FilesConflict:
            raise
        except BaseException as failure:
            self._first_failure = self._first_failure or failure
            raise

    def check(self) -> None:
        """Raise the error of a failed compaction, because the writer could not finish either."""
        if self._first_failure is not None:
            raise self._first_failure

    def give_up(self) -> None:
        """Cancel running compactions, whose results are not needed any more."""
        self._given_up.set()

    def close(self) -> None:
        """Wait until no compaction is running."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class BucketTree:
    """The files of a bucket during a write, which become a commit message at the end.

    One compaction of a bucket runs at a time, over the files that existed when it started; flushes continue in parallel. A file
    that one compaction created and the next one replaced is not in the message, and deleted at once (Java MergeTreeWriter). If
    another job has replaced the files that a compaction reads, all compactions of the bucket are dropped; its flushes remain.
    """

    def __init__(self, context: TableContext, start: BucketFiles, compactions: Compactions | None) -> None:
        self._context = context
        self._start = start
        self._compactions = compactions
        self._running: Future[CommitMessage | None] | None = None
        self._live = list(start.files)
        self._index_files = start.index_files
        self._flushed: list[DataFileMeta] = []
        self._input_changes: list[DataFileMeta] = []
        self._compact_changes: list[DataFileMeta] = []
        self._before: dict[str, DataFileMeta] = {}
        self._after: dict[str, DataFileMeta] = {}
        self.has_unseen_runs = True
        """Whether files were added since the last compaction started."""
        self.compaction_lost: str | None = None
        """Why the compactions of the bucket were dropped, if they were."""

    @property
    def is_compacted(self) -> bool:
        """Whether this write compacts the bucket."""
        return self._compactions is not None

    @property
    def run_count(self) -> int:
        """The number of sorted runs: files of level 0, and levels above it that have files."""
        levels = [file.level for file in self._live]
        return levels.count(0) + len(set(levels) - {0})

    def flushed(self, files: Sequence[DataFileMeta], changelog: Sequence[DataFileMeta] = ()) -> None:
        self._flushed += files
        self._input_changes += changelog
        self._live += files
        self.has_unseen_runs = True

    def begin_compaction(self) -> bool:
        """Start a compaction. False if one is running, or if nothing was added since the last one started."""
        if self._compactions is None or self._running is not None or not self.has_unseen_runs:
            return False
        self.has_unseen_runs = False
        self._running = self._compactions.begin(replace(self._start, files=tuple(self._live), index_files=self._index_files))
        return True

    def take_result(self, *, wait: bool) -> bool:
        """Apply the result of the compaction if it has ended; with `wait`, wait for it. Returns whether it changed anything."""
        if self._running is None or not (wait or self._running.done()):
            return False
        running, self._running = self._running, None
        try:
            message = running.result()
        except FilesConflict as conflict:
            self._drop_compaction(conflict)
            return False
        if message is None:
            return False
        self._replace(message.compact.removed, message.compact.added)
        self._replace_index_files(message.compact.removed_indexes, message.compact.added_indexes)
        self._compact_changes += message.compact.changelog
        self.has_unseen_runs = True
        return True

    def make_room(self) -> None:
        """Compact until the bucket has fewer runs than the stop trigger, or the triggers ask for nothing more."""
        while self.is_compacted and self.run_count >= self._context.options.stop_trigger:
            self.begin_compaction()
            if not self.take_result(wait=True) and not self.has_unseen_runs:
                return

    def compact(self) -> None:
        """Compact the bucket if the triggers ask for it, after any compaction that is still running."""
        self.take_result(wait=True)
        if self.begin_compaction():
            self.take_result(wait=True)

    def _replace(self, before: Sequence[DataFileMeta], after: Sequence[DataFileMeta]) -> None:
        removed, added = {file.file_name for file in before}, {file.file_name for file in after}
        newest = max(index for index, file in enumerate(self._live) if file.file_name in removed)
        # Files stay ordered by age, which decides between equal sequence numbers.
        older, newer = self._live[: newest + 1], self._live[newest + 1 :]
        self._live = [*(file for file in older if file.file_name not in removed), *after, *newer]
        for file in before:
            self._consume(file, is_kept=file.file_name in added)
        self._after |= {file.file_name: file for file in after}

    def _replace_index_files(self, removed: Sequence[IndexFileMeta], added: Sequence[IndexFileMeta]) -> None:
        """Replace index files. Those created by an earlier compaction of this write are deleted at once, as data files are."""
        for file in removed:
            if file not in self._start.index_files:
                self._context.storage.delete(self._context.layout.index(file.file_name))
        self._index_files = (*(file for file in self._index_files if file not in removed), *added)

    def _consume(self, file: DataFileMeta, is_kept: bool) -> None:
        if self._after.pop(file.file_name, None) is None:
            self._before[file.file_name] = file
        elif file.file_name not in self._before and not is_kept:
            self._delete(file)

    def _delete(self, file: DataFileMeta) -> None:
        for path in self._context.file_paths(self._start.partition, self._start.bucket, file):
            self._context.storage.delete(path)

    def _drop_compaction(self, conflict: FilesConflict) -> None:
        """Drop the results of all compactions, because they replace files that do not exist any more."""
        self._compactions, self.compaction_lost = None, str(conflict)
        self._live = [*self._start.files, *self._flushed]
        self._replace_index_files(self._index_files, self._start.index_files)
        uncompacted = {file.file_name for file in self._live}
        for file in (*self._after.values(), *self._compact_changes):
            if file.file_name not in uncompacted:
                self._delete(file)
        self._before.clear()
        self._after.clear()
        self._compact_changes.clear()

    def message(self, read_snapshot_id: int | None) -> CommitMessage:
        start = self._start.index_files
        mode, is_compacted = self._context.mode, bool(self._before)
        return CommitMessage(
            self._start.partition,
            self._start.bucket,
            self._start.total_buckets,
            append=FileChanges(added=tuple(self._flushed), changelog=tuple(self._input_changes)),
            compact=FileChanges(
                removed=tuple(self._before.values()),
                added=tuple(self._after.values()),
                changelog=tuple(self._compact_changes),
                added_indexes=tuple(file for file in self._index_files if file not in start),
                removed_indexes=tuple(file for file in start if file not in self._index_files),
            ),
            read_snapshot_id=read_snapshot_id,
            read_index_files=vector_file_names(start) if is_compacted and mode.deletion_vectors else None,
            read_upper_files=upper_file_names(self._start.files) if is_compacted and mode.looks_up_old_rows else None,
        )
