"""The live files of a snapshot by bucket: all buckets for reads, writes and compactions, or those that a commit changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_cache import CachedManifest, PartitionEntries
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    ALL_FILES,
    EMPTY_ROW,
    BucketId,
    DataFileMeta,
    FileFilter,
    IndexFileMeta,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_cli.metadata.partition_ranges import may_hold_any
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import cached_property

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class BucketFiles:
    """A bucket at one snapshot. `files`: oldest first; `total_buckets`: the bucket count that its newest file records."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)


@dataclass(frozen=True, eq=False)
class LazyBuckets(Mapping[BucketId, BucketFiles]):
    """Bucket id -> bucket. Each lookup creates the objects of that bucket's files. Picklable."""

    table: FileTable
    index_files: Mapping[BucketId, tuple[IndexFileMeta, ...]]

    @cached_property
    def _rows(self) -> dict[BucketId, np.ndarray]:
        return self.table.rows_by_bucket

    def __getitem__(self, bucket_id: BucketId) -> BucketFiles:
        entries = [self.table.entry(row) for row in self._rows[bucket_id].tolist()]
        files = tuple(entry.file for entry in entries)
        return BucketFiles(*bucket_id, entries[-1].total_buckets, files, self.index_files.get(bucket_id, ()))

    def whole(self) -> list[BucketFiles]:
        """All buckets at once, whose files are decoded together: several times faster than one by one, if all are kept anyway."""
        entries = self.table.entries()
        found = []
        for bucket_id, rows in self._rows.items():
            of_bucket = [entries[row] for row in rows.tolist()]
            files = tuple(entry.file for entry in of_bucket)
            found.append(BucketFiles(*bucket_id, of_bucket[-1].total_buckets, files, self.index_files.get(bucket_id, ())))
        return found

    def __iter__(self) -> Iterator[BucketId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def bucket_files(context: TableContext, snapshot: Snapshot | None, wanted: FileFilter = ALL_FILES) -> LazyBuckets:
    """The buckets with at least one live file. `snapshot`: None for a table without snapshots."""
    if snapshot is None:
        return LazyBuckets(FileTable.of([]), {})
    if snapshot.schema_id > context.schema.id:
        context.schemas.named(snapshot.schema_id)  # raises if it is lost, so that this schema is not the newest
    buckets = LazyBuckets(context.manifests.live_files(snapshot, wanted), _index_files(context, snapshot))
    _check_partitions(context, buckets.table)
    _check_keys(context, buckets.table)
    _check_vectors(context, snapshot, buckets)
    return buckets


def _check_partitions(context: TableContext, table: FileTable) -> None:
    """Raise `DamagedFile` if one partition is written in two ways, and rows of one key may be in both: they are not merged.

    Writers serialise the null of a long DECIMAL or precise TIMESTAMP differently: Java reserves its bytes, pypaimon does not.
    Without keys, rows are read as they are, so it does not matter which of the two a file belongs to.
    """
    if not context.schema.primary_keys:
        return
    for partition in written_again(context, table.held_partitions):
        why = f"they write partition {context.partition_path_of(partition)!r} in two ways, as if its files were of two"
        directory = context.layout.manifest_directory
        raise DamagedFile(f"the manifests of {context.url} are damaged", why, context.layout.if_damaged, path=directory)


def written_again(context: TableContext, partitions: Iterable[bytes]) -> Iterator[bytes]:
    """The serialised partitions whose values another one before them has as well."""
    spellings: dict[tuple[Any, ...], bytes] = {}
    for partition in partitions:
        if spellings.setdefault(context.partition_values(partition), partition) != partition:
            yield partition


def _check_keys(context: TableContext, table: FileTable) -> None:
    """Raise `DamagedFile` if files have keys, but the table has none: its versions of a row would be read as rows."""
    if context.schema.primary_keys:
        return
    keyed = table.lengths("min_keys") > len(EMPTY_ROW)
    if keyed.any():
        path, name = context.layout.schema(context.schema.id), table.entry(int(keyed.argmax())).file.file_name
        why = f"it has no primary key, but the manifest record of {name} has"
        raise DamagedFile(f"{path} is damaged", why, context.layout.if_damaged, path=path)


def _check_vectors(context: TableContext, snapshot: Snapshot, buckets: LazyBuckets) -> None:
    """Raise `DamagedFile` if a vector of one bucket marks rows of a file that is live in another one.

    Readers would show the rows that it marks. Java leaves vectors of files that are no longer live, which is harmless.
    """
    marked = [
        (bucket_id, vector.data_file_name)
        for bucket_id, files in buckets.index_files.items()
        for file in files
        for vector in file.deletion_vector_ranges or ()
    ]
    if marked and (found := buckets.table.misplaced(marked)):
        said, lives, name = found
        path = context.layout.manifest(snapshot.index_manifest or "")
        where = (
            f"bucket {bucket} of partition {context.partition_path_of(partition).rstrip('/')!r}"
            for partition, bucket in (said, lives)
        )
        what = f"it lists deletion vectors of {name} in {next(where)}, but that file is in {next(where)}"
        raise DamagedFile(f"{path} is damaged", what, context.layout.if_damaged, path=path)


@dataclass(frozen=True)
class CommittedState:
    """What a writer must know of each bucket: its highest sequence number, and the bucket count that its newest file records."""

    max_sequences: Mapping[BucketId, int]
    total_buckets: Mapping[BucketId, int]

    @property
    def next_sequences(self) -> dict[BucketId, int]:
        """The sequence number of the next row of each bucket."""
        return {bucket_id: number + 1 for bucket_id, number in self.max_sequences.items()}


def committed_state(buckets: LazyBuckets) -> CommittedState:
    """The committed state of all buckets, computed from columns."""
    table = buckets.table
    return CommittedState(table.greatest_by_bucket("max_sequences"), table.newest_by_bucket("total_buckets"))


BucketNumbers = Sequence[int | range]
"""Bucket numbers as a user gives them. The end of a range may exceed the buckets of the table; a single number may not."""


def bucket_numbers(requested: BucketNumbers | None) -> frozenset[int] | None:
    """The requested bucket numbers; None for all buckets."""
    if not requested:
        return None
    return frozenset(number for item in requested for number in ((item,) if isinstance(item, int) else item))


def expect_buckets(context: TableContext, requested: BucketNumbers, found: Iterable[BucketFiles]) -> None:
    """Raise `UsageError` for a bucket number that the table does not have, `NotFound` if its buckets are dynamic or postponed."""
    present = {bucket.bucket: bucket.total_buckets for bucket in found}
    count = max((context.options.bucket, *present.values()))
    firsts = (item if isinstance(item, int) else item.start for item in requested)
    unknown = [number for number in firsts if number not in present and not 0 <= number < count]
    hint = f"paimon-cli buckets ls {context.layout.argument}"
    if unknown and count > 0:
        raise UsageError(f"{context.url} has no bucket {unknown[0]}", f"its buckets are 0 to {count - 1}", hint)
    if unknown:
        numbers = ", ".join(map(str, sorted(present))) or "none yet"
        raise NotFound(f"{context.url} has no bucket {unknown[0]}", f"its buckets are {numbers}", hint)


def _index_files(context: TableContext, snapshot: Snapshot) -> dict[BucketId, tuple[IndexFileMeta, ...]]:
    indexes: dict[BucketId, list[IndexFileMeta]] = {}
    for index in context.manifests.index_entries(snapshot):
        indexes.setdefault(index.bucket_id, []).append(index.index_file)
    return {bucket_id: tuple(files) for bucket_id, files in indexes.items()}


BucketCounts = Mapping[bytes, Collection[int]]
"""Partition -> the bucket counts recorded in its files."""


@dataclass(frozen=True)
class LiveBuckets:
    """The live files of some buckets. `entries`: by bucket, oldest first.

    `bucket_counts`: of all live files in their partitions. If all counts are equal, those of dead files may be included.
    """

    entries: list[ManifestEntry] = field(default_factory=list)
    bucket_counts: BucketCounts = field(default_factory=dict)


def live_files_of_buckets(context: TableContext, snapshot: Snapshot, bucket_ids: Collection[BucketId]) -> LiveBuckets:
    """The live files of some buckets. Reads only manifests that may hold their partitions, unless they are cached."""
    partitions = {partition: context.partition_values(partition) for partition, _ in bucket_ids}
    manifests = context.manifests.manifests_of(snapshot)

    def may_hold(meta: ManifestFileMeta) -> bool:
        return may_hold_any(meta.partition_stats, context.partition_types, partitions.values())

    try:
        if len(partitions) <= PIECES.cached_partitions:
            return _in_cached(context.manifest_cache.get(manifests, partitions, may_hold), bucket_ids)
        tables = context.manifests.tables([*filter(may_hold, manifests)], partitions)
        files = FileTable.of(tables, FileFilter(partitions.__contains__)).live()
        rows = [int(row) for bucket_id in bucket_ids for row in files.rows_by_bucket.get(bucket_id, ())]
        return LiveBuckets([files.entry(row) for row in rows], files.bucket_counts())
    except DamagedFile as error:
        raise context.manifests.gone_or_damaged(snapshot, error) from error


def _in_cached(manifests: Sequence[CachedManifest], bucket_ids: Collection[BucketId]) -> LiveBuckets:
    entries: list[ManifestEntry] = []
    counts: dict[bytes, Collection[int]] = {}
    for partition in dict.fromkeys(partition for partition, _ in bucket_ids):
        parts = [part for manifest in manifests if (part := manifest.entries(partition)) is not None]
        counts[partition] = _bucket_counts(partition, parts)
        buckets = [bucket_id.bucket for bucket_id in bucket_ids if bucket_id.partition == partition]
        tables = [table for bucket in buckets for part in parts if (table := part.in_bucket(bucket)) is not None]
        entries += FileTable.of_partition(partition, tables).live_entries()
    return LiveBuckets(entries, counts)


def _bucket_counts(partition: bytes, parts: Sequence[PartitionEntries]) -> Collection[int]:
    """The bucket counts of a partition. Which files are live is determined only if entries have different counts."""
    added = frozenset[int]().union(*(part.bucket_counts for part in parts))
    if len(added) < 2:
        return added
    pieces = (piece for part in parts for piece in part.table.pieces)
    return FileTable.of_partition(partition, pieces).live().bucket_counts().get(partition, ())
