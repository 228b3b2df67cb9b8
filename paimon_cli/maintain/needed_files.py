"""The files that must stay because versions need them, on this branch or on others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.maintain.named_files import (
    FileKey,
    FileToDelete,
    as_kept,
    changelog_entries,
    data_files_to_delete,
    files_of_lists,
    index_files,
    kept_lists,
    key_of_file,
    lean,
    manifest_lists,
    statistics_files,
)
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import in_parallel

_TRIES = 5
_Found = TypeVar("_Found")


def undisturbed(context: TableContext, read: Callable[[], _Found]) -> _Found:
    """The result of `read`, which starts again if a version that it reads has expired meanwhile (`SnapshotGone`)."""
    for _ in range(_TRIES):
        try:
            return read()
        except SnapshotGone:
            continue
    why = "another job is deleting snapshots"
    raise NotFound(f"snapshots of {context.address} disappear while they are read", why, "try again when that job has ended")


@dataclass
class SharedManifests:
    """Caches decoded manifests for versions that are read one after the other, since neighbours share most of them."""

    context: TableContext
    _kept: OrderedDict[str, ManifestTable] = field(default_factory=OrderedDict)
    _size: int = 0

    def live(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Live files of a version, without keys and statistics."""
        manifests = self.context.manifests.manifests_of(snapshot)
        try:
            return FileTable.of(map(self._table, manifests)).live().entries()
        except DamagedFile as error:
            raise self.context.manifests.gone_or_damaged(snapshot, error) from error

    def delta(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """What the commit of a version added and removed. What was decoded already is not decoded again, nor is it kept for this:
        only one other version would ask for it.
        """
        reader = self.context.manifests
        manifests = reader.delta_manifests(snapshot)
        if any(meta.file_name not in self._kept for meta in manifests):
            return reader.delta_entries(snapshot)
        return [entry for meta in manifests for entry in self._table(meta).entries()]

    def _table(self, meta: ManifestFileMeta) -> ManifestTable:
        found = self._kept.pop(meta.file_name, None)
        if found is None:
            entries = self.context.manifests.manifest(meta.file_name, meta.file_size)
            found = ManifestTable.of([lean(entry) for entry in entries])
            self._size += len(found)
        self._kept[meta.file_name] = found
        while self._size > PIECES.needed_entries_kept and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1])
        return found


@dataclass
class NeededFiles:
    """Data files by key and metadata by path. `data` also holds changelog files, and the extra files of data files."""

    data: set[FileKey] = field(default_factory=set)
    metadata: set[str] = field(default_factory=set)

    def need_version(self, context: TableContext, snapshot: Snapshot, manifests: SharedManifests | None = None) -> None:
        """Add all files that a read of this version opens."""
        entries = (manifests or SharedManifests(context)).live(snapshot)
        self._need(entries)
        self._need_metadata(context, snapshot, kept_lists(context, snapshot))

    def need_changes(self, context: TableContext, snapshot: Snapshot, manifests: SharedManifests | None = None) -> None:
        """Add the files of this commit and its changelog: together with its predecessor's files, all that a read of it opens."""
        entries = (manifests or SharedManifests(context)).delta(snapshot)
        self._need(entry for entry in entries if entry.kind == EntryKind.ADD)
        self._need(changelog_entries(context, snapshot))
        self._need_metadata(context, snapshot, manifest_lists(snapshot))

    def need_history(self, context: TableContext, up_to: int | None = None) -> None:
        """Add all snapshots, tags and long-lived changelogs of the context's branch (up to the id `up_to`, if given).

        If an expiry interferes, it starts again.
        """
        undisturbed(context, lambda: self._need_history(context, up_to))

    def _need_history(self, context: TableContext, up_to: int | None) -> None:
        manifests = SharedManifests(context)
        self.need_snapshots(context, up_to, manifests)
        for name, tag in context.tags.all().items():
            if up_to is not None and tag.snapshot.id > up_to:
                continue
            try:
                self.need_version(context, tag.snapshot, manifests)
            except (DamagedFile, SnapshotGone):
                if context.storage.exists(context.layout.tag(name)):
                    raise
        self.need_changelogs(context, up_to=up_to)

    def need_snapshots(self, context: TableContext, up_to: int | None, manifests: SharedManifests) -> None:
        """Add all snapshots of the context's branch (up to the id `up_to`, if given).

        Raises `SnapshotGone` if one expires meanwhile; `undisturbed` starts again.
        """
        before = None
        ids = [number for number in all_ids(context) if up_to is None or number <= up_to]
        for snapshot in filter(None, in_parallel(context.snapshots.find, ids, context.read_threads)):
            try:
                if before != snapshot.id - 1:
                    snapshot = as_kept(context, snapshot)  # the first of a branch is that of a tag
                    self.need_version(context, snapshot, manifests)
                self.need_changes(context, snapshot, manifests)
            except DamagedFile as error:
                raise context.manifests.gone_or_damaged(snapshot, error) from error
            before = snapshot.id
        if ids and not context.snapshots.exists(ids[0]):  # later snapshots inherit files of those that have just expired
            raise SnapshotGone(f"snapshot {ids[0]} of {context.address} has expired while it was being read")

    def need_changelogs(self, context: TableContext, expiring: Collection[int] = (), up_to: int | None = None) -> None:
        """Add the files of expired snapshots whose changes can still be read: changelog files, or else the files added.

        A changelog producer writes all changes to changelog files. A snapshot that has none has no changes to be read then, and
        its manifest lists are not needed: Java deletes them, and keeps the changelog.
        """
        for changelog in ChangelogHistory(context.storage, context.layout).all():
            if changelog.id in expiring or (up_to is not None and changelog.id > up_to):
                continue
            if changelog.changelog_manifest_list is not None:
                self._need(changelog_entries(context, changelog))
                lists = [(changelog.changelog_manifest_list, changelog.changelog_manifest_list_size)]
            elif has_producer(context, changelog):
                continue
            else:
                self._need(entry for entry in context.manifests.delta_entries(changelog) if entry.kind == EntryKind.ADD)
                lists = manifest_lists(changelog)
            self.metadata.update(file.path for file in files_of_lists(context, lists))

    def _need(self, entries: Iterable[ManifestEntry]) -> None:
        for entry in entries:
            self.data.add(key_of_file(entry))
            self.data.update((entry.partition, entry.bucket, name) for name in entry.file.extra_files)

    def _need_metadata(self, context: TableContext, snapshot: Snapshot, lists: Sequence[tuple[str, int | None]]) -> None:
        if snapshot.index_manifest is None or context.layout.manifest(snapshot.index_manifest) not in self.metadata:
            self.metadata.update(file.path for file in index_files(context, snapshot))
        self.metadata.update(file.path for file in statistics_files(context, snapshot))
        self.metadata.update(file.path for file in files_of_lists(context, lists))


