"""`undrop` and `trash`: brings dropped tables back, or deletes them for good."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import DryRun, Given, Yes
from paimon_cli.cli.results import confirm, counted, human_size, warn
from paimon_cli.errors import PartialSuccess
from paimon_cli.requests.dropping import EmptyOptions, UndropOptions

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
    from paimon_cli.api.trash import TrashRow

    rows = call.catalog().trash.ls()
    damaged = [row for row in rows if row.state == "damaged"]
    columns = columns_of(TrashRow)
    if call.is_for_people:
        columns = [column for column in columns if column.name != "problem"]
    tables = counted(len(rows) - len(damaged), "dropped table")
    footer = f"{tables}, {human_size(sum(row.size or 0 for row in rows))}"
    call.show(Listing("TrashList", None, columns, rows, footer=footer))
    if damaged:
        if call.is_for_people:
            for row in damaged:
                warn(row.problem)
        raise typer.Exit(PartialSuccess.exit_code)


@command(trash, "empty")
def empty(call: Call, *, options: Annotated[Given, EmptyOptions], dry_run: DryRun = False, yes: Yes = False) -> bool:
    """Delete the dropped tables of the warehouse for good.

    paimon-cli trash empty --warehouse ./wh --dry-run

    paimon-cli trash empty --expired --warehouse ./wh --yes
    """
    from paimon_cli.api.trash import TrashRow

    planned = call.catalog().trash.plan_empty(**options)
    rows = planned.plan
    what = f"{counted(len(rows), 'dropped table')} of {human_size(sum(row.size or 0 for row in rows))}"
    if dry_run:
        call.show(
            Listing("TrashEmptyPlan", None, TrashRow, rows, footer=f"{what} would be deleted; nothing was changed (dry run)")
        )
        return bool(rows)
    if rows:
        confirm(f"{what} will be deleted for good", yes)
    done = planned.run()
    text = f"{counted(done.tables, 'dropped table')}: {counted(done.files, 'file')} of {human_size(done.size)} deleted"
    call.show(Item("TrashEmptySummary", None, done), text if rows else "the trash holds nothing to delete")
    return bool(rows)
