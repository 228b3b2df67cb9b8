"""Retention: how many snapshots stay and for how long, and which may expire (FORMAT.md, section 13.1)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.protections import oldest_consumed
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class Retention:
    """`at_least` newest snapshots always stay, those beyond `at_most` always go; between them age decides.

    `millis`: younger snapshots stay. `limit`: how many may go in one run, None for all.
    """

    at_least: int
    at_most: int
    millis: int
    limit: int | None

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
        """With what was asked for on top; `older_than` is a moment in epoch millis.

        Asking for few lowers how many always stay, too. Without a limit, of the table or asked for, all go that may: the
        default of 50 is for expiry on the way of a commit. `UsageError` if at least more should stay than at most.
        """
        if at_most is not None and at_least is not None and at_most < at_least:
            raise UsageError(f"at most {at_most} cannot stay if at least {at_least} must")
        most = self.at_most if at_most is None else at_most
        least = min(self.at_least, most) if at_least is None else at_least
        millis = self.millis if older_than is None else context.clock.now_millis() - older_than
        own_limit = self.limit if "snapshot.expire.limit" in context.options.raw else None
        return Retention(least, max(most, least), millis, own_limit if limit is None else limit)


def expiring_range(context: TableContext, retention: Retention) -> range:
    """Ids of the snapshots that may expire, oldest first; the one at `range.stop` and all later ones stay.

    A snapshot is as old as its successor, because until then it was the latest (Java ExpireSnapshotsImpl).
    """
    latest, earliest = context.snapshots.latest_id(), context.snapshots.earliest_id()
    if latest is None or earliest is None:
        return range(0)
    stop = latest - max(retention.at_least, 1) + 1
    consumed = oldest_consumed(context)
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
