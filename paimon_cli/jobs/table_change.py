"""The skeleton of every job that changes a table: plan, run, commit, clean up; some jobs start again after a conflict.

1. plan: read one snapshot and decide what to do. All new data files of the job have the same stamp in their names.
2. run: engine tasks write these files, inside `NewFiles.deleted_on_failure`.
3. commit: `NewFiles.commit` publishes a snapshot that names them.
4. clean up: delete the new files that no snapshot names. If a task failed, or the job was interrupted before the commit, these
   are all of them. After step 3 they follow from the outcome of the commit (`commit.outcome`). Leftovers of task attempts that
   the engine repeated are deleted before the commit.

A clean-up that fails leaves orphans and never hides the error that led to it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from paimon_cli.bucket.data_file_writer import check_writable
from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.commit.commit_messages import settle_files
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import (
    Conflict,
    DamagedFile,
    DataConflict,
    FilesConflict,
    NotFound,
    PaimonError,
    SnapshotExpired,
    UsageError,
    cleaning_up,
    undone_on_failure,
)
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.maintain.mark_done import check_marks_of_writes
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from paimon_cli.options.option_catalog import Operation
from paimon_cli.read.html_text import ShownAsTable, telling_fields
from paimon_cli.storage.deletions import delete_all

if TYPE_CHECKING:
    from paimon_cli.write.table_writer import Written
    from paimon_cli.write.write_plan import Tallies, WritePlan

MAX_ATTEMPTS = 100
LONGEST_WAIT_MILLIS = 1000

T = TypeVar("T")
Shield = Callable[[], AbstractContextManager[None]]
"""Holds signals back, so that a commit or a clean-up is not interrupted half-way."""


class Summary(ShownAsTable):
    """The result of a job: a dataclass of which notebooks show only what says something: fields that differ from their default,
    or, without one, are not empty.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in telling_fields(self))})"


@dataclass(frozen=True)
class NewFiles:
    """The files that one job creates, with `stamp` in the names of its data files.

    `began_millis`: when the job started (epoch millis), for its snapshots; None to leave it out.
    """

    context: TableContext
    stamp: str
    shield: Shield = contextlib.nullcontext
    began_millis: int | None = None

    def deleted_on_failure(self) -> AbstractContextManager[None]:
        """Wrap everything before the commit: if it fails or is interrupted, all new data files of the job are deleted.

        No task of the job may still be running when the error is raised.
        """
        return undone_on_failure(self._delete)

    def _delete(self) -> None:
        with self.shield():
            delete_stamped_files(self.context, self.stamp)

    def delete_repeated(self, engine: Engine, messages: Sequence[CommitMessage]) -> None:
        """After a successful run, delete leftovers of task attempts that `engine` repeated, which no message names."""
        if engine.retries_tasks:
            self.delete_all_but(messages)

    def delete_all_but(self, messages: Sequence[CommitMessage]) -> None:
        """Delete the new files that no message names."""
        with cleaning_up():
            kept = {file.file_name for message in messages for file in message.created_files()}
            kept |= {file.file_name for message in messages for file in message.created_index_files()}
            delete_stamped_files(self.context, self.stamp, kept)

    def commit(
        self, messages: Sequence[CommitMessage], publish: Callable[[], CommitResult], keep_on: type[PaimonError] | None = None
    ) -> CommitResult:
        """Call `publish`, and delete the files of the messages that no snapshot will name. Raises the failure of the commit.

        After a refusal of type `keep_on` the files stay, for another attempt or for `settle`.
        """
        result = CommitResult.of(publish)
        if keep_on is None or not isinstance(result.failure, keep_on):
            self.settle(messages, result)
        return result.or_raise()

    def commit_halves(self, messages: Sequence[CommitMessage], publish: Callable[[], CommitResult]) -> CommitResult:
        """Commit new rows, then the compactions of their writers.

        If another job has compacted the same files in the meantime, the rows are committed nevertheless; `failure` is why the
        compactions were refused.
        """
        result = CommitResult.of(publish)
        self.settle(messages, result)
        return result if result.lost_compactions else result.or_raise()

    def settle(self, messages: Sequence[CommitMessage], result: CommitResult) -> None:
        """Delete the files of messages that no snapshot will name, after a commit that has ended with `result`."""
        settle_files(self.context, messages, result)


def write_files(plan: WritePlan, engine: Engine, progress: Progress, tallies: Tallies | None = None) -> Written:
    """Run the writer tasks of a plan. Fills `tallies` with the counts of each split."""
    with plan.context.trace.timed("write", route=plan.route, buckets=plan.buckets.option, splits=len(plan.splits)) as facts:
        written = engine.write_rows(plan, {} if tallies is None else tallies, progress)
        plan.context.trace.show(written.steps)
        messages = written.messages
        facts |= {"engine": engine.name, "stamp": plan.file_stamp, "files": sum(len(m.append.added) for m in messages)}
    NewFiles(plan.context, plan.file_stamp).delete_repeated(engine, messages)
    return written


def written_files(messages: Sequence[CommitMessage]) -> dict[str, Any]:
    """The fields of a summary about the new files that hold a change: how many, and their bytes."""
    files = [file for message in messages for file in message.append.added]
    return {"files": len(files), "size": sum(file.file_size for file in files)}


def compacted_by_writers(messages: Sequence[CommitMessage], result: CommitResult, lost: Iterable[str | None]) -> dict[str, Any]:
    """The fields of a summary about the compactions of the writers. `lost`: why those of a bucket were given up, if they were."""
    return {
        "compacted": 0 if result.failure else sum(bool(message.compact) for message in messages),
        "compaction_lost": result.lost or next(filter(None, lost), None),
    }


