"""`update` and `delete`: change or delete matching rows, safely next to concurrent writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import AllowUnsafeCommit, Given, TableName
from paimon_cli.cli.results import already_done, counted, note, note_waiting, ran
from paimon_cli.requests.writing import DeleteCall, UpdateCall

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.update_job import UpdateSummary


commands = top_level()


@command(commands, "update", runs_jobs=True)
def update(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, UpdateCall],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Update the rows that match a condition, in one commit. If another commit changes the same buckets, start again.

    --data-conflict-check, or the table's commit.data-conflict-check, selects a granularity other than bucket; off is an
    error. Expressions: columns, fields (a.b), literals, NULL, + - * / %, ||, concat, upper, lower, length, coalesce, abs,
    round, floor, ceil; conditions accept the same. Division of whole numbers gives a whole number, decimals are rounded
    half up, and values that do not fit the column are errors.

    paimon-cli update ./wh/game.db/players --set "points = points + 1" -w "id = 7"

    paimon-cli update ./wh/shop.db/orders --set "status = upper(status)" -w "amount > 100"
    """
    opened = call.open(table, allow_unsafe_commit)
    done = opened.update(**options)
    _show(call, opened, Item("UpdateSummary", opened.name, done), "changed")


@command(commands, "delete", runs_jobs=True)
def delete(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, DeleteCall],
    allow_unsafe_commit: AllowUnsafeCommit = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Has no effect: a delete by a condition never asks.")] = False,
) -> None:
    """Delete the rows that match a condition, in one commit. If another commit changes the same buckets, start again.

    It does not ask for confirmation: older snapshots keep the rows until they expire.

    --data-conflict-check, or the table's commit.data-conflict-check, selects a granularity other than bucket; off is an error.

    paimon-cli delete ./wh/game.db/players -w "points < 0"

    paimon-cli delete ./wh/shop.db/orders -w "dt < '2026-11-20'"
    """
    opened = call.open(table, allow_unsafe_commit)
    done = opened.delete(**options)
    _show(call, opened, Item("DeleteSummary", opened.name, done), "deleted")


def _show(call: Call, table: Table, item: Item, done: str) -> None:
    summary: UpdateSummary = item.row
    call.show(item, changed_text(summary, done))
    note_changed(summary, done)
    note_waiting(table.context.layout.argument, summary.waiting_records)


def note_changed(summary: UpdateSummary, done: str) -> None:
    """Print notes about a change: what it did to rows that reads did not show, and what it could not compact."""
    if summary.unseen_records:
        unseen = counted(summary.unseen_records, "stored record")
        what = f"reads did not show {unseen} that still had to be compacted"
        note(f"note: {what}; matching rows among them were {done}, too")
    if summary.compaction_lost:
        note(f"note: the change is committed, but its compaction failed: {summary.compaction_lost}")


def changed_text(summary: UpdateSummary, done: str) -> str:
    if summary.already_committed:
        return already_done(summary)
    if not summary.snapshots:
        return "no row matches, nothing was committed"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    compacted = f", {counted(summary.compacted, 'bucket')} compacted" if summary.compacted else ""
    effort = f"{counted(summary.attempts, 'attempt')}, {counted(summary.conflicts, 'conflict')}"
    return (
        f"snapshot {ids}: {counted(summary.rows, 'row')} {done} in {counted(summary.buckets, 'bucket')}{compacted}, {effort}, "
        f"{ran(summary)}"
    )
