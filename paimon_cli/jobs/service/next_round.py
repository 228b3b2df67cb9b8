"""What the next round of `maintain` would decide about tables, and why: their policies, then the plan of the round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_cli.compact.compaction_task import SkippedBucket
from paimon_cli.errors import PaimonError
from paimon_cli.jobs.compact_request import CompactionPlan, apply_limits
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.service.compaction_service import RoundState, ServedTable
from paimon_cli.jobs.service.ledger_watcher import reasons_of, skipped_reasons
from paimon_cli.jobs.service.maintenance import AT_ONCE, REQUEST
from paimon_cli.jobs.service.service_turn import left_of, look
from paimon_cli.jobs.service.upkeep import due_expiry, kinds_that_expire
from paimon_cli.maintain.policy_effect import Effect, judged_settings
from paimon_cli.options.table_options import TableOptions
from paimon_cli.requests.maintenance import WHOLE_EXPIRY
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.time_bounds import look_at_each


class NextStep:
    """What the next round begins with in a table; `RoundState.NOTHING` is another one."""

    COMPACT = "compact"
    EXPIRE = "expire"
    WAIT = "wait for a window"


@dataclass(frozen=True)
class RoundDecision:
    """What the next round does with a table. `opens`: when its next window begins (epoch millis); None unless it waits for it.

    `buckets`, `bytes_read`: to be compacted within the caps; `left_buckets`, `left_bytes`: what a later round does. `why`: the
    reasons with their arithmetic; `why_not`: of the buckets that are not compacted. `policy`: the lines in force. `error`: None
    unless the table cannot be planned.
    """

    table: str
    decision: str
    opens: int | None = None
    buckets: int = 0
    bytes_read: int = 0
    left_buckets: int = 0
    left_bytes: int = 0
    to_expire: str = ""
    why: str = ""
    why_not: str = ""
    policy: tuple[str, ...] = ()
    error: str | None = None


def decisions_of(tables: Sequence[ServedTable], clock: Clock, table_seconds: float) -> Iterator[RoundDecision]:
    """The decisions of the next round, as `maintain` makes them. Changes nothing. `table_seconds`: the time of each look."""

    def decide(table: ServedTable) -> RoundDecision:
        return _decided(table, clock.now_millis())

    for table, found in zip(tables, look_at_each(decide, tables, table_seconds, 1, lambda table: table.name), strict=True):
        yield RoundDecision(table.name, RoundState.FAILED, error=found.message) if isinstance(found, PaimonError) else found


def _decided(table: ServedTable, now: int) -> RoundDecision:
    windows = table.policy.windows
    if windows is not None and table.policy.is_closed(now):
        lines = _lines(table, None)
        return RoundDecision(table.name, NextStep.WAIT, windows.opens(now), why_not="all windows are closed", policy=lines)
    request = table.limited(REQUEST)
    options = table.open().options if table.policy.met else None
    turn = look(table.name, table.opened, request, {}, AT_ONCE, True)
    context = turn.context()
    plan = CompactionPlan(turn.snapshot_id, apply_limits(() if turn.plan is None else turn.plan.decisions, request))
    skipped = [decision for decision in plan.decisions if isinstance(decision, SkippedBucket)]
    left = left_of(plan.decisions)
    expiring = []
    for what in kinds_that_expire(context, WHOLE_EXPIRY):
        _, expiry = due_expiry(context, what, NoProgress(), table.policy)
        expiring += [f"{len(expiry.names)} {what}"] if expiry.names else []
    buckets = len(plan.tasks) + len(plan.postponed)
    decided = NextStep.COMPACT if buckets else NextStep.EXPIRE if expiring else RoundState.NOTHING
    why = [f"{len(plan.postponed)} x rows wait for a bucket"] if plan.postponed else []
    return RoundDecision(
        table.name,
        decided,
        None,
        buckets,
        plan.work.size,
        left.buckets,
        left.size,
        ", ".join(expiring),
        "; ".join([*why, *([reasons_of(plan.tasks)] if plan.tasks else [])]),
        "; ".join(skipped_reasons(skipped)),
        _lines(table, options),
        None if turn.problem is None else turn.problem.message,
    )


def _lines(table: ServedTable, options: TableOptions | None) -> tuple[str, ...]:
    """The lines of the policy that count, with their places."""
    judged = judged_settings(table.policy, options)
    return tuple(
        f"{each.setting.key}: {each.setting.text} ({each.setting.place})" for each in judged if each.effect == Effect.IN_FORCE
    )
