"""Column statistics of a data file: from its Parquet footer, or from the Arrow columns written (FORMAT.md, section 5.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli.datatypes.arrow_types import values_from_arrow
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataType, DecimalType, StringType, TimestampType
from paimon_cli.datatypes.internal_values import Timestamp, decimal_of
from paimon_cli.metadata.data_file import SimpleStats

KEY_STATS_MODE = "truncate(128)"
"""Of key columns, whatever the stats mode of the table."""

NO_MIN_MAX = frozenset({"BINARY", "VARBINARY", "ARRAY", "MAP", "MULTISET", "ROW", "VARIANT", "VECTOR"})
"""Types without bounds: old readers expect none for bytes, nested columns have none in the footer."""


@dataclass(frozen=True)
class ColumnStatistics:
    """Bounds as internal values, None when unknown; `null_count` None when unknown."""

    minimum: Any = None
    maximum: Any = None
    null_count: int | None = None


UNKNOWN = ColumnStatistics()


def leaf_numbers(schema: pa.Schema) -> dict[str, int]:
    """Which leaf of the file each column is; nested columns are several, or none of their own.

    By place, not by path: the path of `a.b` may be that of a column of this name, or of field b in column a.
    """
    numbers: dict[str, int] = {}
    leaves = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            numbers[field.name] = leaves
        leaves += _leaves(field.type)
    return numbers


def _leaves(t: pa.DataType) -> int:
    if pa.types.is_map(t):
        return _leaves(t.key_type) + _leaves(t.item_type)
    if pa.types.is_nested(t):
        return sum(_leaves(t.field(i).type) for i in range(t.num_fields))
    return 1


def footer_statistics(
    footer: pq.FileMetaData, leaf: int | None, t: DataType, has_nan: bool, groups: Iterable[int] | None = None
) -> ColumnStatistics:
    """Statistics of one leaf (none for nested columns) over these row groups, or all; bounds only when every one with values has
    them.
    """
    if leaf is None:
        return UNKNOWN
    asked = range(footer.num_row_groups) if groups is None else groups
    chunks = [footer.row_group(i).column(leaf).statistics for i in asked]
    if any(chunk is None or not chunk.has_null_count for chunk in chunks):
        return UNKNOWN
    nulls = sum(chunk.null_count for chunk in chunks)
    filled = [chunk for chunk in chunks if chunk.num_values]
    if has_nan or not filled or t.root in NO_MIN_MAX or not all(chunk.has_min_max for chunk in filled):
        return ColumnStatistics(None, None, nulls)
    lows, highs = [chunk.min_raw for chunk in filled], [chunk.max_raw for chunk in filled]
    if isinstance(t, DecimalType) and isinstance(lows[0], bytes):
        return ColumnStatistics(min(_value(low, t) for low in lows), max(_value(high, t) for high in highs), nulls)
    # All others are ordered as their physical values are, texts as their bytes.
    return ColumnStatistics(_value(min(lows), t), _value(max(highs), t), nulls)


def _value(raw: Any, t: DataType) -> Any:
    """The footer's physical value as an internal value of the type."""
    if isinstance(t, DecimalType):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return decimal_of(unscaled, t.scale)
    if isinstance(t, StringType):
        return raw.decode("utf-8")
    if isinstance(t, TimestampType):
        millis, micros = (raw, 0) if t.precision <= 3 else divmod(raw, 1000)
        return Timestamp(millis, micros * 1000)
    return raw


def truncated(statistics: ColumnStatistics, mode: str) -> ColumnStatistics:
    """Apply a stats mode: `none`, `counts`, `full` or `truncate(n)`, n in code points; a cut maximum is rounded up."""
    if mode == "none":
        return UNKNOWN
    if mode == "counts":
        return ColumnStatistics(None, None, statistics.null_count)
    if mode == "full" or not isinstance(statistics.maximum, str):
        return statistics
    length = int(mode[len("truncate(") : -1])
    maximum = statistics.maximum if len(statistics.maximum) <= length else _next_text(statistics.maximum[:length])
    if maximum is None:
        return ColumnStatistics(None, None, statistics.null_count)
    return ColumnStatistics(statistics.minimum[:length], maximum, statistics.null_count)


def _next_text(text: str) -> str | None:
    """The shortest text that is greater than every text that begins with `text`; None if there is none."""
    for end in range(len(text) - 1, -1, -1):
        point = ord(text[end]) + 1
        if point == 0xD800:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return text[:end] + chr(point)
    return None


def simple_stats(columns: Iterable[ColumnStatistics], types: Sequence[DataType]) -> SimpleStats:
    """The manifest's form, one field per column."""
    listed = list(columns)
    return SimpleStats(
        serialize_row([c.minimum for c in listed], types),
        serialize_row([c.maximum for c in listed], types),
        tuple(c.null_count for c in listed),
    )


class ColumnTally:
    """Counts nulls and tracks bounds of one column, batch after batch. After a NaN the bounds are unknown."""

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
    """Whether the Python value of a scalar is exact; times lose digits, or fail beyond the year 9999."""
    return not pa.types.is_temporal(t)


def _ends(found: pa.StructScalar) -> pa.Array:
    return pa.concat_arrays([pa.array([found[name]], found[name].type) for name in ("min", "max")])
