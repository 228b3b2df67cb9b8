"""Walks through the snapshots of a table in order, keeping the live files up to date, and decodes each manifest only once.

The delta of each commit is applied to the live files. The base list of the next snapshot must agree with the result: manifests
that are already known need no check, and manifests that replace others must contain the same net entries, with the same facts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, NotFound, PaimonError
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.version import FileFacts, Version, changed_entries
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import BucketId, EntryKind, FileIdentity, IndexManifestEntry, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot

Bucket = dict[FileIdentity, ManifestEntry]
_UNREADABLE = (DamagedFile, NotFound)


@dataclass(frozen=True)
class ReadManifest:
    """A manifest as its list names it, and its entries."""

    meta: ManifestFileMeta
    table: FileTable


class WalkedVersion(Version):
    """The version after one step of the walk; `before` shows the changed buckets as they were before it."""

    def __init__(self, walk: HistoryWalk, snapshot: Snapshot) -> None:
        super().__init__(walk.context, snapshot)
        self._walk = walk
        self._fresh: list[ManifestEntry] = []
        self._changed: set[BucketId] = set()
        self.before: FormerVersion | None = None
        self.new_manifests: list[ReadManifest] = []
        self.missing_from_base: list[ManifestEntry] = []
        self.unexpected_in_base: list[ManifestEntry] = []
        self.changed_entries: list[tuple[ManifestEntry, ManifestEntry]] = []
        self.index_changed = False

    @property
    def fresh(self) -> Sequence[ManifestEntry]:
        return self._fresh

    @property
    def changed_buckets(self) -> Collection[BucketId]:
        return self._changed

    @property
    def row_count(self) -> int:
        return self._walk.row_count

    def at(self, bucket_id: BucketId) -> Iterable[ManifestEntry]:
        return self._walk.buckets.get(bucket_id, {}).values()

    def holds(self, entry: ManifestEntry) -> bool:
        return entry.identity in self._walk.buckets.get(entry.bucket_id, {})

    def bucket_counts(self) -> dict[bytes, set[int]]:
        counts, partitions = self._walk.bucket_counts, {bucket_id.partition for bucket_id in self._changed}
        return {partition: {n for n in counts.get(partition, {}) if n > 0} for partition in partitions}

    def whole(self) -> Version:
        """The complete version, not only its changes. Must be called before the walk continues."""
        version = Version(self.context, self.snapshot)
        version.live = [entry for bucket in self._walk.buckets.values() for entry in bucket.values()]
        version.index_entries = self.index_entries
        return version

    def base_differences(self, before: Version) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
        return self.missing_from_base, self.unexpected_in_base

    def changed_in_base(self, before: Version) -> list[tuple[ManifestEntry, ManifestEntry]]:
        return self.changed_entries


class FormerVersion(Version):
    """The version before a step, derived from the one after it and the changes of the step; valid until the next step."""

    def __init__(self, walk: HistoryWalk, last: WalkedVersion) -> None:
        super().__init__(last.context, last.snapshot)
        self.index_entries = last.index_entries
        self._walk = walk
        self.put: set[FileIdentity] = set()
        self.taken: dict[BucketId, Bucket] = {}
        self.tops: dict[BucketId, int] = {}

    def at(self, bucket_id: BucketId) -> Iterable[ManifestEntry]:
        yield from self.taken.get(bucket_id, {}).values()
        yield from (entry for i, entry in self._walk.buckets.get(bucket_id, {}).items() if i not in self.put)

    def holds(self, entry: ManifestEntry) -> bool:
        bucket_id, identity = entry.bucket_id, entry.identity
        is_kept = identity in self._walk.buckets.get(bucket_id, {}) and identity not in self.put
        return is_kept or identity in self.taken.get(bucket_id, {})

    def highest_sequence(self, bucket_id: BucketId) -> int:
        return self.tops.get(bucket_id, -1)


class HistoryWalk:
    """Walks from the oldest snapshot to the newest, and starts over after a gap or an unreadable version."""

    def __init__(self, context: TableContext) -> None:
        self.context = context
        self.buckets: dict[BucketId, Bucket] = {}
        self.row_count = 0
        self.bucket_counts: dict[bytes, dict[int, int]] = {}
        """For each partition, the number of live files by the bucket count with which they were written."""
        self._tops: dict[BucketId, int] = {}
        """The greatest sequence number of a bucket since it was last empty."""
        self._manifests: dict[str, ReadManifest] = {}
        self._order: list[str] = []
        self._last: WalkedVersion | None = None
        self._index: tuple[str | None, list[IndexManifestEntry]] = (None, [])

    def forget(self) -> None:
        """Treat the next version as one without a predecessor."""
        self.buckets, self.bucket_counts, self.row_count, self._last = {}, {}, 0, None
        self._manifests, self._order, self._tops = {}, [], {}

    def step(self, snapshot: Snapshot) -> WalkedVersion:
        """Move on to the next version. Raises one of `_UNREADABLE` if it cannot be read; the caller must then call `forget`."""
        if self._last is not None and self._last.snapshot.id != snapshot.id - 1:
            self.forget()
        version = WalkedVersion(self, snapshot)
        reader = self.context.manifests
        base = reader.manifest_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta = reader.manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        known, order = self._manifests, self._order
        self._read([*base, *delta], version)
        self._order = [meta.file_name for meta in (*base, *delta)]
        version.delta = [entry for meta in delta for entry in self._manifests[meta.file_name].table.entries()]
        self._read_index(version)
        if self._last is None:
            self._begin(version, [meta.file_name for meta in base])
        else:
            self._compare(version, [meta.file_name for meta in base], known, order)
            self._touch(version, self._last)
        self._apply(version)
        self._last = version
        return version

    def _read(self, metas: Sequence[ManifestFileMeta], version: WalkedVersion) -> None:
        """Decode new manifests; keep only those that this snapshot names."""
        missing = [meta for meta in metas if meta.file_name not in self._manifests]
        kept = {m.file_name: self._manifests[m.file_name] for m in metas if m.file_name in self._manifests}
        for meta, pieces in zip(missing, self.context.manifests.tables_of_each(missing), strict=True):
            kept[meta.file_name] = ReadManifest(meta, FileTable.of(pieces))
            version.new_manifests.append(kept[meta.file_name])
        self._manifests = kept

    def _read_index(self, version: WalkedVersion) -> None:
        name = version.snapshot.index_manifest
        version.index_changed = name != self._index[0] or self._last is None
        if version.index_changed:
            self._index = (name, [] if name is None else self.context.manifests.index_manifest(name))
        version.index_entries = self._index[1]

    def _begin(self, version: WalkedVersion, base: Sequence[str]) -> None:
        for entry in self._live(base):
            self._put(entry, version)
        version._changed.update(self.buckets)
        version._changed.update(entry.bucket_id for entry in version.index_entries)

    def _compare(self, version: WalkedVersion, base: Sequence[str], known: dict[str, ReadManifest], order: Sequence[str]) -> None:
        """Check that the manifests of the new base fold to the same entries as those of the previous version."""
        now = set(base)
        removed = [known[name] for name in order if name not in now]
        new = [self._manifests[name] for name in base if name not in known]
        if _net_facts(removed) == _net_facts(new):
            return
        actual = {entry.identity: entry for entry in self._live(base)}
        expected = {identity: entry for bucket in self.buckets.values() for identity, entry in bucket.items()}
        version.missing_from_base = [expected[identity] for identity in expected.keys() - actual.keys()]
        version.unexpected_in_base = [actual[identity] for identity in actual.keys() - expected.keys()]
        version.changed_entries = changed_entries(expected, actual)

    def _live(self, names: Sequence[str]) -> list[ManifestEntry]:
        """The live files among the entries of some manifests."""
        return _joined(self._manifests[name].table for name in names).live().entries()

    def _touch(self, version: WalkedVersion, last: WalkedVersion) -> None:
        changed = (now for _, now in version.changed_entries)
        entries = (*version.delta, *version.missing_from_base, *version.unexpected_in_base, *changed)
        bucket_ids = {entry.bucket_id for entry in entries}
        if version.index_changed:
            bucket_ids |= {entry.bucket_id for entry in (*version.index_entries, *last.index_entries)}
        version._changed = bucket_ids
        version.before = FormerVersion(self, last)
        version.before.tops = {bucket_id: self._tops[bucket_id] for bucket_id in bucket_ids if bucket_id in self._tops}

    def _apply(self, version: WalkedVersion) -> None:
        for entry in (*version.missing_from_base, *(before for before, _ in version.changed_entries)):
            self._take(entry, version)
        for entry in (*version.unexpected_in_base, *(now for _, now in version.changed_entries)):
            self._put(entry, version)
        deleted = {entry.identity for entry in version.delta if entry.kind != EntryKind.ADD}
        for entry in version.delta:
            if entry.kind != EntryKind.ADD:
                self._take(entry, version)
        for entry in version.delta:
            if entry.kind == EntryKind.ADD and entry.identity not in deleted:
                self._put(entry, version)
        if version.before is None:
            version._changed.update(entry.bucket_id for entry in version.delta)
            version._fresh = [entry for bucket in self.buckets.values() for entry in bucket.values()]

    def _put(self, entry: ManifestEntry, version: WalkedVersion) -> None:
        bucket_id = entry.bucket_id
        version._fresh.append(entry)
        if self.buckets.setdefault(bucket_id, {}).setdefault(entry.identity, entry) is entry:
            self.row_count += entry.file.row_count
            self._count(entry, 1)
            self._tops[bucket_id] = max(self._tops.get(bucket_id, -1), entry.file.max_sequence_number)
            if version.before is not None:
                version.before.put.add(entry.identity)

    def _take(self, entry: ManifestEntry, version: WalkedVersion) -> None:
        bucket_id = entry.bucket_id
        bucket = self.buckets.get(bucket_id, {})
        taken = bucket.pop(entry.identity, None)
        if taken is None:
            return
        self.row_count -= taken.file.row_count
        self._count(taken, -1)
        if version.before is not None:
            version.before.taken.setdefault(bucket_id, {})[entry.identity] = taken
        if not bucket:
            del self.buckets[bucket_id]
            del self._tops[bucket_id]

    def _count(self, entry: ManifestEntry, change: int) -> None:
        counts = self.bucket_counts.setdefault(entry.partition, {})
        counts[entry.total_buckets] = counts.get(entry.total_buckets, 0) + change
        if not counts[entry.total_buckets]:
            del counts[entry.total_buckets]


def _joined(tables: Iterable[FileTable]) -> FileTable:
    return FileTable.of(piece for table in tables for piece in table.pieces)


def _net_facts(manifests: Iterable[ReadManifest]) -> dict[FileIdentity, FileFacts | None]:
    """The entries that remain when each ADD cancels out with its DELETE: the facts of an ADD, None for a DELETE."""
    left = _joined(manifest.table for manifest in manifests).net().entries()
    return {entry.identity: FileFacts.of(entry) if entry.kind == EntryKind.ADD else None for entry in left}


def walk(context: TableContext, numbers: Iterable[int]) -> Iterator[WalkedVersion | Violation]:
    """The versions with these ids, oldest first, or a violation for each that cannot be read. Versions deleted meanwhile are
    skipped.
    """
    history = HistoryWalk(context)
    for number in numbers:
        try:
            snapshot = context.snapshots.find(number)
        except DamagedFile as error:
            yield Violation("PV002", context.layout.snapshot(number), str(error))
            continue
        if snapshot is None:
            continue
        try:
            version = history.step(snapshot)
        except _UNREADABLE as error:
            history.forget()
            yield unreadable(context, snapshot, error)
            continue
        yield version


def unreadable(context: TableContext, snapshot: Snapshot, error: PaimonError) -> Violation:
    """PV005, for the file that cannot be read."""
    path = error.path or context.layout.snapshot(snapshot.id)
    return Violation("PV005", path, f"snapshot {snapshot.id}: {error}")
