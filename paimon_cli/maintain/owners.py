"""Who keeps each file of a table: the latest snapshot, older snapshots, tags, branches, changelogs, consumers, or nothing.

The files are listed once, and then the versions are read, one after the other. So a file that a commit has added since is not
counted, and one that a commit has made dead since belongs to the snapshots, which still name it. If a version disappears
meanwhile, both are done again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from paimon_cli.errors import DamagedFile
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.named_files import as_kept
from paimon_cli.maintain.needed_files import NeededFiles, SharedManifests, other_branches, undisturbed
from paimon_cli.maintain.orphans import DAY_MILLIS, list_candidates
from paimon_cli.metadata.table_layout import (
    BRANCH_PREFIX,
    CHANGELOG_PREFIX,
    CONSUMER_PREFIX,
    MAIN_BRANCH,
    SNAPSHOT_PREFIX,
    TAG_PREFIX,
    parse_numbered,
)
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.storage import FileStatus, Storage
from paimon_cli.storage.threads import in_parallel

LIVE, SNAPSHOTS, TAG, BRANCH = "live", "snapshots", "tag", "branch"
CHANGELOGS, CONSUMER = "changelogs", "consumer"
ORPHANS, UNCOMMITTED, OTHER = "orphans", "uncommitted", "other"


@dataclass(frozen=True, slots=True)
class Owner:
    """What keeps files. `kind`: one of the constants above; `name`: of a tag, branch or consumer, else empty.

    `live`: the latest snapshot of the main branch, schemas, hints and records. `snapshots`: all its snapshots. `changelogs`:
    changes that outlive their snapshots. Of no version are `orphans`, `uncommitted` files that are younger than a day, and
    `other` files, which are no part of a Paimon table.
    """

    kind: str
    name: str = ""


@dataclass(frozen=True)
class Group:
    """Files with the same owners: their number and bytes."""

    owners: frozenset[Owner]
    files: int
    size: int


@dataclass(frozen=True)
class OwnedFiles:
    """All files of a table, in groups; each file is in one. `latest`: the id of the latest snapshot, None without one.

    `branch_directories`: by branch, the files and bytes in its own directory, which has its versions, but not its data.
    """

    groups: tuple[Group, ...]
    latest: int | None
    branch_directories: Mapping[str, tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(group.size for group in self.groups)

    @property
    def files(self) -> int:
        return sum(group.files for group in self.groups)

    def only(self, *owners: Owner) -> tuple[int, int]:
        """Files and bytes that these alone keep: what goes with the last of them."""
        found = [group for group in self.groups if group.owners <= {*owners}]
        return sum(group.files for group in found), sum(group.size for group in found)


def find_owners(context: TableContext) -> OwnedFiles:
    """List the files of a table, on all branches, with what keeps each.

    Raises `DamagedFile` if some version cannot be read: what it keeps is then unknown.
    """
    return undisturbed(context, lambda: _find(context.seen_from(MAIN_BRANCH)))


def _find(context: TableContext) -> OwnedFiles:
    listed = _Listed(context.storage)
    files = {status.path: status for status in listed.files(context.layout.root, context.read_threads)}
    roots = context.external_roots
    elsewhere = {status.name: status for root in roots for status in listed.files(root, context.read_threads)}
    owners = _Owners(context, {**files, **{status.path: status for status in elsewhere.values()}}, elsewhere)
    owners.read()
    _expect_all(context, files)
    for status in elsewhere.values():  # those that no version names may belong to another table
        if not owners.masks[status.path]:
            del owners.masks[status.path]
    unowned = {path for path, mask in owners.masks.items() if not mask}
    if unowned:
        _give_to_none(replace(context, storage=listed), unowned, owners)
    return owners.grouped()


def _give_to_none(context: TableContext, unowned: set[str], owners: _Owners) -> None:
    """Tell files that orphan cleaning would delete from those that are too young, and from foreign ones."""
    now = context.clock.now_millis()
    candidates = {file.path: file.modified_millis for file in list_candidates(context, sys.maxsize).files}
    for path in unowned:
        modified = candidates.get(path)
        kind = OTHER if modified is None else ORPHANS if modified < now - DAY_MILLIS else UNCOMMITTED
        owners.give(Owner(kind), (path,))


class _Listed(WrappedStorage):
    """A storage whose directories are listed once."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._seen: dict[str, list[FileStatus]] = {}

    def list_directory(self, path: str) -> list[FileStatus]:
        if path not in self._seen:
            self._seen[path] = self.inner.list_directory(path)
        return self._seen[path]

    def files(self, root: str, threads: int) -> Iterator[FileStatus]:
        """All files below a directory. On a local disk threads would cost more than the listings."""
        threads = threads if self.is_remote else 1
        level = [root]
        while level:
            entries = [*chain.from_iterable(in_parallel(self.list_directory, level, threads))]
            yield from (entry for entry in entries if not entry.is_directory)
            level = [entry.path for entry in entries if entry.is_directory]


