"""`export iceberg`: what pyiceberg reads from the metadata is what the table holds."""

from __future__ import annotations

import datetime
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from paimon_cli import Table
from paimon_cli.datatypes.data_type import (
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    StringType,
    TimestampType,
)
from paimon_cli.errors import NotFound, NotSupported, Refused, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.installation import install_command
from paimon_cli.jobs import iceberg_metadata
from paimon_cli.jobs.iceberg_export import _is_read_as
from paimon_cli.jobs.iceberg_metadata import FILE_PATH_ID
from paimon_cli.storage.local_storage import LocalStorage

TYPES = {
    "id": "BIGINT NOT NULL",
    "tiny": "TINYINT",
    "flag": "BOOLEAN",
    "price": "DECIMAL(12, 3)",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "zoned": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "name": "STRING",
    "raw": "BYTES",
    "real": "DOUBLE",
    "list": "ARRAY<INT>",
    "nest": "ROW<a INT, b ARRAY<STRING>>",
    "pairs": "MAP<STRING, BIGINT>",
}


def table_of(path: Path, columns: list[str], key: str | None = "id", **given: Any) -> Table:
    options = {"write-only": "true", **given.pop("options", {})}
    return Table.create(str(path), columns=columns, primary_key=key or (), bucket=2 if key else -1, options=options, **given)


def row(number: int) -> dict[str, Any]:
    noon = datetime.datetime(2024, 1, 1, 12, 0, 0, number)
    return {
        "id": number,
        "tiny": number % 100,
        "flag": number % 2 == 0,
        "price": Decimal(number) / 8,
        "day": noon.date() + datetime.timedelta(number),
        "at": noon,
        "zoned": noon.replace(tzinfo=datetime.timezone.utc),
        "name": None if number % 3 == 0 else f"näme {number}",
        "raw": bytes([number % 256]),
        "real": float("nan") if number % 7 == 0 else number / 2,
        "list": [number, None],
        "nest": {"a": number, "b": ["x", None]},
        "pairs": [("k", number)],
    }


def write(table: Table, rows: list[dict[str, Any]], **options: Any) -> None:
    table.write(pa.Table.from_pylist(rows, schema=table.scan().schema), **options)


def same(table: Table, iceberg: StaticTable, **scan: Any) -> None:
    ours = table.scan(**scan).to_arrow().to_pylist()
    theirs = iceberg.scan().to_arrow().to_pylist()
    assert sorted(map(repr, theirs)) == sorted(map(repr, ours))


def exported(table: Table, **options: Any) -> StaticTable:
    return StaticTable.from_metadata(table.export_iceberg(**options).metadata)


