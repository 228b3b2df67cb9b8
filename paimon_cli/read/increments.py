"""The changes between two snapshots as splits (FORMAT.md, section 11.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.metadata.data_file import ADD, BucketId, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.read.difference_plan import plan_difference
from paimon_cli.read.increment_range import CHANGELOG, DIFF, IncrementRange
from paimon_cli.read.predicate import Predicate
from paimon_cli.read.scan_plan import ScanPlan, plan_added
from paimon_cli.read.split import ScanCounts, Split


def increment_context(context: TableContext, mode: str) -> TableContext:
    """Sees level 0 and no deletion vectors: what came in, not what is left of it. Only DIFF compares what readers see."""
    if mode == DIFF:
        return context
    return replace(context, options=context.options.with_overrides({"deletion-vectors.enabled": "false"}))


def plan_increment(context: TableContext, chosen: IncrementRange, mode: str, predicate: Predicate | None) -> ScanPlan:
    """Rows that the range brought: DELTA reads the files that its APPENDs added, CHANGELOG its changelog files.

    Both show every version of a key, snapshot by snapshot, as a stream sees them; nothing is merged. DIFF compares both ends
    instead. COMPACT snapshots bring no rows of their own, OVERWRITEs are left out as Paimon does. `mode` comes from
    `IncrementRange.mode`, `context` from `increment_context`.
    """
    if mode == DIFF:
        return plan_difference(context, chosen.begin.snapshot(context), chosen.end.snapshot(context), predicate)
    snapshots = chosen.snapshots(context)
    newest = snapshots[-1] if snapshots else None
    if mode == CHANGELOG:
        return ScanPlan(newest, tuple(_changelog_splits(context, snapshots)), ScanCounts())
    appends = (context.manifests.delta_entries(snapshot) for snapshot in snapshots if snapshot.commit_kind == APPEND)
    added = [[entry for entry in entries if entry.kind == ADD] for entries in appends]
    return plan_added(context, newest, added, predicate)


def _grouped(entries: Iterable[ManifestEntry]) -> list[BucketFiles]:
    buckets: dict[BucketId, BucketFiles] = {}
    for entry in entries:
        if entry.kind == ADD:
            bucket_id = entry.bucket_id
            bucket = buckets.get(bucket_id) or BucketFiles(*bucket_id, entry.total_buckets, ())
            buckets[bucket_id] = replace(bucket, files=(*bucket.files, entry.file))
    return list(buckets.values())


def _changelog_splits(context: TableContext, snapshots: Iterable[Snapshot]) -> Iterator[Split]:
    """A split per changelog file: a lone file passes unmerged, so that every change of a key is seen."""
    for snapshot in snapshots:
        if snapshot.changelog_manifest_list is None or snapshot.commit_kind == OVERWRITE:
            continue
        manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
        entries = [entry for batch in context.manifests.entries(manifests) for entry in batch]
        for bucket in sorted(_grouped(entries), key=lambda b: (context.partition_path_of(b.partition), b.bucket)):
            for file in bucket.files:
                yield Split(replace(bucket, files=(file,)), False)
