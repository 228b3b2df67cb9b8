"""`verify --foreign-read-safe` beside a reader that really reads the Parquet files as they are."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from paimon_cli import Catalog, Table
from paimon_cli.history.live_files import bucket_files


def table_of(path: Path, key: str | None = "id", **options: str) -> Table:
    columns = ["id BIGINT NOT NULL", "v STRING"]
    given = {"write-only": "true", **options}
    return Table.create(str(path), columns=columns, primary_key=key or (), bucket=2 if key else -1, options=given)


def write(table: Table, ids: list[int], value: str, **options: Any) -> None:
    table.write(pa.table({"id": ids, "v": [value] * len(ids)}), **options)


def plain_rows(table: Table) -> list[tuple[Any, ...]]:
    """What a reader of plain Parquet files shows."""
    context = table.context
    found: list[tuple[Any, ...]] = []
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        for file in bucket.files:
            path = context.data_file_path(*bucket.bucket_id, file)
            rows = pq.read_table(path, columns=list(context.schema.field_names)).to_pylist()
            found += [tuple(row.values()) for row in rows]
    return sorted(found, key=repr)


def our_rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def codes(table: Table) -> list[str]:
    """The codes of the reasons, after a check that the verdict is right about the rows."""
    report = table.foreign_reads()
    assert report.is_safe == (not report.findings)
    assert report.is_safe == (plain_rows(table) == our_rows(table))
    return [finding.code for finding in report.findings]


def test_versions_of_a_key_and_deletes(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    assert table.foreign_reads().snapshot_id is None
    write(table, [1, 2, 3, 4], "a")
    assert codes(table) == []
    write(table, [2, 3], "b")
    assert codes(table) == ["needs-merge"]
    (finding,) = table.foreign_reads(argument="T").findings
    assert finding.command == "paimon-cli compact T --strategy full"
    table.compact(strategy="full")
    assert codes(table) == []
    table.write(pa.table({"id": [9]}), op="delete")
    assert codes(table) == ["deleted-rows"]
    table.compact(strategy="full")
    assert codes(table) == []
    assert table.foreign_reads(snapshot=2).findings[0].code == "needs-merge"


def test_deletes_that_a_manifest_does_not_count(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **{"metadata.stats-mode": "none"})
    kinds = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "kind": ["+I", "-D", "+U"]})
    table.write(kinds, op_column="kind")
    assert codes(table) == ["deleted-rows"]


def test_vectors_and_rows_that_are_not_visible_yet(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **{"deletion-vectors.enabled": "true"})
    write(table, [1, 2, 3, 4, 5, 6], "a")
    assert codes(table) == ["not-visible-yet"]
    table.compact(strategy="full")
    assert codes(table) == []
    appended = table_of(tmp_path / "a", key=None, **{"deletion-vectors.enabled": "true"})
    write(appended, [1, 2, 3], "a")
    assert codes(appended) == []
    appended.delete(where="id = 2")
    assert codes(appended) == ["deletion-vectors"]
    assert appended.foreign_reads().findings[0].rows == 1


@pytest.mark.parametrize(("wide", "result"), [("true", "refused"), ("false", "right")])
def test_vectors_of_64_bits_are_not_for_pypaimon(tmp_path: Path, wide: str, result: str) -> None:
    table = table_of(tmp_path / "t", key=None, **{"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": wide})
    write(table, [1, 2, 3], "a")
    table.delete(where="id = 2")
    assert codes(table) == ["deletion-vectors"], "of which a plain reader knows none"
    assert [reader.result for reader in table.foreign_reads(engine="pypaimon").readers] == [result]
    assert {reader.result for reader in table.foreign_reads(engine="starrocks").readers} == {"wrong", "right"}
    table.compact(strategy="full")
    assert [reader.result for reader in table.foreign_reads(engine="pypaimon").readers] == ["right"]


def test_columns_that_were_renamed_since(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    write(table, [1, 2], "a")
    table.alter.add_column("w INT")
    table.refresh()
    assert table.foreign_reads().is_safe
    table.alter.rename_column("v", "name")
    table.refresh()
    (finding,) = table.foreign_reads().findings
    assert (finding.code, finding.command) == ("older-columns", None)
    assert table.foreign_reads(snapshot=1).is_safe


def test_files_that_are_not_parquet(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **{"file.format": "orc"})
    write(table, [1, 2], "a")
    assert [finding.code for finding in table.foreign_reads().findings] == ["not-parquet"]


def test_rows_that_wait_for_their_buckets(tmp_path: Path) -> None:
    columns = ["id BIGINT NOT NULL", "v STRING"]
    options = {"file.format": "parquet"}
    table = Table.create(str(tmp_path / "t"), columns=columns, primary_key="id", bucket=-2, options=options)
    write(table, [1, 2], "a")
    found = [finding.code for finding in table.foreign_reads().findings]
    assert "waiting-for-buckets" in found


def results(table: Table, engine: str) -> list[tuple[str, list[str]]]:
    return [(reader.result, list(reader.because)) for reader in table.foreign_reads(engine=engine).readers]


def test_columns_that_were_added_are_missing_for_who_takes_them_from_files(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", key=None)
    write(table, [1, 2], "a")
    assert results(table, "duckdb") == [("right", []), ("right", [])]
    table.alter.add_column("w INT")
    table.refresh()
    assert table.foreign_reads().is_safe and not table.foreign_reads().findings
    assert results(table, "duckdb") == [("right", []), ("wrong", ["added-columns"])]
    assert results(table, "polars") == [("wrong", ["added-columns"])]
    assert not table.foreign_reads(engine="polars").is_safe
    assert table.foreign_reads(engine="trino").is_safe


def test_partitions_that_only_directories_name(tmp_path: Path) -> None:
    for day in ("1", "2"):
        (tmp_path / f"source/dt={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"source/dt={day}/a.parquet")
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.adopt(str(tmp_path / "source"), table="d.t")
    table = catalog.table("d.t")
    assert len(our_rows(table)) == 2
    (finding,) = table.foreign_reads().findings
    assert (finding.code, finding.files, finding.command) == ("partition-in-directories", 2, None)
    assert results(table, "polars") == [("wrong", ["partition-in-directories"])]


def test_what_is_newer_than_a_reader_is_unknown(tmp_path: Path) -> None:
    options = {"fields.m.map.storage-layout": "shared-shredding", "write-only": "true"}
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT NOT NULL", "m MAP<STRING, INT>"], options=options)
    table.write(pa.table({"id": [1, 2], "m": pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int32()))}))
    assert results(table, "trino") == [("unknown", ["shredded-maps"])]
    assert results(table, "polars") == [("wrong", ["shredded-maps"])]
    assert not table.foreign_reads(engine="clickhouse").is_safe


def test_times_of_orc_files_that_java_cannot_read(tmp_path: Path) -> None:
    """`adopt` refuses the files of Arrow's writer; older versions took them, so such tables exist."""
    times = pa.table({"t": pa.array([-1_000_001, 5], pa.timestamp("us"))})
    options = {"write-only": "true", "file.format": "orc"}
    table = Table.create(str(tmp_path / "t"), columns=["t TIMESTAMP(6)"], bucket=-1, options=options)
    table.write(times)
    assert results(table, "trino") == [("right", [])], "our own writer rounds seconds down"
    (tmp_path / "source").mkdir()
    orc.write_table(times, tmp_path / "source/a.orc")
    catalog = Catalog(str(tmp_path / "wh"))
    with mock.patch("paimon_cli.jobs.adoption.footers.refuse_unreadable_orc_times"):
        catalog.adopt(str(tmp_path / "source"), table="d.t")
    assert results(catalog.table("d.t"), "trino") == [("unknown", ["early-orc-times"])]
    assert not catalog.table("d.t").foreign_reads(engine="trino").is_safe


def test_times_that_arrow_cannot_read_do_not_end_the_report(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number, last in enumerate((5, -1_000_001)):
        times = [datetime.datetime(9999, 12, 31), datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=last)]
        orc.write_table(pa.table({"t": pa.array(times, pa.timestamp("us"))}), tmp_path / f"source/{number}.orc")
    catalog = Catalog(str(tmp_path / "wh"))
    with mock.patch("paimon_cli.jobs.adoption.footers.refuse_unreadable_orc_times"):
        catalog.adopt(str(tmp_path / "source"), table="d.t")
    found = {finding.code: finding.files for finding in catalog.table("d.t").foreign_reads().findings}
    assert found == {"not-parquet": 2, "early-orc-times": 1}
