"""`tags`: named snapshots, which outlive the expiry of the snapshots themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.parameters import DryRun, TableName, Yes
from paimon_cli.cli.results import COUNT, ID, TEXT, TIME, WALL_CLOCK, Column, Item, Listing, OutputFormat, confirm, counted, say

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.version_report import TagRow

tags = group("Named snapshots.")

TAG_COLUMNS = (
    Column("name", "Tag"),
    Column("snapshot_id", "Snapshot", ID),
    Column("schema_id", "Schema", ID, hide=2),
    Column("time", "Time (UTC)", TIME),
    Column("total_record_count", "Total records", COUNT),
    Column("created", "Created", WALL_CLOCK, hide=3),
    Column("time_retained", "Retained (s)", TEXT, hide=1),
)
Tag = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.", show_default=False)]
TaggedSnapshot = Annotated[int | None, typer.Option("--snapshot", metavar="ID", min=1, help="The snapshot; default the latest.")]
TimeRetained = Annotated[
    str | None,
    typer.Option("--time-retained", metavar="AGE", help="How long to keep the tag, such as 7d; default the table's option."),
]


@command(tags, "ls")
def list_tags(call: Call, table: TableName) -> None:
    """List tags by snapshot."""
    opened = call.open(table)
    rows = opened.tags.ls()
    call.show(Listing("TagList", opened.name, TAG_COLUMNS, rows, footer=counted(len(rows), "tag")))


@command(tags, "show")
def show_tag(call: Call, table: TableName, tag: Tag) -> None:
    """Show one tag."""
    opened = call.open(table)
    call.show(Item("Tag", opened.name, TAG_COLUMNS, opened.tags.show(tag)))


@command(tags, "create")
def create(
    call: Call,
    table: TableName,
    tag: Tag,
    snapshot: TaggedSnapshot = None,
    time_retained: TimeRetained = None,
    replace: Annotated[bool, typer.Option("--replace", help="Move the tag to this snapshot if it exists.")] = False,
) -> None:
    """Create a tag: name a snapshot and keep it when snapshots expire.

    paimon-cli tags create ./wh/shop.db/orders year-end --time-retained 365d
    """
    opened = call.open(table)
    existed = replace and opened.tags.exists(tag)
    row = opened.tags.create(tag, snapshot=snapshot, time_retained=time_retained, replace=replace)
    _show(call, opened, row, "replaced" if existed else "created")


@command(tags, "replace")
def move(call: Call, table: TableName, tag: Tag, snapshot: TaggedSnapshot = None, time_retained: TimeRetained = None) -> None:
    """Point an existing tag at another snapshot."""
    opened = call.open(table)
    _show(call, opened, opened.tags.replace(tag, snapshot=snapshot, time_retained=time_retained), "replaced")


@command(tags, "rename")
def rename(
    call: Call, table: TableName, tag: Tag, new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Rename a tag."""
    opened = call.open(table)
    _show(call, opened, opened.tags.rename(tag, new_name), "renamed")


@command(tags, "rm")
def remove(
    call: Call,
    table: TableName,
    names: Annotated[list[str], typer.Argument(metavar="TAG...", help="Names of tags.", show_default=False)],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete tags, and the files that only they needed.

    paimon-cli tags rm ./wh/shop.db/orders year-end --dry-run
    """
    opened = call.open(table)
    planned = opened.tags.plan_rm(*names)
    removed = planned.plan.names
    if dry_run:
        show_files_to_delete(call, opened, "TagRemovalPlan", planned.files(), counted(len(removed), "tag"))
        return
    confirm(f"{counted(len(removed), 'tag')} ({', '.join(removed)}) and the files that only they need will be deleted", yes)
    count = planned.run()
    if call.output is OutputFormat.TABLE:
        freed = f", {counted(count, 'file')} deleted that only they needed" if count else ""
        say(f"deleted {counted(len(removed), 'tag')}{freed}")
    else:
        columns = (Column("name", "Tag"),)
        call.show(Listing("RemovedTagList", opened.name, columns, [_Named(name) for name in removed]))


class _Named:
    """A row with a name."""

    def __init__(self, name: str) -> None:
        self.name = name


def _show(call: Call, opened: Table, row: TagRow, done: str) -> None:
    if call.output is OutputFormat.TABLE:
        say(f"{done} tag {row.name} at snapshot {row.snapshot_id}")
    else:
        call.show(Item("Tag", opened.name, TAG_COLUMNS, row))
