"""`orphans`: files that crashed jobs left behind and no version refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.messages import confirm, say, warn
from paimon_cli.cli.parameters import DryRun, TableName, Yes
from paimon_cli.cli.results import Column, Item, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, SIZE, TIME, counted, human_size
from paimon_cli.errors import Refused, StorageUnavailable

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.orphans_job import OrphanRow
    from paimon_cli.maintain.orphans import Orphans
    from paimon_cli.table.table import Table

orphans = group("Files that no snapshot, tag, branch or changelog refers to.")

ORPHAN_COLUMNS = (
    Column("path", "Path"),
    Column("kind", "Kind"),
    Column("size", "Size", SIZE),
    Column("modified", "Modified (UTC)", TIME),
    Column("origin", "Looks like"),
)
SUMMARY_COLUMNS = (Column("files", "Files", COUNT), Column("size", "Size", SIZE), Column("quarantine", "Kept in"))

OlderThan = Annotated[
    str, typer.Option("--older-than", metavar="AGE|TIME", help="Only files last modified before this: 1d, 12 h, 2024-01-31.")
]
Force = Annotated[bool, typer.Option("--force", help="Also files younger than a day; only safe while no job writes.")]
Explain = Annotated[bool, typer.Option("--explain", help="Explain what each file probably is.")]


class _Removed:
    """The result of a clean-up."""

    def __init__(self, files: int, size: int, quarantine: str | None) -> None:
        self.files, self.size, self.quarantine = files, size, quarantine


@command(orphans, "ls")
def list_orphans(
    call: Call, table: TableName, older_than: OlderThan = "1d", force: Force = False, explain: Explain = False
) -> None:
    """List orphans; --explain shows what each one probably is, such as a lost commit.

    File ages follow the storage's clock, which an empty probe file in the table's directory shows; it is removed again.

    paimon-cli orphans ls ./wh/shop.db/orders --explain
    """
    opened = call.open(table)
    found = _search(_by_the_storages_clock(opened.context, must_tell=False), older_than, force)
    _show(call, opened, found, explain, "")


@command(orphans, "rm", runs_jobs=True)
def remove(
    call: Call,
    table: TableName,
    older_than: OlderThan = "1d",
    apply: Annotated[bool, typer.Option("--apply", help="Delete the files; by default they are only listed.")] = False,
    quarantine: Annotated[
        str | None, typer.Option("--quarantine", metavar="DIR", help="Copy the files to this directory first.")
    ] = None,
    force: Force = False,
    explain: Explain = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete orphans: old files that no version uses. This is checked again right before each deletion.

    paimon-cli orphans rm ./wh/shop.db/orders --older-than 3d --apply
    """
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.jobs.orphans_job import clean_orphans

    opened = call.open(table)
    deletes = apply and not dry_run
    found = _search(_by_the_storages_clock(opened.context, must_tell=deletes), older_than, force)
    if not deletes:
        _show(call, opened, found, explain, "; nothing was changed, --apply deletes them")
        return
    confirm(f"{_headline(found)} will be deleted", yes or not found.files)
    with call.engine_running() as engine:
        files, size = clean_orphans(opened.context, found, quarantine, engine, progress_on_stderr())
    if call.output is OutputFormat.TABLE:
        kept = f", copies in {quarantine}" if quarantine and files else ""
        say(f"{counted(files, 'orphan')} of {human_size(size)} deleted{kept}")
    else:
        call.show(Item("OrphanSummary", opened.name, SUMMARY_COLUMNS, _Removed(files, size, quarantine)))


def _by_the_storages_clock(context: TableContext, *, must_tell: bool) -> TableContext:
    """The context with a clock that is not ahead of the storage's. Where the storage does not tell the time, as one that can only
    be read, this machine's clock counts, unless files are to be deleted."""
    from paimon_cli.maintain.orphans import TOLERATED_MILLIS, not_ahead_of_the_storage

    try:
        trusted = not_ahead_of_the_storage(context)
    except (StorageUnavailable, Refused) as error:
        if must_tell:
            raise
        warn(f"ages are by the clock of this machine, since the storage's cannot be asked: {error}")
        return context
    if (ahead := context.clock.now_millis() - trusted.clock.now_millis()) >= TOLERATED_MILLIS:
        warn(f"the clock of this machine is {ahead / 1000:,.0f} s ahead of the storage's; file ages follow the storage's clock")
    return trusted


def _search(context: TableContext, older_than: str, force: bool) -> Orphans:
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.jobs.orphans_job import search_orphans
    from paimon_cli.table.moments import moment_of

    return search_orphans(context, moment_of(older_than, context.clock.now_millis()), force, progress_on_stderr())


def _headline(found: Orphans) -> str:
    return f"{counted(len(found.files), 'orphan')} of {human_size(found.size)}"


def _show(call: Call, opened: Table, found: Orphans, explain: bool, more: str) -> None:
    from paimon_cli.jobs.orphans_job import orphan_rows

    rows: list[OrphanRow] = orphan_rows(opened.context, found, explain)
    columns = ORPHAN_COLUMNS if explain else ORPHAN_COLUMNS[:-1]
    call.show(Listing("OrphanList", opened.name, columns, rows, footer=_headline(found) + (more if rows else "")))
