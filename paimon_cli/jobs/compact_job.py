"""`compact`: plan buckets at a snapshot, run their compactions as engine tasks, commit a COMPACT snapshot.

The buckets are independent: one that fails, or that another job has changed meanwhile, does not cost the others their work.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.deletion_vectors import ChangedVectors
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import (
    FULL_STRATEGY,
    MINOR_STRATEGY,
    UNLIMITED,
    CompactionTask,
    Decision,
    PostponedRows,
    RoundLimits,
    SkippedBucket,
    apply_limits,
    check_compactable,
    newest_data,
    plan_bucket,
    sort_bucket,
    tasks_of,
)
from paimon_cli.errors import Conflict, FilesConflict, PaimonError, PartialSuccess, UsageError, undone_on_failure
from paimon_cli.history.live_files import BucketFiles, bucket_files, bucket_numbers, expect_buckets
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress, Work, phase, run_traced
from paimon_cli.jobs.postponed_rows import give_out, in_the_way
from paimon_cli.jobs.sort_job import check_sortable, sort_partitions
from paimon_cli.jobs.table_change import NewFiles, Shield
from paimon_cli.lsm.compaction_picker import UNKNOWN, PickState
from paimon_cli.maintain.expire_partitions import expiring_partitions
from paimon_cli.metadata.data_file import BucketId, CommitMessage, DataFileMeta, FileFilter, upper_file_names, vector_file_names
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_mode import BucketMode
from paimon_cli.write.sorted_write import SortOrder

RETRY, SKIP, FAIL = "retry", "skip", "fail"
MAX_REPLANS = 10
LEAST_MEMORY = 1 << 20

States = dict[BucketId, PickState]
"""What a process remembers of a table's buckets from one plan to the next."""


@dataclass(frozen=True)
class CompactRequest:
    """The user's request; without partitions and buckets it means all of them.

    `idle_millis`: partitions without new data for this long are fully compacted, others by the strategy (not at all if that is
    full, too). `at_snapshot`: plan at this snapshot, not at the latest. `memory`: bytes that the merges of one process may use.
    `unknown_buckets_allowed`: bucket numbers that a table lacks select nothing, for a request to many tables. `order`: sort the
    rows of whole partitions, instead of what the strategy says.
    """

    strategy: str = "full"
    partitions: tuple[dict[str, str], ...] = ()
    buckets: tuple[int | range, ...] = ()
    on_conflict: str = RETRY
    limits: RoundLimits = UNLIMITED
    idle_millis: int | None = None
    at_snapshot: int | None = None
    memory: int | None = None
    unknown_buckets_allowed: bool = False
    order: SortOrder | None = None


@dataclass(frozen=True)
class CompactionPlan:
    """The decisions for all selected buckets at one snapshot: a dry run shows them and a run carries them out."""

    snapshot_id: int | None
    decisions: tuple[Decision, ...] = ()

    @property
    def tasks(self) -> list[CompactionTask]:
        return tasks_of(self.decisions)

    @property
    def postponed(self) -> list[PostponedRows]:
        """Partitions whose waiting rows get their buckets, before any bucket is compacted."""
        return [decision for decision in self.decisions if isinstance(decision, PostponedRows)]

    @property
    def work(self) -> Work:
        return Work.of(file for part in (self.tasks, self.postponed) for task in part for file in task.files)


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
        """Conflicts are those of the latest round: buckets of earlier ones have been planned again."""
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


@dataclass(frozen=True)
class CompactSummary:
    """The result: buckets compacted, files and bytes in and out; `conflicts`: buckets that other jobs had changed meanwhile."""

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

    @classmethod
    def of(cls, outcome: Outcome, plan: CompactionPlan, conflicts: int, engine: Engine, seconds: float) -> CompactSummary:
        before = [file for message in outcome.committed for file in message.compact_before]
        after = [file for message in outcome.committed for file in message.compact_after]
        return cls(
            buckets=sum(message.bucket != POSTPONE_BUCKET for message in outcome.committed),
            files_before=len(before),
            files_after=len(after),
            bytes_before=sum(file.file_size for file in before),
            bytes_after=sum(file.file_size for file in after),
            snapshots=tuple(outcome.snapshots),
            conflicts=conflicts,
            engine=engine.name,
            engine_reason=engine.reason,
            seconds=seconds,
            plan=plan,
        )


