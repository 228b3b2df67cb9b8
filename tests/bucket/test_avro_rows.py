"""Avro data files: the schema that Java writes, maps in both of Avro's forms, and files that do not hold what they should."""

from __future__ import annotations

import datetime
import io
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.bucket import avro_decoding, avro_rows
from paimon_cli.bucket.avro_decoding import decoded_blocks
from paimon_cli.bucket.avro_rows import AvroRows, avro_batches
from paimon_cli.bucket.decoding import DECODE_ERRORS
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.avro_columns import NotColumnar
from paimon_cli.metadata.avro_reader import data_blocks, record_count
from paimon_cli.metadata.avro_records import record_sizes
from paimon_cli.metadata.data_file_schema import FileLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from tests.goldens import golden_table


@pytest.fixture(autouse=True, params=[PIECES.avro_lanes, 0])
def _avro_lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test decodes small files record by record, and by column as files of many blocks are."""
    monkeypatch.setattr(PIECES, "avro_lanes", request.param)


def schema_of(content: bytes) -> Any:
    """The record; Java 0.9 wrapped it in a union with null."""
    found = json.loads(fastavro.reader(io.BytesIO(content)).metadata["avro.schema"])
    return found[1] if isinstance(found, list) else found


@pytest.mark.parametrize(("writer", "name"), [("java-0.9", "types_avro"), ("java-1.4", "avro")])
def test_our_files_have_the_schema_of_java(writer: str, name: str, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(writer, name, tmp_path)))
    (javas, *_) = sorted((tmp_path / name).glob("**/bucket-*/*.avro"))
    sink = io.BytesIO()
    AvroRows(sink, FileLayout.of(context.schemas.get(0)).fields, "zstandard", 1).close()
    assert schema_of(sink.getvalue()) == schema_of(javas.read_bytes())


def table_schema(**columns: str) -> TableSchema:
    """Without a primary key, so that a file holds these columns alone."""
    fields = tuple(DataField(number, name, parse_sql_type(text)) for number, (name, text) in enumerate(columns.items()))
    return TableSchema(0, fields, len(fields), (), (), {}, None, 0)


def table_of(schema: TableSchema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([(field.name, arrow_type(field.type)) for field in schema.fields]))


def written(schema: TableSchema, *tables: pa.Table, codec: str = "null") -> io.BytesIO:
    sink = io.BytesIO()
    rows = AvroRows(sink, list(schema.fields), codec, 1)
    for table in tables:
        rows.write(table)
    rows.close()
    sink.seek(0)
    return sink


def read(source: io.BytesIO, schema: TableSchema, columns: list[str], batch_rows: int = 1000) -> list[pa.RecordBatch]:
    return list(avro_batches(source, columns, schema, batch_rows))


CELLS: list[tuple[str, list[Any]]] = [
    ("MAP<STRING, INT>", [[("a", 1), ("b", None)], [], None]),
    ("MAP<INT, ARRAY<STRING>>", [[(1, ["x", None]), (2, None)], [], None]),
    ("MAP<STRING, MAP<BIGINT, BOOLEAN>>", [[("a", [(1, True)]), ("b", [])], None]),
    ("MULTISET<STRING>", [[("a", 2)], None]),
    ("MULTISET<DATE>", [[(datetime.date(1969, 12, 31), 2)], None]),
    ("ARRAY<MAP<INT, INT>>", [[[(1, 2)], None, []], None]),
    (
        "ROW<m MAP<INT, STRING>, n ROW<o ARRAY<TIMESTAMP(3)>>>",
        [{"m": [(1, "x")], "n": {"o": [datetime.datetime(2020, 1, 1)]}}, None],
    ),
    ("MAP<ROW<a INT, b STRING>, DECIMAL(5, 2)>", [[({"a": 1, "b": None}, Decimal("-1.25"))]]),
    ("DECIMAL(30, 4)", [Decimal("-12345678901234567890.0001"), Decimal(0), None]),
    ("TIME(3)", [datetime.time(23, 59, 59, 999_000), None]),
    ("BYTES", [b"\x00\xff", b"", None]),
]


@pytest.mark.parametrize(("text", "cells"), CELLS)
def test_cells_come_back(text: str, cells: list[Any]) -> None:
    schema = table_schema(n="INT", c=text)
    table = table_of(schema, [{"n": number, "c": cell} for number, cell in enumerate(cells)])
    (batch,) = read(written(schema, table), schema, ["c"])
    assert (batch.schema.names, batch["c"].type) == (["c"], arrow_type(schema.fields[1].type))
    assert batch["c"].to_pylist() == table["c"].to_pylist()


@pytest.mark.parametrize("text", ["BIGINT", "INT", "DATE", "STRING", "DOUBLE"])
def test_columns_may_be_named_like_the_ends_of_ranges(text: str) -> None:
    """Where the records of a block begin and end is found beside the columns: their numbers once took the place of values."""
    schema = table_schema(begin=text, end=text, n="INT")
    cells = pa.array([100, 200, None, 300], pa.int32()).cast(arrow_type(schema.fields[0].type)).to_pylist()
    given = [{"begin": cell, "end": cells[0], "n": number} for number, cell in enumerate(cells)]
    (batch,) = read(written(schema, table_of(schema, given)), schema, ["begin", "end", "n"])
    assert batch.to_pylist() == given


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
@pytest.mark.parametrize(
    "batch_rows", [1, PIECES.avro_block_rows - 1, PIECES.avro_block_rows, PIECES.avro_block_rows + 1, 10 * PIECES.avro_block_rows]
)
def test_batches_go_over_the_blocks_of_a_file(codec: str, batch_rows: int) -> None:
    if batch_rows == 1 and codec != "null":
        batch_rows = 700
    schema, count = table_schema(n="INT", s="STRING"), 2 * PIECES.avro_block_rows + 3 if batch_rows > 1 else 3
    table = table_of(schema, [{"n": number, "s": str(number)} for number in range(count)])
    source = written(schema, table, table.slice(0, 5), codec=codec)
    blocks = [count for count, _ in data_blocks(source)[1]]
    assert blocks == [*([PIECES.avro_block_rows, PIECES.avro_block_rows] if count > 3 else []), 3, min(count, 5)]
    source.seek(0)
    assert record_count(source) == sum(blocks)
    source.seek(0)
    found = read(source, schema, ["s", "n"], batch_rows)
    total = count + min(count, 5)
    assert [batch.num_rows for batch in found] == [batch_rows] * (total // batch_rows) + [total % batch_rows] * (
        total % batch_rows > 0
    )
    assert pa.Table.from_batches(found).select(["n", "s"]).to_pylist() == [*table.to_pylist(), *table.slice(0, 5).to_pylist()]


def test_a_file_without_rows_has_no_batches() -> None:
    schema = table_schema(n="INT")
    assert read(written(schema), schema, ["n"]) == []
    assert read(written(schema, table_of(schema, [])), schema, ["n"]) == []


def test_a_file_without_a_column_of_its_schema_is_damaged() -> None:
    schema, source = (
        table_schema(n="INT", s="STRING"),
        written(table_schema(n="INT"), table_of(table_schema(n="INT"), [{"n": 1}])),
    )
    with pytest.raises(OSError, match="it has no column s"):
        read(source, schema, ["n", "s"])
    source.seek(0)
    assert [batch.to_pylist() for batch in read(source, schema, ["n"])] == [[{"n": 1}]]


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"no Avro at all", bytes(100)])
def test_bytes_that_are_not_an_avro_file_are_reported(content: bytes) -> None:
    with pytest.raises(OSError, match=r"it is not a readable Avro file: \S"):
        read(io.BytesIO(content), table_schema(n="INT"), ["n"])


def test_a_file_that_is_cut_off_gives_its_whole_blocks_first() -> None:
    schema = table_schema(n="INT")
    table = table_of(schema, [{"n": number} for number in range(PIECES.avro_block_rows + 10)])
    content = written(schema, table).getvalue()
    batches = avro_batches(io.BytesIO(content[:-20]), ["n"], schema, PIECES.avro_block_rows)
    assert next(batches).num_rows == PIECES.avro_block_rows
    with pytest.raises(OSError, match="it is not a readable Avro file"):
        next(batches)


ROWS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1) | st.none(),
        "l": st.integers(-(2**54), 2**54) | st.integers(-(2**63), 2**63 - 1),
        "s": st.text(max_size=70) | st.none(),
        "b": st.binary(max_size=70) | st.none(),
        "m": st.decimals(-(10**9), 10**9, places=2).map(lambda number: number.quantize(Decimal("0.01"))) | st.none(),
        "t": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)) | st.none(),
        "d": st.dates() | st.none(),
        "f": st.floats(width=32, allow_nan=False) | st.none(),
        "g": st.floats(allow_nan=False),
        "o": st.booleans() | st.none(),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=30), st.integers(1, 7), st.data())
def test_by_column_and_record_by_record_are_the_same(rows: list[dict[str, Any]], block: int, data: st.DataObject) -> None:
    """Also of changed bytes: both find the same rows, or both call the file damaged."""
    types = {
        "i": "INT",
        "l": "BIGINT NOT NULL",
        "s": "STRING",
        "b": "BYTES",
        "m": "DECIMAL(12, 2)",
        "t": "TIMESTAMP(6)",
        "d": "DATE",
        "f": "FLOAT",
        "g": "DOUBLE NOT NULL",
        "o": "BOOLEAN",
    }
    schema = table_schema(**types)
    with mock.patch.object(PIECES, "avro_block_rows", block):
        content = bytearray(written(schema, table_of(schema, rows)).getvalue())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(len(content) // 2, len(content) - 1))] = data.draw(st.integers(0, 255))
    columns = data.draw(st.permutations(list(types)))
    found = list[object]()
    for lanes, sizes in ((0, record_sizes), (0, by_lanes), (10**9, by_lanes)):
        with mock.patch.object(PIECES, "avro_lanes", lanes), mock.patch.object(avro_decoding, "record_sizes", sizes):
            try:
                found.append(read(io.BytesIO(content), schema, columns, 1000))
            except DECODE_ERRORS as error:
                found.append(type(error))
    assert found[0] == found[1] == found[2]


def by_lanes(*arguments: object) -> NoReturn:
    """In the place of `record_sizes`: it does not find where the records begin."""
    raise NotColumnar


def test_the_records_of_one_large_block_are_decoded_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "avro_lanes", 10**9)
    schema = table_schema(n="INT", s="STRING", g="DOUBLE")
    rows = [{"n": number, "s": str(number), "g": number / 2} for number in range(1_500)]
    source = written(schema, table_of(schema, rows))
    monkeypatch.setattr(avro_rows, "decoded_records", None)
    (batch,) = read(source, schema, ["s", "g"], 2_000)
    assert batch.to_pylist() == [{"s": row["s"], "g": row["g"]} for row in rows]


@pytest.mark.parametrize("content", [b"\2\3\2", b"\2\2\2\2", b"\x80", b"\2" * 5, b""])
def test_bytes_that_are_no_records_have_no_sizes(content: bytes) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "n", "type": ["null", "int"]}, {"name": "s", "type": "string"}]}
    with pytest.raises(NotColumnar):
        record_sizes(record, content, np.array([2]), np.array([len(content)]))
    assert record_sizes(record, b"\0\0\2\2\2a", np.array([1, 0, 1]), np.array([2, 0, 4])).tolist() == [2, 4]


@pytest.mark.parametrize("fields", [[], ["null"], [{"type": "array", "items": "int"}], ["string"] * 1_001])
def test_schemas_without_an_expression(fields: list[Any]) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": f"c{number}", "type": t} for number, t in enumerate(fields)]}
    with pytest.raises(NotColumnar):
        record_sizes(record, b"\0" * len(fields), np.array([1]), np.array([len(fields)]))


def test_files_of_many_blocks_are_decoded_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "avro_block_rows", 10)
    schema = table_schema(n="INT", s="STRING")
    source = written(schema, table_of(schema, [{"n": number, "s": str(number)} for number in range(200)]))
    monkeypatch.setattr(avro_rows, "decoded_records", None)
    (batch,) = read(source, schema, ["s", "n"])
    assert batch["n"].to_pylist() == list(range(200))


def test_a_first_column_of_long_records_has_its_own_values() -> None:
    """Records of more than 4096 bytes are decoded where they are, and the cursors begin at what is read first."""
    schema = table_schema(g="DOUBLE NOT NULL", s="STRING")
    rows = [{"g": float(number), "s": "x" * 5_000} for number in range(60)]
    with mock.patch.object(PIECES, "avro_block_rows", 3), mock.patch.object(avro_rows, "decoded_records", None):
        (batch,) = read(written(schema, table_of(schema, rows)), schema, ["g"])
    assert batch["g"].to_pylist() == [row["g"] for row in rows]


@pytest.mark.parametrize("cut", [0, 20])
def test_long_records_are_decoded_side_by_side_from_many_blocks_however_small_other_portions_are(
    cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "avro_block_rows", 3)
    monkeypatch.setattr(PIECES, "avro_portion_bytes", 1)
    monkeypatch.setattr(avro_rows, "decoded_records", None)
    schema = table_schema(g="DOUBLE NOT NULL", s="STRING")
    rows = [{"g": float(number), "s": "x" * (5_000 if number > 8 else 5)} for number in range(60)]
    content = written(schema, table_of(schema, rows), codec="null").getvalue()
    batches = avro_batches(io.BytesIO(content[: len(content) - cut]), ["g"], schema, 1_000)
    sizes = [3, 3, 3, 51 - 3 * (cut > 0)]
    assert [[row["g"] for row in next(batches).to_pylist()] for _ in sizes] == [
        [row["g"] for row in rows[start : start + size]] for start, size in zip([0, 3, 6, 9], sizes, strict=True)
    ]
    if cut:
        with pytest.raises(OSError, match="it is not a readable Avro file"):
            next(batches)
    assert next(batches, None) is None


def test_bytes_that_are_no_records_are_tried_once() -> None:
    """Not at each of them, which took a minute for these."""
    types = ["int"] * 900 + [["null"]]
    record = {"type": "record", "name": "r", "fields": [{"name": f"c{number}", "type": t} for number, t in enumerate(types)]}
    content, began = (b"\x80" * 7 + b"\x01") * 80_000, time.process_time()
    with pytest.raises(NotColumnar):
        record_sizes(record, content, np.array([1]), np.array([len(content)]))
    assert time.process_time() - began < 20


def test_a_decimal_of_too_many_digits_is_never_decoded() -> None:
    """Not even the least number of 64 bits, whose absolute value is negative."""
    record = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18}}],
    }
    least = bytes([16]) + (2**63).to_bytes(8, "big")
    with pytest.raises(NotColumnar):
        decoded_blocks(record, [(1, least)] * 6, {"m": pa.decimal128(18, 0)})
    (found,) = decoded_blocks(record, [(1, bytes([2, 0xFF]))] * 6, {"m": pa.decimal128(18, 0)})
    assert found.to_pylist() == [Decimal(-1)] * 6
