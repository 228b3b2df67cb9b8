"""Rows of one table written into another: those of a snapshot, as a read of it shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import BadInput, DataConflict, NotFound, UsageError
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.table_rows import TableRows
from paimon_cli.jobs.write_job import WriteSummary, run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.pieces import PIECES
from tests.tables import data_files, make_table, rows

SCHEMA = pa.schema(
    [pa.field("id", pa.int32(), nullable=False), pa.field("v", pa.string()), pa.field("p", pa.int32(), nullable=False)]
)
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "append with vectors": {"options": {"deletion-vectors.enabled": True}},
    "key": {"primary_key": ["id"], "options": {"bucket": 2}},
    "key with vectors": {"primary_key": ["id"], "options": {"bucket": 2, "deletion-vectors.enabled": True}},
    "dynamic buckets": {"primary_key": ["id", "p"], "partition_by": ["p"], "options": {"bucket": -1}},
    "postponed": {"primary_key": ["id"], "options": {"bucket": -2}},
    "partial-update": {"primary_key": ["id"], "options": {"bucket": 1, "merge-engine": "partial-update"}},
}


def _batch(ids: range, value: str | None) -> pa.Table:
    return pa.table({"id": list(ids), "v": [value] * len(ids), "p": [id % 3 for id in ids]}, SCHEMA)


def _source(path: Path, kind: str = "append") -> Table:
    """A table of 300 rows, of which 20 were deleted and 50 (with a key) were overwritten; files of several commits."""
    table = Table.create(path, schema=SCHEMA, **KINDS[kind])
    table.write(_batch(range(0, 200), "old"))
    table.write(_batch(range(200, 300), "new"))
    if table.context.schema.primary_keys:
        table.write(_batch(range(150, 200), "again"))
    if kind == "postponed":
        table.compact()
    if kind != "partial-update":
        table.delete("id between 10 and 29")
    return table


def _written(source: Table, target: Table, engine: Engine, **request: Any) -> WriteSummary:
    scan = plan_rows(source.context, ReadRequest())
    return run_write(target.context, WriteRequest(TableRows(source.name, scan), **request), engine, NoProgress())


def _sorted(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(["id", "v", "p"]).to_arrow().to_pylist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_part(2)
def test_a_deleted_row_stays_deleted_and_an_overwritten_one_is_not_doubled(kind: str, tmp_path: Path) -> None:
    source = _source(tmp_path / "s", kind)
    for target in (
        Table.create(tmp_path / "a", schema=SCHEMA),
        Table.create(tmp_path / "k", schema=SCHEMA, primary_key=["id"], bucket=3),
    ):
        summary = target.write(source)
        assert _sorted(target) == _sorted(source) and len(_sorted(source)) in (280, 300)
        assert (summary.source_table, summary.source_snapshot) == (source.name, source.context.snapshots.latest_id())
        assert summary.rows == summary.rows_read == len(_sorted(source))


@pytest.mark.parametrize("kind", ["append with vectors", "key", "dynamic buckets"])
@pytest.mark.in_part(3)
def test_spark_tasks_read_the_splits(kind: str, any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    source = _source(tmp_path / "s", kind)
    for target in (
        Table.create(tmp_path / "a", schema=SCHEMA),
        Table.create(tmp_path / "k", schema=SCHEMA, primary_key=["id"], bucket=3),
    ):
        assert _written(source, target, any_spark_engine).source_table == source.name
        assert _sorted(target) == _sorted(source)


def test_several_parts_are_numbered_without_gaps_that_overlap(tmp_path: Path) -> None:
    source = _source(tmp_path / "s").with_options({"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"})
    planned = TableRows("s", plan_rows(source.context, ReadRequest())).plan()
    assert len(planned) > 1 and [split.length for split in planned] == [1] * len(planned)
    ends = [split.order_base + split.arrivals for split in planned]
    assert [split.order_base for split in planned] == [0, *ends[:-1]]
    target = Table.create(tmp_path / "t", schema=SCHEMA)
    _written(source, target, LocalEngine(2))
    assert _sorted(target) == _sorted(source)


def test_the_snapshot_tag_or_time_of_a_scan_is_what_is_written(tmp_path: Path) -> None:
    source = _source(tmp_path / "s", "key")
    source.tags.create("first", snapshot=1)
    for given, expected in (({"snapshot": 1}, 1), ({"tag": "first"}, 1), ({"snapshot": 2}, 2)):
        target = Table.create(tmp_path / f"t{given}", schema=SCHEMA)
        assert target.write(source.scan(**given)).source_snapshot == expected
        assert _sorted(target) == sorted(
            tuple(row.values()) for row in source.scan(["id", "v", "p"], **given).to_arrow().to_pylist()
        )


def test_a_scan_keeps_its_condition_limit_order_and_kinds(tmp_path: Path) -> None:
    source = _source(tmp_path / "s", "key")
    target = Table.create(tmp_path / "t", schema=SCHEMA, primary_key=["id"], bucket=1)
    target.write(source.scan(where="id >= 290"))
    assert [row[0] for row in _sorted(target)] == list(range(290, 300))
    limited = Table.create(tmp_path / "l", schema=SCHEMA)
    limited.write(source.scan(order_by="id DESC", limit=3))
    assert [row[0] for row in _sorted(limited)] == [297, 298, 299]
    target.write(source)
    before = source.context.snapshots.latest_id()
    source.delete("id = 299")
    target.write(source.scan(incremental=f"{before}..", row_kind=True), op_column="rowkind")
    assert _sorted(target) == _sorted(source)


def test_columns_are_matched_by_name_and_types_cast_without_loss(tmp_path: Path) -> None:
    source = _source(tmp_path / "s")
    wider = Table.create(tmp_path / "w", columns=["p BIGINT", "id BIGINT NOT NULL", "v STRING", "extra INT"])
    assert wider.write(source).missing_columns == ("extra",)
    assert _sorted(wider) == _sorted(source)
    with pytest.raises(BadInput, match="has no column 'p'"):
        Table.create(tmp_path / "n", columns=["id INT", "v STRING"]).write(source)
    narrow = Table.create(tmp_path / "b", columns=["id TINYINT", "v STRING", "p INT"])
    with pytest.raises(BadInput, match=r"s at snapshot \d, part \d of \d: row 1"):
        narrow.write(source)
    assert narrow.write(source, on_error="skip").skipped_rows == 300 - 128
    assert not data_files(narrow.context) or len(_sorted(narrow)) == 108


EVERY_TYPE: dict[str, Any] = {
    "d": "DECIMAL(20, 3)", "ts": "TIMESTAMP(6)", "lz": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "day": "DATE", "t": "TIME(3)",
    "b": "BYTES", "c": "CHAR(3)", "f": "FLOAT", "arr": {"type": "ARRAY", "element": "INT"},
    "m": {"type": "MAP", "key": "STRING NOT NULL", "value": "DOUBLE"},
    "r": {"type": "ROW", "fields": [{"id": 20, "name": "x", "type": "INT"}]},
}  # fmt: skip


def test_every_type_comes_through(tmp_path: Path) -> None:
    source, target = (make_table(tmp_path / name, {"id": "INT NOT NULL", **EVERY_TYPE}, ["id"]) for name in "st")
    line = {
        "id": 1, "d": "12345678901234567.125", "ts": "2024-01-01T00:00:00.123456", "lz": "2024-01-01T00:00:00.123Z",
        "day": "1969-01-01", "t": "01:02:03.004",
        "b": "00ff", "c": "abc", "f": 0.1, "arr": [1, None], "m": [["a", 0.5]], "r": {"x": 1},
    }  # fmt: skip
    (tmp_path / "in.json").write_text("".join(json.dumps(row) + "\n" for row in (line, {**dict.fromkeys(line), "id": 2})))
    Table.open(tmp_path / "s").write(str(tmp_path / "in.json"))
    Table.open(tmp_path / "t").write(Table.open(tmp_path / "s"))
    assert rows(target) == rows(source) and len(rows(target)) == 2


def test_a_table_is_not_its_own_source_but_chosen_rows_are(tmp_path: Path) -> None:
    table = _source(tmp_path / "s", "key")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    for given in (table, Table.open(tmp_path / "link"), table.scan(snapshot=1)):
        with pytest.raises(UsageError, match="is its own source"):
            table.write(given)
    assert table.write(table.scan(where="id < 5"), op="delete").rows == 5
    assert len(_sorted(table)) == 275
    table.branches.create("b")
    Table.open(tmp_path / "s", branch="b").write(_batch(range(900, 901), "of the branch"))
    assert table.write(Table.open(tmp_path / "s", branch="b")).rows == 1


def test_rows_of_the_same_table_are_checked_for_changes_since_their_snapshot(tmp_path: Path) -> None:
    table = _source(tmp_path / "s", "key")
    scan = table.scan(where="id < 5")
    table.write(_batch(range(0, 3), "newer"))
    with pytest.raises(DataConflict):
        table.write(scan, data_conflict_check="key")


def test_an_expired_snapshot_is_named(tmp_path: Path) -> None:
    source, target = _source(tmp_path / "s", "key"), Table.create(tmp_path / "t", schema=SCHEMA)
    scan = source.scan(snapshot=1)
    source.compact(strategy="full")
    source.expire(retain_max=1, retain_min=1)
    with pytest.raises(NotFound, match="snapshot 1"):
        target.write(scan)
    assert target.context.snapshots.latest_id() is None and not data_files(target.context)


def test_a_table_without_rows_is_checked_and_writes_nothing(tmp_path: Path) -> None:
    empty, target = Table.create(tmp_path / "e", columns=["id INT", "other INT"]), Table.create(tmp_path / "t", schema=SCHEMA)
    with pytest.raises(BadInput, match=r"column '(other|id|p)'"):
        target.write(empty)
    assert target.write(Table.create(tmp_path / "f", schema=SCHEMA)).snapshots == ()


def test_rows_are_streamed(tmp_path: Path) -> None:
    source = Table.create(tmp_path / "s", columns=["id INT"])
    source.write(pa.table({"id": pa.array(range(200_000), pa.int32())}))
    read = TableRows("s", source.scan().rows)
    pieces = [raw.batch.num_rows for split in read.plan() for raw in read.raw_rows(split, (), Needed())]
    assert sum(pieces) == 200_000 and max(pieces) <= PIECES.batch_rows


@pytest.mark.parametrize(
    "options", [{"bucket": -2}, {"bucket": 1, "deletion-vectors.enabled": True, "write-only": True}], ids=["postponed", "level 0"]
)
def test_records_of_the_source_that_wait_for_a_compaction_are_counted(options: dict[str, Any], tmp_path: Path) -> None:
    source = Table.create(tmp_path / "s", schema=SCHEMA, primary_key=["id"], options=options)
    source.write(_batch(range(0, 10), "seen"))
    source.compact()
    source.write(_batch(range(10, 14), "waits"))
    target = Table.create(tmp_path / "t", schema=SCHEMA)
    summary = target.write(source)
    assert (summary.rows, summary.source_waiting_records) == (10, 4)
    source.compact()
    assert target.write(source).source_waiting_records == 0
