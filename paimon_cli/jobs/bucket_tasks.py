"""Runs the tasks of a compaction plan, and brings their results together to one for each bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_cli.bucket.deletion_vectors import ChangedVectors
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import SnapshotExpired, UsageError
from paimon_cli.jobs.bucket_task import CompactedPart, FailedBucket, compact_part
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Engine, Progress, phase, run_traced
from paimon_cli.jobs.engine_choice import LOCAL
from paimon_cli.jobs.process import container_memory
from paimon_cli.jobs.range_compaction import RangeCommits
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.table_change import NewFiles, expiry_noticed
from paimon_cli.metadata.data_file import BucketId, CommitMessage
from paimon_cli.pieces import PIECES
from paimon_cli.requests.compaction import MIN_MEMORY

if TYPE_CHECKING:
    from paimon_cli.write.sorted_write import SortOrder


def run_bucket_tasks(
    ranges: RangeCommits, request: CompactRequest, plan: CompactionPlan, progress: Progress
) -> list[CommitMessage | FailedBucket]:
    """Run all tasks, and commit those of ranges. Returns the results of the others. If the engine fails or the user interrupts,
    all new files that are not committed are deleted.
    """
    if not plan.tasks:
        return []
    new_files, engine = ranges.new_files, ranges.engine
    engine.prepare(plan.work, progress)
    memory = _memory_of_a_task(request, engine)
    with new_files.deleted_on_failure(), ranges.deleted_on_failure():
        results: Sequence[CommitMessage | FailedBucket]
        if request.order is not None:
            results = _sort(new_files, request.order, plan, memory, engine, progress)
        else:
            tasks = [part.with_memory(memory) for part in ranges.divided(new_files.context, request, plan.tasks)]
            others: list[CommitMessage | FailedBucket] = []
            with phase(progress, "Compacting buckets", len(tasks)) as advance:

                def done(finished: CompactedPart) -> None:
                    if not ranges.commit(finished):
                        others.append(finished.result)
                    advance(finished)

                sizes = [task.size for task in tasks]
                run_traced(engine, new_files.context, compact_part, tasks, done, sizes, computes=True)
            ranges.delete_repeated()
            results = _per_bucket(others)
        appended = {task.bucket_id: task for task in plan.tasks if task.packs}
        return [_without_vectors(new_files, appended.get(result.bucket_id), result) for result in results]


def _sort(
    new_files: NewFiles, order: SortOrder, plan: CompactionPlan, memory: int | None, engine: Engine, progress: Progress
) -> Sequence[CommitMessage | FailedBucket]:
    """Sort all partitions of the plan; if its snapshot expires meanwhile, none is sorted."""
    from paimon_cli.jobs.sort_job import sort_partitions

    try:
        with expiry_noticed(new_files.context, plan.snapshot_id):
            return sort_partitions(new_files, plan.tasks, order, memory, engine, progress)
    except SnapshotExpired as expired:
        return [FailedBucket(task, expired) for task in plan.tasks]


def _per_bucket(results: Sequence[CommitMessage | FailedBucket]) -> list[CommitMessage | FailedBucket]:
    """One result per bucket: the combined message of its tasks, or their first failure."""
    found: dict[BucketId, CommitMessage | FailedBucket] = {}
    for result in results:
        before = found.setdefault(result.bucket_id, result)
        if before is result or isinstance(before, FailedBucket):
            continue
        found[result.bucket_id] = (
            result if isinstance(result, FailedBucket) else replace(before, compact=before.compact.followed_by(result.compact))
        )
    return list(found.values())


def _without_vectors(
    new_files: NewFiles, task: CompactionTask | None, result: CommitMessage | FailedBucket
) -> CommitMessage | FailedBucket:
    """For a bucket of an append table, drop the vectors of compacted files; all packs of the bucket share its index files."""
    if task is None or not task.index_files or isinstance(result, FailedBucket):
        return result
    vectors = ChangedVectors(new_files.context, task.picked, new_files.stamp)
    for file in result.compact.removed:
        vectors.drop(file.file_name)
    deleted, new = vectors.write(frozenset(file.file_name for file in (*task.files, *task.others)))
    return replace(result, compact=replace(result.compact, removed_indexes=deleted, added_indexes=new))


def _memory_of_a_task(request: CompactRequest, engine: Engine) -> int | None:
    """Bytes that each merge may use; None for the default. In a container, local tasks share half of its memory limit."""
    if request.memory is None:
        limit = container_memory() if engine.name == LOCAL else None
        share = PIECES.merge_bytes if limit is None else max(MIN_MEMORY, limit // 2 // engine.tasks_per_process)
        return share if share < PIECES.merge_bytes else None
    share = request.memory // engine.tasks_per_process
    if share < MIN_MEMORY:
        raise UsageError(
            f"--memory is too small for {engine.tasks_per_process} concurrent compactions", "each of them needs at least 1 mb"
        )
    return share
