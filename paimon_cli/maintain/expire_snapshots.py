"""Snapshot expiry: deletes the oldest snapshots and the files that only they need (FORMAT.md, section 13.1).

The order of steps makes a crash harmless. First the plan reads all metadata that it needs. Then the snapshot files are deleted,
oldest first, so that no reader can start on a snapshot whose files are about to be deleted. After that tags and branches are
read, and files are deleted last. Either this sees a tag or branch that is created in between, or its creator, who checks
afterwards that the snapshot still exists, sees that it is gone. A crash leaves orphans.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from paimon_cli.commit.commit_records import forgotten_records
from paimon_cli.commit.snapshot_publish import publish_again
from paimon_cli.errors import Conflict, DamagedFile, NotFound, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.file_deletion import DeleteFiles, check_deletions, delete_files, how_to_delete_later
from paimon_cli.maintain.histories import behind_gaps, without_snapshot
from paimon_cli.maintain.named_files import (
    FileKey,
    FileToDelete,
    changelog_entries,
    data_files_to_delete,
    files_made_dead,
    files_of_lists,
    index_files,
    key_of_file,
    manifest_lists,
    metadata_paths,
    statistics_files,
    total_size,
)
from paimon_cli.maintain.needed_files import NeededFiles, SharedManifests, needed_by_other_branches
from paimon_cli.maintain.removed_versions import ranked
from paimon_cli.maintain.retention import Protections, Retention, expiring_range, overdue_resurrected, tagged_snapshots
from paimon_cli.metadata.data_file import SOURCE_COMPACT, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.option_text import counted
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.deletions import Deletions
from paimon_cli.storage.injected import moment_of_wall_clock
from paimon_cli.storage.threads import in_parallel

OnRead = Callable[[int], None]
_WALL_CLOCKS_MILLIS = 27 * 3_600_000
"""By how much clocks on walls around the world differ, and an hour."""


@dataclass(frozen=True)
class ExpirySummary:
    """Ids of the expired snapshots, how many files were deleted, and their size in bytes as far as metadata knows it."""

    snapshots: tuple[int, ...] = ()
    data_files: int = 0
    metadata_files: int = 0
    size: int = 0


@dataclass(frozen=True)
class ExpiryPlan:
    """Snapshots to expire, oldest first, and the files that may be deleted with them.

    `kept`: the oldest snapshot that stays. `dead`: snapshot id -> data files that this snapshot removed from the table.
    `changelogs`: changelog files, `metadata`: metadata files of the expiring snapshots. `resurrected`: expired snapshots that a
    slow writer published again; files that only they name are left to orphan cleaning.
    """

    snapshots: tuple[Snapshot, ...]
    kept: Snapshot
    dead: dict[int, list[ManifestEntry]]
    changelogs: list[ManifestEntry]
    metadata: list[FileToDelete]
    resurrected: tuple[int, ...] = ()

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """The ids of all snapshot files to delete."""
        return (*self.resurrected, *(snapshot.id for snapshot in self.snapshots))

    def data_files(self, context: TableContext, now: Protections) -> Iterator[FileToDelete]:
        """Dead files and changelog files that nothing protects."""
        dead = {key_of_file(entry): entry for entries in self.dead.values() for entry in entries}
        for key in dead.keys() & now.elsewhere.data:
            del dead[key]
        self._spare_tagged(SharedManifests(context), now, dead)
        for entry in dead.values():
            yield from data_files_to_delete(context, entry, "data")
        for entry in self.changelogs:
            if key_of_file(entry) not in now.elsewhere.data:
                yield from data_files_to_delete(context, entry, "changelog")

    def _spare_tagged(self, manifests: SharedManifests, now: Protections, dead: dict[FileKey, ManifestEntry]) -> None:
        """Take what tags need out of `dead`.

        In one history a tag needs a dead file only if the nearest tag before its end has it, too. Tags of another history
        (`histories`) may need what that lacks, and their numbers do not tell them: main has tagged its snapshot 5, and has become
        a branch that began at 2 and has tagged its own 3. So all tags are read but those that are older than all of these files.
        """
        tags = [tag for tag in now.tags if tag.id < self.kept.id]
        nearest = bisect_left([tag.id for tag in tags], min(self.dead, default=0)) - 1
        oldest = None
        for index in reversed(range(len(tags))):
            if not dead:
                return
            if index < nearest:
                oldest = _oldest_creation(dead.values()) if oldest is None else oldest
                if tags[index].time_millis < oldest:
                    continue
            for entry in manifests.live(tags[index]):
                dead.pop(key_of_file(entry), None)

    def metadata_files(self, context: TableContext, now: Protections) -> Iterator[FileToDelete]:
        """Metadata files that nothing protects, and old records of commits."""
        tags = [tag for tag in now.tags if tag.id < self.kept.id]
        tagged = {path for tag in tags for path in metadata_paths(context, tag)}
        yield from (file for file in self.metadata if file.path not in tagged and file.path not in now.elsewhere.metadata)
        yield from (FileToDelete(path, "commit record", 0) for path in forgotten_records(context))


def _oldest_creation(entries: Iterable[ManifestEntry]) -> int:
    """The earliest moment, in epoch millis, at which one of these files may have been made. Files name the time of a clock on the
    wall, and not where it hangs; 0 if one names none.
    """
    oldest = min((entry.file.creation_time_millis or 0 for entry in entries), default=0)
    return moment_of_wall_clock(oldest) - _WALL_CLOCKS_MILLIS if oldest else 0


def expire_snapshots(context: TableContext, retention: Retention | None = None) -> ExpirySummary:
    """Plan and carry out an expiry with this retention (default: the table's options).

    May run concurrently with writers and other expiries. Raises `DamagedFile` if metadata that stays cannot be read.
    """
    plan = plan_expiry(context, retention or Retention.of(context.options))
    return carry_out(context, plan, delete_files(context))


def plan_expiry(context: TableContext, retention: Retention, on_read: OnRead | None = None) -> ExpiryPlan | None:
    """Determine what may be deleted, without changing anything. None if nothing expires, or another job is expiring more.

    `on_read` is called with 1 for each snapshot read.
    """
    expiring, resurrected = expiring_range(context, retention), overdue_resurrected(context, retention)
    kept = _oldest_kept(context, expiring) if expiring else None
    if kept is not None:
        expiring = range(expiring.start, kept.id)
        try:
            return replace(_plan_of(context, expiring, kept, on_read), resurrected=resurrected)
        except DamagedFile as error:
            raise context.manifests.gone_or_damaged(kept, error) from error
    oldest = context.snapshots.earliest_id() if resurrected else None
    kept = None if oldest is None else context.snapshots.find(oldest)
    return None if kept is None else ExpiryPlan((), kept, {}, [], [], resurrected)


def _oldest_kept(context: TableContext, expiring: range) -> Snapshot | None:
    """The oldest snapshot that stays; None if another job is expiring more.

    It is not always the one at `expiring.stop`: main has a gap in its history after a fast-forward to a branch whose oldest
    snapshots had expired. Where 2, 3, 10 and 11 are there and ids from 9 on stay, it is 10; files that only 3 and its lost
    successors need are left to orphan cleaning.
    """
    kept = context.snapshots.find(expiring.stop)
    if kept is not None:
        return kept
    ids = context.snapshots.ids()
    later = [number for number in ids if number >= expiring.stop]
    return context.snapshots.find(later[0]) if later and ids[0] < expiring.stop else None


def carry_out(context: TableContext, plan: ExpiryPlan | None, delete: DeleteFiles) -> ExpirySummary:
    """Delete the plan's snapshots, and those of its files that nothing protects.

    Without a plan, only a missing EARLIEST hint is written, as Java does.
    """
    if plan is None:
        _write_missing_hint(context)
        return ExpirySummary()
    gone: list[int] = []
    try:
        _delete_snapshots(context, plan, gone)
        return _delete_their_files(context, plan, delete)
    except StorageUnavailable as error:
        if gone:
            which = str(gone[0]) if len(gone) == 1 else f"{gone[0]} to {gone[-1]}"
            error.extend_why(f"before that, {counted(len(gone), 'snapshot')} had been deleted: {which}")
            error.set_hint(how_to_delete_later(context, error.path))
        raise


def _delete_their_files(context: TableContext, plan: ExpiryPlan, delete: DeleteFiles) -> ExpirySummary:
    """Delete the files. If the storage refuses some, all others go nevertheless: orphans are found without their manifests."""
    now = _current_protections(context, plan)
    of_data, of_metadata = Deletions(), Deletions()
    data = list(plan.data_files(context, now))
    of_data.run(lambda: delete(file.path for file in data))
    metadata = list(plan.metadata_files(context, now))
    for files in ranked(metadata):
        of_metadata.run(partial(delete, files))
    if context.options.snapshot_clean_empty_directories:
        _remove_empty_directories(context, data)
    done = Deletions()
    done.add(of_data)
    done.add(of_metadata)
    check_deletions(context, done)
    return ExpirySummary(plan.snapshot_ids, of_data.deleted, of_metadata.deleted, total_size(data) + total_size(metadata))


def _remove_empty_directories(context: TableContext, data: list[FileToDelete]) -> None:
    """Remove bucket directories that lost their last file, then empty partition directories, if the storage has directories."""
    directories = {file.path.rpartition("/")[0] for file in data}
    for _ in context.schema.partition_keys:
        directories |= {path.rpartition("/")[0] for path in directories}
    for directory in sorted(directories - {context.url}, key=lambda path: (-path.count("/"), path)):
        remove_empty_directory(context.storage, directory)


def _write_missing_hint(context: TableContext) -> None:
    earliest = context.snapshots.earliest_id()
    if earliest is not None and not context.storage.exists(context.layout.earliest_hint):
        point_at_earliest(context, earliest)


def point_at_earliest(context: TableContext, snapshot_id: int) -> None:
    """Write the EARLIEST hint. Readers check that its snapshot exists, so a failure is ignored."""
    with contextlib.suppress(StorageUnavailable):
        context.storage.overwrite(context.layout.earliest_hint, str(snapshot_id).encode())


def files_to_delete_now(context: TableContext, plan: ExpiryPlan) -> list[FileToDelete]:
    """All files that `carry_out` would delete now, snapshot files first."""
    now = _current_protections(context, plan)
    snapshots = [FileToDelete(context.layout.snapshot(number), "snapshot") for number in plan.snapshot_ids]
    return [*snapshots, *plan.data_files(context, now), *plan.metadata_files(context, now)]


def bytes_to_write(context: TableContext, plan: ExpiryPlan) -> int:
    """The bytes of the changelogs that `carry_out` writes in place of snapshots; hints aside."""
    return sum(len(_as_changelog(snapshot)) for snapshot in plan.snapshots) if context.options.changelogs_outlive_snapshots else 0


def _as_changelog(snapshot: Snapshot) -> bytes:
    """The long-lived changelog that outlives a snapshot."""
    return snapshot.to_json().encode()


def _current_protections(context: TableContext, plan: ExpiryPlan) -> Protections:
    """Read tags before branches: a job that creates a branch from a tag checks afterwards that the tag still exists."""
    tags = tagged_snapshots(context)
    elsewhere = needed_by_other_branches(context)
    elsewhere.need_changelogs(context)
    newer = [tag for tag in tags if tag.id >= plan.kept.id]
    manifests = SharedManifests(context)
    for version in (*behind_gaps(context, plan.snapshot_ids), *without_snapshot(context, newer)):
        elsewhere.need_version(context, version, manifests)
    return Protections(tags, elsewhere)


def _delete_snapshots(context: TableContext, plan: ExpiryPlan, deleted: list[int]) -> None:
    """Delete the snapshot files. If changelogs outlive snapshots, each snapshot becomes a long-lived changelog first.

    They are deleted one by one, oldest first: a slow writer takes the snapshot before its own as a sign that its own has not
    expired (`snapshot_publish`), and a gap would make readers take the older snapshots for resurrected ones. So none is deleted
    after one that the storage refuses. `deleted` receives the ids of those that are gone.

    A concurrent rollback may remove the snapshot that is to stay. It checks afterwards that its target still exists, as this
    function does for the snapshot to stay, so that one of them sees the other. Raises `Conflict`.
    """
    storage, layout = context.storage, context.layout
    gone: list[Snapshot] = []
    for number in sorted({*plan.resurrected} & {*context.snapshots.resurrected_ids()}):
        storage.delete(layout.snapshot(number))
        deleted.append(number)
    for snapshot in plan.snapshots:
        if context.snapshots.find(plan.kept.id) != plan.kept:
            break
        if context.options.changelogs_outlive_snapshots:
            storage.overwrite(layout.changelog(snapshot.id), _as_changelog(snapshot))
        storage.delete(layout.snapshot(snapshot.id))
        gone.append(snapshot)
        deleted.append(snapshot.id)
    if _is_rolled_back(context, plan.kept):
        _put_back(context, gone)
        what = f"snapshots of {context.address} were not expired"
        raise Conflict(what, f"a rollback has removed snapshot {plan.kept.id}, the oldest one that was to stay", "run it again")
    if context.options.changelogs_outlive_snapshots and plan.snapshots:
        storage.overwrite(layout.latest_changelog_hint, str(plan.snapshots[-1].id).encode())
    if plan.snapshots:
        point_at_earliest(context, plan.kept.id)


def _is_rolled_back(context: TableContext, kept: Snapshot) -> bool:
    """Whether a rollback has removed the snapshot, so that the plan is void: files that are dead there may be live now.

    Another commit may have its number by now. An expiry that removes it leaves a later one.
    """
    found = context.snapshots.find(kept.id)
    return found != kept if found is not None else (context.snapshots.latest_id() or 0) < kept.id


def _put_back(context: TableContext, gone: Sequence[Snapshot]) -> None:
    """Publish the deleted snapshots again, up to the target of the rollback, which it has written into the LATEST hint first."""
    target = context.snapshots.latest_hint()
    for snapshot in reversed(gone):
        if target is None or snapshot.id <= target:
            publish_again(context, snapshot.id, snapshot.to_json().encode())


def _plan_of(context: TableContext, expiring: range, kept: Snapshot, on_read: OnRead | None = None) -> ExpiryPlan:
    """The plan for these snapshot ids. Files of metadata that cannot be read are left to orphan cleaning."""
    numbers = context.snapshots.likely_ids(expiring.start, expiring.stop - 1)
    existing = in_parallel(context.snapshots.find, numbers, context.read_threads)
    snapshots = [snapshot for snapshot in existing if snapshot is not None]
    reader = _Reader(context, NeededFiles(metadata=set(metadata_paths(context, kept))))
    dead: dict[int, list[ManifestEntry]] = {}
    changelogs: list[ManifestEntry] = []
    metadata: dict[str, FileToDelete] = {}
    for entries, files in in_parallel(reader.files_of, snapshots, context.read_threads):
        changelogs += entries
        metadata.update((file.path, file) for file in files)
        if on_read is not None:
            on_read(1)
    later = (*snapshots[1:], kept)
    for snapshot, removed in zip(later, in_parallel(reader.made_dead, later, context.read_threads), strict=True):
        dead[snapshot.id] = removed
    return ExpiryPlan(tuple(snapshots), kept, dead, changelogs, list(metadata.values()))


@dataclass(frozen=True)
class _Reader:
    """Reads which files can be deleted with a snapshot. `needed`: the metadata files of the oldest snapshot that stays."""

    context: TableContext
    needed: NeededFiles
    _indexes: set[str] = field(default_factory=set)

    def files_of(self, snapshot: Snapshot) -> tuple[list[ManifestEntry], list[FileToDelete]]:
        """Changelog files and metadata to delete, except those of a changelog that is kept (Java SnapshotDeletion)."""
        outlives = self.context.options.changelogs_outlive_snapshots
        produces = self.context.options.changelog_producer.writes_files
        lists = [] if outlives and not produces else manifest_lists(snapshot, changelog=not outlives)
        try:
            changelogs = [] if outlives else changelog_entries(self.context, snapshot)
            indexes = [*self._index_files(snapshot), *statistics_files(self.context, snapshot)]
            files = [*indexes, *files_of_lists(self.context, lists)]
        except (DamagedFile, NotFound):
            return [], []
        return changelogs, [file for file in files if file.path not in self.needed.metadata]

    def _index_files(self, snapshot: Snapshot) -> Iterator[FileToDelete]:
        """The snapshot's index files, unless they were returned for another one: most snapshots share the index manifest."""
        name = snapshot.index_manifest
        if name is None or name not in self._indexes:
            yield from index_files(self.context, snapshot)
        if name is not None:
            self._indexes.add(name)

    def made_dead(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Data files that the snapshot removed. Without a changelog producer, files of writers serve as the changelog, and are
        kept as long as it is.
        """
        options = self.context.options
        try:
            dead = files_made_dead(self.context, snapshot)
        except (DamagedFile, NotFound):
            return []
        if options.changelogs_outlive_snapshots and not options.changelog_producer.writes_files:
            return [entry for entry in dead if entry.file.file_source == SOURCE_COMPACT]
        return dead