@dataclass
class _Owners:
    """Collects the owners of listed files, as bits of a number for each path."""

    context: TableContext
    files: Mapping[str, FileStatus]
    elsewhere: Mapping[str, FileStatus] = field(default_factory=dict)
    """Files at places outside of the table, by name."""
    masks: dict[str, int] = field(default_factory=dict)
    names: list[Owner] = field(default_factory=list)
    latest: int | None = None
    branch_directories: dict[str, tuple[int, int]] = field(default_factory=dict)
    _directories: dict[tuple[bytes, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.masks = dict.fromkeys(self.files, 0)

    def give(self, owner: Owner, paths: Iterable[str]) -> None:
        """Make `owner` an owner of these files, as far as they were listed."""
        masks = self.masks
        if owner not in self.names:
            self.names.append(owner)
        bit = 1 << self.names.index(owner)
        for path in paths:
            mask = masks.get(path)
            if mask is not None:
                masks[path] = mask | bit

    def read(self) -> None:
        """Read all versions, on all branches."""
        context, manifests = self.context, SharedManifests(self.context)
        latest = context.snapshots.latest()
        self.latest = None if latest is None else latest.id
        if latest is not None:
            kept = as_kept(context, latest)
            self._needed(Owner(LIVE), lambda needed: needed.need_version(context, kept, manifests))
            self._needed(Owner(LIVE), lambda needed: needed.need_changes(context, kept, manifests))  # its changelog
        self._needed(Owner(SNAPSHOTS), lambda needed: needed.need_snapshots(context, None, manifests))
        for name, tag in context.tags.all().items():
            need = partial(NeededFiles.need_version, context=context, snapshot=tag.snapshot, manifests=manifests)
            self._needed(Owner(TAG, name), need)
        self._needed(Owner(CHANGELOGS), lambda needed: needed.need_changelogs(context))
        for branch in other_branches(context):
            self._needed(Owner(BRANCH, branch.branch), partial(NeededFiles.need_history, context=branch))
        self._files_of_versions()

    def _needed(self, owner: Owner, collect: Callable[[NeededFiles], None]) -> None:
        needed = NeededFiles()
        try:
            collect(needed)
        except DamagedFile:
            _expect_all(self.context, self.files)
            raise
        self.give(owner, needed.metadata)
        outside = self.elsewhere
        self.give(
            owner,
            (
                outside[name].path if name in outside else f"{self._directory(partition, bucket)}/{name}"
                for partition, bucket, name in needed.data
            ),
        )

    def _directory(self, partition: bytes, bucket: int) -> str:
        found = self._directories.get((partition, bucket))
        if found is None:
            found = self._directories[partition, bucket] = self.context.bucket_directory(partition, bucket)
        return found

    def _files_of_versions(self) -> None:
        """Give the files that name versions, and what is beside them, to their owners."""
        layout, latest = self.context.layout, self.latest
        named = {
            layout.tag_directory: (TAG_PREFIX, TAG),
            layout.consumer_directory: (CONSUMER_PREFIX, CONSUMER),
        }
        kept = {layout.schema_directory, layout.commit_user_directory, layout.lease_directory, layout.removal_directory}
        hints = {layout.latest_hint, layout.earliest_hint}
        branches = f"{layout.branches_directory}/{BRANCH_PREFIX}"
        for path in self.files:
            directory, _, name = path.rpartition("/")
            if path.startswith(branches):
                branch = path.removeprefix(branches).partition("/")[0]
                count, size = self.branch_directories.get(branch, (0, 0))
                self.branch_directories[branch] = count + 1, size + self.files[path].size
                self.give(Owner(BRANCH, branch), (path,))
            elif directory == layout.snapshot_directory:
                number = parse_numbered(SNAPSHOT_PREFIX, name)
                if number is not None:
                    self.give(Owner(LIVE if number == latest else SNAPSHOTS), (path,))
            elif directory == layout.changelog_directory:
                if parse_numbered(CHANGELOG_PREFIX, name) is not None or name in ("LATEST", "EARLIEST"):
                    self.give(Owner(CHANGELOGS), (path,))
            elif directory in named:
                prefix, kind = named[directory]
                if name.startswith(prefix):
                    self.give(Owner(kind, name.removeprefix(prefix)), (path,))
            if path in hints or (directory in kept and not name.startswith(".")) or directory == layout.backup_directory:
                self.give(Owner(LIVE), (path,))

    def grouped(self) -> OwnedFiles:
        """The files by their owners. A file of the latest snapshot counts as live, even if others need it, too."""
        sizes: dict[int, list[int]] = {}
        live = 1 << self.names.index(Owner(LIVE)) if Owner(LIVE) in self.names else 0
        for path, mask in self.masks.items():
            counted = sizes.setdefault(live if mask & live else mask, [0, 0])
            counted[0] += 1
            counted[1] += self.files[path].size
        groups = tuple(
            Group(frozenset(owner for number, owner in enumerate(self.names) if mask >> number & 1), files, size)
            for mask, (files, size) in sizes.items()
        )
        return OwnedFiles(groups, self.latest, self.branch_directories)


def _expect_all(context: TableContext, files: Iterable[str]) -> None:
    """Raise `SnapshotGone` if a version that was listed has disappeared since, whose files may have been left without owner."""
    layout = context.layout
    directories = (layout.snapshot_directory, layout.tag_directory, layout.changelog_directory, layout.branches_directory)
    there = {status.path for directory in directories for status in context.storage.list_directory(directory)}
    prefixes = {f"{directory}/" for directory in directories[:3]}
    for path in files:
        if f"{path.rpartition('/')[0]}/" in prefixes and path not in there and not path.endswith(("LATEST", "EARLIEST")):
            raise SnapshotGone(f"{path} has been deleted while the files of {context.address} were counted")
