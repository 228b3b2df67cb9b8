"""`update` and `delete`: read, change, commit under the data conflict check, and again from the start when others were faster.

The check is what makes a read-modify-write safe: the commit happens only if nobody wrote to its buckets since they were
read. Every attempt that fails has been overtaken by somebody's commit, so all of them together always get on.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import BUCKET, OFF
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Work, phase, run_traced
from paimon_cli.jobs.progress import Progress
from paimon_cli.jobs.table_change import MAX_ATTEMPTS, NewFiles, again_on_conflict, check_writable_table, identity_of
from paimon_cli.jobs.update_task import RowChange, UpdateTask, update_bucket
from paimon_cli.metadata.data_file import BucketId, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.table_options import DATA_CONFLICT_CHECK
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.splits import Split
from paimon_cli.sql.assignments import parse_set_clause
from paimon_cli.sql.predicate import parse_predicate


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
    hint = "raise --max-attempts, or keep other writers away from these buckets for a while"
    attempt = functools.partial(_attempt, checked, change, identity, engine, progress)
    summary, attempts = again_on_conflict(checked, attempt, hint, request.max_attempts)
    seconds = (context.clock.now_millis() - started) / 1000
    summary = replace(summary, engine=engine.name, engine_reason=engine.reason, seconds=seconds)
    return replace(summary, attempts=attempts, conflicts=attempts - 1)


def _under_check(context: TableContext) -> TableContext:
    """By bucket where the table says nothing or `off`: that is for its writers, what an update has read must not have changed."""
    if context.options.commit_data_conflict_check != OFF:
        return context
    return replace(context, options=context.options.with_overrides({DATA_CONFLICT_CHECK: BUCKET}))


def _attempt(
    context: TableContext, change: RowChange, identity: CommitIdentity, engine: Engine, progress: Progress
) -> UpdateSummary:
    """Plan at the latest snapshot, change the rows of each bucket, commit."""
    tasks = plan_update(context, change)
    if not tasks:
        return UpdateSummary()
    engine.prepare(Work.of(file for task in tasks for split in task.splits for file in split.files), progress)
    new_files = NewFiles(context, tasks[0].file_stamp)
    with new_files.deleted_on_failure(), phase(progress, "Changing rows", len(tasks)) as done:
        changed = run_traced(engine, context, functools.partial(update_bucket, change=change), tasks, done)
    messages = [bucket.message for bucket in changed if bucket.message is not None]
    new_files.delete_repeated(engine, messages)
    if not messages:
        return UpdateSummary()
    result = new_files.commit(messages, lambda: Committer(context).commit(messages, identity))
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
    stamp = new_stamp(context)
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
