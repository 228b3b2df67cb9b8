"""`analyze`: count what a table holds, and commit it as statistics for the planners of other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, TableName
from paimon_cli.cli.results import counted, human_size, printable
from paimon_cli.requests.maintenance import AnalyzeOptions

if TYPE_CHECKING:
    from paimon_cli.jobs.analyze_job import Analysis

commands = top_level()


@command(commands, "analyze")
def analyze(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, AnalyzeOptions],
    dry_run: DryRun = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Count rows and values, and commit them as Paimon's statistics, by which Spark and other engines plan joins.

    For each column: nulls, distinct values (an estimate above some ten thousand), least and greatest number or time, and lengths.
    Statistics stay with the snapshots that follow, until the schema changes; run it again after large changes.

    paimon-cli analyze ./wh/shop.db/orders --dry-run

    paimon-cli analyze shop.orders --columns id,amount --warehouse s3://lake/wh
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.plan_analyze(**options)
    found = planned.plan if dry_run else planned.run()
    call.show(Item("AnalysisPlan" if dry_run else "Analysis", opened.name, found), _text(found))


def _text(found: Analysis) -> str:
    what = f"{counted(found.rows, 'row')}, {human_size(found.size)} in snapshot {found.snapshot_id}"
    ending = f"committed as snapshot {found.snapshots[-1].id}" if found.snapshots else "nothing was changed (dry run)"
    lines = [f"{what}; {ending}"]
    for column in found.columns:
        facts = [counted(column.null_count, "null")]
        facts += [] if column.distinct_count is None else [f"{column.distinct_count:,} distinct"]
        facts += [] if column.low is None else [f"{column.low} to {column.high}"]
        if column.avg_length is not None:
            facts.append(f"{counted(column.avg_length, 'byte')} on average, {column.max_length} at most")
        lines.append(f"  {printable(column.name)}: {', '.join(facts)}")
    return "\n".join(lines)
