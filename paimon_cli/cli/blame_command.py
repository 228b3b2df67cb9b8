"""`blame`: the stored versions of a key, commit by commit."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.parameters import TableName, split_partitions
from paimon_cli.cli.results import Column, Listing
from paimon_cli.cli.value_kinds import FLAG, ID, JSON, LONG, TIME, counted
from paimon_cli.errors import UsageError

VERSION_COLUMNS = (
    Column("snapshot_id", "Snapshot", ID),
    Column("time", "Time (UTC)", TIME),
    Column("commit_kind", "Commit"),
    Column("commit_user", "User", hide=2),
    Column("earlier", None, FLAG),
    Column("until", "Until", ID, hide=5),
    Column("partition", "Partition", hide=3),
    Column("bucket", "Bucket", ID, hide=4),
    Column("level", "Level", ID, hide=6),
    Column("sequence", "Sequence", LONG, hide=7),
    Column("kind", "Kind"),
    Column("values", "Values", JSON),
    Column("file", "File", hide=1),
    Column("missing", None),
)


def register(app: typer.Typer, panel: str) -> None:
    command(app, "blame", rich_help_panel=panel)(blame)


def blame(
    call: Call,
    table: TableName,
    key: Annotated[
        list[str], typer.Option("--key", metavar="COLUMN=VALUE[,...]", help="The key, or a part of it.", show_default=False)
    ],
) -> None:
    """Show every stored version of a key: commit, file, level, sequence number, kind and values.

    paimon-cli blame ./wh/shop.db/orders --key id=7
    """
    from paimon_cli.read.key_history import key_history, key_predicate

    keys = split_partitions(key, "--key")
    if len(keys) > 1:
        raise UsageError("one key at a time", "a column is given twice")
    opened = call.open(table)
    rows = key_history(opened.context, key_predicate(opened.context, keys[0] if keys else {}))
    broken = "".join(f"\nnot shown: {row.missing}" for row in rows if row.missing)
    call.show(Listing("KeyVersionList", opened.name, VERSION_COLUMNS, rows, footer=counted(len(rows), "version") + broken))
