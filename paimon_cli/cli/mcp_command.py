"""`mcp`: serves the tables of a warehouse to agents, over the Model Context Protocol."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.results import note
from paimon_cli.errors import UsageError, importing
from paimon_cli.options.option_text import parse_duration

commands = top_level()


@command(commands, "mcp")
def mcp(
    call: Call,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Also offer plans of writes, updates, deletes, compactions and tags, and a tool that applies a plan.",
        ),
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="The time of one call; the others go on meanwhile.")
    ] = "60 s",
) -> None:
    """Serve the tables of a warehouse to an agent, over the Model Context Protocol on standard input and output.

    An agent's program starts it; there is no listener on the network. Tools list and describe tables, read and count rows,
    run SELECTs, explain, verify, and show what jobs would do, all within limits of rows, bytes and time. Tables are named
    db.table: there is no way to paths outside of the warehouse. Nothing can be changed without --allow-changes; with it, a change
    takes two steps, and is refused if the table has changed in between. Tables are never dropped, erased, truncated, expired,
    rolled back or altered. Needs `pip install 'paimon-cli[mcp]'`.

    paimon-cli mcp --warehouse ./wh

    paimon-cli mcp --warehouse s3://lake/wh --allow-changes --timeout 2min
    """
    with importing("the package mcp is not installed", "mcp"):
        from paimon_cli.cli.agents.desk import Desk
        from paimon_cli.cli.agents.permits import Permits
        from paimon_cli.cli.agents.server import serve
    from paimon_cli.jobs.process import Terminated

    seconds = parse_duration(timeout) / 1000
    if seconds <= 0:
        raise UsageError(f"--timeout {timeout}", "a call needs some time", "such as --timeout 60s")
    if not call.catalog()._metastore.has_names:
        why = "agents name tables as db.table, and neither --warehouse nor PAIMON_WAREHOUSE nor ./paimon.yaml names one"
        raise UsageError("mcp needs a warehouse", why, "pass --warehouse URI")
    call.catalog().databases()
    if sys.stdin.isatty():
        note("serving the Model Context Protocol on standard input and output; a program for agents starts this command")
    try:
        serve(Desk(lambda runtime: call.catalog(runtime=runtime), seconds, Permits(seconds) if allow_changes else None))
    except Terminated:
        note("stopped")
