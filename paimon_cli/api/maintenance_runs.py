"""Runs of `maintain`, over one table or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from paimon_cli.api.runtime import Runtime
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.requests.upkeep import Budgeted, MaintainTables

if TYPE_CHECKING:
    from paimon_cli.inspect.findings.finding import Finding
    from paimon_cli.jobs.service.maintenance import MaintainedTable
    from paimon_cli.jobs.service.served_table import ServedTable
    from paimon_cli.jobs.service.table_round import ServiceWatcher

COMPACTION = "compaction"
"""The name of the leases of services that compact."""


class MaintainingTables(MaintainTables):
    """Maintenance of several tables, with functions of the caller.

    `shield`: holds signals back during a commit. `on_maintained`: called with each result, also of a failed table. `watcher`:
    receives one event for each table and one for the run, for logs and metrics.
    """

    _: KW_ONLY
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext
    on_maintained: Callable[[MaintainedTable], None] | None = None
    watcher: ServiceWatcher | None = None


def run_maintenance(
    runtime: Runtime,
    tables: Sequence[ServedTable],
    asked: Budgeted,
    seconds: float,
    damaged: Sequence[PaimonError] = (),
    given: MaintainingTables | None = None,
) -> list[MaintainedTable]:
    """Maintain tables, and raise the failures at the end. `given`: the functions of the caller. A table that was listed may be
    dropped meanwhile.
    """
    from paimon_cli.jobs.goal_merges import merges_of
    from paimon_cli.jobs.service.budget import Budget
    from paimon_cli.jobs.service.leases import Leases
    from paimon_cli.jobs.service.maintenance import MaintainedTable, Quiet, RunLimits, maintain
    from paimon_cli.jobs.service.table_round import RoundState, TableRound, raise_failures, rounds_of_damage
    from paimon_cli.storage.injected import SystemClock, SystemRandom

    clock, rounds, rows = SystemClock(), list[TableRound](), list[MaintainedTable]()
    leases = Leases(COMPACTION, SystemRandom().uuid(), asked.lease, clock, seconds) if asked.lease else None
    watcher = Quiet(runtime.new_progress) if given is None or given.watcher is None else given.watcher
    shield = nullcontext if given is None else given.shield
    may_go = given is not None and given.is_listed

    def note(done: TableRound, findings: tuple[Finding, ...] | None) -> None:
        rounds.append(done if may_go or done.state != RoundState.GONE else replace(done, state=RoundState.FAILED))
        rows.append(MaintainedTable.of(rounds[-1], findings))
        if given is not None and given.on_maintained is not None:
            given.on_maintained(rows[-1])

    with runtime.engine_running() as engine:
        budget = Budget.of(asked.budget, clock, charges_upkeep=asked.goal is not None)
        limits = RunLimits(budget, seconds, merges_of(asked.goal))
        for done, findings in maintain(tables, engine, watcher, shield, leases, limits):
            note(done, findings)
    for of_damage in rounds_of_damage(damaged):
        note(of_damage, None)
    raise_failures(rounds, done="maintained", partly=None)
    return rows


def planned_maintenance(
    runtime: Runtime,
    tables: Sequence[ServedTable],
    asked: Budgeted,
    seconds: float,
    damaged: Sequence[PaimonError] = (),
    given: MaintainingTables | None = None,
) -> list[MaintainedTable]:
    """What `run_maintenance` would do. Failures are raised at the end, too."""
    from paimon_cli.jobs.goal_merges import merges_of
    from paimon_cli.jobs.service.budget import Budget
    from paimon_cli.jobs.service.maintenance import MaintainedTable, RunLimits, plan_maintenance
    from paimon_cli.jobs.service.table_round import RoundState, TableRound, raise_failures, rounds_of_damage
    from paimon_cli.storage.injected import SystemClock

    if asked.budget is not None and asked.budget.millis is not None:
        why = "how much fits into a time is not known before"
        raise UsageError("a dry run cannot divide a --budget of time", why, "use a size such as --budget 20GB, or leave it out")
    rounds, rows = list[TableRound](), list[MaintainedTable]()
    budget = Budget.of(asked.budget, SystemClock(), charges_upkeep=asked.goal is not None)
    planned = plan_maintenance(tables, runtime.new_progress(), RunLimits(budget, seconds, merges_of(asked.goal)))
    of_damage = ((MaintainedTable.of(one, None), one.error) for one in rounds_of_damage(damaged))
    for row, error in chain(planned, of_damage):
        rows.append(row)
        rounds.append(TableRound(row.table, RoundState.FAILED if error else RoundState.NOTHING, error=error))
        if given is not None and given.on_maintained is not None:
            given.on_maintained(row)
    raise_failures(rounds, done="planned", partly=None)
    return rows
