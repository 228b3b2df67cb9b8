"""Plans a read: prunes the files of a snapshot, and divides the rest into splits (FORMAT.md, sections 11.1 and 11.2).

Sections of overlapping files are never divided, so that all versions of a key are in one split. Manifest entries stay columns;
they become objects only if a condition must be compared with their statistics.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import numpy as np
import numpy.typing as npt

from paimon_cli.datatypes.key_order import key_words, ranks
from paimon_cli.errors import NotSupported
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import BucketFiles, LazyBuckets, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import no_key_range, pack_starts, section_starts
from paimon_cli.metadata.avro_columns import NULL_NUMBER
from paimon_cli.metadata.data_file import DataFileMeta, KeepPartition, ManifestEntry
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import ALL_LEVELS, Pruning, ScanCounts
from paimon_cli.sql.predicate import Predicate


@dataclass(frozen=True)
class Split:
    """Files of one bucket whose keys are in no other split. Picklable.

    `before`: show the changes from these files to those of the split, which may also be in the buckets `beside` if rows have
    moved; `both_sides`: changed keys are shown as -U and +U. `is_changelog`: the rows are changes, and are not merged. `part`,
    `parts`: the part of each file to read, if nothing is merged.
    """

    bucket: BucketFiles
    needs_merge: bool
    before: tuple[BucketFiles, ...] | None = None
    beside: tuple[BucketFiles, ...] = ()
    both_sides: bool = False
    is_changelog: bool = False
    part: int = 0
    parts: int = 1

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All files to be read."""
        return tuple(file for bucket in (*(self.before or ()), self.bucket, *self.beside) for file in bucket.files)

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(file.file_size for file in self.files)

    @property
    def row_count(self) -> int:
        """The number of rows in all files, including older versions and deletes."""
        return sum(file.row_count for file in self.files)


@dataclass(frozen=True)
class PlannedSplits(Sequence[Split]):
    """The splits of a large plan as arrays; each `Split` is created when it is accessed. Equal to a tuple of the same splits.

    `files`: rows of `buckets.table`, split by split. Per split: `starts`, index of its first row in `files`; `merges`, whether it
    must be merged; `total_buckets`.
    """

    buckets: LazyBuckets
    files: np.ndarray
    starts: np.ndarray
    merges: np.ndarray
    total_buckets: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, number: int) -> Split: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Split, ...]: ...

    def __getitem__(self, number: int | slice) -> Split | tuple[Split, ...]:
        if isinstance(number, slice):
            return tuple(self[index] for index in range(*number.indices(len(self))))
        number = range(len(self))[number]
        end = self.starts[number + 1] if number + 1 < len(self) else len(self.files)
        rows, merges = self.files[self.starts[number] : end].tolist(), bool(self.merges[number])
        if merges:
            rows.sort()  # the order of the bucket, oldest first, decides between equal sequence numbers
        entries = [self.buckets.table.entry(row) for row in rows]
        files, bucket_id = tuple(entry.file for entry in entries), entries[0].bucket_id
        index_files = self.buckets.index_files.get(bucket_id, ())
        return Split(BucketFiles(*bucket_id, int(self.total_buckets[number]), files, index_files), merges)

    def __iter__(self) -> Iterator[Split]:
        return (self[number] for number in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return int(self.buckets.table.numbers("sizes")[self.files].sum())

    @property
    def row_count(self) -> int:
        return int(self.buckets.table.numbers("row_counts")[self.files].sum())


_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ReadPlan:
    """The splits of a read, by partition, bucket and key.

    `snapshot`: None for a table without snapshots. `levels`: for reports.
    """

    snapshot: Snapshot | None
    splits: tuple[Split, ...] | PlannedSplits
    counts: ScanCounts
    levels: str = ALL_LEVELS

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        splits = self.splits
        return splits.size if isinstance(splits, PlannedSplits) else sum(split.size for split in splits)

    @property
    def partitions(self) -> list[bytes]:
        """The partitions whose files are read, each once."""
        splits = self.splits
        if isinstance(splits, PlannedSplits):
            table = splits.buckets.table
            return [table.partitions[code] for code in np.unique(table.codes[splits.files]).tolist()]
        return list(dict.fromkeys(split.bucket.partition for split in splits))

    @property
    def row_count(self) -> int:
        """The number of rows in all files, before merging."""
        splits = self.splits
        return splits.row_count if isinstance(splits, PlannedSplits) else sum(split.row_count for split in splits)

    @property
    def splits_to_merge(self) -> int:
        """The number of splits that must be merged."""
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
) -> ReadPlan:
    """Plan a read of a snapshot with `context.schema`. Files that cannot hold a matching row and postponed rows are left out.

    `read_optimized`: read only the top level, whose files need no merge (Java's `$ro` table).
    """
    pruning = Pruning(context, predicate, keep_partition, buckets, read_optimized)
    splits = column_splits(context, bucket_files(context, snapshot, pruning), pruning)
    return ReadPlan(snapshot, splits, pruning.counts, pruning.levels)


