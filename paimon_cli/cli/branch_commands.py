"""`branches`: separate histories over shared files. `--branch NAME` selects one in every other command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, TableName, Yes
from paimon_cli.cli.results import COUNT, ID, TIME, Column, Item, Listing, OutputFormat, confirm, counted, say

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.version_report import BranchRow
    from paimon_cli.maintain.branches import FastForwardPlan

branches = group("Branches of a table. Other commands select one by --branch NAME, or as 'TABLE$branch_NAME' (in quotes).")

BRANCH_COLUMNS = (
    Column("name", "Branch"),
    Column("first_snapshot", "First", ID),
    Column("latest_snapshot", "Latest", ID),
    Column("schema_id", "Schema", ID),
    Column("time", "Time (UTC)", TIME),
    Column("total_record_count", "Total records", COUNT),
)
Branch = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.", show_default=False)]


@command(branches, "ls")
def list_branches(call: Call, table: TableName) -> None:
    """List branches, main first."""
    opened = call.open(table)
    rows = opened.branches.ls()
    call.show(
        Listing("BranchList", opened.name, BRANCH_COLUMNS, rows, footer=counted(len(rows) - 1, "branch").replace("hs", "hes"))
    )


@command(branches, "create")
def create(
    call: Call,
    table: TableName,
    name: Branch,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Start from this tag.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", metavar="ID", min=1, help="Start from this snapshot.")] = None,
) -> None:
    """Create a branch from a tag or a snapshot, or an empty one with the table's schema.

    paimon-cli branches create ./wh/shop.db/orders try --tag year-end
    """
    opened = call.open(table)
    _show(call, opened, opened.branches.create(name, tag=tag, snapshot=snapshot), "created")


@command(branches, "rename")
def rename(
    call: Call, table: TableName, name: Branch, new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Rename a branch."""
    opened = call.open(table)
    _show(call, opened, opened.branches.rename(name, new_name), "renamed")


@command(branches, "rm")
def remove(call: Call, table: TableName, name: Branch, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a branch with its commits. Files that only the branch needed become orphans; `orphans rm` deletes them.

    paimon-cli branches rm ./wh/shop.db/orders try
    """
    opened = call.open(table)
    planned = opened.branches.plan_rm(name)
    what = f"branch {name} of {opened.name} with {counted(len(planned.plan), 'snapshot')}"
    if dry_run:
        say(f"{what} would be deleted; nothing was changed (dry run)")
        return
    confirm(f"{what} will be deleted", yes)
    planned.run()
    if call.output is OutputFormat.TABLE:
        say(f"deleted branch {name}")


@command(branches, "fast-forward")
def fast_forward(
    call: Call,
    table: TableName,
    name: Branch,
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Replace the history of main since the branch was created with that of the branch. Commits made to main since then are lost.

    paimon-cli branches fast-forward ./wh/shop.db/orders try --dry-run
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.branches.plan_fast_forward(name)
    if dry_run:
        show_files_to_delete(call, opened, "FastForwardPlan", planned.files(), _headline(planned.plan))
        return
    if planned.plan.discards:
        confirm(_headline(planned.plan), yes)
    _show(call, opened, planned.run(), f"{_headline(planned.plan)};")


def _headline(plan: FastForwardPlan) -> str:
    if plan.is_needless:
        return f"main already has all snapshots of branch {plan.branch}"
    lost = f", {counted(len(plan.discarded_ids), 'snapshot')} of main dropped" if plan.discarded_ids else ""
    return f"{counted(len(plan.added), 'snapshot')} of branch {plan.branch} added{lost}"


def _show(call: Call, opened: Table, row: BranchRow, done: str) -> None:
    if call.output is OutputFormat.TABLE:
        at = "without snapshots" if row.latest_snapshot is None else f"at snapshot {row.latest_snapshot}"
        say(f"{done} {'' if row.name == 'main' else 'branch '}{row.name} {at}")
    else:
        call.show(Item("Branch", opened.name, BRANCH_COLUMNS, row))
