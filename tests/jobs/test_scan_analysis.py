"""`read --explain --analyze`: what is read and skipped, and what each stage of a read costs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from paimon_cli import Table
from paimon_cli.jobs.scan_analysis import MeteredStorage
from paimon_cli.storage.memory_storage import MemoryStorage


def table_of(path: Path, **options: str) -> Table:
    columns = ["id BIGINT NOT NULL", "v INT", "s STRING"]
    return Table.create(str(path), columns=columns, primary_key="id", bucket=1, options={"write-only": "true", **options})


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "v": pa.array([i % 100 for i in ids], pa.int32()), "s": [f"text {i}" for i in ids]})


def test_raw_and_merged_splits(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **{"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"})
    for first in (0, 100, 150):
        table.write(rows(first, 100))
    plan = table.scan().explain()
    assert (plan.splits, plan.splits_raw, plan.splits_to_merge, plan.splits_with_vectors) == (2, 1, 1, 0)
    assert (plan.files_to_read, plan.row_groups) == (3, None)
    plan = table.scan(where="id < 50").explain()
    assert (plan.files_to_read, plan.files_skipped_by_key, plan.row_groups) == (1, 2, None)


def test_vectors_and_their_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **{"deletion-vectors.enabled": "true"})
    table.write(rows(0, 100))
    table.compact()
    table.write(rows(0, 7))
    table.compact(strategy="minor")
    table.compact()
    table.write(rows(90, 3), compact="after")
    plan = table.scan().explain()
    deleted = sum(vector.deleted for vector in table.dv())
    assert plan.vector_rows == deleted > 0 and plan.splits_with_vectors == 1
    assert plan.splits_raw + plan.splits_with_vectors == plan.splits and plan.splits_to_merge == 0
    assert plan.rows - plan.vector_rows == table.scan().count()


def test_vectors_in_several_index_files(tmp_path: Path) -> None:
    options = {"deletion-vectors.enabled": "true", "deletion-vector.index-file.target-size": "1 b"}
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT", "v INT", "s STRING"], options=options)
    for first in (0, 100, 200):
        table.write(rows(first, 100))
    table.delete("id % 100 < 5")
    assert len({vector.index_file for vector in table.dv()}) > 1
    plan = table.scan().explain()
    assert (plan.vector_rows, plan.rows - plan.vector_rows) == (15, table.count())


def test_row_groups_that_a_condition_rules_out(tmp_path: Path) -> None:
    columns = ["id BIGINT", "v INT", "s STRING"]
    table = Table.create(str(tmp_path / "t"), columns=columns, options={"file.block-size": "64 kb"})
    table.write(rows(0, 50_000))
    analysis = table.scan(where="id >= 49000").analyze()
    assert analysis.row_groups is not None and analysis.row_groups > 2
    assert analysis.row_groups_skipped == analysis.row_groups - 1
    stages = {stage.stage: stage for stage in analysis.stages}
    assert list(stages) == ["plan", "fetch", "decode and merge", "filter"]
    assert stages["filter"].rows == analysis.rows_returned == 1000
    assert 1000 <= (stages["decode and merge"].rows or 0) < 50_000
    everything = table.scan().analyze()
    assert [stage.rows for stage in everything.stages] == [None, None, 50_000]
    assert (everything.stages[1].bytes or 0) > 2 * (stages["fetch"].bytes or 0)
    assert everything.requests == sum(stage.requests or 0 for stage in everything.stages)


def test_what_a_compaction_would_save_is_derived_from_measured_parts(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    for _ in range(6):
        table.write(rows(0, 40_000))
    found = table.scan().analyze()
    assert found.most_runs_merged == 6 and found.rows == 240_000
    assert found.merge_seconds is not None and 0 <= found.merge_seconds < found.seconds
    assert found.seconds_if_compacted is not None and found.seconds_if_compacted < found.seconds / 2
    assert table.scan(limit=1).analyze().seconds_if_compacted is None
    assert table.scan(order_by="v").analyze().seconds_if_compacted is None
    table.compact(strategy="full")
    found = table.scan().analyze()
    assert (found.most_runs_merged, found.merge_seconds, found.seconds_if_compacted) == (0, None, None)


def test_a_limit_stops_the_measured_read(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    table.write(rows(0, 1000))
    assert table.scan(limit=3).analyze().rows_returned == 3
    ordered = table.scan(["s"], limit=3, order_by="v DESC").analyze()
    assert [stage.stage for stage in ordered.stages][-1] == "decode, merge and sort"


def test_requests_and_bytes_are_those_of_the_storage() -> None:
    inner = MemoryStorage("requests and bytes")
    inner.write_new("/a", b"0123456789")
    meter = MeteredStorage(inner)
    assert meter.read_bytes("/a") == b"0123456789" and meter.exists("/a") and meter.file_size("/a") == 10
    with meter.open_input("/a") as stream:
        stream.seek(4)
        assert (stream.read(3), stream.tell()) == (b"456", 7)
    asked = meter.taken()
    assert (asked.requests, asked.bytes) == (4, 13)
    assert meter.taken().requests == 0
