"""Conversion between Paimon and Arrow: types in both directions, and values (FORMAT.md, section 7.2).

Arrow may mark NOT NULL fields of a null ROW as null, and then refuses to cast or write them. `without_hidden_nulls` clears these
null bits.

Internal values represent single cells outside of Arrow (keys, partitions, statistics): bool, int, float, Decimal, str and bytes
as in Python; DATE as epoch day, TIME as millis of the day, TIMESTAMP as a `Timestamp`; ARRAY as a list, MAP and MULTISET as a
list of (key, value), ROW as a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_PRECISION,
    SMALLINT,
    STRING,
    TINYINT,
    VARIANT,
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import Timestamp
from paimon_cli.errors import NotSupported

_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "GEOMETRY": pa.binary(),
    "GEOGRAPHY": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
}
_FROM_PLAIN = {
    pa.bool_(): BOOLEAN,
    pa.int8(): TINYINT,
    pa.int16(): SMALLINT,
    pa.int32(): INT,
    pa.int64(): BIGINT,
    pa.uint8(): SMALLINT,
    pa.uint16(): INT,
    pa.uint32(): BIGINT,
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FLOAT,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.date32(): DATE,
    pa.date64(): DATE,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.binary_view(): BYTES,
}
_VARIANT_FIELDS = {("value", pa.binary()), ("metadata", pa.binary())}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def arrow_type(t: DataType) -> pa.DataType:
    """The Arrow type of columns of type `t` in memory. Raises `NotSupported` for `NEWER_ROOTS`, BLOB and VECTOR."""
    plain = _PLAIN.get(t.root)
    if plain is not None:
        return plain
    match t:
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case TimestampType():
            return pa.timestamp(timestamp_unit(t), tz="UTC" if t.root == "TIMESTAMP_LTZ" else None)
        case ArrayType(element):
            return pa.list_(pa.field("element", arrow_type(element), element.nullable))
        case MapType() | MultisetType():
            key, value = arrow_type(t.key), arrow_type(t.value)
            return pa.map_(pa.field("key", key, False), pa.field("value", value, t.value.nullable))
        case RowType(fields):
            return pa.struct([arrow_field(field) for field in fields])
    raise NotSupported(f"columns of type {type_to_sql(t)} are not supported", "this version neither reads nor writes them")


def timestamp_unit(t: TimestampType) -> str:
    """Arrow unit of a TIMESTAMP: ms up to precision 3, us up to 6, ns above."""
    return "ms" if t.precision <= 3 else "us" if t.precision <= 6 else "ns"


def arrow_field(f: DataField) -> pa.Field:
    """The column as an Arrow field with the nullability of its type."""
    return pa.field(f.name, arrow_type(f.type), f.type.nullable)


NESTED_ID_BASE = 536870911


def identified_schema(fields: Sequence[DataField]) -> pa.Schema:
    """The columns as an Arrow schema with Parquet field ids, as Paimon writes them."""
    return pa.schema([_identified(field) for field in fields])


def _identified(field: DataField) -> pa.Field:
    return pa.field(field.name, _identified_type(field.type, field.id, 1), field.type.nullable, _field_id(field.id))


def _identified_type(t: DataType, field_id: int, depth: int) -> pa.DataType:
    """The Arrow type with ids on nested fields: ROW fields have their own, others derive from the column's id and the depth."""
    inner = field_id * 1024 + depth
    if isinstance(t, ArrayType):
        return pa.list_(_nested("element", t.element, NESTED_ID_BASE + inner, field_id, depth))
    if isinstance(t, MapType):
        key = _nested("key", t.key.with_nullable(False), NESTED_ID_BASE - inner, field_id, depth)
        return pa.map_(key, _nested("value", t.value, NESTED_ID_BASE + inner, field_id, depth))
    if isinstance(t, MultisetType):
        key = _nested("key", t.element.with_nullable(False), NESTED_ID_BASE - inner, field_id, depth)
        return pa.map_(key, pa.field("value", pa.int32(), False, _field_id(NESTED_ID_BASE + inner)))
    if isinstance(t, RowType):
        return pa.struct([_identified(field) for field in t.fields])
    return arrow_type(t)


def _nested(name: str, t: DataType, own_id: int, field_id: int, depth: int) -> pa.Field:
    return pa.field(name, _identified_type(t, field_id, depth + 1), t.nullable, _field_id(own_id))


def _field_id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def type_from_arrow(t: pa.DataType, nullable: bool = True) -> DataType:
    """The narrowest Paimon type that holds all values of an Arrow type, for creating tables from files.

    Unsigned integers are widened. Struct fields are numbered 0, 1, ... depth-first. Raises `NotSupported` for other Arrow types.
    """
    return _from_arrow(t, count()).with_nullable(nullable)


def _from_arrow(t: pa.DataType, new_ids: Iterator[int]) -> DataType:
    plain = _FROM_PLAIN.get(t)
    if plain is not None:
        return plain
    if pa.types.is_dictionary(t):
        return _from_arrow(t.value_type, new_ids)
    if pa.types.is_decimal(t) and 1 <= t.precision <= MAX_DECIMAL_PRECISION and 0 <= t.scale <= t.precision:
        return DecimalType(t.precision, t.scale)
    if pa.types.is_time(t):
        # values are stored as millis of the day, whatever the precision
        return TimeType(min(_DIGITS[t.unit], 3))
    if pa.types.is_timestamp(t):
        return TimestampType("TIMESTAMP" if t.tz is None else "TIMESTAMP_LTZ", _DIGITS[t.unit])
    if pa.types.is_fixed_size_binary(t) and t.byte_width > 0:
        return BinaryType("BINARY", t.byte_width)
    return _nested_from_arrow(t, new_ids)


