"""`drop`, `drop-partition`, `truncate`: delete a table, partitions, all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.parameters import AllowUnsafeCommit, AssumeNew, CommitId, CommitUser, DryRun, TableName, Yes, split_partitions
from paimon_cli.cli.results import (
    COUNT,
    FLAG,
    NAMES,
    SIZE,
    SNAPSHOT_IDS,
    Column,
    Item,
    OutputFormat,
    confirm,
    counted,
    human_size,
    say,
    warn,
)

if TYPE_CHECKING:
    from paimon_cli.jobs.metadata_jobs import Dropped

NAMED = 20
"""Paths that a warning names."""
SUMMARY_COLUMNS = (
    Column("partitions", "Partitions", COUNT),
    Column("files", "Files", COUNT),
    Column("rows", "Records", COUNT),
    Column("snapshots", "Snapshots", SNAPSHOT_IDS),
    Column("already_committed", "Committed before", FLAG),
)
TABLE_COLUMNS = (
    Column("snapshots", "Snapshots", COUNT),
    Column("files", "Files", COUNT),
    Column("size", "Size", SIZE),
    Column("left", "Left", NAMES),
)


def register(app: typer.Typer, panel: str) -> None:
    command(app, "truncate", rich_help_panel=panel)(truncate)
    command(app, "drop-partition", rich_help_panel=panel)(drop_partition)
    command(app, "drop", rich_help_panel=panel)(drop)


def truncate(
    call: Call,
    table: TableName,
    dry_run: DryRun = False,
    yes: Yes = False,
    commit_user: CommitUser = None,
    commit_id: CommitId = None,
    assume_new: AssumeNew = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Delete all rows in one commit. Older snapshots keep them until they expire.

    paimon-cli truncate ./wh/shop.db/orders --dry-run
    """
    _drop(call, table, [], dry_run, yes, commit_user, commit_id, assume_new, allow_unsafe_commit)


def drop_partition(
    call: Call,
    table: TableName,
    partitions: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE[,...]...", help="Partitions to delete; with only some of the keys, all partitions that match."
        ),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    commit_user: CommitUser = None,
    commit_id: CommitId = None,
    assume_new: AssumeNew = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Delete all rows of partitions in one commit. Older snapshots keep them until they expire.

    paimon-cli drop-partition ./wh/shop.db/orders dt=2026-11-20
    """
    chosen = split_partitions(partitions, flag="")
    _drop(call, table, chosen, dry_run, yes, commit_user, commit_id, assume_new, allow_unsafe_commit)


def _drop(
    call: Call,
    table: str,
    partitions: list[dict[str, str]],
    dry_run: bool,
    yes: bool,
    commit_user: str | None,
    commit_id: int | None,
    assume_new: bool,
    allow_unsafe_commit: bool,
) -> None:
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.plan_truncate(partition=partitions, commit_user=commit_user, commit_id=commit_id, assume_new=assume_new)
    plan = planned.plan
    if plan.files and not dry_run:
        confirm(f"{_content(plan)} of {opened.name} will be deleted", yes)
    done = plan if dry_run else planned.run()
    if call.output is OutputFormat.TABLE:
        say(_summary_text(done, dry_run))
    else:
        call.show(Item("DropPlan" if dry_run else "DropSummary", opened.name, SUMMARY_COLUMNS, done))


def _content(what: Dropped) -> str:
    return f"{counted(what.rows, 'record')} in {counted(what.files, 'file')} of {counted(what.partitions, 'partition')}"


def _summary_text(done: Dropped, dry_run: bool) -> str:
    if done.already_committed:
        return "committed before under this user and identifier, nothing was done"
    if dry_run:
        return f"{_content(done)} would be deleted; nothing was changed (dry run)"
    if not done.snapshots:
        return "there are no rows to delete, nothing was committed"
    return f"snapshot {', '.join(str(snapshot.id) for snapshot in done.snapshots)}: {_content(done)} deleted"


def drop(call: Call, table: TableName, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a table: its files, snapshots, tags and branches. Other files in its directory are kept and listed.

    paimon-cli drop ./wh/shop.db/orders --dry-run
    """
    opened = call.open(table)
    planned = opened.plan_drop()
    goes = planned.plan
    what = f"table {opened.name} with {counted(goes.snapshots, 'snapshot')}"
    files = f"{counted(goes.files, 'file')} of {human_size(goes.size)}"
    if not dry_run:
        confirm(f"{what} ({files}) will be deleted for good", yes)
        planned.run()
    for line in _about_the_rest(opened.url, goes.left):
        warn(line)
    if dry_run:
        show_files_to_delete(call, opened, "TableDropPlan", planned.files(), what)
    elif call.output is OutputFormat.TABLE:
        say(f"dropped {what}: {files} deleted")
    else:
        call.show(Item("TableDropSummary", opened.name, TABLE_COLUMNS, goes))


def _about_the_rest(url: str, left: list[str]) -> list[str]:
    """The lines of the warning about files that a drop keeps; empty if there are none."""
    if not left:
        return []
    shown = [f"  {path}" for path in left[:NAMED]]
    more = [f"  and {len(left) - NAMED:,} more"] if len(left) > NAMED else []
    return [f"{url} is kept, it holds files that do not belong to the table:", *shown, *more]
