"""`expire`: delete snapshots, partitions, changelogs, tags or consumers that are past their retention."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.messages import confirm, say
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, TableName, Yes
from paimon_cli.cli.results import Column, Item, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, ID, NAMES, SIZE, Kind, counted, human_size

if TYPE_CHECKING:
    from paimon_cli.jobs.expire_job import Expired, Expiry
    from paimon_cli.maintain.snapshot_files import DoomedFile
    from paimon_cli.table.table import Table

DOOMED_COLUMNS = (Column("kind", "Kind"), Column("path", "Path"), Column("size", "Size", SIZE))
SUMMARY_COLUMNS = (
    Column("what", "What"),
    Column("removed", "Deleted", NAMES),
    Column("files", "Files", COUNT),
    Column("size", "Size", SIZE),
    Column("snapshot", "Snapshot", ID),
)
SHOWN_NAMES = 5
NUMBERS = Kind(lambda names: [int(name) for name in names], ", ".join)


class What(str, enum.Enum):
    """Choices of `--what`."""

    SNAPSHOTS = "snapshots"
    PARTITIONS = "partitions"
    CHANGELOGS = "changelogs"
    TAGS = "tags"
    CONSUMERS = "consumers"


NUMBERED = (What.SNAPSHOTS, What.CHANGELOGS)
"""Kinds whose items are named by numbers."""


def register(app: typer.Typer, panel: str) -> None:
    command(app, "expire", runs_jobs=True, rich_help_panel=panel)(expire)


def expire(
    call: Call,
    table: TableName,
    what: Annotated[What, typer.Option("--what", help="What to expire.")] = What.SNAPSHOTS,
    retain_max: Annotated[
        int | None,
        typer.Option("--retain-max", metavar="N", min=1, help="Keep at most the newest N, regardless of age."),
    ] = None,
    retain_min: Annotated[
        int | None, typer.Option("--retain-min", metavar="N", min=1, help="Keep at least the newest N, regardless of age.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE|TIME",
            help="Expire only items older than this, such as 1d, 12 h or 2024-01-31T12:00:00Z.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Expire at most N of them in this run.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Delete what is past its retention, and the files that only it needs. Tags, branches and consumers protect snapshots.

    Limits default to the table's options (snapshot.num-retained.min, snapshot.time-retained and so on).

    paimon-cli expire ./wh/shop.db/orders --retain-max 10 --dry-run
    """
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.jobs.deletion import deletion
    from paimon_cli.jobs.expire_job import ExpireRequest, plan_expire
    from paimon_cli.table.moments import moment_of

    location = call.locate(table, allow_unsafe_commit)
    opened = call.open_to_commit(location) if what is What.PARTITIONS and not dry_run else call.open_at(location)
    context, progress = opened.context, progress_on_stderr()
    before = None if older_than is None else moment_of(older_than, context.clock.now_millis())
    expiry = plan_expire(context, ExpireRequest(what.value, retain_max, retain_min, before, limit), progress)
    if dry_run:
        show_doomed(call, opened, "ExpiryPlan", expiry.files(), _goes(expiry))
        return
    if expiry.names and not yes:
        confirm(f"{_goes(expiry)}{_with_files(expiry.files())} will be deleted", yes)
    with call.engine_running() as engine:
        done = expiry.run(deletion(context, engine, progress))
    if call.output is OutputFormat.TABLE:
        say(_summary_text(done))
    else:
        columns = [replace(c, kind=NUMBERS) if c.name == "removed" and what in NUMBERED else c for c in SUMMARY_COLUMNS]
        call.show(Item("ExpirySummary", opened.name, columns, done))


def show_doomed(call: Call, table: Table, kind: str, files: Sequence[DoomedFile], headline: str) -> None:
    """Show a dry run: the path of every file relative to the table, and the total."""
    root = table.url + "/"
    rows = [replace(file, path=file.path.removeprefix(root)) for file in files]
    footer = f"{headline}{_with_files(files)}; nothing was changed (dry run)"
    call.show(Listing(kind, table.name, DOOMED_COLUMNS, rows, footer=footer))


def _goes(expiry: Expiry) -> str:
    noun = expiry.what.removesuffix("s")
    if not expiry.names:
        return f"no {noun} is due to expire"
    return f"{counted(len(expiry.names), noun)} {_some(expiry.names)}"


def _some(names: Sequence[str]) -> str:
    if len(names) <= SHOWN_NAMES:
        return f"({', '.join(names)})"
    return f"({names[0]} to {names[-1]})"


def _with_files(files: Sequence[DoomedFile]) -> str:
    if not files:
        return ""
    return f", {counted(len(files), 'file')} of {human_size(sum(file.size or 0 for file in files))}"


def _summary_text(done: Expired) -> str:
    noun = done.what.removesuffix("s")
    if not done.removed:
        return f"no {noun} is due to expire"
    size = f" of {human_size(done.size)}" if done.size else ""
    commit = "" if done.snapshot is None else f", dropped by snapshot {done.snapshot}"
    files = f", {counted(done.files, 'file')}{size} deleted with them" if done.files else ""
    return f"{counted(len(done.removed), noun)} deleted {_some(done.removed)}{files}{commit}"
