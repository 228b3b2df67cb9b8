"""`rescale`: change the number of buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.messages import confirm, say
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Partitions, TableName, Yes, split_partitions
from paimon_cli.cli.results import Column, Item, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, FLAG, SIZE, SNAPSHOT_IDS, TEXT, counted, human_size, ran

if TYPE_CHECKING:
    from paimon_cli.jobs.rescale_job import RescalePlan, RescaleSummary
    from paimon_cli.table.table import Table

PLAN_COLUMNS = (
    Column("partition", "Partition", TEXT),
    Column("buckets", "Buckets", COUNT),
    Column("files", "Files", COUNT),
    Column("rows", "Records", COUNT),
    Column("size", "Size", SIZE),
)
SUMMARY_COLUMNS = (
    Column("buckets", "Buckets", COUNT),
    Column("partitions", "Partitions", COUNT),
    Column("rows", "Rows", COUNT),
    Column("files", "Files", COUNT),
    Column("size", "Size", SIZE),
    Column("snapshots", "Snapshots", SNAPSHOT_IDS),
    Column("option_changed", "Option changed", FLAG),
    Column("engine", "Engine"),
    Column("engine_reason", "Why"),
    Column("seconds", "Seconds", TEXT),
)


def register(app: typer.Typer, panel: str) -> None:
    command(app, "rescale", runs_jobs=True, rich_help_panel=panel)(rescale)


def rescale(
    call: Call,
    table: TableName,
    buckets: Annotated[int, typer.Option("--buckets", metavar="N", min=1, help="The new number of buckets.", show_default=False)],
    partition: Partitions = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Rewrite a table with another number of buckets, in one commit, and change its bucket option.

    If another job writes meanwhile, it exits with 5 and leaves the table unchanged. --partition rewrites only the given
    partitions, to the number of buckets that the table's option already has.

    paimon-cli rescale ./wh/shop.db/orders --buckets 16 --dry-run
    """
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.jobs.rescale_job import plan_rescale, run_rescale

    location = call.locate(table, allow_unsafe_commit)
    opened = call.open_at(location) if dry_run else call.open_to_commit(location)
    plan = plan_rescale(opened.context, buckets, split_partitions(partition))
    if dry_run:
        _show_plan(call, opened, plan)
        return
    if plan.partitions:
        confirm(_headline(plan), yes)
    with call.engine_running() as engine:
        summary = run_rescale(opened, plan, engine, progress_on_stderr())
    if call.output is OutputFormat.TABLE:
        say(_summary_text(summary))
    else:
        call.show(Item("RescaleSummary", opened.name, SUMMARY_COLUMNS, summary))


def _show_plan(call: Call, table: Table, plan: RescalePlan) -> None:
    footer = f"{_headline(plan)}; nothing was changed (dry run)"
    call.show(Listing("RescalePlan", table.name, PLAN_COLUMNS, plan.partitions, footer=footer))


def _headline(plan: RescalePlan) -> str:
    if not plan.partitions:
        return f"all files are already in {counted(plan.buckets, 'bucket')}"
    files = sum(partition.files for partition in plan.partitions)
    what = f"{counted(len(plan.partitions), 'partition')} ({counted(files, 'file')}, {human_size(plan.size)})"
    return f"{what} will be rewritten with {counted(plan.buckets, 'bucket')}"


def _summary_text(done: RescaleSummary) -> str:
    option = f"; the table's option is now bucket={done.buckets}" if done.option_changed else ""
    if not done.partitions:
        return f"no file had to move{option}"
    ids = ", ".join(str(snapshot.id) for snapshot in done.snapshots)
    return (
        f"snapshot {ids}: {counted(done.rows, 'row')} of {counted(done.partitions, 'partition')} in "
        f"{counted(done.files, 'file')}, {human_size(done.size)}, {ran(done)}{option}"
    )
