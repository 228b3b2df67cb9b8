"""The turn of one table in a round of the compaction service.

`look` plans the compaction and its urgency, and writes nothing. `take` carries out the plan, then expires snapshots and deletes
orphans if the service is configured to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.compact.compaction_plan import why_not_compactable
from paimon_cli.compact.compaction_task import CompactionTask, PostponedRows, RegroupedPartition, SkippedBucket
from paimon_cli.errors import NotSupported, PaimonError, TookTooLong
from paimon_cli.history.live_files import LazyBuckets
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.changes.read_lag import ReadLag
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import METADATA
from paimon_cli.inspect.findings.runner import counted_findings, findings_of, is_of_call, unopened
from paimon_cli.jobs.compact_request import CompactRequest, States
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.goal_merges import ReadRates, unknown_reads
from paimon_cli.jobs.round_plan import BucketFigures, CompactionPlan, apply_limits, by_urgency, plan_compaction
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.upkeep import (
    VERSION_BYTES,
)
from paimon_cli.jobs.service.wanted_merges import Left, Need, WantedMerge, left_of
from paimon_cli.lsm.compaction_picker import forced_every
from paimon_cli.maintain.policy import NO_POLICY, TablePolicy
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.option_text import printable
from paimon_cli.requests.compaction import Upkeep
from paimon_cli.requests.maintenance import What
from paimon_cli.storage.time_bounds import within

NO_UPKEEP = Upkeep()
COMPACTION, EXPIRY, ORPHANS = "compaction", "expiry", "orphans"
"""The steps of a turn."""
BUCKET_COUNTS = "bucket counts"
"""The part of a compaction that mends them."""
_MENDING = "the mending of its bucket counts"
_LEAST_GROWTH, _MOST_GROWTH = 64 << 10, 1 << 20
"""By how many bytes compactions that were granted may grow until they begin: by as many as they read, within these bounds."""
EXAMINED_PART = 0.25
"""The part of the time of a look in which findings are counted, at most: the plan must not suffer."""
Findings = Mapping[tuple[str, str], int]
"""The number of findings of a table by severity and code."""


@dataclass
class Turn:
    """The planned work on a table. `snapshot_id`: the latest snapshot when it was planned.

    `is_unfinished`: part of the work was left because other tables wait, or is asked for by a new plan. `context` reopens the
    table if the plan was not kept.
    `budget`: of the run, of which `granted` bytes are reserved, and `used` were read, `upkeep_bytes` of them for upkeep;
    `budget_says`: why they are not more.
    `policy`: of the table; from `closes_millis` on nothing more begins, because its window ends.
    `is_shared`: other services may have had the table since it was planned.
    `wanted`: by each compaction, split and merge of buckets, the most urgent first; `largest`: where the largest one is;
    `over_caps`: buckets that are left because of the caps of a round; `beyond_caps`: those of them that no round takes, and what
    the largest needs, as text.
    `unpaid`: those for which the budget of a run may suffice once other turns give something back. `is_by_goal`: whether a goal
    gave the scores.
    `findings`: None if the table was not examined; `of_policy`: those about the lines that meet it. `lag`: of the newest commit
    of `ingest`; None if none was seen.
    `problem`: why it cannot be compacted, if there is more to do than that; `uncompacted`: the same where that is no failure,
    because the table is of such a kind, and all is to be done that can be.
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
    over_caps: tuple[SkippedBucket, ...] = ()
    beyond_caps: str = ""
    granted: int | None = None
    budget_says: str = ""
    used: int = 0
    upkeep_bytes: int = 0
    turn_bytes: int | None = None
    is_unfinished: bool = False
    findings: Findings | None = None
    of_policy: Findings = field(default_factory=dict)
    lag: ReadLag | None = None
    problem: PaimonError | None = None
    uncompacted: str = ""
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
    def all_findings(self) -> Findings | None:
        """The findings, with those about the policy; None if the table was not examined."""
        return None if self.findings is None else Counter(self.findings) + Counter(self.of_policy)

    @property
    def steps(self) -> tuple[str, ...]:
        """What the turn has to do, in this order."""
        has = {COMPACTION: self.has_compaction, EXPIRY: bool(self.expiries), ORPHANS: self.cleans_orphans}
        return tuple(name for name, is_due in has.items() if is_due)

    @property
    def left(self) -> Left:
        """All of it, if the turn is not taken."""
        capped, sizes = left_of(self.over_caps), self._beyond_sizes
        buckets, size = self.figures.picked + capped.buckets, self.need.size + capped.size
        return Left(buckets, size, self.steps, capped.beyond + len(sizes), capped.beyond_size + sum(sizes))

    @property
    def _beyond_sizes(self) -> list[int]:
        whole = self.budget.whole_bytes
        return [wanted.size for wanted in self.wanted if whole is not None and wanted.size > whole]

    @property
    def beyond_budget(self) -> str:
        """The compactions that the whole budget does not suffice for, and what would; empty for none."""
        sizes = self._beyond_sizes
        if not sizes:
            return ""
        needed = self.budget.needed_text(max(sizes))
        return f"{_many_are(len(sizes))} larger than the whole budget; {self.largest} needs --budget {needed}"

    @property
    def is_unaffordable(self) -> bool:
        """Whether there is nothing to do but compactions for which the budget does not suffice."""
        return self.steps == (COMPACTION,) and self.granted == 0 and self.need.size > 0

    @property
    def nothing_compacted(self) -> CompactSummary:
        """The summary of a turn without a compaction, with what the caps leave."""
        return CompactSummary(plan=CompactionPlan(self.snapshot_id, self.over_caps))

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
    uncompacted = ""
    try:
        plan = plan_compaction(context, request, states=states, on_files=keep)
    except NotSupported as error:
        if not upkeep.expiries and not cleans_orphans:
            raise
        plan = CompactionPlan(context.snapshots.latest_id())
        uncompacted = why_not_compactable(context) or "" if upkeep.whole else ""
        problem = None if uncompacted else error
    for decision in plan.decisions:
        if isinstance(decision, SkippedBucket):
            states[decision.bucket_id] = decision.state
    findings = None if examine_seconds is None else examined_findings(examined, examine_seconds)
    if lag is None and examine_seconds is not None:
        lag = _lag_of(examined, examine_seconds)
    options = context.options
    over_caps = tuple(each for each in plan.decisions if isinstance(each, SkippedBucket) and each.is_over_cap)
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
        wanted=WantedMerge.all_of(plan, context.mode),
        largest=_largest(context, plan),
        over_caps=over_caps,
        beyond_caps=_beyond_caps(context, plan, over_caps, request.max_bytes),
        plan=plan,
        budget=Budget(context.clock),
        opened=context,
        findings=findings,
        lag=lag,
        problem=problem,
        uncompacted=uncompacted,
        is_by_goal=request.merges is not None,
    )


