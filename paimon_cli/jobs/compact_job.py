"""`compact`: merges the sorted runs of buckets.

1. plan: pick runs of each bucket at one snapshot (`plan_compaction`).
2. run: one engine task per bucket merges the runs into new files (`compact_part`); a task that fails leaves no files.
3. commit: a COMPACT snapshot replaces the files (`commit_results`). A bucket that another job compacted in the meantime is
planned again or skipped, or ends the job.

Buckets are independent: a failure or conflict in one does not discard the work on others. In tables with postponed buckets, an
earlier stage first distributes waiting rows to their buckets; in a service, another one then splits and merges buckets.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.commit_messages import CommitKind
from paimon_cli.commit.prepared_snapshot import check_global_indexes
from paimon_cli.compact.compaction_task import CompactionTask, Decision, PostponedRows, RegroupedPartition, SkippedBucket
from paimon_cli.errors import Conflict, NotSupported, PaimonError, PartialSuccess, Refused, SnapshotExpired, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import UnfinishedRescale
from paimon_cli.jobs.bucket_regroup import regroup_planned
from paimon_cli.jobs.bucket_tasks import run_bucket_tasks
from paimon_cli.jobs.compact_outcome import Outcome, commit_results, deleted_if_refused, drop_conflicting, try_commit
from paimon_cli.jobs.compact_request import CompactRequest, States
from paimon_cli.jobs.compact_summary import CompactionAccount, CompactSummary
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.range_compaction import RangeCommits
from paimon_cli.jobs.round_plan import CompactionPlan, plan_compaction
from paimon_cli.jobs.table_change import NewFiles, Shield, expiry_noticed, ran_on
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, CommitMessage
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import OnConflict
from paimon_cli.storage.capabilities import overlapping_writes
from paimon_cli.storage.time_bounds import within

MAX_REPLANS = 10


def run_compact(
    context: TableContext,
    request: CompactRequest,
    engine: Engine,
    progress: Progress,
    *,
    states: States | None = None,
    shield: Shield = contextlib.nullcontext,
    ready: CompactionPlan | None = None,
    plan_seconds: float = math.inf,
    account: CompactionAccount | None = None,
) -> CompactSummary:
    """Compact the requested buckets; with `on_conflict="retry"`, conflicting buckets are planned again at the latest snapshot.

    `ready`: a plan for this request to start with. `states`: bucket states remembered between rounds. `plan_seconds`: the time of
    each plan, after which `TookTooLong` is raised; the compaction itself has no bound. `account`: receives what was done, also if
    an error is raised.
    If some buckets could not be compacted, the others stay committed and `PartialSuccess` is raised; if none was committed, the
    error of the first bucket is raised.
    """
    work = _Compaction(context, request, engine, progress, {} if states is None else states, shield, ready, plan_seconds)
    try:
        work.run_stages()
    finally:
        summary = work.summary()
        if account is not None:
            account.summary, account.lost_read, account.lost_written = summary, work.total.lost_read, work.total.lost_written
    _raise_unfinished(request, work.total, summary)
    return summary


Stage = Callable[[frozenset[BucketId] | None], CompactionPlan]
"""Plans, runs and commits one stage of a compaction, for the given buckets (None: all); adds to `partly` what it has done."""


@dataclass
class _Compaction:
    """A compaction in progress. `total` and `replans` cover all stages; `plan` is the first plan of the first stage.

    `uncut`: a plan that needs no cuts, for the stage after them. `known`: names of the files that buckets had when they were cut.
    `begun`: the bytes that a stage at work is to read of each bucket; `partly`: what it has committed so far.
    """

    context: TableContext
    request: CompactRequest
    engine: Engine
    progress: Progress
    states: States
    shield: Shield
    ready: CompactionPlan | None
    plan_seconds: float = math.inf
    total: Outcome = field(default_factory=Outcome)
    plan: CompactionPlan | None = None
    replans: int = 0
    uncut: CompactionPlan | None = None
    known: dict[BucketId, set[str]] = field(default_factory=dict)
    begun: Mapping[BucketId, int] = field(default_factory=dict)
    partly: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.started = self.context.clock.now_millis()

    def run_stages(self) -> None:
        """Run the stages that the table needs, one after the other."""
        if self.request.mends_counts(self.context):
            self.run(self.mend_counts)
            self.plan = None  # the one within the limits of the request follows
        if self.context.mode.bucket_mode.postpones:
            self.run(self.distribute_rows)
            if self.request.may_regroup:
                self.run(self.regroup_partitions)
                self.request = replace(self.request, regroups=False)
        if self.request.cuts_runs(self.context):
            self.run(self.cut_runs)
        self.run(self.compact_buckets)

    def run(self, stage: Stage) -> None:
        """Run a stage, then again for conflicting buckets, as often as the request allows."""
        allowed = MAX_REPLANS if self.request.on_conflict == OnConflict.RETRY and self.request.if_snapshot is None else 0
        of_stage, beyond = Outcome(), dict[BucketId, Conflict]()
        try:
            with expiry_noticed(self.context, None):
                plan = self._run_once(stage, None, of_stage)
                self.plan = self.plan or plan
                while allowed and of_stage.conflicts:
                    allowed, self.replans, refused = allowed - 1, self.replans + 1, dict(of_stage.conflicts)
                    again = self._run_once(stage, frozenset(refused), of_stage)
                    left = {skipped.bucket_id for skipped in again.decisions if _is_left(skipped)}
                    beyond |= {bucket: refused[bucket] for bucket in left & refused.keys()}
                of_stage.conflicts |= beyond  # the limits do not suffice for reading these once more
        except PaimonError as error:
            _note_distributed_rows(error, self.total)
            if made := [snapshot.id for snapshot in (*self.total.snapshots, *of_stage.snapshots)]:
                error.details["published_snapshots"] = [*made, *error.details.get("published_snapshots", ())]
            raise
        finally:
            self.total.add_stage(of_stage)

    def _run_once(self, stage: Stage, only: frozenset[BucketId] | None, of_stage: Outcome) -> CompactionPlan:
        """Run a stage for these buckets (None: all), and add its outcome; what was lost is counted whatever happens.

        What it has read counts towards the limits of all that follows.
        """
        self.begun, self.partly = {}, Outcome()
        try:
            return stage(only)
        finally:
            self.partly.note_lost(self.begun)
            of_stage.add_round(self.partly)
            self.request = self.request.after_reading(self.partly.read_size)

    def _begin(self, works: Sequence[CompactionTask | PostponedRows | RegroupedPartition]) -> None:
        """Note what a stage is about to read. Raises `NotSupported` if the commit could not keep a global index."""
        if works and self.context.mode.tracks_rows:
            check_global_indexes(self.context, self.context.snapshots.latest())
        self.begun = {work.bucket_id: work.read_size for work in works}

    def regroup_partitions(self, only: frozenset[BucketId] | None) -> CompactionPlan:
        """Split and merge the buckets of partitions whose count does not fit their rows."""
        new_files = self._new_files()
        plan = self._plan(self.request.after(self.total.committed), new_files.stamp, only)
        self._begin(plan.regrouped)
        regroup_planned(new_files, plan, self.engine, self.progress, self.partly)
        return plan

    def mend_counts(self, only: frozenset[BucketId] | None) -> CompactionPlan:
        """Move the rows of files that writers of other engines committed with an older bucket count, and finish a rescale."""
        plan = self.ready if only is None and self.ready is not None else self._plan(self.request, "", only)
        if not self.request.pays_for_counts(plan.size_to_move):
            return plan
        if plan.mixed:
            from paimon_cli.jobs.stale_buckets import move_all_stale_files  # it reads and writes rows, which others do not

            move_all_stale_files(self.context, self.shield, self.partly)
        if plan.unfinished is not None and not (self.partly.conflicts or self.partly.failures):
            self._finish_rescale(plan.unfinished, plan.size_to_move)
        return plan

    def _finish_rescale(self, left: UnfinishedRescale, size: int) -> None:
        """Finish a rescale that was interrupted, which reads `size` bytes. If that fails, the table is compacted all the same."""
        from paimon_cli.jobs.unfinished_rescale import finish_rescale

        place, outcome = BucketId(min(left.partitions, default=EMPTY_ROW), 0), self.partly
        try:
            with self.shield():
                done = finish_rescale(self.context, left, self.engine, self.progress)
        except Conflict as conflict:
            outcome.conflicts[place], outcome.lost_read = conflict, outcome.lost_read + size
        except (NotSupported, Refused, UsageError) as refusal:
            outcome.failures[place] = refusal
        else:
            outcome.rescaled_to = left.buckets
            outcome.note_moved(self.context, done.snapshots)
            self.context, self.ready = self.context.reopened(), None

    def distribute_rows(self, only: frozenset[BucketId] | None) -> CompactionPlan:
        """Distribute postponed rows to their buckets."""
        new_files = self._new_files()
        plan = self._plan(self.request, new_files.stamp, only)
        self._begin(plan.postponed)
        _distribute_rows(new_files, self.request, plan, self.engine, self.progress, self.partly)
        return plan

    def cut_runs(self, only: frozenset[BucketId] | None) -> CompactionPlan:
        """Cut the upper runs of large buckets into ranges of keys, which are compacted afterwards."""
        new_files = self._new_files()
        plan = self._plan_of_buckets(new_files.stamp, only)
        ranges = [self.request.ranges_of(self.context, task) for task in plan.tasks]
        cuts = replace(plan, decisions=tuple(found.cut for found in ranges if found is not None and found.cut is not None))
        if not cuts.tasks:
            self.uncut = plan if only is None else None
            return plan
        self._begin(cuts.tasks)
        with overlapping_writes(self.context.storage):
            results = run_bucket_tasks(RangeCommits(new_files, self.engine, self.partly), self.request, cuts, self.progress)
            with self.shield():
                commit_results(new_files, results, self.engine, self.partly)
        names = {task.bucket_id: {file.file_name for file in task.files} for task in plan.tasks}
        self.known |= {message.bucket_id: names[message.bucket_id] for message in self.partly.committed}
        return plan

    def compact_buckets(self, only: frozenset[BucketId] | None) -> CompactionPlan:
        """Merge the runs of buckets."""
        new_files = self._new_files()
        plan = self._plan_of_buckets(new_files.stamp, only)
        if only is None:
            plan = replace(plan, decisions=tuple(self._without_newer(decision) for decision in plan.decisions))
        self._begin(plan.tasks)
        with overlapping_writes(self.context.storage):
            results = run_bucket_tasks(RangeCommits(new_files, self.engine, self.partly), self.request, plan, self.progress)
            with self.shield():
                commit_results(new_files, results, self.engine, self.partly)
        _remember(self.states, plan, self.partly)
        return plan

    def _without_newer(self, decision: Decision) -> Decision:
        """The decision about a bucket without files of level 0 that are newer than its cuts: they may span all ranges."""
        known = self.known.get(decision.bucket_id)
        if known is None or not isinstance(decision, CompactionTask):
            return decision
        files = tuple(file for file in decision.files if file.level or file.file_name in known)
        return replace(decision, files=files) if any(file.level < decision.max_level for file in files) else decision

    def _plan_of_buckets(self, stamp: str, only: frozenset[BucketId] | None) -> CompactionPlan:
        rest, distributed = self.request.after(self.total.committed), bool(self.total.committed)
        if self.uncut is not None and only is None:
            return self.uncut.prepared(stamp, rest)
        if self.ready is not None and only is None and not (distributed or self.total.stale_files):
            return self.ready.prepared(stamp, rest)
        allowed = self.request.unknown_buckets_allowed or distributed
        return self._plan(replace(rest, unknown_buckets_allowed=allowed), stamp, only)

    def _plan(self, request: CompactRequest, stamp: str, only: frozenset[BucketId] | None) -> CompactionPlan:
        return within(
            self.plan_seconds, lambda: plan_compaction(self.context, request, stamp, self.states, only), self.context.url
        )

    def _new_files(self) -> NewFiles:
        return NewFiles(self.context, new_stamp(self.context), self.shield, self.started)

    def summary(self) -> CompactSummary:
        run = ran_on(self.engine, self.context, self.started)
        plan, conflicts = self.plan or CompactionPlan(None), self.replans + len(self.total.conflicts)
        return CompactSummary.of(self.context.mode, self.total, plan, conflicts, run)


def _is_left(decision: Decision) -> bool:
    return isinstance(decision, SkippedBucket) and decision.is_left


def _note_distributed_rows(error: PaimonError, distributed: Outcome) -> None:
    """Add to the error of a later stage that the commit of the distributed rows remains in place."""
    if any(message.bucket == POSTPONE_BUCKET for message in distributed.committed):
        ids = [snapshot.id for snapshot in distributed.snapshots]
        note = f"the postponed rows already have their buckets, since snapshot {ids[-1]}"
        error.why = f"{error.why}; {note}" if error.why else note
        error.details["snapshots"] = ids


def _distribute_rows(
    new_files: NewFiles, request: CompactRequest, plan: CompactionPlan, engine: Engine, progress: Progress, outcome: Outcome
) -> None:
    """Commit the postponed rows of all partitions at once; after a conflict, those of the partitions without one."""
    context = new_files.context
    if not plan.postponed or plan.snapshot_id is None:
        return
    from paimon_cli.jobs.postponed_rows import distribute, partitions_changed_since

    partitions = frozenset(rows.partition for rows in plan.postponed)
    try:
        with expiry_noticed(context, plan.snapshot_id):
            snapshot = context.snapshots.get(plan.snapshot_id)
            strategy = None if request.merges_afterwards else request.strategy
            distributed = distribute(new_files, partitions, snapshot, strategy, engine, progress)
    except SnapshotExpired as expired:
        outcome.conflicts = {BucketId(partition, POSTPONE_BUCKET): expired for partition in partitions}
        return
    with new_files.shield():
        conflict = _commit_distributed(new_files, distributed, outcome)
        if conflict is None:
            return
        with deleted_if_refused(new_files, waiting := list(distributed)):
            refused = partitions_changed_since(context, distributed) or partitions
            left = [message for message in distributed if message.partition not in refused]
            waiting[:] = left
            drop_conflicting(new_files, [message for message in distributed if message.partition in refused], conflict, outcome)
        if left and (again := _commit_distributed(new_files, left, outcome)) is not None:
            drop_conflicting(new_files, left, again, outcome)
    outcome.conflicts = {BucketId(partition, POSTPONE_BUCKET): why for (partition, _), why in outcome.conflicts.items()}


def _commit_distributed(new_files: NewFiles, messages: list[CommitMessage], outcome: Outcome) -> Conflict | None:
    return try_commit(new_files, messages, outcome, CommitKind.DISTRIBUTE)


def _remember(states: States, plan: CompactionPlan, outcome: Outcome) -> None:
    """Remember the states of buckets that were skipped or committed."""
    committed = {message.bucket_id for message in outcome.committed}
    for decision in plan.decisions:
        if isinstance(decision, SkippedBucket) or decision.bucket_id in committed:
            states[decision.bucket_id] = decision.state


def _raise_unfinished(request: CompactRequest, total: Outcome, summary: CompactSummary) -> None:
    """Raise for buckets that were not compacted; failures come before conflicts, which a repeated run may resolve."""
    errors: list[PaimonError] = [*total.failures.values(), *total.conflicts.values()]
    if not errors:
        return
    unfinished = {*total.failures, *total.conflicts}
    others = len(total.regrouped) + total.stale_files + bool(total.rescaled_to)
    done = len({message.bucket_id for message in total.committed} - unfinished) + others
    if not (total.committed or others) and (request.on_conflict != OnConflict.SKIP or total.failures):
        raise errors[0]
    what, hint = f"{len(unfinished)} of {done + len(unfinished)} buckets", "run the command again for the remaining buckets"
    details = {"buckets_committed": done, "buckets_skipped": len(unfinished), "snapshots": [s.id for s in summary.snapshots]}
    if total.failures:
        raise PartialSuccess(f"{what} failed", str(errors[0]), errors[0].hint or hint, **details)
    raise PartialSuccess(f"{what} were skipped", "another job compacted them meanwhile", hint, **details)
