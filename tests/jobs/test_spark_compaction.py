"""Writes and compactions as Spark tasks: the very rows, vectors and changelogs that this process makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.pieces import PIECES
from tests.jobs.test_changelog_files import changelog
from tests.tables import Row, compact, live_files, make_table, rows, write

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "n": "BIGINT", "v": "STRING"}
SUM = {"fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "last_non_null_value"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {},
    "aggregation": SUM,
    "first-row": {},
}
EXPECTED: dict[str, Row] = {
    "deduplicate": {"n": None, "v": "2/5"},
    "partial-update": {"n": 105, "v": "2/5"},
    "aggregation": {"n": 110, "v": "2/5"},
    "first-row": {"n": 5, "v": None},
}
"""What becomes of key 5."""


def runs(context: TableContext) -> list[tuple[bytes, int, list[tuple[int, int, bytes, bytes]]]]:
    """Bucket -> the level, row count and key range of its files."""
    found = bucket_files(context, context.snapshots.latest()).values()
    return sorted((b.partition, b.bucket, [(f.level, f.row_count, f.min_key, f.max_key) for f in b.files]) for b in found)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.in_part(2)
def test_each_merge_engine_compacts_as_in_this_process(engine: str, spark_engine: SparkEngine, tmp_path: Path) -> None:
    options = {"write-only": "true", "merge-engine": engine, **ENGINES[engine]}
    there = make_table(tmp_path / "there", COLUMNS, ["p", "k"], ["p"], 2, options)
    for number in range(3):  # each value is missing from one of the runs
        keys = range(number, 60, number + 1)
        values = [(None if number == 2 else 100 * number + k, None if number == 0 else f"{number}/{k}") for k in keys]
        write(there, [{"p": f"p{k % 3}", "k": k, "n": n, "v": v} for k, (n, v) in zip(keys, values, strict=True)])
    shutil.copytree(tmp_path / "there", tmp_path / "here")
    here = TableContext.open(str(tmp_path / "here"))
    before = rows(there)
    (known,) = (row for row in before if row["k"] == 5)
    assert {name: known[name] for name in ("n", "v")} == EXPECTED[engine]
    compact(here)
    summary = run_compact(there, CompactRequest(), spark_engine, NoProgress())
    assert (summary.engine, len(live_files(there))) == ("spark", 6)
    assert rows(there) == rows(here) == before
    assert runs(there) == runs(here)


VECTORS = {"deletion-vectors.enabled": "true"}
PRODUCERS: dict[str, dict[str, str]] = {
    "vectors-input": VECTORS | {"changelog-producer": "input"},
    "vectors-lookup-aggregation": VECTORS | {"changelog-producer": "lookup", "merge-engine": "aggregation", **SUM},
    "lookup-first-row": {"changelog-producer": "lookup", "merge-engine": "first-row"},
    "full-compaction": {"changelog-producer": "full-compaction"},
}


def marked(context: TableContext) -> list[tuple[bytes, int, list[list[int] | None]]]:
    """Bucket -> the rows of each file that a vector marks."""
    found = []
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        vectors = load_vectors(context, bucket)
        rows_of = [vectors.of(file.file_name) for file in bucket.files]
        found.append((bucket.partition, bucket.bucket, [None if one is None else list(one.positions) for one in rows_of]))
    return sorted(found)


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.in_part(2)
def test_vectors_and_changelogs_are_those_of_this_process(producer: str, spark_engine: SparkEngine, tmp_path: Path) -> None:
    has_deletes = "merge-engine" not in PRODUCERS[producer]
    options = {"num-sorted-run.compaction-trigger": "3", **PRODUCERS[producer]}
    there, here = (make_table(tmp_path / name, COLUMNS, ["p", "k"], ["p"], 2, options) for name in ("there", "here"))
    for number in range(3):
        kinds = ["-D" if has_deletes and number and k % 5 == 0 else "+I" for k in range(40)]
        given: list[Row] = [
            {"p": f"p{k % 2}", "k": k, "n": k * number, "v": f"{number // 2}/{k}", "_op": kind}
            for k, kind in enumerate(kinds)
            if k % (number + 1) == 0
        ]
        write(there, given, engine=spark_engine)
        write(here, given)
        request = CompactRequest("full" if number == 2 else "minor")
        run_compact(there, request, spark_engine, NoProgress())
        run_compact(here, request, LocalEngine(), NoProgress())
        assert rows(there) == rows(here) != []
        assert marked(there) == marked(here)
    latest = there.snapshots.latest(), here.snapshots.latest()
    assert latest[0] is not None and latest[1] is not None and latest[0].id == latest[1].id
    changelogs = [[sorted(changelog(context, at + 1)) for at in range(latest[0].id)] for context in (there, here)]
    assert changelogs[0] == changelogs[1] and any(changelogs[0])


@pytest.mark.in_part(2)
def test_ranges_of_keys_are_tasks(spark_engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A section that is cut and committed range by range, and one whose ranges share a commit."""
    monkeypatch.setattr(PIECES, "row_group_bytes", 4000)
    monkeypatch.setattr(PIECES, "batch_rows", 300)
    monkeypatch.setattr(PIECES, "least_groups_of_range", 1)
    for name, size, ranges_share in (("many", "4kb", False), ("one", "1gb", True)):
        options = {"write-only": "true", "target-file-size": size, "parquet.enable.dictionary": "false"}
        context = make_table(tmp_path / name, {"k": "INT NOT NULL", "t": "STRING"}, ["k"], options=options)
        write(context, [{"k": k, "t": f"text {k * 7919 % 10007}"} for k in range(3000)])
        compact(context, ranges_over=None)
        write(context, [{"k": k, "t": None} for k in range(0, 3300, 70)])
        expected = rows(context)
        done = run_compact(context, CompactRequest(ranges_over=1), spark_engine, NoProgress())
        (task,) = done.plan.tasks
        assert done.engine == "spark" and task.ranges > 2
        assert len(done.snapshots) == (1 if ranges_share else task.ranges + 1)
        assert rows(context) == expected
        assert {level for _, _, found in runs(context) for level, *_ in found} == {context.options.num_levels - 1}
