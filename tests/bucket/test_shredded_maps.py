"""MAP columns that a file stores as a struct of frequent keys: put together as pypaimon and Java read them."""

from __future__ import annotations

import io
import json
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.shredded_maps import with_whole_maps
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.invariants.foreign_reads import foreign_read_report
from paimon_cli.invariants.known_readers import judged
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from tests.tables import compact, live_files, make_table, rows, write

Row = dict[str, int | None] | None
COLUMNS = 2


def metadata(names: list[str], codec: str = "zstd", **changes: str) -> dict[str, str]:
    text = json.dumps({name: number for number, name in enumerate(names)}).encode()
    packed = {
        "none": lambda: text,
        "zstd": lambda: bytes(pa.compress(text, "zstd", asbytes=True)),
        "lz4": lambda: _with_lengths(bytes(pa.compress(text, "lz4_raw", asbytes=True)), len(text)),
    }
    stored = {
        "version": "1",
        "num-columns": str(COLUMNS),
        "field-dict": packed[codec]().decode("latin-1"),
        "field-dict-compression": codec,
        "field-dict-original-size": str(len(text)),
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    return {"paimon.map.storage-layout": "shared-shredding"} | {f"paimon.map.shared-shredding.{k}": v for k, v in stored.items()}


def _with_lengths(packed: bytes, size: int) -> bytes:
    return struct.pack("<ii", len(packed), size) + packed


def shredded(maps: list[Row], names: list[str]) -> pa.Array:
    """The first keys of each row in columns, the others beyond them."""
    stored: list[dict[str, Any] | None] = []
    for row in maps:
        if row is None:
            stored.append(None)
            continue
        numbers = [names.index(key) for key in row][:COLUMNS]
        cells = {f"__col_{n}": row[names[number]] for n, number in enumerate(numbers)}
        beyond = [(names.index(key), value) for key, value in list(row.items())[COLUMNS:]]
        stored.append({"__field_mapping": numbers + [-1] * (COLUMNS - len(numbers)), **cells, "__overflow": beyond or None})
    fields = [pa.field("__field_mapping", pa.list_(pa.int32()))]
    fields += [pa.field(f"__col_{n}", pa.int64()) for n in range(COLUMNS)]
    return pa.array(stored, pa.struct([*fields, pa.field("__overflow", pa.map_(pa.int32(), pa.int64()))]))


def batch(maps: list[Row], names: list[str], **changes: str) -> pa.RecordBatch:
    column = shredded(maps, names)
    schema = pa.schema([pa.field("m", column.type, metadata=metadata(names, **changes))])
    return pa.RecordBatch.from_arrays([column], schema=schema)


def whole(found: pa.RecordBatch) -> list[Row]:
    return [None if row is None else dict(row) for row in found.column("m").to_pylist()]


NAMES = ["a", "ö", "c", "d", "e"]
ROWS: list[Row] = [{"a": 1}, None, {}, {"e": 5, "d": None, "ö": 2, "a": 0}, {"c": 3, "d": 4}, {"ö": None}]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "none"])
def test_each_row_gets_its_keys_and_values(codec: str) -> None:
    assert whole(with_whole_maps(batch(ROWS, NAMES, codec=codec))) == ROWS
    assert whole(with_whole_maps(batch(ROWS, NAMES).slice(2, 3))) == ROWS[2:5]
    assert whole(with_whole_maps(batch([None, {}], NAMES))) == [None, {}]
    assert whole(with_whole_maps(batch([], NAMES))) == []


def test_a_dictionary_may_list_its_keys_in_any_order() -> None:
    numbers = {name: NAMES.index(name) for name in ("d", "a", "e", "ö", "c")}
    listed = batch(ROWS, NAMES, codec="none", field_dict=json.dumps(numbers))
    assert whole(with_whole_maps(listed)) == ROWS


