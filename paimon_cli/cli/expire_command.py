"""`expire` and `orphans`: delete what is past its retention, and files that nothing refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, TableName, Yes
from paimon_cli.cli.results import COUNT, SIZE, Kind, confirm, counted, human_size, to_second
from paimon_cli.requests.maintenance import ExpireOptions, OrphanOptions, RemoveOrphans
from paimon_cli.storage.redaction import shown_name

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.reclaim_job import Expired, Expiry
    from paimon_cli.maintain.named_files import FileToDelete
    from paimon_cli.maintain.orphans import Orphans

SHOWN_NAMES = 5
IDS = Kind(lambda names: [int(name) for name in names], ", ".join)


NUMBERED = ("snapshots", "changelogs")
"""Choices of `--what` whose items have numbers, not names."""


commands = top_level()


@command(commands, "expire", runs_jobs=True)
def expire(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, ExpireOptions],
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Expire snapshots, partitions, changelogs, tags or consumers past their retention, with the files that only they need.

    Tags, branches and consumers protect snapshots. Limits default to the table's options (snapshot.num-retained.min,
    snapshot.time-retained and so on).

    paimon-cli expire ./wh/shop.db/orders --retain-max 10 --dry-run

    paimon-cli expire ./wh/shop.db/orders --older-than 7d --retain-min 2 --yes
    """
    opened = call.open(table, allow_unsafe_commit)
    if options.get("what") == "partitions" and not dry_run:
        opened.check_commit()
    planned = opened.plan_expire(**options)
    expiry = planned.plan
    if dry_run:
        show_files_to_delete(call, opened.name, opened.url, "ExpiryPlan", planned.files(), _due(expiry))
        return bool(expiry.names)
    if expiry.names and not yes:
        confirm(f"{_due(expiry)}{_with_files(planned.files())} will be deleted", yes)
    done = planned.run()
    shape = [replace(c, kind=IDS) if c.name == "removed" and done.what in NUMBERED else c for c in columns_of(type(done))]
    call.show(Item("ExpirySummary", opened.name, done, shape), _summary_text(done) if expiry.names else _due(expiry))
    return bool(expiry.names)


def show_files_to_delete(call: Call, table: str, root: str, kind: str, files: Sequence[FileToDelete], headline: str) -> None:
    """Show a dry run: the path of every file, relative to `root`, and the total."""
    from paimon_cli.maintain.named_files import FileToDelete

    rows = [replace(file, path=file.path.removeprefix(f"{root}/")) for file in files]
    footer = f"{headline}{_with_files(files)}; nothing was changed (dry run)"
    call.show(Listing(kind, table, FileToDelete, rows, footer=footer))


def _due(expiry: Expiry) -> str:
    """What expires, and the time that the given age or tag means."""
    noun = expiry.what.removesuffix("s")
    if not expiry.names:
        holding = expiry.held_by()
        if holding is not None:
            who = f"consumer {shown_name(holding.name)} has not read snapshot {holding.next_snapshot} yet"
            return f"no {noun} is due to expire: {who}"
        return f"no {noun} is due to expire" + (
            "" if expiry.before is None else f": none is older than {to_second(expiry.before)}"
        )
    older = "" if expiry.before is None else f" older than {to_second(expiry.before)}"
    return f"{counted(len(expiry.names), noun)} {_listed(expiry.names)}{older}"


def _listed(names: Sequence[str]) -> str:
    if len(names) <= SHOWN_NAMES:
        return f"({', '.join(names)})"
    return f"({names[0]} to {names[-1]})"


def _with_files(files: Sequence[FileToDelete]) -> str:
    if not files:
        return ""
    return f", {counted(len(files), 'file')} of {human_size(sum(file.size or 0 for file in files))}"


def _summary_text(done: Expired) -> str:
    noun = done.what.removesuffix("s")
    if not done.removed:
        return f"no {noun} is due to expire"
    size = f" of {human_size(done.size)}" if done.size else ""
    commit = "" if done.snapshot is None else f", dropped by snapshot {done.snapshot}"
    files = f", {counted(done.files, 'file')}{size} in all" if done.files else ""
    sent = f"; {done.requests:,} requests, {done.delete_requests:,} of them to delete" if done.requests is not None else ""
    return f"{counted(len(done.removed), noun)} deleted {_listed(done.removed)}{files}{commit}{sent}"


ORPHAN_SUMMARY = (Column("files", "Files", COUNT), Column("size", "Size", SIZE), Column("quarantine", "Kept in"))

orphans = group("Files that no snapshot, tag, branch or changelog refers to.")


Explain = Annotated[bool, typer.Option("--explain", help="Explain what each file probably is.")]


@command(orphans, "ls")
def list_orphans(call: Call, table: TableName, *, options: Annotated[Given, OrphanOptions], explain: Explain = False) -> None:
    """List orphans; --explain shows what each one probably is, such as a lost commit.

    File ages are measured by the clock of the storage, which a probe file in the table's directory reveals; it is removed
    afterwards.

    paimon-cli orphans ls ./wh/shop.db/orders --explain

    paimon-cli orphans ls ./wh/shop.db/orders --older-than 2d -o csv
    """
    opened = call.open(table)
    found = opened.plan_orphans(**options).plan
    _show(call, opened, found, explain, "")


@command(orphans, "rm", runs_jobs=True)
def remove(
    call: Call,
    table: TableName,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Delete the files; by default they are only listed.")] = False,
    options: Annotated[Given, RemoveOrphans],
    explain: Explain = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> bool:
    """Delete orphans: old files that nothing refers to. This is checked again right before each deletion.

    paimon-cli orphans rm ./wh/shop.db/orders --older-than 3d --apply

    paimon-cli orphans rm ./wh/shop.db/orders --older-than 3d
    """
    opened = call.open(table)
    if not apply or dry_run:
        found = opened.plan_orphans(**options).plan
        _show(call, opened, found, explain, "; nothing was changed (dry run)")
        return bool(found.files)
    planned = opened.plan_orphans(**options, deletes=True)
    found, quarantine = planned.plan, options.get("quarantine")
    confirm(f"{_headline(found)}, will be deleted", yes or not found.files)
    files, size = planned.run()
    kept = f", copies in {quarantine}" if quarantine and files else ""
    removed = SimpleNamespace(files=files, size=size, quarantine=quarantine)
    text = f"{counted(files, 'orphan')} of {human_size(size)} deleted{kept}"
    call.show(Item("OrphanSummary", opened.name, removed, ORPHAN_SUMMARY), text)
    return bool(found.files)


def _headline(found: Orphans) -> str:
    return (
        f"{counted(len(found.files), 'orphan')} of {human_size(found.size)}, last modified before {to_second(found.older_than)}"
    )


def _show(call: Call, opened: Table, found: Orphans, explain: bool, more: str) -> None:
    from paimon_cli.jobs.reclaim_job import OrphanRow

    rows = opened.orphan_rows(found, explain=explain)
    columns = columns_of(OrphanRow)[: None if explain else -1]
    call.show(Listing("OrphanList", opened.name, columns, rows, footer=_headline(found) + (more if rows else "")))
