"""The live files of a snapshot, bucket by bucket: where reads, writes and compactions begin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.known_manifests import MANY_ENTRIES
from paimon_cli.history.manifest_reader import KeepManifest
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, IndexFileMeta, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot

if TYPE_CHECKING:
    import numpy as np

    from paimon_cli.history.live_columns import PlacedColumns

KeepPartition = Callable[[bytes], bool]
AddedFiles = Callable[[bytes, int], None]
"""Told how many files the manifests that are read add to a partition, kept or not; maybe in several portions."""


@dataclass(frozen=True)
class BucketFiles:
    """One bucket at one snapshot. `total_buckets` is what its newest file was written with; files are oldest first."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)


@dataclass(frozen=True)
class ColumnBuckets(Mapping[BucketId, BucketFiles]):
    """Buckets whose files become objects when a bucket is read; `columns` hold the files of all buckets. Picklable."""

    columns: PlacedColumns
    index_files: Mapping[BucketId, tuple[IndexFileMeta, ...]]

    @cached_property
    def _rows(self) -> dict[BucketId, np.ndarray]:
        return self.columns.rows_by_place

    def __getitem__(self, bucket_id: BucketId) -> BucketFiles:
        entries = [self.columns.entry(row) for row in self._rows[bucket_id].tolist()]
        return BucketFiles(
            *bucket_id, entries[-1].total_buckets, tuple(entry.file for entry in entries), self.index_files.get(bucket_id, ())
        )

    def totals(self, bucket_id: BucketId) -> tuple[int, int]:
        """The number of buckets that its newest file was written for, and how many files it has; no objects are made."""
        rows = self._rows[bucket_id]
        return int(self.columns.numbers("total_buckets")[rows[-1]]), len(rows)

    def __iter__(self) -> Iterator[BucketId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def bucket_files(
    context: TableContext,
    snapshot: Snapshot | None,
    keep_partition: KeepPartition | None = None,
    buckets: Collection[int] | None = None,
    keep_manifest: KeepManifest | None = None,
    added: AddedFiles | None = None,
    partition_marks: Collection[bytes] | None = None,
) -> Mapping[BucketId, BucketFiles]:
    """Buckets with at least one live file; none for `snapshot` None, a table that nothing was committed to.

    `keep_manifest` may drop manifests by the partitions they hold. `partition_marks`: byte strings of which one occurs in every
    partition that is kept; parts of manifests without any may be left out. Of many files none become objects before their
    bucket is asked for, and then each time anew.
    """
    if snapshot is None:
        return {}

    def may_hold_buckets(meta: ManifestFileMeta) -> bool:
        if keep_manifest is not None and not keep_manifest(meta):
            return False
        if buckets is None or meta.min_bucket is None or meta.max_bucket is None:
            return True
        return any(meta.min_bucket <= bucket <= meta.max_bucket for bucket in buckets)

    manifests = [meta for meta in context.manifests.manifests_of(snapshot) if may_hold_buckets(meta)]
    if sum(meta.num_added_files + meta.num_deleted_files for meta in manifests) >= MANY_ENTRIES:
        columns = _columns(context, snapshot, manifests, keep_partition, buckets, added, partition_marks)
        return ColumnBuckets(columns, _index_files(context, snapshot))

    def keep(entry: ManifestEntry) -> bool:
        if added is not None:
            added(entry.partition, 1)
        return (keep_partition is None or keep_partition(entry.partition)) and (buckets is None or entry.bucket in buckets)

    grouped: dict[BucketId, list[ManifestEntry]] = {}
    for entry in context.manifests.live_among(snapshot, manifests, keep):
        grouped.setdefault(entry.bucket_id, []).append(entry)
    indexes = _index_files(context, snapshot)
    return {
        bucket_id: BucketFiles(
            *bucket_id, entries[-1].total_buckets, tuple(entry.file for entry in entries), indexes.get(bucket_id, ())
        )
        for bucket_id, entries in grouped.items()
    }


@dataclass(frozen=True)
class CommittedState:
    """What a writer has to know of each bucket: its greatest sequence number, and what its newest file was written for."""

    max_sequences: Mapping[BucketId, int]
    total_buckets: Mapping[BucketId, int]


def committed_state(buckets: Mapping[BucketId, BucketFiles]) -> CommittedState:
    """Of many buckets no files are made."""
    if isinstance(buckets, ColumnBuckets):
        columns = buckets.columns
        return CommittedState(columns.greatest_by_place("max_sequences"), columns.newest_by_place("total_buckets"))
    tops = {bucket_id: max(file.max_sequence_number for file in bucket.files) for bucket_id, bucket in buckets.items()}
    return CommittedState(tops, {bucket_id: bucket.total_buckets for bucket_id, bucket in buckets.items()})


def expect_buckets(context: TableContext, asked: Collection[int], found: Iterable[BucketFiles]) -> None:
    """UsageError for a number beyond the table's buckets, NotFound where buckets come with their rows (`bucket` -1)."""
    present = {bucket.bucket: bucket.total_buckets for bucket in found}
    count = max((context.options.bucket, *present.values()))
    unknown = [number for number in asked if number not in present and not 0 <= number < count]
    hint = f"paimon-cli buckets ls {context.layout.argument}"
    if unknown and count > 0:
        raise UsageError(f"{context.url} has no bucket {unknown[0]}", f"its buckets are 0 to {count - 1}", hint)
    if unknown:
        numbers = ", ".join(map(str, sorted(present))) or "none yet"
        raise NotFound(f"{context.url} has no bucket {unknown[0]}", f"its buckets are {numbers}", hint)


def _columns(
    context: TableContext,
    snapshot: Snapshot,
    manifests: list[ManifestFileMeta],
    keep_partition: KeepPartition | None,
    buckets: Collection[int] | None,
    added: AddedFiles | None,
    partition_marks: Collection[bytes] | None,
) -> PlacedColumns:
    from paimon_cli.history.live_columns import live_columns

    try:
        return live_columns(context.manifests.columns(manifests, partition_marks), keep_partition, buckets, added)
    except DamagedFile as error:
        raise context.manifests.gone_or_damaged(snapshot, error) from error


def _index_files(context: TableContext, snapshot: Snapshot) -> dict[BucketId, tuple[IndexFileMeta, ...]]:
    indexes: dict[BucketId, list[IndexFileMeta]] = {}
    for index in context.manifests.index_entries(snapshot):
        indexes.setdefault(index.bucket_id, []).append(index.index_file)
    return {bucket_id: tuple(files) for bucket_id, files in indexes.items()}