def ran_on(engine: Engine, context: TableContext, started: int) -> dict[str, Any]:
    """The fields of a summary about the run: its engine, and the seconds since it `started` (epoch millis)."""
    return {"engine": engine.name, "engine_reason": engine.reason, "seconds": (context.clock.now_millis() - started) / 1000}


def settled(context: TableContext, message: CommitMessage, reports_rows: bool = True) -> FileChanges:
    """Both halves of a writer's message as one: files that it wrote and then compacted are deleted, and not mentioned.

    `reports_rows`: otherwise its changelog files are deleted, too, because no row has changed.

    For a bucket whose writer flushed a and b to level 0, and compacted a with an older file o into c:

        append  added a b
        compact removed a o, added c      ->  removed o, added b c; a is deleted
    """
    new = {file.file_name: file for file in message.append.added}
    compacted = {file.file_name for file in message.compact.added}
    consumed = [new.pop(file.file_name) for file in message.compact.removed if file.file_name in new]
    changelog = message.append.changelog + message.compact.changelog
    obsolete = [file for file in consumed if file.file_name not in compacted] + list(() if reports_rows else changelog)
    with cleaning_up():
        delete_all(context.storage, [path for file in obsolete for path in context.file_paths(*message.bucket_id, file)])
    consumed_names = {file.file_name for file in consumed}
    both = message.append.followed_by(message.compact)
    return replace(
        both,
        removed=tuple(file for file in both.removed if file.file_name not in consumed_names),
        added=(*new.values(), *message.compact.added),
        changelog=changelog if reports_rows else (),
    )


def in_one_half(context: TableContext, messages: Iterable[CommitMessage], reports_rows: bool = True) -> list[CommitMessage]:
    """The messages with all changes in their append halves, for one snapshot. See `settled`."""
    changes = [(message, settled(context, message, reports_rows)) for message in messages]
    return [replace(message, append=change, compact=FileChanges()) for message, change in changes]


def check_writable_table(context: TableContext) -> None:
    """Raise `NotSupported` for tables that this version cannot write, and for column types that their files cannot hold."""
    context.check(Operation.WRITE)
    if context.options.partition_end_input_to_done:
        check_marks_of_writes(context)
    merge_engine(context.schema, context.options)
    check_writable(context.schema, context.options)


def identity_of(
    context: TableContext, commit_user: str | None, commit_id: int | None, assume_new: bool = False
) -> CommitIdentity:
    """The identity of the commit: the requested user and identifier, or a fresh user. Raises `UsageError` if they are invalid."""
    if assume_new and commit_id is None:
        raise UsageError("--assume-new without --commit-id", "without an identifier every commit is new", "remove --assume-new")
    if commit_id is not None and commit_user is None:
        raise UsageError("--commit-id without --commit-user", "identifiers belong to a user", "add --commit-user")
    if commit_id is not None and commit_id < 0:
        raise UsageError(f"--commit-id {commit_id} is negative", "the identifiers of a user start at 0 and increase")
    if commit_id is not None and commit_id > BATCH_IDENTIFIER:
        raise UsageError(f"--commit-id {commit_id} is too large", f"the maximum is {BATCH_IDENTIFIER}")
    if commit_user == "":
        raise UsageError("--commit-user is empty", "all commits without a name would belong to the same user", "name a user")
    if commit_user is None:
        return fresh_identity(context)
    return CommitIdentity(commit_user, BATCH_IDENTIFIER if commit_id is None else commit_id, assume_new=assume_new)


def again_on_conflict(
    context: TableContext,
    attempt: Callable[[], T],
    hint: str,
    max_attempts: int = MAX_ATTEMPTS,
    conflicts: tuple[type[Conflict], ...] = (DataConflict, FilesConflict, SnapshotExpired),
) -> tuple[T, int]:
    """Repeat `attempt` after a conflict; returns its result and the number of attempts. Raises the last conflict.

    `conflicts`: the types after which another attempt may succeed. Each attempt plans at the latest snapshot, so that a change
    which counts only on one snapshot has one attempt. An attempt
    only fails because another job has committed, so the jobs together always make progress.
    """
    max_attempts = max_attempts if context.only_on is None else 1
    for number in itertools.count(1):
        try:
            return attempt(), number
        except conflicts as conflict:
            if number >= max_attempts:
                raise _given_up(conflict, number, hint) from conflict
            _wait_before_retry(context, number)
    raise AssertionError("attempts are counted without end")


@contextmanager
def expiry_noticed(context: TableContext, planned_at: int | None) -> Iterator[None]:
    """Raise `SnapshotExpired` if files are missing because the snapshot at which the job was planned no longer exists.

    `planned_at`: None while the job is being planned.
    """
    hint = "run it again, or keep snapshots longer"
    try:
        yield
    except SnapshotGone as gone:
        raise SnapshotExpired(gone.what, gone.why, hint) from gone
    except (DamagedFile, NotFound) as error:
        if planned_at is None or context.storage.exists(context.layout.snapshot(planned_at)):
            raise
        what = f"snapshot {planned_at} of {context.address} has expired while the job was reading it"
        raise SnapshotExpired(what, "its files were deleted with it", hint) from error


def _given_up(conflict: Conflict, attempts: int, hint: str) -> Conflict:
    """The last conflict, with the number of attempts."""
    what = f"{conflict.what} ({attempts} attempts)" if attempts > 1 else conflict.what
    return type(conflict)(what, conflict.why, hint, **{**conflict.details, "attempts": attempts})


def _wait_before_retry(context: TableContext, attempt: int) -> None:
    """Wait with exponential backoff and jitter, so that conflicting jobs do not collide again."""
    longest = min(context.options.commit_min_retry_wait * 2**attempt, context.options.commit_max_retry_wait, LONGEST_WAIT_MILLIS)
    context.clock.sleep(longest * context.random.jitter() / 1000)
