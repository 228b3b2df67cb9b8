"""Compacts large buckets in ranges of keys (`compact/key_ranges`): each range is a task, and a commit as soon as it is done.

Each range has a stamp of its own in the names of its files, so that a failure deletes only what is not committed yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.stamped_files import delete_stamped_files, new_stamp
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import undone_on_failure
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_outcome import FailedBucket, Outcome, commit_results
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Engine
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import CommitMessage


@dataclass
class RangeCommits:
    """The ranges of one compaction. `outcome`: what was committed of them, and what was not."""

    new_files: NewFiles
    engine: Engine
    outcome: Outcome = field(default_factory=Outcome)
    _waiting: dict[str, NewFiles] = field(default_factory=dict)

    def divided(self, context: TableContext, request: CompactRequest, tasks: Iterable[CompactionTask]) -> list[CompactionTask]:
        """The tasks, those of large buckets in parts, with a stamp for each part."""
        result = []
        for task in tasks:
            ranges = request.ranges_of(context, task)
            for part in task.parts if ranges is None else ranges.parts:
                if ranges is not None:
                    stamp = new_stamp(context)
                    self._waiting[stamp] = replace(self.new_files, stamp=stamp)
                    part = replace(part, file_stamp=stamp)
                result.append(part)
        return result

    def commit(self, stamp: str, result: CommitMessage | FailedBucket) -> bool:
        """Commit the range with this stamp; False if it is none of a range."""
        new_files = self._waiting.pop(stamp, None)
        if new_files is None:
            return False
        with new_files.shield():
            self.outcome.add_stage(commit_results(new_files, [result], self.engine))
        return True

    def deleted_on_failure(self) -> AbstractContextManager[None]:
        """If the job fails, delete the files of ranges whose commit has not begun."""
        return undone_on_failure(self._delete)

    def _delete(self) -> None:
        with self.new_files.shield():
            for stamp in self._waiting:
                delete_stamped_files(self.new_files.context, stamp)
