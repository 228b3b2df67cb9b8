"""The live files of a snapshot, bucket by bucket: where reads, writes and compactions begin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.manifest_reader import KeepManifest
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, DataFileMeta, IndexFileMeta, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot

if TYPE_CHECKING:
    import numpy as np

    from paimon_cli.metadata.manifest_columns import EntryColumns

KeepPartition = Callable[[bytes], bool]


@dataclass(frozen=True)
class BucketFiles:
    """One bucket at one snapshot. `total_buckets` is what its newest file was written with; files are oldest first."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    index_files: tuple[IndexFileMeta, ...] = ()


def bucket_files(
    context: TableContext,
    snapshot: Snapshot | None,
    keep_partition: KeepPartition | None = None,
    buckets: Collection[int] | None = None,
    keep_manifest: KeepManifest | None = None,
) -> dict[tuple[bytes, int], BucketFiles]:
    """Buckets with at least one live file; none for `snapshot` None, a table that nothing was committed to.

    `keep_manifest` may drop manifests by the partitions they hold.
    """
    if snapshot is None:
        return {}

    def may_hold_buckets(meta: ManifestFileMeta) -> bool:
        if keep_manifest is not None and not keep_manifest(meta):
            return False
        if buckets is None or meta.min_bucket is None or meta.max_bucket is None:
            return True
        return any(meta.min_bucket <= bucket <= meta.max_bucket for bucket in buckets)

    def chosen(columns: EntryColumns) -> np.ndarray:
        return _rows_at(columns, keep_partition, buckets)

    grouped: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    pruned = keep_partition is not None or buckets is not None
    for entry in context.manifests.live_entries(snapshot, may_hold_buckets, chosen=chosen if pruned else None):
        grouped.setdefault((entry.partition, entry.bucket), []).append(entry)
    indexes: dict[tuple[bytes, int], list[IndexFileMeta]] = {}
    for index in context.manifests.index_entries(snapshot):
        indexes.setdefault((index.partition, index.bucket), []).append(index.index_file)
    return {
        place: BucketFiles(
            *place, entries[-1].total_buckets, tuple(entry.file for entry in entries), tuple(indexes.get(place, ()))
        )
        for place, entries in grouped.items()
    }


def expect_buckets(context: TableContext, asked: Collection[int], found: Iterable[BucketFiles]) -> None:
    """UsageError for a number beyond the table's buckets, NotFound where buckets come with their rows (`bucket` -1)."""
    present = {bucket.bucket: bucket.total_buckets for bucket in found}
    count = max(context.options.bucket, *present.values()) if present else context.options.bucket
    unknown = [number for number in asked if number not in present and not 0 <= number < count]
    if unknown and count > 0:
        hint = "see `paimon-cli buckets ls`"
        raise UsageError(f"{context.url} has no bucket {unknown[0]}", f"its buckets are 0 to {count - 1}", hint)
    if unknown:
        numbers = ", ".join(map(str, sorted(present))) or "none yet"
        raise NotFound(f"{context.url} has no bucket {unknown[0]}", f"its buckets are {numbers}", "see `paimon-cli buckets ls`")


def _rows_at(columns: EntryColumns, keep_partition: KeepPartition | None, buckets: Collection[int] | None) -> np.ndarray:
    """Entries of some partitions and buckets; `keep_partition` is asked once for each file that is added."""
    import numpy as np

    rows = np.arange(len(columns))
    if buckets is not None:
        rows = rows[np.isin(columns.buckets, list(buckets))]
    if keep_partition is None:
        return rows
    codes, partitions = columns.partitions.coded()
    codes, adds = codes[rows], columns.kinds[rows] == ADD
    kept = np.ones(len(rows), dtype=bool)
    kept[adds] = [keep_partition(partitions[code]) for code in codes[adds].tolist()]
    kept[~adds] = ~np.isin(codes[~adds], codes[~kept])
    return rows[kept]
