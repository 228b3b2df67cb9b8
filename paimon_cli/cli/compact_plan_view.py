"""`compact --dry-run`: what would be compacted, by which trigger, at which cost, and why the rest is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paimon_cli.cli.command import Call
from paimon_cli.cli.results import Column, Listing
from paimon_cli.cli.value_kinds import COUNT, ID, SIZE, counted, human_size

if TYPE_CHECKING:
    from paimon_cli.jobs.compact_job import CompactionPlan, CompactRequest
    from paimon_cli.table.table_location import TableLocation
PLAN_COLUMNS = (
    Column("partition", "Partition"),
    Column("bucket", "Bucket", ID),
    Column("reason", "Reason"),
    Column("arithmetic", "Figures"),
    Column("runs_before", "Runs", COUNT),
    Column("runs_after", "Runs then", COUNT),
    Column("files", "Files", COUNT),
    Column("size", "Read", SIZE),
    Column("output_level", "To level", ID),
)


def show_plans(call: Call, locations: Sequence[TableLocation], request: CompactRequest, dedicated: bool) -> None:
    from paimon_cli.jobs.compact_job import plan_compaction
    from paimon_cli.table.compaction_report import decision_rows

    for location in locations:
        table = call.open_at(location)
        plan = plan_compaction(table.context, request)
        rows = decision_rows(table.context, plan.decisions)
        call.show(Listing("CompactionPlan", table.name, PLAN_COLUMNS, rows, footer=_plan_footer(table.name, plan)))


def _plan_footer(table: str, plan: CompactionPlan) -> str:
    size = human_size(sum(task.size for task in plan.tasks))
    work = f"{counted(len(plan.tasks), 'bucket')} to compact, {size} to read"
    return f"{table} at snapshot {plan.snapshot_id}: {work}; nothing was changed (dry run)"
