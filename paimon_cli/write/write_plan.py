"""What the tasks of one write share, as one picklable value, and where they route rows (FORMAT.md, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.postponed_files import postponed_options
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.datatypes.bucket_functions import BucketCounts, row_buckets
from paimon_cli.datatypes.bucket_hash import encode_rows
from paimon_cli.datatypes.key_order import stable_order
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_APPEND, BucketId, CommitMessage
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_mode import INPUT, BucketMode
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

CompactBucket = Callable[[TableContext, BucketFiles, Callable[[], bool]], CommitMessage | None]
"""Compacts a bucket if a trigger fires, else returns None. The last argument returns whether to give up, with `CancelledError`.
`FilesConflict` if another job has replaced the files; the rows of the bucket can be committed all the same. The write phase
gets such a function, because it does not know the compaction phase."""

Tallies = dict[int, Tally]
"""What was found in each split of a plan, by its number."""


class SplitRows(Protocol):
    """The rows of a plan's splits as the table takes them: checked rows of a source, or the table's own. Picklable."""

    def read(self, split: Any, tally: Tally, /) -> Iterator[pa.RecordBatch]:
        """The rows of one split in `merge_schema`; `_SEQUENCE_NUMBER` is their place in the order of arrival.

        `tally` counts what was found in the split; it is complete when all rows were taken.
        """
        ...


@dataclass(frozen=True)
class WritePlan:
    """What to read, where rows go and how their files are named.

    `first_sequences`: committed maximum + 1 of each (partition, bucket) that has files; 0 for the others. An incoming row
    gets that number plus its place in the order of arrival, so numbers rise, with gaps, whichever task writes the bucket.
    `file_stamp`: 16 hex digits in the names of all data files of this job. `compact_bucket`: compacts buckets, None for a
    write that leaves that to others; then `existing` (the buckets at the read snapshot) is not needed. `compacts_beside`: after
    each flush, in threads of their own, instead of when a bucket is full or done. `other_bucket_counts`: bucket counts of the
    partitions that were not written with `total_buckets`. `replaces_rows`: the rows take the place of older ones, and what
    changes by that is in no changelog file, as in Java. `commit_user`, `writer_id`: what names a writer of postponed files.
    `bucket_counts`: in tables with postponed buckets, the number of buckets of each partition; None where rows are postponed.
    `counts_on`: the rows decide on these numbers where the table has none (here, those that it has), so they are postponed within
    this write first, and counted there.
    """

    context: TableContext
    incoming: SplitRows
    splits: tuple[Any, ...]
    total_buckets: int
    first_sequences: dict[BucketId, int] = field(default_factory=dict)
    read_snapshot_id: int | None = None
    file_stamp: str = ""
    parallelism: int | None = None
    compact_bucket: CompactBucket | None = None
    compacts_beside: bool = False
    existing: Mapping[BucketId, BucketFiles] = field(default_factory=dict)
    other_bucket_counts: Mapping[bytes, int] = field(default_factory=dict)
    replaces_rows: bool = False
    commit_user: str = ""
    writer_id: int = 0
    bucket_counts: Mapping[bytes, int] | None = None
    counts_on: Mapping[bytes, int] | None = None

    @property
    def postpones(self) -> bool:
        """Whether rows go into `bucket-postpone`, as they come."""
        return self.context.mode.bucket_mode is BucketMode.POSTPONED and self.bucket_counts is None

    @property
    def records_input(self) -> bool:
        """Whether the rows go into changelog files, too, as they come (`changelog-producer=input`)."""
        return self.context.mode.changelog_producer == INPUT and not (self.replaces_rows or self.postpones)

    @property
    def route(self) -> str:
        """What decides on the bucket of a row, as the trace names it."""
        mode = self.context.mode
        kind = "append" if not mode.has_keys else "key-value"
        return f"{kind}-{mode.bucket_mode.name.lower() if self.bucket_counts is None else 'fixed'}"

    @property
    def shuffles(self) -> bool:
        """Whether all rows of a bucket have to come to the same task; not where any task may add files to it."""
        return self.context.mode.bucket_mode is not BucketMode.UNAWARE and not self.postpones

    def router(self) -> Router:
        if self.context.mode.bucket_mode is BucketMode.UNAWARE:
            return UnawareRouter(self.context.schema)
        if self.postpones:
            return PostponingRouter(self.context.schema)
        if self.bucket_counts is not None:
            return PartitionCountRouter(self.context.schema, self.context.options, self.bucket_counts)
        return FixedRouter(self.context.schema, self.context.options)

    def buckets_of(self, partition: bytes) -> int:
        """The number of buckets that files of the partition are written for."""
        return self.total_buckets if self.bucket_counts is None else self.bucket_counts[partition]

    def check_total(self, partition: bytes) -> None:
        """`UsageError` if rows of that partition would go into other buckets than older ones of their keys."""
        total = self.other_bucket_counts.get(partition)
        if total is not None:
            place, table = self.context.partition_path_of(partition).rstrip("/") or "the table", self.context.layout.argument
            raise UsageError(
                f"{place} was written with {total} buckets, the table's option says {self.total_buckets}",
                "rows of one key must stay in one bucket",
                f"paimon-cli rescale {table} --buckets {self.total_buckets if self.total_buckets > 0 else total}",
            )

    def first_sequence(self, bucket_id: BucketId) -> int:
        return self.first_sequences.get(bucket_id, 0)

    @cached_property
    def _of_level_0(self) -> TableContext:
        """The table with the options by which files of level 0 are written."""
        if not self.postpones:
            return self.context
        return replace(self.context, options=postponed_options(self.context, self.commit_user, self.writer_id))

    def level_0_names(self) -> DataFileNames:
        return DataFileNames(self._of_level_0, self.file_stamp)

    def level_0_writer(self, bucket_id: BucketId, names: DataFileNames) -> DataFileWriter:
        return DataFileWriter(self._of_level_0, bucket_id, level=0, source=SOURCE_APPEND, names=names)


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
        if order is None and len(self.partitions) == 1 and int(self.buckets.min()) == int(self.buckets.max()):
            yield BucketId(self.partitions[0].as_py(), int(self.buckets[0])), batch
            return
        least = int(self.buckets.min())
        stride = int(self.buckets.max()) - least + 1
        places = self.codes.astype(np.int64) * stride + (self.buckets - least)
        order = stable_order([places]) if order is None else order[stable_order([places[order]])]
        sorted_places = places[order]
        starts = np.flatnonzero(np.append(True, sorted_places[1:] != sorted_places[:-1]))
        for start, end in zip(starts, np.append(starts[1:], batch.num_rows), strict=True):
            code, bucket = divmod(int(sorted_places[start]), stride)
            # Copies, not slices of one sorted batch: a flushed bucket must not be kept in memory by its neighbours.
            as_it_is = len(starts) == 1 and bool((order[1:] > order[:-1]).all())
            piece = batch if as_it_is else batch.take(pa.array(order[start:end]))
            yield BucketId(self.partitions[code].as_py(), bucket + least), piece


class Router(Protocol):
    """Decides which partition and bucket each row belongs to."""

    def route(self, batch: pa.RecordBatch) -> Routed: ...


class UnawareRouter:
    """Routes by partition, in an append table without buckets: all files of a partition lie in bucket 0."""

    def __init__(self, schema: TableSchema) -> None:
        _check_partitions(schema)
        self._partition_keys = schema.partition_keys
        self._partition_types = schema.types_of(schema.partition_keys)

    def route(self, batch: pa.RecordBatch) -> Routed:
        codes, partitions = self._partitions(batch)
        return Routed(partitions, codes, self._buckets(batch, codes, partitions))

    def _buckets(self, batch: pa.RecordBatch, codes: np.ndarray, partitions: pa.Array) -> np.ndarray:
        return np.zeros(batch.num_rows, np.int32)

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


class FixedRouter(UnawareRouter):
    """Routes by partition and by the hash of the bucket key, in a table with a fixed number of buckets."""

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
    """Routes as `FixedRouter` does, in a table whose partitions have numbers of buckets of their own."""

    def __init__(self, schema: TableSchema, options: TableOptions, counts: Mapping[bytes, int]) -> None:
        super().__init__(schema, options)
        self._bucket_counts = counts

    def _counts(self, codes: np.ndarray, partitions: pa.Array) -> BucketCounts:
        return np.array([self._bucket_counts[partition] for partition in partitions.to_pylist()], np.int64)[codes]


class PostponingRouter(UnawareRouter):
    """Routes by partition alone: all rows wait in `bucket-postpone`."""

    def _buckets(self, batch: pa.RecordBatch, codes: np.ndarray, partitions: pa.Array) -> np.ndarray:
        return np.full(batch.num_rows, POSTPONE_BUCKET, np.int32)


def _check_partitions(schema: TableSchema) -> None:
    for name, t in zip(schema.partition_keys, schema.types_of(schema.partition_keys), strict=True):
        if t.root in UNSPELLABLE_ROOTS:
            raise NotSupported(
                f"cannot write partitions by column '{name}'", f"writers do not agree on the directory name of a {t.root}"
            )
