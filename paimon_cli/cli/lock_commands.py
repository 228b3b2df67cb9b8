"""`locks`: how commits are kept apart, who holds the commit lock, and how to break the lock of a dead holder."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.messages import confirm
from paimon_cli.cli.parameters import TableName, Yes
from paimon_cli.cli.results import Column, Item, Listing
from paimon_cli.cli.value_kinds import FLAG, Kind

locks = group("The commit lock: how commits are kept apart, and who holds it.")

SECONDS = Kind(lambda seconds: round(seconds, 3), lambda seconds: f"{seconds:,.0f} s", right_aligned=True)
COLUMNS = (
    Column("table", "Table"),
    Column("mechanism", "Mechanism"),
    Column("lock_id", "Lock"),
    Column("is_held", "Held", FLAG),
    Column("holder", "Holder"),
    Column("age_seconds", "Age", SECONDS),
    Column("expires_in_seconds", "Expires in", SECONDS),
    Column("is_expired", "Expired", FLAG),
)


@command(locks, "ls")
def list_locks(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Only this table; default every lock held.", show_default=False)
    ] = None,
) -> None:
    """Show how the commits of a table or warehouse are kept apart, and which commit locks are held.

    The mechanism is put-if-absent, lock or unsafe. Where only a test can tell, as on S3, two writers race for a probe file in
    the table's directory, which is then removed.

    paimon-cli locks ls ./wh/shop.db/orders
    """
    from paimon_cli.table.lock_report import LOCK, MEANING, table_lock, warehouse_locks

    if table is None:
        from paimon_cli.table.table_location import find_warehouse

        report = warehouse_locks(find_warehouse(call.warehouse, options=call.catalog_options))
    else:
        location = call.locate(table)
        opened = call.open_at(location).context
        report = table_lock(location, opened.storage, opened.layout.root)
    held = sum(row.is_held for row in report.rows)
    footer = "" if report.mechanism != LOCK or held else "nobody holds a lock"
    if report.has_lock_table is False:
        footer = "nobody holds a lock: the database has no table paimon_distributed_locks yet, the first commit creates it"
    heading = f"{report.mechanism}: {MEANING[report.mechanism]}"
    call.show(Listing("LockList", table, COLUMNS, report.rows, heading, footer))


@command(locks, "break")
def break_lock(
    call: Call,
    table: TableName,
    even_if_valid: Annotated[
        bool,
        typer.Option("--even-if-valid", help="Also break a lock that has not expired; only if its holder is certainly dead."),
    ] = False,
    yes: Yes = False,
) -> None:
    """Break the commit lock of a table whose holder died. Writers take over expired locks on their own.

    A live holder that loses its lock notices before it publishes and gives up its commit (exit 6), unless it is publishing at
    that very moment: on a store without put-if-absent its snapshot may then overwrite another one.

    paimon-cli locks break ./wh/shop.db/orders
    """
    from paimon_cli.table.lock_report import break_held_lock, breakable_lock

    location = call.locate(table)
    root = call.open_at(location).context.layout.root
    settings, lock = breakable_lock(location, root, even_if_valid=even_if_valid)
    what = f"lock {lock.lock_id}, which {lock.owner or 'an unknown owner'} took {lock.age_seconds:.0f} s ago, will be broken"
    confirm(what, yes, "add --yes to go ahead without confirmation")
    call.show(Item("Lock", table, COLUMNS, break_held_lock(location, settings, lock)))
