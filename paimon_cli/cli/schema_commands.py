"""`schemas` and `options`: the columns of a table over time, and its settings."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import TableName
from paimon_cli.cli.results import Column, Item, Listing
from paimon_cli.cli.value_kinds import COUNT, FLAG, ID, JSON, NAMES, TIME, counted, records
from paimon_cli.errors import UsageError

schemas = group("Schemas of a table: one for each change.")
options = group("Options of a table.")

SCHEMA_COLUMNS = (
    Column("id", "ID", ID),
    Column("time", "Time (UTC)", TIME),
    Column("columns", "Columns", COUNT),
    Column("highest_field_id", "Highest field ID", ID),
    Column("primary_keys", "Primary key", NAMES),
    Column("partition_keys", "Partition by", NAMES),
    Column("comment", "Comment"),
)
SCHEMA_DETAILS = (
    Column("id", "ID", ID),
    Column("time", "Time (UTC)", TIME),
    Column("primary_keys", "Primary key", NAMES),
    Column("partition_keys", "Partition by", NAMES),
    Column("options", "Options", JSON),
    Column("comment", "Comment"),
    Column("highest_field_id", "Highest field ID", ID),
    Column("fields", "Columns", records("id", "name", "type", "description", "default_value")),
)
OPTION_COLUMNS = (
    Column("key", "Option"),
    Column("value", "Value"),
    Column("default", "Default"),
    Column("is_set", "Set", FLAG),
    Column("immutable", "Fixed", FLAG),
    Column("status", "Status"),
    Column("description", "Meaning"),
    Column("reason"),
)


@command(schemas, "ls")
def list_schemas(call: Call, table: TableName) -> None:
    """List schemas, the newest first."""
    from paimon_cli.table.schema_report import schema_rows

    opened = call.open(table)
    rows = schema_rows(opened)
    call.show(Listing("SchemaList", opened.name, SCHEMA_COLUMNS, rows, footer=counted(len(rows), "schema")))


@command(schemas, "show")
def show_schema(
    call: Call,
    table: TableName,
    schema: Annotated[str, typer.Argument(metavar="ID|latest", help="Id of a schema, or latest.")] = "latest",
) -> None:
    """Show the columns, keys and options of one schema."""
    from paimon_cli.table.schema_report import schema_details

    opened = call.open(table)
    call.show(Item("Schema", opened.name, SCHEMA_DETAILS, schema_details(opened.named_schema(schema))))


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
    from paimon_cli.table.schema_report import option_rows

    if table is None:
        if not every:
            raise UsageError("neither a table nor --all", "there is nothing to list", "paimon-cli options ls --all")
        rows = option_rows({}, every=True)
        call.show(Listing("OptionList", None, OPTION_COLUMNS, rows, footer=counted(len(rows), "option")))
        return
    opened = call.open(table)
    rows = option_rows(opened.schemas.latest().options, every=every)
    call.show(Listing("OptionList", opened.name, OPTION_COLUMNS, rows, footer=f"{sum(row.is_set for row in rows)} options set"))
