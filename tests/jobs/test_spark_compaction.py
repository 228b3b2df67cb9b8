"""Compactions as Spark tasks: for each merge engine the very rows of a compaction in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_job import CompactRequest, run_compact
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
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
    """Of every bucket the level, row count and key range of its files."""
    found = bucket_files(context, context.snapshots.latest()).values()
    return sorted((b.partition, b.bucket, [(f.level, f.row_count, f.min_key, f.max_key) for f in b.files]) for b in found)


@pytest.mark.parametrize("engine", ENGINES)
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
