"""The compaction of one bucket, or of a range of its keys, as a task: what a process that runs only such tasks has to import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, CommitMessage


@dataclass(frozen=True)
class FailedBucket:
    """A bucket whose compaction failed; its new files have been deleted."""

    task: CompactionTask
    error: PaimonError

    @property
    def bucket_id(self) -> BucketId:
        return self.task.bucket_id


@dataclass(frozen=True)
class CompactedPart:
    """The result of a task. `stamp`: of its files; `counts`: the rows of each file, by name, that were in its range of keys."""

    stamp: str
    result: CommitMessage | FailedBucket
    counts: Mapping[str, int]


def compact_part(context: TableContext, task: CompactionTask) -> CompactedPart:
    """Run the task. An error is returned as a result, so that other buckets continue."""
    counts: Counter[str] = Counter()
    try:
        return CompactedPart(task.file_stamp, run_compaction(context, task, counts=counts), counts)
    except PaimonError as error:
        return CompactedPart(task.file_stamp, FailedBucket(task, error), {})
