"""NOT NULL fields of null ROW values: Arrow marks them null or not as it pleases, then refuses to cast or write them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

_LARGEST_CELL = 32
Convert = Callable[[pa.Array, pa.DataType], pa.Array]


def without_hidden_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values, with no null mark on a NOT NULL field where the struct around it is null anyway."""
    if not _has_required_fields(column.type):
        return column
    return pa.chunked_array([retyped(chunk, column.type, lambda part, _: part) for chunk in column.chunks], column.type)


def retyped(array: pa.Array, t: pa.DataType, convert: Convert) -> pa.Array:
    """`convert(array, t)`, such as a cast or a view; part by part (fields by position) where hidden nulls may be in its way."""
    if not _has_required_fields(t) or array.type.id != t.id or array.type.num_fields != t.num_fields:
        return convert(array, t)
    absent = array.is_null()
    if pa.types.is_struct(t):
        children = [_field(retyped(array.field(i), f.type, convert), f, absent) for i, f in enumerate(t)]
        return pa.StructArray.from_arrays(children, fields=list(t), mask=absent)
    offsets = array.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    starts = pa.array(offsets - offsets[0])
    if pa.types.is_map(t):
        keys, items = retyped(array.keys[inside], t.key_type, convert), retyped(array.items[inside], t.item_type, convert)
        return pa.MapArray.from_arrays(starts, keys, items, type=t, mask=absent)
    return pa.ListArray.from_arrays(starts, retyped(array.values[inside], t.value_type, convert), type=t, mask=absent)


def _has_required_fields(t: pa.DataType) -> bool:
    if pa.types.is_struct(t):
        return any(not field.nullable or _has_required_fields(field.type) for field in t)
    if pa.types.is_map(t):
        return _has_required_fields(t.key_type) or _has_required_fields(t.item_type)
    return pa.types.is_list(t) and _has_required_fields(t.value_type)


def _field(child: pa.Array, field: pa.Field, absent: pa.Array) -> pa.Array:
    hidden = not field.nullable and child.null_count and pc.all(pc.or_(absent, child.is_valid())).as_py()
    return _unmarked(child) if hidden else child


def _unmarked(array: pa.Array) -> pa.Array:
    """The array without its null marks, zeros there."""
    t = array.type
    if pa.types.is_struct(t):
        children = [array.field(i) if field.nullable else _unmarked(array.field(i)) for i, field in enumerate(t)]
        return pa.StructArray.from_arrays(children, fields=list(t))
    if pa.types.is_map(t):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=t)
    if pa.types.is_list(t):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=t)
    return pc.if_else(array.is_valid(), array, _zero(t)) if array.null_count else array


def _zero(t: pa.DataType) -> pa.Scalar:
    """What nobody sees: a buffer may hold anything below a null, also what is no value of the type."""
    of_bytes = pa.types.is_string(t) or pa.types.is_binary(t)
    buffers = [None, pa.py_buffer(bytes(_LARGEST_CELL)), *([pa.py_buffer(b"")] if of_bytes else [])]
    return pa.Array.from_buffers(t, 1, buffers)[0]
