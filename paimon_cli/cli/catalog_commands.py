"""`tables`, `db`, `describe`, `schemas`, `options`: the tables of a warehouse, and what each table is."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.columns import Item, Listing, columns_of
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.parameters import TableName
from paimon_cli.cli.results import counted
from paimon_cli.errors import FINDINGS_EXIT_CODE, UsageError

commands = top_level()
tables = group("Tables of a warehouse.")
databases = group("Databases of a warehouse.")


Place = Annotated[
    str | None,
    typer.Argument(
        metavar="[DB|DIRECTORY]",
        help="A database of the warehouse, or a directory.",
        show_default=False,
    ),
]
Database = Annotated[str | None, typer.Option("--database", metavar="DB", help="Only the tables of this database.")]


@command(tables, "ls")
def list_tables(call: Call, place: Place = None, database: Database = None) -> None:
    """List the tables of the warehouse, of one database, or below a directory.

    paimon-cli tables ls --warehouse s3://lake/warehouse
    """
    from paimon_cli.catalog.table_listing import TableRow

    rows = call.catalog().tables(place, database=database)
    columns = columns_of(TableRow)
    if call.is_for_people and not any(row.problem for row in rows):
        columns = columns[:-1]
    call.show(Listing("TableList", None, columns, rows, footer=counted(len(rows), "table")))


@command(commands, "ls")
def list_here(call: Call, place: Place = None, database: Database = None) -> None:
    """List tables, as `tables ls` does.

    paimon-cli ls ./wh
    """
    list_tables(call, place, database)


@command(databases, "ls")
def list_databases(call: Call) -> None:
    """List the databases of the warehouse."""
    from paimon_cli.catalog.table_listing import DatabaseRow

    rows = call.catalog().databases()
    call.show(Listing("DatabaseList", None, DatabaseRow, rows, footer=counted(len(rows), "database")))


@command(commands, "describe")
def describe(call: Call, table: TableName) -> None:
    """Show a table on one screen: columns, keys, options, contents, versions and pending maintenance.

    paimon-cli describe ./wh/shop.db/orders
    """
    opened = call.open(table)
    call.show(Item("TableDescription", opened.name, opened.describe()))


schemas = group("Schemas of a table: one for each change.")
options = group("Options of a table.")


@command(schemas, "ls")
def list_schemas(call: Call, table: TableName) -> None:
    """List schemas, the newest first."""
    from paimon_cli.inspect.schema_report import SchemaRow

    opened = call.open(table)
    rows = opened.schemas()
    call.show(Listing("SchemaList", opened.name, SchemaRow, rows, footer=counted(len(rows), "schema")))


@command(schemas, "show")
def show_schema(
    call: Call,
    table: TableName,
    schema: Annotated[str, typer.Argument(metavar="ID|latest", help="Id of a schema, or latest.")] = "latest",
) -> None:
    """Show the columns, keys and options of one schema."""
    opened = call.open(table)
    call.show(Item("Schema", opened.name, opened.schema(schema)))


@command(schemas, "diff")
def diff_schemas(
    call: Call,
    table: TableName,
    before: Annotated[
        str | None,
        typer.Argument(metavar="[FROM]", help="Id of a schema; default the one before TO.", show_default=False),
    ] = None,
    after: Annotated[str, typer.Argument(metavar="[TO]", help="Id of a schema, or latest.")] = "latest",
) -> None:
    """Show how two schemas differ: columns, keys, options. Exits with 4 on differences.

    Columns are compared by their ids, so that a renamed one is no new column.

    paimon-cli schemas diff ./wh/shop.db/orders

    paimon-cli schemas diff ./wh/shop.db/orders 0 latest
    """
    from paimon_cli.inspect.schema_report import SchemaChange

    opened = call.open(table)
    changes = opened.schema_changes(before, after)
    call.show(Listing("SchemaChangeList", opened.name, SchemaChange, changes, footer=counted(len(changes), "difference")))
    if changes:
        raise typer.Exit(FINDINGS_EXIT_CODE)


@command(options, "ls")
def list_options(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="The table; without it, --all lists what a table can set.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show Paimon's options that are not set, with their defaults.")
    ] = False,
) -> None:
    """List the options of the latest schema."""
    from paimon_cli.api.inspection import all_options
    from paimon_cli.inspect.schema_report import OptionRow

    if table is None:
        if not every:
            raise UsageError("neither a table nor --all", "there is nothing to list", "paimon-cli options ls --all")
        rows = all_options()
        call.show(Listing("OptionList", None, OptionRow, rows, footer=counted(len(rows), "option")))
        return
    opened = call.open(table)
    rows = opened.option_rows(every=every)
    call.show(Listing("OptionList", opened.name, OptionRow, rows, footer=f"{sum(row.is_set for row in rows)} options set"))


@command(options, "explain")
def explain_option(
    call: Call,
    key: Annotated[str, typer.Argument(metavar="KEY", help="An option of Paimon, such as bucket.", show_default=False)],
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Also show the value in this table.", show_default=False)
    ] = None,
) -> None:
    """Explain an option: its meaning and default, since when Paimon has it, what paimon-cli makes of it, its value in a table.

    paimon-cli options explain num-sorted-run.compaction-trigger

    paimon-cli options explain fields.amount.aggregate-function ./wh/shop.db/orders
    """
    from paimon_cli.api.inspection import explain_option
    from paimon_cli.inspect.schema_report import OptionExplanation

    opened = None if table is None else call.open(table)
    explained = explain_option(key) if opened is None else opened.explain_option(key)
    columns = columns_of(OptionExplanation)
    if call.is_for_people:
        columns = [column for column in columns if getattr(explained, column.name) not in ((), None)]
    call.show(Item("OptionExplanation", None if opened is None else opened.name, explained, columns))
