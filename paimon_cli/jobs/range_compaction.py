"""Compacts large buckets in ranges of keys (`compact/key_ranges`): each range is a task, and each part that can be replaced alone
a commit, as soon as its tasks are done.

Each part has a stamp of its own in the names of its files, so that a failure deletes only what is not committed yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.stamped_files import delete_stamped_files, new_stamp
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import DamagedFile, undone_on_failure
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.bucket_task import CompactedPart, FailedBucket
from paimon_cli.jobs.compact_outcome import Outcome, commit_results
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Engine
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import CommitMessage


@dataclass
class _Part:
    """Files that are replaced by one commit, after all of the tasks."""

    new_files: NewFiles
    tasks: Sequence[CompactionTask]
    done: list[CompactedPart] = field(default_factory=list)

    @property
    def result(self) -> CommitMessage | FailedBucket:
        """The first failure, or all tasks' new files instead of the files that each of them has read.

        A range leaves out row groups by their statistics, but a file is removed with all of its rows: they are counted.
        """
        messages = [part.result for part in self.done if isinstance(part.result, CommitMessage)]
        if len(messages) < len(self.done):
            return next(part.result for part in self.done if isinstance(part.result, FailedBucket))
        counts = sum((Counter(part.counts) for part in self.done), Counter[str]())
        for file in self.tasks[0].files if self.tasks[0].within is not None else ():
            if counts[file.file_name] != file.row_count:
                path = self.new_files.context.data_file_path(*self.tasks[0].bucket_id, file)
                why = f"its statistics place only {counts[file.file_name]} of its {file.row_count} rows"
                hint = "compact the bucket as a whole, without --ranges-over"
                return FailedBucket(self.tasks[0], DamagedFile(f"data file {path} is damaged", why, hint, path=path))
        added = tuple(file for message in messages for file in message.compact.added)
        return replace(messages[0], compact=replace(messages[0].compact, added=added))


@dataclass
class RangeCommits:
    """The ranges of one compaction. `outcome`: what was committed of them, and what was not."""

    new_files: NewFiles
    engine: Engine
    outcome: Outcome = field(default_factory=Outcome)
    _waiting: dict[str, _Part] = field(default_factory=dict)
    _done: list[_Part] = field(default_factory=list)

    def divided(self, context: TableContext, request: CompactRequest, tasks: Iterable[CompactionTask]) -> list[CompactionTask]:
        """The tasks, with large buckets cut into parts, and a stamp for each part."""
        result = []
        for task in tasks:
            ranges = request.ranges_of(context, task)
            if ranges is None:
                result += task.parts
                continue
            for part in ranges.parts:
                stamp = new_stamp(context)
                self._waiting[stamp] = _Part(replace(self.new_files, stamp=stamp), part)
                result += [replace(of_range, file_stamp=stamp) for of_range in part]
        return result

    def commit(self, finished: CompactedPart) -> bool:
        """Commit the part of this task, once all of its tasks have a result; False if the task is none of a part."""
        part = self._waiting.get(finished.stamp)
        if part is None:
            return False
        part.done.append(finished)
        if len(part.done) == len(part.tasks):
            with part.new_files.shield():
                del self._waiting[finished.stamp]
                commit_results(part.new_files, [part.result], self.engine, self.outcome)
            self._done.append(part)
        return True

    def delete_repeated(self) -> None:
        """After the last task, delete what attempts that the engine repeated have left behind since the commits."""
        for part in self._done if self.engine.retries_tasks else ():
            part.new_files.delete_all_but([part.result] if isinstance(part.result, CommitMessage) else [])

    def deleted_on_failure(self) -> AbstractContextManager[None]:
        """If the job fails, delete the files of ranges whose commit has not begun."""
        return undone_on_failure(self._delete)

    def _delete(self) -> None:
        with self.new_files.shield():
            for stamp in self._waiting:
                delete_stamped_files(self.new_files.context, stamp)
