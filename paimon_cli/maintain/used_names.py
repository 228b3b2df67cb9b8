"""The names of all files that the versions of a table use, on all branches: what orphan cleaning must not delete.

A data file is used if it is live in a snapshot or tag. That manifests mention it is not enough: those of a tag name files that
were added and deleted before it, and an expiry that was killed may have left such files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.named_files import manifest_lists
from paimon_cli.metadata.data_file import EntryKind, FileIdentity, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import CHANGELOG_PREFIX, MAIN_BRANCH, SNAPSHOT_PREFIX, TAG_PREFIX, parse_numbered


@dataclass(frozen=True)
class VersionFile:
    """The file of a snapshot, tag or changelog. `mark` differs if a file of that name was created again.

    `keeps_changelog`: not a tag, nor the first snapshot of a history, which may be that of a tag (`named_files.as_kept`).
    """

    path: str
    mark: tuple[int, int]
    is_changelog: bool = False
    keeps_changelog: bool = True


@dataclass
class MentionedFiles:
    """The data files that a manifest mentions: `names` of all of them, with their extra files.

    `unseen`: files that it adds, with their names, until they are compared with a version. `deleted`: files that it deletes.
    `dead`: files that it adds and that were in no version so far, by the manifest that deletes them; where that one is missing
    they are live.
    """

    names: tuple[str, ...]
    unseen: dict[FileIdentity, tuple[str, ...]]
    deleted: frozenset[FileIdentity]
    dead: dict[str, dict[FileIdentity, tuple[str, ...]]] = field(default_factory=dict)

    def live_beside(self, others: Mapping[str, MentionedFiles]) -> Iterator[str]:
        """The names of files that are live in a version with these manifests, unless an earlier call has returned them."""
        for name in self.dead.keys() - others.keys():
            self.unseen.update(self.dead.pop(name))
        for name, other in others.items():
            if not self.unseen:
                return
            gone = self.unseen.keys() & other.deleted
            if gone:
                self.dead.setdefault(name, {}).update((identity, self.unseen.pop(identity)) for identity in gone)
        for names in self.unseen.values():
            yield from names
        self.unseen = {}


@dataclass
class UsedNames:
    """File names in use; `refresh` adds those of new versions.

    `young_since`: the changes of later commits (epoch millis) count as used even where no version has the files any more, because
    jobs may still read them. `job_of` maps the stamp in data file names to the snapshot whose commit wrote them.
    """

    context: TableContext
    young_since: int | None = None
    names: set[str] = field(default_factory=set)
    job_of: dict[str, Snapshot] = field(default_factory=dict)
    _manifests: dict[str, MentionedFiles] = field(default_factory=dict)
    _indexes: set[str] = field(default_factory=set)
    _versions: set[VersionFile] = field(default_factory=set)

    def refresh(self) -> int:
        """Read all new versions; returns how many versions there are now.

        `DamagedFile` if something that an existing version names cannot be read, because it is then unknown which files are used.
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
            self._take_in_files(snapshot, version.is_changelog, version.keeps_changelog)
        except FileNotFoundError:
            return
        except DamagedFile as error:
            if storage.exists(version.path):
                error.set_hint(self.context.layout.if_damaged)
                raise

    def _take_in_files(self, snapshot: Snapshot, is_changelog: bool, keeps_changelog: bool = True) -> None:
        """Add all metadata; of the data files those that are live, and those of changelogs."""
        manifests = self.context.manifests
        if snapshot.statistics is not None:
            self.names.add(snapshot.statistics)
        # Expiry leaves only some lists, and no index manifest, to a long-lived changelog.
        if (index := snapshot.index_manifest) is not None and index not in self._indexes:
            self.names.add(index)
            if not is_changelog or self._exists(index):
                self.names.update(entry.index_file.file_name for entry in manifests.index_manifest(index))
                self._indexes.add(index)
        lists: dict[str, list[ManifestFileMeta]] = {}
        for name, size in manifest_lists(snapshot):
            self.names.add(name)
            may_be_gone = is_changelog or (name == snapshot.changelog_manifest_list and not keeps_changelog)
            if not may_be_gone or self._exists(name):
                metas = manifests.manifest_list(name, size)
                lists[name] = [meta for meta in metas if self._exists(meta.file_name)] if may_be_gone else metas
        self._read([meta for metas in lists.values() for meta in metas])
        base, delta = (lists.get(name, []) for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list))
        changes = [meta for name, metas in lists.items() if name != snapshot.base_manifest_list for meta in metas]
        if not is_changelog:
            self._add_live([*base, *delta])
            self.job_of.update((stamp_of(name), snapshot) for meta in delta for name in self._manifests[meta.file_name].names)
            changes = changes if self._keeps_what_it_deletes(snapshot) else [meta for meta in changes if meta not in delta]
        self.names.update(name for meta in changes for name in self._manifests[meta.file_name].names)

    def _keeps_what_it_deletes(self, snapshot: Snapshot) -> bool:
        """Whether a job may still need a file that the commit deleted, or the expiry of its changelog will delete it."""
        options = self.context.options
        if options.changelogs_outlive_snapshots and not options.changelog_producer.writes_files:
            return True
        return self.young_since is not None and snapshot.time_millis >= self.young_since

    def _exists(self, name: str) -> bool:
        return self.context.storage.exists(self.context.layout.manifest(name))

    def _read(self, metas: Sequence[ManifestFileMeta]) -> None:
        unread = list({meta.file_name: meta for meta in metas if meta.file_name not in self._manifests}.values())
        for meta, pieces in zip(unread, self.context.manifests.tables_of_each(unread), strict=True):
            self.names.add(meta.file_name)
            entries = [pair for piece in pieces for pair in zip(piece.kinds.tolist(), piece.identities(), strict=True)]
            self._manifests[meta.file_name] = MentionedFiles(
                tuple(name for _, identity in entries for name in _names_of(identity)),
                {identity: _names_of(identity) for kind, identity in entries if kind == EntryKind.ADD},
                frozenset(identity for kind, identity in entries if kind != EntryKind.ADD),
            )

    def _add_live(self, metas: Sequence[ManifestFileMeta]) -> None:
        of_version = {meta.file_name: self._manifests[meta.file_name] for meta in metas}
        for mentioned in of_version.values():
            self.names.update(mentioned.live_beside(of_version))


