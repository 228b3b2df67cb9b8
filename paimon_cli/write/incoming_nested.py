"""Typed columns of any type, ARRAY, MAP, MULTISET and ROW included: the rules of `incoming_cast` at every depth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import DataType
from paimon_cli.write.incoming_cast import cast_atomic, plain
from paimon_cli.write.incoming_cells import BadCell, WrongType

COUNT = DataType("INT", nullable=False)


def cast_column(array: pa.Array, t: DataType, *, may_round: bool = False) -> pa.Array:
    """The column as `arrow_type(t)`, nothing lost. Raises WrongType, or BadCell for the first row that does not fit.

    Nulls of the column itself are the caller's; nulls inside nested values are judged here.
    """
    values = plain(array)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(t))
    if t.root == "ARRAY" and t.element is not None:
        return _cast_list(values, t, t.element)
    if t.root == "MAP" and t.key is not None and t.value is not None:
        return _cast_map(values, t, t.key, t.value)
    if t.root == "MULTISET" and t.element is not None:
        return _cast_map(values, t, t.element, COUNT)
    if t.root == "ROW" and t.fields is not None:
        return _cast_struct(values, t)
    return cast_atomic(values, t, may_round=may_round)


def _cast_list(array: pa.Array, t: DataType, element: DataType) -> pa.Array:
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)):
        raise WrongType(str(array.type))
    offsets = _offsets(array)
    values = _inner(array, array.flatten(), element, offsets)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=arrow_type(t), mask=_null_mask(array))


def _cast_map(array: pa.Array, t: DataType, key: DataType, value: DataType) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise WrongType(str(array.type))
    # Arrow's list functions take no maps.
    lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    offsets, entries = _offsets(lists), lists.flatten()
    keys = _inner(array, entries.field(0), key.with_nullable(False), offsets)
    items = _inner(array, entries.field(1), value, offsets)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=arrow_type(t), mask=_null_mask(array))


def _cast_struct(array: pa.Array, t: DataType) -> pa.Array:
    fields = t.fields or ()
    if not pa.types.is_struct(array.type) or {f.name for f in array.type} != {f.name for f in fields}:
        raise WrongType(str(array.type))
    present = array.is_valid()
    children = []
    for field in fields:
        child = pc.struct_field(array, field.name)
        with _rows_of(array, lambda row: row):
            children.append(cast_column(child, field.type))
        if not field.type.nullable:
            _require_present(array, pc.and_(present, child.is_null()), lambda row: row)
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(t)), mask=_null_mask(array))


def _inner(array: pa.Array, values: pa.Array, t: DataType, offsets: np.ndarray) -> pa.Array:
    """Elements, keys or map values; their faults are told by the row that holds them."""

    def row_of(position: int) -> int:
        return int(np.searchsorted(offsets, position, side="right")) - 1

    with _rows_of(array, row_of):
        converted = cast_column(values, t)
    if not t.nullable:
        _require_present(array, values.is_null(), row_of)
    return converted


def _require_present(array: pa.Array, missing: pa.Array, row_of: Callable[[int], int]) -> None:
    marks = missing.to_numpy(zero_copy_only=False)
    if marks.any():
        row = row_of(int(np.argmax(marks)))
        raise BadCell(row, str(array[row]), "a part of it is null that must not be")


def _offsets(array: pa.Array) -> np.ndarray:
    """Offsets into `array.flatten()`, which leaves out what lies under null rows."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


class _rows_of:
    """Turns the position of an inner fault into the row of the outer array."""

    def __init__(self, array: pa.Array, row_of: Callable[[int], int]) -> None:
        self.array = array
        self.row_of = row_of

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, BadCell):
            row = self.row_of(problem.row)
            raise BadCell(row, problem.value, f"inside the value: {problem.why}") from problem
        if isinstance(problem, WrongType):
            raise WrongType(str(self.array.type), problem.why) from problem
