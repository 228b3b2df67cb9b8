"""`alter`: change options and columns of a table; each change is one new schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.catalog_commands import SCHEMA_DETAILS
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import AllowUnsafeCommit, TableName, split_pairs
from paimon_cli.cli.results import Item, OutputFormat, say, warn
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.catalog.column_changes import Position, SchemaChange

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
    from paimon_cli.catalog.column_changes import SetOption
    from paimon_cli.catalog.option_values import refuse_unknown

    given = split_pairs(pairs, "set")
    if call.strict_options:
        refuse_unknown(given)
    changes = [SetOption(key, value) for key, value in given.items()]
    _change(call, context, changes, allow_unsafe_commit)


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
    from paimon_cli.catalog.column_changes import UnsetOption

    _change(call, context, [UnsetOption(key) for key in keys], allow_unsafe_commit)


@command(alter, "comment")
def set_comment(
    call: Call,
    context: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text of the comment; '' removes it.", show_default=False)],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Set the comment of the table."""
    from paimon_cli.catalog.column_changes import SetComment

    _change(call, context, [SetComment(text or None)], allow_unsafe_commit)


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
    from paimon_cli.catalog.column_changes import AddColumn
    from paimon_cli.sql.column_definitions import parse_nested_column

    path, declared = parse_nested_column(column)
    if declared.is_key:
        raise UsageError(
            f"new column '{declared.field.name}' cannot be a primary key", "the primary key of a table cannot be changed"
        )
    field = declared.field
    text = field.description if comment is None else comment or None
    added = AddColumn(path, field.type, text, field.default_value, _position(first, after))
    _change(call, context, [added], allow_unsafe_commit)


@command(alter, "drop-column")
def drop_column(call: Call, context: typer.Context, column: ColumnPath, allow_unsafe_commit: AllowUnsafeCommit = False) -> None:
    """Drop a column. A new column of the same name does not bring its values back."""
    from paimon_cli.catalog.column_changes import DropColumn
    from paimon_cli.sql.column_definitions import parse_path

    _change(call, context, [DropColumn(parse_path(column))], allow_unsafe_commit)


@command(alter, "rename-column")
def rename_column(
    call: Call,
    context: typer.Context,
    column: ColumnPath,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.", show_default=False)],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Rename a column, and its name in the options."""
    from paimon_cli.catalog.column_changes import RenameColumn
    from paimon_cli.sql.column_definitions import parse_path

    _change(call, context, [RenameColumn(parse_path(column), name)], allow_unsafe_commit)


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
    from paimon_cli.catalog.column_changes import AlterColumn
    from paimon_cli.sql.column_definitions import parse_declaration, parse_path

    if default is not None and drop_default:
        raise UsageError("--default and --drop-default contradict each other")
    if new_type is not None and type_option is not None and new_type != type_option:
        raise UsageError(f"{new_type} and --type {type_option} contradict each other", hint="give the type once")
    new_type = new_type or type_option
    path = parse_path(column)
    declared = None if new_type is None else parse_declaration(new_type, path[-1])
    if declared is not None:
        nullable = declared.nullable if nullable is None else nullable
        comment = declared.field.description if comment is None else comment
        default = declared.field.default_value if default is None else default
    changed = AlterColumn(
        path, declared.field.type if declared else None, nullable, comment, default, drop_default, _position(first, after)
    )
    if changed == AlterColumn(path):
        raise UsageError(
            "nothing to change", "neither a type nor an option is given", "paimon-cli alter TABLE alter-column --help"
        )
    _change(call, context, [changed], allow_unsafe_commit)


def _position(first: bool, after: str | None) -> Position | None:
    from paimon_cli.catalog.column_changes import Position

    if first and after is not None:
        raise UsageError("--first and --after contradict each other")
    return Position(after) if first or after is not None else None


def _change(call: Call, context: typer.Context, changes: Sequence[SchemaChange], allow_unsafe_commit: bool) -> None:
    from paimon_cli.catalog.alter_table import alter_table

    location = call.locate(context.obj, allow_unsafe_commit)
    altered = alter_table(call.open_to_commit(location), changes)
    for warning in altered.warnings:
        warn(warning)
    if call.output is OutputFormat.TABLE:
        done = f"now has schema {altered.schema.id}" if altered.changed else f"is unchanged, at schema {altered.schema.id}"
        say(f"{location.name} {done}")
        return
    from paimon_cli.inspect.schema_report import schema_details

    call.show(Item("Schema", location.name, SCHEMA_DETAILS, schema_details(altered.schema)))
