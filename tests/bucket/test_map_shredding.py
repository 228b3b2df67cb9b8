"""MAP columns written shredded: whatever the rows are, they come back, also through compactions and from many files."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli import Table
from paimon_cli.bucket import map_shredding
from paimon_cli.bucket.map_shredding import ShreddedColumns, shreds_maps
from paimon_cli.bucket.shredded_maps import METADATA_PREFIX, with_whole_maps
from paimon_cli.datatypes.arrow_types import identified_schema
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES

OPTIONS = {"fields.m.map.storage-layout": "shared-shredding", "fields.m.map.shared-shredding.max-columns": "3"}
FIELD = DataField(1, "m", parse_sql_type("MAP<STRING NOT NULL, INT>"))
TYPE = pa.map_(pa.string(), pa.int32())
ROWS = st.lists(st.none() | st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9), max_size=6), max_size=12)


def columns_of(sample: list[Any]) -> ShreddedColumns:
    schema = identified_schema([FIELD])
    batch = pa.RecordBatch.from_arrays([cells(sample).cast(schema.field(0).type)], schema=schema)
    return ShreddedColumns([FIELD], schema, TableOptions(OPTIONS), batch)


def cells(maps: list[Any]) -> pa.Array:
    return pa.array([None if row is None else list(row.items()) for row in maps], TYPE)


def read_back(columns: ShreddedColumns, tables: list[pa.Table]) -> list[Any]:
    """As a reader finds them in a file: with the metadata of its end."""
    text = columns.metadata()["ARROW:schema"]
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    found: list[Any] = []
    for table in tables:
        for batch in table.to_batches():
            whole = with_whole_maps(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            found += [None if row is None else dict(row) for row in whole.column(0).to_pylist()]
    return found


@given(st.lists(ROWS, min_size=1, max_size=3), st.integers(1, 40))
def test_rows_come_back(groups: list[list[Any]], piece: int) -> None:
    before, PIECES.shredded_cells = PIECES.shredded_cells, piece
    try:
        columns = columns_of(groups[0])
        schema = identified_schema([FIELD])
        tables = [columns.stored(pa.table([cells(rows).cast(schema.field(0).type)], schema=schema)) for rows in groups]
    finally:
        PIECES.shredded_cells = before
    assert all(table.schema.field(0).type == columns.schema.field(0).type for table in tables)
    assert read_back(columns, tables) == [row for rows in groups for row in rows]


def test_frequent_keys_have_a_column_of_their_own() -> None:
    maps = [{"rare": 1, "often": number, "usual": number} for number in range(2)] + [{"often": 5, "usual": 6}] * 5
    columns = columns_of(maps)
    schema = identified_schema([FIELD])
    stored = columns.stored(pa.table([cells(maps).cast(schema.field(0).type)], schema=schema)).column(0).combine_chunks()
    assert stored.field("__col_0").to_pylist() == [0, 1, 5, 5, 5, 5, 5]
    assert stored.field("__col_2").to_pylist() == [1, 1, None, None, None, None, None]
    assert stored.field("__overflow").null_count == 7


def test_a_file_knows_the_keys_and_the_widths_of_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not those of other rows of the same batch, which may lie in another partition."""
    monkeypatch.setattr(PIECES, "shredded_cells", 3)
    schema, maps = identified_schema([FIELD]), [{"secret": 1}, {"a": 1, "b": 2}, {"c": 3, "d": 4, "e": 5}, {"a": 6}, {"other": 7}]
    batch = pa.RecordBatch.from_arrays([cells(maps).cast(schema.field(0).type)], schema=schema).slice(1, 3)
    columns = ShreddedColumns([FIELD], schema, TableOptions(OPTIONS), batch)
    tables = [columns.stored(pa.Table.from_batches([batch]))]
    assert read_back(columns, tables) == maps[1:4]
    stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(columns.metadata()["ARROW:schema"]))).field(0).metadata or {}
    size = int(stored[METADATA_PREFIX + b"field-dict-original-size"])
    names = pa.decompress(stored[METADATA_PREFIX + b"field-dict"].decode().encode("latin-1"), size, codec="zstd", asbytes=True)
    assert sorted(json.loads(names)) == ["a", "b", "c", "d", "e"]
    assert stored[METADATA_PREFIX + b"max-row-width"] == b"3"


