"""What changed between two snapshots, as splits that a reader reads like any others (format section 11.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.metadata.data_file import ADD, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.read.difference_plan import plan_difference
from paimon_cli.read.increment_range import CHANGELOG, DIFF, IncrementRange
from paimon_cli.read.predicate import Predicate
from paimon_cli.read.scan_plan import ScanPlan, plan_buckets
from paimon_cli.read.split import ScanCounts, Split


def increment_context(context: TableContext, mode: str) -> TableContext:
    """Sees level 0 and no deletion vectors: what came in, not what is left of it. Only DIFF compares what readers see."""
    if mode == DIFF:
        return context
    return replace(context, options=context.options.with_overrides({"deletion-vectors.enabled": "false"}))


def plan_increment(
    context: TableContext, chosen: IncrementRange, mode: str, predicate: Predicate | None, *, one_by_one: bool = False
) -> ScanPlan:
    """Rows that the range brought: DELTA merges what its APPENDs added, CHANGELOG reads its changelog files as is.

    DIFF compares both ends instead. COMPACT snapshots bring no rows of their own, OVERWRITEs are left out as Paimon does.
    `one_by_one`: no merging over snapshots, as a stream sees them. `mode` comes from `IncrementRange.mode`, `context` from
    `increment_context`.
    """
    if mode == DIFF:
        return plan_difference(context, chosen.begin.snapshot(context), chosen.end.snapshot(context), predicate)
    snapshots = chosen.snapshots(context)
    newest = snapshots[-1] if snapshots else None
    if mode == CHANGELOG:
        return ScanPlan(newest, tuple(_changelog_splits(context, snapshots)), ScanCounts())
    appends = [snapshot for snapshot in snapshots if snapshot.commit_kind == APPEND]
    groups = [[snapshot] for snapshot in appends] if one_by_one else [appends]
    plans = [plan_buckets(context, newest, _added(context, group), predicate, shows_level_0=True) for group in groups]
    counts = plans[0].counts if len(plans) == 1 else ScanCounts()
    return ScanPlan(newest, tuple(split for plan in plans for split in plan.splits), counts)


def _added(context: TableContext, snapshots: Iterable[Snapshot]) -> list[BucketFiles]:
    entries = [entry for snapshot in snapshots for entry in context.manifests.delta_entries(snapshot)]
    return _grouped(entries)


def _grouped(entries: Iterable[ManifestEntry]) -> list[BucketFiles]:
    buckets: dict[tuple[bytes, int], BucketFiles] = {}
    for entry in entries:
        if entry.kind == ADD:
            place = (entry.partition, entry.bucket)
            bucket = buckets.get(place) or BucketFiles(*place, entry.total_buckets, ())
            buckets[place] = replace(bucket, files=(*bucket.files, entry.file))
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
