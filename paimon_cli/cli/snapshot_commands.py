"""`snapshots`: the versions of a table, and what changed between two of them."""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import TableName, addressable
from paimon_cli.cli.results import CHANGE, COUNT, ID, JSON, LONG, NAMES, SIZE, TIME, Column, Item, Listing, OutputFormat, counted
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


def _register_diff(snapshots: typer.Typer) -> None:
    command(snapshots, "diff")(diff_snapshots)


def diff_snapshots(
    call: Call,
    table: TableName,
    before: Annotated[str, typer.Argument(metavar="A", help="Id, latest or earliest.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="B", help="Id, latest or earliest.", show_default=False)],
    files: Annotated[bool, typer.Option("--files", help="Data files added and removed (the default).")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Rows that read differently.")] = False,
    limit: Annotated[
        int | None, typer.Option("-l", "--limit", metavar="N", callback=addressable, min=1, help="Only the first N changes.")
    ] = None,
) -> None:
    """Show how snapshot B differs from snapshot A: data files, or rows with their kinds.

    paimon-cli snapshots diff ./wh/shop.db/orders 12 latest --rows
    """
    from paimon_cli.read.difference import ADDED

    if files and rows:
        raise UsageError("--files and --rows exclude each other")
    opened = call.open(table)
    one, other = opened.snapshot(before).id, opened.snapshot(after).id
    if rows:
        shown = list(opened.row_changes(one, other, limit=limit))
        footer = f"{counted(len(shown), 'change')} from snapshot {one} to {other}"
        call.show(Listing("RowChangeList", opened.name, ROW_COLUMNS, shown, footer=footer))
        return
    changes = opened.file_changes(one, other)
    added = sum(change.change == ADDED for change in changes)
    footer = f"{counted(added, 'file')} added, {counted(len(changes) - added, 'file')} removed from snapshot {one} to {other}"
    call.show(Listing("FileChangeList", opened.name, FILE_COLUMNS, changes[:limit], footer=footer))


snapshots = group("Versions of a table: what each commit did.")

SNAPSHOT_COLUMNS = (
    Column("id", "ID", ID),
    Column("kind", "Kind"),
    Column("time", "Time (UTC)", TIME),
    Column("commit_user", "User", hide=1),
    Column("commit_identifier", None, LONG),
    Column("schema_id", "Schema", ID, hide=2),
    Column("delta_record_count", "+Records", CHANGE),
    Column("total_record_count", "Total records", COUNT),
    Column("files_added", "+Files", COUNT, hide=4),
    Column("files_deleted", "-Files", COUNT, hide=3),
    Column("watermark", None, ID),
    Column("tags", "Tags", NAMES),
)
DETAIL_TITLES = {"commit_identifier": "Identifier", "watermark": "Watermark"}
SNAPSHOT_DETAILS = (
    *(replace(column, title=column.title or DETAIL_TITLES[column.name]) for column in SNAPSHOT_COLUMNS),
    Column("base_manifest_list", "Base list"),
    Column("delta_manifest_list", "Delta list"),
    Column("changelog_manifest_list", "Changelog list"),
    Column("index_manifest", "Index manifest"),
    Column("changelog_record_count", "Changelog records", COUNT),
    Column("statistics", "Statistics"),
    Column("attempts", "Attempts", COUNT),
    Column("duration_ms", "Commit took (ms)", COUNT),
    Column("properties", "Properties", JSON),
    Column("uuid", "UUID"),
    Column("version", "Version", ID),
)


MOST_IN_TEXT = 1000
"""Snapshots shown by default in text output; other formats list all."""


class SnapshotKind(str, enum.Enum):
    """Choices of `--kind`."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@command(snapshots, "ls")
def list_snapshots(
    call: Call,
    table: TableName,
    limit: Annotated[
        int | None,
        typer.Option(
            "-l",
            "--limit",
            metavar="N",
            callback=addressable,
            min=1,
            help="Only the newest N; default 1000 in text, all in other formats.",
        ),
    ] = None,
    kind: Annotated[SnapshotKind | None, typer.Option("--kind", case_sensitive=False, help="Only commits of this kind.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only commits of this user.")] = None,
) -> None:
    """List snapshots, the newest first."""
    opened = call.open(table)
    most = MOST_IN_TEXT if limit is None and call.output is OutputFormat.TABLE else limit
    rows = opened.snapshots(limit=most, kind=kind.value if kind else None, user=user)
    ids = opened.snapshot_ids()
    footer = f"{len(rows)} of {counted(len(ids), 'snapshot')}, {ids[0]} to {ids[-1]}" if ids else "no snapshots yet"
    if limit is None and len(rows) == most:
        footer += f"; --limit {len(ids)} shows all"
    call.show(Listing("SnapshotList", opened.name, SNAPSHOT_COLUMNS, rows, footer=footer))


@command(snapshots, "show")
def show_snapshot(
    call: Call,
    table: TableName,
    snapshot: Annotated[
        str, typer.Argument(metavar="ID|latest|earliest", help="Id of a snapshot, latest or earliest.")
    ] = "latest",
) -> None:
    """Show all fields of one snapshot; for commits of paimon-cli also their attempts and duration."""
    opened = call.open(table)
    call.show(Item("Snapshot", opened.name, SNAPSHOT_DETAILS, opened.snapshot(snapshot)))


_register_diff(snapshots)
