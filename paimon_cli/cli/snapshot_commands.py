"""`snapshots`, `changelog`, `blame`: the snapshots of a table, and the changes to its files, rows and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing, OutputFormat
from paimon_cli.cli.parameters import Given, TableName, addressable
from paimon_cli.cli.results import counted, note
from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Key
from paimon_cli.requests.reading import ChangelogCall

if TYPE_CHECKING:
    from paimon_cli.api.scan import Changes, Scan

commands = top_level()
snapshots = group("Snapshots of a table: what each commit did.")


MAX_IN_TEXT = 1000
"""Snapshots shown by default in text output; other formats list all."""


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
    kind: Annotated[
        Literal["APPEND", "COMPACT", "OVERWRITE", "ANALYZE"] | None,
        typer.Option("--kind", case_sensitive=False, help="Only commits of this kind."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only commits of this user.")] = None,
) -> None:
    """List snapshots, newest first.

    paimon-cli snapshots ls ./wh/shop.db/orders --limit 10

    paimon-cli snapshots ls ./wh/shop.db/orders --kind COMPACT --fields id,time,files_deleted
    """
    from paimon_cli.inspect.version_report import SnapshotRow

    opened = call.open(table)
    most = MAX_IN_TEXT if limit is None and call.is_for_people else limit
    rows = opened.snapshots(limit=most, kind=kind, user=user)
    ids = opened.snapshot_ids()
    extent = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else f"number {ids[0]}" if ids else ""
    footer = f"{len(rows)} of {counted(len(ids), 'snapshot')}, {extent}" if ids else "no snapshots yet"
    if limit is None and len(rows) == most:
        footer += f"; --limit {len(ids)} shows all"
    call.show(Listing("SnapshotList", opened.name, SnapshotRow, rows, footer=footer))


@command(snapshots, "show")
def show_snapshot(
    call: Call,
    table: TableName,
    snapshot: Annotated[
        str, typer.Argument(metavar="ID|TAG|TIME|latest|earliest", help="A snapshot, or the newest one at a time.")
    ] = "latest",
) -> None:
    """Show all fields of one snapshot; for commits of paimon-cli, including attempts and duration.

    paimon-cli snapshots show ./wh/shop.db/orders latest

    paimon-cli snapshots show ./wh/shop.db/orders 3 -o json
    """
    opened = call.open(table)
    call.show(Item("Snapshot", opened.name, opened.snapshot(snapshot)))


@command(snapshots, "diff")
def diff_snapshots(
    call: Call,
    table: TableName,
    before: Annotated[
        str, typer.Argument(metavar="A", help="A snapshot id, tag or time, latest or earliest.", show_default=False)
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="The same.", show_default=False)],
    files: Annotated[bool, typer.Option("--files", help="Data files added and removed (the default).")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Rows that differ when read.")] = False,
    limit: Annotated[
        int | None, typer.Option("-l", "--limit", metavar="N", callback=addressable, min=1, help="Only the first N changes.")
    ] = None,
) -> None:
    """Show how snapshot B differs from snapshot A: data files, or rows with their kinds. `compare T@A T@B` does the same.

    paimon-cli snapshots diff ./wh/shop.db/orders 12 latest --rows

    paimon-cli snapshots diff ./wh/shop.db/orders earliest latest --files
    """
    from paimon_cli.read.difference import ADDED, FileChange, RowChange

    if files and rows:
        raise UsageError("--files cannot be combined with --rows")
    opened = call.open(table)
    one, other = opened.snapshot(before).id, opened.snapshot(after).id
    if rows:
        shown = list(opened.row_changes(one, other, limit=limit))
        footer = f"{counted(len(shown), 'change')} from snapshot {one} to {other}"
        call.show(Listing("RowChangeList", opened.name, RowChange, shown, footer=footer))
        if waiting := opened.scan(snapshot=other).waiting_records:
            what = f"{counted(waiting, 'stored record')} of snapshot {other}"
            note(f"note: {what} waited for a compaction: reads do not show them there, and they are not compared")
        return
    changes = opened.file_changes(one, other)
    added = sum(change.change == ADDED for change in changes)
    footer = f"{counted(added, 'file')} added, {counted(len(changes) - added, 'file')} removed from snapshot {one} to {other}"
    call.show(Listing("FileChangeList", opened.name, FileChange, changes[:limit], footer=footer))


changelog = group("Row changes, snapshot by snapshot.")


@command(changelog, "read")
def read_changelog(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, ChangelogCall],
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for further snapshots, up to --to or until it is interrupted.")
    ] = False,
) -> None:
    """Print the row changes of a range of snapshots, with their row kinds.

    If the table has a changelog producer, changes come from changelog files; overwrites are compared
    with the previous snapshot. Without a producer, changes are the rows that each commit added.

    paimon-cli changelog read ./wh/shop.db/orders --from 1d

    paimon-cli changelog read ./wh/shop.db/orders --from 3 --to 5 -w "id = 7" -o ndjson
    """
    from paimon_cli.cli.row_output import print_rows

    if follow and call.output is OutputFormat.JSON:
        raise UsageError("--follow with --output json", "the JSON document would never end", "use --output ndjson")
    opened = call.open(table)
    changes: Changes | Scan = opened.follow_changelog(**options) if follow else opened.changelog(**options)
    print_rows(changes.rows, opened.name, call, at_once=follow)


@command(commands, "blame")
def blame(
    call: Call,
    table: TableName,
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            metavar="COLUMN=VALUE[,...]",
            help="The key, or a part of it; NULL for null if keys may be null.",
            show_default=False,
        ),
    ],
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Also write a timeline, as one page.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --html if it exists.")] = False,
) -> None:
    """Show every stored version of a key: commit, engine, file, level, sequence number, kind, values, and what readers saw then.

    paimon-cli blame ./wh/shop.db/orders --key id=7

    paimon-cli blame ./wh/shop.db/orders --key id=7 --html order-7.html

    paimon-cli blame ./wh/shop.db/orders --key dt=2026-11-21 --key id=7 -o json
    """
    from paimon_cli.read.key_history import KeyVersion

    if force and html is None:
        raise UsageError("--force without --html", "it replaces the file of --html", "remove --force")
    opened = call.open(table)
    rows = opened.blame(Key.read(key) or {}, html=html, force=force)
    omitted = "".join(f"\nnot shown: {row.missing}" for row in rows if row.missing)
    call.show(Listing("KeyVersionList", opened.name, KeyVersion, rows, footer=counted(len(rows), "version") + omitted))
