"""`sql`: statements from the command line, a file or standard input, and a shell on a terminal."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.parameters import AllowUnsafeCommit, Given
from paimon_cli.cli.results import confirm
from paimon_cli.errors import UsageError
from paimon_cli.requests.reading import SqlOptions

STDIN = "-"

commands = top_level()


@command(commands, "sql", runs_jobs=True)
def sql(
    call: Call,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="Statements; - for those of stdin.", show_default=False)
    ] = None,
    file: Annotated[
        str | None, typer.Option("-f", "--file", metavar="FILE", help="Run the statements of this file.", show_default=False)
    ] = None,
    *,
    options: Annotated[Given, SqlOptions],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before DROP and TRUNCATE; required without a terminal.")
    ] = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Run SQL: queries, INSERT, UPDATE, DELETE, MERGE INTO, CREATE TABLE. Without QUERY, a shell.

    Queries are DuckDB's: joins, aggregates, window functions. DuckDB passes down columns and conditions, so that files are
    skipped as with `read`; it opens no other file without --allow-files. Each other statement is one commit, with the checks of
    the command that does the same. A script ends at the first error, which says what was committed before.

    Tables are db.table of the warehouse, or paths in double quotes; AT (VERSION => 3) reads a snapshot, AT (VERSION =>
    'nightly') a tag, AT (TIMESTAMP => '2026-11-01') a time. Needs `pip install 'paimon-cli[sql]'`.

    paimon-cli sql "SELECT status, sum(amount) FROM shop.orders GROUP BY ALL" --warehouse ./wh

    paimon-cli sql 'SELECT count(*) FROM "./wh/shop.db/orders" AS o AT (VERSION => 3) WHERE o.amount > 100'

    paimon-cli sql "UPDATE shop.orders SET status = :new WHERE id = 1" --param new=paid --warehouse ./wh
    """
    from paimon_cli.api.sql_session import SqlSession

    if query is not None and file is not None:
        raise UsageError("QUERY cannot be combined with --file", "statements come from one place", "leave one of them out")
    asked = partial(confirm, yes=yes, has_dry_run=False)
    session = SqlSession(call.catalog(allow_unsafe_commit), confirm=asked, **options)
    if query is None and file is None and sys.stdin.isatty():
        from paimon_cli.cli.sql_shell import Shell

        Shell(call, session).run()
        return
    text = query if query not in (None, STDIN) else _text(file)
    assert text is not None
    from paimon_cli.cli.sql_output import run_script

    run_script(call, session, text)


def _text(file: str | None) -> str:
    if file is None or file == STDIN:
        try:
            return sys.stdin.read().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise UsageError("cannot read the statements of stdin", "they are not UTF-8", "iconv converts them") from error
    from paimon_cli.cli.sql_output import text_of_file

    return text_of_file(file)
