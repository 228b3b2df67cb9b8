"""NOT NULL fields of null ROW values: Arrow marks them null or not as it pleases, Parquet wants them to hold something."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def without_hidden_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values, with no null mark on a non-nullable field where the struct around it is null anyway.

    Keys of maps are left as they are.
    """
    if not _has_required_fields(column.type):
        return column
    return pa.chunked_array([_cleared(chunk) for chunk in column.chunks], column.type)


def _has_required_fields(t: pa.DataType) -> bool:
    if pa.types.is_struct(t):
        return any(not field.nullable or _has_required_fields(field.type) for field in t)
    if pa.types.is_map(t):
        return _has_required_fields(t.item_type)
    return pa.types.is_list(t) and _has_required_fields(t.value_type)


def _cleared(array: pa.Array) -> pa.Array:
    t = array.type
    if not _has_required_fields(t):
        return array
    absent = array.is_null()
    if pa.types.is_struct(t):
        children = [_field(array.field(i), field, absent) for i, field in enumerate(t)]
        return pa.StructArray.from_arrays(children, fields=list(t), mask=absent)
    offsets = array.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    starts = pa.array(offsets - offsets[0])
    if pa.types.is_map(t):
        return pa.MapArray.from_arrays(starts, array.keys[inside], _cleared(array.items[inside]), type=t, mask=absent)
    return pa.ListArray.from_arrays(starts, _cleared(array.values[inside]), type=t, mask=absent)


def _field(child: pa.Array, field: pa.Field, absent: pa.Array) -> pa.Array:
    cleared = _cleared(child)
    hidden = not field.nullable and child.null_count and pc.all(pc.or_(absent, child.is_valid())).as_py()
    return _unmarked(cleared) if hidden else cleared


def _unmarked(array: pa.Array) -> pa.Array:
    """The array without its null marks: whatever its buffers hold there becomes the value."""
    t = array.type
    if pa.types.is_struct(t):
        children = [array.field(i) if field.nullable else _unmarked(array.field(i)) for i, field in enumerate(t)]
        return pa.StructArray.from_arrays(children, fields=list(t))
    if pa.types.is_map(t):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=t)
    if pa.types.is_list(t):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=t)
    return pa.Array.from_buffers(t, len(array), [None, *array.buffers()[1:]], offset=array.offset)

