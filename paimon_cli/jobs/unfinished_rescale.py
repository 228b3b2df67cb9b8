"""Finishes a rescale that was interrupted (`history/unfinished_rescale`), as the same command would do it.

Services do so in their rounds. What is left are partitions that writers have begun with the old count, then the option. Until it
changes, writers refuse the partitions that have the new count.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_cli.errors import NotSupported, Refused, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import UnfinishedRescale
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.rescale_job import RescalePlan, RescaleSummary, plan_rescale, run_rescale
from paimon_cli.requests.maintenance import RescaleOptions


def finish_rescale(context: TableContext, left: UnfinishedRescale, engine: Engine, progress: Progress) -> RescaleSummary:
    """Bring the partitions that are left to the new count, then change the option.

    Raises `Conflict` if another job writes to them meanwhile, `Refused` while a partition holds files of several counts.
    """
    plan = _plan(context, left)
    if not left.changes_option:
        plan = replace(plan, partitions=tuple(found for found in plan.partitions if found.key in left.partitions), online=False)
    return run_rescale(context, replace(plan, record=(left.before, left.buckets)), engine, progress)


def _plan(context: TableContext, left: UnfinishedRescale) -> RescalePlan:
    """Beside writers where that can be, because they may still write to the partitions that are left."""
    try:
        return plan_rescale(context, RescaleOptions(left.buckets, online=True))
    except (NotSupported, Refused, UsageError):
        return plan_rescale(context, RescaleOptions(left.buckets))
