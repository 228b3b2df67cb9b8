"""The names of all files that any version of any branch uses, which orphan cleaning keeps (FORMAT.md, section 13.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.side_by_side import side_by_side
from paimon_cli.maintain.snapshot_files import manifest_lists
from paimon_cli.metadata.data_file import ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import CHANGELOG_PREFIX, MAIN_BRANCH, SNAPSHOT_PREFIX, TAG_PREFIX, parse_numbered


@dataclass(frozen=True)
class VersionFile:
    """The file of a snapshot, tag or changelog. `mark` differs when a file of that name was made anew."""

    path: str
    mark: tuple[int, int]
    is_changelog: bool


@dataclass
class UsedNames:
    """Grows with every `look`; `job_of` maps the stamp in the names of data files to the snapshot whose commit wrote them."""

    context: TableContext
    names: set[str] = field(default_factory=set)
    job_of: dict[str, Snapshot] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)
    _versions: set[VersionFile] = field(default_factory=set)

    def look(self) -> int:
        """Read all versions that were not seen yet; returns how many there are now.

        `DamagedFile` if something that an existing version names cannot be read: then it is unknown what is used.
        """
        versions = [version for branch in self._branches() for version in _versions(branch)]
        for version in versions:
            if version not in self._versions:
                self._take_in(version)
                self._versions.add(version)
        return len(versions)

    def _branches(self) -> list[TableContext]:
        names = [MAIN_BRANCH, *self.context.branches.directories()]
        return [self.context.seen_from(name) for name in names]

    def _take_in(self, version: VersionFile) -> None:
        storage = self.context.storage
        try:
            snapshot = Snapshot.from_json(storage.read_bytes(version.path), version.path)
            self._take_in_files(snapshot, version.is_changelog)
        except FileNotFoundError:
            return
        except DamagedFile:
            if storage.exists(version.path):
                raise

    def _take_in_files(self, snapshot: Snapshot, is_changelog: bool) -> None:
        manifests = self.context.manifests
        if snapshot.statistics is not None:
            self.names.add(snapshot.statistics)
        if snapshot.index_manifest is not None and snapshot.index_manifest not in self._read:
            self.names.update(entry.index_file.file_name for entry in manifests.index_manifest(snapshot.index_manifest))
            self.names.add(snapshot.index_manifest)
            self._read.add(snapshot.index_manifest)
        new: list[ManifestFileMeta] = []
        for name, size in manifest_lists(snapshot):
            self.names.add(name)
            # Expiry leaves only some lists to a long-lived changelog.
            if is_changelog and not self.context.storage.exists(self.context.layout.manifest(name)):
                continue
            new += [meta for meta in manifests.manifest_list(name, size) if meta.file_name not in self._read]
        own = {meta.file_name for meta in manifests.manifest_list(snapshot.delta_manifest_list)} if not is_changelog else set()
        unread = list({meta.file_name: meta for meta in new}.values())
        if is_changelog:
            unread = [meta for meta in unread if self.context.storage.exists(self.context.layout.manifest(meta.file_name))]
        for meta, names in zip(unread, side_by_side(self.context, self._names_in, unread), strict=True):
            self.names.update(names)
            self.names.add(meta.file_name)
            self._read.add(meta.file_name)
            if meta.file_name in own:
                self.job_of.update((stamp_of(name), snapshot) for name in names)

    def _names_in(self, meta: ManifestFileMeta) -> list[str]:
        return [name for entry in self.context.manifests.manifest(meta.file_name, meta.file_size) for name in _names(entry)]


def stamp_of(name: str) -> str:
    """What the names of one writer's files share: the UUID after the prefix."""
    parts = name.split("-")
    return "-".join(parts[1:6]) if len(parts) > 6 else name


def _names(entry: ManifestEntry) -> tuple[str, ...]:
    """ADD and DELETE alike: an older version may need what a newer one deletes."""
    return (entry.file.file_name, *entry.file.extra_files)


def _versions(context: TableContext) -> Iterator[VersionFile]:
    """By listing, so that a look at a long history that has not changed costs little."""
    layout, storage = context.layout, context.storage
    for status in storage.list_directory(layout.tag_directory):
        if status.name.startswith(TAG_PREFIX) and not status.is_directory:
            yield VersionFile(status.path, (status.size, status.modified_millis), False)
    for status in storage.list_directory(layout.changelog_directory):
        if parse_numbered(CHANGELOG_PREFIX, status.name) is not None:
            yield VersionFile(status.path, (status.size, status.modified_millis), True)
    newest = 0
    for status in storage.list_directory(layout.snapshot_directory):
        number = parse_numbered(SNAPSHOT_PREFIX, status.name)
        if number is not None:
            newest = max(newest, number)
            yield VersionFile(status.path, (status.size, status.modified_millis), False)
    latest = context.snapshots.latest_id() or 0
    for number in context.snapshots.likely_ids(newest + 1, latest):  # a listing may be stale
        yield VersionFile(layout.snapshot(number), (0, 0), False)
