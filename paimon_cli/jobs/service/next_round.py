"""What the next round of `maintain` would decide about tables, and why: their policies, then the plan of the round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.compact.compaction_task import SkippedBucket
from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.round_plan import CompactionPlan, apply_limits
from paimon_cli.jobs.service.ledger_watcher import SHOWN_REASONS, best_score, reasons_of, skipped_reasons
from paimon_cli.jobs.service.maintenance import AT_ONCE, REQUEST
from paimon_cli.jobs.service.policy_hooks import with_hooks_judged
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.service_turn import Turn, look
from paimon_cli.jobs.service.shared_budgets import NewBudget, SharedBudgets
from paimon_cli.jobs.service.table_round import RoundState
from paimon_cli.jobs.service.upkeep import due_expiry, kinds_that_expire
from paimon_cli.jobs.service.wanted_merges import left_of
from paimon_cli.jobs.trigger_replays import TriggerReplays
from paimon_cli.maintain.policy_effect import Effect, judged_for, judged_settings
from paimon_cli.pieces import PIECES
from paimon_cli.requests.maintenance import WHOLE_EXPIRY
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.time_bounds import look_at_each


class NextStep:
    """What the next round begins with in a table; `RoundState.NOTHING`, `OVER_BUDGET` and `OVER_CAPS` are others."""

    COMPACT = "compact"
    EXPIRE = "expire"
    WAIT = "wait for a window"


NO_SOURCE = "nothing known"
"""The source of a rate of reads that all tables have alike."""


@dataclass(frozen=True)
class RoundDecision:
    """What the next round does with a table. `opens`: when its next window begins (epoch millis); None unless it waits for it.

    `buckets`, `bytes_read`: to be compacted within the caps; `left_buckets`, `left_bytes`: what a later round does.
    `score`, `budget_left` (bytes to read, after all that the round may take): None without a goal or a budget. `why`: the reasons
    with their arithmetic; `why_not`: of the buckets that are not compacted. `policy`: the lines in force. `error`: None unless
    the table cannot be planned. `reads_from`: under a goal, the source of the rate of reads in the arithmetic.
    """

    table: str
    decision: str
    opens: int | None = None
    buckets: int = 0
    bytes_read: int = 0
    left_buckets: int = 0
    left_bytes: int = 0
    score: float | None = None
    budget_left: int | None = None
    to_expire: str = ""
    why: str = ""
    why_not: str = ""
    policy: tuple[str, ...] = ()
    error: str | None = None
    reads_from: str = ""


def decisions_of(
    tables: Sequence[ServedTable],
    clock: Clock,
    table_seconds: float,
    new_budget: NewBudget | None = None,
) -> Iterator[RoundDecision]:
    """The decisions of the next round, as `maintain` makes them. Changes nothing. `table_seconds`: the time of each look.

    `new_budget`: makes the budget of a line of a policy, given the names of the tables that share it; by default a whole one.
    A table that cannot be planned has its error in its row; the error of an only table is raised.
    """
    moment, budgets, kept = clock.now_millis(), SharedBudgets(clock, make=new_budget), list[int]()
    replays = TriggerReplays(clock)
    budgets.give({table.name: table.policy for table in tables})

    def looked(table: ServedTable) -> Turn:
        return look(table.name, table.opened, table.limited(REQUEST, budgets.of(table.name), replays), {}, AT_ONCE, True)

    def plan(table: ServedTable) -> Turn | None:
        """The turn, with its plan only while there are few: the plans of many buckets would not fit into memory together."""
        if table.policy.is_closed(moment):
            return None
        turn = looked(table)
        size = 0 if turn.plan is None else len(turn.plan.decisions)
        if len(kept) >= PIECES.max_plans or sum(kept) + size > PIECES.max_planned_files:
            return turn.without_plan()
        kept.append(size)
        return turn

    found = dict(zip((table.name for table in tables), look_at_each(plan, tables, table_seconds, 1, _name), strict=True))
    budgets.share_out(sorted((turn for turn in found.values() if isinstance(turn, Turn)), key=lambda turn: turn.need))

    def decide(table: ServedTable) -> RoundDecision:
        turn = found[table.name]
        if isinstance(turn, PaimonError):
            raise turn
        if turn is None:
            return _waits(table, moment)
        if turn.plan is not None:
            return _decided(table, turn)
        again = looked(table)
        return _decided(table, replace(again, budget=turn.budget, granted=turn.granted, budget_says=turn.budget_says))

    for table, decision in zip(tables, look_at_each(decide, tables, table_seconds, 1, _name), strict=True):
        if isinstance(decision, PaimonError):
            if len(tables) == 1:
                raise decision
            yield RoundDecision(table.name, RoundState.FAILED, error=decision.message)
        else:
            yield decision


def _name(table: ServedTable) -> str:
    return table.name


def _waits(table: ServedTable, now: int) -> RoundDecision:
    opens = None if table.policy.windows is None else table.policy.windows.opens(now)
    return RoundDecision(table.name, NextStep.WAIT, opens, why_not="all windows are closed", policy=_lines(table, None))


def _decided(table: ServedTable, turn: Turn) -> RoundDecision:
    context, own = turn.context(), table.open() if table.policy.met else None
    request = turn.within_budget(table.limited(REQUEST))
    plan = CompactionPlan(turn.snapshot_id, apply_limits(() if turn.plan is None else turn.plan.decisions, request))
    skipped = [decision for decision in plan.decisions if isinstance(decision, SkippedBucket)]
    left, expiring = left_of(plan.decisions), []
    for what in kinds_that_expire(context, WHOLE_EXPIRY):
        expiry = due_expiry(context, what, NoProgress(), table.policy).expiry
        expiring += [f"{len(expiry.names)} {what}"] if expiry.names else []
    why = [partition.reason for partition in plan.regrouped[:SHOWN_REASONS]]
    why += [f"{len(plan.postponed)} x rows wait for a bucket"] if plan.postponed else []
    return RoundDecision(
        table.name,
        _next_step(plan, expiring),
        None,
        plan.picked,
        plan.work.size,
        left.buckets,
        left.size,
        best_score(plan.decisions),
        turn.budget.left_size,
        ", ".join(expiring),
        "; ".join([*why, *([reasons_of(plan.tasks)] if plan.tasks else [])]),
        "; ".join([*skipped_reasons(skipped), *([turn.uncompacted] if turn.uncompacted else [])]),
        _lines(table, own),
        None if turn.problem is None else turn.problem.message,
        (table.source_of_reads or NO_SOURCE) if turn.is_by_goal else "",
    )


def _next_step(plan: CompactionPlan, expiring: Sequence[str]) -> str:
    if plan.picked:
        return NextStep.COMPACT
    if expiring:
        return NextStep.EXPIRE
    skipped = [decision for decision in plan.decisions if isinstance(decision, SkippedBucket)]
    if any(decision.is_over_budget for decision in skipped):
        return RoundState.OVER_BUDGET
    return RoundState.OVER_CAPS if any(decision.is_over_cap for decision in skipped) else RoundState.NOTHING


def _lines(table: ServedTable, context: TableContext | None) -> tuple[str, ...]:
    """The lines of the policy that count, with their places. `context`: the table without its policy, if it is open."""
    judged = with_hooks_judged(judged_settings(table.policy, None) if context is None else judged_for(table.policy, context))
    return tuple(
        f"{each.setting.key}: {each.setting.text} ({each.setting.place})" for each in judged if each.effect == Effect.IN_FORCE
    )
