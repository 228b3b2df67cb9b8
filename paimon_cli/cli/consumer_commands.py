"""`consumers`: the positions of streaming readers; snapshots that they have not read yet do not expire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.messages import confirm, say
from paimon_cli.cli.parameters import DryRun, TableName, Yes
from paimon_cli.cli.results import Column, Item, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, ID, TIME, counted

if TYPE_CHECKING:
    from paimon_cli.maintain.protections import Consumer as Told

consumers = group("Streaming readers, and the snapshots kept for them.")

CONSUMER_COLUMNS = (
    Column("name", "Consumer"),
    Column("next_snapshot", "Next snapshot", ID),
    Column("behind", "Behind", COUNT),
    Column("modified", "Updated (UTC)", TIME),
)
Consumer = Annotated[str, typer.Argument(metavar="CONSUMER", help="Id of the consumer.", show_default=False)]


@dataclass(frozen=True)
class ConsumerRow:
    """`behind`: snapshots that it has not read yet; `modified` in epoch millis."""

    name: str
    next_snapshot: int
    behind: int
    modified: int


@command(consumers, "ls")
def list_consumers(call: Call, table: TableName) -> None:
    """List consumers by name."""
    from paimon_cli.maintain.protections import consumers as found

    opened = call.open(table)
    latest = opened.snapshots.latest_id() or 0
    rows = [_row(consumer, latest) for consumer in found(opened.context)]
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
    from paimon_cli.maintain.consumers import reset_consumer

    opened = call.open(table)
    latest = opened.snapshots.latest_id() or 0
    row = _row(reset_consumer(opened.context, consumer, latest + 1 if next_snapshot is None else next_snapshot), latest)
    if call.output is OutputFormat.TABLE:
        say(f"consumer {consumer} reads snapshot {row.next_snapshot} next")
    else:
        call.show(Item("Consumer", opened.name, CONSUMER_COLUMNS, row))


@command(consumers, "rm")
def remove(call: Call, table: TableName, consumer: Consumer, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a consumer: snapshots are no longer kept for it.

    paimon-cli consumers rm ./wh/shop.db/orders nightly-export
    """
    from paimon_cli.maintain.consumers import check_consumer, remove_consumer

    context = call.open(table).context
    check_consumer(context, consumer)
    if dry_run:
        say(f"consumer {consumer} would be deleted; nothing was changed (dry run)")
        return
    confirm(f"consumer {consumer} will be deleted, and snapshots are no longer kept for it", yes)
    remove_consumer(context, consumer)
    if call.output is OutputFormat.TABLE:
        say(f"deleted consumer {consumer}")


def _row(consumer: Told, latest: int) -> ConsumerRow:
    behind = max(latest - consumer.next_snapshot + 1, 0)
    return ConsumerRow(consumer.name, consumer.next_snapshot, behind, consumer.modified_millis)
