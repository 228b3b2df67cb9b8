"""Finds the bucket that holds a key, among all partitions, where the primary key does not imply the partition.

Java (GlobalIndexAssigner) builds an index of all keys of the table. Here nothing is copied: the requested keys are sorted and
joined with the key columns of the files, row groups and pages whose bounds admit one of them (`key_lookup`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from paimon_cli.bucket.deletion_vectors import BucketVectors, load_vectors
from paimon_cli.bucket.key_blocks import key_bounds
from paimon_cli.bucket.key_lookup import holds_only_adds, positions_in_file, rows_at
from paimon_cli.bucket.merged_rows import RowFilter, max_merged_runs, merge_columns, read_bucket
from paimon_cli.bucket.snapshot_order import SnapshotOrder
from paimon_cli.bucket.spilled_runs import merge_in_passes
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import ABSENT, Flags, Indices, SortedKeys
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.lsm.sorted_rows import LowestLevel, SortedRows, WholeRowEngine, with_level
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import shortened
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import local_wall_clock
from paimon_cli.storage.threads import in_parallel

Locations = NDArray[np.int32]
"""For each key the number of the bucket that shows it, `ABSENT` for a key that none shows."""


def whole_key(schema: TableSchema) -> tuple[str, ...]:
    """The columns of the primary key, first those by which files are sorted, then partition columns: the order of lookups."""
    return (*schema.trimmed_primary_keys, *(name for name in schema.primary_keys if name in schema.partition_keys))


class KeyLocations:
    """Looks keys up in all buckets of a table at one snapshot, and remembers what it learns about their files."""

    def __init__(self, context: TableContext, buckets: Mapping[BucketId, BucketFiles]) -> None:
        self.context = context.with_level_0()
        self.buckets = tuple(buckets[bucket_id] for bucket_id in sorted(buckets))
        self._lookups = [_BucketLookup(self.context, bucket) for bucket in self.buckets]

    def of(self, keys: pa.RecordBatch) -> Locations:
        """The bucket of each key as an index into `buckets`. `keys`: the columns of `whole_key`, sorted by them, each key once.

        Raises `DamagedFile` if a key lives in two buckets, unless `cross-partition-upsert.index-ttl` allows that.
        """
        locations = np.full(keys.num_rows, ABSENT, np.int32)
        threads = min(self.context.read_threads, self.context.options.cross_partition_bootstrap_parallelism)
        rows_of_buckets = in_parallel(partial(self._rows_in, keys), range(len(self.buckets)), threads)
        for number, rows in enumerate(rows_of_buckets):
            repeated = rows[locations[rows] != ABSENT]
            if len(repeated) and self.context.options.cross_partition_index_ttl is None:
                raise self._in_two_buckets(keys, int(repeated[0]), locations, number)
            locations[rows] = number
        return locations

    def _rows_in(self, keys: pa.RecordBatch, number: int) -> Indices:
        """The row numbers of the keys that bucket `number` shows."""
        lookup = self._lookups[number]
        candidates = lookup.in_its_partition(keys)
        candidate_keys = keys if candidates is None else keys.take(pa.array(candidates))
        if candidate_keys.num_rows == 0:
            return np.empty(0, np.int64)
        shown = np.flatnonzero(lookup.shows(candidate_keys.select(list(self.context.schema.trimmed_primary_keys))))
        return shown if candidates is None else candidates[shown]

    def _in_two_buckets(self, keys: pa.RecordBatch, row: int, locations: Locations, number: int) -> DamagedFile:
        first, second = (self.context.bucket_path(*self.buckets[each].bucket_id) for each in (int(locations[row]), number))
        return DamagedFile(
            f"the key {key_text(keys, row)} lives in two buckets, {first} and {second}",
            "two jobs of another engine wrote it; delete the row that is wrong, with its partition in the condition",
            f"paimon-cli verify {self.context.layout.argument} --level full --only PV060",
            path=second,
        )


@dataclass(frozen=True)
class RepeatedKeys:
    """Keys that several buckets show: their number, and the first of them with two of its buckets."""

    count: int
    key: str
    bucket_ids: tuple[BucketId, BucketId]


class _RepeatedKeyRows(WholeRowEngine):
    """A `MergeEngine` that returns the first and the last row of each key with several rows, and nothing for other keys."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        several = np.flatnonzero(~rows.is_lone)
        ends = np.stack([rows.order[rows.starts[several]], rows.order[rows.ends[several] - 1]], axis=1)
        return rows.taken(ends.ravel())


