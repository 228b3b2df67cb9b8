"""The files of one bucket during a write: flushes add files, compactions replace them by fewer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import CommitMessage, DataFileMeta, IndexFileMeta, upper_file_names, vector_file_names
from paimon_cli.write.write_plan import CompactBucket


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
        self._replace(message.compact_before, message.compact_after)
        self._replace_index_files(message.compact_deleted_index_files, message.compact_new_index_files)
        self._compact_changes += message.compact_changelog_files
        self.has_unseen_runs = True
        return True

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
        for name in (file.file_name, *file.extra_files):
            self._context.storage.delete(self._context.data_file_path_of(self._start.partition, self._start.bucket, name))

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
            new_files=tuple(self._flushed),
            changelog_files=tuple(self._input_changes),
            compact_before=tuple(self._before.values()),
            compact_after=tuple(self._after.values()),
            compact_changelog_files=tuple(self._compact_changes),
            compact_new_index_files=tuple(file for file in self._index_files if file not in start),
            compact_deleted_index_files=tuple(file for file in start if file not in self._index_files),
            read_snapshot_id=read_snapshot_id,
            read_index_files=vector_file_names(start) if is_compacted and mode.deletion_vectors else None,
            read_upper_files=upper_file_names(self._start.files) if is_compacted and mode.looks_up_old_rows else None,
        )
