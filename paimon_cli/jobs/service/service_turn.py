"""The turn of one table in a round of the compaction service.

`look` plans the compaction and its urgency, and writes nothing. `take` carries out the plan, then expires snapshots and deletes
orphans if the service is configured to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from paimon_cli.compact.compaction_task import CompactionTask, Decision, PostponedRows, RegroupedPartition, SkippedBucket
from paimon_cli.errors import Conflict, NotSupported, PaimonError, PartialSuccess, TookTooLong
from paimon_cli.history.live_files import LazyBuckets
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.ingest.changes.read_lag import ReadLag
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import METADATA
from paimon_cli.inspect.findings.runner import counted_findings, findings_of, is_of_call, unopened
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import (
    BucketFigures,
    CompactionPlan,
    CompactRequest,
    States,
    apply_limits,
    by_urgency,
    plan_compaction,
)
from paimon_cli.jobs.compact_summary import CompactionAccount, CompactSummary
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.goal_merges import ReadRates, unknown_reads
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.upkeep import (
    NOT_KEPT_UP,
    SEARCHED_VERSIONS,
    VERSION_BYTES,
    UpkeepDone,
    due_expiry,
    kinds_that_expire,
    remove_old_orphans,
)
from paimon_cli.jobs.table_change import Shield
from paimon_cli.lsm.compaction_picker import forced_every
from paimon_cli.maintain.policy import NO_POLICY, TablePolicy
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.options.option_text import printable
from paimon_cli.requests.compaction import NEVER, Upkeep
from paimon_cli.requests.maintenance import What
from paimon_cli.storage.time_bounds import within

NO_UPKEEP = Upkeep()
COMPACTION, EXPIRY, ORPHANS = "compaction", "expiry", "orphans"
"""The steps of a turn."""
GOES_ON = (NotSupported, Conflict, PartialSuccess)
"""Errors of a step after which the others are taken: they say nothing against the table, nor about its storage."""
_LEAST_GROWTH, _MOST_GROWTH = 64 << 10, 1 << 20
"""By how many bytes compactions that were granted may grow until they begin: by as many as they read, within these bounds."""
EXAMINED_PART = 0.25
"""The part of the time of a look in which findings are counted, at most: the plan must not suffer."""
Findings = Mapping[tuple[str, str], int]
"""The number of findings of a table by severity and code."""


@dataclass(frozen=True, order=True)
class Need:
    """Orders tables by urgency: what a goal finds most urgent, most sorted runs above the trigger, then oldest uncompacted file,
    then fewest bytes to read.
    """

    minus_score: float
    runs_below_trigger: int
    since_millis: int
    size: int
    table: str

    @classmethod
    def of(cls, table: str, plan: CompactionPlan, trigger: int) -> Need:
        tasks: list[CompactionTask | PostponedRows | RegroupedPartition] = [*plan.tasks, *plan.postponed, *plan.regrouped]
        runs = max((task.runs_before for task in tasks), default=0)
        since = NEVER if plan.figures.uncompacted_since is None or not tasks else plan.figures.uncompacted_since
        score = max((task.score or 0.0 for task in tasks), default=0.0)
        return cls(-score, trigger - runs, since, sum(task.read_size for task in tasks), table)


class WantedMerge(NamedTuple):
    """A compaction that asks for a part of a budget. `score`: infinite if it must be made. `runs`: sorted runs of its bucket.

    `shows_rows`: whether readers wait for some of its rows. If it goes deeper than that needs, `level_0_size` is the part that
    does not, and `deeper_score` the score of the rest; 0 if it cannot be divided.
    """

    score: float
    size: int
    runs: int = 0
    shows_rows: bool = False
    level_0_size: int = 0
    deeper_score: float = 0.0

    @classmethod
    def of(cls, task: CompactionTask | PostponedRows | RegroupedPartition, mode: TableMode) -> WantedMerge:
        shows = waiting_rows(mode, task.bucket, task.files) > 0
        wanted = cls(task.score or 0.0, task.read_size, task.runs_before, shows)
        if not isinstance(task, CompactionTask) or not task.level_0_size:
            return wanted
        wanted = wanted._replace(shows_rows=True)
        if task.level_0_alone is None:
            return wanted
        return wanted._replace(level_0_size=task.level_0_size, deeper_score=task.deeper_score)

    @property
    def parts(self) -> tuple[WantedMerge, ...]:
        """What asks for itself: level 0, and then the rest, which may be left."""
        if not self.level_0_size:
            return (self,)
        first = self._replace(size=self.level_0_size, level_0_size=0, deeper_score=0.0)
        return first, WantedMerge(self.deeper_score, self.size - self.level_0_size, self.runs)

    @property
    def must_be(self) -> bool:
        return self.score == math.inf

    @property
    def urgency(self) -> tuple[float, bool, int]:
        """By score; of those that must be made, the ones that show rows first, and then by runs."""
        return self.score, self.must_be and self.shows_rows, self.runs if self.must_be else 0

    @property
    def order(self) -> tuple[float, bool, int, int]:
        """The most urgent first, of these the cheapest."""
        score, shows_rows, runs = self.urgency
        return -score, not shows_rows, -runs, self.size

    def __str__(self) -> str:
        runs = f"{self.runs} runs with rows that readers wait for" if self.shows_rows else f"{self.runs} runs"
        return runs if self.must_be else f"score {self.score:.2f}"


@dataclass
class Turn:
    """The planned work on a table. `snapshot_id`: the latest snapshot when it was planned.

    `is_unfinished`: part of the work was left because other tables wait. `context` reopens the table if the plan was not kept.
    `budget`: of the run, of which `granted` bytes are reserved, and `used` were read, `upkeep_bytes` of them for upkeep;
    `budget_says`: why they are not more.
    `policy`: of the table; from `closes_millis` on nothing more begins, because its window ends.
    `is_shared`: other services may have had the table since it was planned.
    `wanted`: by each compaction, split and merge of buckets, the most urgent first; `largest`: where the largest one is;
    `unpaid`: those for which the budget may suffice once other turns give something back. `is_by_goal`: whether a goal gave the
    scores.
    `findings`: None if the table was not examined. `lag`: of the newest commit of `ingest`; None if none was seen.
    `problem`: why it cannot be compacted, if there is more to do than that.
    """

    table: str
    open: Callable[[], TableContext]
    history: SnapshotHistory
    need: Need
    snapshot_id: int | None
    figures: BucketFigures
    has_compaction: bool
    expiries: tuple[What, ...]
    cleans_orphans: bool
    must_look_again: bool
    idle_at: int | None
    planned_files: int
    plan: CompactionPlan | None
    budget: Budget
    opened: TableContext | None = field(repr=False)
    wanted: tuple[WantedMerge, ...] = ()
    unpaid: tuple[WantedMerge, ...] = ()
    largest: str = ""
    granted: int | None = None
    budget_says: str = ""
    used: int = 0
    upkeep_bytes: int = 0
    turn_bytes: int | None = None
    is_unfinished: bool = False
    findings: Findings | None = None
    lag: ReadLag | None = None
    problem: PaimonError | None = None
    is_by_goal: bool = False
    is_shared: bool = False
    policy: TablePolicy = NO_POLICY
    reads: ReadRates = unknown_reads
    closes_millis: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more may begin: the time of the run has passed, or the window of the table."""
        return self.budget.is_over or (self.closes_millis is not None and self.budget.clock.now_millis() >= self.closes_millis)

    @property
    def steps(self) -> tuple[str, ...]:
        """What the turn has to do, in this order."""
        has = {COMPACTION: self.has_compaction, EXPIRY: bool(self.expiries), ORPHANS: self.cleans_orphans}
        return tuple(name for name, is_due in has.items() if is_due)

    @property
    def left(self) -> Left:
        """All of it, if the turn is not taken."""
        return Left(self.figures.picked, self.need.size, self.steps)

    @property
    def beyond_budget(self) -> str:
        """The compactions that the whole budget does not suffice for, and what would; empty for none."""
        whole = self.budget.whole_bytes
        sizes = [wanted.size for wanted in self.wanted if whole is not None and wanted.size > whole]
        if not sizes:
            return ""
        many = "1 bucket is" if len(sizes) == 1 else f"{len(sizes):,} buckets are"
        return f"{many} larger than the whole budget; {self.largest} needs --budget {self.budget.needed_text(max(sizes))}"

    @property
    def is_unaffordable(self) -> bool:
        """Whether there is nothing to do but compactions for which the budget does not suffice."""
        return self.steps == (COMPACTION,) and self.granted == 0 and self.need.size > 0

    def top_up(self) -> None:
        """Reserve what has been given back meanwhile for compactions that the budget did not suffice for."""
        for wanted in self.unpaid:
            if self.budget.reserve_all(wanted.size):
                self.granted = (self.granted or 0) + wanted.size

    @property
    def may_grow(self) -> int:
        """The bytes that a new plan may read beyond those that are granted, if all that the first one needs is granted."""
        if self.budget.daily is None or not self.granted or self.budget_says or self.granted < self.need.size:
            return 0
        return min(max(self.granted, _LEAST_GROWTH), _MOST_GROWTH)

    def grow(self) -> int:
        """Reserve that as far as it is left; returns how much was."""
        more = self.budget.reserve(self.may_grow) or 0
        self.granted = (self.granted or 0) + more
        return more

    def give_back(self, size: int) -> None:
        """Give back a part of what is reserved, so that the steps that follow can have it."""
        self.granted = (self.granted or 0) - size
        self.budget.settle(size, 0)

    def pays(self, size: int) -> bool:
        """Whether the budget has this much for a step besides compactions; it is reserved."""
        if not self.budget.charges_upkeep:
            return True
        if not self.budget.reserve_all(size):
            return False
        self.granted = (self.granted or 0) + size
        return True

    def charge(self, versions: int) -> None:
        """Charge upkeep of so many versions, before it begins."""
        size = VERSION_BYTES * versions
        self.upkeep_bytes += size
        self.used += size if self.budget.charges_upkeep else 0  # or less would be given back of what compactions did not use

    def context(self) -> TableContext:
        if self.opened is None:
            self.opened = self.open()
        return self.opened

    def unaffordable_plan(self) -> CompactionPlan:
        """The plan, in which each compaction says why it is left."""
        plan, limits = self.plan or CompactionPlan(self.snapshot_id), CompactRequest("minor")
        return replace(plan, decisions=apply_limits(plan.decisions, replace(self.within_budget(limits), budget_bytes=0)))

    def within_budget(self, request: CompactRequest) -> CompactRequest:
        """The request with what the turn was granted."""
        whole = self.budget.whole_bytes
        return replace(request, budget_bytes=self.granted, budget_says=self.budget_says, budget_whole=whole)

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
    lag: ReadLag | None = None

    def keep(snapshot: Snapshot, buckets: LazyBuckets) -> None:
        nonlocal examined, lag
        lag = ReadLag.of(snapshot.properties)
        if not request.partition and not request.bucket:
            examined = ExaminedTable.as_planned(context, table, snapshot, buckets)

    problem: NotSupported | None = None
    try:
        plan = plan_compaction(context, request, states=states, on_files=keep)
    except NotSupported as error:
        if not upkeep.expiries and not cleans_orphans:
            raise
        plan, problem = CompactionPlan(context.snapshots.latest_id()), error
    for decision in plan.decisions:
        if isinstance(decision, SkippedBucket):
            states[decision.bucket_id] = decision.state
    findings = None if examine_seconds is None else _findings_of(examined, examine_seconds)
    if lag is None and examine_seconds is not None:
        lag = _lag_of(examined, examine_seconds)
    options, work = context.options, by_urgency(plan.decisions)
    largest = max(work, key=lambda task: task.read_size, default=None)
    counts = forced_every(options) is not None and any(decision.state.waits for decision in plan.decisions)
    return Turn(
        table=table,
        open=open_table,
        history=context.snapshots,
        need=Need.of(table, plan, options.compaction_trigger),
        snapshot_id=plan.snapshot_id,
        figures=plan.figures,
        has_compaction=plan.has_work,
        expiries=upkeep.expiries,
        cleans_orphans=cleans_orphans,
        must_look_again=counts or options.optimization_interval is not None,
        idle_at=plan.idle_at,
        planned_files=sum(len(task.files) for task in plan.tasks),
        wanted=tuple(WantedMerge.of(task, context.mode) for task in work),
        largest="" if largest is None else _place(context, largest),
        plan=plan,
        budget=Budget(context.clock),
        opened=context,
        findings=findings,
        lag=lag,
        problem=problem,
        is_by_goal=request.merges is not None,
    )


