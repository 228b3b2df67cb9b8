"""What lives in a few buckets of a snapshot, however many files the table has: what a commit is checked against."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import MANY_ENTRIES, Place
from paimon_cli.metadata.data_file import ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.partition_range import may_hold_any
from paimon_cli.metadata.snapshot import Snapshot

PartitionTotal = tuple[bytes, int]
"""A partition and a number of buckets that a file in it was written for."""


@dataclass(frozen=True)
class LivePlaces:
    """`entries`: the files of the buckets, oldest first; `totals`: of all files in their partitions."""

    entries: list[ManifestEntry]
    totals: set[PartitionTotal]


def live_at(context: TableContext, snapshot: Snapshot, places: Collection[Place]) -> LivePlaces:
    """Reads only manifests that may hold those partitions; of many entries only those of the buckets become objects."""
    partitions = {partition: context.partition_values(partition) for partition, _ in places}
    reader, types = context.manifests, context.partition_types
    manifests = [meta for meta in reader.manifests_of(snapshot) if may_hold_any(meta.partition_stats, types, partitions.values())]
    if sum(meta.num_added_files + meta.num_deleted_files for meta in manifests) >= MANY_ENTRIES:
        try:
            return _by_columns(context, manifests, partitions, places)
        except DamagedFile as error:
            raise reader.gone_or_damaged(snapshot, error) from error
    entries = reader.live_among(snapshot, manifests, lambda entry: entry.partition in partitions)
    totals = {(entry.partition, entry.total_buckets) for entry in entries}
    return LivePlaces([entry for entry in entries if (entry.partition, entry.bucket) in places], totals)


def _by_columns(
    context: TableContext, manifests: list[ManifestFileMeta], partitions: Collection[bytes], places: Collection[Place]
) -> LivePlaces:
    from paimon_cli.history.live_columns import live_columns  # loads numpy, which commands on metadata do without

    columns = live_columns(context.manifests.columns(manifests, partitions), partitions.__contains__)
    rows = [row for place in places for row in columns.rows_by_place.get(place, ())]
    return LivePlaces([columns.entry(row) for row in sorted(map(int, rows))], columns.totals())
