"""Column statistics of a data file, from its Parquet footer or from the rows that were written (FORMAT.md, section 5.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli.datatypes.arrow_types import values_from_arrow
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, SPATIAL_ROOTS, DataType, DecimalType, StringType, TimestampType
from paimon_cli.datatypes.internal_values import Timestamp, decimal_of
from paimon_cli.metadata.data_file import SimpleStats

KEY_STATS_MODE = "truncate(128)"
"""The statistics mode of key columns, whatever the mode of the table."""

NO_MIN_MAX = frozenset({"BINARY", "VARBINARY", "ARRAY", "MAP", "MULTISET", "ROW", "VARIANT", "VECTOR"}) | SPATIAL_ROOTS
"""Types without bounds: old readers expect none for bytes, nested columns have none in the footer."""

GROUP_BOUNDS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "VARCHAR", "DECIMAL"})
"""Types whose bounds in a Parquet footer have the same meaning for all writers."""


@dataclass(frozen=True)
class ColumnStatistics:
    """Bounds as internal values, and the number of nulls; None for what is not known."""

    minimum: Any = None
    maximum: Any = None
    null_count: int | None = None


NO_STATISTICS = ColumnStatistics()


def leaf_numbers(schema: pa.Schema) -> dict[str, int]:
    """Column name -> number of its leaf in a Parquet file, for columns that are not nested.

    Counts leaves instead of comparing paths, because `a.b` may be a column of this name or the field b of column a.
    """
    numbers: dict[str, int] = {}
    leaves = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            numbers[field.name] = leaves
        leaves += leaf_count(field.type)
    return numbers


def leaf_count(t: pa.DataType) -> int:
    """The number of leaves of a column of this type in a Parquet file."""
    if pa.types.is_map(t):
        return leaf_count(t.key_type) + leaf_count(t.item_type)
    if pa.types.is_nested(t):
        return sum(leaf_count(t.field(i).type) for i in range(t.num_fields))
    return 1


def chunk_statistics(footer: pq.FileMetaData, group: int, leaf: int) -> Any:
    """The statistics of a column chunk, None without any. Raises `ValueError` if its type is not that of its column, for which
    Arrow would end the process.
    """
    chunk, column = footer.row_group(group).column(leaf), footer.schema.column(leaf)
    if chunk.physical_type != column.physical_type:
        raise ValueError(f"column {column.path} has type {column.physical_type}, but a chunk of {chunk.physical_type}")
    return chunk.statistics


def footer_statistics(
    footer: pq.FileMetaData, leaf: int | None, t: DataType, has_nan: bool, groups: Iterable[int] | None = None
) -> ColumnStatistics:
    """Statistics of one leaf (None: unknown, for nested columns) over these row groups, or over all.

    Bounds are known only if every row group with values has them. `has_nan`: the column holds NaN, so that it has no bounds.
    """
    if leaf is None:
        return NO_STATISTICS
    numbers = range(footer.num_row_groups) if groups is None else groups
    chunks = [chunk_statistics(footer, number, leaf) for number in numbers]
    if any(chunk is None or not chunk.has_null_count for chunk in chunks):
        return NO_STATISTICS
    nulls = sum(chunk.null_count for chunk in chunks)
    filled = [chunk for chunk in chunks if chunk.num_values]
    if has_nan or not filled or t.root in NO_MIN_MAX or not all(chunk.has_min_max for chunk in filled):
        return ColumnStatistics(None, None, nulls)
    lows, highs = [chunk.min_raw for chunk in filled], [chunk.max_raw for chunk in filled]
    if isinstance(t, DecimalType) and isinstance(lows[0], bytes):
        return ColumnStatistics(min(_value(low, t) for low in lows), max(_value(high, t) for high in highs), nulls)
    # Values of all other types are ordered like their physical values, texts like their bytes.
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
    """Statistics as a mode keeps them: `none`, `counts`, `full` or `truncate(n)`, n in code points.

    A cut maximum is rounded up.
    """
    if mode == "none":
        return NO_STATISTICS
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
        if point == 0xD800:  # surrogates are not characters
            point = 0xE000
        if point <= 0x10FFFF:
            return text[:end] + chr(point)
    return None


def simple_stats(columns: Iterable[ColumnStatistics], types: Sequence[DataType]) -> SimpleStats:
    """The statistics as a manifest entry stores them, with one field for each column."""
    all_columns = list(columns)
    return SimpleStats(
        serialize_row([c.minimum for c in all_columns], types),
        serialize_row([c.maximum for c in all_columns], types),
        tuple(c.null_count for c in all_columns),
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
        bounds = pc.min_max(column)
        exact = _is_exact(column.type)
        ends = pa.array([bounds["min"].as_py(), bounds["max"].as_py()], column.type) if exact else _ends(bounds)
        low, high = values_from_arrow(ends, self._type)
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def statistics(self) -> ColumnStatistics:
        if not self._bounded or self._low is None:
            return ColumnStatistics(None, None, self._nulls)
        if self._type.root in FLOATING_ROOTS:  # -0.0 and 0.0 compare as equal, so either may have been kept
            return ColumnStatistics(self._low or -0.0, self._high or 0.0, self._nulls)
        return ColumnStatistics(self._low, self._high, self._nulls)


def _is_exact(t: pa.DataType) -> bool:
    """Whether the Python value of a scalar is exact. Times lose digits, or fail after the year 9999."""
    return not pa.types.is_temporal(t)


def _ends(bounds: pa.StructScalar) -> pa.Array:
    return pa.concat_arrays([pa.array([bounds[name]], bounds[name].type) for name in ("min", "max")])
