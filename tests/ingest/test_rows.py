"""Typed input (Parquet, ORC): columns by name, lossless casts, and errors that name the first bad row."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import re
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import parse_type, type_to_sql
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.inference import columns_of_file
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import SourceSplit, plan_sources
from paimon_cli.metadata.data_file_schema import merge_schema
from tests.ingest.input_files import conform, one_column, read_all, schema_of

SPLIT = SourceSplit("in.parquet", "parquet", 0, None, 100, 1000, "in.parquet")


def conformed(type_text: Any, values: pa.Array) -> pa.Array:
    batch = pa.record_batch({"k": pa.array(range(len(values)), pa.int32()), "v": values})
    result = conform(IncomingRows(one_column(type_text)), batch, SPLIT, 10)
    assert result.column("v").type == arrow_type(parse_type(type_text))
    result.validate(full=True)
    return result.column("v")


def test_rows_come_in_the_merge_schema_with_order_and_kind() -> None:
    schema = schema_of({"k": "INT NOT NULL", "v": "STRING"})
    batch = pa.record_batch({"v": ["a", "b"], "k": pa.array([1, 2], pa.int64())})
    result = conform(IncomingRows(schema, kind=3), batch, SPLIT, 5)
    assert result.schema == merge_schema(schema)
    assert result.to_pydict() == {"_SEQUENCE_NUMBER": [1005, 1006], "_VALUE_KIND": [3, 3], "k": [1, 2], "v": ["a", "b"]}


NS = 1_700_000_000_123_456_000
ACCEPTED = [
    ("TINYINT", pa.array([-128, 127, None], pa.int64())),
    ("BIGINT", pa.array([2**63 - 1], pa.uint64())),
    ("INT", pa.array([7.0, None, -3.0])),
    ("BIGINT", pa.array([2.0**53 - 1, 1 - 2.0**53])),
    ("DOUBLE", pa.array([1.5, None], pa.float32())),
    ("DOUBLE", pa.array([2**53, None])),
    ("FLOAT", pa.array([2**24, -1], pa.int32())),
    ("FLOAT", pa.array([1.5, float("nan"), float("-inf")], pa.float64())),
    ("DOUBLE", pa.array([Decimal("0.5"), None, Decimal("-2.25")])),
    ("FLOAT", pa.array([Decimal("0.5"), Decimal("16777.5")])),
    ("DECIMAL(5, 2)", pa.array([999, -999], pa.int64())),
    ("DECIMAL(38, 0)", pa.array([2**64 - 1], pa.uint64())),
    ("DECIMAL(5, 2)", pa.array([Decimal("1.5000")], pa.decimal128(30, 4))),
    ("DECIMAL(5, 2)", pa.array([Decimal("-999.99")], pa.decimal256(50, 4))),
    ("STRING", pa.array(["a", None], pa.large_string())),
    ("STRING", pa.array(["a", None], pa.string_view())),
    ("STRING", pa.array(["a", "b", None, "a"]).dictionary_encode()),
    ("STRING", pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint8()), pa.array(["a", None], pa.string_view()))),
    ("VARCHAR(3)", pa.array(["日本語", "", None])),
    ("CHAR(3)", pa.array(["a"])),
    ("BYTES", pa.array([b"ab"], pa.binary(2))),
    ("BINARY(3)", pa.array([b"a"], pa.large_binary())),
    ("DATE", pa.array([dt.date(2024, 2, 29)], pa.date64())),
    *(("DATE", pa.array([dt.datetime(1969, 2, 28), None], pa.timestamp(unit))) for unit in ("s", "ms", "us", "ns")),
    ("TIME(3)", pa.array([dt.time(1, 2, 3, 4000)], pa.time64("us"))),
    ("TIMESTAMP(3)", pa.array([1_700_000_000_123_000_000], pa.timestamp("ns"))),
    ("TIMESTAMP(6)", pa.array([NS, None], pa.timestamp("ns"))),
    ("TIMESTAMP(0)", pa.array([5], pa.timestamp("s"))),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([NS], pa.timestamp("ns", "Asia/Kolkata"))),
    ("INT", pa.nulls(2)),
    ("BOOLEAN", pa.array([True, None, False])),
]


@pytest.mark.parametrize(("type_text", "values"), ACCEPTED, ids=lambda v: v if isinstance(v, str) else str(v.type))
def test_lossless_casts(type_text: str, values: pa.Array) -> None:
    plain = values.dictionary.cast(pa.string()).take(values.indices) if pa.types.is_dictionary(values.type) else values
    expected = plain.cast(pa.decimal256(60, 10)) if type_text.startswith("DECIMAL") else plain
    result = conformed(type_text, values)
    if type_text == "FLOAT":
        assert str(result.cast(pa.float64())) == str(expected)
    elif type_text.startswith("DECIMAL") and not pa.types.is_null(values.type):
        assert result.cast(pa.decimal256(60, 10)).equals(expected)
    else:
        assert result.equals(expected.cast(result.type))


REFUSED_VALUES = [
    ("TINYINT", pa.array([1, 128], pa.int64()), "128", "outside the range"),
    ("BIGINT", pa.array([1, 2**63], pa.uint64()), str(2**63), "outside the range"),
    ("BIGINT", pa.array([1.0, 1.5]), "1.5", "not a whole number in the range of BIGINT"),
    ("INT", pa.array([1.0, 1e10]), "10000000000", "not a whole number in the range of INT"),
    ("INT", pa.array([1.0, float("nan")]), "nan", "not a whole number"),
    ("BIGINT", pa.array([2.0**53 - 1, 2.0**53]), "9007199254740992", "it may have been rounded"),
    ("BIGINT", pa.array([None, -(2.0**60)]), "-1.152921504606847e+18", "exact below 2.53"),
    ("BIGINT", pa.array([2.0**24 - 1, 2.0**24], pa.float32()), "16777216", "exact below 2.24"),
    ("DOUBLE", pa.array([1, 2**53 + 1]), "9007199254740993", "not exactly a DOUBLE"),
    ("FLOAT", pa.array([0.5, 0.1]), "0.1", "not exactly a FLOAT"),
    ("FLOAT", pa.array([0.5, 1e300]), "1e+300", "not exactly a FLOAT"),
    ("DOUBLE", pa.array([Decimal("0.5"), Decimal("9007199254740.993")]), "9007199254740.993", "a DOUBLE holds only 15 digits"),
    ("FLOAT", pa.array([Decimal("0.5"), Decimal("-12.34567")]), "-12.34567", "a FLOAT holds only 6 digits"),
    ("FLOAT", pa.array([Decimal(1), Decimal("1E+60")], pa.decimal256(70, 2)), "1" + "0" * 40, "outside the range of FLOAT"),
    ("FLOAT", pa.array([Decimal(0), Decimal("-1E-60")], pa.decimal256(70, 60)), "-1E-60", "outside the range of FLOAT"),
    ("DECIMAL(5, 2)", pa.array([1, 1000], pa.int32()), "1000", "does not fit DECIMAL"),
    ("DECIMAL(5, 2)", pa.array([Decimal("1.10"), Decimal("1.001")]), "1.001", "does not fit DECIMAL"),
    ("VARCHAR(3)", pa.array(["日本語", "abcd"]), "'abcd'", "longer than 3 characters"),
    ("CHAR(1)", pa.array(["", "ab"]), "'ab'", "longer than 1 characters"),
    ("VARBINARY(1)", pa.array([b"a", b"ab"]), "6162", "longer than 1 bytes"),
    ("TIME(0)", pa.array([dt.time(1), dt.time(1, 2, 3, 4000)]), "01:02:03.004", "more than 0 digits"),
    ("TIME(3)", pa.array([dt.time(1), dt.time(1, 2, 3, 4)]), "01:02:03.000004", "more than 3 digits"),
    ("TIMESTAMP(3)", pa.array([0, NS], pa.timestamp("ns")), "2023-11-14 22:13:20.123456", "of 3 digits"),
    ("TIMESTAMP(1)", pa.array([0, 110], pa.timestamp("ms")), "1970-01-01 00:00:00.11", "of 1 digits"),
    ("TIMESTAMP(6)", pa.array([0, 1], pa.timestamp("ns")), "1970-01-01", "of 6 digits"),
    ("DATE", pa.array([0, 1], pa.int64()).view(pa.date64()), "1970", "whole day"),
    ("DATE", pa.array([0, -1], pa.timestamp("ns")), "1969-12-31 23:59:59.999999999", "whole day"),
    ("STRING", pa.array([b"ok", b"\xff"]).view(pa.string()), "", "UTF-8"),
]


@pytest.mark.parametrize(("type_text", "values", "shown", "why"), REFUSED_VALUES)
def test_a_value_that_would_lose_something(type_text: str, values: pa.Array, shown: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        conformed(type_text, values)
    error = caught.value
    assert error.what.startswith("in.parquet: row 112, column 'v' cannot take ") and shown in error.what
    assert error.details["row"] == 112 and error.details["column"] == "v" and error.details["source"] == "in.parquet"


@pytest.mark.parametrize(
    ("type_text", "values"),
    [
        ("INT", pa.array(["1"])),
        ("INT", pa.array([Decimal("1")])),
        ("STRING", pa.array([1])),
        ("STRING", pa.array([b"a"])),
        ("BYTES", pa.array(["a"])),
        ("BOOLEAN", pa.array([1])),
        ("DATE", pa.array([0], pa.timestamp("s", "UTC"))),
        ("TIMESTAMP(3)", pa.array([0], pa.date32())),
        ("TIMESTAMP(3)", pa.array([0], pa.timestamp("ms", "UTC"))),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.array([0], pa.timestamp("ms"))),
        ({"type": "ARRAY", "element": "INT"}, pa.array([["1"]])),
        ({"type": "ARRAY", "element": "INT"}, pa.array([1])),
        ({"type": "MAP", "key": "STRING", "value": "INT"}, pa.array([{"a": 1}])),
        ({"type": "ROW", "fields": [{"id": 5, "name": "a", "type": "INT"}]}, pa.array([{"b": 1}])),
    ],
)
def test_another_kind_of_type_is_refused(type_text: Any, values: pa.Array) -> None:
    with pytest.raises(BadInput, match=r"in\.parquet: column 'v' has type .*, the table's is"):
        conformed(type_text, values)


ARRAY_OF_TINYINT = {"type": "ARRAY", "element": "TINYINT NOT NULL"}
MAP = {"type": "MAP", "key": "STRING", "value": "DECIMAL(4, 2)"}
ROW = {
    "type": "ROW",
    "fields": [
        {"id": 5, "name": "a", "type": "INT NOT NULL"},
        {"id": 6, "name": "l", "type": {"type": "ARRAY", "element": "VARCHAR(2)"}},
    ],
}


def test_nested_values_are_cast_at_every_depth() -> None:
    lists = pa.array([[9], None, [1, 2], [], [3]], pa.large_list(pa.int64())).slice(1)
    assert conformed(ARRAY_OF_TINYINT, lists).to_pylist() == [None, [1, 2], [], [3]]
    maps = pa.array(
        [[("z", Decimal("9"))], [("a", Decimal("1.5")), ("b", None)], None], pa.map_(pa.string(), pa.decimal128(30, 3))
    )
    assert conformed(MAP, maps.slice(1)).to_pylist() == [[("a", Decimal("1.50")), ("b", None)], None]
    rows = pa.array(
        [{"l": ["xx"], "a": 1}, None, {"l": None, "a": 2}], pa.struct([("l", pa.list_(pa.string())), ("a", pa.int64())])
    )
    assert conformed(ROW, rows).to_pylist() == [{"a": 1, "l": ["xx"]}, None, {"a": 2, "l": None}]
    bags = pa.array([[("a", 2)]], pa.map_(pa.string(), pa.int64()))
    assert conformed({"type": "MULTISET", "element": "STRING"}, bags).to_pylist() == [[("a", 2)]]


@pytest.mark.parametrize(
    ("type_text", "values", "why"),
    [
        (ARRAY_OF_TINYINT, pa.array([None, [1, 200]]), "inside the value: it is outside the range"),
        (ARRAY_OF_TINYINT, pa.array([[], [1, None]], pa.list_(pa.int8())), "a NOT NULL part"),
        (MAP, pa.array([[], [("a", Decimal("100"))]], pa.map_(pa.string(), pa.decimal128(9, 2))), "does not fit"),
        (
            ROW,
            pa.array([None, {"a": None, "l": None}], pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))])),
            "a NOT NULL part",
        ),
        (ROW, pa.array([{"a": 1, "l": ["xx"]}, {"a": 1, "l": ["xx", "xyz"]}]), "longer than 2"),
    ],
)
def test_a_bad_part_of_a_nested_value_is_reported_with_its_row(type_text: Any, values: pa.Array, why: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        conformed(type_text, values)
    assert caught.value.details["row"] == 112


def test_the_first_bad_row_of_all_columns_is_reported() -> None:
    schema = schema_of({"k": "INT NOT NULL", "a": "TINYINT", "b": "VARCHAR(1)"})
    batch = pa.record_batch({"k": [0, 1, 2, None], "a": [0, 0, 200, 0], "b": ["", "xx", "xx", ""]})
    with pytest.raises(BadInput, match="row 2, column 'b' cannot take 'xx'"):
        conform(IncomingRows(schema), batch, SourceSplit("x", "parquet", 0, None, 0, 0), 0)


def test_null_in_a_not_null_column() -> None:
    schema = schema_of({"k": "INT NOT NULL", "v": "STRING NOT NULL"})
    for column in ("k", "v"):
        batch = pa.record_batch({"k": [1, None if column == "k" else 2], "v": ["a", None if column == "v" else "b"]})
        with pytest.raises(BadInput, match=f"row 112, column '{column}' cannot take null") as caught:
            conform(IncomingRows(schema), batch, SPLIT, 10)
        assert "NOT NULL" in caught.value.why


def test_columns_must_be_those_of_the_table() -> None:
    incoming = IncomingRows(schema_of({"k": "INT NOT NULL", "name": "STRING"}))
    with pytest.raises(BadInput, match="no column 'Name'") as caught:
        conform(incoming, pa.record_batch({"k": [1], "Name": ["a"]}), SPLIT, 0)
    assert caught.value.hint == "rename it to 'name' in the input"
    with pytest.raises(BadInput, match="column 'k' is missing") as caught:
        conform(incoming, pa.record_batch({"K": [1], "name": ["a"]}), SPLIT, 0)
    assert caught.value.hint == "rename column 'K' of the input to 'k'"
    with pytest.raises(BadInput, match="column 'k' appears twice"):
        conform(
            incoming, pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1]), pa.array(["a"])], ["k", "k", "name"]), SPLIT, 0
        )
    with pytest.raises(BadInput, match="no column 'nam'") as caught:
        conform(incoming, pa.record_batch({"k": [1], "name": ["a"], "nam": [1]}), SPLIT, 0)
    assert caught.value.hint == "leave it out of the input"
    named = replace(incoming, table="./t")
    with pytest.raises(BadInput, match="no column 'a b'") as caught:
        conform(named, pa.record_batch({"k": [1], "name": ["a"], "a b": [1]}), SPLIT, 0)
    assert caught.value.hint.endswith("such as: paimon-cli alter ./t add-column '`a b` STRING'")


def test_deletes_need_only_keys() -> None:
    row = {"type": "ROW NOT NULL", "fields": [{"id": 9, "name": "x", "type": "INT NOT NULL"}]}
    types = {"i": "INT NOT NULL", "s": "STRING NOT NULL", "d": "DECIMAL(3, 1) NOT NULL", "t": "TIMESTAMP(3) NOT NULL", "r": row}
    schema = schema_of({"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING", **types}, ("dt", "k"), ("dt",))
    deletes = IncomingRows(schema, kind=3)
    result = conform(deletes, pa.record_batch({"k": [1, 2], "dt": ["a", "b"]}), SPLIT, 0)
    result.validate(full=True)
    assert result.column("v").null_count == 2
    assert all(result.column(name).null_count == 0 for name in types)
    partly = conform(deletes, pa.record_batch({"k": [1, 2], "dt": ["a", "b"], "s": [None, "x"]}), SPLIT, 0)
    assert partly.column("s").to_pylist() == ["", "x"]
    with pytest.raises(BadInput, match="column 'dt' is missing"):
        conform(deletes, pa.record_batch({"k": [1]}), SPLIT, 0)
    with pytest.raises(BadInput, match="column 'i' is missing"):
        conform(IncomingRows(schema), pa.record_batch({"k": [1], "dt": ["a"]}), SPLIT, 0)


def test_kinds_come_from_a_column_beside_the_table() -> None:
    incoming = IncomingRows(one_column("STRING"), kind_column="op")
    batch = pa.record_batch({"k": [1, 2, 3, 4], "v": ["a"] * 4, "op": pa.array(["+I", "-U", "+U", "-D"]).dictionary_encode()})
    result = conform(incoming, batch, SPLIT, 0)
    assert result.column("_VALUE_KIND").to_pylist() == [0, 1, 2, 3] and "op" not in result.schema.names
    for bad in ("D", None):
        with pytest.raises(BadInput, match="row 102, column 'op' cannot take") as caught:
            conform(incoming, pa.record_batch({"k": [1, 2], "v": ["a", "b"], "op": ["+I", bad]}), SPLIT, 0)
        assert "+I, -U, +U, -D" in caught.value.why
    with pytest.raises(BadInput, match="column 'op' is missing"):
        conform(incoming, pa.record_batch({"k": [1], "v": ["a"]}), SPLIT, 0)
    with pytest.raises(UsageError, match="'v' is a column of the table"):
        IncomingRows(one_column("STRING"), kind_column="v")


def test_kinds_come_from_the_tables_own_column() -> None:
    schema = schema_of({"k": "INT NOT NULL", "rk": "STRING"}, options={"rowkind.field": "rk"})
    batch = pa.record_batch({"k": [1, 2], "rk": ["+U", "-D"]})
    assert conform(IncomingRows(schema), batch, SPLIT, 0).to_pydict()["_VALUE_KIND"] == [2, 3]
    assert conform(IncomingRows(schema, kind=3), batch, SPLIT, 0).to_pydict()["_VALUE_KIND"] == [3, 3]
    with pytest.raises(UsageError, match="from the table's column 'rk' and from 'op'"):
        IncomingRows(schema, kind_column="op")
    with pytest.raises(BadInput, match="row 101, column 'rk' cannot take null"):
        conform(IncomingRows(schema), pa.record_batch({"k": [1], "rk": pa.nulls(1)}), SPLIT, 0)


def test_tables_that_refuse_row_kinds() -> None:
    with pytest.raises(UsageError, match="no deletes"):
        IncomingRows(schema_of({"a": "INT"}, ()), kind=3)


def test_orc_and_parquet_files_by_tasks(tmp_path: Path) -> None:
    table = pa.table({"v": ["a", None] * 50_000, "k": pa.array(range(100_000), pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet")
    orc.write_table(table, tmp_path / "b.orc", stripe_size=100_000)
    incoming = pickle.loads(pickle.dumps(IncomingRows(one_column("STRING"))))
    rows = read_all(incoming, tmp_path / "a.parquet", tmp_path / "b.orc")
    assert rows["_SEQUENCE_NUMBER"].to_pylist() == list(range(200_000))
    assert rows["v"].to_pylist() == ["a", None] * 100_000
    assert max(b.num_rows for b in rows.to_batches()) <= 65536


ARROW_TABLE = pa.table({"v": pa.array(["a", None] * 50_000).dictionary_encode(), "k": pa.array(range(100_000), pa.int64())})


def write_arrow(path: Path, table: pa.Table = ARROW_TABLE, compression: str | None = None) -> Path:
    """Write an Arrow stream if the file is named so, otherwise an Arrow file, which is also what Feather is."""
    maker = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with maker(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=70_000)
    return path


@pytest.mark.parametrize("name", ["a.arrow", "a.feather", "a.arrows", "A.ARROW"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_files_and_streams(tmp_path: Path, name: str, compression: str | None) -> None:
    path = write_arrow(tmp_path / name, compression=compression)
    rows = read_all(IncomingRows(one_column("STRING")), path, path)
    assert rows["_SEQUENCE_NUMBER"].to_pylist() == list(range(200_000))
    assert rows["v"].to_pylist() == ["a", None] * 100_000
    assert max(b.num_rows for b in rows.to_batches()) <= 65536
    assert [f"{f.name} {type_to_sql(f.type)}" for f in columns_of_file(str(path)).fields] == ["v STRING", "k BIGINT"]


@pytest.mark.parametrize("type_text", [{"type": "ARRAY", "element": "TIMESTAMP(9)"}, "TIMESTAMP(9)"])
@pytest.mark.parametrize("form", ["json", "csv"])
def test_nanoseconds_far_from_1970(tmp_path: Path, type_text: Any, form: str) -> None:
    cell = "1600-01-01T00:00:00.123456789"
    value = cell if isinstance(type_text, str) else [cell]
    path = tmp_path / f"a.{form}"
    quoted = json.dumps(value).replace(chr(34), chr(34) * 2) if value != cell else cell
    path.write_text(json.dumps({"k": 1, "v": value}) if form == "json" else f'k,v\n1,"{quoted}"\n')
    with pytest.raises(BadInput, match=r"with more than 6 digits.* must lie between 1678 and 2262"):
        read_all(IncomingRows(one_column(type_text)), path)


def test_an_empty_arrow_file_still_has_columns(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "a.arrow", pa.table({"k": pa.array([], pa.int32()), "w": pa.array([], pa.string())}))
    with pytest.raises(BadInput, match="no column 'w'"):
        read_all(IncomingRows(one_column("STRING")), path)


@pytest.mark.parametrize("name", ["a.arrow", "a.arrows"])
def test_a_damaged_arrow_file(tmp_path: Path, name: str) -> None:
    """Offsets that lead out of the text, a cut file, and no Arrow at all."""
    strings = pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["abcdefgh", "ijkl"]})
    path = write_arrow(tmp_path / name, strings)
    sound = path.read_bytes()
    offsets = struct.pack("<3i", 0, 8, 12)
    assert sound.count(offsets) == 1
    for data in (sound.replace(offsets, struct.pack("<3i", 0, 1 << 20, 12)), sound[: len(sound) // 2], b"k,v\n1,x\n", b""):
        path.write_bytes(data)
        with pytest.raises(BadInput, match=re.escape(name)):
            read_all(IncomingRows(one_column("STRING")), path)


def test_an_empty_parquet_file_still_has_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": pa.array([], pa.int32()), "w": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="no column 'w'"):
        read_all(IncomingRows(one_column("STRING")), tmp_path / "a.parquet")


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(1000), "v": ["x" * 20] * 1000}), path, use_dictionary=False, compression="zstd")
    (split,) = plan_sources([str(path)], None)
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    with pytest.raises(BadInput, match="cannot read"):
        list(IncomingRows(one_column("STRING")).read(split, Tally()))
