"""Metadata of files as plain, picklable values: data files, statistics, manifest entries, index files, commit messages.

See FORMAT.md, sections 4 and 10.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from paimon_cli.metadata.table_layout import POSTPONE_BUCKET


class EntryKind:
    """What a manifest entry says about a file, as stored in `_KIND` (Java FileKind)."""

    ADD = 0
    DELETE = 1


SOURCE_APPEND, SOURCE_COMPACT = 0, 1
ROW_ID = "_ROW_ID"
"""The column with the ids of rows, which files store whose rows are not new."""
AFTER_ALL_NUMBERS = 2**63 - 1
"""Stands for the sequence number that a commit is still to give."""
DELETION_VECTORS, HASH = "DELETION_VECTORS", "HASH"
"""Types of index files that decide which rows there are, or where. All others only help to find rows: they are not used."""
SORTED_INDEXES = ("btree", "bitmap")
"""Types that are known to be such others, with or without a description of a global index."""

EMPTY_ROW = bytes(12)
"""Serialised BinaryRow of arity 0: partition of an unpartitioned table, key of an append table, empty statistics."""


FileIdentity = tuple[object, ...]
"""Equal for two manifest entries exactly if they refer to the same file."""


class BucketId(NamedTuple):
    """A bucket of a table; `partition` holds the partition values as a serialised BinaryRow."""

    partition: bytes
    bucket: int


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Column statistics: two serialised BinaryRows (null field = unknown) and a null count per column (None = unknown)."""

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] | None = ()


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """One data file (FORMAT.md, section 4.3). `min_key` and `max_key` are serialised rows of the trimmed primary key."""

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_millis: int | None = None
    """The writer's *local wall clock* read as if it were UTC, as Java stores it."""

    delete_row_count: int | None = None
    embedded_file_index: bytes | None = None
    file_source: int | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None

    def numbered(self, snapshot_id: int) -> DataFileMeta:
        """The file with `snapshot_id` as its sequence numbers, so that files are ordered by snapshot."""
        return replace(self, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id)

    @property
    def stores_row_ids(self) -> bool:
        """Whether the file has a column with the ids of its rows (FORMAT.md, section 7.5); else `first_row_id` is that of the
        first one, unless the table has no row tracking.
        """
        return ROW_ID in (self.write_cols or ())

    def unnumbered(self) -> DataFileMeta:
        """The file before a commit numbers its changed rows, as a manifest can record it: its numbers are in order."""
        has_changed_rows = self.stores_row_ids and self.max_sequence_number == 0
        return replace(self, max_sequence_number=AFTER_ALL_NUMBERS) if has_changed_rows else self

    def to_be_numbered(self) -> DataFileMeta:
        """The file that `unnumbered` was made of."""
        return replace(self, max_sequence_number=0) if self.max_sequence_number == AFTER_ALL_NUMBERS else self

    @property
    def awaits_row_ids(self) -> bool:
        """Whether its rows are new, and a commit of a table with row tracking is still to give them ids."""
        return self.first_row_id is None and not self.stores_row_ids and self.file_source != SOURCE_COMPACT

    def stores(self, column: str) -> bool:
        """Whether the file has this column of its schema: all of them, unless it is one of several for the same rows."""
        return self.write_cols is None or column in self.write_cols

    def tracked(self, snapshot_id: int, next_row_id: int) -> DataFileMeta:
        """The file as a commit of a table with row tracking records it: new rows have ids from `next_row_id` on, and
        `snapshot_id` is the sequence number of rows without one, which are new or changed.
        """
        low, high = self.min_sequence_number, self.max_sequence_number
        if self.stores_row_ids or self.file_source == SOURCE_COMPACT:
            if low and high:
                return self
            return replace(self, min_sequence_number=low or snapshot_id, max_sequence_number=snapshot_id)
        if self.first_row_id is not None:
            return self
        return replace(self.numbered(snapshot_id), first_row_id=next_row_id)

    def upgraded(self, level: int) -> DataFileMeta:
        """The file at another level: an upgrade, which does not rewrite it."""
        return replace(self, level=level)


def file_facts(prefix: str, files: Iterable[DataFileMeta]) -> dict[str, Any]:
    """Names, total rows and total bytes of files as attributes of a trace step; `prefix` goes in front of each key."""
    listed = tuple(files)
    return {
        f"{prefix}files": [file.file_name for file in listed],
        f"{prefix}rows": sum(file.row_count for file in listed),
        f"{prefix}bytes": sum(file.file_size for file in listed),
    }


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One record of a manifest: `kind` ADD or DELETE of a data file in (partition, bucket)."""

    kind: int
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def identity(self) -> FileIdentity:
        """The identity of the file: an ADD and a DELETE with equal identities cancel each other out (FORMAT.md, section 4.6)."""
        f = self.file
        return (self.partition, self.bucket, f.level, f.file_name, f.extra_files, f.embedded_file_index, f.external_path)

    @property
    def is_postponed(self) -> bool:
        """Whether the file is in `bucket-postpone`: its rows, in order of arrival, await distribution over the buckets."""
        return self.bucket == POSTPONE_BUCKET


@dataclass(frozen=True, slots=True)
class DeletionVectorRange:
    """The byte range of a data file's deletion vector in its index file.

    `cardinality` is the number of deleted rows, None in files of Java 0.9.
    """

    data_file_name: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True)
class IndexFileMeta:
    """One index file; `index_type` is HASH, DELETION_VECTORS or that of another index (FORMAT.md, section 4.5)."""

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vector_ranges: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None

    @property
    def only_finds_rows(self) -> bool:
        """Whether it is an index of column values: rows are the same without it, and no file of it is read or written here."""
        return self.index_type not in (DELETION_VECTORS, HASH)

    def listing_vectors_of(self, keeps: Callable[[str], bool]) -> IndexFileMeta:
        """The entry for the same file without the vectors of data files (names) that `keeps` rejects. It counts its vectors."""
        if self.deletion_vector_ranges is None:
            return self
        kept = tuple(found for found in self.deletion_vector_ranges if keeps(found.data_file_name))
        return replace(self, deletion_vector_ranges=kept, row_count=len(kept))


def vector_file_names(index_files: Iterable[IndexFileMeta]) -> tuple[str, ...]:
    """Names of the index files that hold deletion vectors."""
    return tuple(index.file_name for index in index_files if index.index_type == DELETION_VECTORS)


def hash_index_state(index_files: Iterable[IndexFileMeta]) -> str:
    """A digest of the names of a partition's hash indexes, which changes whenever any of the indexes does."""
    names = sorted(index.file_name for index in index_files if index.index_type == HASH)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]