def run_compact(
    context: TableContext,
    request: CompactRequest,
    engine: Engine,
    progress: Progress,
    *,
    states: States | None = None,
    shield: Shield = contextlib.nullcontext,
) -> CompactSummary:
    """One round: plan, compact, commit. With `retry`, buckets with a conflict are planned again from the latest snapshot.

    If buckets are left out in the end, the others stay committed: `PartialSuccess`, or the error itself if none was committed.
    """
    started = context.clock.now_millis()
    total, remembered = Outcome(), {} if states is None else states
    replans_allowed = MAX_REPLANS if request.on_conflict == RETRY and request.at_snapshot is None else 0

    def give_out_rows(only: frozenset[BucketId] | None) -> tuple[CompactionPlan, Outcome]:
        new_files = NewFiles(context, new_stamp(context), shield)
        plan = plan_compaction(context, request, new_files.stamp, remembered, only)
        return plan, _give_out_rows(new_files, request, plan, engine, progress)

    def compact_buckets(only: frozenset[BucketId] | None) -> tuple[CompactionPlan, Outcome]:
        new_files = NewFiles(context, new_stamp(context), shield)
        limits, gave_out = request.limits.after(total.committed), bool(total.committed)
        rest = replace(request, limits=limits, unknown_buckets_allowed=request.unknown_buckets_allowed or gave_out)
        plan = plan_compaction(context, rest, new_files.stamp, remembered, only)
        results = _compact_buckets(new_files, request, plan, engine, progress)
        with shield():
            outcome = _commit_results(new_files, results, engine)
        _remember(remembered, plan, outcome)
        return plan, outcome

    plan, replans = None, 0
    for run_round in ([give_out_rows] if context.mode.bucket_mode is BucketMode.POSTPONED else []) + [compact_buckets]:
        done, first, again = _until_settled(run_round, replans_allowed)
        total.add_stage(done)
        plan, replans = plan or first, replans + again
    seconds = (context.clock.now_millis() - started) / 1000
    summary = CompactSummary.of(total, plan or CompactionPlan(None), replans + len(total.conflicts), engine, seconds)
    _raise_what_is_left(request, total, summary)
    return summary


RunRound = Callable[[frozenset[BucketId] | None], tuple[CompactionPlan, "Outcome"]]
"""Plans and does one stage of a compaction, of these buckets or of all."""


def _until_settled(run_round: RunRound, replans_allowed: int) -> tuple[Outcome, CompactionPlan, int]:
    """Run a stage, and again for the buckets with a conflict; also the first plan, and how often there was another."""
    total = Outcome()
    first, outcome = run_round(None)
    total.add_round(outcome)
    for replans in range(replans_allowed):
        if not total.conflicts:
            return total, first, replans
        total.add_round(run_round(frozenset(total.conflicts))[1])
    return total, first, replans_allowed


def show_level_0(context: TableContext, buckets: Sequence[BucketId], engine: Engine, progress: Progress) -> str | None:
    """Compact buckets whose new rows readers or streams would not see before; why that failed, if it did: the rows are committed.

    `buckets`: none means all, if no rows are postponed: those are left to other jobs. Nothing is done where they see level 0, for
    write-only tables, which another job compacts, and with `lookup-wait=false`.
    """
    if not buckets and context.mode.bucket_mode is BucketMode.POSTPONED:
        return None
    if not context.mode.awaits_compaction or context.options.write_only or not context.options.lookup_wait:
        return None
    request = CompactRequest(MINOR_STRATEGY, buckets=tuple(sorted({bucket for _, bucket in buckets})))
    try:
        run_compact(context, request, engine, progress)
    except PaimonError as error:
        return str(error)
    return None


