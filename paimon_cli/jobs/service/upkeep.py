"""What a table needs besides compactions: expiry by its own options, and the search for orphans."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.reclaim_job import CONSUMERS, PARTITIONS, Expiry, clean_orphans, deletion, plan_expire, search_orphans
from paimon_cli.jobs.service.upkeep_done import UpkeepDone
from paimon_cli.maintain.orphans import DAY_MILLIS, Orphans, not_ahead_of_the_storage
from paimon_cli.maintain.policy import NO_POLICY, TablePolicy
from paimon_cli.maintain.policy_effect import tag_retention
from paimon_cli.requests.maintenance import ExpireOptions, What

VERSION_BYTES, SEARCHED_VERSIONS = 8 << 10, 8
"""What the metadata of one version is taken to hold: an expiry is charged so much to a budget for each version that it is to
remove, a search for orphans as much as for eight."""
HOUR_MILLIS = 3_600_000
RETENTION_PREFIXES = ("snapshot.time-retained", "snapshot.num-retained.")


def kinds_that_expire(context: TableContext, kinds: Collection[What]) -> list[What]:
    """The kinds for which the table has a retention: partitions have none by default."""
    has_partitions = bool(context.schema.partition_keys) and context.options.partition_expiration_time is not None
    return [what for what in kinds if what != PARTITIONS or has_partitions]


def default_retention(context: TableContext) -> str | None:
    """What Paimon keeps of a table without any retention for snapshots, in words; None if this one has some."""
    options = context.options
    if any(key.startswith(RETENTION_PREFIXES) for key in options.raw):
        return None
    hours = options.snapshot_time_retained // HOUR_MILLIS
    return f"Paimon's default: older than {hours} h, except the latest {options.snapshot_num_retained_min}"


@dataclass(frozen=True)
class DueExpiry:
    """What of a table is past its retention. `context`: the table, with a clock by which ages can be trusted."""

    context: TableContext
    expiry: Expiry

    @property
    def versions(self) -> int:
        """How many versions are to be removed; consumers are none."""
        return 0 if self.expiry.what == CONSUMERS else len(self.expiry.names)

    def run(self, engine: Engine, progress: Progress) -> tuple[UpkeepDone, tuple[int, ...]]:
        """Expire it; returns what expired, and the snapshots that were committed for that."""
        expired = self.expiry.run(deletion(self.context, engine, progress))
        committed = () if expired.snapshot is None else (expired.snapshot,)
        return UpkeepDone.of_expiry(self.expiry.what, len(expired.removed), expired.files), committed


def due_expiry(context: TableContext, what: What, progress: Progress, policy: TablePolicy = NO_POLICY) -> DueExpiry:
    """What is past its retention by the options of the table, and tags by its policy. If anything is, ages are by the clock of
    the storage, if this machine's is ahead of it.
    """
    options, limit_of_tag = ExpireOptions(what), partial(tag_retention, policy)
    expiry = plan_expire(context, options, progress, limit_of_tag)
    if not expiry.names:
        return DueExpiry(context, expiry)
    trusted = not_ahead_of_the_storage(context)
    return DueExpiry(trusted, expiry if trusted is context else plan_expire(trusted, options, progress, limit_of_tag))


def old_orphans(context: TableContext, progress: Progress) -> tuple[TableContext, Orphans]:
    """The orphans of at least a day, by a clock that is not ahead of the storage's."""
    trusted = not_ahead_of_the_storage(context)
    return trusted, search_orphans(trusted, trusted.clock.now_millis() - DAY_MILLIS, False, progress)


def remove_old_orphans(context: TableContext, engine: Engine, progress: Progress) -> UpkeepDone:
    trusted, found = old_orphans(context, progress)
    orphans, size = clean_orphans(trusted, found, None, engine, progress)
    return UpkeepDone(orphans=orphans, orphan_bytes=size)