def upper_file_names(files: Iterable[DataFileMeta]) -> tuple[str, ...]:
    """Names of the data files above level 0."""
    return tuple(file.file_name for file in files if file.level > 0)


@dataclass(frozen=True, slots=True)
class IndexManifestEntry:
    """One record of an index manifest: `kind` ADD or DELETE of an index file of (partition, bucket)."""

    kind: int
    partition: bytes
    bucket: int
    index_file: IndexFileMeta

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)


@dataclass(frozen=True, slots=True)
class ManifestFileMeta:
    """One record of a manifest list: a manifest, its counts, and its ranges of partitions, buckets and levels."""

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None

    def may_hold_bucket(self, buckets: Collection[int] | None) -> bool:
        """Whether an entry may be in one of these buckets, judging by the range of buckets; None means all buckets."""
        if buckets is None or self.min_bucket is None or self.max_bucket is None:
            return True
        return any(self.min_bucket <= bucket <= self.max_bucket for bucket in buckets)


KeepPartition = Callable[[bytes], bool]


class FileFilter:
    """Selects files of a snapshot by partition and bucket. A subclass may also skip whole manifests, and count files.

    `partition_marks`: byte strings, at least one of which occurs in every wanted partition (a serialised row). Manifest blocks
    that contain none of them may be skipped without decoding; with None no block may be skipped.
    """

    partition_marks: Collection[bytes] | None = None

    def __init__(self, keep_partition: KeepPartition | None = None, buckets: Collection[int] | None = None) -> None:
        self._keep_partition = keep_partition
        self.buckets = buckets

    def keeps_manifest(self, manifest: ManifestFileMeta) -> bool:
        """Whether the manifest must be read; False only if none of its entries can be wanted."""
        return manifest.may_hold_bucket(self.buckets)

    def keeps_partition(self, partition: bytes) -> bool:
        """Whether files of this partition (a serialised row) are wanted; called once for each partition."""
        return self._keep_partition is None or self._keep_partition(partition)

    def count_files(self, partition: bytes, files: int) -> None:
        """Called with the number of ADD minus DELETE entries of a partition, wanted or not; may repeat for the same one."""


ALL_FILES = FileFilter()


@dataclass(frozen=True)
class FileChanges:
    """What one snapshot changes in one bucket: data files, changelog files that it adds, and index files."""

    added: tuple[DataFileMeta, ...] = ()
    removed: tuple[DataFileMeta, ...] = ()
    changelog: tuple[DataFileMeta, ...] = ()
    added_indexes: tuple[IndexFileMeta, ...] = ()
    removed_indexes: tuple[IndexFileMeta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changelog or self.added_indexes or self.removed_indexes)

    def followed_by(self, later: FileChanges) -> FileChanges:
        """These changes and `later` ones as one. Both are listed; none undoes another."""
        return FileChanges(
            self.added + later.added,
            self.removed + later.removed,
            self.changelog + later.changelog,
            self.added_indexes + later.added_indexes,
            self.removed_indexes + later.removed_indexes,
        )


@dataclass(frozen=True)
class CommitMessage:
    """All changes that one job makes to one (partition, bucket) (Java CommitMessageImpl).

    `append` becomes an APPEND snapshot, `compact` a COMPACT snapshot after it. `read_snapshot_id` is the snapshot that the writer
    read. `read_index_files`: the files of deletion vectors that the compact half is based on; None if it depends on none.
    `read_upper_files`: the data files above level 0 that were searched for older rows; None if none were searched.
    `read_hash_index`: the `hash_index_state` of the partition when the buckets of the rows were assigned; None if buckets do not
    depend on an index. `keys_read_at`: the snapshot (0: the empty table) that was searched for keys in all partitions; None if
    nothing was searched.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    append: FileChanges = FileChanges()
    compact: FileChanges = FileChanges()
    read_snapshot_id: int | None = None
    read_index_files: tuple[str, ...] | None = None
    read_upper_files: tuple[str, ...] | None = None
    read_hash_index: str | None = None
    keys_read_at: int | None = None

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    def created_files(self) -> tuple[DataFileMeta, ...]:
        """The data files that were written for this message and that an abort deletes; upgraded files existed before it."""
        before = {file.file_name for file in self.compact.removed}
        rewritten = tuple(file for file in self.compact.added if file.file_name not in before)
        return self.append.added + self.append.changelog + rewritten + self.compact.changelog

    def created_index_files(self) -> tuple[IndexFileMeta, ...]:
        """The index files that were written for this message and that an abort deletes."""
        return self.append.added_indexes + self.compact.added_indexes
