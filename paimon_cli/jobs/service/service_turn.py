"""The turn of one table in a round of the compaction service.

`look` plans the compaction and its urgency, and writes nothing. `take` carries out the plan, then expires snapshots and deletes
orphans if the service is configured to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from paimon_cli.compact.compaction_task import CompactionTask, PostponedRows, SkippedBucket
from paimon_cli.errors import PaimonError, TookTooLong
from paimon_cli.history.live_files import LazyBuckets
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import METADATA
from paimon_cli.inspect.findings.runner import counted_findings, findings_of, is_of_call, unopened
from paimon_cli.jobs.compact_job import CompactSummary, run_compact
from paimon_cli.jobs.compact_request import BucketFigures, CompactionPlan, CompactRequest, States, plan_compaction
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.reclaim_job import clean_orphans, deletion, plan_expire, search_orphans
from paimon_cli.jobs.table_change import Shield
from paimon_cli.lsm.compaction_picker import forced_every
from paimon_cli.maintain.orphans import DAY_MILLIS, not_ahead_of_the_storage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.requests.compaction import NEVER, Upkeep
from paimon_cli.requests.maintenance import ExpireOptions
from paimon_cli.storage.time_bounds import within


@dataclass(frozen=True)
class UpkeepDone:
    """Expired snapshots and their deleted files; deleted orphans and their bytes."""

    snapshots_expired: int = 0
    files_expired: int = 0
    orphans: int = 0
    orphan_bytes: int = 0


NO_UPKEEP, NOT_KEPT_UP = Upkeep(), UpkeepDone()
Findings = Mapping[tuple[str, str], int]
"""The number of findings of a table by severity and code."""


@dataclass(frozen=True, order=True)
class Need:
    """Orders tables by urgency: most sorted runs above the trigger, then oldest uncompacted file, then fewest bytes to read."""

    runs_below_trigger: int
    since_millis: int
    size: int
    table: str

    @classmethod
    def of(cls, table: str, plan: CompactionPlan, trigger: int) -> Need:
        tasks: list[CompactionTask | PostponedRows] = [*plan.tasks, *plan.postponed]
        runs = max((task.runs_before for task in tasks), default=0)
        since = NEVER if plan.figures.uncompacted_since is None or not tasks else plan.figures.uncompacted_since
        return cls(trigger - runs, since, sum(task.size for task in tasks), table)


@dataclass
class Turn:
    """The planned work on a table. `snapshot_id`: the latest snapshot when it was planned.

    `is_unfinished`: part of the work was left because other tables wait. `context` reopens the table if the plan was not kept.
    `findings`: None if the table was not examined.
    """

    table: str
    open: Callable[[], TableContext]
    history: SnapshotHistory
    need: Need
    snapshot_id: int | None
    figures: BucketFigures
    has_compaction: bool
    expires: bool
    cleans_orphans: bool
    must_look_again: bool
    idle_at: int | None
    planned_files: int
    plan: CompactionPlan | None
    opened: TableContext | None = field(repr=False)
    turn_bytes: int | None = None
    is_unfinished: bool = False
    findings: Findings | None = None

    @property
    def has_work(self) -> bool:
        return self.has_compaction or self.expires or self.cleans_orphans

    def context(self) -> TableContext:
        if self.opened is None:
            self.opened = self.open()
        return self.opened

    def without_plan(self) -> Turn:
        return replace(self, plan=None, opened=None)

    def due_millis(self, latest: int) -> int:
        """When the table must be planned again even without a new snapshot: `latest` or earlier (epoch millis)."""
        if self.must_look_again:
            return 0
        return latest if self.idle_at is None else min(latest, self.idle_at)


def look(
    table: str,
    open_table: Callable[[], TableContext],
    request: CompactRequest,
    states: States,
    upkeep: Upkeep,
    cleans_orphans: bool,
    examine_seconds: float | None = None,
) -> Turn:
    """Plan the work on a table. Decisions that count attempts, or the time since the last full compaction, must be repeated.

    `examine_seconds`: also count its findings, but for no longer than that; None: do not examine it.
    """
    context = open_table()
    examined = ExaminedTable(context, table)

    def keep(snapshot: Snapshot, buckets: LazyBuckets) -> None:
        nonlocal examined
        if not request.partition and not request.bucket:
            examined = ExaminedTable.as_planned(context, table, snapshot, buckets)

    plan = plan_compaction(context, request, states=states, on_files=keep)
    for decision in plan.decisions:
        if isinstance(decision, SkippedBucket):
            states[decision.bucket_id] = decision.state
    options = context.options
    counts = forced_every(options) is not None and any(decision.state.waits for decision in plan.decisions)
    return Turn(
        table=table,
        open=open_table,
        history=context.snapshots,
        need=Need.of(table, plan, options.compaction_trigger),
        snapshot_id=plan.snapshot_id,
        figures=plan.figures,
        has_compaction=bool(plan.tasks or plan.postponed),
        expires=upkeep.expire,
        cleans_orphans=cleans_orphans,
        must_look_again=counts or options.optimization_interval is not None,
        idle_at=plan.idle_at,
        planned_files=sum(len(task.files) for task in plan.tasks),
        plan=plan,
        opened=context,
        findings=None if examine_seconds is None else _findings_of(examined, examine_seconds),
    )


def _findings_of(table: ExaminedTable, seconds: float) -> Findings:
    try:
        return counted_findings(within(seconds, lambda: findings_of(table, costs=(METADATA,)), table.argument))
    except TookTooLong as error:
        return findings_about(table.argument, error)


def findings_about(table: str, error: PaimonError) -> Findings:
    """The findings about a table that cannot be opened; none about one that no longer exists."""
    return {} if is_of_call(error) else counted_findings([unopened(table, error)])


def take(
    turn: Turn,
    request: CompactRequest,
    engine: Engine,
    progress: Progress,
    states: States,
    shield: Shield,
    plan_seconds: float,
) -> tuple[CompactSummary, UpkeepDone]:
    """Carry out a turn. Its plan is used if no snapshot was committed since; otherwise the table is planned again.

    `plan_seconds`: the time of each look at the table before something is compacted or expired; see `run_compact`.
    """
    context, summary, done = within(plan_seconds, turn.context, turn.table), CompactSummary(), NOT_KEPT_UP
    if turn.has_compaction:
        limited = replace(request, turn_bytes=turn.turn_bytes)
        is_current = turn.plan is not None and not context.mode.bucket_mode.postpones
        if is_current and turn.turn_bytes is not None:  # the plan is older: other tables had their turns first
            is_current = within(plan_seconds, context.snapshots.latest_id, turn.table) == turn.snapshot_id
        ready = turn.plan if is_current else None
        summary = run_compact(
            context, limited, engine, progress, states=states, shield=shield, ready=ready, plan_seconds=plan_seconds
        )
        turn.is_unfinished = any(
            isinstance(decision, SkippedBucket) and decision.waits_for_turn for decision in summary.plan.decisions
        )
    if turn.expires:
        planned = within(plan_seconds, lambda: plan_expire(context, ExpireOptions(), progress), turn.table)
        expired = planned.run(deletion(context, engine, progress))
        done = replace(done, snapshots_expired=len(expired.removed), files_expired=expired.files)
    if turn.cleans_orphans:
        trusted = not_ahead_of_the_storage(context)
        found = search_orphans(trusted, trusted.clock.now_millis() - DAY_MILLIS, False, progress)
        orphans, size = clean_orphans(trusted, found, None, engine, progress)
        done = replace(done, orphans=orphans, orphan_bytes=size)
    return summary, done
