"""The options of `drop`, `undrop` and `trash empty`."""

from dataclasses import KW_ONLY
from typing import Annotated

from paimon_cli.requests.fields import Option, Request


class DropOptions(Request):
    """What becomes of the files of a dropped table."""

    _: KW_ONLY
    purge: Annotated[bool, Option("Delete it at once, instead of moving it to the trash.")] = False


class UndropOptions(Request):
    """Which dropped table to bring back."""

    table: Annotated[
        str,
        Option("The path or URL that the table had, or its db.table.", metavar="NAME", is_argument=True),
    ]
    _: KW_ONLY
    new_name: Annotated[
        str | None, Option("Its new name, if another table has the old one by now.", metavar="NEW", flags=("--as",))
    ] = None


class EmptyOptions(Request):
    """Which dropped tables to delete for good."""

    _: KW_ONLY
    expired: Annotated[bool, Option("Only tables whose time is over: a day after the drop, or as trash-retention says.")] = False
