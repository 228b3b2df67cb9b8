"""NOT NULL fields below null ROW values: the values stay, Parquet accepts them."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paimon_cli.datatypes.arrow_types import retyped, without_hidden_nulls

ATOMIC = [pa.int32(), pa.string(), pa.bool_(), pa.decimal128(20, 2), pa.date32()]
NESTED = [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int32())]


def required(t: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field("a", t, nullable=False), pa.field("b", pa.string())])


SHAPES = [
    *map(required, ATOMIC + NESTED),
    required(required(pa.string())),
    pa.list_(required(pa.int32())),
    pa.map_(pa.string(), required(pa.int32())),
]


def marked(t: pa.DataType) -> pa.Array:
    """A column with a null struct whose NOT NULL field is marked null too, as `pa.nulls` and casts leave it."""
    if pa.types.is_list(t):
        return pa.ListArray.from_arrays(pa.array([0, None, 1, 3]), pa.concat_arrays([marked(t.value_type)]), type=t)
    if pa.types.is_map(t):
        return pa.MapArray.from_arrays(pa.array([0, None, 1, 3]), pa.array(["x", "y", "z"]), marked(t.item_type), type=t)
    filled = pa.array([{"a": _value(t.field("a").type), "b": "x"}, {"a": _value(t.field("a").type), "b": None}], t)
    return pa.concat_arrays([filled.slice(0, 1), pa.nulls(1, t), filled.slice(1)])


def _value(t: pa.DataType) -> object:
    if pa.types.is_struct(t):
        return {"a": _value(t.field("a").type), "b": "y"}
    if pa.types.is_list(t):
        return [1, 2]
    return [("k", 1)] if pa.types.is_map(t) else pc.cast(pa.scalar(1, pa.int32()), t) if not pa.types.is_date(t) else 1


def write(column: pa.ChunkedArray) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(pa.table([column], schema=pa.schema([pa.field("c", column.type)])), sink)
    return pq.read_table(io.BytesIO(sink.getvalue()))


@pytest.mark.parametrize("t", SHAPES, ids=str)
def test_parquet_accepts_the_column_and_the_values_stay(t: pa.DataType) -> None:
    column = pa.chunked_array([marked(t), marked(t).slice(1, 2)])
    cleared = without_hidden_nulls(column)
    cleared.validate(full=True)
    assert cleared.to_pylist() == column.to_pylist()
    assert write(cleared).column(0).to_pylist() == column.to_pylist()


@pytest.mark.parametrize("t", ATOMIC, ids=str)
def test_arrow_itself_refuses_such_columns(t: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        write(pa.chunked_array([marked(required(t))]))


def test_a_null_where_the_row_is_present_stays_an_error() -> None:
    child = pa.array([1, None, None], pa.int32())
    fields = [pa.field("a", pa.int32(), nullable=False)]
    struct = pa.StructArray.from_arrays([child], fields=fields, mask=pa.array([False, True, False]))
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        write(without_hidden_nulls(pa.chunked_array([struct])))


def test_columns_without_required_fields_are_not_touched() -> None:
    column = pa.chunked_array([pa.array([{"a": None}, None], pa.struct([pa.field("a", pa.int32())]))])
    assert without_hidden_nulls(column) is column


def test_a_cast_succeeds_where_arrow_refuses_it() -> None:
    children = [pa.array([1, None]), pa.array(["x", None])]
    marked_below = pa.StructArray.from_arrays(children, ["a", "b"], mask=pa.array([False, True]))
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        marked_below.cast(required(pa.int32()))
    cast = retyped(marked_below, required(pa.int32()), pa.Array.cast)
    assert cast.type == required(pa.int32())
    assert cast.to_pylist() == [{"a": 1, "b": "x"}, None]
