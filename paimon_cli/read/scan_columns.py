"""Plans a read of all files of some buckets on columns, for more files than can be planned one by one.

The splits are those of `scan_plan`, which looks at each file, when it asks for partitions and buckets only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from paimon_cli.datatypes.key_order import key_words, ranks
from paimon_cli.history.live_columns import PlacedColumns
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import ColumnBuckets
from paimon_cli.lsm.section_columns import pack_starts, section_starts
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.avro_columns import ABSENT
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.read.planned_splits import PlannedSplits
from paimon_cli.read.split import ScanCounts

KeepBucket = Callable[[int, int], bool]
"""Whether a bucket is read: its number, and the bucket count of its partition."""
_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_BUCKETS = 1 << 32
_MOST = 1 << 62
"""Sums of sizes and limits stay below."""


@dataclass(frozen=True)
class _Places:
    """Buckets in the order of splits, with their partitions' numbers of buckets; `of` gives each file's place among them."""

    buckets: _Ints
    totals: _Ints
    of: _Ints


def column_splits(
    context: TableContext,
    found: ColumnBuckets,
    keep_bucket: KeepBucket,
    shows_level: Callable[[int], bool],
    counts: ScanCounts,
) -> PlannedSplits | None:
    """Splits of all buckets that are kept; counts what is skipped. None, with nothing counted, for keys that have no words."""
    columns = found.columns
    sizes = columns.numbers("sizes")
    if int(sizes.min(initial=0)) < 0 or int(sizes.max(initial=0)) > _MOST // max(len(sizes), 1):
        return None
    if (np.abs(columns.buckets) >= _BUCKETS // 2).any():
        return None
    sorts_by_key = bool(context.schema.primary_keys) and not context.options.vectors_replace_merging
    bounds = _key_bounds(context, columns) if sorts_by_key else ()
    if bounds is None:
        return None
    places = _places(context, columns)
    rows = _kept_rows(columns, places, keep_bucket, shows_level, counts)
    if bounds:
        order, starts = section_starts(places.of[rows], bounds[0][rows], bounds[1][rows])
    else:
        order, starts = _by_age(columns, places, rows), np.ones(len(rows), dtype=bool)
    files = rows[order]
    firsts = np.flatnonzero(starts)
    members = np.diff(firsts, append=len(files))
    weights = np.add.reduceat(sizes[files], firsts) if len(firsts) else firsts
    weights = np.maximum(weights, context.options.split_open_file_cost)
    section_places = places.of[files[firsts]]
    packs = pack_starts(section_places, weights, min(context.options.split_target_size, _MOST))
    merges = np.logical_or.reduceat(members > 1, packs) if len(packs) else np.zeros(0, dtype=bool)
    totals = places.totals[section_places[packs]]
    return PlannedSplits(found, files, firsts[packs], merges, totals, partial(_in_order, context))


def _key_bounds(context: TableContext, columns: PlacedColumns) -> tuple[_Ints, _Ints] | None:
    """Least and greatest key of each file as integers of one order."""
    count = len(columns)

    def words_at(offsets: _Ints | int) -> _Ints:
        low, high = (offsets, offsets) if isinstance(offsets, int) else (offsets[:count], offsets[count:])
        return np.concatenate([columns.words("min_keys", low), columns.words("max_keys", high)])

    lengths = np.concatenate([columns.lengths("min_keys"), columns.lengths("max_keys")])
    words = key_words(words_at, lengths, context.key_types)
    if words is None:
        return None
    both = ranks(words)
    return both[:count], both[count:]


def _places(context: TableContext, columns: PlacedColumns) -> _Places:
    partitions = columns.partitions
    ordered = sorted(range(len(partitions)), key=lambda code: (context.partition_path_of(partitions[code]), partitions[code]))
    rank = np.empty(len(partitions), dtype=np.int64)
    rank[ordered] = np.arange(len(partitions))
    known, of = np.unique(rank[columns.codes] * _BUCKETS + columns.buckets + _BUCKETS // 2, return_inverse=True)
    newest = np.zeros(len(known), dtype=np.int64)
    newest[of] = np.arange(len(columns))  # of equal indexes the last one counts
    return _Places(known % _BUCKETS - _BUCKETS // 2, columns.numbers("total_buckets")[newest], of)


def _kept_rows(
    columns: PlacedColumns, places: _Places, keep_bucket: KeepBucket, shows_level: Callable[[int], bool], counts: ScanCounts
) -> _Ints:
    pairs = zip(places.buckets.tolist(), places.totals.tolist(), strict=True)
    kept = np.array([keep_bucket(bucket, total) for bucket, total in pairs], dtype=bool)
    in_kept = kept[places.of] if len(kept) else np.zeros(0, dtype=bool)
    levels = columns.numbers("levels")
    shown_levels = [level for level in np.unique(levels).tolist() if shows_level(level)]
    shown = in_kept & np.isin(levels, shown_levels)
    counts.buckets += len(kept)
    counts.buckets_skipped += int((~kept).sum())
    counts.files_skipped_by_bucket += int((~in_kept).sum())
    counts.files_skipped_by_level += int((in_kept & ~shown).sum())
    counts.rows_skipped_by_level += int(columns.numbers("row_counts")[in_kept & ~shown].sum())
    return np.flatnonzero(shown)


def _by_age(columns: PlacedColumns, places: _Places, rows: _Ints) -> _Ints:
    created = columns.numbers("creation_times")[rows]
    return np.lexsort((np.where(created == ABSENT, 0, created), columns.numbers("min_sequences")[rows], places.of[rows]))


def _in_order(context: TableContext, files: Sequence[DataFileMeta]) -> Sequence[DataFileMeta]:
    return [file for section in key_sections(files, context.key_of) for run in section for file in run.files]