@dataclass
class _Elsewhere(NeededFiles):
    """Collects the files outside of the table, as `FileToDelete` by path."""

    context: TableContext | None = None
    found: dict[str, FileToDelete] = field(default_factory=dict)

    def _need(self, entries: Iterable[ManifestEntry]) -> None:
        assert self.context is not None
        for entry in entries:
            if entry.file.external_path is not None:
                self.found.update((file.path, file) for file in data_files_to_delete(self.context, entry, "data"))


def files_elsewhere(context: TableContext) -> list[FileToDelete]:
    """The data files outside of the table that some version of it names, on any branch, if it ever had such a place for them.

    Raises `Refused` for one at a place that the user does not allow.
    """
    found: dict[str, FileToDelete] = {}
    for branch in (context, *other_branches(context)):
        if _had_places_elsewhere(branch):
            collected = _Elsewhere(context=context)
            collected.need_history(branch)
            found.update(collected.found)
    return list(found.values())


def _had_places_elsewhere(branch: TableContext) -> bool:
    for number in branch.schemas.ids():
        with suppress(DamagedFile):
            schema = branch.schemas.find(number)
            if schema is not None and "data-file.external-paths" in schema.options:
                return True
    return False


def has_producer(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the table had a changelog producer when this snapshot was committed."""
    schema = context.schemas.find(snapshot.schema_id)
    options = context.options if schema is None else schema.typed_options
    return options.changelog_producer.writes_files


def all_ids(context: TableContext) -> list[int]:
    """All ids from the oldest snapshot on, including ones that a stale listing does not show."""
    listed, latest = context.snapshots.ids(), context.snapshots.latest_id()
    if latest is None:
        return listed
    oldest = min([*listed, latest])
    while oldest > 1 and context.storage.exists(context.layout.snapshot(oldest - 1)):
        oldest -= 1
    return context.snapshots.likely_ids(oldest, latest)


def other_branches(context: TableContext) -> list[TableContext]:
    """The table's other branches, including those that are being created."""
    names = [MAIN_BRANCH, *context.branches.directories()]
    return [context.seen_from(name) for name in names if name != context.branch]


def needed_by_other_branches(context: TableContext) -> NeededFiles:
    """The files that the other branches need: branches share data files, manifests and indexes."""
    needed = NeededFiles()
    for branch in other_branches(context):
        needed.need_history(branch)
    return needed