def _place(context: TableContext, task: CompactionTask | PostponedRows | RegroupedPartition) -> str:
    """Where a compaction is: a bucket, or the partition whose buckets it is about."""
    if isinstance(task, CompactionTask):
        return printable(context.bucket_path(task.partition, task.bucket))
    return printable(context.partition_path_of(task.partition).rstrip("/")) or "the table"


def _findings_of(table: ExaminedTable, seconds: float) -> Findings:
    try:
        return counted_findings(within(seconds, lambda: findings_of(table, costs=(METADATA,)), table.argument))
    except TookTooLong as error:
        return findings_about(table.argument, error)


def _lag_of(table: ExaminedTable, seconds: float) -> ReadLag | None:
    try:
        return within(seconds, lambda: table.lag, table.argument)
    except PaimonError:  # it is a finding
        return None


def findings_about(table: str, error: PaimonError) -> Findings:
    """The findings about a table that cannot be opened; none about one that no longer exists."""
    return {} if is_of_call(error) else counted_findings([unopened(table, error)])


@dataclass(frozen=True)
class Left:
    """What a turn has left to later ones: buckets that need a compaction, their bytes, and whole steps."""

    buckets: int = 0
    size: int = 0
    steps: tuple[str, ...] = ()


NOTHING_LEFT = Left()


