"""`drop`, `drop-partition`, `truncate`: away with a table, a partition, all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.confirmation import confirm
from paimon_cli.cli.parameters import AllowUnsafeCommit, CommitId, CommitUser, DryRun, TableName, Yes, split_partitions
from paimon_cli.cli.results import Column, Item, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, SNAPSHOT_IDS, counted
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.jobs.drop_job import Dropped

SUMMARY_COLUMNS = (
    Column("partitions", "Partitions", COUNT),
    Column("files", "Files", COUNT),
    Column("rows", "Rows", COUNT),
    Column("snapshots", "Snapshots", SNAPSHOT_IDS),
)


def register(app: typer.Typer, panel: str) -> None:
    command(app, "truncate", rich_help_panel=panel)(truncate)
    command(app, "drop-partition", rich_help_panel=panel)(drop_partition)
    command(app, "drop", rich_help_panel=panel)(drop)


def truncate(
    call: Call,
    table: TableName,
    dry_run: DryRun = False,
    commit_user: CommitUser = None,
    commit_id: CommitId = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Delete all rows, as one commit: older snapshots keep them until they expire."""
    _drop(call, table, [], dry_run, commit_user, commit_id, allow_unsafe_commit)


def drop_partition(
    call: Call,
    table: TableName,
    partitions: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE[,...]...", help="Partitions; part of the keys names all that have it.")
    ],
    dry_run: DryRun = False,
    commit_user: CommitUser = None,
    commit_id: CommitId = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Delete all rows of partitions, as one commit: older snapshots keep them until they expire.

    paimon-cli drop-partition ./wh/shop.db/orders dt=2026-11-20
    """
    _drop(call, table, split_partitions(partitions), dry_run, commit_user, commit_id, allow_unsafe_commit)


def _drop(
    call: Call,
    table: str,
    partitions: list[dict[str, str]],
    dry_run: bool,
    commit_user: str | None,
    commit_id: int | None,
    allow_unsafe_commit: bool,
) -> None:
    from paimon_cli.jobs.drop_job import plan_drop, run_drop

    location = call.locate(table, allow_unsafe_commit)
    opened = call.open_at(location) if dry_run else call.open_to_commit(location)
    plan = plan_drop(opened.context, partitions)
    done = plan if dry_run else run_drop(opened.context, partitions, plan, commit_user, commit_id)
    if call.output is OutputFormat.TABLE:
        print(_summary_text(done, dry_run))
    else:
        call.show(Item("DropPlan" if dry_run else "DropSummary", opened.name, SUMMARY_COLUMNS, done))


def _summary_text(done: Dropped, dry_run: bool) -> str:
    what = f"{counted(done.rows, 'row')} in {counted(done.files, 'file')} of {counted(done.partitions, 'partition')}"
    if dry_run:
        return f"{what} would go; nothing was changed (dry run)"
    if not done.snapshots:
        return "there are no such rows, nothing was committed"
    return f"snapshot {', '.join(str(snapshot.id) for snapshot in done.snapshots)}: {what} dropped"


def drop(call: Call, table: TableName, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a table with all its files, snapshots, tags and branches."""
    from paimon_cli.maintain.drop_table import drop_table
    from paimon_cli.metadata.table_layout import MAIN_BRANCH

    opened = call.open(table)
    if opened.branch != MAIN_BRANCH:
        raise UsageError(f"{opened.name} is a branch", hint=f"paimon-cli branches rm {opened.url} {opened.branch}")
    snapshots = counted(len(opened.snapshots.ids()), "snapshot")
    what = f"table {opened.name} at {opened.url} with {snapshots}"
    if dry_run:
        print(f"{what} would go; nothing was changed (dry run)")
        return
    confirm(f"{what} goes for good: delete?", yes)
    drop_table(opened.storage, opened.layout)
    if call.output is OutputFormat.TABLE:
        print(f"dropped {what}")
