"""The base of rewriters, which replace the files that a compaction picked by new ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_picker import Rewrite
from paimon_cli.metadata.data_file import SOURCE_COMPACT, CommitMessage, DataFileMeta, FileChanges, file_facts
from paimon_cli.metadata.encoded_footer import FooterFrame


class Rewriter(ABC):
    """Rewrites and upgrades the files of one task. An error that leaves its `with` block removes the new files."""

    def __init__(self, context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool]) -> None:
        self._context = context
        self._task = task
        self._is_given_up = is_given_up
        self._bucket_path = context.bucket_path(*task.bucket_id)
        self._names = DataFileNames(context, task.file_stamp)
        self._writers: list[DataFileWriter] = []
        self._before: list[DataFileMeta] = []
        self._after: list[DataFileMeta] = []
        self.counts: Counter[str] = Counter()
        """The rows of each file that were in the range of the task, if it has one."""

    def __enter__(self) -> Rewriter:
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error_type is not None:
            for writer in self._writers:
                writer.abort()

    def upgrade(self, file: DataFileMeta) -> None:
        """Move a file that overlaps no other to the output level."""
        self._move(file)

    def _move(self, file: DataFileMeta) -> None:
        """Change the level of a file without rewriting it."""
        facts = {"bucket": self._bucket_path, "file": file.file_name, "from_level": file.level}
        self._context.trace.step("upgrade", **facts, level=self._task.output_level)
        self._before.append(file)
        self._after.append(file.upgraded(self._task.output_level))

    def rewrite(self, step: Rewrite) -> None:
        """Write the rows of the step to new files."""
        facts = {"bucket": self._bucket_path, "level": self._task.output_level, **file_facts("input_", step.files)}
        with self._context.trace.timed("rewrite", **facts) as result:
            writer = DataFileWriter(
                self._context,
                self._task.bucket_id,
                level=self._task.output_level,
                source=SOURCE_COMPACT,
                names=self._names,
                frame=self._frame(step),
                tracks_rows=self._context.mode.tracks_rows,
            )
            self._writers.append(writer)
            result |= self._fill(writer, step)
            files = writer.close()
            result |= file_facts("output_", files)
        self._before += step.files
        self._after += files

    def _frame(self, step: Rewrite) -> FooterFrame | None:
        """The frame of the files whose row groups are copied in this step; None if all rows are decoded."""
        return None

    @abstractmethod
    def _fill(self, writer: DataFileWriter, step: Rewrite) -> dict[str, Any]:
        """Write the rows of the step. Returns facts for the trace."""

    def _check_given_up(self) -> None:
        """Raise `CancelledError` if the compaction is no longer wanted."""
        if self._is_given_up():
            raise CancelledError

    def message(self) -> CommitMessage:
        """The commit message of the task."""
        return CommitMessage(
            *self._task.bucket_id,
            self._task.total_buckets,
            compact=FileChanges(removed=tuple(self._before), added=tuple(self._after)),
            read_snapshot_id=self._task.read_snapshot_id,
        )
