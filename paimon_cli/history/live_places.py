"""The live files of a few buckets of a snapshot, however many files the table has: what a commit is checked against."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_cli.errors import DamagedFile
from paimon_cli.history.known_manifests import CachedManifest, PartitionEntries
from paimon_cli.history.live_columns import FileTable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, FileFilter, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.partition_range import may_hold_any
from paimon_cli.metadata.snapshot import Snapshot

BucketCounts = Mapping[bytes, Collection[int]]
"""Each partition with the numbers of buckets that its files were written for."""

_MOST_PARTITIONS = 64
"""Of more partitions nothing is kept for the next commit."""


@dataclass(frozen=True)
class LiveBuckets:
    """`entries`: the files of the buckets, those of each oldest first.

    `bucket_counts`: those of all files in their partitions; where all entries agree, also of files that are no longer live.
    """

    entries: list[ManifestEntry] = field(default_factory=list)
    bucket_counts: BucketCounts = field(default_factory=dict)


def live_files_of_buckets(context: TableContext, snapshot: Snapshot, bucket_ids: Collection[BucketId]) -> LiveBuckets:
    """Reads only manifests that may hold those partitions and were not read before."""
    partitions = {partition: context.partition_values(partition) for partition, _ in bucket_ids}
    manifests = context.manifests.manifests_of(snapshot)

    def may_hold(meta: ManifestFileMeta) -> bool:
        return may_hold_any(meta.partition_stats, context.partition_types, partitions.values())

    try:
        if len(partitions) <= _MOST_PARTITIONS:
            return _in_cached(context.manifest_cache.get(manifests, partitions, may_hold), bucket_ids)
        tables = context.manifests.tables([*filter(may_hold, manifests)], partitions)
        files = FileTable.of(tables, FileFilter(partitions.__contains__)).live()
        rows = sorted(int(row) for bucket_id in bucket_ids for row in files.rows_by_bucket.get(bucket_id, ()))
        return LiveBuckets([files.entry(row) for row in rows], files.bucket_counts())
    except DamagedFile as error:
        raise context.manifests.gone_or_damaged(snapshot, error) from error


def _in_cached(manifests: Sequence[CachedManifest], bucket_ids: Collection[BucketId]) -> LiveBuckets:
    entries: list[ManifestEntry] = []
    counts: dict[bytes, Collection[int]] = {}
    for partition in dict.fromkeys(partition for partition, _ in bucket_ids):
        parts = [part for manifest in manifests if (part := manifest.entries(partition)) is not None]
        counts[partition] = _bucket_counts(partition, parts)
        buckets = [bucket for where, bucket in bucket_ids if where == partition]
        tables = [table for bucket in buckets for part in parts if (table := part.in_bucket(bucket)) is not None]
        entries += FileTable.of_partition(partition, tables).live().entries()
    return LiveBuckets(entries, counts)


def _bucket_counts(partition: bytes, parts: Sequence[PartitionEntries]) -> Collection[int]:
    """Only where entries disagree does it matter which of them are live."""
    added = frozenset[int]().union(*(part.bucket_counts for part in parts))
    if len(added) < 2:
        return added
    pieces = (piece for part in parts for piece in part.table.pieces)
    return FileTable.of_partition(partition, pieces).live().bucket_counts().get(partition, ())