def _largest(context: TableContext, plan: CompactionPlan) -> str:
    """Where the largest compaction is; empty if there is none."""
    largest = max(by_urgency(plan.decisions), key=lambda task: task.read_size, default=None)
    if plan.size_to_move > (0 if largest is None else largest.read_size):
        return _MENDING
    return "" if largest is None else _place(context, largest)


def _beyond_caps(context: TableContext, plan: CompactionPlan, over: Sequence[SkippedBucket], cap: int | None) -> str:
    """The compactions that no round within its caps takes, and what would suffice for the largest; empty for none."""
    beyond = sorted((each for each in over if each.is_beyond), key=lambda each: each.size)
    sizes, place = [each.size for each in beyond], _place(context, beyond[-1]) if beyond else ""
    if cap is not None and plan.size_to_move > cap:
        sizes, place = [*sizes, plan.size_to_move], place if sizes and sizes[-1] >= plan.size_to_move else _MENDING
    if not sizes:
        return ""
    limits = "caps.bytes of the policy, or --max-bytes"
    return f"{_many_are(len(sizes))} larger than a round may read ({limits}); {place} needs {max(sizes)}b"


def _many_are(buckets: int) -> str:
    return "1 bucket is" if buckets == 1 else f"{buckets:,} buckets are"


def _place(context: TableContext, task: CompactionTask | PostponedRows | RegroupedPartition | SkippedBucket) -> str:
    """Where a compaction is: a bucket, or the partition whose buckets it is about."""
    if isinstance(task, CompactionTask) or (isinstance(task, SkippedBucket) and task.bucket >= 0):
        return printable(context.bucket_path(task.partition, task.bucket))
    return printable(context.partition_path_of(task.partition).rstrip("/")) or "the table"


def examined_findings(table: ExaminedTable, seconds: float) -> Findings:
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
