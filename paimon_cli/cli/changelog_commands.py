"""`changelog`, `blame`, `consumers`: changes of a table or of a key, and the progress of streaming readers."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import DryRun, TableName, Yes, addressable, split_partitions
from paimon_cli.cli.results import COUNT, FLAG, ID, JSON, LONG, TIME, Column, Item, Listing, OutputFormat, confirm, counted, say
from paimon_cli.errors import UsageError

changelog = group("Row changes, snapshot by snapshot.")


@command(changelog, "read")
def read_changelog(
    call: Call,
    table: TableName,
    begin: Annotated[int, typer.Option("--from", metavar="N", min=1, help="The first snapshot.")],
    end: Annotated[int | None, typer.Option("--to", metavar="M", min=1, help="The last snapshot; default the latest.")] = None,
    select: Annotated[
        str | None, typer.Option("-s", "--select", metavar="NAMES", help="Columns to show, such as id,name; default all.")
    ] = None,
    where: Annotated[str | None, typer.Option("-w", "--where", metavar="SQL", help="Only changes that match.")] = None,
    limit: Annotated[
        int | None, typer.Option("-l", "--limit", metavar="N", callback=addressable, min=0, help="At most N changes.")
    ] = None,
) -> None:
    """Print the row changes of a range of snapshots, with their row kinds.

    Changes come from changelog files if the table has a changelog producer, otherwise from the rows that each commit added.

    paimon-cli changelog read ./wh/shop.db/orders --from 3
    """
    from paimon_cli.cli.row_output import print_rows

    opened = call.open(table)
    scan = opened.changelog(begin, end, columns=select, where=where, limit=limit)
    print_rows(scan.rows, opened.name, call.output, call.view)


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
    keys = split_partitions(key, "--key")
    if len(keys) > 1:
        raise UsageError("one key at a time", "a column is given twice")
    opened = call.open(table)
    rows = opened.blame(keys[0] if keys else {})
    broken = "".join(f"\nnot shown: {row.missing}" for row in rows if row.missing)
    call.show(Listing("KeyVersionList", opened.name, VERSION_COLUMNS, rows, footer=counted(len(rows), "version") + broken))


consumers = group("Streaming readers, and the snapshots kept for them.")

CONSUMER_COLUMNS = (
    Column("name", "Consumer"),
    Column("next_snapshot", "Next snapshot", ID),
    Column("behind", "Behind", COUNT),
    Column("modified", "Updated (UTC)", TIME),
)
Consumer = Annotated[str, typer.Argument(metavar="CONSUMER", help="Id of the consumer.", show_default=False)]


@command(consumers, "ls")
def list_consumers(call: Call, table: TableName) -> None:
    """List consumers by name."""
    opened = call.open(table)
    rows = opened.consumers.ls()
    call.show(Listing("ConsumerList", opened.name, CONSUMER_COLUMNS, rows, footer=counted(len(rows), "consumer")))


@command(consumers, "reset")
def reset(
    call: Call,
    table: TableName,
    consumer: Consumer,
    next_snapshot: Annotated[
        int | None,
        typer.Option("--next", metavar="ID", min=1, help="The snapshot that it reads next; default the one after the latest."),
    ] = None,
) -> None:
    """Set the next snapshot of a consumer, creating the consumer if it does not exist.

    paimon-cli consumers reset ./wh/shop.db/orders nightly-export --next 12
    """
    opened = call.open(table)
    row = opened.consumers.reset(consumer, next_snapshot=next_snapshot)
    if call.output is OutputFormat.TABLE:
        say(f"consumer {consumer} reads snapshot {row.next_snapshot} next")
    else:
        call.show(Item("Consumer", opened.name, CONSUMER_COLUMNS, row))


@command(consumers, "rm")
def remove(call: Call, table: TableName, consumer: Consumer, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a consumer: snapshots are no longer kept for it.

    paimon-cli consumers rm ./wh/shop.db/orders nightly-export
    """
    plan = call.open(table).consumers.plan_rm(consumer)
    if dry_run:
        say(f"consumer {consumer} would be deleted; nothing was changed (dry run)")
        return
    confirm(f"consumer {consumer} will be deleted, and snapshots are no longer kept for it", yes)
    plan.run()
    if call.output is OutputFormat.TABLE:
        say(f"deleted consumer {consumer}")
