"""`tables`, `db`, `config`, `describe`, `schemas`, `options`: the tables of a catalog and their definitions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, TableName, Yes
from paimon_cli.cli.results import confirm, counted, human_size, note, note_gone, say
from paimon_cli.errors import FINDINGS_EXIT_CODE, PartialSuccess, UsageError
from paimon_cli.requests.dropping import DropOptions

commands = top_level()
tables = group("Tables of a warehouse.")
databases = group("Databases of a warehouse.")


@dataclass(frozen=True)
class DatabaseMade:
    """The result of `db create`. `created` is False if the database already existed, with `--if-not-exists`."""

    database: str
    created: bool


@dataclass(frozen=True)
class TableRenamed:
    """The old and the new name of a renamed table."""

    table: str
    renamed_to: str


Place = Annotated[
    str | None,
    typer.Argument(
        metavar="[DB|DIRECTORY]",
        help="A database of the warehouse, or a directory.",
        show_default=False,
    ),
]
DatabaseName = Annotated[str, typer.Argument(metavar="DB", help="Name of the database.", show_default=False)]
OldName = Annotated[str, typer.Argument(metavar="OLD", help="Current name of the table.", show_default=False)]
NewName = Annotated[str, typer.Argument(metavar="NEW", help="Its new name, or the name of the copy.", show_default=False)]
Database = Annotated[str | None, typer.Option("--database", metavar="DB", help="Only the tables of this database.")]


@command(tables, "ls")
def list_tables(call: Call, place: Place = None, database: Database = None) -> None:
    """List the tables of the warehouse, of one database, or below a directory.

    A table that cannot be opened is listed with its problem. Exits with 9 if one gave no answer in a minute
    (--option table-timeout=TIME).

    paimon-cli tables ls --warehouse s3://lake/warehouse

    paimon-cli tables ls ./wh
    """
    from paimon_cli.catalog.table_listing import TableRow

    rows = call.catalog().tables(place, database=database)
    columns = columns_of(TableRow)
    if call.is_for_people:
        needless = {name for name in ("waiting_records", "problem") if not any(getattr(row, name) for row in rows)}
        needless.add("problem_code")
        columns = [column for column in columns if column.name not in needless]
    call.show(Listing("TableList", None, columns, rows, footer=counted(len(rows), "table")))
    if waiting := [row.table for row in rows if row.waiting_records]:
        tables = " ".join(map(call.pasted, waiting))
        what = f"records of {', '.join(waiting)} are not visible yet, because they wait for a compaction"
        note(f"note: {what}: paimon-cli compact {tables}")
    if any(row.is_unanswered for row in rows):
        raise typer.Exit(PartialSuccess.exit_code)


@command(commands, "ls")
def list_here(call: Call, place: Place = None, database: Database = None) -> None:
    """List tables, as `tables ls` does.

    paimon-cli ls ./wh

    paimon-cli ls shop --warehouse ./wh
    """
    list_tables(call, place, database)


@command(databases, "ls")
def list_databases(call: Call) -> None:
    """List the databases of the warehouse.

    paimon-cli db ls --warehouse ./wh

    paimon-cli db ls --warehouse s3://lake/wh -o json
    """
    from paimon_cli.catalog.table_listing import DatabaseRow

    rows = call.catalog().databases()
    call.show(Listing("DatabaseList", None, DatabaseRow, rows, footer=counted(len(rows), "database")))


@command(databases, "create")
def create_database(
    call: Call,
    database: DatabaseName,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the database exists.")] = False,
) -> None:
    """Create a database.

    paimon-cli db create sales --warehouse ./wh

    paimon-cli db create shop --if-not-exists --warehouse ./wh
    """
    is_created = call.catalog().create_database(database, if_not_exists=if_not_exists)
    text = f"created database {database}" if is_created else f"database {database} already exists, nothing was changed"
    call.show(Item("Database", None, DatabaseMade(database, is_created)), text)


@command(databases, "drop")
def drop_database(
    call: Call,
    database: DatabaseName,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop its tables.")] = False,
    *,
    options: Annotated[Given, DropOptions],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Drop a database. Refused if it has tables, unless --cascade drops them, as `drop` does: into the trash.

    In a REST catalog the server deletes them for good.

    paimon-cli db drop shop --cascade --dry-run --warehouse ./wh

    paimon-cli db drop archive --yes --warehouse ./wh
    """
    planned = call.catalog().plan_drop_database(database, cascade=cascade, **options)
    tables = planned.plan.table_names
    what = f"database {database}" + (f" with {counted(len(tables), 'table')} ({', '.join(tables)})" if tables else "")
    if dry_run:
        call.show(Item("DatabaseDropPlan", None, planned.plan), f"{what} would be dropped; nothing was changed (dry run)")
        return
    confirm(f"{what} will be {'deleted for good' if planned.plan.for_good else 'dropped'}", yes)
    call.show(Item("DatabaseDropSummary", None, planned.run()), f"dropped {what}")


@command(tables, "rename")
def rename_table(call: Call, source: OldName, target: NewName) -> None:
    """Rename a table of the catalog and move its directory. Stop its writers first.

    Object stores cannot move a directory atomically; clone the table there, and drop the old one.

    paimon-cli tables rename shop.orders shop.orders_2026 --warehouse ./wh

    paimon-cli tables rename game.players game.people --warehouse ./wh
    """
    call.catalog().rename_table(source, target)
    call.show(Item("RenamedTable", None, TableRenamed(source, target)), f"renamed {source} to {target}")


