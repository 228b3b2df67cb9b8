"""`tables`, `db`, `describe`, `schemas`, `options`: the tables of a warehouse, and what each table is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import TableName
from paimon_cli.cli.results import COUNT, FLAG, ID, JSON, NAMES, SETTINGS, SIZE, TIME, Column, Item, Listing, counted, records
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.catalog.table_location import TableLocation

tables = group("Tables of a warehouse.")
databases = group("Databases of a warehouse.")

TABLE_COLUMNS = (
    Column("table", "Table"),
    Column("primary_keys", "Primary key", NAMES),
    Column("partition_keys", "Partition by", NAMES),
    Column("bucket", "Buckets", ID),
    Column("columns", "Columns", COUNT),
    Column("records", "Records", COUNT),
    Column("snapshot_id", "Snapshot", ID),
    Column("time", "Last commit (UTC)", TIME),
    Column("comment", None),
    Column("path", None),
    Column("problem", "Problem"),
)
DATABASE_COLUMNS = (Column("database", "Database"), Column("tables", "Tables", COUNT), Column("path", "Path"))
DESCRIPTION = (
    Column("path", "Path"),
    Column("branch", "Branch"),
    Column("comment", "Comment"),
    Column("primary_keys", "Primary key", NAMES),
    Column("partition_keys", "Partition by", NAMES),
    Column("bucket", "Buckets", ID),
    Column("merge_engine", "Merge engine"),
    Column("options", "Options", SETTINGS),
    Column("schema_id", "Schema", ID),
    Column("snapshot_id", "Snapshot", ID),
    Column("time", "Last commit (UTC)", TIME),
    Column("snapshots", "Snapshots", COUNT),
    Column("earliest_snapshot_id", "Earliest", ID),
    Column("tags", "Tags", NAMES),
    Column("branches", "Branches", NAMES),
    Column("partitions", "Partitions", COUNT),
    Column("buckets", "Buckets with files", COUNT),
    Column("files", "Data files", COUNT),
    Column("records", "Records", COUNT),
    Column("size", "Size", SIZE),
    Column("sorted_runs", "Most sorted runs", COUNT),
    Column("columns", "Columns", records("name", "type", "key", "default", "comment")),
    Column("health", "To do", records("code", "severity", "finding", "command")),
)

Place = Annotated[
    str | None,
    typer.Argument(
        metavar="[DB|DIRECTORY]",
        help="A database of the warehouse, or a directory.",
        show_default=False,
    ),
]
Database = Annotated[str | None, typer.Option("--database", metavar="DB", help="Only the tables of this database.")]


def register(app: typer.Typer, panel: str) -> None:
    command(app, "describe", rich_help_panel=panel)(describe)
    command(app, "ls", rich_help_panel=panel)(list_here)


@command(tables, "ls")
def list_tables(call: Call, place: Place = None, database: Database = None) -> None:
    """List the tables of the warehouse, of one database, or below a directory.

    paimon-cli tables ls --warehouse s3://lake/warehouse
    """
    if place is not None and database is not None:
        raise UsageError(f"'{place}' and --database {database} both name a place to look", hint="leave one of the two out")
    from paimon_cli.catalog.table_listing import table_rows

    rows = table_rows(_tables(call, database or place))
    found = [column for column in TABLE_COLUMNS if column.name != "problem" or any(row.problem for row in rows)]
    columns = TABLE_COLUMNS if call.output.value != "table" else found
    call.show(Listing("TableList", None, columns, rows, footer=counted(len(rows), "table")))


def list_here(call: Call, place: Place = None, database: Database = None) -> None:
    """List tables, as `tables ls` does.

    paimon-cli ls ./wh
    """
    list_tables(call, place, database)


@command(databases, "ls")
def list_databases(call: Call) -> None:
    """List the databases of the warehouse."""
    from paimon_cli.catalog.table_listing import database_rows
    from paimon_cli.catalog.table_location import find_warehouse

    rows = database_rows(find_warehouse(call.warehouse, options=call.catalog_options))
    call.show(Listing("DatabaseList", None, DATABASE_COLUMNS, rows, footer=counted(len(rows), "database")))


def describe(call: Call, table: TableName) -> None:
    """Show a table on one screen: columns, keys, options, contents, versions and pending maintenance.

    paimon-cli describe ./wh/shop.db/orders
    """
    opened = call.open(table)
    call.show(Item("TableDescription", opened.name, DESCRIPTION, opened.describe()))


def _tables(call: Call, place: str | None) -> list[TableLocation]:
    from paimon_cli.catalog.table_listing import tables_below, tables_of_database, tables_of_warehouse
    from paimon_cli.catalog.table_location import find_warehouse

    if place is None:
        return tables_of_warehouse(find_warehouse(call.warehouse, options=call.catalog_options))
    if place.isidentifier() and find_warehouse(call.warehouse, options=call.catalog_options).url is not None:
        return tables_of_database(place, call.warehouse, call.catalog_options)
    return tables_below(place, call.catalog_options)


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
    opened = call.open(table)
    rows = opened.schemas()
    call.show(Listing("SchemaList", opened.name, SCHEMA_COLUMNS, rows, footer=counted(len(rows), "schema")))


@command(schemas, "show")
def show_schema(
    call: Call,
    table: TableName,
    schema: Annotated[str, typer.Argument(metavar="ID|latest", help="Id of a schema, or latest.")] = "latest",
) -> None:
    """Show the columns, keys and options of one schema."""
    opened = call.open(table)
    call.show(Item("Schema", opened.name, SCHEMA_DETAILS, opened.schema(schema)))


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
    if table is None:
        if not every:
            raise UsageError("neither a table nor --all", "there is nothing to list", "paimon-cli options ls --all")
        from paimon_cli.inspect.schema_report import option_rows

        rows = option_rows({}, every=True)
        call.show(Listing("OptionList", None, OPTION_COLUMNS, rows, footer=counted(len(rows), "option")))
        return
    opened = call.open(table)
    rows = opened.option_rows(every=every)
    call.show(Listing("OptionList", opened.name, OPTION_COLUMNS, rows, footer=f"{sum(row.is_set for row in rows)} options set"))
