"""`erase`: remove keys or rows from all that a table stores, its history included, and prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, TableName, Yes
from paimon_cli.cli.results import confirm, counted, human_size, ran, say, warn
from paimon_cli.errors import FINDINGS_EXIT_CODE
from paimon_cli.requests.erasing import EraseCommand

if TYPE_CHECKING:
    from paimon_cli.jobs.erasure.erase_table import ErasePlan, EraseSummary

commands = top_level()


@command(commands, "erase", runs_jobs=True)
def erase(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, EraseCommand],
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Remove keys or rows from all that a table stores: files, older snapshots, tags, branches, changelogs, statistics, indexes.

    Of a table with a primary key go all versions of each key of which any stored version matches. Everything else stays
    readable at every snapshot, under the same ids. Writers may go on; jobs that read old files have to start again. At the end
    everything is read again and searched: exits with 4 if a job has written such rows meanwhile. If it was killed, repeat it.

    paimon-cli erase ./wh/shop.db/orders -w "id = 7" --dry-run

    paimon-cli erase ./wh/shop.db/orders --keys cancelled.csv --certificate erased.json --yes
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.plan_erase(**options)
    plan = planned.plan
    if dry_run:
        call.show(Item("ErasePlan", opened.name, plan), _plan_text(plan))
        return bool(plan.files or plan.unnamed or plan.unfinished)
    if call.is_for_people:
        say(_plan_text(plan))
    if plan.files or plan.unnamed or plan.unfinished or plan.expiring:
        confirm(f"{_rows(plan)} of {opened.name} will be gone from all of its history, for good", yes)
    done = planned.run()
    call.show(Item("EraseSummary", opened.name, done), _done_text(done))
    if done.found:
        files = ", ".join(done.found[:5])
        warn(f"{counted(len(done.found), 'file')} hold such rows again, or still: {files}; run it again when no job writes them")
        raise typer.Exit(FINDINGS_EXIT_CODE)
    return True


def _rows(plan: ErasePlan | EraseSummary) -> str:
    rows = counted(plan.rows, "stored row")
    return rows if plan.keys is None else f"{counted(plan.keys, 'key')} with {rows}"


def _plan_text(plan: ErasePlan) -> str:
    versions = [
        counted(count, what)
        for count, what in ((plan.snapshots, "snapshot"), (plan.tags, "tag"), (plan.changelogs, "changelog"))
        if count
    ]
    lines = [f"{_rows(plan)} in {counted(plan.files, 'data file')} of {human_size(plan.size)}, which are written again"]
    lines += [f"to replace: {', '.join(versions)}"] if versions else []
    lines += [f"to expire first: {counted(plan.expiring, 'snapshot')}"] if plan.expiring else []
    lines += [f"to delete: {counted(plan.unnamed, 'file')} that no version names"] if plan.unnamed else []
    lines += [f"to finish: {counted(plan.unfinished, 'erasure')} that was killed"] if plan.unfinished else []
    lines += [f"in the trash, and erased from: {counted(plan.earlier_tables, 'earlier table')}"] if plan.earlier_tables else []
    lines += [f"readers that may have to start again: {', '.join(plan.consumers)}"] if plan.consumers else []
    return "\n".join([*lines, "not reached:", *(f"  {line}" for line in plan.outside)])


def _done_text(done: EraseSummary) -> str:
    written = f"{counted(done.files, 'data file')} of {human_size(done.size)} written again as {human_size(done.bytes_written)}"
    proof = f"{counted(done.files_searched, 'file')} with {counted(done.rows_read, 'row')} searched"
    found = "nothing found" if not done.found else f"found in {counted(len(done.found), 'file')}"
    certificate = f", certificate in {done.certificate}" if done.certificate else ""
    versions = counted(done.versions, "version")
    return f"{_rows(done)} erased: {written}, {versions} replaced; {proof}, {found}{certificate}, {ran(done)}"
