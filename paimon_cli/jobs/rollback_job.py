"""`rollback`: which version is meant, and the two ways back to it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, NotFound, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.deletion import deletion
from paimon_cli.jobs.progress import Progress
from paimon_cli.jobs.table_change import again_on_conflict
from paimon_cli.maintain.restore_as_new import BucketDifference, differences, restore_as_new
from paimon_cli.maintain.rollback import RollbackPlan, RollbackTarget, roll_back, rollback_target
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import is_plain_name
from paimon_cli.options.size_and_duration import plain_number
from paimon_cli.read.time_travel import moment_of

_LEAST_MILLIS = 10**11
"""Numbers as long as this are epoch millis, not snapshots."""


@dataclass(frozen=True)
class RolledBack:
    """`target`: the state that the table has now, `snapshot` its newest snapshot; files and tags that went, bytes copied."""

    target: int
    snapshot: int
    snapshots_removed: int = 0
    tags_removed: tuple[str, ...] = ()
    files: int = 0
    copied: int = 0


def find_target(context: TableContext, text: str) -> RollbackTarget:
    """A snapshot id, a tag, or a time: the newest snapshot made until then. `NotFound`, `UsageError`."""
    number = plain_number(text)
    is_tag = is_plain_name(text) and context.tags.content(text) is not None
    if is_tag and (number is None or context.snapshots.find(number) is None):
        return rollback_target(context, tag=text)
    if number is not None and 0 <= number < _LEAST_MILLIS:
        return rollback_target(context, snapshot_id=number)
    millis = moment_of(text, context.clock.now_millis())
    snapshot = context.snapshots.at_time(millis)
    if snapshot is None:
        raise NotFound(
            f"no snapshot of {context.address} as old as {text}",
            "every snapshot is newer",
            f"paimon-cli snapshots ls {context.layout.argument}",
        )
    return RollbackTarget(snapshot)


def run_rollback(context: TableContext, plan: RollbackPlan, progress: Progress) -> RolledBack:
    """Take the later snapshots out of the history."""
    count = 0 if plan.is_needless else roll_back(context, plan, deletion(context, None, progress))
    files = count + len(plan.snapshots) + len(plan.tags) + len(plan.changelogs)
    return RolledBack(plan.target.id, plan.target.id, len(plan.snapshots), plan.tags, files)


def plan_restore(context: TableContext, target: Snapshot) -> tuple[Snapshot, list[BucketDifference]]:
    """The newest snapshot, and what its buckets have otherwise than the target's."""
    latest = context.snapshots.latest()
    if latest is None:
        raise NotFound(f"{context.address} has no snapshots", "there is nothing to roll back")
    return latest, differences(context, latest, target)


def run_restore(context: TableContext, target: Snapshot) -> RolledBack:
    """Commit the target's state as a new snapshot; again from the start if another job wrote or compacted meanwhile.

    `NotFound` if the target expires before its files are copied.
    """
    hint = "stop the writers for a while, or run the command again"
    try:
        restored, _ = again_on_conflict(context, functools.partial(_restore, context, target), hint)
    except (FileNotFoundError, NotFound, DamagedFile, StorageUnavailable) as error:
        _check_target(context, target, error)
        raise
    return restored


def _restore(context: TableContext, target: Snapshot) -> RolledBack:
    latest, found = plan_restore(context, target)
    if not found:
        return RolledBack(target.id, latest.id)
    result = restore_as_new(context, latest, found)
    newest = result.snapshots[-1].id if result.snapshots else latest.id
    return RolledBack(target.id, newest, copied=sum(difference.copied_bytes for difference in found))


def _check_target(context: TableContext, target: Snapshot, error: Exception) -> None:
    """`NotFound` if neither its own file nor a tag holds the snapshot any more: then its files may be gone at any time."""
    is_tagged = any(tag.snapshot.id == target.id for tag in context.tags.all().values())
    if not is_tagged and context.snapshots.in_history(target.id) is None:
        raise NotFound(
            f"snapshot {target.id} of {context.address} has expired meanwhile",
            "an expiry deleted files that it needs; the table is unchanged",
            "go back to a newer snapshot, or make a tag of the target first",
            snapshot_id=target.id,
        ) from error
