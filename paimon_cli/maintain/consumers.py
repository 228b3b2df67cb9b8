"""Consumers, the progress of streaming readers: reset, deleted or expired (FORMAT.md, section 13.3; Java ConsumerManager)."""

from __future__ import annotations

import json

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.protections import Consumer, consumers
from paimon_cli.metadata.file_names import is_plain_name


def reset_consumer(context: TableContext, name: str, next_snapshot: int) -> Consumer:
    """Let the consumer go on with that snapshot; a consumer of a new name protects from now on.

    `NotFound` for a snapshot that is neither there nor the next one (Java ResetConsumerProcedure).
    """
    if not is_plain_name(name):
        raise UsageError(f"'{name}' cannot be the name of a consumer", "it must be a file name")
    earliest, newest = context.snapshots.earliest_id() or 1, context.snapshots.latest_id() or 0
    kept = context.storage.exists(context.layout.changelog(next_snapshot))  # its changes outlived it
    if not earliest <= next_snapshot <= newest + 1 and not kept:
        raise context.snapshots.missing(next_snapshot)
    text = json.dumps({"nextSnapshot": next_snapshot}, separators=(",", " : "))
    context.storage.overwrite(context.layout.consumer(name), f"{{\n  {text[1:-1]}\n}}".encode())
    return Consumer(name, next_snapshot, context.clock.now_millis())


def remove_consumer(context: TableContext, name: str) -> None:
    """Nothing is kept for the consumer any more; `NotFound` as of `check_consumer`."""
    check_consumer(context, name)
    context.storage.delete(context.layout.consumer(name))


def check_consumer(context: TableContext, name: str) -> None:
    """`NotFound` for a consumer that is not there; it names those that are."""
    if not is_plain_name(name) or not context.storage.exists(context.layout.consumer(name)):
        names = [consumer.name for consumer in consumers(context)]
        why = f"its consumers are {', '.join(names)}" if names else "it has no consumers"
        raise NotFound(
            f"no consumer '{name}' of {context.address}", why, f"paimon-cli consumers ls {context.layout.argument}", consumer=name
        )


def expired_consumers(context: TableContext, older_than: int | None = None) -> list[Consumer]:
    """Consumers without progress since `older_than` (epoch millis) or for `consumer.expiration-time`; none if both are unset."""
    own = context.options.consumer_expiration_time
    if older_than is None and own is None:
        return []
    limit = context.clock.now_millis() - (own or 0) if older_than is None else older_than
    return [consumer for consumer in consumers(context) if consumer.modified_millis < limit]


def expire_consumers(context: TableContext, older_than: int | None = None) -> list[Consumer]:
    """Delete expired consumers. Each is checked again before, so that one with new progress stays."""
    gone = []
    for consumer in expired_consumers(context, older_than):
        if consumer in expired_consumers(context, older_than):
            context.storage.delete(context.layout.consumer(consumer.name))
            gone.append(consumer)
    return gone
