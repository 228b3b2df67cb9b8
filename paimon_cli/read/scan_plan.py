"""Plans a read: the files of a snapshot that it must open, cut into splits (FORMAT.md, sections 11.1 and 11.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from paimon_cli.bucket.file_indexes import FileFilters
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles, ColumnBuckets, KeepPartition, bucket_files
from paimon_cli.lsm.sorted_runs import Section, key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.file_bounds import TableBounds
from paimon_cli.read.planned_splits import PlannedSplits
from paimon_cli.read.predicate import Predicate
from paimon_cli.read.scan_columns import column_splits
from paimon_cli.read.split import ScanCounts, Split

T = TypeVar("T")
ALL_LEVELS, ABOVE_0 = "all", "above 0 only"


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
    planner = _Planner(context, predicate, keep_partition, buckets, read_optimized)
    marks = None if predicate is None else predicate.partition_marks
    found = bucket_files(context, snapshot, planner.keep_partition, None, planner.keep_manifest, planner.count_added, marks)
    return planner.plan(snapshot, found)


def plan_added(
    context: TableContext, newest: Snapshot | None, added: Iterable[Iterable[BucketFiles]], predicate: Predicate | None
) -> ScanPlan:
    """Plan a read of the files that each of several snapshots added, one after the other: nothing is merged or hidden."""
    planner = _Planner(context, predicate, None, None, False, merges=False)
    splits: list[Split] = []
    for buckets in added:
        found: dict[BucketId, BucketFiles] = {}
        for bucket in buckets:
            planner.count_added(bucket.partition, len(bucket.files))
            if planner.keep_partition(bucket.partition):
                found[bucket.bucket_id] = bucket
        splits += planner.plan(newest, found).splits
    return ScanPlan(newest, tuple(splits), planner.counts)


class _Planner:
    """Prunes by partition, bucket, key and value, and keeps count."""

    def __init__(
        self,
        context: TableContext,
        predicate: Predicate | None,
        keep_partition: KeepPartition | None,
        buckets: Collection[int] | None,
        read_optimized: bool,
        merges: bool = True,
    ) -> None:
        self._merges = merges
        self.counts = ScanCounts()
        self._context = context
        self._predicate = predicate
        self._wanted_partition = keep_partition
        self._wanted_buckets = buckets
        self._top_level = context.options.num_levels - 1 if read_optimized and context.schema.primary_keys else None
        self._bounds = TableBounds(context)
        self._read_indexes = context.options.file_index_read_enabled
        self._kept_partitions: dict[bytes, bool] = {}
        self._buckets_of: dict[int, frozenset[int] | None] = {}

    def keep_manifest(self, manifest: ManifestFileMeta) -> bool:
        self.counts.manifests += 1
        kept = self._predicate is None or self._predicate.may_match(self._bounds.of_manifest(manifest))
        self.counts.manifests_skipped += not kept
        return kept

    def keep_partition(self, partition: bytes) -> bool:
        kept = self._kept_partitions.get(partition)
        if kept is None:
            kept = self._wanted_partition is None or self._wanted_partition(partition)
            kept = kept and (self._predicate is None or self._predicate.may_match(self._bounds.of_partition(partition)))
            self._kept_partitions[partition] = kept
            self.counts.partitions += 1
            self.counts.partitions_skipped += not kept
        return kept

    def count_added(self, partition: bytes, files: int) -> None:
        self.counts.files += files
        self.counts.files_skipped_by_partition += 0 if self.keep_partition(partition) else files

    def plan(self, snapshot: Snapshot | None, found: Mapping[BucketId, BucketFiles]) -> ScanPlan:
        """Splits of the buckets in the order of partitions and buckets."""
        if isinstance(found, ColumnBuckets) and self._asks_for_places_only():
            planned = column_splits(self._context, found, self._keep_bucket, self._shows_level, self.counts)
            if planned is not None:
                return ScanPlan(snapshot, planned, self.counts, self._levels)
        splits: list[Split] = []
        for bucket_id in sorted(found, key=lambda bucket_id: (self._context.partition_path_of(bucket_id[0]), *bucket_id)):
            if self._counted_bucket(found, bucket_id):
                splits += self._splits(found[bucket_id])
        return ScanPlan(snapshot, tuple(splits), self.counts, self._levels)

    def _asks_for_places_only(self) -> bool:
        return self._predicate is None or set(self._predicate.columns) <= set(self._context.schema.partition_keys)

    def _counted_bucket(self, found: Mapping[BucketId, BucketFiles], bucket_id: BucketId) -> bool:
        """Asked before the bucket's files are made."""
        if isinstance(found, ColumnBuckets):
            total, files = found.totals(bucket_id)
        else:
            total, files = found[bucket_id].total_buckets, len(found[bucket_id].files)
        self.counts.buckets += 1
        kept = self._keep_bucket(bucket_id[1], total)
        if not kept:
            self.counts.buckets_skipped += 1
            self.counts.files_skipped_by_bucket += files
        return kept

    def _splits(self, bucket: BucketFiles) -> list[Split]:
        files = [file for file in bucket.files if self._shows_level(file.level)]
        self.counts.files_skipped_by_level += len(bucket.files) - len(files)
        self.counts.rows_skipped_by_level += sum(f.row_count for f in bucket.files) - sum(f.row_count for f in files)
        if not self._merges:
            return [split for file in files for split in self._independent_files(bucket, [file])]
        if not self._context.schema.primary_keys or self._context.options.vectors_replace_merging:
            return self._independent_files(bucket, files)
        return self._sections(bucket, files)

    def _keep_bucket(self, bucket: int, total: int) -> bool:
        if bucket < 0 or (self._wanted_buckets is not None and bucket not in self._wanted_buckets):
            return False
        if self._predicate is None or self._context.options.bucket < 1:
            return True
        if total not in self._buckets_of:
            self._buckets_of[total] = self._predicate.buckets(total)
        holding = self._buckets_of[total]
        return holding is None or bucket in holding

    def _shows_level(self, level: int) -> bool:
        return not (self._hides_level_0 and level == 0) and self._top_level in (None, level)

    @property
    def _hides_level_0(self) -> bool:
        return bool(self._context.schema.primary_keys) and self._merges and self._context.options.hides_level_0

    @property
    def _levels(self) -> str:
        if self._top_level is not None:
            return f"{self._top_level} only"
        return ABOVE_0 if self._hides_level_0 else ALL_LEVELS

    def _independent_files(self, bucket: BucketFiles, files: list[DataFileMeta]) -> list[Split]:
        """Append tables, and buckets whose stale rows deletion vectors mark: no row depends on another file."""
        kept = [file for file in files if self._may_hold(bucket, file)]
        self._count_skipped(bucket, [file for file in files if file not in kept])
        ordered = sorted(kept, key=lambda file: (file.min_sequence_number, file.creation_time_millis or 0))
        groups = self._packed(ordered, lambda file: file.file_size)
        return [Split(replace(bucket, files=tuple(group)), False) for group in groups]

    def _sections(self, bucket: BucketFiles, files: list[DataFileMeta]) -> list[Split]:
        """Whole sections of overlapping files, so that all versions of a key meet in one split."""
        keyed = [file for file in files if self._may_hold_keys(bucket, file)]
        self.counts.files_skipped_by_key += len(files) - len(keyed)
        sections: list[Section] = []
        for section in key_sections(keyed, self._context.key_of):
            members = _files(section)
            if self._keep_section(bucket, members):
                sections.append(section)
            else:
                self._count_skipped(bucket, members)
        groups = self._packed(sections, _size)
        return [
            Split(
                replace(bucket, files=tuple(file for section in group for file in _files(section))),
                any(len(section) > 1 for section in group),
            )
            for group in groups
        ]

    def _may_hold_keys(self, bucket: BucketFiles, file: DataFileMeta) -> bool:
        """A condition that the keys alone break drops a file safely: all versions of those keys go with it."""
        return self._predicate is None or self._predicate.may_match(self._bounds.of_keys(bucket.partition, file))

    def _may_hold(self, bucket: BucketFiles, file: DataFileMeta) -> bool:
        return self._may_hold_values(bucket, file) and self._may_hold_indexed(bucket, file)

    def _may_hold_values(self, bucket: BucketFiles, file: DataFileMeta) -> bool:
        return self._predicate is None or self._predicate.may_match(self._bounds.of_file(bucket.partition, file))

    def _may_hold_indexed(self, bucket: BucketFiles, file: DataFileMeta) -> bool:
        """Only asked where statistics do not help: an index may lie in a file of its own."""
        if self._predicate is None or not self._read_indexes or not FileFilters.has_any(file):
            return True
        return self._predicate.may_match(self._bounds.of_indexed(bucket.partition, bucket.bucket, file))

    def _count_skipped(self, bucket: BucketFiles, files: Iterable[DataFileMeta]) -> None:
        by_value = [not self._may_hold_values(bucket, file) for file in files]
        self.counts.files_skipped_by_value += sum(by_value)
        self.counts.files_skipped_by_index += len(by_value) - sum(by_value)

    def _keep_section(self, bucket: BucketFiles, members: list[DataFileMeta]) -> bool:
        """Values drop a section only as a whole: an old row that matches may be hidden by a newer one that does not.

        Engines that combine several versions make rows that no file holds; for them only a section of one file can be dropped.
        """
        if len(members) > 1 and self._context.options.merge_engine != "deduplicate":
            return True
        return any(self._may_hold(bucket, file) for file in members)

    def _packed(self, items: Iterable[T], size_of: Callable[[T], int]) -> list[list[T]]:
        """Neighbours together until they reach the size of a split; opening a file costs as much as reading some bytes."""
        limit, least = self._context.options.split_target_size, self._context.options.split_open_file_cost
        groups: list[list[T]] = []
        filled = 0
        for item in items:
            weight = max(size_of(item), least)
            if not groups or filled + weight > limit:
                groups.append([])
                filled = 0
            groups[-1].append(item)
            filled += weight
        return groups


def _files(section: Section) -> list[DataFileMeta]:
    return [file for run in section for file in run.files]


def _size(section: Section) -> int:
    return sum(run.size for run in section)