def _nested_from_arrow(t: pa.DataType, new_ids: Iterator[int]) -> DataType:
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return ArrayType(_field_type(t.value_field, new_ids))
    if pa.types.is_map(t):
        key = _field_type(t.key_field, new_ids)
        return MapType(key, _field_type(t.item_field, new_ids))
    if pa.types.is_struct(t) and {(field.name, field.type) for field in t} == _VARIANT_FIELDS:
        return VARIANT
    if pa.types.is_struct(t):
        return RowType(tuple(_struct_field(t.field(i), new_ids) for i in range(t.num_fields)))
    raise NotSupported(f"the Arrow type {t} has no Paimon counterpart", "it cannot become a column", "cast it in the source file")


def _struct_field(field: pa.Field, new_ids: Iterator[int]) -> DataField:
    return DataField(next(new_ids), field.name, _field_type(field, new_ids))


def _field_type(field: pa.Field, new_ids: Iterator[int]) -> DataType:
    return _from_arrow(field.type, new_ids).with_nullable(field.nullable)


_LARGEST_CELL = 32
Convert = Callable[[pa.Array, pa.DataType], pa.Array]


def without_hidden_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without null bits on NOT NULL fields of null structs."""
    if not _has_required_fields(column.type):
        return column
    return pa.chunked_array([retyped(chunk, column.type, lambda part, _: part) for chunk in column.chunks], column.type)


def retyped(array: pa.Array, t: pa.DataType, convert: Convert) -> pa.Array:
    """`convert(array, t)`, such as a cast or a view. Types with NOT NULL fields are converted field by field, by position,
    because hidden nulls would make the conversion of the whole array fail.
    """
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
    if not t.num_fields:
        return False
    if pa.types.is_struct(t):
        return any(not field.nullable or _has_required_fields(field.type) for field in t)
    if pa.types.is_map(t):
        return _has_required_fields(t.key_type) or _has_required_fields(t.item_type)
    return pa.types.is_list(t) and _has_required_fields(t.value_type)


def _field(child: pa.Array, field: pa.Field, absent: pa.Array) -> pa.Array:
    hidden = not field.nullable and child.null_count and pc.all(pc.or_(absent, child.is_valid())).as_py()
    return _unmarked(child) if hidden else child


def _unmarked(array: pa.Array) -> pa.Array:
    """The array with its nulls replaced by zero values."""
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
    """A zero of any type. The bytes under a null cannot be used, because they may not be valid values of the type."""
    of_bytes = pa.types.is_string(t) or pa.types.is_binary(t)
    buffers = [None, pa.py_buffer(bytes(_LARGEST_CELL)), *([pa.py_buffer(b"")] if of_bytes else [])]
    return pa.Array.from_buffers(t, 1, buffers)[0]


_LARGEST_NUMBER = 2**63 - 1
_NANOS_KEPT = "this version keeps TIMESTAMP(7..9) as 64-bit nanoseconds"
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


def is_ascii(texts: pa.Array) -> bool:
    """Whether all bytes of a string array are ASCII, and so valid UTF-8; ten times as fast as validating each string.

    False says nothing about validity: a character could be split between two strings.
    """
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return True
    begin, end = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return end <= begin or bool(np.frombuffer(data, np.int8)[begin:end].min() >= 0)


def low_words(decimals: pa.Array) -> np.ndarray:
    """The low 64 bits (int64) of the unscaled value of each DECIMAL; undefined for nulls."""
    data = decimals.buffers()[1]
    words = np.frombuffer(b"" if data is None else data, dtype=np.int64)
    return words[2 * decimals.offset : 2 * (decimals.offset + len(decimals)) : 2]


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
    """The (key, value) pairs of each row; `keys` and `items` are the decoded child arrays, which the offsets divide into rows."""
    offsets = array.offsets.to_pylist()
    bounds = zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
    return [list(zip(keys[low:high], items[low:high], strict=True)) if valid else None for low, high, valid in bounds]


def _lists(array: pa.Array, flat: list[Any]) -> list[list[Any] | None]:
    """Split the flattened elements into the lists of each row."""
    elements = iter(flat)
    lengths = pc.list_value_length(array).to_pylist()
    return [None if length is None else list(islice(elements, length)) for length in lengths]


def _arrow_input(value: Any, t: DataType) -> Any:
    """An internal value in the form that `pa.array` accepts for the Arrow type of `t`."""
    if value is None:
        return None
    if isinstance(t, TimestampType):
        per_milli = _PER_MILLI[timestamp_unit(t)]
        number = value.millis * per_milli + value.nano_of_milli // (1_000_000 // per_milli)
        if abs(number) > _LARGEST_NUMBER:
            raise NotSupported("with more than 6 digits a timestamp must lie between 1678 and 2262", _NANOS_KEPT)
        return number
    if isinstance(t, ArrayType):
        return [_arrow_input(item, t.element) for item in value]
    if isinstance(t, (MapType, MultisetType)):
        return [(_arrow_input(key, t.key), _arrow_input(item, t.value)) for key, item in value]
    if isinstance(t, RowType):
        return {f.name: _arrow_input(item, f.type) for f, item in zip(t.fields, value, strict=True)}
    return value
