"""Retention: which snapshots may expire, and what protects them: tags, branches, consumers (FORMAT.md, section 13)."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.needed_files import NeededFiles
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import BACKUP_CONSUMER, CONSUMER_PREFIX, TAG_PREFIX, is_plain_name
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class Protections:
    """What protects files: tags of this branch, oldest first, and what other branches and long-lived changelogs need."""

    tags: list[Snapshot]
    elsewhere: NeededFiles


def tagged_snapshots(context: TableContext) -> list[Snapshot]:
    """The snapshots that tags hold, the oldest first. Two may have the same number (`histories`)."""
    tagged: dict[object, Snapshot] = {}
    for status in context.storage.list_directory(context.layout.tag_directory):
        if status.name.startswith(TAG_PREFIX) and not status.is_directory:
            content = _read(context, status.path)
            if content is not None:
                try:
                    snapshot = Snapshot.from_json(content, status.path)
                except DamagedFile as error:
                    error.set_hint(context.layout.if_damaged)
                    raise
                tagged[snapshot.origin] = snapshot
    return sorted(tagged.values(), key=lambda snapshot: snapshot.id)


@dataclass(frozen=True)
class Consumer:
    """The progress of a streaming reader; `modified_millis` is the time of its last update."""

    name: str
    next_snapshot: int
    modified_millis: int


def consumers(context: TableContext) -> list[Consumer]:
    """All consumers by name. Raises `DamagedFile` if one cannot be read, because what it still needs is then unknown."""
    found = []
    for status in context.storage.list_directory(context.layout.consumer_directory):
        if status.name.startswith(CONSUMER_PREFIX) and not status.is_directory:
            content = _read(context, status.path)
            if content is not None:
                name = status.name.removeprefix(CONSUMER_PREFIX)
                found.append(Consumer(name, _next_snapshot(content, status.path), status.modified_millis))
    return sorted(found, key=lambda consumer: consumer.name)


BACKUP_MILLIS = 14 * 86_400_000
"""For how long after its last run a backup keeps snapshots: one that is never run again must not keep all of them."""


def oldest_consumed(context: TableContext, ignored: Collection[str] = ()) -> int | None:
    """The first snapshot that some consumer has not read yet; None without consumers.

    Backups that have ended do not count, nor do the consumers that are to be `ignored`, by name.
    """
    first = _first_consumer(context, ignored)
    return None if first is None else first.next_snapshot


def _first_consumer(context: TableContext, ignored: Collection[str]) -> Consumer | None:
    """The one that holds most, of those that count; of several, the first by name."""
    given_up = context.clock.now_millis() - BACKUP_MILLIS
    found = (c for c in consumers(context) if not c.name.startswith(BACKUP_CONSUMER) or c.modified_millis >= given_up)
    return min((c for c in found if c.name not in ignored), key=lambda consumer: consumer.next_snapshot, default=None)


def holding_consumer(context: TableContext, retention: Retention) -> Consumer | None:
    """The consumer that keeps the first snapshot which the retention would let go otherwise; None if none does."""
    if expiring_range(context, retention) or not expiring_range(context, replace(retention, heeds_consumers=False)):
        return None
    return _first_consumer(context, retention.ignored)


def _next_snapshot(content: bytes, path: str) -> int:
    try:
        number = json.loads(content)["nextSnapshot"]
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**63:
            raise ValueError(f"nextSnapshot must be the id of a snapshot, found {str(number)[:40]!r}")
        return number
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "delete the file if this consumer is no longer in use"
        raise DamagedFile(f"cannot read consumer file {path}", f"{type(error).__name__}: {error}", hint, path=path) from error


def _read(context: TableContext, path: str) -> bytes | None:
    """None if the file was deleted since the directory was listed."""
    try:
        return context.storage.read_bytes(path)
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Retention:
    """The `at_least` newest snapshots always stay, those beyond `at_most` always go; in between, age decides.

    `millis`: younger snapshots stay. `limit`: how many may go in one run, None for all. `heeds_consumers`: not in a backup, whose
    consumers read the table that it is of. `ignored`: names of consumers that are treated as if they did not exist.
    """

    at_least: int
    at_most: int
    millis: int
    limit: int | None
    heeds_consumers: bool = True
    ignored: frozenset[str] = frozenset()

    @staticmethod
    def of(options: TableOptions) -> Retention:
        """The retention in the options `snapshot.num-retained.*`, `snapshot.time-retained` and `snapshot.expire.limit`."""
        return Retention(
            options.snapshot_num_retained_min,
            options.snapshot_num_retained_max,
            options.snapshot_time_retained,
            options.snapshot_expire_limit,
        )

    def asking(
        self, context: TableContext, at_most: int | None, at_least: int | None, older_than: int | None, limit: int | None
    ) -> Retention:
        """The retention with the limits of a request; `older_than` is in epoch millis.

        A low `at_most` also lowers `at_least`. Without a limit in the table or the request all snapshots that may expire do: the
        default of 50 is for expiry during commits. Raises `UsageError` if `at_least` exceeds `at_most`, in the request, or in the
        table's own options if the request has neither: Java refuses such a table.
        """
        if at_most is None and at_least is None and self.at_least > self.at_most:
            raise UsageError(
                f"num-retained.min={self.at_least} is above num-retained.max={self.at_most}",
                f"the options of {context.address} contradict each other",
                "set them by paimon-cli alter, or name the limit of this run with --retain-max or --retain-min",
            )
        if at_most is not None and at_least is not None and at_most < at_least:
            raise UsageError(f"--retain-max {at_most} is below --retain-min {at_least}", hint="raise one or lower the other")
        most = self.at_most if at_most is None else at_most
        least = min(self.at_least, most) if at_least is None else at_least
        millis = self.millis if older_than is None else context.clock.now_millis() - older_than
        own_limit = self.limit if "snapshot.expire.limit" in context.options.raw else None
        return Retention(least, max(most, least), millis, own_limit if limit is None else limit)


def expiring_range(context: TableContext, retention: Retention) -> range:
    """Ids of the snapshots that may expire, oldest first; the one at `range.stop` and all later ones stay.

    The age of a snapshot is that of its successor, because until then it was the latest (Java ExpireSnapshotsImpl).
    """
    latest, earliest = context.snapshots.latest_id(), context.snapshots.earliest_id()
    if latest is None or earliest is None:
        return range(0)
    stop = latest - max(retention.at_least, 1) + 1
    consumed = oldest_consumed(context, retention.ignored) if retention.heeds_consumers else None
    if consumed is not None:
        stop = min(stop, consumed)
    if retention.limit is not None:
        stop = min(stop, earliest + retention.limit)
    first_by_age = max(latest - retention.at_most + 1, earliest)
    young = context.clock.now_millis() - retention.millis
    for number in context.snapshots.likely_ids(first_by_age + 1, stop):
        successor = context.snapshots.find(number)
        if successor is not None and successor.time_millis >= young:
            stop = number - 1
            break
    return range(earliest, max(stop, earliest))


def overdue_resurrected(context: TableContext, retention: Retention) -> tuple[int, ...]:
    """Ids of the resurrected snapshots that the retention would let go as parts of the history, too.

    What makes them resurrected is the hint EARLIEST, which may be wrong: in a copy of a table, good history would look like this.
    """
    latest, resurrected = context.snapshots.latest_id(), context.snapshots.resurrected_ids()
    if latest is None or not resurrected:
        return ()
    young = context.clock.now_millis() - retention.millis

    def is_overdue(number: int) -> bool:
        if number > latest - max(retention.at_least, 1):
            return False
        snapshot = context.snapshots.find(number)
        return snapshot is not None and (number <= latest - retention.at_most or snapshot.time_millis < young)

    return tuple(filter(is_overdue, resurrected))


def reset_consumer(context: TableContext, name: str, next_snapshot: int) -> Consumer:
    """Set the next snapshot of a consumer; a new consumer protects from now on.

    `NotFound` for a snapshot that neither exists nor is the next one (Java ResetConsumerProcedure).
    """
    if not is_plain_name(name):
        raise UsageError(f"'{name}' cannot be the name of a consumer", "it must be a file name")
    earliest, newest = context.snapshots.earliest_id() or 1, context.snapshots.latest_id() or 0
    kept = context.storage.exists(context.layout.changelog(next_snapshot))  # its changes outlived it
    if not earliest <= next_snapshot <= newest + 1 and not kept:
        raise context.snapshots.missing(next_snapshot)
    return write_consumer(context, name, next_snapshot)


def write_consumer(context: TableContext, name: str, next_snapshot: int) -> Consumer:
    """Write the file of a consumer, as Java does, whether or not the snapshot exists. Raises `UsageError` for what can be no id:
    a consumer that cannot be read stops every expiry.
    """
    if not 0 < next_snapshot < 2**63:
        raise UsageError(
            f"consumer '{name}' cannot stand at snapshot {next_snapshot}", "the first snapshot of a table has the id 1"
        )
    text = json.dumps({"nextSnapshot": next_snapshot}, separators=(",", " : "))
    context.storage.overwrite(context.layout.consumer(name), f"{{\n  {text[1:-1]}\n}}".encode())
    return Consumer(name, next_snapshot, context.clock.now_millis())


def keep_for_backups(context: TableContext, newest: int) -> None:
    """Let backups keep all after the snapshot `newest` when later ones go: those that take their numbers are not copied yet.

    0 for `newest` is none: all goes. A backup that has ended keeps nothing. Other consumers stay as they are, as in Java: only
    their readers know where they are.
    """
    kept = max(newest, 1)
    given_up = context.clock.now_millis() - BACKUP_MILLIS
    for status in context.storage.list_directory(context.layout.consumer_directory):
        name = status.name.removeprefix(CONSUMER_PREFIX)
        if not name.startswith(BACKUP_CONSUMER) or status.is_directory or status.modified_millis < given_up:
            continue
        if (place_of(context, name) or 0) > kept:
            write_consumer(context, name, kept)


def place_of(context: TableContext, backup: str) -> int | None:
    """Where the consumer of a backup stands; None without it, or if it cannot be read: the next backup writes it again."""
    path = context.layout.consumer(backup)
    content = _read(context, path)
    with suppress(DamagedFile):
        return None if content is None else _next_snapshot(content, path)
    return None


def remove_consumer(context: TableContext, name: str) -> None:
    """Delete a consumer. Raises `NotFound` if it does not exist."""
    check_consumer(context, name)
    context.storage.delete(context.layout.consumer(name))


def check_consumer(context: TableContext, name: str) -> None:
    """`NotFound`, with the names of existing consumers, if this one does not exist."""
    if not is_plain_name(name) or not context.storage.exists(context.layout.consumer(name)):
        names = [consumer.name for consumer in consumers(context)]
        why = f"its consumers are {', '.join(names)}" if names else "it has no consumers"
        hint = f"{did_you_mean(name, names)}paimon-cli consumers ls {context.layout.argument}"
        raise NotFound(f"no consumer '{name}' of {context.address}", why, hint, consumer=name)


def expired_consumers(context: TableContext, older_than: int | None = None) -> list[Consumer]:
    """Consumers without progress since `older_than` (epoch millis) or for `consumer.expiration-time`; none if both are unset."""
    own = context.options.consumer_expiration_time
    if older_than is None and own is None:
        return []
    limit = context.clock.now_millis() - (own or 0) if older_than is None else older_than
    return [consumer for consumer in consumers(context) if consumer.modified_millis < limit]


def expire_consumers(context: TableContext, older_than: int | None = None) -> list[Consumer]:
    """Delete expired consumers. Each is checked again right before, so that one with new progress stays."""
    deleted = []
    for consumer in expired_consumers(context, older_than):
        if consumer in expired_consumers(context, older_than):
            context.storage.delete(context.layout.consumer(consumer.name))
            deleted.append(consumer)
    return deleted
