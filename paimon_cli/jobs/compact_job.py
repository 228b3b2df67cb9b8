"""`compact`: plan buckets at a snapshot, run their compactions as engine tasks, commit a COMPACT snapshot."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.compact.compaction_plan import (
    FULL_STRATEGY,
    CompactionTask,
    Decision,
    LeftAlone,
    check_compactable,
    plan_bucket,
    tasks_of,
)
from paimon_cli.compact.round_choice import UNLIMITED, RoundLimits, newest_data, within_limits
from paimon_cli.errors import Conflict, PaimonError, PartialSuccess, UsageError, cleaning_up
from paimon_cli.history.live_files import BucketFiles, bucket_files, expect_buckets
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_outcome import FailedBucket, Outcome, attempt, settle
from paimon_cli.jobs.engine import Engine, TasksFailed, Work, run_traced
from paimon_cli.jobs.progress import Progress
from paimon_cli.lsm.compaction_picker import UNKNOWN, PickState
from paimon_cli.metadata.data_file import BucketId, CommitMessage, FileFilter
from paimon_cli.metadata.snapshot import Snapshot

RETRY, SKIP, FAIL = "retry", "skip", "fail"
MAX_REPLANS = 10
LEAST_MEMORY = 1 << 20

Shield = Callable[[], AbstractContextManager[None]]
"""Holds signals back, so that a commit or a cleaning-up is not left half-way."""
States = dict[BucketId, PickState]
"""What a process remembers of a table's buckets from one plan to the next."""


@dataclass(frozen=True)
class CompactRequest:
    """What the user asked for; without partitions and buckets: all of them.

    `idle_millis`: partitions without new data for so long are compacted fully, others as the strategy says (not at all if that
    is full, too). `at_snapshot`: plan there and not at the latest. `memory`: bytes that the merges of one process may hold.
    `unknown_buckets_allowed`: numbers beyond a table's buckets choose nothing, for a request to many tables.
    """

    strategy: str = "full"
    partitions: tuple[dict[str, str], ...] = ()
    buckets: tuple[int, ...] = ()
    on_conflict: str = RETRY
    limits: RoundLimits = UNLIMITED
    idle_millis: int | None = None
    at_snapshot: int | None = None
    memory: int | None = None
    unknown_buckets_allowed: bool = False


@dataclass(frozen=True)
class CompactionPlan:
    """The decisions for all chosen buckets at one snapshot: what a dry run shows and a run carries out."""

    snapshot_id: int | None
    decisions: tuple[Decision, ...] = ()

    @property
    def tasks(self) -> list[CompactionTask]:
        return tasks_of(self.decisions)

    @property
    def work(self) -> Work:
        return Work.of(file for task in self.tasks for file in task.files)


@dataclass(frozen=True)
class CompactSummary:
    """What was done: buckets compacted, files and bytes in and out; `conflicts`: buckets that others had changed meanwhile."""

    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    conflicts: int = 0
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    plan: CompactionPlan = field(default_factory=lambda: CompactionPlan(None), repr=False)


def plan_compaction(
    context: TableContext,
    request: CompactRequest,
    file_stamp: str = "",
    states: Mapping[BucketId, PickState] | None = None,
    only: frozenset[BucketId] | None = None,
) -> CompactionPlan:
    """Decide for each chosen bucket at the latest snapshot (or the one asked for); `only`: of these."""
    check_compactable(context)
    asked = request.at_snapshot
    snapshot = context.snapshots.latest() if asked is None else context.snapshots.get(asked)
    if snapshot is None:
        if not request.unknown_buckets_allowed:
            expect_buckets(context, request.buckets, ())
        return CompactionPlan(None)
    chosen = _chosen(context, request)
    buckets = bucket_files(context, snapshot, FileFilter(chosen.matches, request.buckets or None))
    if not request.unknown_buckets_allowed and not set(request.buckets) <= {bucket for _, bucket in buckets}:
        expect_buckets(context, request.buckets, bucket_files(context, snapshot).values())
    newest = newest_data(buckets.values()) if request.idle_millis is not None else {}

    def decide(bucket: BucketFiles) -> Decision:
        strategy = request.strategy
        if request.idle_millis is not None:
            age = context.clock.now_millis() - newest[bucket.partition]
            if age >= request.idle_millis:
                strategy = FULL_STRATEGY
            elif strategy == FULL_STRATEGY:
                return LeftAlone(*bucket.bucket_id, _runs(bucket), f"new data {age / 1000:.0f} s ago, not idle yet")
        return plan_bucket(context, bucket, strategy, snapshot.id, file_stamp, (states or {}).get(bucket.bucket_id, UNKNOWN))

    decisions = tuple(decide(bucket) for bucket_id, bucket in sorted(buckets.items()) if only is None or bucket_id in only)
    return CompactionPlan(snapshot.id, within_limits(decisions, request.limits))


def _chosen(context: TableContext, request: CompactRequest) -> PartitionSpec:
    specs = [PartitionSpec.parse(context, typed) for typed in request.partitions]
    return functools.reduce(PartitionSpec.__or__, specs) if specs else PartitionSpec.everything()


