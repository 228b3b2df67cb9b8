"""What is to be erased: all versions of some keys, or the rows of an append table that match a condition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.key_blocks import key_bounds
from paimon_cli.datatypes.arrow_types import arrow_field, values_to_arrow
from paimon_cli.datatypes.bucket_hash import encode_rows, hash_rows
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.key_order import order_words, stable_order
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.erasure.inventory import StoredFile
from paimon_cli.lsm.key_search import SortedKeys
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.index_files import KeyHashes
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.pruning import TableBounds
from paimon_cli.sql.predicate import Predicate

Mask = np.ndarray
"""One bool for each row: whether it is erased."""


class ErasedRows(ABC):
    """Rows to erase. Picklable."""

    @abstractmethod
    def columns(self, branch: str) -> tuple[str, ...]:
        """The columns by which a row of a branch is recognised."""

    @abstractmethod
    def mask(self, branch: str, batch: pa.RecordBatch) -> Mask:
        """Which of these rows are erased. `batch`: rows of a branch with `columns`."""

    @abstractmethod
    def may_be_in(self, context: TableContext, files: Sequence[StoredFile]) -> Iterator[bool]:
        """For each file whether it may hold such rows, judging by its metadata."""


@dataclass(frozen=True)
class ErasedKeys(ErasedRows):
    """Keys whose versions are erased. `rows`: the columns of the primary key, each key once."""

    schema: TableSchema
    rows: pa.RecordBatch

    @staticmethod
    def of(schema: TableSchema, batches: Sequence[pa.RecordBatch]) -> ErasedKeys:
        """The keys in these batches, which have the columns of the primary key."""
        fields = pa.schema([arrow_field(field) for field in key_fields(schema)])
        table = pa.Table.from_batches([batch.select(fields.names).cast(fields) for batch in batches], fields).combine_chunks()
        columns = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=fields)
        if rows.num_rows:
            encoded = encode_rows(rows.columns, schema.types_of(schema.primary_keys))
            firsts = pa.table({"key": encoded, "row": np.arange(len(encoded))}).group_by("key").aggregate([("row", "min")])
            rows = rows.take(firsts.column("row_min").combine_chunks().sort())
        return ErasedKeys(schema, rows)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def joined(self, other: pa.RecordBatch) -> ErasedKeys:
        return ErasedKeys.of(self.schema, [self.rows, other])

    def columns(self, branch: str) -> tuple[str, ...]:
        return tuple(self.schema.primary_keys)

    @cached_property
    def encoded(self) -> pa.Array:
        """The keys as serialised rows of the whole primary key."""
        return self.encode(self.rows)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """The keys of rows as serialised rows of the whole primary key."""
        names = self.schema.primary_keys
        return encode_rows([batch.column(name) for name in names], self.schema.types_of(names))

    def mask(self, branch: str, batch: pa.RecordBatch) -> Mask:
        if not batch.num_rows:
            return np.zeros(0, bool)
        return np.asarray(pc.is_in(self.encode(batch), value_set=self.encoded).to_numpy(zero_copy_only=False))

    def may_be_in(self, context: TableContext, files: Sequence[StoredFile]) -> Iterator[bool]:
        if not len(self):
            yield from (False for _ in files)
            return
        ordered = [file.entry.file for file in files if file.in_order]
        hits: Iterator[bool] = iter(())
        if ordered:
            lows, highs = ([getattr(file, bound) for file in ordered] for bound in ("min_key", "max_key"))
            begins, ends = self._sorted.below(key_bounds(context, lows)), self._sorted.up_to(key_bounds(context, highs))
            hits = iter((begins < ends).tolist())
        for file in files:
            yield next(hits) if file.in_order else True

    @cached_property
    def _sorted(self) -> SortedKeys:
        """The keys within a partition, ascending."""
        names = self.schema.trimmed_primary_keys
        columns = [self.rows.column(name) for name in names]
        order = stable_order(order_words(columns))
        return SortedKeys.of(self.rows.take(pa.array(order)), names)

    def in_partition(self, context: TableContext, partition: bytes) -> pa.RecordBatch:
        """The keys that may be in a partition."""
        matching: pa.Array | None = None
        values = context.partition_values(partition)
        for name, t, value in zip(context.schema.partition_keys, context.partition_types, values, strict=True):
            if name in self.schema.primary_keys:
                column = self.rows.column(name)
                own = column.is_null() if value is None else pc.equal(column, values_to_arrow([value], t)[0]).fill_null(False)
                matching = own if matching is None else pc.and_(matching, own)
        return self.rows if matching is None else self.rows.filter(matching)

    def trimmed(self, context: TableContext, partition: bytes) -> pa.Array:
        """The keys that may be in a partition as serialised rows of the trimmed primary key, as manifests hold them."""
        rows, names = self.in_partition(context, partition), self.schema.trimmed_primary_keys
        return encode_rows([rows.column(name) for name in names], self.schema.types_of(names))

    def are_bounds(self, context: TableContext, entry: ManifestEntry) -> bool:
        """Whether one of the keys is the least or the greatest one of a file by its metadata. The file need not hold it:
        compactions of Java 0.9 record the key of a deleted row that they have dropped.
        """
        bounds = pa.array([entry.file.min_key, entry.file.max_key], pa.binary())
        return bool(pc.any(pc.is_in(bounds, value_set=self.trimmed(context, entry.partition))).as_py())

    def hashes(self, context: TableContext, partition: bytes) -> KeyHashes:
        """The hashes of the keys that may be in a partition, as hash indexes hold them."""
        return self._hashed(self.in_partition(context, partition))

    def hashes_anywhere(self) -> KeyHashes:
        """The hashes of the keys in hash indexes of any partition."""
        return self._hashed(self.rows)

    def _hashed(self, rows: pa.RecordBatch) -> KeyHashes:
        names = self.schema.trimmed_primary_keys
        return hash_rows([rows.column(name) for name in names], self.schema.types_of(names))


@dataclass(frozen=True)
class ErasedMatches(ErasedRows):
    """The rows of an append table that match a condition, by branch: each has its own columns."""

    predicates: Mapping[str, Predicate]

    def columns(self, branch: str) -> tuple[str, ...]:
        return self.predicates[branch].columns

    def mask(self, branch: str, batch: pa.RecordBatch) -> Mask:
        matches = self.predicates[branch].condition.matches(batch)
        return np.asarray(pc.fill_null(matches, False).to_numpy(zero_copy_only=False), bool)

    def may_be_in(self, context: TableContext, files: Sequence[StoredFile]) -> Iterator[bool]:
        bounds = TableBounds(context)
        for file in files:
            entry = file.entry
            yield self.predicates[file.branch].may_match(bounds.of_file(entry.partition, entry.bucket, entry.file))


def key_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """The columns of the whole primary key."""
    return schema.fields_of(schema.primary_keys)
