"""Column statistics of a file in the making, from the Arrow columns that go into it: for formats without a usable footer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.column_statistics import NO_MIN_MAX, ColumnStatistics
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataType
from paimon_cli.datatypes.values import values_from_arrow


class ColumnTally:
    """Nulls and bounds of one column, batch after batch; nothing is said of the bounds once a NaN was seen."""

    def __init__(self, t: DataType) -> None:
        self._type = t
        self._nulls = 0
        self._low: Any = None
        self._high: Any = None
        self._bounded = t.root not in NO_MIN_MAX

    def add(self, column: pa.ChunkedArray) -> None:
        self._nulls += column.null_count
        if not self._bounded or column.null_count == len(column):
            return
        if self._type.root in FLOATING_ROOTS and pc.any(pc.is_nan(column)).as_py():
            self._bounded = False
            return
        found = pc.min_max(column)
        ends = pa.array([found["min"].as_py(), found["max"].as_py()], column.type) if _is_exact(column.type) else _ends(found)
        low, high = values_from_arrow(ends, self._type)
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def statistics(self) -> ColumnStatistics:
        if not self._bounded or self._low is None:
            return ColumnStatistics(None, None, self._nulls)
        if self._type.root in FLOATING_ROOTS:  # both zeros are equal, whichever came first
            return ColumnStatistics(self._low or -0.0, self._high or 0.0, self._nulls)
        return ColumnStatistics(self._low, self._high, self._nulls)


def _is_exact(t: pa.DataType) -> bool:
    """Whether Python's value of a scalar says all; times lose digits or fail beyond the year 9999."""
    return not pa.types.is_temporal(t)


def _ends(found: pa.StructScalar) -> pa.Array:
    return pa.concat_arrays([pa.array([found[name]], found[name].type) for name in ("min", "max")])