def test_random_rows() -> None:
    chance = random.Random(5)
    maps: list[Row] = []
    for _ in range(500):
        keys = chance.sample(NAMES, chance.randrange(6))
        maps.append(None if chance.random() < 0.1 else {key: chance.choice([None, 1, 2, 3]) for key in keys})
    assert whole(with_whole_maps(batch(maps, NAMES))) == maps


def test_other_structs_stay() -> None:
    plain = pa.RecordBatch.from_pydict({"m": shredded(ROWS, NAMES)})
    assert with_whole_maps(plain).equals(plain)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"version": "2"}, NotSupported),
        ({"field_dict_compression": "gzip"}, NotSupported),
        ({"field_dict_original_size": "99999999999"}, ValueError),
        ({"codec": "none", "field_dict": '{"a": 7}'}, ValueError),
        ({"codec": "none", "field_dict": '{"a": 0}'}, ValueError),
        ({"codec": "none", "field_dict": '{"a": 0, "b": 1, "c": 2, "d": 4, "e": 4}'}, ValueError),
        ({"codec": "none", "field_dict": '{"a": false, "b": true, "c": 2, "d": 3, "e": 4}'}, ValueError),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        with_whole_maps(batch(ROWS, NAMES, **changes))


def with_shredded_file(folder: Path, maps: list[Row]) -> TableContext:
    """A table whose only file another writer has written, with a shredded MAP."""
    columns = {"id": "INT", "m": "MAP<STRING, BIGINT>"}
    plain = make_table(folder / "plain", columns, [], bucket=-1)
    write(plain, [{"id": n, "m": row} for n, row in enumerate(maps)])
    snapshot = plain.snapshot()
    assert snapshot is not None
    (entry,) = plain.manifests.live_entries(snapshot)
    stored = batch(maps, NAMES)
    schema = pa.schema([pa.field("id", pa.int32()), stored.schema.field(0)])
    sink = io.BytesIO()
    pq.write_table(pa.table([pa.array(range(len(maps)), pa.int32()), stored.column(0)], schema=schema), sink)
    option = {"fields.m.map.storage-layout": "shared-shredding"}
    context = make_table(folder / "t", columns, [], bucket=-1, options=option)
    directory = Path(context.bucket_directory(*entry.bucket_id))
    directory.mkdir(parents=True)
    (directory / entry.file.file_name).write_bytes(sink.getvalue())
    added = FileChanges(added=(replace(entry.file, file_size=len(sink.getvalue())),))
    Committer(context).commit([CommitMessage(*entry.bucket_id, -1, append=added)], fresh_identity(context))
    return context


def shown(context: TableContext) -> list[Row]:
    found = sorted(rows(context), key=lambda row: row["id"])
    return [None if row["m"] is None else dict(row["m"]) for row in found]


def test_tables_with_such_files_are_read_verified_and_compacted(tmp_path: Path) -> None:
    context = with_shredded_file(tmp_path, ROWS)
    assert shown(context) == ROWS and list(check_table(context)) == []
    write(context, [{"id": len(ROWS), "m": {"x": 9}}])
    assert shown(context) == [*ROWS, {"x": 9}]
    compact(context, strategy="full")
    assert shown(context) == [*ROWS, {"x": 9}] and list(check_table(context)) == []
    (path,) = live_files(context)
    assert pa.types.is_struct(pq.read_schema(Path(context.url) / path).field("m").type)
    report = foreign_read_report(context, context.snapshot())
    assert [finding.code for finding in report.findings] == ["shredded-maps"]
    assert not judged(report, "polars").is_safe


def test_a_file_that_is_damaged_says_so() -> None:
    with pytest.raises(ValueError, match="which keys its columns hold"):
        column = shredded(ROWS, NAMES)
        short = pa.StructArray.from_arrays(
            [pa.array([[0]] * len(column), pa.list_(pa.int32())), *(column.field(n) for n in range(1, 4))],
            fields=list(column.type),
        )
        with_whole_maps(pa.RecordBatch.from_arrays([short], schema=batch(ROWS, NAMES).schema))