KINDS: dict[str, dict[str, Any]] = {
    "append": {"bucket": -1},
    "keys": {"primary_key": ["k"], "bucket": 1},
    "partial-update": {"primary_key": ["k"], "bucket": 1, "options": {"merge-engine": "partial-update"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables(tmp_path: Path, kind: str) -> None:
    settings = KINDS[kind] | {"options": OPTIONS | KINDS[kind].get("options", {})}
    table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "m MAP<STRING NOT NULL, INT>"], **settings)
    chance, expected = random.Random(3), dict[int, Any]()
    for first in (0, 40, 80):
        keys = range(first, first + 40)
        maps = [None if key % 7 == 0 else {f"key{n}": key for n in chance.sample(range(9), key % 6)} for key in keys]
        expected |= dict(zip(keys, maps, strict=True))
        table.write(pa.table({"k": pa.array(keys, pa.int32()), "m": cells(maps)}), compact="none")
    for step in ("written", "compacted"):
        found = {row["k"]: None if row["m"] is None else dict(row["m"]) for row in table.scan().to_arrow().to_pylist()}
        assert found == expected, step
        table.compact("full")
    assert not table.verify("full").errors
    newest = max(tmp_path.glob("t/bucket-0/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert pa.types.is_struct(pq.read_schema(newest).field("m").type)
    if kind != "partial-update":
        table.delete("k = 1")
        assert len(table.scan().to_arrow()) == len(expected) - 1


def test_too_many_keys_begin_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "shredded_keys_bytes", 2_000)
    monkeypatch.setattr(PIECES, "row_group_bytes", 1_000)
    table = Table.create(
        str(tmp_path / "t"), columns=["k INT NOT NULL", "m MAP<STRING NOT NULL, INT>"], bucket=-1, options=OPTIONS
    )
    maps = [{f"a key of its own {key}": key} for key in range(300)]
    batches = [
        pa.table({"k": pa.array([key], pa.int32()), "m": cells(maps[key : key + 1])}).to_batches()[0] for key in range(300)
    ]
    table.write(batches, compact="none")
    assert len(list(tmp_path.glob("t/bucket-0/*.parquet"))) > 1
    found = {row["k"]: dict(row["m"]) for row in table.scan().to_arrow().to_pylist()}
    assert found == dict(enumerate(maps))


def test_keys_are_stored_as_short_as_they_are() -> None:
    """Escapes would make a dictionary of other letters so long that readers refuse it."""
    columns = columns_of([{"é": 1, "文": 2}])
    text = columns.metadata()["ARROW:schema"]
    stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0).metadata or {}
    assert int(stored[METADATA_PREFIX + b"field-dict-original-size"]) == len('{"é":0,"文":1}'.encode())


def test_a_dictionary_that_readers_refuse_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_shredding, "LARGEST_DICTIONARY", 100)
    columns = ["k INT NOT NULL", "m MAP<STRING NOT NULL, INT>"]
    table = Table.create(str(tmp_path / "t"), columns=columns, bucket=-1, options=OPTIONS)
    with pytest.raises(NotSupported, match="column 'm'"):
        table.write([{"k": 1, "m": {"x" * 100: 1}}])
    assert not list(tmp_path.glob("t/bucket-0/*"))


