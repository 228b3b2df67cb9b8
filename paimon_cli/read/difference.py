"""The difference between two snapshots, planned as splits with the files of both, and read as rows (FORMAT.md, section 11.4)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from paimon_cli.bucket.merged_rows import read_bucket, rows_by_key
from paimon_cli.bucket.spilled_runs import merge_in_passes
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import files_that_wait
from paimon_cli.lsm.row_difference import AFTER, BEFORE, Difference, unmatched
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.bucket_modes import DYNAMIC_BUCKET
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, FileFilter, ManifestFileMeta
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, SEQUENCE_NUMBER, VALUE_KIND, RowKind
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import natural_order
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import ABOVE_0, ALL_LEVELS, ScanCounts, TableBounds
from paimon_cli.read.scan_plan import ReadPlan, Split, check_increments
from paimon_cli.sql.predicate import Predicate

Buckets = tuple[BucketFiles, ...]
Sides = tuple[Buckets, Buckets]


def plan_difference(
    context: TableContext,
    before: Snapshot | None,
    after: Snapshot | None,
    predicate: Predicate | None = None,
    *,
    min_level: int = 0,
    both_sides: bool = False,
) -> ReadPlan:
    """Plan the difference between two snapshots (None: the empty table).

    Files of both sides that may share keys form a split, unless both sides have the same files. If rows may have moved between
    the buckets of a partition, all of these buckets are compared at once. Each side is merged as its readers see it; Java merges
    only files that the other side lacks, and so shows partial rows for engines that combine versions.
    `min_level`: files of lower levels are ignored. `both_sides`: show the old and the new row of a changed key.
    """
    check_increments(context)
    planner = _Planner(context, predicate, max(min_level, int(context.mode.hides_level_0)), both_sides)
    old, live = dict(bucket_files(context, before, planner)), bucket_files(context, after, planner)
    new = dict(live)
    planner.count_waiting(live.table)
    splits: list[Split] = []
    for sides in _sides(context, old, new):
        splits += planner.splits(*sides)
    return ReadPlan(after, tuple(splits), planner.counts, ABOVE_0 if context.mode.hides_level_0 else ALL_LEVELS)


def _sides(context: TableContext, old: Mapping[BucketId, BucketFiles], new: Mapping[BucketId, BucketFiles]) -> Iterator[Sides]:
    """The buckets to compare: each with itself, or in partitions whose rows may have moved, all changed buckets at once."""
    bucket_ids: dict[bytes, list[BucketId]] = {}
    for bucket_id in sorted(old.keys() | new.keys(), key=lambda bucket_id: (context.partition_path_of(bucket_id[0]), *bucket_id)):
        if bucket_id[1] >= 0:
            bucket_ids.setdefault(bucket_id[0], []).append(bucket_id)
    for ids in bucket_ids.values():
        pairs = [(old.get(i) or BucketFiles(*i, 1, ()), new.get(i) or BucketFiles(*i, 1, ())) for i in ids]
        if not _rows_may_move(context, [old[i] for i in ids if i in old], [new[i] for i in ids if i in new]):
            yield from (((before,), (after,)) for before, after in pairs)
            continue
        unchanged = [(before, after) for before, after in pairs if before == after]
        yield from (((before,), (after,)) for before, after in unchanged)
        changed = [pair for pair in pairs if pair not in unchanged]
        if changed:
            yield tuple(before for before, _ in changed), tuple(after for _, after in changed)


def _rows_may_move(context: TableContext, old: Sequence[BucketFiles], new: Sequence[BucketFiles]) -> bool:
    """Whether keys may have changed their bucket: the bucket count differs, or buckets are dynamic.

    A table of dynamic buckets that was rescaled has a fixed count by now: the files tell what it was.
    """
    if not old or not new:
        return False
    counts, later = {bucket.total_buckets for bucket in old}, {bucket.total_buckets for bucket in new}
    is_dynamic = bool(context.schema.primary_keys) and DYNAMIC_BUCKET in (context.options.bucket, *counts)
    return is_dynamic or counts != later


class _Planner(FileFilter):
    """Plans splits. Leaves out files that cannot differ or cannot match, and counts them."""

    def __init__(self, context: TableContext, predicate: Predicate | None, min_level: int, both_sides: bool) -> None:
        super().__init__()
        self.counts = ScanCounts()
        self._min_level = min_level
        self._both_sides = both_sides
        self._context = context
        self._predicate = predicate
        self._bounds = TableBounds(context)
        self._kept_partitions: dict[bytes, bool] = {}

    def keeps_manifest(self, manifest: ManifestFileMeta) -> bool:
        self.counts.manifests += 1
        may_match = self._predicate is None or self._predicate.may_match(self._bounds.of_manifest(manifest))
        self.counts.manifests_skipped += not may_match
        return may_match

    def splits(self, old: Buckets, new: Buckets) -> Iterator[Split]:
        """The splits for the same buckets of one partition in both snapshots."""
        partition, files = new[0].partition, {file.file_name for bucket in (*old, *new) for file in bucket.files}
        self.counts.files += len(files)
        if not self._shows_partition(partition):
            self.counts.files_skipped_by_partition += len(files)
            return
        self.counts.buckets += len(new)
        before, after = self._visible(old), self._visible(new)
        same_vectors = [bucket.index_files for bucket in old] == [bucket.index_files for bucket in new]
        for members in self._groups({**before, **after}.values()):
            names = {file.file_name for file in members}
            if same_vectors and names <= before.keys() and names <= after.keys():
                self.counts.files_skipped_as_unchanged += len(members)
            elif not self._may_match(partition, members):
                self.counts.files_skipped_by_key += len(members)
            else:
                earlier, later = _only(old, names & before.keys()), _only(new, names & after.keys())
                yield Split(later[0], True, earlier, later[1:], self._both_sides)

    def _shows_partition(self, partition: bytes) -> bool:
        kept = self._kept_partitions.get(partition)
        if kept is None:
            kept = self._predicate is None or self._predicate.may_match(self._bounds.of_partition(partition))
            self._kept_partitions[partition] = kept
            self.counts.partitions += 1
            self.counts.partitions_skipped += not kept
        return kept

    def count_waiting(self, later: FileTable) -> None:
        """Count the records of the later state that no read shows before a compaction."""
        waiting = files_that_wait(self._context.mode, later)
        shown = [self._shows_partition(later.partitions[code]) for code in later.codes[waiting].tolist()]
        self.counts.waiting_records += int(later.numbers("row_counts")[waiting][shown].sum())

    def _visible(self, side: Buckets) -> dict[str, DataFileMeta]:
        """Name -> file, for files of the levels that are compared."""
        files = [file for bucket in side for file in bucket.files]
        visible = {file.file_name: file for file in files if file.level >= self._min_level}
        self.counts.files_skipped_by_level += len(files) - len(visible)
        self.counts.rows_skipped_by_level += sum(file.row_count for file in files if file.file_name not in visible)
        return visible

    def _groups(self, files: Iterable[DataFileMeta]) -> list[list[DataFileMeta]]:
        """Groups of files that may hold the same keys; in append tables all files are one group."""
        if not self._context.schema.primary_keys:
            return [list(files)]
        return [[file for run in section for file in run.files] for section in key_sections(files, self._context.key_of)]

    def _may_match(self, partition: bytes, files: list[DataFileMeta]) -> bool:
        predicate = self._predicate
        return predicate is None or any(predicate.may_match(self._bounds.of_keys(partition, 0, file)) for file in files)


def _only(side: Buckets, names: Collection[str]) -> Buckets:
    """The buckets reduced to these files. Buckets without any of them are left out, but one bucket always remains."""
    reduced = [replace(bucket, files=tuple(file for file in bucket.files if file.file_name in names)) for bucket in side]
    return tuple(bucket for bucket in reduced if bucket.files) or (reduced[0],)


Rows = Iterator[pa.RecordBatch]


def read_difference(context: TableContext, old: Buckets, new: Buckets, *, both_sides: bool = False) -> Rows:
    """The changes that lead from the rows of `old` to the rows of `new`, in key order, as `plan_difference` pairs buckets.

    Batches have `_VALUE_KIND` and all columns of the table: -D with the old values, otherwise the new row. `both_sides`: changed
    keys are shown as -U and +U. Rows of append tables are compared as a whole, in memory: only those of files that one side
    lacks, or of all files if deletion vectors changed.
    """
    if not context.schema.primary_keys:
        yield from _appended(context, old, new)
        return
    keys = context.schema.trimmed_primary_keys
    sides = [(bucket, version) for version, side in ((BEFORE, old), (AFTER, new)) for bucket in side]
    max_open = max(2, PIECES.merge_bytes // PIECES.run_batch_bytes)  # buckets at a time: each needs memory for its batches
    memory = PIECES.merge_bytes // min(max_open, max(2, len(sides))) * 2
    runs = [functools.partial(_numbered, context, bucket, version, memory) for bucket, version in sides]
    for batch in merge_in_passes(runs, keys, Difference(both_sides=both_sides), max_open, keys_repeat=True):
        yield batch.select([VALUE_KIND, *context.schema.field_names])


def _numbered(context: TableContext, bucket: BucketFiles, version: int, memory: int) -> Rows:
    for batch in rows_by_key(context, bucket, [VALUE_KIND, *context.schema.field_names], memory):
        numbers = pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows)
        yield batch.add_column(0, pa.field(SEQUENCE_NUMBER, pa.int64()), numbers)


def _appended(context: TableContext, old: Buckets, new: Buckets) -> Rows:
    shared: set[str] = set()
    if [bucket.index_files for bucket in old] == [bucket.index_files for bucket in new]:
        shared = _names(old) & _names(new)
    removed, added = (_rows_of(context, side, shared) for side in (old, new))
    if removed is not None and added is not None:
        removed, added = unmatched(removed, added)
    for kind, rows in ((RowKind.DELETE, removed), (RowKind.INSERT, added)):
        for batch in [] if rows is None else rows.to_batches():
            yield batch.add_column(0, pa.field(VALUE_KIND, pa.int8()), pa.repeat(pa.scalar(kind, pa.int8()), batch.num_rows))


def _names(side: Buckets) -> set[str]:
    return {file.file_name for bucket in side for file in bucket.files}


def _rows_of(context: TableContext, side: Buckets, shared: set[str]) -> pa.Table | None:
    batches: list[pa.RecordBatch] = []
    for bucket in side:
        files = tuple(file for file in bucket.files if file.file_name not in shared)
        batches += read_bucket(context, replace(bucket, files=files), context.schema.field_names)
    return pa.Table.from_batches(batches) if batches else None


ADDED, REMOVED = "added", "removed"


@dataclass(frozen=True)
class FileChange:
    """A data file that is live in only one of two snapshots. `change`: added or removed; `size`: bytes."""

    change: str
    partition: str
    bucket: int
    level: int
    file: str
    rows: int
    size: int


@dataclass(frozen=True)
class RowChange:
    """A row that differs between two snapshots, with the row kind that leads from the first to the second."""

    kind: str
    values: dict[str, Any]


def file_changes(context: TableContext, before: Snapshot, after: Snapshot) -> list[FileChange]:
    """The data files that differ between two snapshots, by bucket, removed files first, then by level."""
    old, new = ({entry.identity: entry for entry in context.manifests.live_entries(snapshot)} for snapshot in (before, after))
    differing = [(REMOVED, old[i]) for i in old.keys() - new.keys()] + [(ADDED, new[i]) for i in new.keys() - old.keys()]
    changes = [
        FileChange(
            change,
            context.partition_path_of(e.partition).rstrip("/"),
            e.bucket,
            e.file.level,
            e.file.file_name,
            e.file.row_count,
            e.file.file_size,
        )
        for change, e in differing
    ]
    return sorted(changes, key=lambda c: (natural_order(c.partition), c.bucket, c.change == ADDED, c.level, c.file))


def row_changes(context: TableContext, before: Snapshot, after: Snapshot) -> Iterator[RowChange]:
    """The rows that differ between two snapshots, bucket by bucket, in the columns of the newer one. Reads only changed files."""
    newer = context.at_schema(max(before.schema_id, after.schema_id))  # `after` may be the older one, with narrower types
    fields = newer.schema.fields
    for split in plan_difference(newer, before, after).splits:
        assert split.before is not None
        for batch in read_difference(newer, split.before, (split.bucket, *split.beside), both_sides=True):
            kinds = [KIND_TEXTS[kind] for kind in batch.column(VALUE_KIND).to_pylist()]
            rows = canonical_rows(batch.select(newer.schema.field_names), fields)
            yield from map(RowChange, kinds, rows)
