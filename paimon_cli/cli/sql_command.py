"""`sql`: queries over tables."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level

commands = top_level()


@command(commands, "sql")
def sql(
    call: Call,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT over tables.", show_default=False)],
) -> None:
    """Query tables with DuckDB's SQL: joins, aggregates, window functions. Only reads.

    Tables are db.table of the warehouse, or paths in double quotes; AT (VERSION => 3) reads a snapshot, AT (VERSION =>
    'nightly') a tag, AT (TIMESTAMP => '2026-11-01') a time. DuckDB asks for the columns and conditions that it needs, so that
    files are skipped as by `read`. Needs `pip install 'paimon-cli[sql]'`.

    paimon-cli sql "SELECT status, sum(amount) FROM shop.orders GROUP BY ALL" --warehouse ./wh

    paimon-cli sql 'SELECT count(*) FROM "./wh/shop.db/orders" AS o AT (VERSION => 3) WHERE o.amount > 100'
    """
    from paimon_cli.cli.row_output import print_rows

    print_rows(call.catalog().sql(query), None, call)
