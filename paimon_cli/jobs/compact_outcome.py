"""What becomes of compactions that have run: which are committed, which meet a conflict, and which have failed.

All buckets go into one snapshot. If another job has replaced files of some, the others are committed without them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact.compaction_plan import CompactionTask
from paimon_cli.errors import Conflict, FilesConflict, PaimonError, undone_on_failure
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import BucketId, CommitMessage, DataFileMeta, FileFilter, upper_file_names, vector_file_names
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class FailedBucket:
    """A bucket whose compaction failed; its own new files are gone."""

    task: CompactionTask
    error: PaimonError

    @property
    def bucket_id(self) -> BucketId:
        return self.task.bucket_id


@dataclass
class Outcome:
    """Committed messages and their snapshots; buckets that others had changed, and buckets that failed, with their errors."""

    committed: list[CommitMessage] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    conflicts: dict[BucketId, Conflict] = field(default_factory=dict)
    failures: dict[BucketId, PaimonError] = field(default_factory=dict)

    def add_round(self, later: Outcome) -> None:
        """Conflicts of the latest round only: buckets of earlier ones have been planned again."""
        self.committed += later.committed
        self.snapshots += later.snapshots
        self.failures.update(later.failures)
        self.conflicts = later.conflicts

    def add_stage(self, later: Outcome) -> None:
        """The outcome of what follows, of other work."""
        self.committed += later.committed
        self.snapshots += later.snapshots
        self.failures.update(later.failures)
        self.conflicts.update(later.conflicts)


def commit_results(new_files: NewFiles, results: Sequence[CommitMessage | FailedBucket], engine: Engine) -> Outcome:
    """Commit what succeeded; a failed bucket whose files another job has replaced meanwhile counts as a conflict."""
    outcome = Outcome()
    if not results:
        return outcome
    messages = [result for result in results if isinstance(result, CommitMessage)]
    failed = [result for result in results if isinstance(result, FailedBucket)]
    if failed or engine.retries_tasks:
        new_files.delete_all_but(messages)
    for bucket in failed:
        bucket_id = bucket.task.bucket_id
        if _replaced_buckets(new_files.context, {bucket_id: _Base(bucket.task.files)}):
            why = f"its files were replaced while they were read ({bucket.error})"
            outcome.conflicts[bucket_id] = FilesConflict(f"bucket {bucket.task.bucket} was compacted by another job", why)
        else:
            outcome.failures[bucket_id] = bucket.error
    if messages:
        _commit_as_one(new_files, messages, outcome)
    return outcome


def _commit_as_one(new_files: NewFiles, messages: list[CommitMessage], outcome: Outcome) -> None:
    """All in one snapshot; after a conflict once more without the buckets whose files are gone, and then one by one.

    When an attempt fails for another reason, the files of those that wait for theirs are deleted, too.
    """
    conflict = try_commit(new_files, messages, outcome)
    if conflict is None:
        return
    waiting = list(messages)
    with undone_on_failure(lambda: new_files.delete_created(waiting)):
        bases = {m.bucket_id: _Base(m.compact_before, m.read_index_files, m.read_upper_files) for m in messages}
        replaced = _replaced_buckets(new_files.context, bases)
        drop_conflicting(new_files, [message for message in messages if message.bucket_id in replaced], conflict, outcome)
        left = [message for message in messages if message.bucket_id not in replaced]
        if len(left) == len(messages) == 1:
            drop_conflicting(new_files, left, conflict, outcome)
            return
        waiting.clear()
        if replaced and left and try_commit(new_files, left, outcome) is None:
            return
        waiting.extend(left)
        while waiting:
            message = waiting.pop(0)
            refusal = try_commit(new_files, [message], outcome)
            if refusal is not None:
                drop_conflicting(new_files, [message], refusal, outcome)


def try_commit(
    new_files: NewFiles, messages: list[CommitMessage], outcome: Outcome, rows_are_new: bool = False
) -> Conflict | None:
    """A conflict is an answer, and leaves the files for another attempt; any other refusal is raised."""
    context = new_files.context
    identity, began = fresh_identity(context), new_files.began_millis
    commit = Committer(context).commit
    publish = functools.partial(commit, messages, identity, rows_are_new=rows_are_new, work_begin_millis=began)
    try:
        result = new_files.commit(messages, publish, keep_on=Conflict)
    except Conflict as conflict:
        return conflict
    outcome.snapshots += result.snapshots
    outcome.committed += messages
    return None


def drop_conflicting(new_files: NewFiles, messages: Sequence[CommitMessage], conflict: Conflict, outcome: Outcome) -> None:
    """Delete what these compactions have written, and note their buckets."""
    if messages:
        new_files.delete_created(messages, conflict)
        outcome.conflicts.update((message.bucket_id, conflict) for message in messages)


@dataclass(frozen=True)
class _Base:
    """What a compaction has read of a bucket; without `vectors` or `upper_files` those do not matter."""

    files: tuple[DataFileMeta, ...]
    vectors: tuple[str, ...] | None = None
    upper_files: tuple[str, ...] | None = None

    def is_current(self, bucket: BucketFiles | None) -> bool:
        """Whether all of it still belongs to the bucket (files at their level)."""
        if bucket is None:
            return False
        names = {(file.file_name, file.level) for file in bucket.files}
        if not {(file.file_name, file.level) for file in self.files} <= names:
            return False
        if self.upper_files is not None and not set(upper_file_names(bucket.files)) <= set(self.upper_files):
            return False
        return self.vectors is None or set(self.vectors) == set(vector_file_names(bucket.index_files))


def _replaced_buckets(context: TableContext, bases: dict[BucketId, _Base]) -> set[BucketId]:
    """Buckets of which another job has replaced something that was read."""
    live = bucket_files(context, context.snapshots.latest(), FileFilter(buckets={bucket for _, bucket in bases}))
    return {bucket_id for bucket_id, base in bases.items() if not base.is_current(live.get(bucket_id))}
