"""Sorts the rows of an append table by columns or along a curve: a sample of keys divides them into ranges, which are sorted.

In the write path a range takes the role of a bucket: its rows meet in one task, wait in the write buffer, are spilled as sorted
runs if they do not fit, and are merged into files at the end. So memory is bounded, however many rows are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.datatypes.data_type import NestedType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.key_order import order_words, stable_order
from paimon_cli.datatypes.space_curves import fits_curve, hilbert, z_order
from paimon_cli.errors import UsageError
from paimon_cli.metadata.data_file import SOURCE_COMPACT, BucketId
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.write.bucket_writer import consecutively_numbered
from paimon_cli.write.routers import UnawareRouter, rows_by_code
from paimon_cli.write.write_plan import WritePlan

ORDER, ZORDER, HILBERT = "order", "zorder", "hilbert"
STRATEGIES = (ORDER, ZORDER, HILBERT)
CURVE = "_CURVE"
"""The column with the position of a row on the curve, which is not stored."""


@dataclass(frozen=True)
class SortOrder:
    """How to sort rows: by one column after the other, or along a curve through all of them. Picklable."""

    columns: tuple[str, ...]
    strategy: str = ORDER

    def __str__(self) -> str:
        curve = "" if self.strategy == ORDER else f" ({self.strategy})"
        return f"{', '.join(self.columns)}{curve}"

    def check(self, schema: TableSchema) -> None:
        """Raise `UsageError` for columns that are unknown, have no order, or are partition columns."""
        if not self.columns:
            raise UsageError("no column to sort by", "", "name them: --order-by a,b")
        for name in self.columns:
            t = schema.field(name).type
            if self.columns.count(name) > 1:
                raise UsageError(f"column '{name}' is named twice", "a column can be sorted by once")
            if name in schema.partition_keys:
                raise UsageError(f"cannot sort by '{name}'", "it is a partition column, the same in all rows of a partition")
            if isinstance(t, NestedType) or (self.strategy != ORDER and not fits_curve(t)):
                raise UsageError(f"cannot sort by '{name}'", f"values of type {type_to_sql(t)} have no order")
        if self.strategy == HILBERT and len(self.columns) == 1:
            raise UsageError("a Hilbert curve needs at least two columns", "", f"add one, or sort by {ORDER}")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which rows are compared."""
        return self.columns if self.strategy == ORDER else (CURVE,)

    def with_key(self, rows: pa.RecordBatch, schema: TableSchema, options: TableOptions) -> pa.RecordBatch:
        """The rows with the `key` columns: with a curve, the position of each row on it is added."""
        if self.strategy == ORDER:
            return rows
        columns, types = [rows.column(name) for name in self.columns], schema.types_of(self.columns)
        if self.strategy == HILBERT:
            return rows.append_column(CURVE, hilbert(columns, types))
        return rows.append_column(CURVE, z_order(columns, types, options.zorder_text_bytes))


Keys = list[pa.Array]
"""The columns of `SortOrder.key`."""


@dataclass(frozen=True)
class Sample:
    """The keys of some rows of a partition. Each represents `weight` bytes or rows."""

    keys: Keys
    weight: float

    @staticmethod
    def bounds(parts: Sequence[Sample], ranges: int) -> Keys | None:
        """The smallest key of each range except the first, so that ranges have about equal weights. None without keys.

        There are fewer ranges if a key is very frequent.
        """
        samples = [sample for sample in parts if len(sample.keys[0])]
        if not samples:
            return None
        keys = [pa.concat_arrays(columns) for columns in zip(*(sample.keys for sample in samples), strict=True)]
        words = order_words(keys)
        order = stable_order(words)
        weights = np.concatenate([np.full(len(sample.keys[0]), sample.weight) for sample in samples])[order].cumsum()
        ends = np.searchsorted(weights, weights[-1] * np.arange(1, ranges) / ranges)
        chosen = order[np.unique(ends)]
        differs = np.ones(len(chosen), bool)
        if len(chosen) > 1:  # drop repeated keys
            differs[1:] = np.any([word[chosen[1:]] != word[chosen[:-1]] for word in words], axis=0)
        return [column.take(pa.array(chosen[differs])) for column in keys]


def ranges_of(keys: Keys, bounds: Keys) -> np.ndarray:
    """The range number of each row: how many bounds are less than or equal to its key."""
    count = len(bounds[0])
    order = stable_order(order_words([pa.concat_arrays(pair) for pair in zip(bounds, keys, strict=True)]))
    numbers = np.empty(len(order), np.int32)
    numbers[order] = (order < count).cumsum()
    return numbers[count:]


class RangeRouter(UnawareRouter):
    """Routes by partition and by the range of the key, whose number takes the place of the bucket."""

    def __init__(self, schema: TableSchema, order: SortOrder, bounds: Mapping[bytes, Keys]) -> None:
        super().__init__(schema)
        self._order = order
        self._bounds = bounds

    def _buckets(self, batch: pa.RecordBatch, codes: np.ndarray, partitions: pa.Array) -> np.ndarray:
        ranges = np.zeros(batch.num_rows, np.int32)
        for code, rows in rows_by_code(codes):
            if (bounds := self._bounds.get(partitions[code].as_py())) is not None:
                ranges[rows] = ranges_of([batch.column(name).take(pa.array(rows)) for name in self._order.key], bounds)
        return ranges


@dataclass(frozen=True)
class SortedWritePlan(WritePlan):
    """A write whose buckets are ranges of sorted keys.

    `bounds`: by partition; a partition without bounds is one range. `memory`: replaces the option `write-buffer-size` (bytes).
    """

    order: SortOrder = field(default_factory=lambda: SortOrder(()))
    bounds: Mapping[bytes, Keys] = field(default_factory=dict)
    memory: int | None = None

    @property
    def buffer_size(self) -> int:
        return super().buffer_size if self.memory is None else self.memory

    @property
    def sort_keys(self) -> tuple[str, ...]:
        """The sort columns, then the order of arrival, so that no two rows are equal."""
        return (*self.order.key, SEQUENCE_NUMBER)

    @property
    def route(self) -> str:
        return f"sorted-{self.order.strategy}"

    @property
    def shuffles(self) -> bool:
        return True

    def router(self) -> RangeRouter:
        return RangeRouter(self.context.schema, self.order, self.bounds)

    def level_0_writer(self, bucket_id: BucketId, names: DataFileNames) -> DataFileWriter:
        return _SortedFiles(self.context, BucketId(bucket_id.partition, 0), level=0, source=SOURCE_COMPACT, names=names)


class _SortedFiles(DataFileWriter):
    """Writes sorted rows, numbered in their new order."""

    _number = 0

    def write(self, batch: pa.RecordBatch) -> None:
        stored = batch.drop_columns([CURVE]) if CURVE in batch.schema.names else batch
        super().write(consecutively_numbered(stored, self._number))
        self._number += batch.num_rows
