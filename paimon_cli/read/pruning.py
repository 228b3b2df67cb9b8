"""Decides by bounds in metadata which manifests, partitions, buckets and files may hold a matching row.

The bounds are those of FORMAT.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from paimon_cli.bucket.file_indexes import FileIndexes, is_consulted
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.column_cast import keeps_buckets, keeps_values, same_type
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, DataType
from paimon_cli.errors import DamagedFile
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import files_that_wait
from paimon_cli.metadata.data_file import (
    ROW_ID,
    DataFileMeta,
    FileFilter,
    KeepPartition,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.read.matching_rows import MatchingRows
from paimon_cli.sql.expressions import BoundsOf, ColumnBounds
from paimon_cli.sql.predicate import Predicate
from paimon_cli.storage.threads import cached_property


class TableBounds:
    """The bounds of columns in manifests, partitions and files of one table context."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._partitions: dict[bytes, dict[str, ColumnBounds]] = {}
        self._key_fields = context.schema.fields_of(context.schema.trimmed_primary_keys)

    def of_partition(self, partition: bytes) -> BoundsOf:
        """The exact values of the partition columns."""
        if partition not in self._partitions:
            values = self._context.partition_values(partition)
            keys = self._context.schema.partition_keys
            self._partitions[partition] = {name: ColumnBounds.of_value(v) for name, v in zip(keys, values, strict=True)}
        return self._partitions[partition].get

    def of_manifest(self, manifest: ManifestFileMeta) -> BoundsOf:
        """Bounds of the partition columns over all entries of a manifest."""
        schema = self._context.schema
        rows = manifest.num_added_files + manifest.num_deleted_files
        fields = schema.fields_of(schema.partition_keys)
        return self._decoded(manifest.partition_stats, rows, fields, manifest.file_name).get

    def of_keys(self, partition: bytes, bucket: int, file: DataFileMeta) -> BoundsOf:
        """Bounds of partition and primary-key columns, which hold for every version of the file's keys."""
        of_partition, known = self.of_partition(partition), self._keys(file, is_sorted=bucket != POSTPONE_BUCKET)
        return lambda name: of_partition(name) or known.get(name)

    def of_file(self, partition: bytes, bucket: int, file: DataFileMeta) -> BoundsOf:
        """Bounds of all columns, for the rows of this file."""
        of_keys, known = self.of_keys(partition, bucket, file), self._values(file) | self._row_ids(file)
        return lambda name: of_keys(name) or known.get(name)

    def of_indexed(self, partition: bytes, bucket: int, file: DataFileMeta) -> BoundsOf:
        """Bounds like `of_file`, combined with the file index, which is read when a condition first needs it."""
        of_file, indexes = self.of_file(partition, bucket, file), FileIndexes(self._context, partition, bucket, file)
        fields = self._context.schema.fields
        stored = dict(zip((f.name for f in fields), zip(fields, self._stored_fields(file, fields), strict=True), strict=True))

        def bounds_of(name: str) -> ColumnBounds | None:
            known = of_file(name) or ColumnBounds(file.row_count, None)
            field, old = stored.get(name, (None, None))
            if field is None or old is None or not is_consulted(old.type) or not same_type(old.type, field.type):
                return known
            if known.low is None and known.high is None and (bounds := indexes.bounds(old)) is not None:
                known = replace(known, low=bounds[0], high=bounds[1], exact=True)
            return replace(known, holds=partial(indexes.may_hold, old))

        return bounds_of

    def matching_rows(self, predicate: Predicate, partition: bytes, bucket: int, file: DataFileMeta) -> MatchingRows:
        """The rows of the file that may match: a condition on its row groups and pages."""
        fields = self._context.schema.fields
        stored = {
            field.name: old
            for field, old in zip(fields, self._stored_fields(file, fields), strict=True)
            if old is not None and field.name in predicate.columns and same_type(old.type, field.type)
        }
        return MatchingRows(predicate, self.of_file(partition, bucket, file), stored)

    def _keys(self, file: DataFileMeta, *, is_sorted: bool) -> dict[str, ColumnBounds]:
        stored = self._stored_fields(file, self._key_fields)
        if not stored or any(a is None or not same_type(a.type, b.type) for a, b in zip(stored, self._key_fields, strict=True)):
            return {}
        known = self._decoded(file.key_stats, file.row_count, self._key_fields, file.file_name)
        first = self._key_fields[0]
        if self._context.mode.clusters_rows:
            return known
        if is_sorted and first.name not in known and first.type.root not in FLOATING_ROOTS:
            # Rows are sorted by key, so the first key column has bounds even if statistics are switched off.
            types = [field.type for field in self._key_fields]
            low, high = (_row(row, types, file.file_name)[0] for row in (file.min_key, file.max_key))
            known[first.name] = ColumnBounds(file.row_count, None, low, high)
        return known

    def _row_ids(self, file: DataFileMeta) -> dict[str, ColumnBounds]:
        """The ids of the rows, if the file does not store them, so that they follow one another."""
        mode, least = self._context.mode, self._context.first_new_row_id
        if not mode.tracks_rows or mode.combines_columns or file.stores_row_ids:
            return {}
        if file.first_row_id is not None:
            return {ROW_ID: ColumnBounds(file.row_count, 0, file.first_row_id, file.first_row_id + file.row_count - 1)}
        return {ROW_ID: ColumnBounds(file.row_count, 0, least)} if least is not None and file.awaits_row_ids else {}

    def _values(self, file: DataFileMeta) -> dict[str, ColumnBounds]:
        """Bounds of all columns. A column that the file's schema lacks is null in all rows; one that must be cast is unknown."""
        if file.write_cols is not None:
            return {}
        fields = self._context.schema.fields
        stored = self._stored_fields(file, fields)
        recorded = self._context.schemas.named(file.schema_id)
        names = recorded.field_names if file.value_stats_cols is None else file.value_stats_cols
        if any(name not in recorded.field_names for name in names):
            return {}
        by_name = self._decoded(file.value_stats, file.row_count, recorded.fields_of(names), file.file_name)
        known: dict[str, ColumnBounds] = {}
        for field, old in zip(fields, stored, strict=True):
            if old is None:
                known[field.name] = ColumnBounds(file.row_count, file.row_count)
            elif old.name in by_name and keeps_values(old.type, field.type):
                known[field.name] = by_name[old.name]
        return known

    def _stored_fields(self, file: DataFileMeta, fields: Sequence[DataField]) -> list[DataField | None]:
        """For each field the file's own column, matched by id; None if the file has none."""
        if file.schema_id == self._context.schema.id:
            return list(fields)
        by_id = {field.id: field for field in self._context.schemas.named(file.schema_id).fields}
        return [by_id.get(field.id) for field in fields]

    def _decoded(self, stats: SimpleStats, rows: int, fields: Sequence[DataField], file_name: str) -> dict[str, ColumnBounds]:
        """Column name -> bounds, for columns that have any. Statistics of another arity are ignored."""
        if {_arity(stats.min_values), _arity(stats.max_values)} != {len(fields)}:
            return {}
        types = [field.type for field in fields]
        lows, highs = (_row(row, types, file_name) for row in (stats.min_values, stats.max_values))
        nulls = stats.null_counts if stats.null_counts else (None,) * len(fields)
        if len(nulls) != len(fields):
            raise DamagedFile(f"statistics of {file_name} are damaged", f"{len(nulls)} null counts for {len(fields)} columns")
        known: dict[str, ColumnBounds] = {}
        for field, low, high, count in zip(fields, lows, highs, nulls, strict=True):
            if field.type.root in FLOATING_ROOTS and not _trusted_floats(low, high, file_name):
                low = high = None
            if low is not None or high is not None or count is not None:
                known[field.name] = ColumnBounds(rows, count, low, high)
        return known


