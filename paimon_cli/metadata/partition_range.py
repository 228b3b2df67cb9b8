"""The range of partitions in a manifest, computed when it is written and used to skip it (FORMAT.md, section 4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.metadata.data_file import SimpleStats


def partition_stats(partitions: Iterable[bytes], types: Sequence[DataType]) -> SimpleStats:
    """Least and greatest value of each partition column, and how many entries have none; one item per entry."""
    counts: dict[bytes, int] = {}
    for partition in partitions:
        counts[partition] = counts.get(partition, 0) + 1
    rows = [(deserialize_row(partition, types), count) for partition, count in counts.items()]
    least, greatest, nulls = [], [], []
    for column in range(len(types)):
        present = [row[column] for row, _ in rows if row[column] is not None]
        least.append(min(present, key=_order, default=None))
        greatest.append(max(present, key=_order, default=None))
        nulls.append(sum(count for row, count in rows if row[column] is None))
    return SimpleStats(serialize_row(least, types), serialize_row(greatest, types), tuple(nulls))


@dataclass(frozen=True)
class PartitionRange:
    """Decoded statistics of one manifest: per column least, greatest (None = unknown) and null count (None = unknown)."""

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]
    null_counts: tuple[int | None, ...]

    @staticmethod
    def of(stats: SimpleStats, types: Sequence[DataType]) -> PartitionRange | None:
        """None if the statistics are missing or of another arity."""
        try:
            least, greatest = deserialize_row(stats.min_values, types), deserialize_row(stats.max_values, types)
        except ValueError:
            return None
        nulls = stats.null_counts if stats.null_counts is not None else (None,) * len(types)
        return PartitionRange(least, greatest, nulls) if len(nulls) == len(types) else None

    def may_hold(self, values: Sequence[Any]) -> bool:
        """Whether a partition of these values can be in the manifest."""
        return all(map(self._column_may_hold, range(len(values)), values))

    def _column_may_hold(self, column: int, value: Any) -> bool:
        least, greatest = self.least[column], self.greatest[column]
        if value is None:
            return self.null_counts[column] != 0
        if least is None or greatest is None:
            return True
        return bool(_order(least) <= _order(value) <= _order(greatest))


def may_hold_any(stats: SimpleStats, types: Sequence[DataType], partitions: Iterable[Sequence[Any]]) -> bool:
    """Whether a manifest with these statistics can hold an entry of one of the partitions (their values)."""
    known = PartitionRange.of(stats, types)
    return any(known is None or known.may_hold(values) for values in partitions)


def _order(value: Any) -> Any:
    """NaN is the greatest number and -0.0 equals 0.0: enough to prune by."""
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value
