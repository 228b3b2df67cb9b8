"""`rollback`: go back to an older version, by deleting what came after it or in a new snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, TableName, Yes
from paimon_cli.cli.results import COUNT, ID, NAMES, SIZE, Column, Item, OutputFormat, confirm, counted, human_size, say

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.metadata_jobs import RolledBack
    from paimon_cli.maintain.rollback import RollbackPlan

SUMMARY_COLUMNS = (
    Column("target", "Back to", ID),
    Column("snapshot", "Newest snapshot", ID),
    Column("snapshots_removed", "Snapshots deleted", COUNT),
    Column("tags_removed", "Tags deleted", NAMES),
    Column("files", "Files deleted", COUNT),
    Column("copied", "Copied", SIZE),
)


def register(app: typer.Typer, panel: str) -> None:
    command(app, "rollback", rich_help_panel=panel)(rollback)


def rollback(
    call: Call,
    table: TableName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="ID|TAG|TIME",
            help="A snapshot, a tag, or a time, which means the newest snapshot made by then.",
            show_default=False,
        ),
    ],
    as_new: Annotated[bool, typer.Option("--as-new", help="Keep the history: commit the old state as a new snapshot.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Go back to an older version and delete later snapshots and tags, with the files that only they need.

    Stop the writers first: a commit made meanwhile makes the rollback exit with 5. With --as-new writers may continue.

    paimon-cli rollback ./wh/shop.db/orders --to 12 --dry-run
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    done = _as_new(opened, to, dry_run) if as_new else _back(call, opened, to, dry_run, yes)
    if done is None:
        return
    if call.output is OutputFormat.TABLE:
        say(_summary_text(done))
    else:
        call.show(Item("RollbackSummary", opened.name, SUMMARY_COLUMNS, done))


def _back(call: Call, opened: Table, to: str, dry_run: bool, yes: bool) -> RolledBack | None:
    planned = opened.plan_rollback(to)
    headline = _headline(planned.plan)
    if dry_run:
        show_files_to_delete(call, opened, "RollbackPlan", planned.files(), headline)
        return None
    if not planned.plan.is_needless:
        confirm(headline, yes)
    return planned.run()


def _as_new(opened: Table, to: str, dry_run: bool) -> RolledBack | None:
    if not dry_run:
        return opened.rollback(to, as_new=True)
    found = opened.plan_restore(to)
    size = human_size(sum(difference.copied_bytes for difference in found.differences))
    what = f"snapshot {found.latest.id + 1} would have the content of snapshot {found.target.id}"
    say(f"{what}: {counted(len(found.differences), 'bucket')} differ, {size} to copy; nothing was changed (dry run)")
    return None


def _headline(plan: RollbackPlan) -> str:
    tags = f" and {counted(len(plan.tags), 'tag')} ({', '.join(plan.tags)})" if plan.tags else ""
    return f"back to snapshot {plan.target.id}: {counted(len(plan.snapshots), 'snapshot')}{tags} will be deleted"


def _summary_text(done: RolledBack) -> str:
    if done.snapshot != done.target:
        return f"snapshot {done.snapshot} has the content of snapshot {done.target}, {human_size(done.copied)} copied"
    if not done.files:
        return f"the table is already at snapshot {done.target}"
    tags = f", {counted(len(done.tags_removed), 'tag')}" if done.tags_removed else ""
    removed = f"{counted(done.snapshots_removed, 'snapshot')}{tags} and {counted(done.files, 'file')}"
    return f"back at snapshot {done.target}: {removed} deleted"
