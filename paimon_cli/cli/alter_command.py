"""`alter`: change options and columns of a table; each change is one new schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.catalog_commands import SCHEMA_DETAILS
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import AllowUnsafeCommit, TableName, split_pairs
from paimon_cli.cli.results import Item, OutputFormat, say
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.catalog.alter_table import AlteredTable

alter = group("Change the options and columns of a table. Data files are not rewritten; they are read under the new schema.")

ColumnPath = Annotated[
    str,
    typer.Argument(
        metavar="COLUMN",
        help="A column, or a field of a nested column: a.b; a.element for lists, a.value for maps.",
        show_default=False,
    ),
]
First = Annotated[bool, typer.Option("--first", help="Make it the first column.")]
After = Annotated[str | None, typer.Option("--after", metavar="COLUMN", help="Put it after this column.")]
Comment = Annotated[str | None, typer.Option("--comment", help="Comment of the column; '' removes it.")]


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
    """Set the comment of the table."""
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.comment(text))


@command(alter, "add-column")
def add_column(
    call: Call,
    context: typer.Context,
    column: Annotated[
        str, typer.Argument(metavar="'NAME TYPE'", help="In SQL: 'price DECIMAL(10, 2) DEFAULT 0'.", show_default=False)
    ],
    first: First = False,
    after: After = None,
    comment: Comment = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Add a column; existing rows read null in it.

    paimon-cli alter ./wh/shop.db/orders add-column 'price DECIMAL(10, 2)' --after name
    """
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    _show(call, opened, opened.alter.add_column(column, first=first, after=after, comment=comment))


@command(alter, "drop-column")
def drop_column(call: Call, context: typer.Context, column: ColumnPath, allow_unsafe_commit: AllowUnsafeCommit = False) -> None:
    """Drop a column. A new column of the same name does not bring its values back."""
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
    """Rename a column, and its name in the options."""
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
        str | None, typer.Option("--type", metavar="TYPE", help="Another form of the argument TYPE.", show_default=False)
    ] = None,
    nullable: Annotated[bool | None, typer.Option("--nullable/--not-null", help="Whether null is allowed.")] = None,
    comment: Comment = None,
    default: Annotated[
        str | None,
        typer.Option("--default", metavar="VALUE", help="Value that writers store instead of null or a missing column."),
    ] = None,
    drop_default: Annotated[bool, typer.Option("--drop-default", help="Remove the default.")] = False,
    first: First = False,
    after: After = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Change the type, nullability, comment, default or position of a column; values in old files are cast on read.

    paimon-cli alter ./wh/shop.db/orders alter-column amount 'DECIMAL(20, 2)' --comment net
    """
    if new_type is not None and type_option is not None and new_type != type_option:
        raise UsageError(f"{new_type} and --type {type_option} contradict each other", hint="give the type once")
    opened = call.open_to_commit(context.obj, allow_unsafe_commit)
    altered = opened.alter.alter_column(
        column,
        new_type or type_option,
        nullable=nullable,
        comment=comment,
        default=default,
        drop_default=drop_default,
        first=first,
        after=after,
    )
    _show(call, opened, altered)


def _show(call: Call, opened: Table, altered: AlteredTable) -> None:
    if call.output is OutputFormat.TABLE:
        done = f"now has schema {altered.schema.id}" if altered.changed else f"is unchanged, at schema {altered.schema.id}"
        say(f"{opened.name} {done}")
        return
    call.show(Item("Schema", opened.name, SCHEMA_DETAILS, opened.schema(altered.schema.id)))
