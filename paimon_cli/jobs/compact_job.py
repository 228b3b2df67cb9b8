"""`compact`: plan buckets at the latest snapshot, run their compactions as engine tasks, commit a COMPACT snapshot."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.commit.abort import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.identity import fresh_identity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import CompactionTask, LeftAlone, check_compactable, plan_bucket, tasks_of
from paimon_cli.errors import Conflict, PartialSuccess
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import bucket_files
from paimon_cli.jobs.engine import Engine, TasksFailed
from paimon_cli.jobs.progress import Progress
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot

RETRY, SKIP, FAIL = "retry", "skip", "fail"
MAX_REPLANS = 10


@dataclass(frozen=True)
class CompactRequest:
    """What the user asked for; without partitions and buckets: all of them."""

    strategy: str = "full"
    partitions: tuple[dict[str, str], ...] = ()
    buckets: tuple[int, ...] = ()
    on_conflict: str = RETRY


@dataclass(frozen=True)
class CompactionPlan:
    """The decisions for all chosen buckets at one snapshot: what a dry run shows and a run carries out."""

    snapshot_id: int | None
    decisions: tuple[CompactionTask | LeftAlone, ...] = ()

    @property
    def tasks(self) -> list[CompactionTask]:
        return tasks_of(self.decisions)


@dataclass(frozen=True)
class CompactSummary:
    """What was done: buckets compacted, files and bytes in and out."""

    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    conflicts: int = 0
    engine: str = ""
    seconds: float = 0.0
    plan: CompactionPlan = field(default_factory=lambda: CompactionPlan(None), repr=False)


def plan_compaction(context: TableContext, request: CompactRequest, file_stamp: str = "") -> CompactionPlan:
    """Decide for each chosen bucket at the latest snapshot."""
    check_compactable(context)
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return CompactionPlan(None)
    chosen = _chosen(context, request)
    buckets = bucket_files(context, snapshot, keep_partition=chosen.matches, buckets=request.buckets or None)
    decide = functools.partial(plan_bucket, context, strategy=request.strategy, snapshot_id=snapshot.id, file_stamp=file_stamp)
    return CompactionPlan(snapshot.id, tuple(decide(bucket) for _, bucket in sorted(buckets.items())))


def _chosen(context: TableContext, request: CompactRequest) -> PartitionSpec:
    specs = [PartitionSpec.parse(context, typed) for typed in request.partitions]
    return functools.reduce(PartitionSpec.__or__, specs) if specs else PartitionSpec.everything()


def run_compact(context: TableContext, request: CompactRequest, engine: Engine, progress: Progress) -> CompactSummary:
    """One round: plan, compact, commit. After a conflict `retry` plans again from the latest snapshot."""
    started = context.clock.now_millis()
    conflicts = 0
    while True:
        plan = plan_compaction(context, request, context.names.uuid().replace("-", "")[:16])
        messages = _compact_buckets(context, plan, engine, progress)
        try:
            snapshots, skipped = _commit(context, messages, request.on_conflict)
            break
        except Conflict:
            conflicts += 1
            if request.on_conflict != RETRY or conflicts > MAX_REPLANS:
                raise
    summary = _summary(messages, skipped, snapshots, plan)
    seconds = (context.clock.now_millis() - started) / 1000
    summary = replace(summary, conflicts=conflicts + len(skipped), engine=engine.name, seconds=seconds)
    if skipped:
        raise PartialSuccess(
            f"{len(skipped)} of {len(messages)} buckets were skipped",
            "another job had compacted them meanwhile",
            "run the command again for the rest",
            buckets_committed=summary.buckets,
            buckets_skipped=len(skipped),
        )
    return summary


def _compact_buckets(context: TableContext, plan: CompactionPlan, engine: Engine, progress: Progress) -> list[CommitMessage]:
    """Run all tasks; when one fails (or the user interrupts), no new file of any of them stays."""
    tasks = plan.tasks
    if not tasks:
        return []
    progress.start("Compacting buckets", len(tasks))
    try:
        return engine.run_tasks(functools.partial(run_compaction, context), tasks, lambda message: progress.advance(1))
    except BaseException as failure:
        delete_stamped_files(context, tasks[0].file_stamp)
        if isinstance(failure, TasksFailed):
            raise failure.error from failure
        raise
    finally:
        progress.finish()


def _commit(
    context: TableContext, messages: list[CommitMessage], on_conflict: str
) -> tuple[Sequence[Snapshot], list[CommitMessage]]:
    """One snapshot for all buckets; with `skip` one each, so that a conflict costs its bucket only. Second: what was left out."""
    if on_conflict != SKIP:
        with removed_on_refusal(context, messages):
            return Committer(context).commit(messages, fresh_identity(context)).snapshots, []
    snapshots: list[Snapshot] = []
    skipped: list[CommitMessage] = []
    for message in messages:
        try:
            with removed_on_refusal(context, [message]):
                snapshots += Committer(context).commit([message], fresh_identity(context)).snapshots
        except Conflict:
            skipped.append(message)
    return snapshots, skipped


def _summary(
    messages: list[CommitMessage], skipped: list[CommitMessage], snapshots: Sequence[Snapshot], plan: CompactionPlan
) -> CompactSummary:
    done = [message for message in messages if message not in skipped]
    before = [file for message in done for file in message.compact_before]
    after = [file for message in done for file in message.compact_after]
    return CompactSummary(
        buckets=len(done),
        files_before=len(before),
        files_after=len(after),
        bytes_before=sum(file.file_size for file in before),
        bytes_after=sum(file.file_size for file in after),
        snapshots=tuple(snapshots),
        plan=plan,
    )


def watch_compaction(
    open_context: Callable[[], TableContext],
    request: CompactRequest,
    engine: Engine,
    progress: Progress,
    *,
    interval_seconds: float,
    max_rounds: int | None,
    on_round: Callable[[CompactSummary], None],
) -> None:
    """Rounds until `max_rounds` (None: until interrupted); the table is opened anew each time to follow its schema."""
    rounds = 0
    while max_rounds is None or rounds < max_rounds:
        context = open_context()
        on_round(run_compact(context, request, engine, progress))
        rounds += 1
        if max_rounds is None or rounds < max_rounds:
            context.clock.sleep(interval_seconds)