def plan_compaction(
    context: TableContext,
    request: CompactRequest,
    file_stamp: str = "",
    states: Mapping[BucketId, PickState] | None = None,
    only: frozenset[BucketId] | None = None,
) -> CompactionPlan:
    """Decide for each selected bucket at the latest snapshot (or the requested one); `only`: consider only these buckets."""
    check_compactable(context)
    if request.order is not None:
        check_sortable(context, request.order)
    asked = request.at_snapshot
    snapshot = context.snapshots.latest() if asked is None else context.snapshots.get(asked)
    if snapshot is None:
        if not request.unknown_buckets_allowed:
            expect_buckets(context, request.buckets, ())
        return CompactionPlan(None)
    chosen = PartitionSpec.parse_any(context, request.partitions)
    numbers = bucket_numbers(request.buckets)
    buckets = bucket_files(context, snapshot, FileFilter(chosen.matches, numbers))
    if numbers and not request.unknown_buckets_allowed and not numbers <= {bucket for _, bucket in buckets}:
        expect_buckets(context, request.buckets, bucket_files(context, snapshot).values())
    newest = newest_data(buckets.values()) if request.idle_millis is not None else {}
    expiring = expiring_partitions(context, {bucket.partition for bucket in buckets})

    def decide(bucket: BucketFiles) -> Decision:
        if request.order is not None:
            return sort_bucket(bucket, str(request.order), snapshot.id, file_stamp)
        strategy = request.strategy
        if bucket.partition in expiring:
            return SkippedBucket(*bucket.bucket_id, _runs(bucket), "its partition is past partition.expiration-time")
        if request.idle_millis is not None:
            age = context.clock.now_millis() - newest[bucket.partition]
            if age >= request.idle_millis:
                strategy = FULL_STRATEGY
            elif strategy == FULL_STRATEGY:
                return SkippedBucket(*bucket.bucket_id, _runs(bucket), f"new data {age / 1000:.0f} s ago, not idle yet")
        return plan_bucket(context, bucket, strategy, snapshot.id, file_stamp, (states or {}).get(bucket.bucket_id, UNKNOWN))

    decisions = tuple(decide(bucket) for bucket_id, bucket in sorted(buckets.items()) if only is None or bucket_id in only)
    return CompactionPlan(snapshot.id, apply_limits(decisions, request.limits))


def _runs(bucket: BucketFiles) -> int:
    levels = [file.level for file in bucket.files]
    return levels.count(0) + len(set(levels) - {0})


def _compact_buckets(
    new_files: NewFiles, request: CompactRequest, plan: CompactionPlan, engine: Engine, progress: Progress
) -> list[CommitMessage | FailedBucket]:
    """Run all tasks; when the engine fails (or the user interrupts), no new file of any of them stays."""
    if not plan.tasks:
        return []
    engine.prepare(plan.work, progress)
    memory = _memory_of_a_task(request, engine)
    tasks = [part.with_memory(memory) for task in plan.tasks for part in task.parts]
    with new_files.deleted_on_failure():
        if request.order is not None:
            sorted_files = sort_partitions(new_files, plan.tasks, request.order, memory, engine, progress)
            by_bucket = {task.bucket_id: task for task in plan.tasks}
            return [_without_vectors(new_files, by_bucket[message.bucket_id], message) for message in sorted_files]
        with phase(progress, "Compacting buckets", len(tasks)) as done:
            results = _per_bucket(run_traced(engine, new_files.context, compact_bucket, tasks, done))
        appended = {task.bucket_id: task for task in plan.tasks if task.packs}
        return [_without_vectors(new_files, appended.get(result.bucket_id), result) for result in results]


def _give_out_rows(
    new_files: NewFiles, request: CompactRequest, plan: CompactionPlan, engine: Engine, progress: Progress
) -> Outcome:
    """One commit for the postponed rows of all partitions; after a conflict for those that have none."""
    outcome, context = Outcome(), new_files.context
    if not plan.postponed or plan.snapshot_id is None:
        return outcome
    partitions = frozenset(rows.partition for rows in plan.postponed)
    given_out = give_out(new_files, partitions, context.snapshots.get(plan.snapshot_id), request.strategy, engine, progress)
    with new_files.shield():
        conflict = _commit_given_out(new_files, given_out, outcome)
        if conflict is None:
            return outcome
        refused = in_the_way(context, given_out)
        left = [message for message in given_out if message.partition not in refused]
        left = left if len(left) < len(given_out) else []
        _drop_conflicting(new_files, [message for message in given_out if message not in left], conflict, outcome)
        if left and (again := _commit_given_out(new_files, left, outcome)) is not None:
            _drop_conflicting(new_files, left, again, outcome)
    outcome.conflicts = {BucketId(partition, POSTPONE_BUCKET): why for (partition, _), why in outcome.conflicts.items()}
    return outcome


def _commit_given_out(new_files: NewFiles, messages: list[CommitMessage], outcome: Outcome) -> Conflict | None:
    return _commit(new_files, messages, outcome, rows_are_new=True)


