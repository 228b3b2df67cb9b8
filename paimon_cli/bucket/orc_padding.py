"""CHAR(n) values of ORC files: padded with blanks in the file, not in memory, at any depth."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import DataType


def holds_chars(t: DataType) -> bool:
    """Whether a CHAR is the type or lies inside of it."""
    inner = (t.element, t.key, t.value, *(field.type for field in t.fields or ()))
    return t.root == "CHAR" or any(holds_chars(part) for part in inner if part is not None)


def unpadded(column: pa.Array, t: DataType) -> pa.Array:
    """The column, as ORC gives it, without the blanks at the end of its CHARs."""
    if not holds_chars(t):
        return column
    if t.root == "CHAR":
        return pc.utf8_rtrim(column, " ")
    absent = column.is_null() if column.null_count else None
    if t.root == "ROW":
        fields = [unpadded(column.field(i), field.type) for i, field in enumerate(t.row_fields())]
        return pa.StructArray.from_arrays(fields, fields=list(column.type), mask=absent)
    offsets = column.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    starts = pa.array(offsets - offsets[0])
    if t.root == "ARRAY":
        return pa.ListArray.from_arrays(starts, unpadded(column.values[inside], t.element_type()), type=column.type, mask=absent)
    key, value = t.entry_types()
    keys, items = unpadded(column.keys[inside], key), unpadded(column.items[inside], value)
    return pa.MapArray.from_arrays(starts, keys, items, type=column.type, mask=absent)
