"""`undrop` and `trash`: brings dropped tables back, or deletes them for good."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import DryRun, Yes
from paimon_cli.cli.results import confirm, counted, human_size

commands = top_level()
trash = group("Dropped tables of a warehouse, which `undrop` brings back.")

Expired = Annotated[
    bool, typer.Option("--expired", help="Only tables whose time is over: a day after the drop, or as trash-retention says.")
]


@command(commands, "undrop")
def undrop(
    call: Call,
    dropped: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The path or URL that the table had, or its db.table.", show_default=False),
    ],
    new_name: Annotated[
        str | None, typer.Option("--as", metavar="NEW", help="Its new name, if another table has the old one by now.")
    ] = None,
) -> None:
    """Bring back a dropped table, with its files, snapshots, tags and branches. Of several drops of a name, the last one counts.

    paimon-cli undrop ./wh/shop.db/orders

    paimon-cli undrop shop.orders --as shop.orders_of_monday --warehouse ./wh
    """
    done = call.catalog().undrop(dropped, new_name=new_name)
    content = f"{counted(done.snapshots, 'snapshot')}, {counted(done.files, 'file')} of {human_size(done.size)}"
    call.show(Item("UndropSummary", done.table, done), f"{done.table} is back: {content}")


@command(trash, "ls")
def list_trash(call: Call) -> None:
    """List the dropped tables of the warehouse, the last one first.

    paimon-cli trash ls --warehouse ./wh

    paimon-cli trash ls --warehouse ./wh -o json
    """
    from paimon_cli.api.trash import TrashRow

    rows = call.catalog().trash.ls()
    footer = f"{counted(len(rows), 'dropped table')}, {human_size(sum(row.size for row in rows))}"
    call.show(Listing("TrashList", None, TrashRow, rows, footer=footer))


@command(trash, "empty")
def empty(call: Call, expired: Expired = False, dry_run: DryRun = False, yes: Yes = False) -> bool:
    """Delete the dropped tables of the warehouse for good.

    paimon-cli trash empty --warehouse ./wh --dry-run

    paimon-cli trash empty --expired --warehouse ./wh --yes
    """
    from paimon_cli.api.trash import TrashRow

    planned = call.catalog().trash.plan_empty(expired=expired)
    rows = planned.plan
    what = f"{counted(len(rows), 'dropped table')} of {human_size(sum(row.size for row in rows))}"
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
