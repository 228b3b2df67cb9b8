"""Columns as pyarrow's ORC writer must get them: its C++ part writes what lies below a null struct unless that is null too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def orc_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table of such columns."""
    return pa.schema([pa.field(field.name, _orc_type(field.type)) for field in schema])


def orc_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values; TIME as an integer, as Paimon keeps it in ORC, and every field nullable."""
    return pa.chunked_array([_orc_array(chunk) for chunk in column.chunks], _orc_type(column.type))


def _orc_type(t: pa.DataType) -> pa.DataType:
    if pa.types.is_time(t):
        return pa.int32()
    if pa.types.is_list(t):
        return pa.list_(_orc_type(t.value_type))
    if pa.types.is_map(t):
        return pa.map_(_orc_type(t.key_type), _orc_type(t.item_type))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(field.name, _orc_type(field.type)) for field in t])
    return t


def _orc_array(array: pa.Array) -> pa.Array:
    t = array.type
    if pa.types.is_time(t):
        return array.view(pa.int32())
    if not pa.types.is_nested(t):
        return array
    absent = array.is_null() if array.null_count else None
    wanted = _orc_type(t)
    if pa.types.is_struct(t):
        fields = [_orc_array(_below(array.field(i), absent)) for i in range(t.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=absent)
    starts, seen = _entries(array)
    if pa.types.is_map(t):
        keys, items = _orc_array(_seen(array.keys, seen)), _orc_array(_seen(array.items, seen))
        return pa.MapArray.from_arrays(starts, keys, items, type=wanted, mask=absent)
    return pa.ListArray.from_arrays(starts, _orc_array(_seen(array.values, seen)), type=wanted, mask=absent)


def _below(field: pa.Array, absent: pa.Array | None) -> pa.Array:
    """A field of structs, null wherever the struct is."""
    if absent is None:
        return field
    rows = pa.array(np.arange(len(field)), mask=absent.to_numpy(zero_copy_only=False))
    return pc.take(field, rows)


def _entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets of the rows' entries, and which entries those are; none of a null row."""
    offsets = array.offsets.to_numpy()
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    first = np.repeat(offsets[:-1].astype(np.int64) - starts[:-1], lengths)
    return pa.array(starts), pa.array(first + np.arange(int(starts[-1])))


def _seen(entries: pa.Array, seen: pa.Array) -> pa.Array:
    return entries.take(seen)
