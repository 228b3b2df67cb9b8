"""Expiry of long-lived changelogs, which hold the changes of expired snapshots (FORMAT.md, section 13.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.maintain.file_deletion import DeleteFiles
from paimon_cli.maintain.histories import behind_gaps
from paimon_cli.maintain.named_files import (
    FileToDelete,
    changelog_entries,
    data_files_to_delete,
    files_of_lists,
    key_of_file,
    manifest_lists,
    metadata_paths,
)
from paimon_cli.maintain.needed_files import NeededFiles, SharedManifests, has_producer, needed_by_other_branches
from paimon_cli.maintain.removed_versions import (
    CHANGELOGS,
    DiscardedVersions,
    RemovalRecord,
    delete_named_first,
    finish_removals,
    kept_by_changelog,
    needed_up_to,
    record_removal,
    unfinished_removals,
)
from paimon_cli.maintain.retention import Retention, oldest_consumed, tagged_snapshots
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.capabilities import keep_deleted


@dataclass(frozen=True)
class ChangelogPlan:
    """Changelogs to expire, oldest first. `kept`: the oldest changelog that stays, None if all expire.

    `unfinished`: what earlier expiries that were killed have left.
    """

    expiring: tuple[Snapshot, ...]
    kept: Snapshot | None
    unfinished: tuple[RemovalRecord, ...] = ()

    @property
    def ids(self) -> list[int]:
        """The changelogs that expire, and those that have expired without their files."""
        left = {changelog.id for record in self.unfinished for changelog in record.versions.commits}
        return sorted(left.union(changelog.id for changelog in self.expiring))

    @property
    def versions(self) -> DiscardedVersions:
        return DiscardedVersions(commits=self.expiring, unfinished=self.unfinished)


def changelog_retention(context: TableContext) -> Retention:
    """The retention in the options `changelog.*`; unset ones default to the snapshot option."""
    options = context.options
    return Retention(
        options.changelog_num_retained_min,
        options.changelog_num_retained_max,
        options.changelog_time_retained,
        options.snapshot_expire_limit,
    )


def plan_changelogs(context: TableContext, retention: Retention) -> ChangelogPlan | None:
    """Select the changelogs to expire, None if there are none. The newest stays as long as snapshots become changelogs."""
    unfinished = tuple(unfinished_removals(context, CHANGELOGS))
    changelogs = ChangelogHistory(context.storage, context.layout).all()
    latest = context.snapshots.latest_id()
    if not changelogs or latest is None:
        return ChangelogPlan((), None, unfinished) if unfinished else None
    stop = latest - max(retention.at_least, 1) + 1
    consumed = oldest_consumed(context)
    if consumed is not None:
        stop = min(stop, consumed)
    if retention.limit is not None:
        stop = min(stop, changelogs[0].id + retention.limit)
    if context.options.changelogs_outlive_snapshots:
        stop = min(stop, changelogs[-1].id)
    first_by_age = latest - retention.at_most + 1
    young = context.clock.now_millis() - retention.millis
    kept = next((c for c in changelogs if c.id >= stop or (c.id >= first_by_age and c.time_millis >= young)), None)
    expiring = tuple(c for c in changelogs if kept is None or c.id < kept.id)
    return ChangelogPlan(expiring, kept, unfinished) if expiring or unfinished else None


def files_removed_with_changelogs(context: TableContext, plan: ChangelogPlan) -> list[FileToDelete]:
    """All files that carrying out the plan removes: data files and manifests, then the changelogs themselves."""
    needed = _needed(context, plan)
    removed: dict[str, FileToDelete] = {}
    for changelog in plan.expiring:
        try:
            files = [*_data_files(context, changelog, needed), *_metadata_files(context, changelog)]
        except (DamagedFile, NotFound):  # left incomplete by an interrupted expiry; the rest is found as orphans
            continue
        removed.update((file.path, file) for file in files if file.path not in needed.metadata)
    if plan.unfinished:
        left = replace(plan.versions, commits=()).files_to_delete(context, needed_up_to(context))
        removed.update((file.path, file) for file in left if file.path not in removed)
    return list(removed.values())


def expire_changelogs(context: TableContext, plan: ChangelogPlan, delete: DeleteFiles) -> int:
    """Carry out the plan. Returns how many files were deleted with the changelogs.

    The files are listed first; then the changelogs are deleted, so that a crash leaves orphans, which a repetition deletes; then
    the files, unless something has come to need them.
    """
    files = files_removed_with_changelogs(context, plan)
    storage, layout = context.storage, context.layout
    record = record_removal(context, CHANGELOGS, plan.versions)
    for changelog in plan.expiring:
        storage.delete(layout.changelog(changelog.id))
    if plan.kept is None:
        storage.delete(layout.earliest_changelog_hint)
        storage.delete(layout.latest_changelog_hint)
    else:
        storage.overwrite(layout.earliest_changelog_hint, str(plan.kept.id).encode())
    keep_deleted(storage, layout.changelog_directory)
    needed = _needed(context, plan)
    count = delete_named_first((file for file in files if file.path not in needed.metadata), delete)
    finish_removals(context, record, plan.versions)
    return count


def _needed(context: TableContext, plan: ChangelogPlan) -> NeededFiles:
    """Files that tags, other branches, the oldest snapshot and the remaining changelogs need."""
    needed = needed_by_other_branches(context)
    manifests = SharedManifests(context)
    for tag in tagged_snapshots(context):
        needed.need_version(context, tag, manifests)
    earliest = context.snapshots.earliest_id()
    oldest = None if earliest is None else context.snapshots.find(earliest)
    for snapshot in (*([] if oldest is None else [oldest]), *behind_gaps(context)):
        needed.metadata.update(metadata_paths(context, snapshot))
        needed.data.update(key_of_file(entry) for entry in manifests.live(snapshot))
    needed.need_changelogs(context, {changelog.id for changelog in plan.expiring})
    return needed


def _data_files(context: TableContext, changelog: Snapshot, needed: NeededFiles) -> Iterator[FileToDelete]:
    if changelog.changelog_manifest_list is not None:
        entries, kind = changelog_entries(context, changelog), "changelog"
    else:
        entries, kind = kept_by_changelog(context, changelog), "data"
    for entry in entries:
        if key_of_file(entry) not in needed.data:
            yield from data_files_to_delete(context, entry, kind)


def _metadata_files(context: TableContext, changelog: Snapshot) -> Iterator[FileToDelete]:
    if changelog.changelog_manifest_list is not None:
        lists = [(changelog.changelog_manifest_list, changelog.changelog_manifest_list_size)]
    else:  # beside a producer, they went with the snapshot
        lists = [] if has_producer(context, changelog) else manifest_lists(changelog)
    yield from files_of_lists(context, lists)
    yield FileToDelete(context.layout.changelog(changelog.id), "long-lived changelog")
