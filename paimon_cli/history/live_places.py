"""What lives in a few buckets of a snapshot, however many files the table has: what a commit is checked against."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile
from paimon_cli.history.known_manifests import KnownManifest
from paimon_cli.history.partition_entries import Identity, PartitionEntries
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.partition_range import may_hold_any
from paimon_cli.metadata.snapshot import Snapshot

PartitionTotal = tuple[bytes, int]
"""A partition and a number of buckets that a file in it was written for."""

_MOST_PARTITIONS = 64
"""Of more partitions nothing is kept for the next commit."""


@dataclass(frozen=True)
class LivePlaces:
    """`entries`: the files of the buckets, oldest first in each; `totals`: bucket counts of all files in their partitions."""

    entries: list[ManifestEntry]
    totals: set[PartitionTotal]


def live_at(context: TableContext, snapshot: Snapshot, bucket_ids: Collection[BucketId]) -> LivePlaces:
    """Reads only manifests that may hold those partitions and were not read before."""
    partitions = {partition: context.partition_values(partition) for partition, _ in bucket_ids}
    manifests = context.manifests.manifests_of(snapshot)

    def may_hold(meta: ManifestFileMeta) -> bool:
        return may_hold_any(meta.partition_stats, context.partition_types, partitions.values())

    try:
        if len(partitions) <= _MOST_PARTITIONS:
            found = _live_of_known(context.known_manifests.read(manifests, partitions, may_hold), bucket_ids)
            if found is not None:
                return found
        return _live_by_columns(context, [meta for meta in manifests if may_hold(meta)], bucket_ids)
    except DamagedFile as error:
        raise context.manifests.gone_or_damaged(snapshot, error) from error


def _live_of_known(manifests: Sequence[KnownManifest], bucket_ids: Collection[BucketId]) -> LivePlaces | None:
    """The set-wise fold of those places alone; None where it does not show which numbers of buckets live elsewhere."""
    entries: list[ManifestEntry] = []
    totals: set[PartitionTotal] = set()
    for partition in dict.fromkeys(partition for partition, _ in bucket_ids):
        parts = [manifest.entries(partition) for manifest in manifests]
        dead = _DeadByBucket(parts)
        alive = _live_totals(parts, dead)
        if alive is None:
            return None
        totals |= {(partition, total) for total in alive}
        for bucket in [bucket for where, bucket in bucket_ids if where == partition]:
            added = [entry for part in parts for entry in part.in_bucket(bucket).added]
            entries += [entry for entry in added if entry.identity not in dead[bucket]]
    return LivePlaces(entries, totals)


class _DeadByBucket(dict[int, frozenset[Identity]]):
    """What is deleted anywhere, bucket by bucket, as they are asked for."""

    def __init__(self, parts: Sequence[PartitionEntries]) -> None:
        super().__init__()
        self._parts = parts

    def __missing__(self, bucket: int) -> frozenset[Identity]:
        self[bucket] = frozenset[Identity]().union(*(part.in_bucket(bucket).deleted for part in self._parts))
        return self[bucket]


def _live_totals(parts: Sequence[PartitionEntries], dead: Mapping[int, frozenset[Identity]]) -> set[int] | None:
    """Bucket counts of live files, from samples; None if samples do not decide."""
    alive: set[int] = set()
    unsure: set[int] = set()
    for part in reversed(parts):  # in the newest manifests most files are alive
        for total in part.totals:
            if total in alive:
                continue
            sample, is_all = part.sample(total)
            if any(entry.identity not in dead[entry.bucket] for entry in sample):
                alive.add(total)
            elif not is_all:
                unsure.add(total)
    return alive if unsure <= alive else None


def _live_by_columns(
    context: TableContext, manifests: Sequence[ManifestFileMeta], bucket_ids: Collection[BucketId]
) -> LivePlaces:
    """Bucket counts of any number of partitions, from every one of their entries."""
    from paimon_cli.history.live_columns import live_columns  # loads numpy, which commands on metadata do without

    partitions = {partition for partition, _ in bucket_ids}
    columns = live_columns(context.manifests.columns(manifests, partitions), partitions.__contains__)
    rows = [row for bucket_id in bucket_ids for row in columns.rows_by_place.get(bucket_id, ())]
    return LivePlaces([columns.entry(row) for row in sorted(map(int, rows))], columns.totals())
