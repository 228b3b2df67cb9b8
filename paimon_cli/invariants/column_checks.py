"""What a data file's statistics say of its columns, against the values that are there (format section 5.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.field_types import DataField
from paimon_cli.datatypes.key_order import comparable
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.metadata.data_file import DataFileMeta

NESTED = frozenset({"ARRAY", "MAP", "MULTISET", "ROW", "VARIANT", "VECTOR", "BLOB"})
UNORDERED = NESTED | {"BINARY", "VARBINARY"}
FLOATS = frozenset({"FLOAT", "DOUBLE"})


class ColumnRanges:
    """Least and greatest value and number of nulls of each column; values as `comparable` has them."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = fields
        self._nulls = dict.fromkeys((field.name for field in fields), 0)
        self._ends: dict[str, tuple[Any, Any]] = {}
        self._with_nan: set[str] = set()

    def look_at(self, batch: pa.RecordBatch) -> None:
        for field in self._fields:
            column = batch.column(field.name)
            self._nulls[field.name] += column.null_count
            if field.type.root in UNORDERED:
                continue
            if field.type.root in FLOATS and pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(field.name)
            present = column.drop_null()
            if len(present):
                ends = pc.min_max(comparable(present)).as_py()
                low, high = self._ends.get(field.name, (ends["min"], ends["max"]))
                self._ends[field.name] = (min(low, ends["min"]), max(high, ends["max"]))

    def differences(self, file: DataFileMeta) -> Iterator[tuple[str, str]]:
        """PV037, PV038, PV047: code and what does not fit."""
        for field in self._fields:
            if not field.type.nullable and self._nulls[field.name]:
                yield "PV047", f"column {field.name} is NOT NULL and holds {self._nulls[field.name]} nulls"
        listed = [field.name for field in self._fields] if file.value_stats_cols is None else list(file.value_stats_cols)
        by_name = {field.name: field for field in self._fields}
        fields = [by_name[name] for name in listed if name in by_name]
        stats = file.value_stats
        types = [field.type.with_nullable(True) for field in fields]
        try:
            least, greatest = deserialize_row(stats.min_values, types), deserialize_row(stats.max_values, types)
        except ValueError:
            return  # statistics of another arity say nothing, and readers do not prune by them
        counts = stats.null_counts if stats.null_counts is not None else (None,) * len(fields)
        for field, low, high, nulls in zip(fields, least, greatest, counts, strict=False):
            if nulls is not None and nulls != self._nulls[field.name] and field.type.root not in NESTED:
                yield "PV038", f"column {field.name} holds {self._nulls[field.name]} nulls, its statistics say {nulls}"
            if not self._covers(field, low, high):
                yield "PV037", f"column {field.name} holds values outside of {low!r} to {high!r}"

    def _covers(self, field: DataField, low: Any, high: Any) -> bool:
        ends = self._ends.get(field.name)
        if ends is None or field.name in self._with_nan or field.type.root in UNORDERED:
            return True
        if field.type.root == "CHAR":  # ORC's own statistics have the padding, its rows come without
            ends, low, high = (ends[0].rstrip(" "), ends[1].rstrip(" ")), low and low.rstrip(" "), high and high.rstrip(" ")
        if low is not None and ends[0] < _as_rows(field, low):
            return False
        return high is None or ends[1] <= _as_rows(field, high)


def _as_rows(field: DataField, value: Any) -> Any:
    return comparable(values_to_arrow([value], field.type.with_nullable(True)))[0].as_py()
