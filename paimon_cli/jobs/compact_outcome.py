"""What became of the buckets of a compaction: one bucket's failure or conflict does not cost the others their work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.commit.abort import delete_created_files, removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import CompactionTask
from paimon_cli.errors import Conflict, FilesConflict, PaimonError, cleaning_up
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, CommitMessage, DataFileMeta, FileFilter
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class FailedBucket:
    """A bucket whose compaction failed; its own new files are gone."""

    task: CompactionTask
    error: PaimonError


@dataclass
class Outcome:
    """Committed messages and their snapshots; buckets that others had changed, and buckets that failed, with their errors."""

    committed: list[CommitMessage] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    conflicts: dict[BucketId, Conflict] = field(default_factory=dict)
    failures: dict[BucketId, PaimonError] = field(default_factory=dict)


def attempt(context: TableContext, task: CompactionTask) -> CommitMessage | FailedBucket:
    """One bucket's compaction as a task of an engine: its error is a result, so that the other buckets go on."""
    try:
        return run_compaction(context, task)
    except PaimonError as error:
        return FailedBucket(task, error)


def settle(
    context: TableContext, tasks: Sequence[CommitMessage | FailedBucket], stamp: str, *, attempted_twice: bool = False
) -> Outcome:
    """Commit what succeeded; a failed bucket whose files somebody else has replaced meanwhile counts as a conflict.

    `attempted_twice`: the engine may have repeated tasks, and left files of their first attempts.
    """
    outcome = Outcome()
    messages = [result for result in tasks if isinstance(result, CommitMessage)]
    failed = [result for result in tasks if isinstance(result, FailedBucket)]
    if failed or attempted_twice:
        with cleaning_up():
            delete_stamped_files(context, stamp, {file.file_name for message in messages for file in message.created_files()})
    for bucket in failed:
        bucket_id = bucket.task.bucket_id
        if _replaced_buckets(context, {bucket_id: bucket.task.files}):
            why = f"its files were replaced while they were read ({bucket.error})"
            outcome.conflicts[bucket_id] = FilesConflict(f"bucket {bucket.task.bucket} was compacted by another job", why)
        else:
            outcome.failures[bucket_id] = bucket.error
    _commit(context, messages, outcome)
    return outcome


def _commit(context: TableContext, messages: list[CommitMessage], outcome: Outcome) -> None:
    """All in one snapshot; after a conflict once more without the buckets whose files are gone, and then one by one."""
    if not messages:
        return
    conflict = _try(context, messages, outcome)
    if conflict is None:
        return
    dead = _replaced_buckets(context, {message.bucket_id: message.compact_before for message in messages})
    alive = [message for message in messages if message.bucket_id not in dead]
    _refuse(context, [message for message in messages if message.bucket_id in dead], conflict, outcome)
    if len(alive) == len(messages) == 1:
        _refuse(context, alive, conflict, outcome)
    elif dead and alive and _try(context, alive, outcome) is None:
        return
    else:
        for message in alive:
            refusal = _try(context, [message], outcome)
            if refusal is not None:
                _refuse(context, [message], refusal, outcome)


def _try(context: TableContext, messages: list[CommitMessage], outcome: Outcome) -> Conflict | None:
    """Commit; a conflict is an answer, and leaves the files for another try. Other refusals take the files away."""
    try:
        snapshots = Committer(context).commit(messages, fresh_identity(context)).snapshots
    except Conflict as conflict:
        return conflict
    except PaimonError as error:
        with removed_on_refusal(context, messages):
            raise error
    outcome.snapshots += snapshots
    outcome.committed += messages
    return None


def _refuse(context: TableContext, messages: list[CommitMessage], conflict: Conflict, outcome: Outcome) -> None:
    if messages:
        with cleaning_up(conflict):
            delete_created_files(context, messages)
        outcome.conflicts.update((message.bucket_id, conflict) for message in messages)


def _replaced_buckets(context: TableContext, files: dict[BucketId, tuple[DataFileMeta, ...]]) -> set[BucketId]:
    """Buckets of which at least one of the files is no longer live (at its level)."""
    live = bucket_files(context, context.snapshots.latest(), FileFilter(buckets={bucket for _, bucket in files}))
    names = {bucket_id: {(file.file_name, file.level) for file in state.files} for bucket_id, state in live.items()}
    return {
        bucket_id
        for bucket_id, wanted in files.items()
        if not {(f.file_name, f.level) for f in wanted} <= names.get(bucket_id, set())
    }