def test_every_type_of_an_append_table(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", [f"`{name}` {t}" for name, t in TYPES.items()], key=None)
    write(table, [row(number) for number in range(40)])
    write(table, [row(number) for number in range(40, 50)])
    iceberg = exported(table)
    same(table, iceberg)
    found = iceberg.scan(row_filter="id > 44").to_arrow()["id"].to_pylist()
    assert sorted(found) == [45, 46, 47, 48, 49]
    assert [len(list(iceberg.scan(row_filter="id = 45").plan_files()))] == [1]


def test_compacted_keys_and_partitions(tmp_path: Path) -> None:
    columns = ["id BIGINT NOT NULL", "dt DATE NOT NULL", "v STRING"]
    table = table_of(tmp_path / "t", columns, key=["id", "dt"], partition_by="dt")  # type: ignore[arg-type]
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    for value in ("a", "b"):
        write(table, [{"id": number, "dt": day, "v": value} for day in days for number in range(5)])
    with pytest.raises(Refused, match="cannot be exported") as error:
        table.export_iceberg()
    assert error.value.hint.startswith("paimon-cli compact ")
    table.compact(strategy="full")
    iceberg = exported(table)
    same(table, iceberg)
    files = list(iceberg.scan(row_filter="dt = '2024-01-02'").plan_files())
    assert files and all("dt=" in one.file.file_path for one in files) and len(files) < len(table.files())
    table.write(pa.table({"id": [99], "dt": [days[0]]}), op="delete")
    with pytest.raises(Refused, match="cannot be exported"):
        table.export_iceberg()
    same(table, exported(table, snapshot=3), snapshot=3)


def test_deletion_vectors_become_position_deletes(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT", "v STRING"], key=None, options={"deletion-vectors.enabled": "true"})
    write(table, [{"id": number, "v": str(number)} for number in range(100)])
    table.delete(where="id % 7 = 0")
    made = table.export_iceberg()
    assert (made.rows, made.deleted_rows, made.delete_files) == (85, 15, 1)
    same(table, StaticTable.from_metadata(made.metadata))


def test_rows_of_level_0_that_readers_do_not_see_yet(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT NOT NULL", "v STRING"], options={"deletion-vectors.enabled": "true"})
    write(table, [{"id": number, "v": "a"} for number in range(10)])
    table.compact(strategy="full")
    write(table, [{"id": number, "v": "b"} for number in range(5)])
    done = table.export_iceberg()
    assert (done.rows, done.waiting_records) == (10, 5)
    same(table, exported(table))


def test_columns_that_changed(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT", "v INT", "w STRING"], key=None)
    write(table, [{"id": 1, "v": 7, "w": "x"}])
    table.alter.rename_column("v", "value")
    table.alter.alter_column("value", type="BIGINT")
    table.alter.drop_column("w")
    table.alter.add_column("w INT")
    table.refresh()
    write(table, [{"id": 2, "value": 8, "w": 9}])
    same(table, exported(table))


INT, LONG, TEXT = PlainType("INT"), PlainType("BIGINT"), StringType("VARCHAR", 5)
MICROS = TimestampType("TIMESTAMP", 6)


def in_row(*types: DataType) -> RowType:
    return RowType(fields=tuple(DataField(number, "f", one) for number, one in enumerate(types)))


@pytest.mark.parametrize(
    ("old", "new", "is_read"),
    [
        *((INT, LONG, True), (LONG, INT, False), (INT, PlainType("DOUBLE"), False), (PlainType("SMALLINT"), INT, True)),
        *((PlainType("FLOAT"), PlainType("DOUBLE"), True), (PlainType("DOUBLE"), PlainType("FLOAT"), False), (INT, TEXT, False)),
        *((TEXT, INT, False), (TEXT, StringType("VARCHAR", 6), True), (TEXT, StringType("VARCHAR", 4), False)),
        *((DecimalType(5, 2), DecimalType(9, 2), True), (DecimalType(5, 2), DecimalType(9, 3), False)),
        *((DecimalType(5, 2), DecimalType(4, 2), False), (INT, DecimalType(20, 0), False)),
        *((TimestampType("TIMESTAMP", 4), MICROS, True), (MICROS, TimestampType("TIMESTAMP", 4), False)),
        *((TimestampType("TIMESTAMP", 3), MICROS, False), (TimestampType("TIMESTAMP", 9), MICROS, False)),
        *((MICROS, TimestampType("TIMESTAMP_LTZ", 6), False), (PlainType("DATE"), MICROS, False)),
        (BinaryType("VARBINARY", 2), BinaryType("VARBINARY", 3), True),
        (BinaryType("VARBINARY", 2), BinaryType("VARBINARY", 1), False),
        *((ArrayType(element=INT), ArrayType(element=LONG), True), (ArrayType(element=INT), ArrayType(element=TEXT), False)),
        (MapType(key=TEXT, value=INT), MapType(key=TEXT, value=TEXT), False),
        *((in_row(INT, TEXT), in_row(LONG), True), (in_row(INT, TEXT), in_row(INT, INT), False), (in_row(INT), INT, False)),
    ],
)
def test_iceberg_casts_nothing(old: DataType, new: DataType, is_read: bool) -> None:
    assert _is_read_as(old, new) == is_read


@pytest.mark.parametrize(("new", "value"), [("STRING", "8"), ("DECIMAL(12, 1)", Decimal("8.5"))])
def test_files_from_before_another_type_are_refused(tmp_path: Path, new: str, value: Any) -> None:
    """Readers would fail, or show other values than Paimon does."""
    table = table_of(tmp_path / "t", ["id BIGINT", "v INT"], key=None)
    write(table, [{"id": 1, "v": 7}])
    table.alter.alter_column("v", type=new)
    table.refresh()
    write(table, [{"id": 2, "v": value}])
    with pytest.raises(NotSupported, match=r"column 'v' of data file .* is INT"):
        table.export_iceberg()
    assert not (tmp_path / "t" / "metadata").exists()
    table.write(pa.Table.from_pylist([{"id": 2, "v": value}], schema=table.scan().schema), overwrite=True)
    same(table, exported(table))


def test_what_iceberg_does_not_have_is_refused(tmp_path: Path) -> None:
    for name, column in (("time", "TIME"), ("nanos", "TIMESTAMP(9)"), ("millis", "TIMESTAMP(3)"), ("nested", "ARRAY<TIME>")):
        table = table_of(tmp_path / name, ["id BIGINT", f"c {column}"], key=None)
        with pytest.raises(NotFound):
            table.export_iceberg()
        table.write(pa.table({"id": [1]}))
        with pytest.raises(NotSupported, match="column 'c'"):
            table.export_iceberg()
        assert not (tmp_path / name / "metadata").exists()
    orc = table_of(tmp_path / "orc", ["id BIGINT"], key=None, options={"file.format": "orc"})
    write(orc, [{"id": 1}])
    with pytest.raises(NotSupported, match="orc"):
        orc.export_iceberg()


def test_metadata_in_another_directory(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT"], key=None)
    write(table, [{"id": 1}])
    made = table.export_iceberg(str(tmp_path / "out"))
    assert made.metadata == f"{tmp_path}/out/metadata/v1.metadata.json"
    assert (tmp_path / "out" / "metadata" / "version-hint.text").read_text() == "1"
    assert not (tmp_path / "t" / "metadata").exists()
    same(table, StaticTable.from_metadata(made.metadata))
    assert table.verify("full").errors == 0 and table.export_iceberg().snapshot_id == 1 and table.verify("full").errors == 0


def test_metadata_of_the_tables_own_writers_is_left_alone(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT"], key=None)
    write(table, [{"id": 1}])
    schema = tmp_path / "t" / "schema" / "schema-0"  # as another writer makes such tables; `alter` refuses what we cannot write
    content = json.loads(schema.read_text())
    schema.write_text(json.dumps({**content, "options": {**content["options"], "metadata.iceberg.storage": "table-location"}}))
    table = Table.open(table.url)
    with pytest.raises(Refused, match="no metadata is written"):
        table.export_iceberg()
    same(table, exported(table, output_path=str(tmp_path / "out")))


def test_a_branch_needs_a_directory_of_its_own(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT"], key=None)
    write(table, [{"id": 1}])
    table.branches.create("dev", snapshot=1)
    branch = Table.open(table.url, branch="dev")
    with pytest.raises(Refused, match="no metadata is written"):
        branch.export_iceberg()
    same(branch, exported(branch, output_path=str(tmp_path / "out")))


def test_a_failure_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT"], key=None, options={"deletion-vectors.enabled": "true"})
    write(table, [{"id": 1}, {"id": 2}])
    table.delete(where="id = 1")

    def fail(*arguments: Any) -> None:
        raise StorageUnavailable("the store is gone")

    monkeypatch.setattr(iceberg_metadata, "write_manifest_list", fail)
    with pytest.raises(StorageUnavailable):
        table.export_iceberg(str(tmp_path / "out"))
    assert list((tmp_path / "out" / "metadata").iterdir()) == []


def test_a_failure_after_the_metadata_leaves_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT"], key=None)
    write(table, [{"id": 1}])
    overwrite = LocalStorage.overwrite

    def fail_at_the_hint(self: LocalStorage, path: str, data: bytes) -> None:
        if path.endswith("version-hint.text"):
            raise StorageUnavailable("the store is gone")
        overwrite(self, path, data)

    monkeypatch.setattr(LocalStorage, "overwrite", fail_at_the_hint)
    with pytest.raises(StorageUnavailable):
        table.export_iceberg(str(tmp_path / "out"))
    same(table, StaticTable.from_metadata(str(tmp_path / "out" / "metadata" / "v1.metadata.json")))


def test_pyiceberg_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path / "t", ["id BIGINT"], key=None)
    monkeypatch.setitem(sys.modules, "pyiceberg.conversions", None)
    monkeypatch.delitem(sys.modules, "paimon_cli.jobs.iceberg_metadata", raising=False)
    with pytest.raises(UsageError, match="needs the package pyiceberg") as missing:
        table.export_iceberg()
    assert missing.value.hint == install_command("iceberg")


def avro(uri: str) -> list[dict[str, Any]]:
    assert uri.startswith("file:///")
    with open(uri.removeprefix("file://"), "rb") as source:
        return [dict(record) for record in fastavro.reader(source)]  # type: ignore[arg-type]


@pytest.fixture
def marked(tmp_path: Path) -> Table:
    """Two columns that partition it, two files in each partition, rows that vectors mark."""
    columns = ["x INT", "dt DATE NOT NULL", "part STRING NOT NULL", "r ROW<a INT, b INT>", "id BIGINT", "d DOUBLE", "s STRING"]
    options = {"deletion-vectors.enabled": "true"}
    table = table_of(tmp_path / "t", columns, key=None, partition_by="dt,part", options=options)
    table.alter.drop_column("x")  # ids are not places
    table.refresh()
    days = [datetime.date(2024, 1, day) for day in (1, 2)]
    for low in (0, 10):
        ids = range(low, low + 10)
        write(table, [{"dt": day, "part": part, "id": n, "d": n / 2, "s": f"s{n}"} for day in days for part in "ab" for n in ids])
    table.delete(where="part = 'a' AND (id = 3 OR id IN (12, 15, 17) AND dt = '2024-01-01')")
    return table


def test_what_the_metadata_says_of_the_table(tmp_path: Path, marked: Table) -> None:
    made = marked.export_iceberg(f"{tmp_path}/out//")
    assert made.metadata == f"{tmp_path}/out/metadata/v3.metadata.json" and (made.rows, made.deleted_rows) == (75, 5)
    content, context = json.loads(Path(made.metadata).read_text()), TableContext.open(marked.url)
    (spec,), (snapshot,), (schema,) = (content[name] for name in ("partition-specs", "snapshots", "schemas"))
    ids_of = {field["name"]: field["id"] for field in schema["fields"]}
    assert ids_of == {field.name: field.id for field in context.schema.fields}
    assert [(one["source-id"], one["field-id"], one["name"]) for one in spec["fields"]] == [
        *((ids_of["dt"], 1000, "dt"), (ids_of["part"], 1001, "part"))
    ]
    nested = next(field for field in schema["fields"] if field["name"] == "r")["type"]["fields"]
    assert content["last-column-id"] == max(*ids_of.values(), *(one["id"] for one in nested)) > 5
    assert content["last-partition-id"] == 1001 and content["location"] == f"file://{tmp_path}/out"
    times = (content["last-updated-ms"], snapshot["timestamp-ms"], content["snapshot-log"][0]["timestamp-ms"])
    assert set(times) == {context.snapshots.get(3).time_millis}
    names = {one["field-id"]: one["names"] for one in json.loads(content["properties"]["schema.name-mapping.default"])}
    assert names == {id: [name] for name, id in ids_of.items()} and content["properties"]["paimon.snapshot-id"] == "3"
    same(marked, StaticTable.from_metadata(made.metadata))


def test_what_the_metadata_says_of_the_files(tmp_path: Path, marked: Table) -> None:
    """Other readers than pyiceberg trust these: sizes find the footers of files, bounds and counts leave files out."""
    content = json.loads(Path(marked.export_iceberg(f"{tmp_path}/out").metadata).read_text())
    ids_of = {field["name"]: field["id"] for field in content["schemas"][0]["fields"]}
    data, deletes = sorted(avro(content["snapshots"][0]["manifest-list"]), key=lambda one: one["content"])
    counted = [(one["content"], one["added_files_count"], one["added_rows_count"]) for one in (data, deletes)]
    assert counted == [(0, 8, 80), (1, 3, 5)]
    found = set()
    for entry in (entry for manifest in (data, deletes) for entry in avro(manifest["manifest_path"])):
        file = entry["data_file"]
        path = Path(file["file_path"].removeprefix("file://"))
        stored = pq.read_table(path, partitioning=None)
        assert file["file_path"].startswith("file:///") and entry["status"] == 1 and entry["snapshot_id"] == 3
        assert {entry["sequence_number"], entry["file_sequence_number"]} <= {None, 1}
        assert (file["file_size_in_bytes"], file["record_count"]) == (path.stat().st_size, stored.num_rows)
        lower, upper = ({one["key"]: one["value"] for one in file[name] or ()} for name in ("lower_bounds", "upper_bounds"))
        if file["content"] == 0:
            assert lower.keys() == upper.keys() == {ids_of[name] for name in ("dt", "part", "id", "s")}
            for name, encoded in (("id", lambda n: n.to_bytes(8, "little")), ("s", str.encode)):
                ends = encoded(pc.min(stored[name]).as_py()), encoded(pc.max(stored[name]).as_py())
                assert (lower[ids_of[name]], upper[ids_of[name]]) == ends, name
        else:
            (of,) = set(stored["file_path"].to_pylist())
            assert lower == upper == {FILE_PATH_ID: of.encode()}
            assert stored["pos"].to_pylist() == sorted(stored["pos"].to_pylist())
            stored = pq.read_table(of.removeprefix("file://"), partitioning=None).take(stored["pos"])
            found.add((str(stored["dt"][0].as_py()), *stored["id"].to_pylist()))
        assert file["partition"] == {name: stored[name][0].as_py() for name in ("dt", "part")}
    assert found == {("2024-01-01", 3), ("2024-01-02", 3), ("2024-01-01", 12, 15, 17)}


def test_every_column_of_the_partition_must_have_a_counterpart(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", ["a INT NOT NULL", "b TIMESTAMP(6) NOT NULL", "v INT"], key=None, partition_by="a,b")
    write(table, [{"a": 1, "b": datetime.datetime(2024, 1, 1), "v": 1}])
    with pytest.raises(NotSupported, match="partition column 'b' is TIMESTAMP"):
        table.export_iceberg()


def test_files_without_field_ids_are_read_by_the_names_that_columns_had(tmp_path: Path) -> None:
    """As old writers made them. A name that two columns had goes to the newer one."""
    table = table_of(tmp_path / "t", ["id BIGINT", "v INT"], key=None)
    table.alter.rename_column("v", "w")
    table.alter.rename_column("w", "x")
    table.refresh()
    assert _mapping(table) == {"id": ["id"], "x": ["v", "w", "x"]}
    table.alter.add_column("v INT")
    table.alter.rename_column("id", "w")
    table.refresh()
    assert _mapping(table) == {"v": ["v"], "w": ["id", "w"], "x": ["x"]}


def _mapping(table: Table) -> dict[str, list[str]]:
    context = TableContext.open(table.url)
    columns = iceberg_metadata._name_mapping(context, iceberg_metadata._iceberg_schema(context))
    by_id = {field.id: field.name for field in context.schema.fields}
    return {by_id[column["field-id"]]: sorted(column["names"]) for column in columns}