def check_increments(context: TableContext) -> None:
    """Raise `NotSupported` if the files that commits add are no rows of their own."""
    if context.mode.combines_columns:
        why = "its commits add single columns of older rows (data-evolution.enabled)"
        raise NotSupported(
            f"cannot tell the changes of {context.address}", why, "read its rows at two snapshots, and compare them"
        )


def plan_added(
    context: TableContext,
    newest: Snapshot | None,
    added: Iterable[Sequence[ManifestEntry]],
    predicate: Predicate | None,
    *,
    shows_postponed: bool = False,
) -> ReadPlan:
    """Plan a read of the files that several snapshots added, snapshot by snapshot, without merging.

    Only postponed rows are hidden, unless `shows_postponed`.
    """
    check_increments(context)
    pruning = Pruning(context, predicate, merges=False, shows_postponed=shows_postponed)
    splits: list[Split] = []
    for entries in added:
        table = FileTable.of([ManifestTable.of(entries)], pruning)
        splits += column_splits(context, LazyBuckets(table, {}), pruning)
    return ReadPlan(newest, tuple(splits), pruning.counts, pruning.levels)


_BUCKETS = 1 << 32
_MAX = 1 << 62
"""Greater than any sum of sizes and limits."""


@dataclass(frozen=True)
class _Buckets:
    """Buckets in the order of splits: their `numbers`, and the bucket `counts` of their partitions. `of`: the index of each
    file's bucket.
    """

    numbers: _Ints
    counts: _Ints
    of: _Ints


def column_splits(context: TableContext, live: LazyBuckets, pruning: Pruning) -> PlannedSplits:
    """The splits of all buckets that `pruning` does not skip."""
    table = live.table
    buckets = _buckets(context, table)
    rows = _kept_rows(table, buckets, pruning)
    if pruning.merges and context.mode.reads_merge:
        if pruning.looks_into_files:
            rows = _rows_by_key(table, rows, pruning)
        lows, highs = _key_bounds(context, table)
        _check_key_bounds(table, rows, lows, highs)
        order, starts = section_starts(buckets.of[rows], lows[rows], highs[rows])
    elif context.mode.combines_columns:
        order, starts = _by_row_id(table, buckets, rows)
    else:
        order, starts = _by_age(table, buckets, rows, pruning.merges), np.ones(len(rows), dtype=bool)
    files, firsts = rows[order], np.flatnonzero(starts)
    if pruning.looks_into_files and not context.mode.combines_columns:  # an older file does not bound what a newer one changed
        files, firsts = _matching_sections(table, files, firsts, pruning)
    members = np.diff(firsts, append=len(files))
    of_section = buckets.of[files[firsts]]
    unmerged = context.mode.has_keys and not context.mode.reads_merge
    is_divided = not pruning.merges or (unmerged and len(firsts) <= PIECES.max_single_file_splits)
    packs = np.arange(len(firsts)) if is_divided else _packs(context, table, files, firsts, of_section)
    merges = np.logical_or.reduceat(members > 1, packs) if len(packs) else np.zeros(0, dtype=bool)
    return PlannedSplits(live, files, firsts[packs], merges, buckets.counts[of_section[packs]])


