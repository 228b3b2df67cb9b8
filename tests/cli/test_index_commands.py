"""`indexes ls` and `dv ls` against what reading the tables shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from paimon_cli import Table
from tests.cli.calling import Run
from tests.goldens import golden_table
from tests.invariants.damaged_tables import Bench
from tests.invariants.damages import relist, vector_entry, with_ranges
from tests.tables import make_table, write


def test_deletion_vectors(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "dv_dedup", tmp_path)
    vectors = run("dv", "ls", table, "-o", "json").json
    assert vectors["kind"] == "DeletionVectorList" and vectors["items"]
    files = {item["file"]: item for item in run("files", "ls", table, "-o", "json").json["items"]}
    for item in vectors["items"]:
        assert (item["rows"], item["level"]) == (files[item["file"]]["rows"], files[item["file"]]["level"])
        assert 0 < item["deleted"] <= item["rows"]
    bucket = vectors["items"][0]["bucket"]
    assert {i["bucket"] for i in run("dv", "ls", table, "--bucket", bucket, "-o", "json").json["items"]} == {bucket}
    indexes = run("indexes", "ls", table, "-o", "json").json["items"]
    assert {item["file"] for item in indexes} >= {item["index_file"] for item in vectors["items"]}
    assert sum(item["vectors"] for item in indexes) == len(vectors["items"])
    assert all(Path(item["path"]).stat().st_size == item["size"] for item in indexes)
    deleted = sum(item["deleted"] for item in vectors["items"])
    assert f"{len(vectors['items'])} deletion vector" in (text := run("dv", "ls", table).out) and f"{deleted} deleted row" in text
    assert run("dv", "ls", table, "--snapshot", 1, "-o", "json").json["items"] == []


def test_a_vector_that_dangles(run: Run, tmp_path: Path) -> None:
    bench = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    entry = vector_entry(bench)
    ranges = entry.index_file.deletion_vector_ranges or ()
    relist(bench, entry, with_ranges(entry, *(replace(r, data_file_name="data-gone-0.parquet") for r in ranges[:1])))
    items = run("dv", "ls", bench.root, "-o", "json").json["items"]
    (gone,) = (item for item in items if item["file"] == "data-gone-0.parquet")
    assert gone["level"] is None and gone["rows"] is None and gone["deleted"] > 0


def test_a_damaged_index_file(run: Run, tmp_path: Path) -> None:
    bench = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    path = bench.root / "index" / vector_entry(bench).index_file.file_name
    path.write_bytes(b"")
    assert str(path) in run("dv", "ls", bench.root, code=10).err
    assert run("indexes", "ls", bench.root).out


def test_hash_indexes_and_tables_without(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "dynamic_bucket", tmp_path)
    items = run("indexes", "ls", table, "-o", "json").json["items"]
    assert {item["type"] for item in items} == {"HASH"} and all(item["size"] == 4 * item["rows"] for item in items)
    assert run("dv", "ls", table, "-o", "json").json["items"] == []
    plain = golden_table("java-0.9", "dedup_partitioned", tmp_path)
    assert json.loads(run("indexes", "ls", plain, "-o", "json").out)["items"] == []


def test_vectors_of_writers_that_count_and_of_those_that_do_not(run: Run, tmp_path: Path) -> None:
    """The entry of a data file that was added later has a count, and the ones beside it have none."""
    context = make_table(tmp_path / "t", {"k": "INT"}, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    for first in (0, 10):
        write(context, [{"k": first + number} for number in range(5)])
    Table.open(context.url).delete("k in (1, 2, 11)")
    bench = Bench(tmp_path / "t")
    counted = run("dv", "ls", bench.root, "-o", "json").json["items"]
    assert sorted(item["deleted"] for item in counted) == [1, 2]
    entry = vector_entry(bench)
    one, other = entry.index_file.deletion_vector_ranges or ()
    relist(bench, entry, with_ranges(entry, replace(one, cardinality=None), other))
    items = run("dv", "ls", bench.root, "-o", "json").json["items"]
    assert [(item["file"], item["deleted"]) for item in items] == [(item["file"], item["deleted"]) for item in counted]
