"""`update` and `delete`: read, change, commit under the data conflict check, and again from the start when others were faster.

The check is what makes a read-modify-write safe: the commit happens only if nobody wrote to its buckets since they were
read. Every attempt that fails has been overtaken by somebody's commit, so all of them together always get on.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.commit.abort import delete_created_files, removed_on_refusal
from paimon_cli.commit.committer import CommitResult, Committer
from paimon_cli.commit.data_conflict import BUCKET, OFF
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import Conflict, DataConflict, FilesConflict, cleaning_up
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, TasksFailed, Work, run_traced
from paimon_cli.jobs.progress import Progress
from paimon_cli.jobs.update_task import RowChange, UpdatedBucket, UpdateTask, update_bucket
from paimon_cli.jobs.write_job import check_writable_table, identity_of
from paimon_cli.metadata.data_file import BucketId, CommitMessage, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.table_options import DATA_CONFLICT_CHECK
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.splits import Split
from paimon_cli.sql.assignments import parse_set_clause
from paimon_cli.sql.predicate import parse_predicate

MAX_ATTEMPTS = 100
LONGEST_WAIT_MILLIS = 1000


@dataclass(frozen=True)
class UpdateRequest:
    """What the user asked for: a SQL condition, and `column = expression` texts; without any, matching rows are deleted."""

    where: str
    assignments: tuple[str, ...] = ()
    commit_user: str | None = None
    commit_id: int | None = None
    assume_new: bool = False
    max_attempts: int = MAX_ATTEMPTS


@dataclass(frozen=True)
class UpdateSummary:
    """What was done. `rows`: how many matched; `attempts`: how often they were read; `conflicts`: how often in vain."""

    rows: int = 0
    files: int = 0
    size: int = 0
    buckets: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    attempts: int = 0
    conflicts: int = 0
    already_committed: bool = False
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0


def run_update(context: TableContext, request: UpdateRequest, engine: Engine, progress: Progress) -> UpdateSummary:
    """Change all rows that match at one snapshot, as one commit on top of it. When it fails, no file stays behind.

    Raises `Conflict` when all attempts were overtaken.
    """
    started = context.clock.now_millis()
    check_writable_table(context)
    checked = _under_check(context)
    identity = identity_of(checked, request.commit_user, request.commit_id, request.assume_new)
    if Committer(checked).is_committed(identity):
        return UpdateSummary(already_committed=True, engine=engine.name)
    new_values = parse_set_clause(request.assignments, checked.schema) if request.assignments else None
    change = RowChange(parse_predicate(request.where, checked.schema), new_values)
    for attempt in range(1, request.max_attempts + 1):
        try:
            summary = _attempt(checked, change, identity, engine, progress)
            break
        except (DataConflict, FilesConflict) as conflict:
            if attempt == request.max_attempts:
                hint = "raise --max-attempts, or keep other writers away from these buckets for a while"
                raise given_up(conflict, attempt, hint) from conflict
            wait_by_chance(checked, attempt)
    seconds = (context.clock.now_millis() - started) / 1000
    summary = replace(summary, engine=engine.name, engine_reason=engine.reason, seconds=seconds)
    return replace(summary, attempts=attempt, conflicts=attempt - 1)


def _under_check(context: TableContext) -> TableContext:
    """By bucket where the table says nothing or `off`: that is for its writers, what an update has read must not have changed."""
    if context.options.commit_data_conflict_check != OFF:
        return context
    return replace(context, options=context.options.with_overrides({DATA_CONFLICT_CHECK: BUCKET}))


def _attempt(
    context: TableContext, change: RowChange, identity: CommitIdentity, engine: Engine, progress: Progress
) -> UpdateSummary:
    changed = _run_tasks(context, change, plan_update(context, change), engine, progress)
    messages = [bucket.message for bucket in changed if bucket.message is not None]
    result = _commit(context, messages, identity)
    if result.already_committed:
        return UpdateSummary(already_committed=True)
    files = [file for message in messages for file in message.new_files]
    return UpdateSummary(
        rows=sum(bucket.rows for bucket in changed),
        files=len(files),
        size=sum(file.file_size for file in files),
        buckets=len(messages),
        snapshots=result.snapshots,
    )


def plan_update(context: TableContext, change: RowChange) -> list[UpdateTask]:
    """One task for each bucket of the latest snapshot that can hold matching rows."""
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return []
    splits: dict[BucketId, list[Split]] = {}
    for split in plan_scan(context, snapshot, change.where).splits:
        splits.setdefault(split.bucket.bucket_id, []).append(split)
    partitions = {partition for partition, _ in splits}
    whole = bucket_files(context, snapshot, FileFilter(partitions.__contains__, {bucket for _, bucket in splits}))
    stamp = context.names.uuid().replace("-", "")[:16]
    return [
        UpdateTask(
            *bucket_id,
            whole[bucket_id].total_buckets,
            tuple(parts),
            max(file.max_sequence_number for file in whole[bucket_id].files) + 1,
            snapshot.id,
            stamp,
        )
        for bucket_id, parts in splits.items()
    ]


def _run_tasks(
    context: TableContext, change: RowChange, tasks: Sequence[UpdateTask], engine: Engine, progress: Progress
) -> list[UpdatedBucket]:
    """Run all tasks; when one fails (or the user interrupts), no new file of any of them stays."""
    if not tasks:
        return []
    engine.prepare(Work.of(file for task in tasks for split in task.splits for file in split.files), progress)
    stamp = tasks[0].file_stamp
    progress.start("Changing rows", len(tasks))
    try:
        update = functools.partial(update_bucket, change=change)
        changed = run_traced(engine, context, update, tasks, lambda done: progress.advance(1))
    except BaseException as failure:
        with cleaning_up(failure.error if isinstance(failure, TasksFailed) else failure):
            delete_stamped_files(context, stamp)
        if isinstance(failure, TasksFailed):
            raise failure.error from failure
        raise
    finally:
        progress.finish()
    if engine.retries_tasks:
        kept = {file.file_name for bucket in changed if bucket.message for file in bucket.message.new_files}
        with cleaning_up():
            delete_stamped_files(context, stamp, kept)
    return changed


def _commit(context: TableContext, messages: list[CommitMessage], identity: CommitIdentity) -> CommitResult:
    with removed_on_refusal(context, messages):
        result = Committer(context).commit(messages, identity) if messages else CommitResult()
    if result.already_committed:
        with cleaning_up():
            delete_created_files(context, messages)
    return result


def given_up(conflict: Conflict, attempts: int, hint: str) -> Conflict:
    """The last conflict, with the number of attempts that it took."""
    what = f"{conflict.what} ({attempts} attempts)" if attempts > 1 else conflict.what
    return type(conflict)(what, conflict.why, hint, **{**conflict.details, "attempts": attempts})


def wait_by_chance(context: TableContext, attempt: int) -> None:
    """Up to twice as long each time, by chance: whoever has lost together must not come back together."""
    longest = min(context.options.commit_min_retry_wait * 2**attempt, context.options.commit_max_retry_wait, LONGEST_WAIT_MILLIS)
    context.clock.sleep(longest * context.names.jitter() / 1000)
