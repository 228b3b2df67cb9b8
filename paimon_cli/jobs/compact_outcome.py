"""Commits the results of compactions: all buckets in one snapshot.

If another job has replaced files of some buckets, the other buckets are committed without them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from paimon_cli.commit.commit_messages import CommitKind
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.errors import Conflict, FilesConflict, PaimonError, undone_on_failure
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.bucket_task import FailedBucket
from paimon_cli.jobs.engine import Engine
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import (
    BucketId,
    CommitMessage,
    DataFileMeta,
    EntryKind,
    FileFilter,
    upper_file_names,
    vector_file_names,
)
from paimon_cli.metadata.snapshot import Snapshot


@dataclass
class Outcome:
    """Committed messages and their snapshots; the errors of buckets with a conflict and of buckets that failed.

    `regrouped`: the messages that split or merged buckets, which are not among those of compactions. `stale_files`: how many
    files with another bucket count than their partition were moved. `rescaled_to`: the bucket count of a rescale that had been
    interrupted, and was finished; `moved_read`, `moved_written`: the bytes of both. `lost_read`, `lost_written`: bytes that came
    to nothing, after a failure or a conflict.
    """

    committed: list[CommitMessage] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    conflicts: dict[BucketId, Conflict] = field(default_factory=dict)
    failures: dict[BucketId, PaimonError] = field(default_factory=dict)
    regrouped: list[CommitMessage] = field(default_factory=list)
    stale_files: int = 0
    rescaled_to: int | None = None
    moved_read: int = 0
    moved_written: int = 0
    lost_read: int = 0
    lost_written: int = 0

    def add_round(self, later: Outcome) -> None:
        """Add a repeated run of the same stage. Its conflicts replace the earlier ones, whose buckets were planned again."""
        self.conflicts.clear()
        self.add_stage(later)

    def add_stage(self, later: Outcome) -> None:
        """Add the outcome of another stage."""
        self.committed += later.committed
        self.regrouped += later.regrouped
        self.stale_files += later.stale_files
        self.rescaled_to = later.rescaled_to or self.rescaled_to
        self.moved_read += later.moved_read
        self.moved_written += later.moved_written
        self.snapshots += later.snapshots
        self.failures.update(later.failures)
        self.conflicts.update(later.conflicts)
        self.lost_read += later.lost_read
        self.lost_written += later.lost_written

    @property
    def read_size(self) -> int:
        """The bytes that were read, with those that came to nothing."""
        read, _ = rewritten_files([*self.regrouped, *self.committed])
        return sum(file.file_size for file in read) + self.moved_read + self.lost_read

    def note_lost(self, begun: Mapping[BucketId, int]) -> None:
        """Count what was read for buckets that are not committed, or in part: all that was to be read, since nobody knows how far
        a task came. `begun`: the bytes that the stage was to read of each bucket.
        """
        regrouped = {message.partition for message in self.regrouped}
        read = Counter[BucketId]()
        for message in self.committed:
            read[message.bucket_id] += sum(file.file_size for file in rewritten_files((message,))[0])
        for bucket_id, size in begun.items():
            is_done = bucket_id in read and bucket_id not in self.conflicts and bucket_id not in self.failures
            if not is_done and bucket_id.partition not in regrouped:
                self.lost_read += max(0, size - read[bucket_id])

    def note_moved(self, context: TableContext, snapshots: Sequence[Snapshot]) -> None:
        """Count what commits that gave files another bucket count have read and written: what they replaced, and added."""
        self.snapshots += snapshots
        for snapshot in snapshots:
            table = context.manifests.delta_table(snapshot)
            sizes, is_new = table.numbers("sizes"), table.numbers("kinds") == EntryKind.ADD
            self.moved_read += int(sizes[~is_new].sum())
            self.moved_written += int(sizes[is_new].sum())

    def note_unwritten(self, messages: Iterable[CommitMessage]) -> None:
        """Count new files that are deleted again."""
        self.lost_written += sum(file.file_size for file in rewritten_files(messages)[1])


def rewritten_files(messages: Iterable[CommitMessage]) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """The files that compactions read, and those that they wrote, without those of which only the level changed."""
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    for message in messages:
        upgraded = {file.file_name for file in message.compact.removed} & {file.file_name for file in message.compact.added}
        before += [file for file in message.compact.removed if file.file_name not in upgraded]
        after += [file for file in message.compact.added if file.file_name not in upgraded]
    return before, after


def commit_results(
    new_files: NewFiles, results: Sequence[CommitMessage | FailedBucket], engine: Engine, outcome: Outcome
) -> None:
    """Commit the successful results. A failed bucket whose files another job replaced in the meantime counts as a conflict.

    Adds to `outcome` what becomes of each, also if an error is raised; then no new file remains that is not committed.
    """
    if not results:
        return
    messages = [result for result in results if isinstance(result, CommitMessage)]
    failed = [result for result in results if isinstance(result, FailedBucket)]
    with deleted_if_refused(new_files, messages):
        if failed or engine.retries_tasks:
            new_files.delete_all_but(messages)
        for bucket in failed:
            bucket_id = bucket.task.bucket_id
            if isinstance(bucket.error, Conflict):
                outcome.conflicts[bucket_id] = bucket.error
            elif _replaced_buckets(new_files.context, {bucket_id: _Base(bucket.task.files)}):
                why = f"its files were replaced while they were read ({bucket.error})"
                outcome.conflicts[bucket_id] = FilesConflict(f"bucket {bucket.task.bucket} was compacted by another job", why)
            else:
                outcome.failures[bucket_id] = bucket.error
    if messages:
        _commit_as_one(new_files, messages, outcome)


def deleted_if_refused(new_files: NewFiles, waiting: Sequence[CommitMessage]) -> AbstractContextManager[None]:
    """If the block fails, the new files are deleted of those messages that are in `waiting` by then: their commit has not begun,
    or was refused.
    """
    return undone_on_failure(lambda: new_files.settle(waiting, CommitResult(outcome=CommitOutcome.REFUSED)))


def _commit_as_one(new_files: NewFiles, messages: list[CommitMessage], outcome: Outcome) -> None:
    """Commit all messages in one snapshot; after a conflict, without the replaced buckets; if that fails too, one by one.

    If an attempt fails for another reason, the files of all messages not committed yet are deleted.
    """
    conflict = try_commit(new_files, messages, outcome)
    if conflict is None:
        return
    waiting = list(messages)
    with deleted_if_refused(new_files, waiting):
        bases = {m.bucket_id: _Base(m.compact.removed, m.read_index_files, m.read_upper_files) for m in messages}
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
    new_files: NewFiles, messages: list[CommitMessage], outcome: Outcome, kind: CommitKind = CommitKind.WRITE
) -> Conflict | None:
    """Commit the messages. Returns a conflict, which leaves the new files for another attempt; raises any other refusal."""
    context = new_files.context
    identity, began = fresh_identity(context), new_files.began_millis
    commit = Committer(context).commit
    publish = functools.partial(commit, messages, identity, kind, work_begin_millis=began)
    try:
        result = new_files.commit(messages, publish, keep_on=Conflict)
    except Conflict as conflict:
        return conflict
    outcome.snapshots += result.snapshots
    outcome.committed += messages
    return None


def drop_conflicting(new_files: NewFiles, messages: Sequence[CommitMessage], conflict: Conflict, outcome: Outcome) -> None:
    """Delete the new files of these messages and record their buckets as conflicts."""
    if messages:
        new_files.settle(messages, CommitResult.failed(conflict))
        outcome.conflicts.update((message.bucket_id, conflict) for message in messages)
        outcome.note_unwritten(messages)


@dataclass(frozen=True)
class _Base:
    """The files of a bucket that a compaction read; None for `vectors` or `upper_files` if it does not depend on them."""

    files: tuple[DataFileMeta, ...]
    vectors: tuple[str, ...] | None = None
    upper_files: tuple[str, ...] | None = None

    def is_current(self, bucket: BucketFiles | None) -> bool:
        """Whether all of them are still in the bucket, at the same levels."""
        if bucket is None:
            return False
        names = {(file.file_name, file.level) for file in bucket.files}
        if not {(file.file_name, file.level) for file in self.files} <= names:
            return False
        if self.upper_files is not None and not set(upper_file_names(bucket.files)) <= set(self.upper_files):
            return False
        return self.vectors is None or set(self.vectors) == set(vector_file_names(bucket.index_files))


def _replaced_buckets(context: TableContext, bases: dict[BucketId, _Base]) -> set[BucketId]:
    """The buckets in which another job has replaced a file that was read."""
    live = bucket_files(context, context.snapshots.latest(), FileFilter(buckets={bucket for _, bucket in bases}))
    return {bucket_id for bucket_id, base in bases.items() if not base.is_current(live.get(bucket_id))}
