"""Which files a copy of a table's versions needs, as a difference of sets: files are never changed, so each is copied once.

A snapshot whose predecessor is copied, too, needs only what its own commit added. Any other version needs all its live files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.named_files import (
    FileToDelete,
    as_kept,
    changelog_entries,
    data_files_to_delete,
    files_of_lists,
    index_files,
    kept_lists,
    key_of_file,
    manifest_lists,
    metadata_files,
    rank_of,
    statistics_files,
)
from paimon_cli.maintain.needed_files import SharedManifests, all_ids, has_producer
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import CHANGELOG_PREFIX, MAIN_BRANCH, SNAPSHOT_PREFIX, parse_numbered
from paimon_cli.pieces import PIECES
from paimon_cli.storage.file_copy import FileToCopy
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import in_parallel

_ODD_PARTS = frozenset(("", ".", ".."))


@dataclass(frozen=True)
class CopiedVersion:
    """A snapshot, tag or changelog: its file, byte by byte, and what that says."""

    path: str
    content: bytes
    snapshot: Snapshot

    @staticmethod
    def read(storage: Storage, path: str) -> CopiedVersion | None:
        """The version in a file; None if it does not exist any more. Raises `DamagedFile`, also if a snapshot or changelog has
        another id than its file.
        """
        try:
            content = storage.read_bytes(path)
        except FileNotFoundError:
            return None
        snapshot, name = Snapshot.from_json(content, path), path.rpartition("/")[2]
        number = next((n for kind in (SNAPSHOT_PREFIX, CHANGELOG_PREFIX) if (n := parse_numbered(kind, name)) is not None), None)
        if number not in (None, snapshot.id):
            raise DamagedFile(f"{path} is damaged", f"it holds the id {snapshot.id}", path=path)
        return CopiedVersion(path, content, snapshot)


@dataclass
class CopyPortion:
    """Versions whose files are copied together, and then the versions themselves, in this order.

    `files`: by rank and path below the table. `may_exist`: paths of files that earlier copies may have brought already.
    """

    versions: list[CopiedVersion] = field(default_factory=list)
    files: dict[int, dict[str, FileToCopy]] = field(default_factory=dict)
    may_exist: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        return sum(map(len, self.files.values()))


class CopyPlan:
    """Plans the copy of one history: that of the table, or of one of its branches.

    `known`: a version that the copy has already, so that the metadata that it names need not be looked for.
    """

    def __init__(self, history: TableContext, known: Snapshot | None = None) -> None:
        self._history = history
        self._root = f"{history.layout.root}/"
        self._manifests = SharedManifests(history)
        self._seen: set[str] = set()
        self._knows = known is not None
        if known is not None:
            self._seen.update(file.path for file in metadata_files(history, known))

    def portions(
        self,
        numbers: Sequence[int],
        held: set[int],
        wanted: Callable[[CopiedVersion], bool] | None = None,
        *,
        has_branches: bool = False,
    ) -> Iterator[CopyPortion]:
        """The snapshots of these ids with the files that they need beside the snapshots in `held`, which grows.

        A snapshot that has expired, or is not `wanted`, is left out. `has_branches`: whether the copy has branches, which may
        have the files of the main branch, too: after a fast-forward.
        """
        portion = CopyPortion()
        may_exist = has_branches or self._history.branch != MAIN_BRANCH or (bool(held) and not self._knows)
        for version in self._read(numbers):
            if wanted is not None and not wanted(version):
                continue
            if version.snapshot.id - 1 in held:
                self._add(portion, version, self._changes(version.snapshot, portion), may_exist=may_exist)
            else:
                self.add_state(portion, version)
            held.add(version.snapshot.id)
            if portion.count >= PIECES.copied_portion_files:
                yield portion
                portion = CopyPortion()
        if portion.versions:
            yield portion

    def add_state(self, portion: CopyPortion, version: CopiedVersion) -> None:
        """Add a version with all files that a read of it opens, and the files of its changelog. A tag and the first snapshot of a
        history may have lost their changelog (`as_kept`).
        """
        snapshot = version.snapshot
        if snapshot.id not in all_ids(self._history)[1:]:
            snapshot = as_kept(self._history, snapshot)
        data = [*self._manifests.live(snapshot), *changelog_entries(self._history, snapshot)]
        self._add(portion, version, self._with_metadata(data, snapshot), may_exist=True)

    def add_tag(self, portion: CopyPortion, version: CopiedVersion) -> None:
        """Add a tag with the files of its state. It does not keep the changelog that led to it, as its snapshot does."""
        lists, data = kept_lists(self._history, version.snapshot), self._manifests.live(version.snapshot)
        self._add(portion, version, self._with_metadata(data, version.snapshot, lists), may_exist=True)

    def add_changelog(self, portion: CopyPortion, version: CopiedVersion) -> None:
        """Add a long-lived changelog: an expired snapshot whose changes can still be read."""
        snapshot, context = version.snapshot, self._history
        data: Iterable[ManifestEntry] = ()
        lists: list[tuple[str, int | None]] = []
        if snapshot.changelog_manifest_list is not None:
            data = changelog_entries(context, snapshot)
            lists = [(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)]
        elif not has_producer(context, snapshot):  # otherwise its changes are nowhere: Java keeps the version alone
            data = [entry for entry in context.manifests.delta_entries(snapshot) if entry.kind == EntryKind.ADD]
            lists = manifest_lists(snapshot)
        files = chain(self._data(data), self._unseen(files_of_lists(context, lists)))
        self._add(portion, version, files, may_exist=True)

    def _read(self, numbers: Sequence[int]) -> Iterator[CopiedVersion]:
        history, left = self._history, iter(numbers)
        while some := list(islice(left, PIECES.copied_versions_read)):
            paths = map(history.layout.snapshot, some)
            found = in_parallel(lambda path: CopiedVersion.read(history.storage, path), paths, history.read_threads)
            yield from (version for version in found if version is not None)

    def _changes(self, snapshot: Snapshot, portion: CopyPortion) -> Iterator[FileToDelete]:
        """The files that a snapshot adds. One that only moves to another level is in the copy: other versions there need it."""
        entries = list(self._history.manifests.delta_entries(snapshot))
        added = [entry for entry in entries if entry.kind == EntryKind.ADD]
        before = {key_of_file(entry) for entry in entries if entry.kind == EntryKind.DELETE}
        moved = [entry for entry in added if key_of_file(entry) in before]
        portion.may_exist.update(self._below(file.path) for file in self._data(moved))
        return self._with_metadata([*added, *changelog_entries(self._history, snapshot)], snapshot)

    def _with_metadata(
        self, data: Iterable[ManifestEntry], snapshot: Snapshot, lists: Sequence[tuple[str, int | None]] | None = None
    ) -> Iterator[FileToDelete]:
        context = self._history
        yield from self._data(data)
        index = snapshot.index_manifest
        if index is not None and context.layout.manifest(index) not in self._seen:
            for entry in context.manifests.index_entries(snapshot):
                _refuse_external(context, entry.index_file.file_name, entry.index_file.external_path)
            yield from self._unseen(index_files(context, snapshot))
        yield from self._unseen(statistics_files(context, snapshot))
        yield from self._unseen(files_of_lists(context, manifest_lists(snapshot) if lists is None else lists))

    def _data(self, entries: Iterable[ManifestEntry]) -> Iterator[FileToDelete]:
        for entry in entries:
            _refuse_external(self._history, entry.file.file_name, entry.file.external_path)
            yield from data_files_to_delete(self._history, entry, "data")

    def _unseen(self, files: Iterable[FileToDelete]) -> Iterator[FileToDelete]:
        for file in files:
            if file.path not in self._seen:
                self._seen.add(file.path)
                yield file

    def _add(self, portion: CopyPortion, version: CopiedVersion, files: Iterator[FileToDelete], may_exist: bool = False) -> None:
        try:
            self._check_schema(version)
            for file in files:
                path = self._below(file.path)
                portion.files.setdefault(rank_of(file.kind), {})[path] = FileToCopy(path, file.size)
                if may_exist:
                    portion.may_exist.add(path)
        except DamagedFile as error:
            if self._history.storage.exists(version.path):
                raise
            raise SnapshotGone(f"{version.path} no longer exists", "another job has removed it", "try again") from error
        portion.versions.append(version)

    def _check_schema(self, version: CopiedVersion) -> None:
        """Raise `DamagedFile` if the table lacks the schema of a version, whose copy nobody could read."""
        number = version.snapshot.schema_id
        if self._history.schemas.find(number) is None:
            path = self._history.layout.schema(number)
            why = f"{version.path} names it"
            raise DamagedFile(f"{path} is missing", why, self._history.layout.if_damaged, path=path)

    def _below(self, path: str) -> str:
        """The path below the table. Raises `DamagedFile` for one that would lead the copy elsewhere."""
        below = path.removeprefix(self._root)
        if below == path or _ODD_PARTS.intersection(below.split("/")):
            why, hint = "a directory in its path leads out of the table", "correct the option of the table that holds it"
            raise DamagedFile(f"{path} lies outside of the table", why, hint, path=path)
        return below


def _refuse_external(context: TableContext, name: str, external_path: str | None) -> None:
    if external_path is not None:
        raise NotSupported(
            f"data file {name} is outside {context.address}",
            "the manifests of a copy would still name the files of this table: files at other places are not copied",
        )
