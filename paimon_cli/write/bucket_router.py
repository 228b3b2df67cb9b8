"""Routes rows to their partition and, by the hash of the bucket key, to their bucket (FORMAT.md, section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.bucket_hash import encode_rows, row_buckets
from paimon_cli.datatypes.key_order import stable_order
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

UNSPELLABLE_ROOTS = ("FLOAT", "DOUBLE", "BINARY", "VARBINARY")


@dataclass(frozen=True)
class Routed:
    """Where the rows of a batch belong: `codes` number their partitions, serialised in `partitions`, `buckets` are int32."""

    partitions: pa.Array
    codes: np.ndarray
    buckets: np.ndarray

    def pieces(self, batch: pa.RecordBatch, order: np.ndarray | None = None) -> Iterator[tuple[BucketId, pa.RecordBatch]]:
        """The batch as one piece per bucket, rows in their order, or as `order` (row numbers) has them."""
        if batch.num_rows == 0:
            return
        stride = int(self.buckets.max()) + 1
        places = self.codes.astype(np.int64) * stride + self.buckets
        order = stable_order([places]) if order is None else order[stable_order([places[order]])]
        sorted_places = places[order]
        starts = np.flatnonzero(np.append(True, sorted_places[1:] != sorted_places[:-1]))
        for start, end in zip(starts, np.append(starts[1:], batch.num_rows), strict=True):
            code, bucket = divmod(int(sorted_places[start]), stride)
            # Copies, not slices of one sorted batch: a flushed bucket must not be kept in memory by its neighbours.
            as_it_is = len(starts) == 1 and bool((order[1:] > order[:-1]).all())
            piece = batch if as_it_is else batch.take(pa.array(order[start:end]))
            yield BucketId(self.partitions[code].as_py(), bucket), piece


class Router(Protocol):
    """Decides which partition and bucket each row belongs to."""

    def route(self, batch: pa.RecordBatch) -> Routed: ...


class FixedRouter:
    """Routes by the hash of the bucket key, in a table with a fixed number of buckets."""

    def __init__(self, schema: TableSchema, options: TableOptions) -> None:
        _check_partitions(schema)
        self._total_buckets = options.bucket
        self._partition_keys = schema.partition_keys
        self._partition_types = schema.types_of(schema.partition_keys)
        self._function = options.bucket_function
        self._bucket_keys = schema.bucket_key_names
        self._bucket_types = schema.types_of(self._bucket_keys)

    def route(self, batch: pa.RecordBatch) -> Routed:
        codes, partitions = self._partitions(batch)
        keys = [batch.column(name) for name in self._bucket_keys]
        return Routed(partitions, codes, row_buckets(keys, self._bucket_types, self._total_buckets, self._function))

    def _partitions(self, batch: pa.RecordBatch) -> tuple[np.ndarray, pa.Array]:
        """A code per row and the serialised partition of each code; only distinct partitions are encoded."""
        if not self._partition_keys:
            return np.zeros(batch.num_rows, np.int32), pa.array([EMPTY_ROW], pa.binary())
        columns = [batch.column(name) for name in self._partition_keys]
        codes = np.zeros(batch.num_rows, np.int64)
        for column in columns:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            # Narrowed after each column: the product of the columns' cardinalities could leave 64 bits.
            _, codes = np.unique(codes * len(encoded.dictionary) + encoded.indices.to_numpy(), return_inverse=True)
        _, samples = np.unique(codes, return_index=True)
        rows = pa.array(samples)
        return codes.astype(np.int32), encode_rows([column.take(rows) for column in columns], self._partition_types)


def _check_partitions(schema: TableSchema) -> None:
    for name, t in zip(schema.partition_keys, schema.types_of(schema.partition_keys), strict=True):
        if t.root in UNSPELLABLE_ROOTS:
            raise NotSupported(
                f"cannot write partitions by column '{name}'", f"writers do not agree on the directory name of a {t.root}"
            )