def _per_bucket(results: Sequence[CommitMessage | FailedBucket]) -> list[CommitMessage | FailedBucket]:
    """One result for each bucket: what its tasks did, or the first failure of any of them."""
    found: dict[BucketId, CommitMessage | FailedBucket] = {}
    for result in results:
        before = found.setdefault(result.bucket_id, result)
        if before is result or isinstance(before, FailedBucket):
            continue
        found[result.bucket_id] = result if isinstance(result, FailedBucket) else _together(before, result)
    return list(found.values())


def _together(one: CommitMessage, other: CommitMessage) -> CommitMessage:
    before, after = one.compact_before + other.compact_before, one.compact_after + other.compact_after
    return replace(one, compact_before=before, compact_after=after)


def _without_vectors(
    new_files: NewFiles, task: CompactionTask | None, result: CommitMessage | FailedBucket
) -> CommitMessage | FailedBucket:
    """The work on a bucket of an append table, with the vectors of what is left of its files: packs share index files."""
    if task is None or not task.index_files or isinstance(result, FailedBucket):
        return result
    vectors = ChangedVectors(new_files.context, task.picked, new_files.stamp)
    for file in result.compact_before:
        vectors.drop(file.file_name)
    gone, made = vectors.write(frozenset(file.file_name for file in (*task.files, *task.others)))
    return replace(result, compact_deleted_index_files=gone, compact_new_index_files=made)


def _memory_of_a_task(request: CompactRequest, engine: Engine) -> int | None:
    if request.memory is None:
        return None
    share = request.memory // engine.tasks_per_process
    if share < LEAST_MEMORY:
        raise UsageError(
            f"--memory is too little for {engine.tasks_per_process} compactions at a time", "each of them needs 1 mb at least"
        )
    return share


def compact_bucket(context: TableContext, task: CompactionTask) -> CommitMessage | FailedBucket:
    """One bucket's compaction as a task of an engine: its error is a result, so that the other buckets go on."""
    try:
        return run_compaction(context, task)
    except PaimonError as error:
        return FailedBucket(task, error)


def _commit_results(new_files: NewFiles, results: Sequence[CommitMessage | FailedBucket], engine: Engine) -> Outcome:
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
    conflict = _commit(new_files, messages, outcome)
    if conflict is None:
        return
    waiting = list(messages)
    with undone_on_failure(lambda: new_files.delete_created(waiting)):
        bases = {m.bucket_id: _Base(m.compact_before, m.read_index_files, m.read_upper_files) for m in messages}
        replaced = _replaced_buckets(new_files.context, bases)
        _drop_conflicting(new_files, [message for message in messages if message.bucket_id in replaced], conflict, outcome)
        left = [message for message in messages if message.bucket_id not in replaced]
        if len(left) == len(messages) == 1:
            _drop_conflicting(new_files, left, conflict, outcome)
            return
        waiting.clear()
        if replaced and left and _commit(new_files, left, outcome) is None:
            return
        waiting.extend(left)
        while waiting:
            message = waiting.pop(0)
            refusal = _commit(new_files, [message], outcome)
            if refusal is not None:
                _drop_conflicting(new_files, [message], refusal, outcome)


def _commit(new_files: NewFiles, messages: list[CommitMessage], outcome: Outcome, rows_are_new: bool = False) -> Conflict | None:
    """A conflict is an answer, and leaves the files for another attempt; any other refusal is raised."""
    context = new_files.context
    publish = functools.partial(Committer(context).commit, messages, fresh_identity(context), rows_are_new=rows_are_new)
    try:
        result = new_files.commit(messages, publish, keep_on=Conflict)
    except Conflict as conflict:
        return conflict
    outcome.snapshots += result.snapshots
    outcome.committed += messages
    return None


def _drop_conflicting(new_files: NewFiles, messages: Sequence[CommitMessage], conflict: Conflict, outcome: Outcome) -> None:
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


def _remember(states: States, plan: CompactionPlan, outcome: Outcome) -> None:
    """Keep the state of each task whose bucket was committed; buckets that no longer exist are forgotten."""
    committed = {message.bucket_id for message in outcome.committed}
    for decision in plan.decisions:
        if isinstance(decision, SkippedBucket) or decision.bucket_id in committed:
            states[decision.bucket_id] = decision.state


def _raise_what_is_left(request: CompactRequest, total: Outcome, summary: CompactSummary) -> None:
    """Raise failures first: a conflict may be retried, a failure must be examined."""
    errors: list[PaimonError] = [*total.failures.values(), *total.conflicts.values()]
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
