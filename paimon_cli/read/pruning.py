"""What a read need not open: manifests, partitions, buckets, levels and files that cannot hold a row that matches."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paimon_cli.bucket.file_indexes import FileFilters
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import FileFilter, KeepPartition, ManifestEntry, ManifestFileMeta
from paimon_cli.read.file_bounds import TableBounds
from paimon_cli.read.splits import ScanCounts
from paimon_cli.sql.predicate import Predicate

ALL_LEVELS, ABOVE_0 = "all", "above 0 only"


class Pruning(FileFilter):
    """Decides by partition, bucket, level, key and value, and keeps count.

    `merges` False: all files are shown, one by one, as for the changes of a stream.
    """

    def __init__(
        self,
        context: TableContext,
        predicate: Predicate | None,
        keep_partition: KeepPartition | None = None,
        buckets: Collection[int] | None = None,
        read_optimized: bool = False,
        merges: bool = True,
    ) -> None:
        super().__init__(keep_partition)
        self.partition_marks = None if predicate is None else predicate.partition_marks
        self.merges = merges
        self.counts = ScanCounts()
        self._context = context
        self._predicate = predicate
        self._wanted_buckets = buckets
        self._top_level = context.options.num_levels - 1 if read_optimized and context.schema.primary_keys else None
        self._hides_level_0 = merges and context.mode.hides_level_0
        self._bounds = TableBounds(context)
        self._read_indexes = context.options.file_index_read_enabled
        self._kept_partitions: dict[bytes, bool] = {}
        self._buckets_of: dict[int, frozenset[int] | None] = {}

    @property
    def levels(self) -> str:
        """The levels that are read, for people."""
        if self._top_level is not None:
            return f"{self._top_level} only"
        return ABOVE_0 if self._hides_level_0 else ALL_LEVELS

    @property
    def looks_into_files(self) -> bool:
        """Whether the predicate has columns that differ from file to file."""
        return self._predicate is not None and not set(self._predicate.columns) <= set(self._context.schema.partition_keys)

    def keeps_manifest(self, manifest: ManifestFileMeta) -> bool:
        self.counts.manifests += 1
        kept = self._predicate is None or self._predicate.may_match(self._bounds.of_manifest(manifest))
        self.counts.manifests_skipped += not kept
        return kept

    def keeps_partition(self, partition: bytes) -> bool:
        kept = self._kept_partitions.get(partition)
        if kept is None:
            kept = super().keeps_partition(partition)
            kept = kept and (self._predicate is None or self._predicate.may_match(self._bounds.of_partition(partition)))
            self._kept_partitions[partition] = kept
            self.counts.partitions += 1
            self.counts.partitions_skipped += not kept
        return kept

    def count_files(self, partition: bytes, files: int) -> None:
        self.counts.files += files
        self.counts.files_skipped_by_partition += 0 if self.keeps_partition(partition) else files

    def keeps_bucket(self, bucket: int, bucket_count: int) -> bool:
        """`bucket_count`: the number of buckets in its partition."""
        if bucket < 0 or (self._wanted_buckets is not None and bucket not in self._wanted_buckets):
            return False
        if self._predicate is None or self._context.options.bucket < 1:
            return True
        if bucket_count not in self._buckets_of:
            self._buckets_of[bucket_count] = self._predicate.buckets(bucket_count)
        holding = self._buckets_of[bucket_count]
        return holding is None or bucket in holding

    def shows_level(self, level: int) -> bool:
        return not (self._hides_level_0 and level == 0) and self._top_level in (None, level)

    def may_hold_keys(self, entry: ManifestEntry) -> bool:
        """A condition that the keys alone break drops a file safely: all versions of those keys go with it."""
        return self._predicate is None or self._predicate.may_match(self._bounds.of_keys(entry.partition, entry.file))

    def keeps_section(self, members: Sequence[ManifestEntry]) -> bool:
        """Values drop a section only as a whole: an old row that matches may be hidden by a newer one that does not.

        Engines that mix versions make rows that no file holds; for them only a lone file decides.
        """
        if len(members) > 1 and self._context.options.merge_engine != "deduplicate":
            return True
        if any(self._may_hold_values(entry) and self._may_hold_indexed(entry) for entry in members):
            return True
        by_value = [not self._may_hold_values(entry) for entry in members]
        self.counts.files_skipped_by_value += sum(by_value)
        self.counts.files_skipped_by_index += len(by_value) - sum(by_value)
        return False

    def _may_hold_values(self, entry: ManifestEntry) -> bool:
        return self._predicate is None or self._predicate.may_match(self._bounds.of_file(entry.partition, entry.file))

    def _may_hold_indexed(self, entry: ManifestEntry) -> bool:
        """Only asked where statistics do not help: an index may lie in a file of its own."""
        if self._predicate is None or not self._read_indexes or not FileFilters.has_any(entry.file):
            return True
        return self._predicate.may_match(self._bounds.of_indexed(entry.partition, entry.bucket, entry.file))
