"""Which bucket count a partition should have: by its largest bucket, in powers of two, and never back and forth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paimon_cli.compact import bucket_counts
from paimon_cli.compact.bucket_counts import (
    MOST_WAYS,
    SETTLED_MILLIS,
    CountDecision,
    countable_partitions,
    decide_counts,
)
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import BucketFiles, LazyBuckets
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, EntryKind, ManifestEntry, SimpleStats
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.table_options import MB
from paimon_cli.storage.injected import local_wall_clock
from tests.commit.commit_tables import data_file
from tests.tables import make_table

GB = 1024 * MB


def decide(
    folder: Path, sizes: Mapping[int, float], total: int, age_millis: int = SETTLED_MILLIS, rows: int = 1, **options: str
) -> CountDecision:
    """The decision about buckets of these sizes, in GB."""
    own = {f"postpone.{name.replace('_', '-')}": value for name, value in options.items()}
    context = make_table(folder, {"k": "INT NOT NULL"}, ["k"], bucket=-2, options=own)
    made = local_wall_clock(context.clock.now_millis()) - age_millis
    stats = SimpleStats()
    held = [
        BucketFiles(
            EMPTY_ROW,
            number,
            total,
            (DataFileMeta("f", int(size * GB), rows, b"", b"", stats, stats, 0, 0, 0, 5, creation_time_millis=made),),
        )
        for number, size in sizes.items()
    ]
    (decision,) = decide_counts(context, {EMPTY_ROW: held})
    return decision


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ({0: 2.5}, 1, 4),
        ({0: 1.8, 1: 1.9}, 2, 2),
        (dict.fromkeys(range(63), 0.02) | {63: 0.04}, 64, 4),
        ({0: 3.0} | dict.fromkeys(range(1, 16), 0.01), 16, 16),
        ({0: 100.0}, 1, MOST_WAYS),
        ({0: 0.01}, 1, 1),
        (dict.fromkeys(range(3), 0.01), 3, 3),
        (dict.fromkeys(range(6), 0.01), 6, 3),
    ],
)
def test_the_examples(sizes: dict[int, float], total: int, expected: int, tmp_path: Path) -> None:
    decision = decide(tmp_path / "t", sizes, total)
    assert (decision.buckets, decision.new_buckets) == (total, expected)
    assert (decision.is_split, decision.is_merge) == (expected > total, expected < total)
    assert "GB" in decision.reason or "MB" in decision.reason
    assert bucket_counts.__doc__ is not None and "| 64 | 40 MB |" in bucket_counts.__doc__


def test_a_target_in_rows(tmp_path: Path) -> None:
    decision = decide(tmp_path / "t", {0: 50.0}, 1, rows=201, target_row_num_per_bucket="100")
    assert decision.new_buckets == 4 and "201 rows" in decision.reason
    assert decide(tmp_path / "u", {0: 50.0}, 1, rows=200, target_row_num_per_bucket="100").new_buckets == 1


def test_small_buckets_are_merged_once_they_are_old(tmp_path: Path) -> None:
    sizes = dict.fromkeys(range(8), 0.01)
    young = decide(tmp_path / "young", sizes, 8, age_millis=SETTLED_MILLIS - 600_000)
    assert young.new_buckets == 8 and "may still grow" in young.reason
    assert decide(tmp_path / "old", sizes, 8).new_buckets == 1
    assert decide(tmp_path / "chosen", sizes, 8, default_bucket_num="4").new_buckets == 4
    assert decide(tmp_path / "kept", sizes, 8, default_bucket_num="8").new_buckets == 8


@pytest.mark.parametrize("seed", range(8))
def test_no_change_calls_for_the_opposite_one(seed: int, tmp_path: Path) -> None:
    """Whatever the sizes are: halves of what was split are not merged again, nor is a sum split again."""
    draw = np.random.default_rng(seed)
    total = 2 ** int(draw.integers(0, 9))
    sizes = {number: float(size) for number, size in enumerate(draw.lognormal(draw.uniform(-6, 3), 0.7, total))}
    first = decide(tmp_path / "first", sizes, total)
    after = {number: 0.0 for number in range(first.new_buckets)}
    for number, size in sizes.items():
        ways = max(1, first.new_buckets // total)
        for way in range(ways):
            after[(number + way * total) % first.new_buckets] += size / ways
    second = decide(tmp_path / "second", after, first.new_buckets)
    assert not (first.is_split and second.is_merge) and not (first.is_merge and second.is_split)


def test_many_versions_of_the_same_rows_are_no_growth(tmp_path: Path) -> None:
    """Twenty writes of the same 100 keys are 2,000 records before a compaction, and 100 rows after it."""
    context = make_table(
        tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=-2, options={"postpone.target-row-num-per-bucket": "100"}
    )
    stats = SimpleStats()
    files = tuple(DataFileMeta(f"f{number}", 1, 100, b"", b"", stats, stats, 0, 0, 0, 0) for number in range(20))
    (decision,) = decide_counts(context, {EMPTY_ROW: [BucketFiles(EMPTY_ROW, 0, 1, files)]})
    assert decision.new_buckets == 1 and decision.largest == 2000
    assert "but its largest sorted run only 100 rows: the rest may be older versions" in decision.reason
    merged = DataFileMeta("m", 1, 1000, b"", b"", stats, stats, 0, 0, 0, 5)
    (decision,) = decide_counts(context, {EMPTY_ROW: [BucketFiles(EMPTY_ROW, 0, 1, (*files, merged))]})
    assert decision.new_buckets == 16 and "1,000 rows in one sorted run" in decision.reason


def test_partitions_that_are_still_written_are_old_once_one_of_their_files_is(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=-2)
    now = local_wall_clock(context.clock.now_millis())
    files = tuple(replace(data_file("f"), creation_time_millis=now - age) for age in (SETTLED_MILLIS, 0))
    for held, expected in ((files, 1), (files[1:], 8)):
        (decision,) = decide_counts(context, {EMPTY_ROW: [BucketFiles(EMPTY_ROW, number, 8, held) for number in range(8)]})
        assert decision.new_buckets == expected


def test_partitions_with_files_of_two_counts_are_left_alone() -> None:
    """Splitting a bucket takes the count of all of its partition's files from the first one."""
    counts = {
        (b"mixed", 0): 2,
        (b"mixed", 1): 4,
        (b"plain", 0): 2,
        (b"plain", 1): 2,
        (b"waiting", POSTPONE_BUCKET): POSTPONE_BUCKET,
    }
    entries = [ManifestEntry(EntryKind.ADD, *bucket_id, total, data_file("f")) for bucket_id, total in counts.items()]
    found = countable_partitions(LazyBuckets(FileTable.of_entries(entries), {}))
    assert {partition: [bucket.bucket for bucket in buckets] for partition, buckets in found.items()} == {b"plain": [0, 1]}
