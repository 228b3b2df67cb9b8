"""Reads the manifests of snapshots, as objects or as columns, several in parallel (FORMAT.md, section 4.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paimon_cli.errors import DamagedFile, NotFound, SnapshotNotFound
from paimon_cli.metadata.data_file import (
    ALL_FILES,
    BucketId,
    EntryKind,
    FileFilter,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_cli.metadata.manifests import decode_index_manifest, decode_manifest, decode_manifest_list, inlined_lists
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.pieces import PIECES
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import in_parallel, thread_pool, together

if TYPE_CHECKING:  # these modules load numpy, which commands on snapshots do not need
    from paimon_cli.history.file_table import FileTable
    from paimon_cli.metadata.manifest_table import ManifestTable, OpenManifests

KeepManifest = Callable[[ManifestFileMeta], bool]


class SnapshotGone(SnapshotNotFound):
    """Raised if a snapshot expired, or was rolled back, while its manifests were being read."""


@dataclass(frozen=True)
class ManifestReader:
    """Reads the directory `manifest/`. Pickled without its caches.

    `threads`: the number of manifests that are fetched in parallel; 1 keeps all storage calls in order.
    """

    storage: Storage
    layout: TableLayout
    threads: int = 8
    _contents: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    _lists: dict[str, list[ManifestFileMeta]] = field(default_factory=dict, compare=False, repr=False)
    _indexes: dict[str, list[IndexManifestEntry]] = field(default_factory=dict, compare=False, repr=False)
    _decoded: dict[tuple[tuple[str, int], ...], list[ManifestTable]] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ManifestReader, (self.storage, self.layout, self.threads)

    @property
    def _max_sequential(self) -> int:
        return 1 if self.storage.is_remote else PIECES.max_sequential_manifests

    def manifest_list(self, name: str, size: int | None = None) -> list[ManifestFileMeta]:
        """The manifests in a list. Recent lists are cached, because a commit reads the latest snapshot's lists several times."""
        manifests = self._lists.get(name)
        if manifests is None:
            path = self.layout.manifest(name)
            manifests = decode_manifest_list(self._content(path, size), path)
            self.keep_list(name, manifests)
        return list(manifests)

    def keep_list(self, name: str, manifests: Sequence[ManifestFileMeta]) -> None:
        """Cache a list that was read, or that this process has written."""
        if len(self._lists) >= PIECES.cached_lists:
            self._lists.clear()
        self._lists[name] = list(manifests)

    def manifest(self, name: str, size: int | None = None) -> list[ManifestEntry]:
        path = self.layout.manifest(name)
        return decode_manifest(self._content(path, size), path)

    def index_manifest(self, name: str) -> list[IndexManifestEntry]:
        """The entries of an index manifest. Recent ones are cached if they are small, as lists are."""
        entries = self._indexes.get(name)
        if entries is None:
            path = self.layout.manifest(name)
            entries = decode_index_manifest(self._content(path, None), path)
            self.keep_index(name, entries)
        return list(entries)

    def keep_index(self, name: str, entries: Sequence[IndexManifestEntry]) -> None:
        """Cache an index manifest that was read, or that this process has written."""
        if len(self._indexes) >= PIECES.cached_lists:
            self._indexes.clear()
        if sum(1 + len(entry.index_file.deletion_vector_ranges or ()) for entry in entries) < PIECES.many_entries:
            self._indexes[name] = list(entries)

    def index_entries(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """The entries of a snapshot's index manifest; none if it has no index manifest."""
        if snapshot.index_manifest is None:
            return []
        try:
            return self.index_manifest(snapshot.index_manifest)
        except DamagedFile as error:
            raise self.gone_or_damaged(snapshot, error) from error

    def changed_vectors(self, before: Snapshot | None, after: Snapshot) -> dict[BucketId, set[str]]:
        """By bucket, the names of the data files whose deletion vectors may differ between two snapshots (None: the empty table).

        They are those in index files that only one of the two has: index files are never changed in place, but one that replaces
        another copies the vectors that stay. Nothing is read if both snapshots have the same index manifest.
        """
        if (None if before is None else before.index_manifest) == after.index_manifest:
            return {}
        old, new = (
            {(entry.bucket_id, entry.index_file.file_name): entry for entry in ([] if at is None else self.index_entries(at))}
            for at in (before, after)
        )
        changed: dict[BucketId, set[str]] = {}
        for bucket_id, name in old.keys() ^ new.keys():
            ranges = (old.get((bucket_id, name)) or new[bucket_id, name]).index_file.deletion_vector_ranges
            if ranges is not None:
                changed.setdefault(bucket_id, set()).update(vector.data_file_name for vector in ranges)
        return changed

    def manifests_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """All manifests of a snapshot, oldest first: the base list, then the delta list.

        On object stores, lists whose content the snapshot itself repeats are not read.
        """
        repeated = inlined_lists(snapshot.properties) if self.storage.is_remote else {}
        base, delta = repeated.get(snapshot.base_manifest_list), repeated.get(snapshot.delta_manifest_list)
        try:
            if base is None and delta is None and self.storage.is_remote and self.threads > 1:
                base, delta = together([lambda: self._base_list(snapshot), lambda: self._delta_list(snapshot)])
            older = self._base_list(snapshot) if base is None else base
            return older + (self._delta_list(snapshot) if delta is None else delta)
        except DamagedFile as error:
            raise self.gone_or_damaged(snapshot, error) from error

    def _base_list(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        return self.manifest_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)

    def _delta_list(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        return self.manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)

    def entries(self, manifests: Sequence[ManifestFileMeta]) -> Iterator[list[ManifestEntry]]:
        """The entries of each manifest, in order. Many manifests are fetched in parallel."""
        threads = self.threads if len(manifests) > self._max_sequential else 1
        return in_parallel(lambda meta: self.manifest(meta.file_name, meta.file_size), manifests, threads)

    def tables(
        self, manifests: Sequence[ManifestFileMeta], partitions: Collection[bytes] | None = None
    ) -> Iterator[ManifestTable]:
        """The entries of the manifests as columns, in order. A piece may hold several manifests, which are fetched in parallel.

        With `partitions`, most entries of other partitions are left out, but not all.
        """
        for pieces in self._decoded_groups(_groups(manifests), partitions):
            yield from pieces

    def tables_of_each(
        self, manifests: Sequence[ManifestFileMeta], partitions: Collection[bytes] | None = None
    ) -> Iterator[list[ManifestTable]]:
        """The entries of each manifest as a list of column pieces."""
        return self._decoded_groups([[meta] for meta in manifests], partitions)

    def _decoded_groups(
        self, groups: Sequence[Sequence[ManifestFileMeta]], partitions: Collection[bytes] | None
    ) -> Iterator[list[ManifestTable]]:
        from paimon_cli.metadata import manifest_table  # loads numpy, which commands on snapshots do not need

        if self.threads < 2 or sum(map(len, groups)) <= self._max_sequential:
            for group in groups:
                yield self._decoded_group(group, partitions)
            return
        with thread_pool(self.threads) as fetching, thread_pool(1) as joining:
            fetched = deque([fetching.submit(self._named_content, meta) for meta in group] for group in groups)
            waiting: list[Future[OpenManifests]] = []
            while fetched:
                contents = (future.result() for future in fetched.popleft())
                opened = [joining.submit(some.joined) for some in manifest_table.open_manifests(contents, partitions)]
                if waiting:
                    yield [some.result().columns() for some in waiting]
                waiting = opened
            if waiting:
                yield [some.result().columns() for some in waiting]

    def _decoded_group(self, group: Sequence[ManifestFileMeta], partitions: Collection[bytes] | None) -> list[ManifestTable]:
        """The entries of these manifests, kept if they are few and had to be decoded as objects.

        Small manifests are decoded and kept one by one, so that the commit, which asks for each, finds what the plan has read.
        """
        from paimon_cli.metadata.manifest_table import decode_manifests

        key = tuple((meta.file_name, meta.file_size) for meta in group)
        known = self._decoded.get(key)
        if known is not None:
            return known
        is_small = sum(meta.num_added_files + meta.num_deleted_files for meta in group) < PIECES.many_in_total
        if partitions is None and is_small and len(group) > 1:
            return [table for meta in group for table in self._decoded_group([meta], None)]
        tables = decode_manifests([self._named_content(meta) for meta in group], partitions)
        if partitions is None and all(table.records.are_objects for table in tables):
            self._keep(key, tables)
        return tables

    def _keep(self, key: tuple[tuple[str, int], ...], tables: list[ManifestTable]) -> None:
        """Keep the entries of manifests, if they are few; and nothing else where they would be many together."""
        weight = len(key) + sum(map(len, tables))
        if weight < PIECES.many_entries:
            kept = [len(names) + sum(map(len, pieces)) for names, pieces in list(self._decoded.items())]
            if weight + sum(kept) >= PIECES.many_entries:
                self._decoded.clear()
            self._decoded[key] = tables

    def compacted_files(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot compacted data files, and not only manifests."""
        if snapshot.commit_kind != COMPACT or snapshot.delta_record_count:
            return snapshot.commit_kind == COMPACT
        try:
            return bool(self._delta_list(snapshot))
        except DamagedFile:
            return True

    def delta_manifests(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """The manifests that the commit of this snapshot added."""
        try:
            return self._delta_list(snapshot)
        except DamagedFile as error:
            raise self.gone_or_damaged(snapshot, error) from error

    def delta_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """The entries that the commit of this snapshot added: its ADDs and DELETEs."""
        try:
            return [e for entries in self.entries(self.manifest_list(snapshot.delta_manifest_list)) for e in entries]
        except DamagedFile as error:
            raise self.gone_or_damaged(snapshot, error) from error

    def delta_table(self, snapshot: Snapshot) -> FileTable:
        """The entries that the commit of this snapshot added, as columns."""
        from paimon_cli.history.file_table import FileTable  # loads numpy, which commands on snapshots do not need

        try:
            return FileTable.of(self.tables(self.manifest_list(snapshot.delta_manifest_list)))
        except DamagedFile as error:
            raise self.gone_or_damaged(snapshot, error) from error

    def live_files(self, snapshot: Snapshot, wanted: FileFilter = ALL_FILES) -> FileTable:
        """The live files of a snapshot, oldest first."""
        return self.live_files_in(snapshot, filter(wanted.keeps_manifest, self.manifests_of(snapshot)), wanted)

    def live_files_in(
        self, snapshot: Snapshot, manifests: Iterable[ManifestFileMeta], wanted: FileFilter = ALL_FILES
    ) -> FileTable:
        """The live files for which `wanted` is true. `manifests`: those of the snapshot that may hold any."""
        from paimon_cli.history.file_table import FileTable

        chosen = [*manifests]
        has_many_entries = sum(meta.num_added_files + meta.num_deleted_files for meta in chosen) >= PIECES.many_entries
        marks = wanted.partition_marks if has_many_entries else None
        pieces = self.tables(chosen, marks)
        try:
            return FileTable.of(pieces if marks is not None else self._counted(pieces, chosen), wanted).live()
        except DamagedFile as error:
            raise self.gone_or_damaged(snapshot, error) from error

    def _counted(self, pieces: Iterable[ManifestTable], manifests: Sequence[ManifestFileMeta]) -> Iterator[ManifestTable]:
        """The pieces. Raises `DamagedFile` at the end if they have more or fewer DELETE entries than the lists say.

        Java does not look for a DELETE where the list says that there is none.
        """
        found = 0
        for piece in pieces:
            found += int((piece.kinds == EntryKind.DELETE).sum())
            yield piece
        listed = sum(meta.num_deleted_files for meta in manifests)
        if found != listed:
            why = f"its manifest lists say that {listed} files were removed, but its manifests remove {found}"
            path = self.layout.manifest_directory
            raise DamagedFile(f"a manifest of {self.layout.root} is damaged", why, self.layout.if_damaged, path=path)

    def live_entries(self, snapshot: Snapshot, wanted: FileFilter = ALL_FILES) -> list[ManifestEntry]:
        """The entries of the live files, oldest first."""
        files = self.live_files(snapshot, wanted)
        try:
            return files.entries()
        except DamagedFile as error:
            raise self.gone_or_damaged(snapshot, error) from error

    def _named_content(self, meta: ManifestFileMeta) -> tuple[str, bytes]:
        path = self.layout.manifest(meta.file_name)
        if not self.storage.is_remote:
            return path, self._content(path, meta.file_size)
        content = self._contents.pop(path, None) or self._content(path, meta.file_size)
        self._contents[path] = content  # the commit will need the manifests that the plan has read
        while sum(map(len, list(self._contents.values()))) > PIECES.cached_manifest_bytes:
            self._contents.pop(next(iter(self._contents)), None)
        return path, content

    def _content(self, path: str, size: int | None) -> bytes:
        """The content of a file of the `size` that metadata records. A file that was cut between two blocks looks complete."""
        try:
            content = self.storage.read_bytes(path)
        except FileNotFoundError:
            raise DamagedFile(f"{path} is missing", "a snapshot refers to it", self.layout.if_damaged, path=path) from None
        if size is not None and len(content) != size:
            why = f"it has {len(content)} bytes, but {size} were written"
            raise DamagedFile(f"{path} is damaged", why, self.layout.if_damaged, path=path)
        return content

    def gone_or_damaged(self, snapshot: Snapshot, error: DamagedFile) -> NotFound | DamagedFile:
        """The error to raise for a missing manifest: `SnapshotGone` if its snapshot no longer exists, otherwise `error`."""
        if self.storage.exists(self.layout.snapshot(snapshot.id)):
            return error
        return SnapshotGone(
            f"snapshot {snapshot.id} of {self.layout.root} no longer exists",
            "it probably expired while it was being read",
            "read the table again",
        )


def _groups(manifests: Sequence[ManifestFileMeta]) -> list[list[ManifestFileMeta]]:
    groups: list[list[ManifestFileMeta]] = []
    group_bytes = PIECES.manifest_group_bytes
    for meta in manifests:
        if group_bytes >= PIECES.manifest_group_bytes:
            groups.append([])
            group_bytes = 0
        groups[-1].append(meta)
        group_bytes += meta.file_size
    return groups
