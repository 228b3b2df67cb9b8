"""One bucket's LSM tree as its writer sees it: files that were there, files flushed, and what inline compactions made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.data_file import DataFileMeta

CompactBucket = Callable[[TableContext, BucketFiles], CommitMessage | None]
"""Compacts a bucket if its runs ask for it; None if they do not. The write phase is handed one: it does not know the
compaction phase."""


class BucketTree:
    """Grows by flushes, shrinks by compactions, and tells in the end what both halves of the commit message hold.

    (Java MergeTreeWriter: a file that one compaction made and the next one consumed is in neither half, and deleted at once.)
    """

    def __init__(self, context: TableContext, start: BucketFiles) -> None:
        self._context = context
        self._start = start
        self._live = {file.file_name: file for file in start.files}
        self._flushed: list[DataFileMeta] = []
        self._before: dict[str, DataFileMeta] = {}
        self._after: dict[str, DataFileMeta] = {}

    @property
    def run_count(self) -> int:
        """Sorted runs: each file of level 0, each level above that has files."""
        levels = [file.level for file in self._live.values()]
        return levels.count(0) + len(set(levels) - {0})

    def flushed(self, files: Sequence[DataFileMeta]) -> None:
        self._flushed += files
        self._live |= {file.file_name: file for file in files}

    def compact(self, compact_bucket: CompactBucket) -> bool:
        """Whether something was compacted."""
        message = compact_bucket(self._context, replace(self._start, files=tuple(self._live.values())))
        if message is None:
            return False
        kept = {file.file_name for file in message.compact_after}
        for file in message.compact_before:
            self._consume(file, is_kept=file.file_name in kept)
        self._after |= {file.file_name: file for file in message.compact_after}
        self._live |= {file.file_name: file for file in message.compact_after}
        return True

    def _consume(self, file: DataFileMeta, is_kept: bool) -> None:
        del self._live[file.file_name]
        if self._after.pop(file.file_name, None) is None:
            self._before[file.file_name] = file
        elif file.file_name not in self._before and not is_kept:
            for name in (file.file_name, *file.extra_files):
                self._context.storage.delete(self._context.data_file_path_of(self._start.partition, self._start.bucket, name))

    def message(self, read_snapshot_id: int | None) -> CommitMessage:
        return CommitMessage(
            self._start.partition,
            self._start.bucket,
            self._start.total_buckets,
            new_files=tuple(self._flushed),
            compact_before=tuple(self._before.values()),
            compact_after=tuple(self._after.values()),
            read_snapshot_id=read_snapshot_id,
        )