def _packs(context: TableContext, table: FileTable, files: _Ints, firsts: _Ints, of_section: _Ints) -> _Ints:
    """The first section of each split: adjacent sections are packed up to `source.split.target-size`.

    Opening a file has a cost.
    """
    sizes = np.clip(table.numbers("sizes")[files], 0, _MAX // max(len(files), 1))
    weights = np.add.reduceat(sizes, firsts) if len(firsts) else firsts
    weights = np.maximum(weights, context.options.split_open_file_cost)
    return pack_starts(of_section, weights, min(context.options.split_target_size, _MAX))


def _rows_by_key(table: FileTable, rows: _Ints, pruning: Pruning) -> _Ints:
    """The rows of the table (files) whose keys may match."""
    kept = np.array([pruning.may_hold_keys(table.entry(row)) for row in rows.tolist()], dtype=bool)
    pruning.counts.files_skipped_by_key += int((~kept).sum())
    return rows[kept] if len(kept) else rows


def _matching_sections(table: FileTable, files: _Ints, firsts: _Ints, pruning: Pruning) -> tuple[_Ints, _Ints]:
    """The files of sections that may match, and the index of each section's first file."""
    members = np.split(files, firsts[1:]) if len(firsts) else []
    kept = np.array([pruning.keeps_section([table.entry(row) for row in rows.tolist()]) for rows in members], dtype=bool)
    if not len(kept):
        return files, firsts
    sizes = np.diff(firsts, append=len(files))
    kept_sizes = sizes[kept]
    return files[np.repeat(kept, sizes)], np.cumsum(kept_sizes) - kept_sizes


def _key_bounds(context: TableContext, table: FileTable) -> tuple[_Ints, _Ints]:
    """The ranks of the minimum and maximum key of each file, among all of these keys."""
    count = len(table)

    def words_at(offsets: _Ints | int) -> _Ints:
        low, high = (offsets, offsets) if isinstance(offsets, int) else (offsets[:count], offsets[count:])
        return np.concatenate([table.words("min_keys", low), table.words("max_keys", high)])

    lengths = np.concatenate([table.lengths("min_keys"), table.lengths("max_keys")])
    words = key_words(words_at, lengths, context.key_types)
    both = _ranks_of_values(context, table) if words is None else ranks(words)
    return both[:count], both[count:]


def _check_key_bounds(table: FileTable, rows: _Ints, lows: _Ints, highs: _Ints) -> None:
    wrong = rows[lows[rows] > highs[rows]]
    if len(wrong):
        raise no_key_range(table.entry(int(wrong[0])).file)


def _ranks_of_values(context: TableContext, table: FileTable) -> _Ints:
    """The ranks of all minimum keys, then of all maximum keys, for key types whose bytes cannot be compared."""
    keys = [context.key_of(key) for name in ("min_keys", "max_keys") for ranges in table.each(name) for key in ranges]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    steps = [before < after for before, after in pairwise(keys[index] for index in order)]
    key_ranks = np.zeros(len(keys), dtype=np.int64)
    key_ranks[order] = np.cumsum([False, *steps]) if order else []
    return key_ranks


def _buckets(context: TableContext, table: FileTable) -> _Buckets:
    partitions = table.partitions
    ordered = sorted(range(len(partitions)), key=lambda code: (context.partition_path_of(partitions[code]), partitions[code]))
    rank = np.empty(len(partitions), dtype=np.int64)
    rank[ordered] = np.arange(len(partitions))
    numbers = table.buckets
    if (np.abs(numbers) >= _BUCKETS // 2).any():  # in damaged manifests
        numbers = np.unique(numbers, return_inverse=True)[1]
    known, of = np.unique(rank[table.codes] * _BUCKETS + numbers + _BUCKETS // 2, return_inverse=True)
    newest = np.zeros(len(known), dtype=np.int64)
    newest[of] = np.arange(len(table))  # the last file of each bucket wins
    return _Buckets(table.buckets[newest], table.numbers("total_buckets")[newest], of)


def _kept_rows(table: FileTable, buckets: _Buckets, pruning: Pruning) -> _Ints:
    pairs = zip(buckets.numbers.tolist(), buckets.counts.tolist(), strict=True)
    kept = np.array([pruning.keeps_bucket(bucket, count) for bucket, count in pairs], dtype=bool)
    in_kept = kept[buckets.of] if len(kept) else np.zeros(0, dtype=bool)
    levels = table.numbers("levels")
    visible_levels = [level for level in np.unique(levels).tolist() if pruning.shows_level(level)]
    visible = in_kept & np.isin(levels, visible_levels)
    counts = pruning.counts
    counts.buckets += len(kept)
    counts.buckets_skipped += int((~kept).sum())
    counts.files_skipped_by_bucket += int((~in_kept).sum())
    counts.files_skipped_by_level += int((in_kept & ~visible).sum())
    counts.rows_skipped_by_level += int(table.numbers("row_counts")[in_kept & ~visible].sum())
    pruning.count_waiting(table, visible, in_kept)
    return np.flatnonzero(visible)


def _by_row_id(table: FileTable, buckets: _Buckets, rows: _Ints) -> tuple[_Ints, _Flags]:
    """The order of files whose columns are combined: by bucket and row id; and which of them begin a new range of ids.

    Ranges that overlap without being equal stay together, so that they are found to be damaged. A file without ids is alone.
    """
    known = [table.entry(row).file.first_row_id for row in rows.tolist()]
    begins = np.array([number - len(known) if begin is None else begin for number, begin in enumerate(known)], dtype=np.int64)
    counts = np.where(begins < 0, 1, np.clip(table.numbers("row_counts")[rows], 1, _MAX))
    ends = begins + np.minimum(counts - 1, np.iinfo(np.int64).max - np.maximum(begins, 0))  # hostile ids must not wrap
    return section_starts(buckets.of[rows], begins, ends)


def _by_age(table: FileTable, buckets: _Buckets, rows: _Ints, sorts: bool) -> _Ints:
    """The order of files that are not merged: by bucket, and if `sorts`, by sequence number and age."""
    if not sorts:
        return np.argsort(buckets.of[rows], kind="stable")
    created = table.numbers("creation_times")[rows]
    return np.lexsort((np.where(created == NULL_NUMBER, 0, created), table.numbers("min_sequences")[rows], buckets.of[rows]))