def _runs(bucket: BucketFiles) -> int:
    levels = [file.level for file in bucket.files]
    return levels.count(0) + len(set(levels) - {0})


def run_compact(
    context: TableContext,
    request: CompactRequest,
    engine: Engine,
    progress: Progress,
    *,
    states: States | None = None,
    shield: Shield = contextlib.nullcontext,
) -> CompactSummary:
    """One round: plan, compact, commit. With `retry` the buckets that met a conflict are planned again from the latest snapshot.

    When buckets are left out in the end the others stay committed: `PartialSuccess`, or the error itself if none was.
    """
    started = context.clock.now_millis()
    total, first, only, replans = Outcome(), None, None, 0
    remembered = {} if states is None else states
    while True:
        stamp = context.names.uuid().replace("-", "")[:16]
        plan = plan_compaction(context, request, stamp, remembered, only)
        first = first or plan
        results = _compact_buckets(context, request, plan, engine, progress, shield)
        with shield():
            outcome = settle(context, results, stamp, attempted_twice=bool(results) and engine.retries_tasks)
        _remember(remembered, plan, outcome)
        _add(total, outcome)
        if not outcome.conflicts or request.on_conflict != RETRY or replans == MAX_REPLANS or request.at_snapshot is not None:
            break
        replans += 1
        only = frozenset(outcome.conflicts)
    conflicts = replans + len(outcome.conflicts)
    seconds = (context.clock.now_millis() - started) / 1000
    summary = _summary(total, first, conflicts, engine, seconds)
    _raise_what_is_left(request, total, outcome.conflicts, summary)
    return summary


def _compact_buckets(
    context: TableContext, request: CompactRequest, plan: CompactionPlan, engine: Engine, progress: Progress, shield: Shield
) -> list[CommitMessage | FailedBucket]:
    """Run all tasks; when the engine fails (or the user interrupts), no new file of any of them stays."""
    if not plan.tasks:
        return []
    engine.prepare(plan.work, progress)
    memory = _memory_of_a_task(request, engine)
    tasks = [task.with_memory(memory) for task in plan.tasks]
    progress.start("Compacting buckets", len(tasks))
    try:
        return run_traced(engine, context, attempt, tasks, lambda result: progress.advance(1))
    except BaseException as failure:
        with shield(), cleaning_up(failure.error if isinstance(failure, TasksFailed) else failure):
            delete_stamped_files(context, tasks[0].file_stamp)
        if isinstance(failure, TasksFailed):
            raise failure.error from failure
        raise
    finally:
        progress.finish()


def _memory_of_a_task(request: CompactRequest, engine: Engine) -> int | None:
    if request.memory is None:
        return None
    share = request.memory // engine.tasks_per_process
    if share < LEAST_MEMORY:
        raise UsageError(
            f"--memory is too little for {engine.tasks_per_process} compactions at a time", "each of them needs 1 mb at least"
        )
    return share


def _remember(states: States, plan: CompactionPlan, outcome: Outcome) -> None:
    """A task's state holds once its bucket is committed; of a bucket that is gone nothing is kept."""
    committed = {message.bucket_id for message in outcome.committed}
    for decision in plan.decisions:
        if isinstance(decision, LeftAlone) or decision.bucket_id in committed:
            states[decision.bucket_id] = decision.state


def _add(total: Outcome, outcome: Outcome) -> None:
    total.committed += outcome.committed
    total.snapshots += outcome.snapshots
    total.failures.update(outcome.failures)


def _summary(total: Outcome, plan: CompactionPlan, conflicts: int, engine: Engine, seconds: float) -> CompactSummary:
    before = [file for message in total.committed for file in message.compact_before]
    after = [file for message in total.committed for file in message.compact_after]
    return CompactSummary(
        buckets=len(total.committed),
        files_before=len(before),
        files_after=len(after),
        bytes_before=sum(file.file_size for file in before),
        bytes_after=sum(file.file_size for file in after),
        snapshots=tuple(total.snapshots),
        conflicts=conflicts,
        engine=engine.name,
        engine_reason=engine.reason,
        seconds=seconds,
        plan=plan,
    )


def _raise_what_is_left(
    request: CompactRequest, total: Outcome, conflicts: Mapping[BucketId, Conflict], summary: CompactSummary
) -> None:
    """Failures first: a conflict may be tried again, a failure has to be looked at."""
    errors: list[PaimonError] = [*total.failures.values(), *conflicts.values()]
    if not errors:
        return
    done = len(total.committed)
    if not done and (request.on_conflict != SKIP or total.failures):
        raise errors[0]
    of, hint = f"{len(errors)} of {done + len(errors)} buckets", "run the command again for the remaining buckets"
    details = {"buckets_committed": done, "buckets_skipped": len(errors), "snapshots": [s.id for s in summary.snapshots]}
    if total.failures:
        raise PartialSuccess(f"{of} failed", str(errors[0]), errors[0].hint or hint, **details)
    raise PartialSuccess(f"{of} were skipped", "another job compacted them meanwhile", hint, **details)
