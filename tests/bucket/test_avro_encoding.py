"""Records that are encoded by column have the bytes that fastavro gives them one by one, in every type and block."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.bucket.avro_encoding import encoded_blocks
from paimon_cli.bucket.avro_rows import avro_record_field, stored_type
from paimon_cli.datatypes.arrow_types import arrow_type, retyped
from paimon_cli.datatypes.data_type import ArrayType, DataType, MapType, MultisetType, RowType, StringType
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import Refused
from paimon_cli.metadata.avro_writer import plain_times

TEXTS = (
    *(
        "BOOLEAN",
        "TINYINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "STRING",
        "BYTES",
        "DATE",
        "TIME(3)",
        "TIMESTAMP(3)",
        "TIMESTAMP(6)",
    ),
    *("DECIMAL(3, 1)", "DECIMAL(18, 2)", "DECIMAL(38, 0)", "ARRAY<STRING>", "ARRAY<ARRAY<INT NOT NULL>>", "MAP<STRING, BIGINT>"),
    *(
        "MAP<INT, ARRAY<STRING>>",
        "MULTISET<STRING>",
        "ROW<a INT, b ROW<c STRING NOT NULL, d ARRAY<DOUBLE>> NOT NULL>",
        "ROW<a INT>",
    ),
)


def values(t: DataType) -> st.SearchStrategy[Any]:
    """Values of the type, and nulls where it has them."""
    plain = _plain_values(t)
    return plain | st.none() if t.nullable else plain


def _plain_values(t: DataType) -> st.SearchStrategy[Any]:
    match t:
        case ArrayType(element):
            return st.lists(values(element), max_size=4)
        case MapType() | MultisetType():
            key = values(t.key.with_nullable(False))
            return st.lists(st.tuples(key, values(t.value)), max_size=4, unique_by=lambda pair: pair[0])
        case RowType(fields):
            return st.fixed_dictionaries({field.name: values(field.type) for field in fields})
    arrow = arrow_type(t)
    if pa.types.is_decimal(arrow):
        limit = 10**arrow.precision - 1
        numbers = st.integers(-limit, limit) | st.sampled_from(
            [n for n in (0, -1, 127, 128, -128, -129, -limit, limit) if -limit <= n <= limit]
        )
        return numbers.map(lambda number: Decimal(number).scaleb(-arrow.scale, None) if arrow.precision < 28 else Decimal(number))
    if pa.types.is_integer(arrow):
        limit = 1 << (arrow.bit_width - 1)
        return st.integers(-limit, limit - 1) | st.sampled_from([-64, -65, 63, 64, -limit, limit - 1])
    if pa.types.is_timestamp(arrow):
        return st.datetimes(datetime.datetime(1, 1, 1)).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))
    if pa.types.is_time(arrow):
        return st.integers(0, 86_399_999).map(
            lambda n: (datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=n)).time()
        )
    plain = {
        pa.bool_(): st.booleans(),
        pa.float32(): st.floats(width=32, allow_nan=False),
        pa.float64(): st.floats(allow_nan=False),
        pa.string(): st.text(max_size=70),
        pa.binary(): st.binary(max_size=70),
        pa.date32(): st.dates(),
    }
    return plain[arrow]


def one_by_one(name: str, array: pa.Array, t: DataType) -> list[bytes]:
    """Each cell as the value of a record with one field, by fastavro."""
    schema = plain_times({"type": "record", "name": "record", "fields": [avro_record_field(name, t, "record")]})
    parsed, encoded = fastavro.parse_schema(schema), list[bytes]()
    for cell in retyped(array, stored_type(array.type), pa.Array.cast).to_pylist():
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, {name: avro_cell(cell, t)})
        encoded.append(sink.getvalue())
    return encoded


def avro_cell(cell: Any, t: DataType) -> Any:
    """The cell with maps as fastavro takes them."""
    if cell is None:
        return None
    if isinstance(t, (MapType, MultisetType)):
        pairs = [(avro_cell(k, t.key), avro_cell(v, t.value)) for k, v in cell]
        return dict(pairs) if isinstance(t.key, StringType) else [{"key": k, "value": v} for k, v in pairs]
    if isinstance(t, ArrayType):
        return [avro_cell(item, t.element) for item in cell]
    if isinstance(t, RowType):
        return {field.name: avro_cell(cell[field.name], field.type) for field in t.fields}
    return cell


@given(st.sampled_from(TEXTS), st.booleans(), st.integers(1, 5), st.data())
def test_columns_have_the_bytes_of_their_records(text: str, nullable: bool, block: int, data: st.DataObject) -> None:
    t = parse_sql_type(text).with_nullable(nullable)
    cells = data.draw(st.lists(values(t), min_size=1, max_size=12))
    number = parse_sql_type("BIGINT NOT NULL")
    first = data.draw(st.integers(0, len(cells) - 1))
    array = pa.array(cells, arrow_type(t))[first:]
    numbers = pa.array(range(len(array)), pa.int64())
    expected = [
        b"".join(parts)
        for parts in zip(
            one_by_one("n", numbers, number), one_by_one("c", array, t), one_by_one("m", numbers, number), strict=True
        )
    ]
    found = list(encoded_blocks([(numbers, number), (array, t), (numbers, number)], block))
    assert found == [
        (len(expected[start : start + block]), b"".join(expected[start : start + block]))
        for start in range(0, len(expected), block)
    ]


def test_values_under_nulls_are_not_written() -> None:
    """Arrow may keep anything there: texts, items, and nulls in NOT NULL fields."""
    absent = pa.array([True, False])
    texts = pa.array([b"hidden", b"shown"]).cast(pa.string())
    hidden = pa.Array.from_buffers(pa.string(), 2, [pa.array([False, True]).buffers()[1], *texts.buffers()[1:]])
    items = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array([None, 5, 6]), mask=absent)
    row = pa.StructArray.from_arrays([pa.array([None, 7])], names=["a"], mask=absent)
    columns = [(hidden, "STRING"), (items, "ARRAY<BIGINT NOT NULL>"), (row, "ROW<a BIGINT NOT NULL>")]
    (block,) = encoded_blocks([(array, parse_sql_type(text)) for array, text in columns], 10)
    assert block == (2, b"\0\0\0" + b"\x02\x0ashown" + b"\x02\x02\x0c\0" + b"\x02\x0e")


@pytest.mark.parametrize("text", ["ARRAY<BIGINT NOT NULL>", "ROW<a BIGINT NOT NULL>", "MAP<STRING, BIGINT NOT NULL>"])
def test_a_null_where_the_type_has_none_is_refused(text: str) -> None:
    nulls, t = pa.array([None], pa.int64()), parse_sql_type(text)
    starts = pa.array([0, 1], pa.int32())
    arrays = {
        "ARRAY": lambda: pa.ListArray.from_arrays(starts, nulls),
        "ROW": lambda: pa.StructArray.from_arrays([nulls], names=["a"]),
        "MAP": lambda: pa.MapArray.from_arrays(starts, pa.array(["k"]), nulls),
    }
    with pytest.raises(Refused, match="NOT NULL"):
        list(encoded_blocks([(arrays[t.root](), t)], 10))


def test_a_null_part_of_a_row_is_refused_beside_a_row_that_is_null_itself() -> None:
    row = pa.StructArray.from_arrays([pa.array([None, None], pa.int64())], names=["a"], mask=pa.array([True, False]))
    with pytest.raises(Refused, match="NOT NULL"):
        list(encoded_blocks([(row, parse_sql_type("ROW<a BIGINT NOT NULL>"))], 10))


def test_no_rows_are_no_blocks() -> None:
    assert list(encoded_blocks([(pa.array([], pa.string()), parse_sql_type("STRING"))], 10)) == []
