"""Manifests, lists and index files that name rewritten data files, written again under new names.

What no change reaches keeps its name, so that a commit that builds on it meanwhile stays valid. Each file is written once,
however many versions share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.hash_index import read_key_hashes, write_key_hashes
from paimon_cli.bucket.stamped_files import INDEX_PREFIX
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.erasure.file_rewrite import RewrittenFile
from paimon_cli.jobs.erasure.inventory import Inventory
from paimon_cli.maintain.named_files import FileKey, key_of_file
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    HASH,
    BucketId,
    DeletionVectorRange,
    EntryKind,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_cli.metadata.index_files import DeletionVector, KeyHashes, encode_deletion_vectors

ErasedHashes = Callable[[BucketId, KeyHashes], KeyHashes]
"""Of the hashes in the hash index of a bucket those that it must not hold any more."""


IndexFiles = dict[tuple[BucketId, IndexFileMeta], IndexFileMeta | None]


@dataclass(frozen=True)
class NewList:
    """A manifest list that takes the place of another. `lost`: rows of ADD entries that are gone, less those of DELETEs."""

    name: str
    size: int | None
    lost: int
    is_new: bool


@dataclass
class MetadataRewrite:
    """Writes the metadata of one inventory again. `files`: the rewritten data files."""

    context: TableContext
    inventory: Inventory
    files: Mapping[FileKey, RewrittenFile]
    erased_hashes: ErasedHashes | None
    writer: MetadataWriter
    index_files: IndexFiles
    """The index files that were written so far, by those that they take the place of."""
    _manifests: dict[str, tuple[list[ManifestFileMeta], int]] = field(default_factory=dict)
    _lists: dict[str, NewList] = field(default_factory=dict)
    _indexes: dict[str, str] = field(default_factory=dict)

    replaced: set[str] = field(default_factory=set)
    """Paths of the metadata and index files that others take the place of."""
    written_indexes: list[str] = field(default_factory=list)
    """Paths of the new index files."""

    def new_list(self, name: str) -> NewList:
        """The list that takes the place of this one, which may be itself."""
        if name not in self._lists:
            metas, lost, changed = list[ManifestFileMeta](), 0, False
            for meta in self.inventory.lists[name]:
                new, gone = self._manifest(meta)
                metas += new
                lost += gone
                changed |= new != [meta]
            new_name, size = self.writer.manifest_list(metas, "rewritten") if changed else (name, None)
            self._lists[name] = NewList(new_name, size, lost, changed)
            self._replace(self.context.layout.manifest(name), changed)
        return self._lists[name]

    def _manifest(self, meta: ManifestFileMeta) -> tuple[list[ManifestFileMeta], int]:
        """The manifests that take the place of one, and how many rows are gone from it."""
        name, inventory = meta.file_name, self.inventory
        if name not in self._manifests:
            if self.files.keys().isdisjoint(inventory.manifests.get(name, ())):
                self._manifests[name] = [meta], 0
            else:
                entries, lost = [], 0
                for entry in self.context.manifests.manifest(name, meta.file_size):
                    new = self._entry(entry)
                    gone = entry.file.row_count - (0 if new is None else new.file.row_count)
                    lost += gone if entry.kind == EntryKind.ADD else -gone
                    entries += [] if new is None else [new]
                self._manifests[name] = self.writer.manifests(entries), lost
                self._replace(self.context.layout.manifest(name), True)
        return self._manifests[name]

    def _entry(self, entry: ManifestEntry) -> ManifestEntry | None:
        """What takes the place of an entry. A file that was written again may have been, once more."""
        new: ManifestEntry | None = entry
        while new is not None and (rewritten := self.files.get(key_of_file(new))) is not None:
            new = rewritten.entry(new)
        return new

    def new_index_manifest(self, name: str) -> str:
        """The index manifest that takes the place of this one, which may be itself."""
        if name not in self._indexes:
            entries = self.inventory.indexes[name]
            new = [(entry, self._index_file(entry)) for entry in entries]
            left = [replace(entry, index_file=file) for entry, file in new if file is not None]
            self._indexes[name] = name if left == entries else self.writer.index_manifest(left)
            self._replace(self.context.layout.manifest(name), left != entries)
        return self._indexes[name]

    def _index_file(self, entry: IndexManifestEntry) -> IndexFileMeta | None:
        """The index file that takes the place of the one of an entry; None if nothing is left to index."""
        file: IndexFileMeta | None = entry.index_file
        while file is not None:
            key = (entry.bucket_id, file)  # the same file may be listed with fewer of its vectors
            if key not in self.index_files:
                rewrite = {DELETION_VECTORS: self._vectors, HASH: self._hashes}[file.index_type]
                self.index_files[key] = rewrite(replace(entry, index_file=file))
            new = self.index_files[key]
            if new == file:
                return file
            self._replace(self.context.layout.index(file.file_name), True)
            if new is not None:
                self.written_indexes.append(self.context.layout.index(new.file_name))
            file = new
        return None

    def _replace(self, path: str, is_replaced: bool) -> None:
        if is_replaced:
            self.replaced.add(path)

    def _vectors(self, entry: IndexManifestEntry) -> IndexFileMeta | None:
        """The vectors with the names of the new data files, and with the positions that the rows have in them."""
        partition, bucket = entry.bucket_id
        ranges = entry.index_file.deletion_vector_ranges or ()
        targets = {vector.data_file_name: self.files.get((partition, bucket, vector.data_file_name)) for vector in ranges}
        if not any(targets.values()):
            return entry.index_file
        bucket_files = BucketFiles(partition, bucket, 1, (), (entry.index_file,))
        stored = load_vectors(self.context, bucket_files)
        vectors: dict[str, DeletionVector] = {}
        for name, rewritten in targets.items():
            vector = stored.by_file[name]
            if rewritten is None:
                vectors[name] = vector
            elif rewritten.after is not None:
                moved = _moved(vector, rewritten.erased)
                if len(moved.positions):
                    vectors[rewritten.after.file_name] = moved
        if not vectors:
            return None
        ((content, listed),) = encode_deletion_vectors(vectors)
        return self._written(entry, content, listed, len(listed))

    def _hashes(self, entry: IndexManifestEntry) -> IndexFileMeta | None:
        """The hashes of the keys that are left. Another key with the hash of an erased one keeps it.

        An index without hashes is dropped: nothing is left in its bucket, and its entry would keep the partition's values.
        """
        if self.erased_hashes is None:
            return entry.index_file
        hashes = read_key_hashes(self.context, entry.index_file)
        gone = np.isin(hashes, self.erased_hashes(entry.bucket_id, hashes))
        if gone.all():
            return None
        if not gone.any():
            return entry.index_file
        return write_key_hashes(self.context, entry.bucket_id, hashes[~gone], "")

    def _written(
        self, entry: IndexManifestEntry, content: bytes, listed: tuple[DeletionVectorRange, ...], rows: int
    ) -> IndexFileMeta:
        name = f"{INDEX_PREFIX}{self.context.random.uuid()}-0"
        self.context.storage.write_new(self.context.layout.index(name), content)
        return IndexFileMeta(entry.index_file.index_type, name, len(content), rows, listed)


def _moved(vector: DeletionVector, erased: np.ndarray) -> DeletionVector:
    """The vector of a file without the rows at the `erased` positions (ascending): it marks the same rows of those that are left.

    >>> list(_moved(DeletionVector.marking([1, 4, 6], bitmap64=False), np.array([0, 4])).positions)
    [0, 4]
    """
    positions = np.array(vector.positions.to_array(), dtype=np.int64)
    left = positions[~np.isin(positions, erased)]
    moved = left - np.searchsorted(erased, left)
    kind = type(vector.positions)
    return DeletionVector(kind(moved.astype(np.uint64 if kind.__name__ == "BitMap64" else np.uint32)))
