"""Takes a turn: compacts a table within its budget, then expires and cleans up, and says what was done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from paimon_cli.compact.compaction_task import SkippedBucket
from paimon_cli.errors import Conflict, NotSupported, PaimonError, PartialSuccess
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest, States
from paimon_cli.jobs.compact_summary import CompactionAccount, CompactSummary
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.service.service_turn import (
    BUCKET_COUNTS,
    COMPACTION,
    EXAMINED_PART,
    EXPIRY,
    ORPHANS,
    Findings,
    Turn,
    examined_findings,
    findings_about,
)
from paimon_cli.jobs.service.upkeep import (
    SEARCHED_VERSIONS,
    VERSION_BYTES,
    due_expiry,
    kinds_that_expire,
    remove_old_orphans,
)
from paimon_cli.jobs.service.upkeep_done import NOT_KEPT_UP, UpkeepDone
from paimon_cli.jobs.service.wanted_merges import NOTHING_LEFT, Left, left_of
from paimon_cli.jobs.table_change import Shield
from paimon_cli.storage.time_bounds import within

GOES_ON = (NotSupported, Conflict, PartialSuccess)
"""Errors of a step after which the others are taken: they say nothing against the table, nor about its storage."""


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
    if not turn.has_compaction:
        done.left, done.account.summary = left_of(turn.over_caps), turn.nothing_compacted
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
        turn.findings = _examined_again(turn, context, EXAMINED_PART * plan_seconds)
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
            done.left = left_of(left)
            if not limited.pays_for_counts(done.summary.plan.size_to_move):
                done.left = replace(done.left, steps=(BUCKET_COUNTS,))
        turn.is_unfinished = any(decision.waits_for_turn for decision in left) or self._moved_rows()
        if grown:
            turn.give_back(max(0, min(grown, (turn.granted or 0) - turn.used)))

    def _moved_rows(self) -> bool:
        """Whether rows got other buckets, paid from a budget: merges may be due now that the turn did not ask it for."""
        summary = self.done.summary
        moved = summary.plan.postponed or summary.regrouped or summary.stale_files or summary.rescaled_to
        return self.turn.granted is not None and bool(moved and summary.snapshots)

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


def _examined_again(turn: Turn, context: TableContext, seconds: float) -> Findings:
    """The findings after a turn. An error is one of them: it must not hide what the turn has committed."""
    try:
        return examined_findings(ExaminedTable(context.reopened(), turn.table), seconds)
    except PaimonError as error:
        return findings_about(turn.table, error)


def _ready_plan(turn: Turn, context: TableContext, plan_seconds: float) -> CompactionPlan | None:
    """The plan of the turn, if it is still current."""
    if turn.plan is None or context.mode.bucket_mode.postpones:
        return None
    if turn.turn_bytes is None and not turn.is_shared:
        return turn.plan
    # the plan is older: other tables had their turns first, or another service this one, before its lease was free
    return turn.plan if within(plan_seconds, context.snapshots.latest_id, turn.table) == turn.snapshot_id else None
