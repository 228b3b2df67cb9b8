"""`drop`, `drop-partition`, `truncate`: delete a table, partitions, all rows."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
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
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH

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


@dataclass(frozen=True)
class TableDropped:
    """What a drop deleted; `left`: paths that remain, relative to the table's directory."""

    snapshots: int
    files: int
    size: int
    left: list[str]


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
    from paimon_cli.jobs.metadata_jobs import plan_drop, run_drop
    from paimon_cli.jobs.table_change import identity_of

    location = call.locate(table, allow_unsafe_commit)
    opened = call.open_to_plan(location) if dry_run else call.open_to_commit(location)
    identity = identity_of(opened.context, commit_user, commit_id, assume_new)
    plan = plan_drop(opened.context, partitions, identity)
    if plan.files and not dry_run:
        confirm(f"{_content(plan)} of {opened.name} will be deleted", yes)
    done = plan if dry_run or plan.already_committed else run_drop(opened.context, partitions, plan, identity)
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
    from paimon_cli.maintain.drop_table import drop_table, plan_table_drop
    from paimon_cli.maintain.needed_files import total_size

    opened = call.open_to_plan(call.locate(table))
    if opened.branch != MAIN_BRANCH:
        hint = f"paimon-cli branches rm {shlex.quote(opened.url)} {shlex.quote(opened.branch)}"
        raise UsageError(f"{opened.name} is a branch", "drop deletes whole tables", hint)
    schema = opened.schemas.latest()
    plan = plan_table_drop(opened.storage, opened.layout, schema)
    snapshots = len(opened.snapshots.ids())
    what = f"table {opened.name} with {counted(snapshots, 'snapshot')}"
    files = f"{counted(len(plan.files), 'file')} of {human_size(total_size(plan.files))}"
    if not dry_run:
        confirm(f"{what} ({files}) will be deleted for good", yes)
        drop_table(opened.storage, opened.layout, schema, plan)
    root = f"{opened.url}/"
    left = [path.removeprefix(root) for path in plan.stays]
    for line in _about_the_rest(opened.url, left):
        warn(line)
    if dry_run:
        show_files_to_delete(call, opened, "TableDropPlan", plan.files, what)
    elif call.output is OutputFormat.TABLE:
        say(f"dropped {what}: {files} deleted")
    else:
        summary = TableDropped(snapshots, len(plan.files), total_size(plan.files), left)
        call.show(Item("TableDropSummary", opened.name, TABLE_COLUMNS, summary))


def _about_the_rest(url: str, left: list[str]) -> list[str]:
    """The lines of the warning about files that a drop keeps; empty if there are none."""
    if not left:
        return []
    shown = [f"  {path}" for path in left[:NAMED]]
    more = [f"  and {len(left) - NAMED:,} more"] if len(left) > NAMED else []
    return [f"{url} is kept, it holds files that do not belong to the table:", *shown, *more]
