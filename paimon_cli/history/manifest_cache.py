"""A cache of manifests, so that the next commit of a process reads only new ones.

A commit reads all manifests of the latest snapshot that may hold entries of its partitions, and the previous commit has read most
of them. Of large manifests, only the requested partitions are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_reader import KeepManifest, ManifestReader
from paimon_cli.metadata.data_file import EntryKind, FileFilter, ManifestFileMeta
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import cached_property

_ENTRY_BYTES = 2000
"""The approximate size of an entry as an object."""


@dataclass
class PartitionEntries:
    """The entries of one partition in one manifest."""

    table: FileTable
    _by_bucket: dict[int, ManifestTable] = field(default_factory=dict)

    def in_bucket(self, bucket: int) -> ManifestTable | None:
        """The entries of a bucket, cached as objects; None if there are none."""
        rows = self._rows.get(bucket)
        if rows is None:
            return None
        if bucket not in self._by_bucket:
            if sum(map(len, self._by_bucket.values())) > PIECES.entry_cache_objects:
                self._by_bucket.clear()
            self._by_bucket[bucket] = self._objects(rows)
        return self._by_bucket[bucket]

    def _objects(self, rows: np.ndarray) -> ManifestTable:
        first = self.table.pieces[0]
        if first.records.are_objects and len(rows) == len(first) == len(self.table):
            return first
        return ManifestTable.of([self.table.entry(row) for row in rows.tolist()])

    @cached_property
    def _rows(self) -> dict[int, np.ndarray]:
        return {bucket_id.bucket: rows for bucket_id, rows in self.table.rows_by_bucket.items()}

    @cached_property
    def _added_counts(self) -> list[int]:
        added = self.table.numbers("kinds") == EntryKind.ADD
        counts: list[int] = self.table.numbers("total_buckets")[added].tolist()
        return counts

    @cached_property
    def bucket_counts(self) -> frozenset[int]:
        """The bucket counts in ADD entries."""
        return frozenset(self._added_counts)

    @property
    def newest_bucket_count(self) -> int:
        """The bucket count in the last ADD entry; 0 if there is none."""
        return self._added_counts[-1] if self._added_counts else 0


@dataclass
class CachedManifest:
    """The cached part of a manifest: the whole (`is_whole`), or some partitions. `size`: approximate bytes in memory."""

    is_whole: bool = False
    partitions: dict[bytes, PartitionEntries | None] = field(default_factory=dict)
    size: int = 0

    def knows(self, partitions: Collection[bytes]) -> bool:
        return self.is_whole or all(partition in self.partitions for partition in partitions)

    def entries(self, partition: bytes) -> PartitionEntries | None:
        return self.partitions.get(partition)

    def add(self, table: FileTable, partitions: Collection[bytes] | None = None) -> None:
        """Add entries. `table`: all entries of the manifest in these partitions (None: in all partitions)."""
        self.is_whole = partitions is None
        tables = table.by_partition()
        for partition in partitions or tables:
            self.partitions[partition] = PartitionEntries(tables[partition]) if partition in tables else None
        for piece in table.pieces:
            self.size += piece.records.bytes.data.nbytes + len(piece.records.decoded) * _ENTRY_BYTES


class ManifestCache:
    """Reads manifests with `reader`, and caches the most recently used ones. Pickled without its content."""

    def __init__(self, reader: ManifestReader) -> None:
        self._reader = reader
        self._cached: dict[tuple[str, int], CachedManifest] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._size = 0
        self._keys: dict[bytes, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ManifestCache, (self._reader,)

    def get(
        self, manifests: Sequence[ManifestFileMeta], partitions: Collection[bytes], may_hold: KeepManifest
    ) -> list[CachedManifest]:
        """The manifests that may hold one of the partitions, in order. Raises the errors of `ManifestReader`.

        A manifest that is not cached is read only if `may_hold` is true for it.
        """
        found: dict[tuple[str, int], CachedManifest] = {}
        missing: list[ManifestFileMeta] = []
        for meta in manifests:
            cached = self._cached.get(_key(meta)) or CachedManifest()
            if not cached.knows(partitions):
                if not may_hold(meta):
                    continue
                missing.append(meta)
            found[_key(meta)] = cached
        self._read(missing, partitions, found)
        self._keep(found)
        return list(found.values())

    def add(self, manifest: ManifestFileMeta, table: FileTable) -> None:
        """Cache a manifest that this process has written, so that its next commit need not read it."""
        if manifest.num_added_files + manifest.num_deleted_files < PIECES.many_in_total:
            cached = CachedManifest()
            cached.add(table)
            self._keep({_key(manifest): cached})

    def key(self, encoded: bytes, decode: Callable[[bytes], Any]) -> Any:
        """The result of `decode(encoded)`, cached because each commit compares the keys of existing files."""
        if len(self._keys) > PIECES.entry_cache_keys:
            self._keys.clear()
        if encoded not in self._keys:
            self._keys[encoded] = decode(encoded)
        return self._keys[encoded]

    def _read(
        self, missing: Sequence[ManifestFileMeta], partitions: Collection[bytes], found: dict[tuple[str, int], CachedManifest]
    ) -> None:
        counts = [meta.num_added_files + meta.num_deleted_files for meta in missing]
        limit = PIECES.many_entries if sum(counts) < PIECES.many_entries else PIECES.many_in_total
        small = [meta for meta, count in zip(missing, counts, strict=True) if count < limit]
        large = [meta for meta, count in zip(missing, counts, strict=True) if count >= limit]
        for meta, pieces in zip(small, self._reader.tables_of_each(small), strict=True):
            found[_key(meta)].add(FileTable.of(pieces))
        missing_partitions = {
            partition for meta in large for partition in partitions if partition not in found[_key(meta)].partitions
        }
        for meta, pieces in zip(large, self._reader.tables_of_each(large, missing_partitions), strict=True):
            found[_key(meta)].add(FileTable.of(pieces, FileFilter(missing_partitions.__contains__)), missing_partitions)

    def _keep(self, found: dict[tuple[str, int], CachedManifest]) -> None:
        """Cache these manifests as the most recently used ones, and drop the least recently used ones."""
        for key, cached in found.items():
            self._forget(key)
            self._cached[key], self._sizes[key] = cached, cached.size
            self._size += cached.size
        while self._size > PIECES.entry_cache_bytes and self._cached:
            self._forget(next(iter(self._cached)))

    def _forget(self, key: tuple[str, int]) -> None:
        if key in self._cached:
            del self._cached[key]
            self._size -= self._sizes.pop(key)


def _key(meta: ManifestFileMeta) -> tuple[str, int]:
    return meta.file_name, meta.file_size
