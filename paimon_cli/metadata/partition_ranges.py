"""The range of partition values that a manifest covers, as its list records it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import SimpleStats


def partition_stats(entry_counts: Mapping[bytes, int], types: Sequence[DataType]) -> SimpleStats:
    """Statistics of the partition columns; `entry_counts` is the number of entries of each partition (a serialised row).

    Raises `DamagedFile` for a partition that cannot be decoded.
    """
    if not types:
        return SimpleStats()
    try:
        rows = [(deserialize_row(partition, types), count) for partition, count in entry_counts.items()]
    except ValueError as error:
        raise DamagedFile("a manifest holds a damaged partition", str(error)) from error
    least, greatest, nulls = [], [], []
    for column in range(len(types)):
        present = [row[column] for row, _ in rows if row[column] is not None]
        least.append(min(present, key=_order, default=None))
        greatest.append(max(present, key=_order, default=None))
        nulls.append(sum(count for row, count in rows if row[column] is None))
    return SimpleStats(serialize_row(least, types), serialize_row(greatest, types), tuple(nulls))


@dataclass(frozen=True)
class PartitionRange:
    """Decoded partition statistics of a manifest: least value, greatest value and null count per column, None if unknown."""

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]
    null_counts: tuple[int | None, ...]

    @staticmethod
    def of(stats: SimpleStats, types: Sequence[DataType]) -> PartitionRange | None:
        """The decoded statistics; None if they are missing or have another number of columns."""
        try:
            least, greatest = deserialize_row(stats.min_values, types), deserialize_row(stats.max_values, types)
        except ValueError:
            return None
        nulls = stats.null_counts if stats.null_counts is not None else (None,) * len(types)
        return PartitionRange(least, greatest, nulls) if len(nulls) == len(types) else None

    def may_hold(self, values: Sequence[Any]) -> bool:
        """Whether the manifest can have entries of the partition with these values."""
        return all(map(self._column_may_hold, range(len(values)), values))

    def _column_may_hold(self, column: int, value: Any) -> bool:
        least, greatest = self.least[column], self.greatest[column]
        if value is None:
            return self.null_counts[column] != 0
        if least is None or greatest is None:
            return True
        return bool(_order(least) <= _order(value) <= _order(greatest))


def may_hold_any(stats: SimpleStats, types: Sequence[DataType], partitions: Iterable[Sequence[Any]]) -> bool:
    """Whether a manifest with these statistics can have entries of one of the partitions, given as their column values."""
    known = PartitionRange.of(stats, types)
    return any(known is None or known.may_hold(values) for values in partitions)


def _order(value: Any) -> Any:
    """Sort key of a value for pruning: NaN is greater than any number, and -0.0 equals 0.0."""
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value