def test_maps_that_are_stored_as_they_are(tmp_path: Path) -> None:
    """Keys that are no texts, and values that readers of shredded files refuse."""
    columns = ["k INT NOT NULL", "m MAP<INT NOT NULL, INT>", "n MAP<STRING NOT NULL, VARIANT>"]
    options = {f"fields.{name}.map.storage-layout": "shared-shredding" for name in ("m", "n")}
    table = Table.create(str(tmp_path / "t"), columns=columns, bucket=-1, options=options)
    table.write([{"k": 1, "m": {1: 2}, "n": None}])
    stored = pq.read_schema(next(tmp_path.glob("t/bucket-0/*.parquet")))
    assert pa.types.is_map(stored.field("m").type)
    assert pa.types.is_map(stored.field("n").type)
    assert table.foreign_reads().is_safe


def test_a_bad_number_of_columns(tmp_path: Path) -> None:
    options = OPTIONS | {"fields.m.map.shared-shredding.max-columns": "many"}
    with pytest.raises(UsageError, match="max-columns"):
        table = Table.create(str(tmp_path / "t"), columns=["k INT NOT NULL", "m MAP<STRING NOT NULL, INT>"], options=options)
        table.write([{"k": 1, "m": {"a": 2}}])


def facts_of(columns: ShreddedColumns, number: int = 0) -> dict[str, Any]:
    """What a file says about its keys."""
    stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(columns.metadata()["ARROW:schema"]))).field(number).metadata or {}
    facts = {name.removeprefix(METADATA_PREFIX).decode(): text for name, text in stored.items()}
    size = int(facts["field-dict-original-size"])
    names = pa.decompress(facts["field-dict"].decode().encode("latin-1"), size, codec="zstd", asbytes=True)
    known = {name: json.loads(facts[name]) for name in ("field-columns", "overflow-set", "num-columns", "max-row-width")}
    return {"names": json.loads(names), "id": facts.get("PARQUET:field_id"), **known}


