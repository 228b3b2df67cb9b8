"""Internal values: what a cell is outside of Arrow, for the few places that handle single cells (keys, partitions, statistics).

bool, int, float, Decimal, str and bytes as in Python; DATE is the epoch day, TIME the millis of day, TIMESTAMP a `Timestamp`;
ARRAY a list, MAP and MULTISET a list of (key, value), ROW a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, timestamp_unit
from paimon_cli.datatypes.data_type import ArrayType, DataType, MapType, MultisetType, RowType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import Timestamp
from paimon_cli.errors import NotSupported

__all__ = ["Timestamp", "values_from_arrow", "values_to_arrow"]

LARGEST_NUMBER = 2**63 - 1
NANOS_KEPT = "this version keeps TIMESTAMP(7..9) as 64-bit nanoseconds"
_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def values_from_arrow(array: pa.Array, t: DataType) -> list[Any]:
    """The cells of an Arrow column of `arrow_type(t)` as internal values; also takes a ChunkedArray."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in values_from_arrow(chunk, t)]
    if t.root in ("DATE", "TIME"):
        return list(array.cast(pa.int32()).to_pylist())
    if isinstance(t, TimestampType):
        return _timestamps(array)
    if isinstance(t, ArrayType):
        return _lists(array, values_from_arrow(array.flatten(), t.element))
    if isinstance(t, (MapType, MultisetType)):
        return _maps(array, values_from_arrow(array.keys, t.key), values_from_arrow(array.items, t.value))
    if isinstance(t, RowType):
        columns = [values_from_arrow(column, f.type) for column, f in zip(array.flatten(), t.fields, strict=True)]
        rows: Sequence[Any] = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return list(array.to_pylist())


def values_to_arrow(values: Sequence[Any], t: DataType) -> pa.Array:
    """Internal values as an Arrow column of `arrow_type(t)`. Raises `NotSupported` for a TIMESTAMP(7..9) outside 1677..2262."""
    try:
        return pa.array([_arrow_input(value, t) for value in values], arrow_type(t))
    except OverflowError as error:
        raise NotSupported(f"a value of type {type_to_sql(t)} is too large", str(error)) from error


def _timestamps(array: pa.Array) -> list[Timestamp | None]:
    per_milli = _PER_MILLI[array.type.unit]
    numbers = array.cast(pa.int64()).to_pylist()
    if per_milli == 1:
        return [None if n is None else Timestamp(n) for n in numbers]
    nanos = 1_000_000 // per_milli
    return [None if n is None else Timestamp(n // per_milli, n % per_milli * nanos) for n in numbers]


def _maps(array: pa.MapArray, keys: list[Any], items: list[Any]) -> list[list[Any] | None]:
    """Pairs of each row; `keys` and `items` are all that the array's buffers hold, `offsets` say whose they are."""
    offsets = array.offsets.to_pylist()
    bounds = zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
    return [list(zip(keys[low:high], items[low:high], strict=True)) if valid else None for low, high, valid in bounds]


def _lists(array: pa.Array, flat: list[Any]) -> list[list[Any] | None]:
    """Cuts the flattened content into the lists of each row."""
    rest = iter(flat)
    lengths = pc.list_value_length(array).to_pylist()
    return [None if length is None else list(islice(rest, length)) for length in lengths]


def _arrow_input(value: Any, t: DataType) -> Any:
    """What `pa.array` takes for the Arrow type of `t`."""
    if value is None:
        return None
    if isinstance(t, TimestampType):
        per_milli = _PER_MILLI[timestamp_unit(t)]
        number = value.millis * per_milli + value.nano_of_milli // (1_000_000 // per_milli)
        if abs(number) > LARGEST_NUMBER:
            raise NotSupported("with more than 6 digits a timestamp must lie between 1678 and 2262", NANOS_KEPT)
        return number
    if isinstance(t, ArrayType):
        return [_arrow_input(item, t.element) for item in value]
    if isinstance(t, (MapType, MultisetType)):
        return [(_arrow_input(key, t.key), _arrow_input(item, t.value)) for key, item in value]
    if isinstance(t, RowType):
        return {f.name: _arrow_input(item, f.type) for f, item in zip(t.fields, value, strict=True)}
    return value
