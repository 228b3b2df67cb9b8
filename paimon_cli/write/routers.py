"""Routers, which decide to which partition and bucket each row of a write belongs (FORMAT.md, section 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.hash_index import HashIndexes, read_key_hashes, write_key_hashes
from paimon_cli.datatypes.bucket_functions import BucketCounts, row_buckets
from paimon_cli.datatypes.bucket_hash import encode_rows, hash_rows, hash_serialized
from paimon_cli.datatypes.data_type import BINARY_ROOTS, FLOATING_ROOTS
from paimon_cli.datatypes.key_order import group_starts, stable_order
from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, IndexFileMeta
from paimon_cli.metadata.index_files import KeyHashes
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.threads import in_parallel
from paimon_cli.write.bucket_assigner import Assigners, Limits, PartitionAssigner


@dataclass(frozen=True)
class Routed:
    """Rows to be written, and where. `partitions`: serialised; `codes`: for each row the index of its partition in them;
    `buckets`: for each row, int32.
    """

    rows: pa.RecordBatch
    partitions: pa.Array
    codes: np.ndarray
    buckets: np.ndarray

    def pieces(self, order: np.ndarray | None = None) -> Iterator[tuple[BucketId, pa.RecordBatch]]:
        """The rows of each bucket, in their order, or in the order that `order` (row numbers) gives."""
        batch = self.rows
        if batch.num_rows == 0:
            return
        if order is None and len(self.partitions) == 1 and int(self.buckets.min()) == int(self.buckets.max()):
            yield BucketId(self.partitions[0].as_py(), int(self.buckets[0])), batch
            return
        least = int(self.buckets.min())
        stride = int(self.buckets.max()) - least + 1
        numbers = self.codes.astype(np.int64) * stride + (self.buckets - least)
        order = stable_order([numbers]) if order is None else order[stable_order([numbers[order]])]
        in_order = numbers[order]
        starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
        for start, end in zip(starts, np.append(starts[1:], batch.num_rows), strict=True):
            code, bucket = divmod(int(in_order[start]), stride)
            # Copies, because a slice would keep the rows of all buckets in memory after its own bucket is flushed.
            is_unchanged = len(starts) == 1 and bool((order[1:] > order[:-1]).all())
            piece = batch if is_unchanged else batch.take(pa.array(order[start:end]))
            yield BucketId(self.partitions[code].as_py(), bucket + least), piece


class Router(Protocol):
    """Decides which partition and bucket each row belongs to."""

    @property
    def routes_in_any_order(self) -> bool:
        """Whether a batch is routed alike whatever other batches are routed before it, or at the same time."""
        ...

    def route(self, batch: pa.RecordBatch) -> Routed:
        """Route rows, which come in the order of arrival. The rows in the result may differ from those given."""
        ...

    def finish(self) -> Mapping[BucketId, IndexFileMeta]:
        """Write the index files that buckets need for their new rows. Called after the last row."""
        ...


class UnawareRouter:
    """Routes by partition alone, for append tables without buckets: all files of a partition are in bucket 0."""

    routes_in_any_order = True

    def __init__(self, schema: TableSchema) -> None:
        _check_partitions(schema)
        self._partition_keys = schema.partition_keys
        self._partition_types = schema.types_of(schema.partition_keys)

    def route(self, batch: pa.RecordBatch) -> Routed:
        codes, partitions = self._partitions(batch)
        return Routed(batch, partitions, codes, self._buckets(batch, codes, partitions))

    def finish(self) -> Mapping[BucketId, IndexFileMeta]:
        return {}

    def _buckets(self, batch: pa.RecordBatch, codes: np.ndarray, partitions: pa.Array) -> np.ndarray:
        return np.zeros(batch.num_rows, np.int32)

    def _partitions(self, batch: pa.RecordBatch) -> tuple[np.ndarray, pa.Array]:
        """The partition code of each row, and the serialised partition of each code."""
        if not self._partition_keys:
            return np.zeros(batch.num_rows, np.int32), pa.array([EMPTY_ROW], pa.binary())
        encoded = (pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in self._partition_keys)
        first = next(encoded)
        codes, distinct = first.indices.to_numpy(), [first.dictionary]
        for column in encoded:
            # Codes are made dense after each column, since the product of all cardinalities may exceed 64 bits.
            both = codes.astype(np.int64) * len(column.dictionary) + column.indices.to_numpy()
            combinations, codes = np.unique(both, return_inverse=True)
            before, last = (pa.array(part) for part in np.divmod(combinations, len(column.dictionary)))
            distinct = [*(values.take(before) for values in distinct), column.dictionary.take(last)]
        return codes.astype(np.int32), encode_rows(distinct, self._partition_types)


class FixedRouter(UnawareRouter):
    """Routes by partition and by the hash of the bucket key, for tables with a fixed number of buckets."""

    def __init__(self, schema: TableSchema, options: TableOptions) -> None:
        super().__init__(schema)
        self._total_buckets = options.bucket
        self._function = options.bucket_function
        self._bucket_keys = schema.bucket_key_names
        self._bucket_types = schema.types_of(self._bucket_keys)

    def _buckets(self, batch: pa.RecordBatch, codes: np.ndarray, partitions: pa.Array) -> np.ndarray:
        keys = [batch.column(name) for name in self._bucket_keys]
        return row_buckets(keys, self._bucket_types, self._counts(codes, partitions), self._function)

    def _counts(self, codes: np.ndarray, partitions: pa.Array) -> BucketCounts:
        return self._total_buckets


class PartitionCountRouter(FixedRouter):
    """Routes like `FixedRouter`, for tables whose partitions have different numbers of buckets."""

    def __init__(self, schema: TableSchema, options: TableOptions, counts: Mapping[bytes, int]) -> None:
        super().__init__(schema, options)
        self._bucket_counts = counts

    def _counts(self, codes: np.ndarray, partitions: pa.Array) -> BucketCounts:
        return np.array([self._bucket_counts[partition] for partition in partitions.to_pylist()], np.int64)[codes]


class PostponingRouter(UnawareRouter):
    """Routes by partition alone, into `bucket-postpone`."""

    def _buckets(self, batch: pa.RecordBatch, codes: np.ndarray, partitions: pa.Array) -> np.ndarray:
        return np.full(batch.num_rows, POSTPONE_BUCKET, np.int32)


class TogetherRouter(PostponingRouter):
    """Routes all rows to the partition of the first one: if a key may move between partitions, the order of all rows counts."""

    routes_in_any_order = False

    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self._first: pa.Array | None = None

    def _partitions(self, batch: pa.RecordBatch) -> tuple[np.ndarray, pa.Array]:
        if self._first is None and batch.num_rows:
            self._first = super()._partitions(batch.slice(0, 1))[1]
        return np.zeros(batch.num_rows, np.int32), self._first


class AssignerRouter(UnawareRouter):
    """Routes to the assigners of buckets: by partition and key. The number of the assigner takes the place of the bucket."""

    def __init__(self, schema: TableSchema, assigners: int) -> None:
        super().__init__(schema)
        self._count = assigners
        self._keys = schema.trimmed_primary_keys
        self._key_types = schema.types_of(self._keys)

    def _buckets(self, batch: pa.RecordBatch, codes: np.ndarray, partitions: pa.Array) -> np.ndarray:
        hashes = hash_rows([batch.column(name) for name in self._keys], self._key_types)
        if len(partitions) == 1:
            return self._numbers(partitions[0].as_py(), hashes).astype(np.int32)
        numbers = np.zeros(batch.num_rows, np.int32)
        for code, rows in rows_by_code(codes):
            numbers[rows] = self._numbers(partitions[code].as_py(), hashes[rows])
        return numbers

    def _numbers(self, partition: bytes, hashes: KeyHashes) -> np.ndarray:
        return Assigners(self._count, hash_serialized(partition)).of(hashes)


class KeyShareRouter(AssignerRouter):
    """Routes to the assigners of buckets by key alone, because the key may live in any partition."""

    def __init__(self, schema: TableSchema, assigners: int) -> None:
        super().__init__(schema, assigners)
        self._keys = schema.primary_keys
        self._key_types = schema.types_of(self._keys)

    def _numbers(self, partition: bytes, hashes: KeyHashes) -> np.ndarray:
        return Assigners(self._count).of(hashes)


class DynamicRouter(AssignerRouter):
    """Routes by partition and by the bucket that a key has, or is given now, for tables with dynamic buckets.

    It must get all rows of its assigners, in the order of arrival.
    """

    routes_in_any_order = False

    def __init__(
        self, context: TableContext, indexes: HashIndexes, assigners: int, assigner: int | None, file_stamp: str
    ) -> None:
        """`assigner`: the only one whose rows are routed; None for all."""
        super().__init__(context.schema, assigners)
        self._context = context
        self._indexes = indexes
        self._only = assigner
        self._stamp = file_stamp
        self._assigners: dict[bytes, PartitionAssigner] = {}

    def _numbers(self, partition: bytes, hashes: KeyHashes) -> np.ndarray:
        assigner = self._assigners.get(partition)
        if assigner is None:
            assigners = Assigners(self._count, hash_serialized(partition), self._only)
            assigner = PartitionAssigner(self._hashes_of(partition), Limits.of(self._context), assigners)
            self._assigners[partition] = assigner
        return assigner.assign(hashes)

    def _hashes_of(self, partition: bytes) -> dict[int, KeyHashes]:
        files = self._indexes.of(self._context, partition)
        read = in_parallel(partial(read_key_hashes, self._context), files.values(), self._context.read_threads)
        return dict(zip(files, read, strict=True))

    def finish(self) -> dict[BucketId, IndexFileMeta]:
        """Write a new index file for each bucket with new keys: its old hashes, then the new ones."""
        index_files = {}
        for partition, assigner in self._assigners.items():
            old = self._indexes.of(self._context, partition)
            for bucket, hashes in assigner.added():
                bucket_id = BucketId(partition, bucket)
                if bucket in old:
                    hashes = np.concatenate([read_key_hashes(self._context, old[bucket]), hashes])
                index_files[bucket_id] = write_key_hashes(self._context, bucket_id, hashes, self._stamp)
        return index_files


ASSIGNED_BUCKET = "_BUCKET"
"""The column with the bucket that another task has assigned to a row."""


def with_buckets(rows: pa.RecordBatch, buckets: np.ndarray) -> pa.RecordBatch:
    """The rows with their buckets in the column `ASSIGNED_BUCKET`."""
    return rows.append_column(ASSIGNED_BUCKET, pa.array(buckets, pa.int32()))


class AssignedRouter(UnawareRouter):
    """Routes rows to the buckets in their column `ASSIGNED_BUCKET`."""

    def route(self, batch: pa.RecordBatch) -> Routed:
        codes, partitions = self._partitions(batch)
        index = batch.schema.get_field_index(ASSIGNED_BUCKET)
        return Routed(batch.remove_column(index), partitions, codes, batch.column(index).to_numpy())


def rows_by_code(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each code, ascending, with the numbers of its rows, ascending."""
    if not len(codes):
        return
    order = stable_order([codes])
    for rows in np.split(order, group_starts([codes[order]])[1:]):
        yield int(codes[rows[0]]), rows


def _check_partitions(schema: TableSchema) -> None:
    for name, t in zip(schema.partition_keys, schema.types_of(schema.partition_keys), strict=True):
        if t.root in FLOATING_ROOTS | BINARY_ROOTS:
            raise NotSupported(
                f"cannot write partitions by column '{name}'", f"writers do not agree on the directory name of a {t.root}"
            )
