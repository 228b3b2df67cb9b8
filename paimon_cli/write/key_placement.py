"""Decides where rows go in a table whose primary key does not contain all partition columns, so that keys can move.

All rows of the write are collected, and sorted by key on local disk if they do not fit into memory. Then their keys are looked up
in the whole table (`bucket/key_locations`), portion by portion. If the key of a row lives in another partition, the merge engine
decides (Java ExistingProcessor):

- The newest row wins: the old row is deleted, and the new row goes to its own partition.
- The oldest row wins: the new row is dropped.
- The rows are combined: the new row goes to the partition where the key lives.

A retraction goes to the partition where its key lives, whatever its own partition columns say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paimon_cli.bucket.key_locations import KeyLocations, whole_key
from paimon_cli.bucket.spilled_runs import OpenRun, SpillDirectory, SpilledRun, merge_in_passes
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.datatypes.key_order import order_words, stable_order
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import ABSENT, Flags, SortedKeys
from paimon_cli.lsm.sort_merge import merge_in_memory, rows_of
from paimon_cli.lsm.sorted_rows import KeepAllVersions
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import VALUE_KIND, RowKind
from paimon_cli.options.merge_engines import MergeResult
from paimon_cli.pieces import PIECES
from paimon_cli.write.bucket_assigner import Limits, OpenBuckets, Share
from paimon_cli.write.routers import UnawareRouter, rows_by_code, with_buckets

Rows = NDArray[np.int64]
Buckets = NDArray[np.int32]
Value = TypeVar("Value", np.int64, np.int32)


class KeyPlacement:
    """Decides where the rows of a write go, for all keys or for one `share` of them."""

    def __init__(self, context: TableContext, locations: KeyLocations, share: Share) -> None:
        self._context = context
        self._locations = locations
        self._share = share
        self._key = whole_key(context.schema)
        self._partitioner = UnawareRouter(context.schema)
        self._partitions = _Numbering()
        self._known_partitions = np.array([self._partitions.of(b.partition) for b in locations.buckets], np.int64)
        self._known_buckets = np.array([bucket.bucket for bucket in locations.buckets], np.int32)
        self._open: dict[int, OpenBuckets] = {}
        self._placing = {
            MergeResult.NEWEST: self._following_rows,
            MergeResult.OLDEST: self._first_rows,
            MergeResult.COMBINED: self._where_it_was,
        }

    def placed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows to write, each with its bucket in an additional column; rows of one key in the order of arrival."""
        with Arrivals(self._context, self._key) as arrivals:
            for batch in batches:
                arrivals.add(batch)
            for portion in arrivals.portions():
                yield from self._place(portion)

    def _place(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`batches`: all rows of some keys."""
        v = self._versions(batches)
        result = self._context.options.merge_engine.result
        partitions, buckets = self._placing[result](v)
        if result is MergeResult.NEWEST:
            yield from self._deletes(v, batches, partitions, buckets)
        partitions, buckets = v.as_arrived(partitions), v.as_arrived(buckets)
        own, begin = v.as_arrived(v.partitions), 0
        for batch in batches:
            part = slice(begin, begin + batch.num_rows)
            begin = part.stop
            kept = np.flatnonzero(buckets[part] != ABSENT)
            if len(kept):
                rows = batch if len(kept) == batch.num_rows else batch.take(pa.array(kept))
                if not np.array_equal(partitions[part][kept], own[part][kept]):
                    rows = self._moved(rows, partitions[part][kept])
                yield with_buckets(rows, buckets[part][kept])

    def _versions(self, batches: Sequence[pa.RecordBatch]) -> KeyVersions:
        columns = [pa.concat_arrays([batch.column(name) for batch in batches]) for name in self._key]
        order = stable_order(order_words(columns))
        rows = pa.RecordBatch.from_arrays(columns, names=list(self._key)).take(pa.array(order))
        keys = SortedKeys.of(rows, self._key)
        starts = np.flatnonzero(np.append(True, ~keys.equal_at(np.arange(len(keys) - 1), keys.slice(1, len(keys)))))
        distinct = rows if len(starts) == rows.num_rows else rows.take(pa.array(starts))
        locations = self._locations.of(distinct)
        known = locations != ABSENT
        old_partitions = np.full(len(starts), ABSENT, np.int64)
        old_buckets = np.full(len(starts), ABSENT, np.int32)
        old_partitions[known] = self._known_partitions[locations[known]]
        old_buckets[known] = self._known_buckets[locations[known]]
        own = np.concatenate([self._partitions_of(batch) for batch in batches])[order]
        kinds = np.concatenate([batch.column(VALUE_KIND).to_numpy() for batch in batches])[order]
        return KeyVersions(order, distinct, starts, own, (kinds & 1).astype(bool), old_partitions, old_buckets)

    def _partitions_of(self, batch: pa.RecordBatch) -> Rows:
        routed = self._partitioner.route(batch)
        numbers = np.array([self._partitions.of(partition.as_py()) for partition in routed.partitions], np.int64)
        return np.asarray(numbers[routed.codes])

    def _following_rows(self, v: KeyVersions) -> tuple[Rows, Buckets]:
        """If the newest row wins: a key moves to the partition of its newest row.

        A retraction goes where the key lives; one of an unknown key is dropped, unless the changelog records the input.

        A key that returns to a partition gets the bucket that it had there. In another bucket, its new row and its deletion would
        have no order in the changelog.
        """
        rows = np.arange(len(v.partitions))
        last_add = np.maximum.accumulate(np.where(v.are_retractions, ABSENT, rows))
        without_add = v.old_partitions
        if self._context.mode.changelog_producer.records_input:
            without_add = np.where(without_add == ABSENT, v.partitions[v.starts], without_add)
        partitions = np.where(last_add >= v.starts[v.keys], v.partitions[last_add], without_add[v.keys])
        is_new = partitions != v.shifted(partitions, v.old_partitions)
        entering = np.flatnonzero(is_new)
        stays = v.keys[entering] * len(self._partitions.names) + partitions[entering]
        _, first, stay = np.unique(stays, return_index=True, return_inverse=True)
        first = entering[first]  # the first row of each key in each partition
        is_known = partitions[first] == v.old_partitions[v.keys[first]]
        chosen = self._choose(v, partitions, first[~is_known])[first]
        chosen[is_known] = v.old_buckets[v.keys[first[is_known]]]
        buckets = np.full(len(rows), ABSENT, np.int32)
        buckets[entering] = chosen[stay]
        last_new = np.maximum.accumulate(np.where(is_new, rows, ABSENT))
        return partitions, np.where(last_new >= v.starts[v.keys], buckets[last_new], v.old_buckets[v.keys])

    def _where_it_was(self, v: KeyVersions) -> tuple[Rows, Buckets]:
        """If rows are combined: all rows of a key go where its first row went."""
        is_new = v.old_partitions == ABSENT
        partitions = np.where(is_new, v.partitions[v.starts], v.old_partitions)[v.keys]
        chosen = self._choose(v, partitions, v.starts[is_new])
        return partitions, np.where(is_new, chosen[v.starts], v.old_buckets)[v.keys]

    def _first_rows(self, v: KeyVersions) -> tuple[Rows, Buckets]:
        """If the oldest row wins: rows of new keys keep their partition, only the first one gets a bucket."""
        return v.partitions, self._choose(v, v.partitions, v.starts[v.old_partitions == ABSENT])

    def _choose(self, v: KeyVersions, partitions: Rows, new: Rows) -> Buckets:
        """A bucket for each of the rows `new`, whose keys are new in their partition; `ABSENT` for other rows."""
        chosen = np.full(len(partitions), ABSENT, np.int32)
        if len(new) == 0:
            return chosen
        names = self._context.schema.trimmed_primary_keys
        keys = v.distinct.select(list(names)).take(pa.array(v.keys[new]))
        hashes = hash_rows(keys.columns, self._context.schema.types_of(names))
        for partition, here in rows_by_code(partitions[new]):
            chosen[new[here]] = self._open_buckets(partition).choose(hashes[here])
        return chosen

    def _open_buckets(self, partition: int) -> OpenBuckets:
        """The open buckets of a partition.

        Numbers of keys are estimated from the metadata of files: rows minus twice the deletes.
        """
        if partition not in self._open:
            buckets = [self._locations.buckets[index] for index in np.flatnonzero(self._known_partitions == partition)]
            counts = {bucket.bucket: max(0, sum(map(_kept_rows, bucket.files))) for bucket in buckets}
            self._open[partition] = OpenBuckets(counts, Limits.of(self._context), self._share)
        return self._open[partition]

    def _deletes(
        self, v: KeyVersions, batches: Sequence[pa.RecordBatch], partitions: Rows, buckets: Buckets
    ) -> Iterator[pa.RecordBatch]:
        """A -D row for each bucket that a key leaves, with the values of the row that moves it."""
        before = v.shifted(partitions, v.old_partitions)
        leaving = np.flatnonzero((partitions != before) & (before != ABSENT))
        if len(leaving) == 0:
            return
        leaving = leaving[np.argsort(v.order[leaving])]
        ends = np.cumsum([batch.num_rows for batch in batches])
        cuts = np.searchsorted(v.order[leaving], ends)
        taken = [
            batch.take(pa.array(v.order[leaving[begin:end]] - (last - batch.num_rows)))
            for batch, last, begin, end in zip(batches, ends, [0, *cuts[:-1]], cuts, strict=True)
        ]
        rows = self._moved(pa.concat_batches(taken), before[leaving])
        at = rows.schema.get_field_index(VALUE_KIND)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(np.full(len(leaving), RowKind.DELETE, np.int8)))
        yield with_buckets(rows, v.shifted(buckets, v.old_buckets)[leaving])

    def _moved(self, batch: pa.RecordBatch, partitions: Rows) -> pa.RecordBatch:
        """The rows with the values of other partitions. `partitions`: the number of the new partition of each row."""
        numbers, codes = np.unique(partitions, return_inverse=True)
        values = [self._context.partition_values(self._partitions.names[number]) for number in numbers.tolist()]
        names, types = self._context.schema.partition_keys, self._context.partition_types
        for name, t, column in zip(names, types, zip(*values, strict=True), strict=True):
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, batch.schema.field(at), values_to_arrow(list(column), t).take(pa.array(codes)))
        return batch


@dataclass(frozen=True)
class KeyVersions:
    """Rows sorted by key and then by arrival, with what decides where they go.

    Per row: `order`, its position in the order of arrival; `partitions`, the number of the partition in its columns;
    `are_retractions`. Per key: `distinct`, the key; `starts`, its first row; `old_partitions`, `old_buckets`, where it lives,
    `ABSENT` for a new key.
    """

    order: Rows
    distinct: pa.RecordBatch
    starts: Rows
    partitions: Rows
    are_retractions: Flags
    old_partitions: Rows
    old_buckets: Buckets

    @cached_property
    def keys(self) -> Rows:
        """The index of each row's key in `distinct`."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.partitions))))

    def shifted(self, values: NDArray[Value], first: NDArray[Value]) -> NDArray[Value]:
        """For each row the value of the previous row; for the first row of a key, the key's value in `first`."""
        shifted = np.roll(values, 1)
        shifted[self.starts] = first
        return shifted

    def as_arrived(self, values: NDArray[Value]) -> NDArray[Value]:
        arrived = np.empty_like(values)
        arrived[self.order] = values
        return arrived


def _kept_rows(file: DataFileMeta) -> int:
    return file.row_count - 2 * (file.delete_row_count or 0)


class _Numbering:
    """Numbers partitions in the order in which they first occur."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def of(self, partition: bytes) -> int:
        number = self._numbers.setdefault(partition, len(self.names))
        if number == len(self.names):
            self.names.append(partition)
        return number


class Arrivals:
    """Collects all rows of a write: in memory, up to half of `write-buffer-size`, or sorted on local disk."""

    def __init__(self, context: TableContext, key: Sequence[str]) -> None:
        self._key = key
        self._most_runs = context.options.local_sort_max_file_handles
        self._room = context.options.write_buffer_size // 2
        self._spill = SpillDirectory()
        self._runs: list[SpilledRun] = []
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def __enter__(self) -> Arrivals:
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._spill.close()

    def add(self, batch: pa.RecordBatch) -> None:
        if self._size and self._size + batch.nbytes > self._room:
            self._spill_batches()
        self._batches.append(batch)
        self._size += batch.nbytes

    def _spill_batches(self) -> None:
        orders = (stable_order(order_words([batch.column(name) for name in self._key])) for batch in self._batches)
        ordered = [batch.take(pa.array(order)) for batch, order in zip(self._batches, orders, strict=True)]
        pieces = merge_in_memory(ordered, self._key, KeepAllVersions(), rows_of(ordered, PIECES.spilled_batch_bytes))
        self._runs.append(self._spill.write(pieces, ordered[0].schema))
        self._batches, self._size = [], 0

    def portions(self) -> Iterator[list[pa.RecordBatch]]:
        """The rows in portions, with all rows of a key in one: a single one in the order of arrival, or several in key order."""
        if not self._runs:
            if self._batches:
                yield self._batches
            return
        if self._batches:
            self._spill_batches()
        opened: list[OpenRun] = [run.read for run in self._runs]
        waiting: list[pa.RecordBatch] = []
        for batch in merge_in_passes(opened, self._key, KeepAllVersions(), self._most_runs, keys_repeat=True):
            waiting.append(batch)
            if sum(part.nbytes for part in waiting) >= PIECES.placed_bytes:
                yield waiting
                waiting = []
        if waiting:
            yield waiting
