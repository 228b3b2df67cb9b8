"""`maintain`: compacts what is due, expires what is past its retention, deletes orphans, and examines what is left.

A run consists of rounds of the compaction service (`jobs/service/compaction_service`) until no table has work left, or the budget
is spent. Tables that another service holds are waited for as long as a lease lives without renewal. Then all are examined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from paimon_cli.errors import Conflict, PaimonError, TookTooLong
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import Finding
from paimon_cli.inspect.findings.runner import counted_findings
from paimon_cli.inspect.health_report import health_of, with_findings
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.goal_merges import GoalMerges
from paimon_cli.jobs.reclaim_job import PARTITIONS
from paimon_cli.jobs.round_plan import CompactionPlan, apply_limits, rows_dropped_after
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.compaction_service import CompactionService
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.service_turn import BUCKET_COUNTS, EXPIRY, ORPHANS, Turn, look
from paimon_cli.jobs.service.shared_budgets import SharedBudgets
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, ServiceWatcher, TableRound
from paimon_cli.jobs.service.upkeep import (
    VERSION_BYTES,
    default_retention,
    due_expiry,
    kinds_that_expire,
    old_orphans,
)
from paimon_cli.jobs.service.upkeep_done import NOT_KEPT_UP, UpkeepDone
from paimon_cli.jobs.service.wanted_merges import NOTHING_LEFT, Left, left_of
from paimon_cli.jobs.stale_buckets import movable_files
from paimon_cli.jobs.table_change import Shield
from paimon_cli.jobs.trigger_replays import TriggerReplays
from paimon_cli.read.html_text import ShownAsTable
from paimon_cli.requests.compaction import NEVER, Upkeep
from paimon_cli.requests.maintenance import WHOLE_EXPIRY
from paimon_cli.storage.time_bounds import look_at_each

_ASKS_EVERY_SECONDS = 1.0
"""How often a table is asked for that another service holds."""
SHOWN_ORPHANS = 5
"""How many orphans of a table a dry run names."""
CHECK = "check"
"""The last step of a run."""


class Once(Upkeep):
    """The upkeep of a single run: everything at once, and orphans in the first turn of each table only."""

    def first_orphans_millis(self, table: str) -> int:
        return 0


AT_ONCE = Once(expire=True, whole=True, orphans_every=NEVER)
REQUEST = CompactRequest("minor", unknown_buckets_allowed=True, regroups=True)
"""Compact what the triggers of the tables pick, and give postponed partitions the buckets that they need, as a service does."""


class PlannedState:
    """States of a table in a dry run."""

    DUE = "due"
    NOTHING = "nothing to do"
    FAILED = "failed"


@dataclass(frozen=True)
class MaintainedTable(ShownAsTable):
    """What a run has done with a table, or in a dry run would do.

    `left_buckets`, `left_bytes`: what still needs a compaction; `left`: steps for which there was no time, or no budget;
    `beyond_buckets`, `beyond_bytes`: of these, what the next run does not take either; `beyond_budget`: the compactions that the
    whole budget does not suffice for, with the one that they need; `beyond_caps`: the same of the caps of the policy;
    `uncompacted`: why this version does not compact a table of this kind.
    `findings`: what `health` still finds; None if the table was not examined. `stale_files`: files with an older bucket count
    than their partition, whose rows were moved; `rescaled_to`: the bucket count of a rescale that had been interrupted, and was
    finished.

    Only in a dry run: `rows_dropped_after`, `record-level.expire-time` if a compaction is due, which drops older rows;
    `default_retention`, Paimon's own if snapshots may expire by it, because the table has none; `orphan_files`, the first ones.
    """

    table: str
    state: str
    buckets: int = 0
    stale_files: int = 0
    rescaled_to: int | None = None
    files_before: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    snapshots_expired: int = 0
    partitions_expired: int = 0
    changelogs_expired: int = 0
    tags_expired: int = 0
    consumers_expired: int = 0
    files_expired: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    left_buckets: int = 0
    left_bytes: int = 0
    left: tuple[str, ...] = ()
    beyond_buckets: int = 0
    beyond_bytes: int = 0
    beyond_budget: str = ""
    beyond_caps: str = ""
    uncompacted: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] | None = None
    error: str | None = None
    error_code: str | None = None
    rows_dropped_after: str | None = None
    default_retention: str | None = None
    orphan_files: tuple[str, ...] = ()

    @classmethod
    def of(cls, done: TableRound, findings: tuple[Finding, ...] | None) -> MaintainedTable:
        summary, upkeep, left, error = done.summary, done.upkeep, done.left, done.error
        return cls(
            done.table,
            done.state,
            summary.buckets,
            summary.stale_files,
            summary.rescaled_to,
            summary.files_before,
            summary.files_after,
            summary.bytes_read,
            summary.bytes_written,
            **{field.name: getattr(upkeep, field.name) for field in fields(upkeep)},
            left_buckets=left.buckets,
            left_bytes=left.size,
            left=left.steps,
            beyond_buckets=left.beyond,
            beyond_bytes=left.beyond_size,
            beyond_budget=done.beyond_budget,
            beyond_caps=done.beyond_caps,
            uncompacted=done.uncompacted,
            seconds=summary.seconds,
            findings=findings,
            error=None if error is None else error.message,
            error_code=None if error is None else error.code,
        )

    @property
    def upkeep(self) -> UpkeepDone:
        return UpkeepDone(**{field.name: getattr(self, field.name) for field in fields(UpkeepDone)})

    @property
    def deletes(self) -> bool:
        return bool(self.upkeep.expired) or bool(self.orphans)

    @property
    def is_unfinished(self) -> bool:
        """Whether the budget did not suffice for all work, or for the check."""
        return bool(self.left_buckets or self.left)

    @property
    def is_unchecked(self) -> bool:
        return CHECK in self.left

    @property
    def has_work(self) -> bool:
        return bool(self.buckets or self.stale_files or self.rescaled_to) or self.deletes


@dataclass(frozen=True)
class Quiet:
    """A watcher that shows the progress of large compactions, and nothing else."""

    progress: Callable[[], Progress]

    def table_begins(self, number: int, table: str) -> Progress:
        return self.progress()

    def table_done(self, done: TableRound) -> None:
        pass

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        pass


@dataclass
class _Run:
    """The rounds of one run: adds up what they do to each table, and says when there is no more to do."""

    pending: dict[str, ServedTable]
    begin: Callable[[int, str], Progress]
    budget: Budget
    waits_until: int
    totals: dict[str, TableRound]

    def table_begins(self, number: int, table: str) -> Progress:
        return self.begin(number, table)

    def table_done(self, done: TableRound) -> None:
        before = self.totals.get(done.table)
        self.totals[done.table] = done if before is None else _both(before, done)

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        pass

    def is_last(self, done: ServiceRound) -> bool:
        """Whether no table has work left for which there is time; the next round looks only at those that have."""
        waits = self.budget.clock.now_millis() < self.waits_until
        going_on = {table.table for table in done.tables if table.is_unfinished or (waits and table.state == RoundState.HELD)}
        self.pending = {name: table for name, table in self.pending.items() if name in going_on}
        return not self.pending or self.budget.is_over


@dataclass(frozen=True)
class RunLimits:
    """What one run may take, and what it aims at. `table_seconds`: the time of each look at a table. `merges`: how a goal
    chooses them in place of the triggers.
    """

    budget: Budget
    table_seconds: float
    merges: GoalMerges | None = None


def maintain(
    tables: Sequence[ServedTable],
    engine: Engine,
    watcher: ServiceWatcher,
    shield: Shield,
    leases: Leases | None,
    limits: RunLimits,
) -> Iterator[tuple[TableRound, tuple[Finding, ...] | None]]:
    """Maintain tables; yields what was done to each, and what `health` still finds.

    `watcher`: receives one event for each table, and one for the run.
    """
    budget, table_seconds = limits.budget, limits.table_seconds
    clock, began = budget.clock, budget.clock.now_millis()
    patience = 0 if leases is None else leases.lives_millis + int(2 * _ASKS_EVERY_SECONDS * 1000)
    run = _Run({table.name: table for table in tables}, watcher.table_begins, budget, began + patience, {})
    if tables:
        request = replace(REQUEST, merges=limits.merges)
        service = CompactionService(
            lambda: list(run.pending.values()), request, engine, clock, run, shield, leases, AT_ONCE, table_seconds, budget=budget
        )
        service.run_until(_ASKS_EVERY_SECONDS, run.is_last)
    done: list[TableRound] = []
    for table, findings in zip(tables, _examined(tables, run.totals, budget, table_seconds), strict=True):
        total = _judged(run.totals[table.name], findings, budget)
        done.append(total)
        watcher.table_done(total)
        yield total, findings if isinstance(findings, tuple) else None
    watcher.round_done(ServiceRound(1, began, (clock.now_millis() - began) / 1000, tuple(done)), None)


def _examined(
    tables: Sequence[ServedTable], totals: dict[str, TableRound], budget: Budget, seconds: float
) -> Iterator[tuple[Finding, ...] | PaimonError | None]:
    """What `health` finds in each table; None where the budget is spent, or the table is gone."""

    def examine(table: ServedTable) -> tuple[Finding, ...] | None:
        if budget.is_over or totals[table.name].state == RoundState.GONE:
            return None
        context = table.open()
        return _problems(table, context)

    return look_at_each(examine, tables, seconds, 1, lambda table: table.name)


def _problems(table: ServedTable, context: TableContext) -> tuple[Finding, ...]:
    """What `health` finds in a table, and about the lines of the policy that meet it."""
    found = health_of(ExaminedTable(context, context.layout.argument), table.name)
    return with_findings(found, table.findings_of_policy()).problems


def _judged(total: TableRound, findings: tuple[Finding, ...] | PaimonError | None, budget: Budget) -> TableRound:
    """The total with the result of the check. A table that is still held by another service has failed."""
    if total.state == RoundState.HELD:
        why = "it compacts the table, and renews its lease"
        error = Conflict(f"{total.table} is held by another service", why, "run the command again when that has ended")
        total = replace(total, error=error)
    if isinstance(findings, PaimonError):
        is_first = total.error is None or isinstance(total.error, TookTooLong)
        return replace(total, error=findings if is_first else total.error, state=RoundState.FAILED)
    if findings is None:
        is_left = budget.is_over and total.state != RoundState.GONE
        return replace(total, left=replace(total.left, steps=(*total.left.steps, CHECK))) if is_left else total
    return replace(total, findings=counted_findings(findings))


def _both(before: TableRound, done: TableRound) -> TableRound:
    """What two rounds did to a table."""
    sizes = ("files_before", "files_after", "bytes_before", "bytes_after", "bytes_read", "bytes_written")
    names = ("buckets", "regrouped", "stale_files", "conflicts", "snapshots", "seconds", *sizes)
    sums = {name: getattr(before.summary, name) + getattr(done.summary, name) for name in names}
    rescaled_to = done.summary.rescaled_to or before.summary.rescaled_to
    summary: CompactSummary = replace(done.summary, **sums, rescaled_to=rescaled_to)
    is_kept = before.state == RoundState.COMPACTED or (before.state == RoundState.CLEANED and done.state == RoundState.NOTHING)
    state = before.state if is_kept and done.error is None else done.state
    costs = ("expired_by", "upkeep_bytes", "upkeep_seconds", "lost_read", "lost_written")
    spent = {name: getattr(before, name) + getattr(done, name) for name in costs}
    return replace(done, state=state, summary=summary, upkeep=before.upkeep + done.upkeep, **spent)


def plan_maintenance(
    tables: Sequence[ServedTable], progress: Progress, limits: RunLimits
) -> Iterator[tuple[MaintainedTable, PaimonError | None]]:
    """What `maintain` would do to each table. Changes nothing.

    The bytes of the budget, and of those in policies, go to the tables in the order of a run, the most urgent first.
    """
    clock, table_seconds, request = limits.budget.clock, limits.table_seconds, replace(REQUEST, merges=limits.merges)
    budgets, replays = SharedBudgets(clock, limits.budget), TriggerReplays(clock)
    budgets.give({table.name: table.policy for table in tables})
    requests = {table.name: table.limited(request, budgets.of(table.name), replays) for table in tables}

    def is_bounded(table: ServedTable) -> bool:
        budget = budgets.of(table.name)
        return budget is not None and budget.bounds_bytes and not table.policy.is_closed(clock.now_millis())

    def needed(table: ServedTable) -> Turn:
        return look(table.name, table.opened, requests[table.name], {}, AT_ONCE, True).without_plan()

    looks = look_at_each(needed, [table for table in tables if is_bounded(table)], table_seconds, 1, _name)
    turns = sorted((turn for turn in looks if isinstance(turn, Turn)), key=lambda turn: turn.need)
    budgets.share_out(turns)
    shares = {turn.table: turn for turn in turns}

    def planned(table: ServedTable) -> tuple[MaintainedTable, PaimonError | None]:
        if table.policy.is_closed(clock.now_millis()):
            return MaintainedTable(table.name, RoundState.CLOSED), None
        request, turn = requests[table.name], shares.get(table.name)
        limited = request if turn is None else turn.within_budget(request)
        row, problem = _planned(table, limited, progress, budgets.of(table.name))
        return replace(row, beyond_budget="" if turn is None else turn.beyond_budget), problem

    for table, found in zip(tables, look_at_each(planned, tables, table_seconds, 1, _name), strict=True):
        if isinstance(found, PaimonError):
            yield MaintainedTable(table.name, PlannedState.FAILED, error=found.message, error_code=found.code), found
        else:
            yield found


def _name(table: ServedTable) -> str:
    return table.name


def _planned(
    table: ServedTable, request: CompactRequest, progress: Progress, budget: Budget | None
) -> tuple[MaintainedTable, PaimonError | None]:
    """`budget`: pays for the upkeep, as in a run; what it does not suffice for is left."""

    def pays(step: str) -> bool:
        if budget is None or not budget.charges_upkeep or budget.reserve_all(VERSION_BYTES):
            return True
        unpaid.append(step)
        return False

    unpaid = list[str]()
    turn = look(table.name, table.opened, request, {}, AT_ONCE, True)
    context, upkeep = turn.context(), NOT_KEPT_UP
    planned = turn.plan or CompactionPlan(turn.snapshot_id)
    mends = request.pays_for_counts(planned.size_to_move)
    if not mends:
        unpaid.append(BUCKET_COUNTS)
    limits = request.after_reading(planned.size_to_move if mends else 0)
    fitting = replace(planned, decisions=apply_limits(planned.decisions, limits))
    for what in kinds_that_expire(context, WHOLE_EXPIRY) if pays(EXPIRY) else ():
        expiry = due_expiry(context, what, progress, table.policy).expiry
        files = 0 if what == PARTITIONS or not expiry.names else len(expiry.files())
        upkeep += UpkeepDone.of_expiry(what, len(expiry.names), files)
    orphans = old_orphans(context, progress)[1] if pays(ORPHANS) else None
    if orphans is not None:
        upkeep += UpkeepDone(orphans=len(orphans.files), orphan_bytes=orphans.size)
    findings = _problems(table, context)
    summary = CompactSummary(
        buckets=fitting.picked,
        files_before=fitting.work.files,
        bytes_read=fitting.work.size + (fitting.size_to_move if mends else 0),
        stale_files=movable_files(context) if fitting.mixed and mends else 0,
        rescaled_to=None if fitting.unfinished is None or not mends else fitting.unfinished.buckets,
        plan=fitting,
    )
    is_limited = request.budget_bytes is not None or request.max_bytes is not None or request.max_buckets is not None
    left: Left = replace(left_of(fitting.decisions) if is_limited else NOTHING_LEFT, steps=tuple(unpaid))
    done = TableRound(table.name, PlannedState.NOTHING, summary, turn.problem, upkeep=upkeep, left=left)
    row = MaintainedTable.of(replace(done, beyond_caps=turn.beyond_caps, uncompacted=turn.uncompacted), findings)
    state = PlannedState.FAILED if turn.problem else PlannedState.DUE if row.has_work else PlannedState.NOTHING
    return replace(
        row,
        state=state,
        rows_dropped_after=rows_dropped_after(context, fitting),
        default_retention=default_retention(context) if row.snapshots_expired or fitting.has_work else None,
        orphan_files=() if orphans is None else tuple(file.path for file in orphans.files[:SHOWN_ORPHANS]),
    ), turn.problem
