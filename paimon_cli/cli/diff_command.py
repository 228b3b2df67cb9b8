"""`snapshots diff`: what changed between two versions of a table."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.parameters import TableName
from paimon_cli.cli.results import Column, Listing
from paimon_cli.cli.value_kinds import COUNT, ID, JSON, SIZE, counted
from paimon_cli.errors import UsageError

FILE_COLUMNS = (
    Column("change", "Change"),
    Column("partition", "Partition"),
    Column("bucket", "Bucket", ID),
    Column("level", "Level", ID),
    Column("file", "File"),
    Column("rows", "Records", COUNT),
    Column("size", "Size", SIZE),
)
ROW_COLUMNS = (Column("kind", "Kind"), Column("values", "Row", JSON))


def register(snapshots: typer.Typer) -> None:
    command(snapshots, "diff")(diff_snapshots)


def diff_snapshots(
    call: Call,
    table: TableName,
    before: Annotated[str, typer.Argument(metavar="A", help="Id, latest or earliest.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="B", help="Id, latest or earliest.", show_default=False)],
    files: Annotated[bool, typer.Option("--files", help="Data files added and removed (the default).")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Rows that read differently.")] = False,
    limit: Annotated[int | None, typer.Option("-l", "--limit", metavar="N", min=1, help="Only the first N changes.")] = None,
) -> None:
    """Show how snapshot B differs from snapshot A: data files, or rows with their kinds.

    paimon-cli snapshots diff ./wh/shop.db/orders 12 latest --rows
    """
    from paimon_cli.read.snapshot_diff import ADDED, file_changes, row_changes

    if files and rows:
        raise UsageError("--files and --rows exclude each other")
    opened = call.open(table)
    one, other = opened.named_snapshot(before), opened.named_snapshot(after)
    if rows:
        shown = list(islice(row_changes(opened.context, one, other), limit))
        footer = f"{counted(len(shown), 'change')} from snapshot {one.id} to {other.id}"
        call.show(Listing("RowChangeList", opened.name, ROW_COLUMNS, shown, footer=footer))
        return
    changes = file_changes(opened.context, one, other)
    added = sum(change.change == ADDED for change in changes)
    footer = (
        f"{counted(added, 'file')} added, {counted(len(changes) - added, 'file')} removed from snapshot {one.id} to {other.id}"
    )
    call.show(Listing("FileChangeList", opened.name, FILE_COLUMNS, changes[:limit], footer=footer))
