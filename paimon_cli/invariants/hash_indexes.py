"""The hash indexes of dynamic buckets: checks, and the reconstruction of an index from the keys of its bucket.

Two checks together prove that a key is in one bucket only: its hash is in the index of every bucket that has rows of it (PV041),
and in the index of one bucket only (PV042). An index may hold hashes of keys that were deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.scopes import OF_BUCKET
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import FILES, FULL, CheckGroup, Invariant, Violation, declare
from paimon_cli.metadata.data_file import HASH, BucketId, IndexFileMeta, IndexManifestEntry
from paimon_cli.metadata.index_files import KEY_HASH_BYTES
from paimon_cli.pieces import PIECES

declare(
    Invariant("PV042", CheckGroup.HASH_INDEX, FILES, "a key hash is in the index of only one bucket of its partition"),
)

Hashes = npt.NDArray[np.int32]


@OF_BUCKET.check(
    Invariant(
        "PV041",
        CheckGroup.HASH_INDEX,
        FULL,
        "the hash index of a dynamic bucket holds every key of the bucket",
        repair="hash-index",
    )
)
def hash_index_holds_every_key(version: Version, bucket_id: BucketId) -> Iterator[Violation]:
    """PV041. A key whose hash is missing would be assigned to a second bucket when it is written again.

    If the primary key does not include all partition columns, there is no hash index: writers search all partitions.
    """
    if not version.context.mode.bucket_mode.indexes_keys:
        return
    known = [hashes_of(version.context, version.index_path(entry)) for entry in _entries(version) if entry.bucket_id == bucket_id]
    hashes = np.concatenate(known) if known else np.empty(0, np.int32)
    missing = sum(int(np.count_nonzero(~np.isin(found, hashes))) for found in _stored_hashes(version, bucket_id))
    if missing:
        yield Violation(
            "PV041", version.bucket_directory(bucket_id), f"{missing} rows have keys that are missing from the hash index"
        )


def hashes_are_in_one_bucket(version: Version) -> Iterator[Violation]:
    """PV042. If a hash is in the indexes of two buckets, the next write of that key may go to the wrong one."""
    for partition, entries in _by_partition(version).items():
        repeated = len(_repeated([np.unique(hashes_of(version.context, version.index_path(entry))) for entry in entries]))
        if repeated:
            yield Violation("PV042", _directory(version, partition), f"{repeated} key hashes are in the indexes of two buckets")


def _directory(version: Version, partition: bytes) -> str:
    return f"{version.context.layout.root}/{version.context.partition_path_of(partition)}".rstrip("/")


def _entries(version: Version) -> Iterator[IndexManifestEntry]:
    return (e for e in version.index_entries if e.index_file.index_type == HASH and e.index_file.external_path is None)


def _by_partition(version: Version) -> dict[bytes, list[IndexManifestEntry]]:
    partitions: dict[bytes, list[IndexManifestEntry]] = {}
    for entry in _entries(version):
        partitions.setdefault(entry.partition, []).append(entry)
    return partitions


def _repeated(parts: list[Hashes]) -> Hashes:
    """The hashes that occur in more than one part; within a part hashes are unique."""
    hashes, counts = np.unique(np.concatenate([np.empty(0, np.int32), *parts]), return_counts=True)
    return hashes[counts > 1]


def hashes_of(context: TableContext, path: str) -> Hashes:
    """The key hashes of an index file (FORMAT.md, section 6.4). Other checks report files that are missing or truncated."""
    try:
        content = context.storage.read_bytes(path)
    except FileNotFoundError:
        return np.empty(0, dtype=np.int32)
    whole = len(content) - len(content) % KEY_HASH_BYTES
    return np.frombuffer(content[:whole], dtype=">i4").astype(np.int32)


def _stored_hashes(version: Version, bucket_id: BucketId) -> Iterator[Hashes]:
    """The key hashes of all rows in the files of a bucket, including deleted rows, batch by batch."""
    keys, types = list(version.context.schema.trimmed_primary_keys), version.context.key_types
    for entry in version.at(bucket_id):
        for batch in read_data_file(version.context, bucket_id, entry.file, keys, PIECES.batch_rows):
            if batch.num_rows:
                yield hash_rows(batch.columns, types)


@dataclass(frozen=True)
class RebuiltIndex:
    """A hash index rebuilt from the keys of a bucket. `old`: the index that it replaces, if any; `why`: what is wrong with it."""

    bucket_id: BucketId
    total_buckets: int
    old: IndexFileMeta | None
    hashes: Hashes
    why: str


@dataclass(frozen=True)
class RebuiltPartition:
    """The rebuilt indexes of a partition. `shared`: number of key hashes that have rows in more than one bucket."""

    directory: str
    indexes: tuple[RebuiltIndex, ...]
    shared: int


def rebuilt_partitions(version: Version, read_rows: bool) -> Iterator[RebuiltPartition]:
    """The partitions with wrong hash indexes, rebuilt. Without `read_rows`, only damage visible in index files is found.

    Raises `DamagedFile` for a data file that cannot be read.
    """
    if not version.context.mode.bucket_mode.indexes_keys:
        return
    indexed = _by_partition(version)
    with_rows: dict[bytes, list[BucketId]] = {}
    for bucket_id in version.buckets:
        with_rows.setdefault(bucket_id.partition, []).append(bucket_id)
    for partition in sorted(indexed.keys() | with_rows.keys()):
        entries = {entry.bucket_id: entry for entry in indexed.get(partition, ())}
        if read_rows or _shows_damage(version, entries, with_rows.get(partition, [])):
            rebuilt = _rebuilt(version, partition, entries, with_rows.get(partition, []))
            if rebuilt.indexes or rebuilt.shared:
                yield rebuilt


def _shows_damage(version: Version, entries: dict[BucketId, IndexManifestEntry], with_rows: list[BucketId]) -> bool:
    if any(bucket_id not in entries for bucket_id in with_rows):
        return True
    found = [_known(version, entry) for entry in entries.values()]
    known = [hashes for hashes in found if hashes is not None]
    return len(known) < len(found) or len(_repeated([np.unique(hashes) for hashes in known])) > 0


def _known(version: Version, entry: IndexManifestEntry) -> Hashes | None:
    """The hashes of an index file; None if it is missing or incomplete."""
    hashes = hashes_of(version.context, version.index_path(entry))
    size = KEY_HASH_BYTES * entry.index_file.row_count
    return hashes if size == entry.index_file.file_size == KEY_HASH_BYTES * len(hashes) else None


def _rebuilt(
    version: Version, partition: bytes, entries: dict[BucketId, IndexManifestEntry], with_rows: list[BucketId]
) -> RebuiltPartition:
    stored = {}
    for bucket_id in sorted({*entries, *with_rows}):
        parts = [np.unique(hashes) for hashes in _stored_hashes(version, bucket_id)]
        stored[bucket_id] = np.unique(np.concatenate([np.empty(0, np.int32), *parts]))
    elsewhere = _elsewhere(stored)
    indexes = []
    for bucket_id, hashes in stored.items():
        entry = entries.get(bucket_id)
        known = None if entry is None else _known(version, entry)
        why = _why(known, hashes, elsewhere[bucket_id], entry is None)
        if why:
            total = next((e.total_buckets for e in version.at(bucket_id)), version.context.options.bucket)
            indexes.append(RebuiltIndex(bucket_id, total, None if entry is None else entry.index_file, hashes, why))
    return RebuiltPartition(_directory(version, partition), tuple(indexes), len(_repeated(list(stored.values()))))


def _elsewhere(stored: dict[BucketId, Hashes]) -> dict[BucketId, Hashes]:
    """For each bucket, the hashes of keys that have rows in other buckets."""
    every, counts = np.unique(np.concatenate([np.empty(0, np.int32), *stored.values()]), return_counts=True)
    return {bucket_id: every[~np.isin(every, hashes) | (counts > 1)] for bucket_id, hashes in stored.items()}


def _why(known: Hashes | None, stored: Hashes, elsewhere: Hashes, is_missing: bool) -> str:
    """What is wrong with the index of a bucket; empty if nothing is."""
    if is_missing:
        return "the bucket has rows but no index" if len(stored) else ""
    if known is None:
        return "the index is missing or incomplete"
    lost, misplaced = np.setdiff1d(stored, known), np.setdiff1d(np.intersect1d(known, elsewhere), stored)
    if len(lost):
        return f"the index lacks {len(lost)} of {len(stored)} hashes"
    return f"the index holds {len(misplaced)} hashes of keys that are in other buckets" if len(misplaced) else ""
