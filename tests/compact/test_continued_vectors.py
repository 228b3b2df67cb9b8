"""Tables with deletion vectors of other engines, continued here: their vectors are kept, extended and taken over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.index_report import vector_rows
from paimon_cli.invariants.check import check_table
from tests.goldens import GOLDENS, Golden, expected_rows, golden_table
from tests.invariants.damaged_tables import Bench
from tests.invariants.damages import relist, vector_entry, with_ranges
from tests.tables import compact, rows, write

VECTORS = [golden for golden in GOLDENS if golden.options.get("deletion-vectors.enabled") == "true"]
MARKED = [golden for golden in VECTORS if golden.schema["primaryKeys"]]
WRITTEN = [g for g in MARKED if int(g.options.get("bucket", "-1")) > 0 and g.options.get("merge-engine") in (None, "deduplicate")]


def expected(golden: Golden) -> list[str]:
    return sorted(json.dumps(row) for row in expected_rows(golden))


def shown(context: TableContext) -> list[str]:
    return sorted(json.dumps(row) for row in rows(context))


def marked(context: TableContext) -> int:
    buckets = bucket_files(context, context.snapshots.latest()).values()
    return sum(len(vector.positions) for bucket in buckets for vector in load_vectors(context, bucket).by_file.values())


def problems(context: TableContext) -> set[str]:
    return {found.code for found in check_table(context, rows=True)}


@pytest.mark.in_part(6)
@pytest.mark.parametrize("golden", MARKED, ids=str)
def test_a_compaction_of_a_foreign_table_changes_no_row(golden: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    before = problems(context)
    compact(context, strategy="minor")
    assert shown(context) == expected(golden)
    compact(context, strategy="full")
    assert shown(context) == expected(golden) and marked(context) == 0
    assert problems(context) <= before


@pytest.mark.in_part(3)
@pytest.mark.parametrize("golden", WRITTEN, ids=str)
def test_rows_written_and_deleted_here_mark_those_of_others(golden: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    before, there = problems(context), expected_rows(golden)
    chosen, others = there[::3], [row for row in there if row not in there[::3]]
    write(context, chosen, op="delete")
    assert shown(context) == sorted(map(json.dumps, others))
    write(context, [*chosen, *others[::2]])
    assert shown(context) == expected(golden) and problems(context) <= before


def test_vectors_that_others_left_without_their_file_go_with_the_next_compaction(tmp_path: Path) -> None:
    bench = Bench(golden_table("java-0.9", "dv_dedup", tmp_path))
    entry = vector_entry(bench)
    (first, *others) = entry.index_file.deletion_vector_ranges or ()
    gone: Any = type(first)("data-gone-0.parquet", first.offset, first.length, first.cardinality)
    relist(bench, entry, with_ranges(entry, gone, *others))
    context = TableContext.open(str(bench.root))
    assert [row.file for row in vector_rows(context, context.snapshots.latest(), None, None) if row.level is None]
    write(context, expected_rows(next(golden for golden in MARKED if golden.name == "dv_dedup"))[:5])
    assert not [row.file for row in vector_rows(context, context.snapshots.latest(), None, None) if row.level is None]