@dataclass
class TurnDone:
    """What a turn has done, also before an error, and what it has left. `error`: the first one. `expired_by`: the snapshots that
    dropped partitions.
    """

    account: CompactionAccount = field(default_factory=CompactionAccount)
    upkeep: UpkeepDone = NOT_KEPT_UP
    left: Left = NOTHING_LEFT
    error: PaimonError | None = None
    has_cleaned: bool = False
    expired_by: tuple[int, ...] = ()

    @property
    def summary(self) -> CompactSummary:
        return self.account.summary

    @property
    def has_changed(self) -> bool:
        """Whether something was done that may have removed findings."""
        return self.summary.has_changed or self.upkeep != NOT_KEPT_UP


def take(
    turn: Turn,
    request: CompactRequest,
    engine: Engine,
    progress: Progress,
    states: States,
    shield: Shield,
    plan_seconds: float,
) -> TurnDone:
    """Carry out a turn. Its plan is used if no snapshot was committed since; otherwise the table is planned again.

    `plan_seconds`: the time of each look at the table before something is compacted or expired; see `run_compact`. No step
    begins once the time of the budget is over. Findings of the plan are counted again if they may be gone.
    """
    context, done = within(plan_seconds, turn.context, turn.table), TurnDone(error=turn.problem)
    taken = _Steps(turn, context, request, engine, progress, states, shield, plan_seconds, done)
    steps = {COMPACTION: taken.compact, EXPIRY: taken.expire, ORPHANS: taken.clean}
    for name in turn.steps:
        if turn.is_over or not (name == COMPACTION or turn.pays(VERSION_BYTES)):
            whole = turn.left if name == COMPACTION else done.left
            done.left = replace(whole, steps=(*done.left.steps, name))
            continue
        try:
            steps[name]()
        except PaimonError as error:
            done.error = done.error or error
            if not isinstance(error, GOES_ON):
                break
    if turn.findings and done.has_changed:
        turn.findings = _findings_of(ExaminedTable(context.reopened(), turn.table), EXAMINED_PART * plan_seconds)
    return done


