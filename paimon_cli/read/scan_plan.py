"""Plans a read: the files of a snapshot that it must open, cut into splits (FORMAT.md, sections 11.1 and 11.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import LazyBuckets, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import KeepPartition, ManifestEntry
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.pruning import ALL_LEVELS, Pruning
from paimon_cli.read.scan_columns import column_splits
from paimon_cli.read.splits import PlannedSplits, ScanCounts, Split
from paimon_cli.sql.predicate import Predicate


@dataclass(frozen=True)
class ScanPlan:
    """Splits in the order of partitions, buckets and keys; of many each is made when it is asked for.

    `snapshot` None: nothing was ever committed.
    """

    snapshot: Snapshot | None
    splits: tuple[Split, ...] | PlannedSplits
    counts: ScanCounts
    levels: str = ALL_LEVELS

    @property
    def size(self) -> int:
        """Bytes to read at most."""
        splits = self.splits
        return splits.size if isinstance(splits, PlannedSplits) else sum(split.size for split in splits)

    @property
    def row_count(self) -> int:
        """Rows to read at most, before merging."""
        splits = self.splits
        return splits.row_count if isinstance(splits, PlannedSplits) else sum(split.row_count for split in splits)

    @property
    def splits_to_merge(self) -> int:
        """How many splits hold several versions of keys."""
        splits = self.splits
        return int(splits.merges.sum()) if isinstance(splits, PlannedSplits) else sum(split.needs_merge for split in splits)


def plan_scan(
    context: TableContext,
    snapshot: Snapshot | None,
    predicate: Predicate | None = None,
    *,
    keep_partition: KeepPartition | None = None,
    buckets: Collection[int] | None = None,
    read_optimized: bool = False,
) -> ScanPlan:
    """Plan a read of `snapshot` (of `context.schema`); files that cannot hold a matching row are left out.

    `read_optimized`: only the top level, whose files need no merge (Java's `$ro` view). Postponed rows (bucket -2) are not
    visible to reads.
    """
    pruning = Pruning(context, predicate, keep_partition, buckets, read_optimized)
    splits = column_splits(context, bucket_files(context, snapshot, pruning), pruning)
    return ScanPlan(snapshot, splits, pruning.counts, pruning.levels)


def plan_added(
    context: TableContext, newest: Snapshot | None, added: Iterable[Sequence[ManifestEntry]], predicate: Predicate | None
) -> ScanPlan:
    """Plan a read of the files that each of several snapshots added, one after the other: nothing is merged or hidden."""
    pruning = Pruning(context, predicate, merges=False)
    splits: list[Split] = []
    for entries in added:
        table = FileTable.of([ManifestTable.of(entries)], pruning)
        splits += column_splits(context, LazyBuckets(table, {}), pruning)
    return ScanPlan(newest, tuple(splits), pruning.counts, pruning.levels)
