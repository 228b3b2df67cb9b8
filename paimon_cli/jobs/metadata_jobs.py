"""`drop-partition`, `truncate`, `rollback` and `compact-manifests`: jobs that commit without reading rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, Deduplication, fresh_identity
from paimon_cli.commit.prepared_snapshot import manifests_worth_rewriting
from paimon_cli.errors import DamagedFile, NotFound, StorageUnavailable
from paimon_cli.history.partition_spec import PartitionSpec, PartitionValues
from paimon_cli.history.points_in_time import past_millis, version_point
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tiered_rows import expect_not_tiered
from paimon_cli.history.unfinished_rescale import count_that_fits
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.reclaim_job import deletion
from paimon_cli.jobs.table_change import again_on_conflict
from paimon_cli.maintain.restore_as_new import BucketDifference, differences, restore_as_new
from paimon_cli.maintain.rollback import RollbackPlan, RollbackTarget, roll_back, rollback_target
from paimon_cli.metadata.data_file import BucketId, FileFilter
from paimon_cli.metadata.snapshot import RowOperation, Snapshot


@dataclass(frozen=True)
class Dropped:
    """What was dropped; `rows` are counted before merging. `already_committed`: an earlier or concurrent run made this commit."""

    partitions: int
    files: int
    rows: int
    snapshots: tuple[Snapshot, ...] = ()
    already_committed: bool = False


COMMITTED_BEFORE = Dropped(0, 0, 0, already_committed=True)


def plan_drop(context: TableContext, partitions: Sequence[PartitionValues], identity: CommitIdentity) -> Dropped:
    """Count what these partitions (none: the whole table) hold now. Raises `UsageError` for an invalid partition, `Refused` for a
    table into which Fluss moves rows.
    """
    expect_not_tiered(context, "drop partitions of" if partitions else "truncate")
    chosen = PartitionSpec.parse_any(context, partitions)
    if Deduplication(context, identity).already_committed():
        return COMMITTED_BEFORE
    latest = context.snapshots.latest()
    entries = [] if latest is None else context.manifests.live_entries(latest, FileFilter(chosen.matches))
    return Dropped(len({entry.partition for entry in entries}), len(entries), sum(entry.file.row_count for entry in entries))


def run_drop(context: TableContext, partitions: Sequence[PartitionValues], plan: Dropped, identity: CommitIdentity) -> Dropped:
    """Commit the drop, including files that other jobs add in the meantime."""
    chosen = PartitionSpec.parse_any(context, partitions)
    committer = Committer(context, operation=RowOperation.TRUNCATE if not partitions else RowOperation.DELETE)
    result = committer.overwrite([], identity, replaced_partitions=chosen.matches)
    return COMMITTED_BEFORE if result.already_committed else replace(plan, snapshots=result.snapshots)


@dataclass(frozen=True)
class ManifestsPlan:
    """The manifests of a snapshot, and those that a full compaction rewrites: their number, bytes, ADD and DELETE entries."""

    snapshot_id: int | None
    manifests: int = 0
    size: int = 0
    rewritten: int = 0
    rewritten_bytes: int = 0
    added: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class ManifestsSummary:
    """Manifests and their bytes before and after. `snapshots` is empty if there was nothing to gain."""

    manifests_before: int
    manifests_after: int
    bytes_before: int
    bytes_after: int
    snapshots: tuple[Snapshot, ...] = ()


def plan_manifest_compaction(context: TableContext) -> ManifestsPlan:
    """What `run_manifest_compaction` would rewrite now."""
    latest = context.snapshots.latest()
    if latest is None:
        return ManifestsPlan(None)
    manifests, rewritten = context.manifests.manifests_of(latest), manifests_worth_rewriting(context, latest)
    return ManifestsPlan(
        latest.id,
        len(manifests),
        sum(meta.file_size for meta in manifests),
        len(rewritten),
        sum(meta.file_size for meta in rewritten),
        sum(meta.num_added_files for meta in rewritten),
        sum(meta.num_deleted_files for meta in rewritten),
    )


def run_manifest_compaction(context: TableContext, plan: ManifestsPlan) -> ManifestsSummary:
    """Commit the same live files in as few manifests as possible, on top of commits that other jobs make meanwhile."""
    result = Committer(context).compact_manifests(fresh_identity(context))
    after = [meta for snapshot in result.snapshots for meta in context.manifests.manifests_of(snapshot)]
    if not result.snapshots:
        return ManifestsSummary(plan.manifests, plan.manifests, plan.size, plan.size)
    return ManifestsSummary(plan.manifests, len(after), plan.size, sum(meta.file_size for meta in after), result.snapshots)


@dataclass(frozen=True)
class RolledBack:
    """The result of a rollback. `target`: the snapshot whose state the table has now; `snapshot`: the newest snapshot.

    `files`: the number of deleted files; `copied`: bytes of copied data files. `compacted`: number of buckets that were compacted
    after a rollback as a new commit; `compaction_lost`: why that failed; `waiting_records`: stored records in the restored
    buckets that reads do not show before a compaction, None if that cannot be told. `fitting_buckets`: the count for `rescale` if
    these files have another bucket count than the table's option, which a rollback leaves alone: writers refuse them until then.
    """

    target: int
    snapshot: int
    snapshots_removed: int = 0
    tags_removed: tuple[str, ...] = ()
    files: int = 0
    copied: int = 0
    compacted: int = 0
    compaction_lost: str | None = None
    waiting_records: int | None = 0
    fitting_buckets: int | None = None


def find_target(context: TableContext, text: str) -> RollbackTarget:
    """The target that a text names: a snapshot, a tag, or a time, for the newest snapshot at that time.

    Raises `NotFound`, and `UsageError` for a time in the future.
    """
    point = version_point(context, text)
    if point.tag is not None:
        return rollback_target(context, tag=text)
    if point.snapshot_id is not None:
        return rollback_target(context, snapshot_id=point.snapshot_id)
    past_millis(context, text)
    return RollbackTarget(point.snapshot(context))


def run_rollback(context: TableContext, plan: RollbackPlan, progress: Progress) -> RolledBack:
    """Remove the snapshots after the target from the history."""
    fitting = count_that_fits(context, plan.target)
    count = 0 if plan.is_needless else roll_back(context, plan, deletion(context, None, progress))
    files = count + len(plan.removed_ids) + len(plan.tags) + len(plan.changelogs)
    return RolledBack(plan.target.id, plan.target.id, len(plan.removed_ids), plan.tags, files, fitting_buckets=fitting)


def plan_restore(context: TableContext, target: Snapshot) -> tuple[Snapshot, list[BucketDifference]]:
    """The latest snapshot, and how its buckets differ from those of the target. Raises `NotFound` if there is no snapshot."""
    latest = context.snapshots.latest()
    if latest is None:
        raise NotFound(f"{context.address} has no snapshots", "there is nothing to roll back")
    return latest, differences(context, latest, target)


def run_restore(
    context: TableContext, target: Snapshot, engine: Engine, progress: Progress, compaction: str | None = None
) -> RolledBack:
    """Commit the target's state as a new snapshot; start again if another job wrote or compacted in the meantime.

    Then compact the restored buckets as a writer of the table does, or as `compaction` says: `after` or `none`. Raises
    `NotFound` if the target expires before its files are copied.
    """
    from paimon_cli.jobs.due_compaction import DueCompaction, compact_due, waiting_after  # imports what a compaction needs

    hint = "stop the writers for a while, or run the command again"
    try:
        (restored, snapshots, buckets), _ = again_on_conflict(context, functools.partial(_restore, context, target), hint)
    except (FileNotFoundError, NotFound, DamagedFile, StorageUnavailable) as error:
        _check_target(context, target, error)
        raise
    due = compact_due(context, buckets, engine, progress, compaction=compaction) if snapshots else DueCompaction()
    waiting = waiting_after(context, buckets, snapshots, due.snapshots)
    newest = due.snapshots[-1].id if due.snapshots else restored.snapshot
    return replace(restored, snapshot=newest, compacted=due.buckets, compaction_lost=due.lost, waiting_records=waiting)


def _restore(context: TableContext, target: Snapshot) -> tuple[RolledBack, tuple[Snapshot, ...], set[BucketId]]:
    """The result, the new snapshot, and the buckets that it changed."""
    latest, found = plan_restore(context, target)
    fitting = count_that_fits(context, target)
    if not found:
        return RolledBack(target.id, latest.id, fitting_buckets=fitting), (), set()
    result = restore_as_new(context, latest, target, found)
    newest = result.snapshots[-1].id if result.snapshots else latest.id
    copied = sum(difference.copied_bytes for difference in found)
    done = RolledBack(target.id, newest, copied=copied, fitting_buckets=fitting)
    return done, result.snapshots, {difference.bucket_id for difference in found if difference.missing}


def _check_target(context: TableContext, target: Snapshot, error: Exception) -> None:
    """Raise `NotFound` if neither its own file nor a tag keeps the snapshot: its files may then be deleted at any time."""
    is_tagged = any(tag.snapshot.id == target.id for tag in context.tags.all().values())
    if not is_tagged and context.snapshots.in_history(target.id) is None:
        raise NotFound(
            f"snapshot {target.id} of {context.address} has expired in the meantime",
            "an expiry deleted files that it needs; the table is unchanged",
            "go back to a newer snapshot, and tag the target first so that it cannot expire",
            snapshot_id=target.id,
        ) from error
