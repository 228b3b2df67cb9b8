"""Gives partitions other bucket counts, by splitting or merging each bucket by itself (`compact/bucket_regrouper`).

One COMPACT snapshot replaces all files of a partition: rows do not change, so streams have nothing to see. A commit to one of its
buckets in the meantime is a conflict, because its files would have another count; rows that are postponed go on waiting. Nothing
of a regrouping that was interrupted is visible, and the next run begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.compact.bucket_regrouper import RegroupTask, regroup_buckets, regroup_tasks
from paimon_cli.errors import SnapshotExpired, undone_on_failure
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_outcome import Outcome, try_commit
from paimon_cli.jobs.engine import Engine, Progress, Work, phase, run_traced
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.table_change import NewFiles, expiry_noticed
from paimon_cli.metadata.data_file import CommitMessage, FileFilter
from paimon_cli.metadata.snapshot import Snapshot


def can_regroup(context: TableContext, buckets: int, new_buckets: int) -> bool:
    """Whether a partition of the table can be brought from one positive bucket count to the other without routing its rows."""
    return context.mode.has_keys and min(buckets, new_buckets) > 0 and not max(buckets, new_buckets) % min(buckets, new_buckets)


def regroup(
    new_files: NewFiles,
    snapshot: Snapshot,
    counts: Mapping[bytes, int],
    engine: Engine,
    progress: Progress,
    merges: bool = True,
) -> dict[bytes, list[CommitMessage]]:
    """Write the rows of these partitions at `snapshot` into as many buckets as `counts` says; returns the messages of each.

    `merges`: whether runs whose compaction is due are merged on the way. If it fails, no new file remains.
    """
    context = new_files.context
    held: dict[bytes, list[BucketFiles]] = {}
    for bucket in bucket_files(context, snapshot, FileFilter(counts.__contains__)).values():
        if bucket.bucket >= 0:
            held.setdefault(bucket.partition, []).append(bucket)
    tasks = [
        task
        for partition, buckets in sorted(held.items())
        for task in regroup_tasks(buckets, counts[partition], snapshot.id, new_files.stamp, merges)
    ]
    with new_files.deleted_on_failure():
        results = run_regroup_tasks(context, tasks, engine, progress)
        found: dict[bytes, list[CommitMessage]] = {}
        for task, messages in zip(tasks, results, strict=True):
            found.setdefault(task.partition, []).extend(messages)
        new_files.delete_repeated(engine, [message for messages in found.values() for message in messages])
    return found


def run_regroup_tasks(
    context: TableContext, tasks: Sequence[RegroupTask], engine: Engine, progress: Progress
) -> list[tuple[CommitMessage, ...]]:
    """Run one engine task for each; returns the messages of each."""
    engine.prepare(Work.of(file for task in tasks for file in task.files), progress)
    with phase(progress, "Splitting and merging buckets", len(tasks)) as done:
        return run_traced(engine, context, _regroup, tasks, done, [task.size for task in tasks])


def regroup_planned(new_files: NewFiles, plan: CompactionPlan, engine: Engine, progress: Progress, outcome: Outcome) -> None:
    """Regroup the partitions of a plan, each in a commit of its own, so that a conflict in one leaves the others alone.

    Adds to `outcome` what becomes of each, also if an error is raised.
    """
    context, planned = new_files.context, {one.partition: one for one in plan.regrouped}
    if not planned or plan.snapshot_id is None:
        return
    try:
        with expiry_noticed(context, plan.snapshot_id):
            snapshot = context.snapshots.get(plan.snapshot_id)
            counts = {partition: one.new_buckets for partition, one in planned.items()}
            found = regroup(new_files, snapshot, counts, engine, progress)
    except SnapshotExpired as expired:
        outcome.conflicts = {one.bucket_id: expired for one in planned.values()}
        return
    waiting = list(found.values())
    with new_files.shield(), undone_on_failure(lambda: _settle_refused(new_files, waiting)):
        while waiting:
            messages = waiting.pop(0)
            conflict = try_commit(new_files, messages, done := Outcome())
            outcome.regrouped += done.committed
            outcome.snapshots += done.snapshots
            if conflict is not None:
                new_files.settle(messages, CommitResult.failed(conflict))
                outcome.conflicts[planned[messages[0].partition].bucket_id] = conflict
                outcome.note_unwritten(messages)


def _settle_refused(new_files: NewFiles, left: Iterable[Sequence[CommitMessage]]) -> None:
    """Delete the files of commits that were not tried any more."""
    for messages in left:
        new_files.settle(messages, CommitResult(outcome=CommitOutcome.REFUSED))


def _regroup(context: TableContext, task: RegroupTask) -> tuple[CommitMessage, ...]:
    return regroup_buckets(context, task)