def _arity(row: bytes) -> int:
    """Number of fields of a serialised row."""
    return int.from_bytes(row[:4], "big")


def _trusted_floats(low: Any, high: Any, file_name: str) -> bool:
    """Whether the bounds of a floating-point column hold. Those of ORC files may ignore NaN; in any file they may be NaN."""
    return file_name.endswith(".parquet") and low == low and high == high


def _row(row: bytes, types: Sequence[DataType], file_name: str) -> tuple[Any, ...]:
    try:
        return deserialize_row(row, types)
    except ValueError as problem:
        raise DamagedFile(f"a manifest holds damaged statistics of {file_name}", str(problem)) from problem


ALL_LEVELS, ABOVE_0 = "all", "above 0 only"


@dataclass
class ScanCounts:
    """What a plan examined and what it skipped, by reason. Files in skipped manifests, or skipped parts, are not counted.

    `waiting_records`: stored records that no ordinary read shows before a compaction. They are also counted by their level, or
    not at all if they are postponed.
    """

    manifests: int = 0
    manifests_skipped: int = 0
    partitions: int = 0
    partitions_skipped: int = 0
    buckets: int = 0
    buckets_skipped: int = 0
    files: int = 0
    files_skipped_by_partition: int = 0
    files_skipped_by_bucket: int = 0
    files_skipped_by_level: int = 0
    rows_skipped_by_level: int = 0
    files_skipped_by_key: int = 0
    files_skipped_by_value: int = 0
    files_skipped_by_index: int = 0
    files_skipped_as_unchanged: int = 0
    waiting_records: int = 0


