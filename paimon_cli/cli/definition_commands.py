"""`create` and `alter`: create a table, and change its options and columns; each change creates a new schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import AllowUnsafeCommit, Given, TableName
from paimon_cli.cli.results import counted, note_gone, say, warn
from paimon_cli.errors import UsageError
from paimon_cli.requests.definition import ColumnOptions, ColumnPlace, CreateOptions
from paimon_cli.requests.selections import split_pairs

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.catalog.alter_table import AlteredTable
    from paimon_cli.ingest.inference import InferredColumns
    from paimon_cli.metadata.table_schema import TableSchema


commands = top_level()


@command(commands, "create", reads_files=True, keeps_options=True)
def create(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, CreateOptions],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Create a table.

    paimon-cli create ./wh/shop.db/orders -C 'id BIGINT NOT NULL' -C 'name STRING' --primary-key id --bucket 4

    paimon-cli create ./wh/shop.db/people --from-file orders.csv --primary-key id --bucket 1
    """
    from paimon_cli.api.definition import NewTable, create_table

    location = call.locate(table, allow_unsafe_commit, is_new=True)
    asked = NewTable(**options, form=call.form, options=call.options, strict_options=call.strict_options)
    created = create_table(location, asked)
    for warning in created.warnings:
        warn(warning)
    if call.is_for_people:
        say(f"created {location.name}" if created.created else f"{location.name} already exists, nothing was changed")
        note_gone(location.url)
        if created.inferred is not None and created.created:
            say(_columns_text(created.schema, created.inferred, asked.from_file))
        return
    from paimon_cli.inspect.schema_report import schema_details

    call.show(Item("Schema", location.name, schema_details(created.schema)))


def _columns_text(schema: TableSchema, inferred: InferredColumns, source: str | None) -> str:
    from paimon_cli.datatypes.field_types import type_to_sql

    width = max(len(field.name) for field in schema.fields)
    lines = [f"  {field.name:{width}}  {type_to_sql(field.type)}" for field in schema.fields]
    rows = "" if inferred.rows is None else f", inferred from {counted(inferred.rows, 'row')} (all)"
    return "\n".join([*lines, f"{counted(len(lines), 'column')} as in {source}{rows}"])


alter = group("Change the options and columns of a table. Data files are not rewritten; they are read with the new schema.")

ColumnPath = Annotated[
    str,
    typer.Argument(
        metavar="COLUMN",
        help="A column, or a field of a nested column: a.b; a.element for lists, a.value for maps.",
        show_default=False,
    ),
]


@alter.callback()
def _table(context: typer.Context, table: TableName) -> None:
    context.obj = table


@command(alter, "set")
def set_options(
    call: Call,
    context: typer.Context,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Options.", show_default=False)],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Set options.

    paimon-cli alter ./wh/shop.db/orders set num-sorted-run.compaction-trigger=8 write-only=true

    paimon-cli alter ./wh/shop.db/orders set snapshot.time-retained=7d
    """
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.set(split_pairs(pairs, "set"), strict_options=call.strict_options))


@command(alter, "unset")
def unset_options(
    call: Call,
    context: typer.Context,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Names of options.", show_default=False)],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Remove options, so that their defaults apply again.

    paimon-cli alter ./wh/shop.db/orders unset write-only

    paimon-cli alter ./wh/shop.db/orders unset snapshot.time-retained num-sorted-run.stop-trigger
    """
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.unset(*keys))


@command(alter, "comment")
def set_comment(
    call: Call,
    context: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text of the comment; '' removes it.", show_default=False)],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Set the comment of the table.

    paimon-cli alter ./wh/shop.db/orders comment 'one row for each order'

    paimon-cli alter ./wh/shop.db/orders comment ''
    """
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.comment(text))


@command(alter, "add-column")
def add_column(
    call: Call,
    context: typer.Context,
    column: Annotated[
        str, typer.Argument(metavar="'NAME TYPE'", help="In SQL: 'price DECIMAL(10, 2) DEFAULT 0'.", show_default=False)
    ],
    *,
    options: Annotated[Given, ColumnPlace],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Add a column; existing rows read null in it.

    paimon-cli alter ./wh/shop.db/orders add-column 'price DECIMAL(10, 2)' --after name

    paimon-cli alter ./wh/shop.db/orders add-column 'note STRING' --first
    """
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.add_column(column, **options))


@command(alter, "drop-column")
def drop_column(call: Call, context: typer.Context, column: ColumnPath, allow_unsafe_commit: AllowUnsafeCommit = False) -> None:
    """Drop a column. Adding a column with the same name later does not restore its values.

    paimon-cli alter ./wh/shop.db/orders drop-column status

    paimon-cli alter shop.orders drop-column status --warehouse ./wh
    """
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.drop_column(column))


@command(alter, "rename-column")
def rename_column(
    call: Call,
    context: typer.Context,
    column: ColumnPath,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.", show_default=False)],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Rename a column, and its name in the options.

    paimon-cli alter ./wh/shop.db/orders rename-column name customer

    paimon-cli alter shop.orders rename-column name customer --warehouse ./wh
    """
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.rename_column(column, name))


@command(alter, "alter-column")
def alter_column(
    call: Call,
    context: typer.Context,
    column: ColumnPath,
    new_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="In SQL: 'BIGINT', 'INT NOT NULL DEFAULT 5'.", show_default=False)
    ] = None,
    type_option: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The same as the argument TYPE.", show_default=False)
    ] = None,
    *,
    options: Annotated[Given, ColumnOptions],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Change the type, nullability, comment, default or position of a column; values in old files are cast on read.

    paimon-cli alter ./wh/shop.db/orders alter-column amount 'DECIMAL(20, 2)' --comment net

    paimon-cli alter ./wh/shop.db/orders alter-column name --default nobody
    """
    if new_type is not None and type_option is not None and new_type != type_option:
        raise UsageError(f"{new_type} and --type {type_option} contradict each other", hint="give the type once")
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.alter_column(column, new_type or type_option, **options))


def _show(call: Call, opened: Table, altered: AlteredTable) -> None:
    done = f"now has schema {altered.schema.id}" if altered.changed else f"is unchanged, at schema {altered.schema.id}"
    call.show(Item("Schema", opened.name, opened.schema(altered.schema.id)), f"{opened.name} {done}")
