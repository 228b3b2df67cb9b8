"""`backup` and `restore`: copies of tables with their histories, and tables made of them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.command_groups import GroupWithDefault
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, Given
from paimon_cli.cli.results import counted, human_size, note, say, warn
from paimon_cli.errors import FINDINGS_EXIT_CODE, UsageError
from paimon_cli.requests.backup import BackupCommand, BackupVerifyOptions, RestoreOptions

if TYPE_CHECKING:
    from paimon_cli.api.backups import BackupCheck
    from paimon_cli.jobs.backup_job import BackupSummary
    from paimon_cli.jobs.restore_job import Restored

SHOWN_FINDINGS = 20
"""The most findings of one copy in text; -o json shows all."""

backup = group("Copies of tables with their histories: `backup TABLE DEST` makes and continues one.", GroupWithDefault)
commands = top_level()

Copy = Annotated[
    str, typer.Argument(metavar="DEST", help="Path or URL of a backup, or of those of a database.", show_default=False)
]


@command(backup, "run", runs_jobs=True)
def run(
    call: Call,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE DEST",
            help="A table, and the directory or URL of its copy. With --database only DEST, for DEST/DB.db/TABLE.",
            show_default=False,
        ),
    ],
    *,
    options: Annotated[Given, BackupCommand],
) -> None:
    """Copy a table with its history: snapshots, tags, branches, changelogs, schemas. `backup TABLE DEST` is short for it.

    The copy is itself a table, at every moment, which any reader of Paimon opens. A further run copies only what is new, and
    continues one that was killed. Writers, compactions and expiries may go on: until they are copied, snapshots do not expire.

    paimon-cli backup ./wh/shop.db/orders ./backup/orders --keep 30d

    paimon-cli backup --database shop ./backup --warehouse ./wh --bandwidth '50 mb'
    """
    if (database := options.pop("database", None)) is not None:
        if len(places) != 1:
            raise UsageError("--database takes one DEST", "the tables are those of the database", "leave out TABLE")
        done = call.catalog().backup(places[0], database=database, on_done=lambda one: _say_run(call, one), **options)
        if not call.is_for_people:
            from paimon_cli.jobs.backup_job import BackupSummary

            call.show(Listing("BackupSummaryList", None, BackupSummary, done))
        return
    if len(places) != 2:
        raise UsageError("backup takes a TABLE and a DEST", f"{len(places)} given", "paimon-cli backup run --help")
    summary = call.open(places[0]).backup(places[1], **options)
    if call.is_for_people:
        _say_run(call, summary)
    else:
        call.show(Item("BackupSummary", summary.table, summary))
        _warn(summary)


def _say_run(call: Call, done: BackupSummary) -> None:
    if not call.is_for_people:
        return
    ends = "no snapshot" if done.last_snapshot is None else f"snapshots {done.first_snapshot} to {done.last_snapshot}"
    copied = f"{counted(done.files, 'file')} of {human_size(done.size)} copied" if done.files else "nothing was new"
    expired = f", {counted(done.expired, 'old snapshot')} removed from it" if done.expired else ""
    say(f"{done.destination} has {ends} of {done.table}: {copied}{expired} (run {done.run}, {done.engine})")
    _warn(done)


def _warn(done: BackupSummary) -> None:
    if done.gaps:
        warn(f"the table had expired snapshots before they were copied: {', '.join(done.gaps)} are not in {done.destination}")
    for cause in done.causes:
        warn(cause)


@command(backup, "ls")
def list_runs(call: Call, destination: Copy) -> None:
    """List the runs of a backup: what was copied when.

    paimon-cli backup ls ./backup/orders

    paimon-cli backup ls ./backup -o json
    """
    from paimon_cli.api.backups import BackupRow

    rows = call.catalog().backups(destination)
    call.show(Listing("BackupList", None, BackupRow, rows, footer=counted(len(rows), "run")))


@dataclass(frozen=True)
class CopyFinding:
    """A finding of `verify` in a copy."""

    copy: str
    code: str
    severity: str
    path: str
    message: str


@command(backup, "verify", runs_jobs=True)
def verify(
    call: Call,
    destination: Copy,
    *,
    options: Annotated[Given, BackupVerifyOptions],
) -> None:
    """Check that a backup is whole: all files of all snapshots, tags and branches. Exits with 4 on findings.

    paimon-cli backup verify ./backup/orders

    paimon-cli backup verify ./backup --level full
    """
    found = call.catalog().verify_backup(destination, **options)
    if call.is_for_people:
        for one in found:
            _say_check(one)
    else:
        rows = [CopyFinding(one.copy, v.code, v.severity, v.path, v.message) for one in found for v in one.violations]
        checked = [SimpleNamespace(**{name: getattr(one, name) for name in _OF_CHECK}) for one in found]
        summary = {"copies": [vars(one) for one in checked]}
        call.show(Listing("BackupFindingList", None, CopyFinding, rows, summary=summary))
    if any(one.errors for one in found):
        raise typer.Exit(FINDINGS_EXIT_CODE)


_OF_CHECK = ("copy", "snapshots", "branches", "is_unfinished", "errors")


def _say_check(one: BackupCheck) -> None:
    count = len(one.violations)
    verdict = "is whole" if not one.errors else f"has {counted(count, 'finding')}"
    more = f", on main and {one.branches} other branch{'' if one.branches == 1 else 'es'}" if one.branches else ""
    say(f"{one.copy} {verdict}: {counted(one.snapshots, 'snapshot')} checked{more}")
    for violation in one.violations[:SHOWN_FINDINGS]:
        say(f"  {violation.code} {violation.path}: {violation.message}")
    if count > SHOWN_FINDINGS:
        say(f"  and {count - SHOWN_FINDINGS:,} more")
    if one.is_unfinished:
        note(f"note: the last run into {one.copy} has not ended, or was killed; the next one continues it")


@command(commands, "restore", runs_jobs=True)
def restore(
    call: Call,
    source: Copy,
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="Path, URL or db.table of the table to restore into.", show_default=False)
    ],
    *,
    options: Annotated[Given, RestoreOptions],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Make a table of a backup: at its latest snapshot, at the one that is named, or with its whole history.

    If NEW exists, the rows of the backup become a new snapshot of it, on top of its own history; no file is replaced.

    paimon-cli restore ./backup/orders ./wh/shop.db/orders_restored --history

    paimon-cli restore ./backup/orders ./wh/shop.db/orders --tag year-end
    """
    done = call.catalog(allow_unsafe_commit).restore(source, new, **options)
    call.show(Item("RestoreSummary", done.table, done), _restored_text(done))


def _restored_text(done: Restored) -> str:
    copied = f"{counted(done.files, 'file')} of {human_size(done.size)} copied"
    copied += ", the rest of a restore that was killed" if done.is_continued else ""
    if done.restored is None:
        return f"{done.table} is {done.source} without rows: {copied}"
    if not done.is_new:
        return f"snapshot {done.snapshot} of {done.table} has the rows of snapshot {done.restored} of {done.source}: {copied}"
    history = f" with {counted(done.snapshots, 'snapshot')}" if done.snapshots > 1 else ""
    return f"{done.table} has the rows of snapshot {done.restored} of {done.source}{history}: {copied}"
