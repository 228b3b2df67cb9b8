"""`branches`: separate histories over shared files. `--branch NAME` selects one in every other command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, TableName, Yes
from paimon_cli.cli.results import COUNT, ID, TIME, Column, Item, Listing, OutputFormat, confirm, counted, say

if TYPE_CHECKING:
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
    from paimon_cli.inspect.version_report import branch_rows

    opened = call.open(table)
    rows = branch_rows(opened)
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
    from paimon_cli.maintain.branches import create_branch

    create_branch(call.open(table).context, name, tag, snapshot)
    _show(call, table, name, "created")


@command(branches, "rename")
def rename(
    call: Call, table: TableName, name: Branch, new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Rename a branch."""
    from paimon_cli.maintain.branches import rename_branch

    rename_branch(call.open(table).context, name, new_name)
    _show(call, table, new_name, "renamed")


@command(branches, "rm")
def remove(call: Call, table: TableName, name: Branch, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a branch with its commits. Files that only the branch needed become orphans; `orphans rm` deletes them.

    paimon-cli branches rm ./wh/shop.db/orders try
    """
    from paimon_cli.maintain.branches import remove_branch

    opened = call.open(table)
    if name not in opened.branches.directories():
        raise opened.branches.missing(name)
    snapshots = replace(opened, branch=name).snapshots.ids()
    what = f"branch {name} of {opened.name} with {counted(len(snapshots), 'snapshot')}"
    if dry_run:
        say(f"{what} would be deleted; nothing was changed (dry run)")
        return
    confirm(f"{what} will be deleted", yes)
    remove_branch(opened.context, name)
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
    from paimon_cli.cli.terminal import progress_on_stderr
    from paimon_cli.jobs.reclaim_job import deletion
    from paimon_cli.maintain import branches as forward
    from paimon_cli.maintain.needed_files import measured

    location = call.locate(table, allow_unsafe_commit)
    opened = call.open_at(location) if dry_run else call.open_to_commit(location)
    if name not in opened.branches.names():
        raise opened.branches.missing(name)
    context = opened.context
    plan = forward.plan_fast_forward(context, name)
    if dry_run:
        show_files_to_delete(
            call,
            opened,
            "FastForwardPlan",
            measured(context, forward.files_removed_by_fast_forward(context, plan)),
            _headline(plan),
        )
        return
    if plan.discards:
        confirm(_headline(plan), yes)
    if not plan.is_needless:
        forward.fast_forward(context, plan, deletion(context, None, progress_on_stderr()))
    _show(call, table, "main", f"{_headline(plan)};")


def _headline(plan: FastForwardPlan) -> str:
    if plan.is_needless:
        return f"main already has all snapshots of branch {plan.branch}"
    lost = f", {counted(len(plan.discarded_ids), 'snapshot')} of main dropped" if plan.discarded_ids else ""
    return f"{counted(len(plan.added), 'snapshot')} of branch {plan.branch} added{lost}"


def _show(call: Call, table: str, branch: str, done: str) -> None:
    from paimon_cli.inspect.version_report import branch_row

    opened = call.open(table)
    row = branch_row(opened, branch)
    if call.output is OutputFormat.TABLE:
        at = "without snapshots" if row.latest_snapshot is None else f"at snapshot {row.latest_snapshot}"
        say(f"{done} {'' if branch == 'main' else 'branch '}{branch} {at}")
    else:
        call.show(Item("Branch", opened.name, BRANCH_COLUMNS, row))
