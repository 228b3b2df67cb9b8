"""Checks the statistics of a data file against the values of its columns (FORMAT.md, section 5.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.key_order import comparable
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.metadata.data_file import DataFileMeta, SimpleStats

NESTED = frozenset({"ARRAY", "MAP", "MULTISET", "ROW", "VARIANT", "VECTOR", "BLOB"})
FLOATS = frozenset({"FLOAT", "DOUBLE"})


class ColumnRanges:
    """Least and greatest value and number of nulls of each column; values as `comparable` has them."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = fields
        self._nulls = dict.fromkeys((field.name for field in fields), 0)
        self._ends: dict[str, tuple[Any, Any]] = {}

    def look_at(self, batch: pa.RecordBatch) -> None:
        for field in self._fields:
            column = batch.column(field.name)
            self._nulls[field.name] += column.null_count
            if field.type.root in NESTED:
                continue
            present = column.drop_null()
            if field.type.root in FLOATS:
                present = present.filter(pc.invert(pc.is_nan(present)))
            if len(present):
                ends = pc.min_max(comparable(present)).as_py()
                low, high = self._ends.get(field.name, (ends["min"], ends["max"]))
                self._ends[field.name] = (min(low, ends["min"]), max(high, ends["max"]))

    def differences(self, file: DataFileMeta, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
        """PV037, PV038, PV047: code and what does not fit. `keys`: the columns of the key statistics, which readers prune by."""
        for field in self._fields:
            if not field.type.nullable and self._nulls[field.name]:
                yield "PV047", f"column {field.name} is NOT NULL and holds {self._nulls[field.name]} nulls"
        by_name = {field.name: field for field in self._fields}
        yield from self._misses(file.key_stats, [by_name[name] for name in keys], "key statistics")
        listed = by_name if file.value_stats_cols is None else file.value_stats_cols
        yield from self._misses(file.value_stats, [by_name[name] for name in listed if name in by_name], "statistics")

    def _misses(self, stats: SimpleStats, fields: Sequence[DataField], what: str) -> Iterator[tuple[str, str]]:
        types = [field.type.with_nullable(True) for field in fields]
        try:
            least, greatest = deserialize_row(stats.min_values, types), deserialize_row(stats.max_values, types)
        except ValueError:
            return  # statistics of another arity are ignored: readers do not prune by them
        counts = stats.null_counts if stats.null_counts is not None else (None,) * len(fields)
        for field, low, high, nulls in zip(fields, least, greatest, counts, strict=False):
            if nulls is not None and nulls != self._nulls[field.name] and field.type.root not in NESTED:
                yield "PV038", f"column {field.name} holds {self._nulls[field.name]} nulls, its {what} say {nulls}"
            if not self._covers(field, low, high):
                yield "PV037", f"column {field.name} holds values outside of {low!r} to {high!r}, which its {what} say"

    def _covers(self, field: DataField, low: Any, high: Any) -> bool:
        """A bound that is NaN is no bound: some writers start with NaN and never replace it."""
        ends = self._ends.get(field.name)
        if ends is None:
            return True
        if field.type.root == "CHAR":  # ORC's own statistics have the padding, its rows come without
            ends, low, high = (ends[0].rstrip(" "), ends[1].rstrip(" ")), low and low.rstrip(" "), high and high.rstrip(" ")
        above = low is not None and low == low and ends[0] < _as_rows(field, low)
        below = high is not None and high == high and ends[1] > _as_rows(field, high)
        return not (above or below)


def _as_rows(field: DataField, value: Any) -> Any:
    return comparable(values_to_arrow([value], field.type.with_nullable(True)))[0].as_py()