@dataclass(frozen=True)
class _Steps:
    """The steps of a turn, each with what it needs. What they read is charged to the turn, also if they fail."""

    turn: Turn
    context: TableContext
    request: CompactRequest
    engine: Engine
    progress: Progress
    states: States
    shield: Shield
    plan_seconds: float
    done: TurnDone

    def compact(self) -> None:
        turn, context, done = self.turn, self.context, self.done
        turn.top_up()
        ready = _ready_plan(turn, context, self.plan_seconds)
        # writers may have added files to what was granted
        grown = turn.grow() if ready is None and turn.may_grow else 0
        limited = replace(turn.within_budget(self.request), turn_bytes=turn.turn_bytes)
        try:
            run_compact(
                context,
                limited,
                self.engine,
                self.progress,
                states=self.states,
                shield=self.shield,
                ready=ready,
                plan_seconds=self.plan_seconds,
                account=done.account,
            )
        finally:
            turn.used += done.account.bytes_read
        left = [decision for decision in done.summary.plan.decisions if isinstance(decision, SkippedBucket)]
        turn.is_unfinished = any(decision.waits_for_turn for decision in left)
        done.left = left_of(left)
        if grown:
            turn.give_back(max(0, min(grown, (turn.granted or 0) - turn.used)))

    def expire(self) -> None:
        turn, done = self.turn, self.done
        for what in kinds_that_expire(self.context, turn.expiries):
            plan = partial(due_expiry, self.context, what, self.progress, turn.policy)
            due = within(self.plan_seconds, plan, turn.table)
            turn.charge(due.versions)
            upkeep, committed = due.run(self.engine, self.progress)
            done.upkeep, done.expired_by = done.upkeep + upkeep, done.expired_by + committed

    def clean(self) -> None:
        self.turn.charge(SEARCHED_VERSIONS)
        self.done.upkeep += remove_old_orphans(self.context, self.engine, self.progress)
        self.done.has_cleaned = True


def _ready_plan(turn: Turn, context: TableContext, plan_seconds: float) -> CompactionPlan | None:
    """The plan of the turn, if it is still current."""
    if turn.plan is None or context.mode.bucket_mode.postpones:
        return None
    if turn.turn_bytes is None and not turn.is_shared:
        return turn.plan
    # the plan is older: other tables had their turns first, or another service this one, before its lease was free
    return turn.plan if within(plan_seconds, context.snapshots.latest_id, turn.table) == turn.snapshot_id else None


def left_of(decisions: Iterable[Decision]) -> Left:
    """The buckets whose compaction is left to later turns or runs."""
    left = [decision for decision in decisions if isinstance(decision, SkippedBucket) and decision.is_left]
    return Left(len(left), sum(bucket.size for bucket in left))