class Pruning(FileFilter):
    """Decides which files to read, by partition, bucket, level, key and value, and counts what it skips.

    `merges`: false if files are read one by one without merging, as for the changes of a stream; then no level is hidden.
    """

    def __init__(
        self,
        context: TableContext,
        predicate: Predicate | None,
        keep_partition: KeepPartition | None = None,
        buckets: Collection[int] | None = None,
        read_optimized: bool = False,
        merges: bool = True,
        shows_postponed: bool = False,
    ) -> None:
        super().__init__(keep_partition)
        self.partition_marks = None if predicate is None else predicate.partition_marks
        self.merges = merges
        self.counts = ScanCounts()
        self._context = context
        self._predicate = predicate
        self._wanted_buckets = buckets
        self._min_bucket = POSTPONE_BUCKET if shows_postponed else 0
        self._top_level = context.options.num_levels - 1 if read_optimized and context.schema.primary_keys else None
        self._hides_level_0 = merges and context.mode.hides_level_0
        self._bounds = TableBounds(context)
        self._read_indexes = context.options.file_index_read_enabled
        self._kept_partitions: dict[bytes, bool] = {}
        self._files_of: dict[bytes, int] = {}
        self._buckets_of: dict[int, frozenset[int] | None] = {}

    @property
    def levels(self) -> str:
        """The levels that are read, as a text for reports."""
        if self._top_level is not None:
            return f"{self._top_level} only"
        return ABOVE_0 if self._hides_level_0 else ALL_LEVELS

    @property
    def looks_into_files(self) -> bool:
        """Whether the predicate has columns other than partition columns."""
        return self._predicate is not None and not set(self._predicate.columns) <= set(self._context.schema.partition_keys)

    def keeps_manifest(self, manifest: ManifestFileMeta) -> bool:
        self.counts.manifests += 1
        may_match = self._predicate is None or self._predicate.may_match(self._bounds.of_manifest(manifest))
        self.counts.manifests_skipped += not may_match
        return may_match

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
        """Count the net change of files in a partition.

        A partition whose ADD entries are in skipped manifests counts as empty.
        """
        before = self._files_of.get(partition, 0)
        self._files_of[partition] = before + files
        change = max(0, before + files) - max(0, before)
        self.counts.files += change
        self.counts.files_skipped_by_partition += 0 if self.keeps_partition(partition) else change

    def keeps_bucket(self, bucket: int, bucket_count: int) -> bool:
        """Whether the bucket may hold matching rows. `bucket_count`: the number of buckets in its partition."""
        if bucket < self._min_bucket or (self._wanted_buckets is not None and bucket not in self._wanted_buckets):
            return False
        if self._predicate is None or bucket_count < 1:
            return True
        if bucket_count not in self._buckets_of:
            buckets = self._predicate.buckets(bucket_count)
            self._buckets_of[bucket_count] = buckets if buckets is None or self._hashes_stayed else None
        holding = self._buckets_of[bucket_count]
        return holding is None or bucket in holding

    @cached_property
    def _hashes_stayed(self) -> bool:
        """Whether the rows of all schemas are in the buckets of their values as they are now.

        Java lets a bucket key that is no primary key change its type, and leaves the rows where they are.
        """
        now = self._context.schema
        keys = {field.id: field.type for field in now.fields_of(now.bucket_key_names)}
        if now.primary_keys:
            return True
        older = (self._context.schemas.find(number) for number in self._context.schemas.ids() if number < now.id)
        fields = [field for schema in older if schema is not None for field in schema.fields if field.id in keys]
        return all(keeps_buckets(field.type, keys[field.id]) for field in fields)

    def count_waiting(self, table: FileTable, is_read: npt.NDArray[np.bool_], in_kept_bucket: npt.NDArray[np.bool_]) -> None:
        """Count the records that wait for a compaction, among those of the buckets that the read is about."""
        if not self._context.mode.hides_files or self._top_level is not None:
            return
        chosen = in_kept_bucket | ((table.buckets == POSTPONE_BUCKET) & (self._wanted_buckets is None))
        waiting = files_that_wait(self._context.mode, table) & chosen & ~is_read
        self.counts.waiting_records += int(table.numbers("row_counts")[waiting].sum())

    def shows_level(self, level: int) -> bool:
        return not (self._hides_level_0 and level == 0) and self._top_level in (None, level)

    def may_hold_keys(self, entry: ManifestEntry) -> bool:
        """Whether the keys of a file allow a match. If not, it is safe to skip the file, since no version of its keys matches."""
        return self._predicate is None or self._predicate.may_match(
            self._bounds.of_keys(entry.partition, entry.bucket, entry.file)
        )

    def keeps_section(self, members: Sequence[ManifestEntry]) -> bool:
        """Whether a section may hold matching rows, by values of other columns than keys.

        A section is only skipped as a whole, because a matching old row may be hidden by a newer row that does not match. Merge
        engines that combine versions create rows that are in no file; with them only sections of one file can be skipped.
        """
        if len(members) > 1 and self._context.options.merge_engine.combines_versions:
            return True
        if any(self._may_hold_values(entry) and self._may_hold_indexed(entry) for entry in members):
            return True
        by_value = [not self._may_hold_values(entry) for entry in members]
        self.counts.files_skipped_by_value += sum(by_value)
        self.counts.files_skipped_by_index += len(by_value) - sum(by_value)
        return False

    def _may_hold_values(self, entry: ManifestEntry) -> bool:
        return self._predicate is None or self._predicate.may_match(
            self._bounds.of_file(entry.partition, entry.bucket, entry.file)
        )

    def _may_hold_indexed(self, entry: ManifestEntry) -> bool:
        """Whether the file index allows a match. It may be in a separate file, so it is checked last."""
        if self._predicate is None or not self._read_indexes or not FileIndexes.has_any(entry.file):
            return True
        return self._predicate.may_match(self._bounds.of_indexed(entry.partition, entry.bucket, entry.file))
