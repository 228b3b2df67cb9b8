"""Buckets of every kind of table: totals, skew, what their indexes hold, and which command would improve them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.bucket_report import bucket_rows, indexed_bucket_rows, partition_rows
from paimon_cli.inspect.findings.bucket_rules import BIGGEST_BUCKET, MANY_BUCKETS, SMALLEST_BUCKET, better_bucket_count
from paimon_cli.options.table_options import MB
from tests.goldens import golden_table
from tests.tables import make_table, rows, write

COLUMNS = {"p": "STRING", "k": "INT NOT NULL", "v": "STRING"}


def test_skew_counts_empty_buckets(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=4, options={"bucket-function.type": "mod"})
    write(context, [{"k": k} for k in range(1, 4000, 4)] + [{"k": 2}])
    one, other = bucket_rows(context, bucket_files(context, context.snapshots.latest()).values())
    assert (one.bucket, other.bucket) == (1, 2)
    assert one.skew == round(4 * one.size / (one.size + other.size), 2) > 3
    assert round(one.skew + other.skew, 1) == 4.0


@pytest.mark.parametrize(("writer", "name"), [("java-0.9", "dynamic_bucket"), ("java-1.4", "dynamic")])
def test_hash_indexes_hold_every_key(tmp_path: Path, writer: str, name: str) -> None:
    context = TableContext.open(str(golden_table(writer, name, tmp_path)))
    found = indexed_bucket_rows(context, bucket_files(context, context.snapshots.latest()).values())
    assert all(row.hash_count is not None and row.total_buckets == -1 and row.index_size >= 4 for row in found)
    assert sum(row.hash_count or 0 for row in found) >= len(rows(context))
    assert {row.vectors for row in found} == {0}


def test_vectors_are_counted_with_their_rows(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"deletion-vectors.enabled": "true"})
    write(context, [{"k": k} for k in range(100)])
    Table.open(context.url).compact(strategy="full")
    write(context, [{"k": k} for k in range(7)])
    Table.open(context.url).compact(strategy="minor")
    (row,) = indexed_bucket_rows(context, bucket_files(context, context.snapshots.latest()).values())
    assert (row.vectors, row.vector_rows, row.hash_count) == (1, 7, None)


def test_vectors_of_files_that_are_gone_take_no_rows_away(tmp_path: Path) -> None:
    """Other writers leave them behind."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"deletion-vectors.enabled": "true"})
    write(context, [{"k": k} for k in range(10)])
    Table.open(context.url).compact(strategy="full")
    write(context, [{"k": k} for k in range(3)])
    Table.open(context.url).compact(strategy="minor")
    (state,) = bucket_files(context, context.snapshots.latest()).values()
    (index,) = state.index_files
    (own,) = index.deletion_vector_ranges or ()
    for ranges in ((own,), (replace(own, data_file_name="data-gone-0.parquet"), own)):
        left = replace(state, index_files=(replace(index, deletion_vector_ranges=ranges),))
        (row,) = bucket_rows(context, [left])
        assert row.visible_rows == 10


def test_null_and_odd_texts_are_partitions_of_their_own(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], ["p"], bucket=-1)
    write(context, [{"p": p, "k": k, "v": "a"} for p in (None, "a/b=c", "é, x=1") for k in range(3)])
    found = bucket_rows(context, bucket_files(context, context.snapshots.latest()).values())
    assert [(row.partition, row.rows, row.sorted_runs, row.skew) for row in found] == [
        ("p=__DEFAULT_PARTITION__", 3, None, 1.0),
        ("p=a/b=c", 3, None, 1.0),
        ("p=é, x=1", 3, None, 1.0),
    ]
    assert [row.partition for row in partition_rows(context, context.snapshots.latest())] == [row.partition for row in found]


def test_a_compaction_that_is_due_is_advised(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=1, options={"write-only": "true"})
    for _ in range(4):
        write(context, [{"k": 1}])
    table = Table.open(context.url)
    assert [row.advice for row in table.buckets()] == [None]
    write(context, [{"k": 1}])
    (row,) = table.buckets()
    command = f"paimon-cli compact {context.url} --strategy minor"
    assert (row.advice, row.reason, row.code) == (command, "compaction is due", "PD027")
    table.compact(strategy="minor")
    assert [row.advice for row in table.buckets()] == [None]
    assert [row.advice for row in table.buckets(snapshot=5)] == [None], "the command would not change that snapshot"


@pytest.mark.parametrize(
    ("total", "sizes", "better"),
    [
        (1, [], None),
        (4, [0], None),
        (1, [100], None),
        (3, [100], None),
        (MANY_BUCKETS, [SMALLEST_BUCKET - 1], None),
        (MANY_BUCKETS + 1, [100], 1),
        (2, [SMALLEST_BUCKET], 1),
        (2, [2 * SMALLEST_BUCKET, 5], None),
        (2, [2 * BIGGEST_BUCKET], None),
        (2, [2 * BIGGEST_BUCKET + 2], 5),
        (8, [2000 * MB, 1 * MB], None),
        (16, [2000 * MB, 1 * MB], 4),
    ],
)
def test_better_numbers_of_buckets(total: int, sizes: list[int], better: int | None) -> None:
    assert better_bucket_count(total, sizes) == better
