"""`undrop` and `trash`: brings dropped tables back, or deletes them for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import DryRun, Given, Yes
from paimon_cli.cli.results import confirm, counted, human_size, warn
from paimon_cli.errors import PartialSuccess
from paimon_cli.requests.dropping import EmptyOptions, UndropOptions

if TYPE_CHECKING:
    from paimon_cli.api.trash import EmptiedTrash, TrashRow

commands = top_level()
trash = group("Dropped tables of a warehouse, which `undrop` brings back.")


@command(commands, "undrop")
def undrop(call: Call, *, options: Annotated[Given, UndropOptions]) -> None:
    """Bring back a dropped table, with its files, snapshots, tags and branches. Of several drops of a name, the last one counts.

    paimon-cli undrop ./wh/shop.db/orders

    paimon-cli undrop shop.orders --as shop.orders_of_monday --warehouse ./wh
    """
    done = call.catalog().undrop(**options)
    content = f"{counted(done.snapshots, 'snapshot')}, {counted(done.files, 'file')} of {human_size(done.size)}"
    call.show(Item("UndropSummary", done.table, done), f"{done.table} is back: {content}")


@command(trash, "ls")
def list_trash(call: Call) -> None:
    """List the dropped tables of the warehouse, the last one first. Exits with 9 if an entry cannot be read.

    paimon-cli trash ls --warehouse ./wh

    paimon-cli trash ls --warehouse ./wh -o json
    """
    rows = call.catalog().trash.ls()
    damaged = [row for row in rows if row.state == "damaged"]
    tables = counted(len(rows) - len(damaged), "dropped table")
    footer = f"{tables}, {human_size(sum(row.size or 0 for row in rows))}"
    call.show(Listing("TrashList", None, _columns(call), rows, footer=footer))
    _end_on_damage(call, damaged)


def _columns(call: Call) -> list[Column]:
    """The columns of dropped tables; in text, problems follow as warnings."""
    from paimon_cli.api.trash import TrashRow

    return [column for column in columns_of(TrashRow) if not call.is_for_people or column.name != "problem"]


def _end_on_damage(call: Call, damaged: Sequence[TrashRow]) -> None:
    """Exit with 9 if entries cannot be read; in text, say why."""
    if not damaged:
        return
    if call.is_for_people:
        for row in damaged:
            warn(row.problem)
    raise typer.Exit(PartialSuccess.exit_code)


@command(trash, "empty")
def empty(call: Call, *, options: Annotated[Given, EmptyOptions], dry_run: DryRun = False, yes: Yes = False) -> bool:
    """Delete the dropped tables of the warehouse for good.

    Exits with 9 if some could not be deleted, or if an entry cannot be read: such entries stay.

    paimon-cli trash empty --warehouse ./wh --dry-run

    paimon-cli trash empty --expired --warehouse ./wh --yes
    """
    from paimon_cli.api.trash import PartlyEmptied

    found = call.catalog().trash
    planned = found.plan_empty(**options)
    rows = planned.plan
    what = f"{counted(len(rows), 'dropped table')} of {human_size(sum(row.size or 0 for row in rows))}"
    if dry_run:
        damaged = [row for row in found.ls() if row.state == "damaged"]
        footer = f"{what} would be deleted; nothing was changed (dry run)"
        call.show(Listing("TrashEmptyPlan", None, _columns(call), [*rows, *damaged], footer=footer))
        _end_on_damage(call, damaged)
        return bool(rows)
    if rows:
        confirm(f"{what} will be deleted for good", yes)
    try:
        _show_emptied(call, planned.run())
    except PartlyEmptied as error:
        _show_emptied(call, error.emptied)
        raise
    return bool(rows)


def _show_emptied(call: Call, done: EmptiedTrash) -> None:
    text = f"{counted(done.tables, 'dropped table')}: {counted(done.files, 'file')} of {human_size(done.size)} deleted"
    call.show(Item("TrashEmptySummary", None, done), text if done.tables else "the trash holds nothing to delete")