def _names_of(identity: FileIdentity) -> tuple[str, ...]:
    """The name of a data file, and those of its extra files."""
    name, extra_files = cast("tuple[str, tuple[str, ...]]", identity[3:5])
    return name, *extra_files


def stamp_of(name: str) -> str:
    """The common part of the names of one writer's files: the UUID after the prefix."""
    parts = name.split("-")
    return "-".join(parts[1:6]) if len(parts) > 6 else name


def _versions(context: TableContext) -> Iterator[VersionFile]:
    """The version files, by listing, so that checking a long history without changes is cheap."""
    layout, storage = context.layout, context.storage
    for status in storage.list_directory(layout.tag_directory):
        if status.name.startswith(TAG_PREFIX) and not status.is_directory:
            yield VersionFile(status.path, (status.size, status.modified_millis), keeps_changelog=False)
    for status in storage.list_directory(layout.changelog_directory):
        if parse_numbered(CHANGELOG_PREFIX, status.name) is not None:
            yield VersionFile(status.path, (status.size, status.modified_millis), is_changelog=True)
    listed = {parse_numbered(SNAPSHOT_PREFIX, s.name): s for s in storage.list_directory(layout.snapshot_directory)}
    found = {number: status for number, status in listed.items() if number is not None}
    for number, status in found.items():
        yield VersionFile(status.path, (status.size, status.modified_millis), keeps_changelog=number - 1 in found)
    latest = context.snapshots.latest_id() or 0
    for number in context.snapshots.likely_ids(max(found, default=0) + 1, latest):  # a listing may be stale
        yield VersionFile(layout.snapshot(number), (0, 0))
