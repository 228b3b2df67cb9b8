"""What a table stores: all versions on all branches, and the files that they name, each once.

Versions share most of their files, so manifests are read once. A data file is kept once, with the branch whose schemas it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.jobs.copy_plan import CopiedVersion
from paimon_cli.maintain.named_files import FileKey, key_of_file
from paimon_cli.maintain.needed_files import all_ids, undisturbed
from paimon_cli.metadata.data_file import EntryKind, IndexManifestEntry, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.threads import in_parallel

SNAPSHOT, TAG, CHANGELOG = "snapshot", "tag", "changelog"
LIST_FIELDS = ("base_manifest_list", "delta_manifest_list", "changelog_manifest_list")
"""The fields of a snapshot that name manifest lists."""


@dataclass(frozen=True)
class StoredVersion:
    """A snapshot, tag or changelog. `lists`: the names of the manifest lists that exist, by their fields of the snapshot; expiry
    leaves only some to a changelog, and no changelog list to a tag. `indexes`: the index manifest, if it exists.
    """

    history: TableContext
    kind: str
    stored: CopiedVersion
    lists: Mapping[str, str]
    indexes: str | None

    @property
    def label(self) -> str:
        """The version in words, such as `tag-year-end of branch dev`."""
        name, branch = self.stored.path.rpartition("/")[2], self.history.branch
        return name if branch == MAIN_BRANCH else f"{name} of branch {branch}"


@dataclass(frozen=True)
class StoredFile:
    """A data file that some version names. `branch`: whose schemas it has; `in_order`: whether its metadata has its least and its
    greatest key: files of changes and postponed files are not sorted by all writers.
    """

    branch: str
    entry: ManifestEntry
    in_order: bool

    @property
    def key(self) -> FileKey:
        return key_of_file(self.entry)


@dataclass
class Inventory:
    """All versions of a table, and by name all that they name. `manifests`: those that exist, with the data files in them."""

    branches: dict[str, TableContext]
    versions: list[StoredVersion] = field(default_factory=list)
    lists: dict[str, list[ManifestFileMeta]] = field(default_factory=dict)
    manifests: dict[str, frozenset[FileKey]] = field(default_factory=dict)
    files: dict[FileKey, StoredFile] = field(default_factory=dict)
    indexes: dict[str, list[IndexManifestEntry]] = field(default_factory=dict)
    statistics: set[str] = field(default_factory=set)

    @staticmethod
    def take(context: TableContext, known: Inventory | None = None) -> Inventory:
        """Read all versions of the table on all branches. Starts again if one of them expires meanwhile.

        `known`: an earlier inventory, whose lists and manifests are not read again, as such files never change.

        Raises `DamagedFile` if something that an existing version names cannot be read, `NotSupported` for files outside of the
        table and for rows whose columns are divided among files.
        """
        return undisturbed(context, lambda: _taken(context, known or Inventory({})))

    def add_newest(self, context: TableContext) -> bool:
        """Add the newest snapshot of each branch that is newer than those known, with what only it names. Returns whether there
        was one. What else has happened meanwhile goes unnoticed.
        """
        return undisturbed(context, self._add_newest)

    def _add_newest(self) -> bool:
        found = False
        for name, branch in self.branches.items():
            latest, known = branch.snapshots.latest(), self.newest(name)
            if latest is None or (known is not None and latest.id <= known.stored.snapshot.id):
                continue
            version = CopiedVersion.read(branch.storage, branch.layout.snapshot(latest.id))
            if version is not None:
                _take_version(self, self, branch, SNAPSHOT, version)
                found = True
        return found

    def newest(self, branch: str) -> StoredVersion | None:
        """The newest snapshot of a branch."""
        found = [v for v in self.versions if v.kind == SNAPSHOT and v.history.branch == branch]
        return max(found, key=lambda version: version.stored.snapshot.id, default=None)

    def paths(self, context: TableContext) -> set[str]:
        """The paths of all files that the versions name."""
        layout = context.layout
        named = {layout.manifest(name) for name in (*self.lists, *self.manifests, *self.indexes)}
        named.update(layout.index(entry.index_file.file_name) for entries in self.indexes.values() for entry in entries)
        named.update(f"{layout.statistics_directory}/{name}" for name in self.statistics)
        for file in self.files.values():
            named.update(paths_of(context, file.entry))
        return named


def paths_of(context: TableContext, entry: ManifestEntry) -> Iterator[str]:
    """The data file of an entry, and the files beside it."""
    return context.file_paths(entry.partition, entry.bucket, entry.file)


def _taken(context: TableContext, known: Inventory) -> Inventory:
    main = context.seen_from(MAIN_BRANCH)
    branches = {MAIN_BRANCH: main}
    for name in context.branches.directories():
        seen = context.seen_from(name)
        branches[name] = context.at_branch(name) if seen.schemas.ids() else seen
    found = Inventory(branches)
    for branch in branches.values():
        for kind, path, is_first in _version_files(branch):
            version = CopiedVersion.read(branch.storage, path)
            if version is None:
                continue
            try:
                _take_version(found, known, branch, kind, version, is_first)
            except (DamagedFile, SnapshotGone) as error:
                if branch.storage.exists(path):
                    raise
                raise SnapshotGone(f"{path} no longer exists", "another job has removed it", "try again") from error
    return found


def _version_files(branch: TableContext) -> Iterator[tuple[str, str, bool]]:
    """The kinds and paths of all versions, and whether a snapshot is the first of the history."""
    layout, ids = branch.layout, all_ids(branch)
    yield from ((SNAPSHOT, layout.snapshot(number), number == ids[0]) for number in ids)
    yield from ((TAG, layout.tag(name), False) for name in branch.tags.names())
    yield from ((CHANGELOG, layout.changelog(number), False) for number in ChangelogHistory(branch.storage, layout).ids())


def _take_version(
    found: Inventory, known: Inventory, branch: TableContext, kind: str, version: CopiedVersion, is_first: bool = False
) -> None:
    snapshot, storage, layout = version.snapshot, branch.storage, branch.layout
    lists: dict[str, str] = {}
    for field_name in LIST_FIELDS:
        name = getattr(snapshot, field_name)
        if name is None:
            continue
        # Java deletes the changelog of a tag with its snapshot, and with it that of a branch which began with the tag.
        may_be_gone = kind == CHANGELOG or ((kind == TAG or is_first) and field_name == "changelog_manifest_list")
        if may_be_gone and name not in found.lists and not storage.exists(layout.manifest(name)):
            continue
        lists[field_name] = name
        if name not in found.lists:
            metas = known.lists.get(name)
            if metas is None:
                metas = branch.manifests.manifest_list(name, getattr(snapshot, f"{field_name}_size"))
            _take_manifests(found, known, branch, metas, may_be_gone, is_changelog=field_name == "changelog_manifest_list")
            found.lists[name] = metas
    index = snapshot.index_manifest
    if index is not None and kind == CHANGELOG and index not in found.indexes and not storage.exists(layout.manifest(index)):
        index = None
    if index is not None and index not in found.indexes:
        entries = known.indexes.get(index)
        if entries is None:
            entries = branch.manifests.index_manifest(index)
        for entry in entries:
            _check_index(branch, entry)
        found.indexes[index] = entries
    if snapshot.statistics is not None:
        found.statistics.add(snapshot.statistics)
    found.versions.append(StoredVersion(branch, kind, version, lists, index))


def _take_manifests(
    found: Inventory,
    known: Inventory,
    branch: TableContext,
    metas: list[ManifestFileMeta],
    may_be_gone: bool,
    *,
    is_changelog: bool,
) -> None:
    for meta in metas:
        if meta.file_name not in found.manifests and meta.file_name in known.manifests:
            found.manifests[meta.file_name] = keys = known.manifests[meta.file_name]
            for key in keys:
                _take_file(found, key, known.files[key])
    missing = [meta for meta in metas if meta.file_name not in found.manifests]
    if may_be_gone:
        missing = [meta for meta in missing if branch.storage.exists(branch.layout.manifest(meta.file_name))]

    def read(meta: ManifestFileMeta) -> tuple[str, list[ManifestEntry]]:
        return meta.file_name, branch.manifests.manifest(meta.file_name, meta.file_size)

    for name, entries in in_parallel(read, missing, branch.read_threads):
        for entry in entries:
            _check(branch, entry)
            _take_file(found, key_of_file(entry), StoredFile(branch.branch, entry, not entry.is_postponed and not is_changelog))
        found.manifests[name] = frozenset(map(key_of_file, entries))


def _take_file(found: Inventory, key: FileKey, file: StoredFile) -> None:
    """Remember a file, by an entry that added it if there is one."""
    other = found.files.get(key)
    if other is None or (other.entry.kind != EntryKind.ADD and file.entry.kind == EntryKind.ADD):
        found.files[key] = replace(file, in_order=file.in_order and (other is None or other.in_order))


def _check(branch: TableContext, entry: ManifestEntry) -> None:
    """Refuse what could not be rewritten so that it stays the same for its readers."""
    file = entry.file
    if file.external_path is not None:
        raise _outside(branch, f"data file {file.file_name}")
    if branch.mode.combines_columns or (file.write_cols is not None and not file.stores_row_ids):
        why = "the columns of its rows are divided among files, which refer to the numbers of rows in each other"
        raise NotSupported(f"erase from data file {file.file_name} of {branch.address}", why)


def _check_index(branch: TableContext, entry: IndexManifestEntry) -> None:
    file = entry.index_file
    if file.external_path is not None:
        raise _outside(branch, f"index file {file.file_name}")
    if file.only_finds_rows:
        what = f"erase from {branch.address}, which has an index of type {file.index_type}"
        raise NotSupported(what, f"{file.file_name} holds values of its rows, and is not rewritten here")


def _outside(branch: TableContext, what: str) -> NotSupported:
    return NotSupported(
        f"{what} of {branch.address} lies outside of the table", "files at other places are not erased, copied or restored here"
    )