def repeated_keys(
    context: TableContext, buckets: Sequence[BucketFiles], row_filter: RowFilter | None = None
) -> RepeatedKeys | None:
    """Keys that several of the buckets show; None if there are none. Merges the keys of all buckets, in the memory of a merge.

    `row_filter`: only these keys.
    """
    names, context = whole_key(context.schema), context.with_level_0()
    memory = max(PIECES.min_run_bytes, PIECES.merge_bytes // max(1, len(buckets)))

    def keys_of(number: int) -> Iterator[pa.RecordBatch]:
        for batch in read_bucket(context, buckets[number], names, row_filter=row_filter, memory=memory):
            bucket_number = pa.array(np.full(batch.num_rows, number, np.int64))
            kind = pa.array(np.zeros(batch.num_rows, np.int8))
            yield pa.RecordBatch.from_arrays([*batch.columns, bucket_number, kind], names=[*names, SEQUENCE_NUMBER, VALUE_KIND])

    runs = [partial(keys_of, number) for number in range(len(buckets))]
    count, first = 0, None
    for batch in merge_in_passes(runs, names, _RepeatedKeyRows(), max_merged_runs(context, PIECES.merge_bytes), keys_repeat=True):
        if batch.num_rows and first is None:
            first = batch.slice(0, 2)
        count += batch.num_rows // 2
    if first is None:
        return None
    one, other = first.column(SEQUENCE_NUMBER).to_pylist()
    return RepeatedKeys(count, key_text(first.select(list(names)), 0), (buckets[one].bucket_id, buckets[other].bucket_id))


def key_text(keys: pa.RecordBatch, row: int) -> str:
    """The key in a row of columns, for messages: `id = 7, day = NULL`."""
    cells = ((name, keys.column(name)[row]) for name in keys.schema.names)
    return ", ".join(f"{name} = {shortened(str(cell.as_py())) if cell.is_valid else 'NULL'}" for name, cell in cells)


class _BucketLookup:
    """Looks keys up in one bucket, with bounds of its files."""

    def __init__(self, context: TableContext, bucket: BucketFiles) -> None:
        self._context = context
        self._bucket = bucket
        self._files = _oldest_first(_without_expired(context, bucket))

    @cached_property
    def _vectors(self) -> BucketVectors:
        return load_vectors(self._context, self._bucket)

    @cached_property
    def _bounds(self) -> tuple[SortedKeys, SortedKeys]:
        lows, highs = ([getattr(file, bound) for file in self._files] for bound in ("min_key", "max_key"))
        return key_bounds(self._context, lows), key_bounds(self._context, highs)

    def in_its_partition(self, keys: pa.RecordBatch) -> Indices | None:
        """The row numbers of keys that may belong to the partition of this bucket; None for all."""
        context, matching = self._context, None
        values = context.partition_values(self._bucket.partition)
        for name, t, value in zip(context.schema.partition_keys, context.partition_types, values, strict=True):
            if name in context.schema.primary_keys:
                scalar = values_to_arrow([value], t)[0]
                equal = keys.column(name).is_null() if value is None else pc.equal(keys.column(name), scalar).fill_null(False)
                matching = equal if matching is None else pc.and_(matching, equal)
        return None if matching is None else np.flatnonzero(matching.to_numpy(zero_copy_only=False))

    def shows(self, keys: pa.RecordBatch) -> Flags:
        """For each key, whether a read of the bucket shows it. Versions are merged only if one of them is a retraction."""
        wanted = SortedKeys.of(keys, keys.schema.names)
        is_shown = np.zeros(len(wanted), bool)
        if not self._files:
            return is_shown
        lows, highs = self._bounds
        begins, ends = wanted.below(lows), wanted.up_to(highs)
        in_doubt = np.zeros(len(wanted), bool)
        hits: list[tuple[DataFileMeta, Indices, Indices]] = []
        for file, begin, end in zip(self._files, begins.tolist(), ends.tolist(), strict=True):
            if begin == end:
                continue
            rows, positions = self._hits(file, wanted, begin, end)
            if len(rows) == 0:
                continue
            is_shown[rows] = True
            hits.append((file, rows, positions))
            in_doubt[rows[self._are_retractions(file, positions)]] = True
        if in_doubt.any():
            doubted = np.flatnonzero(in_doubt)
            is_shown[doubted] = self._merges_to_rows(hits, wanted.take(doubted), in_doubt)
        return is_shown

    def _hits(self, file: DataFileMeta, wanted: SortedKeys, begin: int, end: int) -> tuple[Indices, Indices]:
        """Row numbers of keys, from `begin` to `end`, that the file holds, and their positions in it. Rows that a vector marks as
        deleted do not count.
        """
        positions = positions_in_file(self._context, self._bucket.bucket_id, file, wanted.slice(begin, end))
        if self._context.mode.deletion_vectors and (deleted := self._vectors.of(file.file_name)) is not None:
            positions[deleted.marks(positions)] = ABSENT
        here = np.flatnonzero(positions != ABSENT)
        return begin + here, positions[here]

    def _are_retractions(self, file: DataFileMeta, positions: Indices) -> Flags:
        """For each position in the file, whether its row is -D or -U. The delete count in the metadata is not trusted."""
        if holds_only_adds(self._context, self._bucket.bucket_id, file):
            return np.zeros(len(positions), bool)
        rows = rows_at(self._context, self._bucket.bucket_id, file, positions, [VALUE_KIND])
        return np.asarray(rows.column(VALUE_KIND).to_numpy() & 1, bool)

    def _merges_to_rows(self, hits: Sequence[tuple[DataFileMeta, Indices, Indices]], keys: SortedKeys, in_doubt: Flags) -> Flags:
        """For each of the keys in doubt, whether its versions in all files merge to a row that readers see."""
        context, bucket_id = self._context, self._bucket.bucket_id
        engine = merge_engine(context.schema, context.options)
        if context.mode.lower_level_shadows:
            engine = LowestLevel(engine)
        names, order = merge_columns(context, context.schema.trimmed_primary_keys), SnapshotOrder.of(context, self._bucket)
        versions: list[pa.RecordBatch] = []
        for file, found, positions in hits:
            for batch in rows_at(context, bucket_id, file, positions[in_doubt[found]], names).to_batches():
                rows = order.in_merge(batch, file)
                versions.append(with_level(rows, file.level) if context.mode.lower_level_shadows else rows)
        merged = engine.merge(sorted_rows(pa.concat_batches(versions), context.schema.trimmed_primary_keys, engine))
        rows = merged.filter(pa.array(merged.column(VALUE_KIND).to_numpy() & 1 == 0))
        shown = SortedKeys.of(rows, context.schema.trimmed_primary_keys)
        return shown.equal_at(shown.below(keys), keys)


def _oldest_first(bucket: BucketFiles) -> tuple[DataFileMeta, ...]:
    """The files in the order that a merge needs: of rows with equal sequence numbers the later one wins."""
    ages = {file.file_name: age for age, file in enumerate(bucket.files)}
    return tuple(sorted(bucket.files, key=lambda file: (file.max_sequence_number, ages[file.file_name])))


def _without_expired(context: TableContext, bucket: BucketFiles) -> BucketFiles:
    """The bucket without sections whose files are all older than `cross-partition-upsert.index-ttl`."""
    ttl = context.options.cross_partition_index_ttl
    if ttl is None:
        return bucket
    oldest = local_wall_clock(context.clock.now_millis() - ttl)
    sections = ([file for run in section for file in run.files] for section in key_sections(bucket.files, context.key_of))
    young = (files for files in sections if any((file.creation_time_millis or 0) >= oldest for file in files))
    names = {file.file_name for files in young for file in files}
    return replace(bucket, files=tuple(file for file in bucket.files if file.file_name in names))
