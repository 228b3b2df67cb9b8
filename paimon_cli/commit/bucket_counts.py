"""All files of one partition must be written for the same number of buckets, or keys are looked for in the wrong one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_places import PartitionTotal, live_at
from paimon_cli.history.manifest_reader import KeepManifest
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, BucketId, ManifestEntry
from paimon_cli.metadata.partition_range import may_hold_any
from paimon_cli.metadata.snapshot import Snapshot


def check_bucket_counts(context: TableContext, totals: Iterable[PartitionTotal]) -> None:
    """Raise `FilesConflict` if two files of one partition disagree; dynamic buckets (count -1) have nothing to agree on."""
    counts: dict[bytes, int] = {}
    for place, total in totals:
        if total > 0 and counts.setdefault(place, total) != total:
            partition = context.partition_path_of(place).rstrip("/")
            raise FilesConflict(
                f"the bucket count of {partition or context.url} has changed",
                f"files for {counts[place]} and for {total} buckets cannot be in one partition",
                "run the job again with the table's current bucket count",
                partition=partition,
            )


def check_remaining_bucket_counts(
    context: TableContext, latest: Snapshot | None, totals: set[PartitionTotal], changes: Sequence[ManifestEntry]
) -> None:
    """Check changes on top of `latest`; `totals` are the known bucket counts of the touched partitions.

    Live files are read only where counts disagree: a commit that removes all files of a partition may bring another count.
    """
    added = [entry for entry in changes if entry.kind == ADD]
    counts: dict[bytes, set[int]] = {}
    for partition, total in [*totals, *totals_of(added)]:
        if total > 0:
            counts.setdefault(partition, set()).add(total)
    doubtful = {partition for partition, found in counts.items() if len(found) > 1}
    if doubtful:
        gone = {entry.identity for entry in changes if entry.kind != ADD}
        live = [] if latest is None else context.manifests.live_entries(latest, keep_entry=lambda e: e.partition in doubtful)
        check_bucket_counts(context, totals_of([*(entry for entry in live if entry.identity not in gone), *added]))


def check_newest_bucket_counts(context: TableContext, latest: Snapshot, added: Sequence[ManifestEntry]) -> None:
    """Check new files without reading the whole table.

    From the newest manifest backwards, the first entries of a partition give its count; only if that disagrees with the new files
    are all live files of the partition read.
    """
    check_bucket_counts(context, totals_of(added))
    counts = {entry.partition: entry.total_buckets for entry in added if entry.total_buckets > 0}
    values = {partition: context.partition_values(partition) for partition in counts}
    for meta in reversed(context.manifests.manifests_of(latest)):
        if not values:
            return
        for known in context.known_manifests.read([meta], values, _holds_any(context, values.values())):
            newest = {partition: known.entries(partition).newest_total or 0 for partition in values}
            doubtful = {p for p in values if newest[p] > 0 and newest[p] != counts[p]}
            if doubtful:
                _check_live_files(context, latest, doubtful, added)
            values = {p: values[p] for p in values if newest[p] <= 0}


def _holds_any(context: TableContext, values: Collection[tuple[Any, ...]]) -> KeepManifest:
    return lambda meta: may_hold_any(meta.partition_stats, context.partition_types, values)


def _check_live_files(context: TableContext, latest: Snapshot, partitions: set[bytes], added: Sequence[ManifestEntry]) -> None:
    live = live_at(context, latest, [BucketId(partition, 0) for partition in partitions])
    check_bucket_counts(context, [*sorted(live.totals), *totals_of(added)])


def totals_of(entries: Iterable[ManifestEntry]) -> list[PartitionTotal]:
    """The partition and bucket count of each entry."""
    return [(entry.partition, entry.total_buckets) for entry in entries]