@command(tables, "clone")
def clone_table(call: Call, table: TableName, target: NewName, allow_unsafe_commit: AllowUnsafeCommit = False) -> None:
    """Copy the latest snapshot of a table into a new table: schemas, data files, indexes and metadata.

    Older snapshots, tags and other branches are not copied.

    paimon-cli tables clone shop.orders test.orders --warehouse ./wh

    paimon-cli tables clone shop.orders shop.copy --warehouse ./wh
    """
    done = call.catalog(allow_unsafe_commit).clone_table(table, target)
    snapshot = "an empty table" if done.snapshot_id is None else f"snapshot {done.snapshot_id}"
    text = f"cloned {snapshot} of {done.source} into {done.table}: {counted(done.files, 'file')} of {human_size(done.size)}"
    call.show(Item("ClonedTable", done.table, done), text)
    note_gone(target)


config = group("Where the configuration comes from.")


@command(config, "show")
def show_config(call: Call) -> None:
    """Show the configuration of the catalog, and the origin of each value. Secrets are hidden.

    Options of the call take precedence over the environment, a profile of ./paimon.yaml or of the user's own file, the rest of
    ./paimon.yaml, the rest of the own file, and the defaults, in this order. The own file is ~/.config/paimon-cli/config.yaml, or
    the one that PAIMON_CLI_CONFIG names. Only the call and the own file can permit something, such as http-report.allowed-hosts.
    Secrets of the own file are withheld where ./paimon.yaml names addresses.

    paimon-cli config show --profile production

    paimon-cli config show --warehouse ./wh -o json
    """
    from paimon_cli.catalog.metastore.configuration_files import user_file_of
    from paimon_cli.catalog.metastore.settings import SettingRow

    rows = call.catalog().settings()
    footer = f"{counted(len(rows), 'setting')}; your own file: {user_file_of(os.environ)}"
    call.show(Listing("SettingList", None, SettingRow, rows, footer=footer))


@command(commands, "describe")
def describe(call: Call, table: TableName) -> None:
    """Show a table on one screen: columns, keys, options, contents, versions and pending maintenance.

    paimon-cli describe ./wh/shop.db/orders

    paimon-cli describe shop.orders --warehouse ./wh -o json
    """
    from paimon_cli.cli.text_view import say_findings
    from paimon_cli.inspect.table_description import TableDescription

    opened = call.open(table)
    described = opened.describe(argument=call.pasted(table))
    columns = columns_of(TableDescription)
    lists_findings = call.is_for_people and bool(described.health)
    call.show(Item("TableDescription", opened.name, described, columns[:-1] if lists_findings else columns))
    if lists_findings:
        say("\nTo do")
        say_findings(described.health)


schemas = group("Schemas of a table: one for each change of its definition.")
options = group("Options of a table.")


@command(schemas, "ls")
def list_schemas(call: Call, table: TableName) -> None:
    """List schemas, newest first.

    paimon-cli schemas ls ./wh/shop.db/orders

    paimon-cli schemas ls ./wh/shop.db/orders -o json
    """
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
    """Show the columns, keys and options of one schema.

    paimon-cli schemas show ./wh/shop.db/orders

    paimon-cli schemas show ./wh/shop.db/orders 0 -o json
    """
    opened = call.open(table)
    call.show(Item("Schema", opened.name, opened.schema(schema)))


@command(schemas, "diff")
def diff_schemas(
    call: Call,
    table: TableName,
    before: Annotated[
        str | None,
        typer.Argument(metavar="[FROM]", help="Id of a schema; default the schema before TO.", show_default=False),
    ] = None,
    after: Annotated[str, typer.Argument(metavar="[TO]", help="Id of a schema, or latest.")] = "latest",
) -> None:
    """Show how two schemas differ: columns, keys, options. Exits with 4 on differences.

    Columns are compared by their ids, so a renamed column does not count as a new one.

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
        str | None, typer.Argument(metavar="[TABLE]", help="The table; without it, --all lists all options of tables.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show Paimon's options that are not set, with their defaults.")
    ] = False,
) -> None:
    """List the options of the latest schema.

    paimon-cli options ls ./wh/shop.db/orders

    paimon-cli options ls ./wh/shop.db/orders --all --fields key,value,default
    """
    from paimon_cli.api.history import all_options
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
    """Explain an option: its meaning, default, and first Paimon version, whether paimon-cli honours it, and its value in a table.

    paimon-cli options explain num-sorted-run.compaction-trigger

    paimon-cli options explain fields.amount.aggregate-function ./wh/shop.db/orders
    """
    from paimon_cli.api.history import explain_option
    from paimon_cli.inspect.schema_report import OptionExplanation

    opened = None if table is None else call.open(table)
    explained = explain_option(key) if opened is None else opened.explain_option(key)
    columns = columns_of(OptionExplanation)
    if call.is_for_people:
        columns = [column for column in columns if getattr(explained, column.name) not in ((), None)]
    call.show(Item("OptionExplanation", None if opened is None else opened.name, explained, columns))