def test_a_file_says_where_each_key_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all pieces of all rows: readers that choose keys look at no other columns."""
    monkeypatch.setattr(PIECES, "shredded_cells", 6)
    chance = random.Random(9)
    maps: list[Any] = [{key: 1 for key in "abcdefgh"}]
    maps += [None if size == 7 else {key: 1 for key in chance.sample("abcdefgh", size)} for size in [*range(8), 1, 2] * 3]
    schema = identified_schema([FIELD])
    columns, halves = columns_of(maps[:5]), (maps[:20], maps[20:])
    chunks = pa.chunked_array([cells(half).cast(schema.field(0).type) for half in halves])
    table = columns.stored(pa.table([chunks], schema=schema))
    facts = facts_of(columns)
    held, overflowing = dict[str, set[int]](), set[int]()
    for row, keys in zip(table.column(0).to_pylist(), maps, strict=True):
        assert len((row or {}).get("__overflow") or ()) == max(0, len(keys or ()) - 3), "a row fills its columns first"
        for column, key in enumerate([] if row is None else row["__field_mapping"]):
            if key >= 0:
                held.setdefault(str(key), set()).add(column)
        overflowing |= {key for key, _ in (row or {}).get("__overflow") or ()}
    assert {key: set(found) for key, found in facts["field-columns"].items()} == held and len(held) > 3
    assert facts["overflow-set"] == sorted(overflowing) and overflowing
    assert (facts["num-columns"], facts["max-row-width"], facts["id"]) == (3, 8, b"1")
    assert sorted(facts["names"].values()) == [*range(8)] and read_back(columns, [table]) == maps


def test_the_ids_of_the_parts_of_a_column() -> None:
    """As Java gives them: the mapping, the columns, the overflow, and what is in it."""
    t = columns_of([{"a": 1, "b": 2}]).schema.field(0).type
    ids = [(t.field(number).metadata or {})[b"PARQUET:field_id"] for number in range(t.num_fields)]
    assert ids == [b"0", b"1", b"2", b"3"] and (t.field(3).type.key_field.metadata or {})[b"PARQUET:field_id"] == b"1006"


def test_columns_are_empty_where_a_row_has_other_keys() -> None:
    """Also of a MAP whose values are not null."""
    field = DataField(1, "m", parse_sql_type("MAP<STRING NOT NULL, INT NOT NULL>"))
    schema = identified_schema([field])
    rows = pa.RecordBatch.from_pylist([{"m": [("a", 1)]}, {"m": [("b", 2)]}, {"m": None}], schema)
    columns = ShreddedColumns([field], schema, TableOptions(OPTIONS), rows)
    stored = columns.schema.field(0)
    assert stored.nullable and [part.nullable for part in stored.type] == [True] * 3
    assert read_back(columns, [columns.stored(pa.Table.from_batches([rows]))]) == [{"a": 1}, {"b": 2}, None]


def test_hidden_and_repeated_keys() -> None:
    """A null MAP may have keys, which are not there; another may have a key twice, and keeps both values."""
    schema, names = identified_schema([FIELD]), ["a", "b", "a", "a", "c", "b", "c"]
    offsets, mask = pa.array([0, 2, 4, 7], pa.int32()), pa.array([True, False, False])
    keys, items = pa.array(names), pa.array(range(7), pa.int32())
    column = pa.MapArray.from_arrays(offsets, keys, items, type=schema.field(0).type, mask=mask)
    columns = ShreddedColumns([FIELD], schema, TableOptions(OPTIONS), pa.record_batch([column], schema=schema))
    stored = columns.stored(pa.table([column], schema=schema)).to_batches()[0]
    text = pa.py_buffer(base64.b64decode(columns.metadata()["ARROW:schema"]))
    whole = with_whole_maps(pa.RecordBatch.from_arrays(stored.columns, schema=pa.ipc.read_schema(text)))
    found = [None if row is None else sorted(row) for row in whole.column(0).to_pylist()]
    assert found == [None, [("a", 2), ("a", 3)], [("b", 5), ("c", 4), ("c", 6)]]


def test_each_column_has_its_own_limit() -> None:
    """Of those that a batch has; keys that are no texts, and values that readers refuse, stay as they are."""
    types = {"m": "STRING NOT NULL, INT", "n": "VARCHAR(9) NOT NULL, ROW<a INT>", "o": "STRING NOT NULL, STRING"}
    types |= {"i": "INT NOT NULL, INT", "c": "CHAR(3) NOT NULL, INT", "d": "STRING NOT NULL, ARRAY<CHAR(3)>"}
    types |= {"v": "STRING NOT NULL, ROW<a VARIANT>"}
    fields = [DataField(number, name, parse_sql_type(f"MAP<{text}>")) for number, (name, text) in enumerate(types.items(), 1)]
    options = {f"fields.{name}.map.storage-layout": "SHARED-Shredding" for name in types}
    options["fields.o.map.storage-layout"] = "default"
    options |= {f"fields.{name}.map.shared-shredding.max-columns": text for name, text in (("m", "2"), ("n", "1"))}
    assert shreds_maps(fields, TableOptions(options)) == ["m", "n"]
    schema = identified_schema(fields[:2])
    rows = pa.RecordBatch.from_pylist([{"m": [(key, 1) for key in "abc"], "n": [(key, {"a": 2}) for key in "abc"]}], schema)
    both = ShreddedColumns(fields, schema, TableOptions(options), rows)
    both.stored(pa.Table.from_batches([rows]))
    assert [facts_of(both, number)["num-columns"] for number in (0, 1)] == [2, 1]
    only = ShreddedColumns(fields, schema.remove(0), TableOptions(options), rows.select(["n"]))
    assert only.stored(pa.Table.from_batches([rows.select(["n"])])).num_columns == 1


def test_the_size_of_a_dictionary_grows_from_batch_to_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "shredded_keys_bytes", 60)
    schema, columns = identified_schema([FIELD]), columns_of([{"a": 1}])
    takes = []
    for key in ("x" * 20, "y" * 20, "z" * 20):
        columns.stored(pa.table([cells([{key: 1}]).cast(schema.field(0).type)], schema=schema))
        takes.append(columns.takes())
    assert takes == [True, True, False]
