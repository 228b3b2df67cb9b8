"""`tags`: named snapshots, which outlive the expiry of the snapshots themselves."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.parameters import DryRun, TableName, Yes
from paimon_cli.cli.results import COUNT, ID, TEXT, TIME, WALL_CLOCK, Column, Item, Listing, OutputFormat, confirm, counted, say

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
    from paimon_cli.inspect.version_report import tag_rows

    opened = call.open(table)
    rows = tag_rows(opened)
    call.show(Listing("TagList", opened.name, TAG_COLUMNS, rows, footer=counted(len(rows), "tag")))


@command(tags, "show")
def show_tag(call: Call, table: TableName, tag: Tag) -> None:
    """Show one tag."""
    from paimon_cli.inspect.version_report import read_tag

    opened = call.open(table)
    call.show(Item("Tag", opened.name, TAG_COLUMNS, read_tag(opened, tag)))


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
    from paimon_cli.maintain.tags import create_tag, replace_tag

    opened = call.open(table)
    exists = replace and opened.tags.content(tag) is not None
    (replace_tag if exists else create_tag)(opened.context, tag, snapshot, _millis(time_retained))
    _show(call, table, tag, "replaced" if exists else "created")


@command(tags, "replace")
def move(call: Call, table: TableName, tag: Tag, snapshot: TaggedSnapshot = None, time_retained: TimeRetained = None) -> None:
    """Point an existing tag at another snapshot."""
    from paimon_cli.maintain.tags import replace_tag

    replace_tag(call.open(table).context, tag, snapshot, _millis(time_retained))
    _show(call, table, tag, "replaced")


@command(tags, "rename")
def rename(
    call: Call, table: TableName, tag: Tag, new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Rename a tag."""
    from paimon_cli.maintain.tags import rename_tag

    rename_tag(call.open(table).context, tag, new_name)
    _show(call, table, new_name, "renamed")


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
    from paimon_cli.cli.terminal import progress_on_stderr
    from paimon_cli.jobs.reclaim_job import deletion
    from paimon_cli.maintain.needed_files import FileToDelete, measured
    from paimon_cli.maintain.tags import files_removed_with_tags, plan_removal, remove_tags

    opened = call.open(table)
    context = opened.context
    removal = plan_removal(context, list(dict.fromkeys(names)))
    if dry_run:
        tags = [FileToDelete(context.layout.tag(name), "tag") for name in removal.names]
        files = measured(context, [*tags, *files_removed_with_tags(context, removal)])
        show_files_to_delete(call, opened, "TagRemovalPlan", files, counted(len(removal.names), "tag"))
        return
    named = f"{counted(len(removal.names), 'tag')} ({', '.join(removal.names)})"
    confirm(f"{named} and the files that only they need will be deleted", yes)
    count = remove_tags(context, removal, deletion(context, None, progress_on_stderr()))
    if call.output is OutputFormat.TABLE:
        freed = f", {counted(count, 'file')} deleted that only they needed" if count else ""
        say(f"deleted {counted(len(removal.names), 'tag')}{freed}")
    else:
        columns = (Column("name", "Tag"),)
        call.show(Listing("RemovedTagList", opened.name, columns, [_Named(name) for name in removal.names]))


class _Named:
    """A row with a name."""

    def __init__(self, name: str) -> None:
        self.name = name


def _millis(age: str | None) -> int | None:
    from paimon_cli.options.size_and_duration import parse_duration

    return None if age is None else parse_duration(age)


def _show(call: Call, table: str, tag: str, done: str) -> None:
    from paimon_cli.inspect.version_report import read_tag

    opened = call.open(table)
    row = read_tag(opened, tag)
    if call.output is OutputFormat.TABLE:
        say(f"{done} tag {tag} at snapshot {row.snapshot_id}")
    else:
        call.show(Item("Tag", opened.name, TAG_COLUMNS, row))
