"""All files of one partition must be written for the same number of buckets, or keys are looked for in the wrong one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_places import BucketCounts
from paimon_cli.history.manifest_reader import KeepManifest
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, FileFilter, ManifestEntry
from paimon_cli.metadata.partition_range import may_hold_any
from paimon_cli.metadata.snapshot import Snapshot

PartitionCount = tuple[bytes, int]
"""A partition, and a number of buckets that a file in it was written for."""


def check_bucket_counts(context: TableContext, counts: Iterable[PartitionCount]) -> None:
    """Raise `FilesConflict` if two files of one partition disagree; dynamic buckets (count -1) have nothing to agree on."""
    first: dict[bytes, int] = {}
    for partition, count in counts:
        if count > 0 and first.setdefault(partition, count) != count:
            path = context.partition_path_of(partition).rstrip("/")
            raise FilesConflict(
                f"the bucket count of {path or context.url} has changed",
                f"files for {first[partition]} and for {count} buckets cannot be in one partition",
                "run the job again with the table's current bucket count",
                partition=path,
            )


def check_remaining_bucket_counts(
    context: TableContext, latest: Snapshot | None, live: BucketCounts, changes: Sequence[ManifestEntry]
) -> None:
    """Check the bucket counts that changes on top of `latest` leave; `live` are those of the touched partitions.

    Only where they disagree are the live files read: a commit that takes all files of a partition away may bring other counts.
    """
    added = [entry for entry in changes if entry.kind == ADD]
    counts: dict[bytes, set[int]] = {}
    for partition, count in [*_pairs(live), *_counts_of(added)]:
        if count > 0:
            counts.setdefault(partition, set()).add(count)
    doubtful = {partition for partition, found in counts.items() if len(found) > 1}
    if doubtful:
        gone = {entry.identity for entry in changes if entry.kind != ADD}
        entries = [] if latest is None else context.manifests.live_entries(latest, FileFilter(doubtful.__contains__))
        check_bucket_counts(context, _counts_of([*(entry for entry in entries if entry.identity not in gone), *added]))


def check_newest_bucket_counts(context: TableContext, latest: Snapshot, added: Sequence[ManifestEntry]) -> None:
    """Check the bucket counts of new files, mostly without reading the whole table.

    From the newest manifest backwards, the first entries of a partition determine its count; only if they disagree with the
    new files are all live files of the partition read.
    """
    check_bucket_counts(context, _counts_of(added))
    counts = {entry.partition: entry.total_buckets for entry in added if entry.total_buckets > 0}
    values = {partition: context.partition_values(partition) for partition in counts}
    for meta in reversed(context.manifests.manifests_of(latest)):
        if not values:
            return
        for cached in context.manifest_cache.get([meta], values, _holds_any(context, values.values())):
            parts = {partition: cached.entries(partition) for partition in values}
            newest = {partition: part.newest_bucket_count if part else 0 for partition, part in parts.items()}
            doubtful = {p for p in values if newest[p] > 0 and newest[p] != counts[p]}
            if doubtful:
                live = context.manifests.live_files(latest, FileFilter(doubtful.__contains__)).bucket_counts()
                check_bucket_counts(context, [*sorted(_pairs(live)), *_counts_of(added)])
            values = {p: values[p] for p in values if newest[p] <= 0}


def _holds_any(context: TableContext, values: Collection[tuple[Any, ...]]) -> KeepManifest:
    return lambda meta: may_hold_any(meta.partition_stats, context.partition_types, values)


def _pairs(counts: BucketCounts) -> list[PartitionCount]:
    return [(partition, count) for partition, found in counts.items() for count in found]


def _counts_of(entries: Iterable[ManifestEntry]) -> list[PartitionCount]:
    return [(entry.partition, entry.total_buckets) for entry in entries]
