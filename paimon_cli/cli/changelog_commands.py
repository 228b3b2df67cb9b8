"""`changelog read`: the changes of a table, snapshot by snapshot, as a streaming reader sees them."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import TableName

changelog = group("Row changes, snapshot by snapshot.")


@command(changelog, "read")
def read_changelog(
    call: Call,
    table: TableName,
    begin: Annotated[int, typer.Option("--from", metavar="N", min=1, help="The first snapshot.")],
    end: Annotated[int | None, typer.Option("--to", metavar="M", min=1, help="The last snapshot; default the latest.")] = None,
    select: Annotated[
        str | None, typer.Option("-s", "--select", metavar="NAMES", help="Columns to show, such as id,name; default all.")
    ] = None,
    where: Annotated[str | None, typer.Option("-w", "--where", metavar="SQL", help="Only changes that match.")] = None,
    limit: Annotated[int | None, typer.Option("-l", "--limit", metavar="N", min=0, help="At most N changes.")] = None,
) -> None:
    """Print the row changes of a range of snapshots, with their row kinds.

    Changes come from changelog files if the table has a changelog producer, otherwise from the rows that each commit added.

    paimon-cli changelog read ./wh/shop.db/orders --from 3
    """
    from paimon_cli.cli.row_output import print_rows
    from paimon_cli.table.row_scan import Increment, ReadRequest, plan_rows

    opened = call.open(table)
    increment = Increment(str(begin - 1), "" if end is None else str(end))
    request = ReadRequest(select, where, limit, keep_kinds=True, increment=increment)
    print_rows(plan_rows(opened, request), opened.name, call.output, call.view)
