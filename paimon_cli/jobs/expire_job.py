"""`expire`: plan what has had its time, show exactly that, or delete it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.partition_text import partition_text
from paimon_cli.jobs.engine import phase
from paimon_cli.jobs.progress import Progress
from paimon_cli.maintain.expire_changelogs import changelog_retention, doomed_changelogs, expire_changelogs, plan_changelogs
from paimon_cli.maintain.expire_partitions import PartitionPlan, expire_partitions, plan_partitions
from paimon_cli.maintain.expire_snapshots import carry_out, doomed_now, plan_expiry
from paimon_cli.maintain.needed_files import DoomedFile, measured
from paimon_cli.maintain.parallel_calls import DeleteFiles
from paimon_cli.maintain.retention import Retention, expire_consumers, expired_consumers, expiring_range
from paimon_cli.maintain.tags import doomed_with, expired_tags, plan_removal, remove_tags

KINDS = SNAPSHOTS, PARTITIONS, CHANGELOGS, TAGS, CONSUMERS = "snapshots", "partitions", "changelogs", "tags", "consumers"


@dataclass(frozen=True)
class ExpireRequest:
    """`older_than`: a moment in epoch millis; None is what the table's options say."""

    what: str = SNAPSHOTS
    retain_max: int | None = None
    retain_min: int | None = None
    older_than: int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Expired:
    """What was done: ids or names, files deleted, their bytes as far as known, and the snapshot of a commit."""

    what: str
    removed: tuple[str, ...]
    files: int = 0
    size: int | None = None
    snapshot: int | None = None


@dataclass(frozen=True)
class Expiry:
    """A planned expiry: ids or names that go, `files` lists exactly what goes with them, `run` does it."""

    what: str
    names: tuple[str, ...]
    files: Callable[[], list[DoomedFile]]
    delete: Callable[[DeleteFiles], Expired]

    def run(self, delete: DeleteFiles) -> Expired:
        """Delete what `files` lists, and count it the same way; what goes with partitions is left to the expiry of snapshots."""
        files = self.files()
        done = self.delete(delete)
        if self.what == PARTITIONS or not done.removed:
            return done
        return replace(done, files=len(files), size=sum(file.size or 0 for file in files))


def plan_expire(context: TableContext, request: ExpireRequest, progress: Progress) -> Expiry:
    """Read what goes; nothing is changed but a missing EARLIEST hint when an expiry finds nothing."""
    plans = {
        SNAPSHOTS: _snapshots,
        PARTITIONS: _partitions,
        CHANGELOGS: _changelogs,
        TAGS: _tags,
        CONSUMERS: _consumers,
    }
    return plans[request.what](context, request, progress)


def _retention(context: TableContext, own: Retention, request: ExpireRequest) -> Retention:
    return own.asking(context, request.retain_max, request.retain_min, request.older_than, request.limit)


def _snapshots(context: TableContext, request: ExpireRequest, progress: Progress) -> Expiry:
    retention = _retention(context, Retention.of(context.options), request)
    with phase(progress, "Reading snapshots", len(expiring_range(context, retention))):
        plan = plan_expiry(context, retention, progress.advance)
    names = () if plan is None else tuple(map(str, plan.snapshot_ids))

    def files() -> list[DoomedFile]:
        return [] if plan is None else measured(context, doomed_now(context, plan))

    def run(delete: DeleteFiles) -> Expired:
        return Expired(SNAPSHOTS, tuple(map(str, carry_out(context, plan, delete).snapshots)))

    return Expiry(SNAPSHOTS, names, files, run)


def _changelogs(context: TableContext, request: ExpireRequest, progress: Progress) -> Expiry:
    plan = plan_changelogs(context, _retention(context, changelog_retention(context), request))
    names = () if plan is None else tuple(str(changelog.id) for changelog in plan.expiring)

    def files() -> list[DoomedFile]:
        return [] if plan is None else measured(context, doomed_changelogs(context, plan))

    def run(delete: DeleteFiles) -> Expired:
        if plan is not None:
            expire_changelogs(context, plan, delete)
        return Expired(CHANGELOGS, names)

    return Expiry(CHANGELOGS, names, files, run)


def _tags(context: TableContext, request: ExpireRequest, progress: Progress) -> Expiry:
    removal = plan_removal(context, expired_tags(context, request.older_than)[: request.limit])

    def files() -> list[DoomedFile]:
        tags = [DoomedFile(context.layout.tag(name), "tag") for name in removal.names]
        return measured(context, [*tags, *doomed_with(context, removal)])

    def run(delete: DeleteFiles) -> Expired:
        remove_tags(context, removal, delete)
        return Expired(TAGS, removal.names)

    return Expiry(TAGS, removal.names, files, run)


def _consumers(context: TableContext, request: ExpireRequest, progress: Progress) -> Expiry:
    names = tuple(consumer.name for consumer in expired_consumers(context, request.older_than))

    def files() -> list[DoomedFile]:
        return measured(context, [DoomedFile(context.layout.consumer(name), "consumer") for name in names])

    def run(delete: DeleteFiles) -> Expired:
        return Expired(CONSUMERS, tuple(consumer.name for consumer in expire_consumers(context, request.older_than)))

    return Expiry(CONSUMERS, names, files, run)


def _partitions(context: TableContext, request: ExpireRequest, progress: Progress) -> Expiry:
    def named(plan: PartitionPlan) -> tuple[str, ...]:
        return tuple(partition_text(context, found.partition) for found in plan.expired)

    plan = plan_partitions(context, request.older_than, request.limit)

    def files() -> list[DoomedFile]:
        paths = [context.layout.root + "/" + context.partition_path_of(found.partition) for found in plan.expired]
        return [DoomedFile(path.rstrip("/"), "partition", found.size) for path, found in zip(paths, plan.expired, strict=True)]

    def run(delete: DeleteFiles) -> Expired:
        done, result = expire_partitions(context, request.older_than, request.limit)
        snapshot = result.snapshots[-1].id if result.snapshots else None
        return Expired(PARTITIONS, named(done), snapshot=snapshot)

    return Expiry(PARTITIONS, named(plan), files, run)
