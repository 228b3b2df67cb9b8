"""Compactions keep the rows, drop what they may, and bound the number of runs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket import merged_rows
from paimon_cli.compact.bucket_compactor import FullChangelogRewriter, LookupRewriter, MergeRewriter, rewriter_of
from paimon_cli.compact.compaction_plan import plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask, SkippedBucket
from paimon_cli.errors import DamagedFile, PartialSuccess
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW
from tests.tables import compact, data_files, live_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "s": "STRING", "n": "BIGINT"}

WRITE_ONLY = {"write-only": "true"}


def random_commits(context: TableContext, seed: int, commits: int) -> dict[int, dict[str, Any]]:
    """Write random upserts and deletes. Returns the rows that the table must hold."""
    r = random.Random(seed)
    expected: dict[int, dict[str, Any]] = {}
    for _ in range(commits):
        changes = []
        for _ in range(r.randrange(1, 40)):
            row: dict[str, Any] = {"k": r.randrange(60), "s": "x" * r.randrange(20), "n": r.randrange(1000)}
            kind = r.choice(["+I", "+I", "+U", "-D"])
            changes.append({**row, "_op": kind})
            if kind == "-D":
                expected.pop(row["k"], None)
            else:
                expected[row["k"]] = row
        write(context, changes)
    return expected


@pytest.mark.in_part(2)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strategy", ["full", "minor"])
def test_rows_are_the_same_before_and_after(tmp_path: Path, seed: int, strategy: str) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options=WRITE_ONLY)
    expected = random_commits(context, seed, 7)
    wanted = sorted(expected.values(), key=lambda row: row["k"])
    assert sorted(rows(context), key=lambda row: row["k"]) == wanted
    summary = compact(context, strategy=strategy)
    assert summary.buckets == 2
    assert [snapshot.commit_kind for snapshot in summary.snapshots] == ["COMPACT"]
    assert sorted(rows(context), key=lambda row: row["k"]) == wanted
    assert sorted(rows(context, snapshot_id=7), key=lambda row: row["k"]) == wanted
    latest = context.snapshots.latest()
    assert latest is not None
    total = latest.total_record_count
    assert total == len(expected) if strategy == "full" else total >= len(expected)


def test_minor_compaction_keeps_deletes_that_may_hide_older_rows(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"num-sorted-run.compaction-trigger": "2"})
    write(context, [{"k": k, "s": "old" * 300, "n": 0} for k in range(2000)])
    compact(context, strategy="full")
    write(context, [{"k": 5, "s": "", "n": 0}], op="delete")
    write(context, [{"k": 7, "s": "", "n": 0}], op="delete")
    compact(context, strategy="minor")
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert {(file.level, file.delete_row_count) for file in bucket.files} == {(2, 0), (1, 2)}
    assert {row["k"] for row in rows(context)} == set(range(2000)) - {5, 7}
    compact(context, strategy="full")
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert [(file.level, file.row_count, file.delete_row_count) for file in bucket.files] == [(2, 1998, 0)]


def test_a_big_file_that_overlaps_nothing_is_upgraded_not_rewritten(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"target-file-size": "1 kb", **WRITE_ONLY})
    write(context, [{"k": k, "s": f"{k * 7919 % 1000003}", "n": k} for k in range(3000)])
    before = live_files(context)
    done = compact(context)
    assert (done.bytes_read, done.bytes_written) == (0, 0) and done.bytes_before > 0, "only levels have changed"
    assert live_files(context) == before
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert {file.level for file in bucket.files} == {5}


def test_pypaimons_hidden_deletes_are_not_carried_to_the_top_level(tmp_path: Path) -> None:
    """pypaimon counts 0 deletes for files with -D rows: such a file must be rewritten, not upgraded (format 11.1)."""
    from tests.goldens import golden_table

    context = TableContext.open(str(golden_table("pypaimon-2.1", "rowkind_deletes", tmp_path)))
    before = rows(context)
    compact(context)
    assert rows(context) == before
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        for batch in merged_rows.read_bucket(context, bucket, ["_VALUE_KIND"], keep_kinds=True):
            assert set(batch.column("_VALUE_KIND").to_pylist()) <= {0, 2}


def test_a_second_compaction_finds_nothing_to_do(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "s": "a", "n": 1}])
    assert compact(context).buckets == 1
    again = compact(context)
    assert (again.buckets, again.snapshots) == (0, ())


@pytest.mark.parametrize("buckets", [1, 2])
def test_a_failed_compaction_leaves_no_file_and_costs_its_bucket_only(tmp_path: Path, buckets: int) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=buckets, options={"target-file-size": "1 kb", **WRITE_ONLY})
    for start in range(3):
        write(context, [{"k": k, "s": f"{k * 7919}", "n": k} for k in range(start, 3000)])
    damaged = sorted(live_files(context))[-1]
    path = tmp_path / "t" / damaged
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(bytes(content))
    before, snapshot = data_files(context), context.snapshots.latest_id()
    with pytest.raises(DamagedFile if buckets == 1 else PartialSuccess) as failure:
        compact(context)
    assert damaged in str(failure.value)
    assert data_files(context) == before | live_files(context)
    assert snapshot is not None and context.snapshots.latest_id() == snapshot + buckets - 1
    assert {name for name in live_files(context) if "bucket-1" in name} <= before or buckets == 1


def test_the_plan_gives_the_reason_why_a_bucket_is_left_alone(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "s": "a", "n": 1}])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    left = plan_bucket(context, bucket, "minor", 1)
    assert isinstance(left, SkippedBucket)
    assert left.reason == "1 run < trigger 5"
    assert isinstance(plan_bucket(context, bucket, "full", 1), CompactionTask)


@pytest.mark.parametrize(
    ("options", "level", "rewriter"),
    [
        ({}, 5, MergeRewriter),
        ({"changelog-producer": "input"}, 5, MergeRewriter),
        ({"changelog-producer": "lookup"}, 1, LookupRewriter),
        ({"changelog-producer": "lookup"}, 5, LookupRewriter),
        ({"merge-engine": "first-row"}, 5, LookupRewriter),
        ({"deletion-vectors.enabled": "true"}, 5, LookupRewriter),
        ({"changelog-producer": "full-compaction"}, 5, FullChangelogRewriter),
        ({"changelog-producer": "full-compaction"}, 4, MergeRewriter),
    ],
)
def test_what_rewrites_the_files(tmp_path: Path, options: dict[str, str], level: int, rewriter: type) -> None:
    """Only a compaction into the top level knows all rows, of which it writes the changes."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=1, options=options)
    task = CompactionTask(EMPTY_ROW, 0, 1, (), level, 5, level == 5, "r", "a", 2, 1, 1)
    assert type(rewriter_of(context, task, lambda: False)) is rewriter
