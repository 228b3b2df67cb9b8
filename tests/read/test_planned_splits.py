"""Plans of files that are given by their manifest entries alone: which are read together, in which order, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import STRING
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import LazyBuckets
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, EntryKind, ManifestEntry
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.read.pruning import Pruning
from paimon_cli.read.scan_plan import ReadPlan, Split, column_splits, plan_added, plan_scan
from paimon_cli.sql.predicate import parse_predicate
from tests.commit.commit_tables import data_file
from tests.tables import make_table

A, B = (serialize_row([name], [STRING]) for name in "ab")


def entry(name: str, low: int = 0, high: int = 9, *, at: BucketId | None = None, of: int = 4, **more: Any) -> ManifestEntry:
    """A file of keys `low` to `high`; `of`: its bucket count; `more`: its other fields."""
    partition, bucket = at or BucketId(EMPTY_ROW, 0)
    level = more.pop("level", 0)
    return ManifestEntry(EntryKind.ADD, partition, bucket, of, replace(data_file(name, low, high, level), **more))


def planned(context: TableContext, entries: Sequence[ManifestEntry], where: str = "", **pruned: Any) -> ReadPlan:
    pruning = Pruning(context, parse_predicate(where, context.schema) if where else None, **pruned)
    splits = column_splits(context, LazyBuckets(FileTable.of([ManifestTable.of(entries)]), {}), pruning)
    return ReadPlan(None, splits, pruning.counts, pruning.levels)


def names(splits: ReadPlan | Sequence[Split]) -> list[list[str]]:
    return [[file.file_name for file in split.files] for split in (splits.splits if isinstance(splits, ReadPlan) else splits)]


def keyed(folder: Path, key: str = "INT", **options: str) -> TableContext:
    texts = {"source.split.open-file-cost": "1 b"} | {name.replace("_", "-"): text for name, text in options.items()}
    return make_table(folder / "t", {"k": f"{key} NOT NULL"}, ("k",), options=texts)


def partitioned(folder: Path) -> TableContext:
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL"}
    return make_table(folder / "t", columns, ("p", "k"), ("p",), 4, {"source.split.open-file-cost": "1 b"})


SECTIONS = [entry("h", 25, 40), entry("i", 50, 59), entry("f", 0, 9), entry("g", 20, 29), entry("j", 59, 60)]
"""Oldest first; by key: f alone, g with h, i with j, which share a key only."""


def test_sections_are_merged_whichever_of_a_split_needs_it(tmp_path: Path) -> None:
    at_once = planned(keyed(tmp_path), SECTIONS)
    assert names(at_once) == [["h", "i", "f", "g", "j"]] and at_once.splits_to_merge == 1
    (split,) = at_once.splits
    assert split.needs_merge and (split.row_count, split.size) == (50, 5000) == (at_once.row_count, at_once.size)
    alone = planned(keyed(tmp_path / "s", **{"source.split.target-size": "1 b"}), SECTIONS)
    assert names(alone) == [["f"], ["h", "g"], ["i", "j"]], "within a split as in the bucket, oldest first"
    assert [split.needs_merge for split in alone.splits] == [False, True, True] and alone.splits_to_merge == 2
    splits = alone.splits
    assert [names([splits[number]]) for number in (-1, -3, 2, 0)] == [[["i", "j"]], [["f"]], [["i", "j"]], [["f"]]]
    assert names(splits[1:]) == [["h", "g"], ["i", "j"]] and names(splits[::-2]) == [["i", "j"], ["f"]]
    for outside in (3, -4):
        with pytest.raises(IndexError):
            splits[outside]


def test_keys_whose_bytes_do_not_compare_are_compared_as_values(tmp_path: Path) -> None:
    def file(name: str, low: str, high: str) -> ManifestEntry:
        least, greatest = (serialize_row([text * 300], [STRING]) for text in (low, high))
        return entry(name, min_key=least, max_key=greatest)

    context = keyed(tmp_path, "STRING", **{"source.split.target-size": "1 b"})
    files = [file("c", "d", "e"), file("a", "a", "b"), file("b", "b", "c"), file("z", "x", "z"), file("y", "y", "y")]
    assert names(planned(context, files)) == [["a", "b"], ["c"], ["z", "y"]]
    with pytest.raises(DamagedFile, match="least key that is greater"):
        planned(context, [*files, file("w", "w", "v")])


def test_keys_of_different_lengths_are_compared(tmp_path: Path) -> None:
    def file(name: str, low: Sequence[Any], high: Sequence[Any]) -> ManifestEntry:
        least, greatest = (serialize_row(key, [STRING, STRING]) for key in (low, high))
        return entry(name, min_key=least, max_key=greatest)

    columns = {"k": "STRING NOT NULL", "m": "STRING NOT NULL"}
    options = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
    context = make_table(tmp_path / "t", columns, ("k", "m"), options=options)
    long = "a text that is longer than a slot"
    files = [
        file("b", (long, "A"), (long + "!", long)),
        file("a", ("", ""), (long, long)),
        file("c", (long + "!!", ""), ("b", long)),
    ]
    assert names(planned(context, files)) == [["b", "a"], ["c"]]


@pytest.mark.parametrize("files", [1, 3])
def test_a_file_whose_least_key_exceeds_the_greatest_is_damage_if_it_is_read(tmp_path: Path, files: int) -> None:
    context = partitioned(tmp_path)
    wrong = entry("wrong", 7, 5, at=BucketId(A, 1))
    entries = [*(entry(f"f{number}", at=BucketId(A, 0)) for number in range(files - 1)), wrong]
    with pytest.raises(DamagedFile, match="of wrong has a least key"):
        planned(context, entries)
    assert names(planned(context, entries, buckets=[0])) == [[f"f{number}" for number in range(files - 1)]] * (files > 1)


def test_a_bucket_has_the_count_of_its_newest_file(tmp_path: Path) -> None:
    places = [(A, 1, 2), (B, 0, 3), (A, 1, 4), (A, 0, 5), (B, 0, 1), (B, 1, 7)]
    files = [entry(f"f{n}", 20 * n, at=BucketId(partition, bucket), of=of) for n, (partition, bucket, of) in enumerate(places)]
    files = [replace(made, file=replace(made.file, max_key=made.file.min_key)) for made in files]
    found = planned(partitioned(tmp_path), files).splits
    assert names(found) == [["f3"], ["f0", "f2"], ["f1", "f4"], ["f5"]]
    counts = [(split.bucket.partition, split.bucket.bucket, split.bucket.total_buckets) for split in found]
    assert counts == [(A, 0, 5), (A, 1, 4), (B, 0, 1), (B, 1, 7)]


def test_absurd_numbers_in_damaged_manifests_mix_nothing(tmp_path: Path) -> None:
    buckets = [BucketId(A, 2**32), BucketId(B, 0), BucketId(B, -(2**31) - 1), BucketId(A, 2**31), BucketId(B, 2**31)]
    found = planned(partitioned(tmp_path), [entry(f"f{number}", at=at) for number, at in enumerate(buckets)])
    kept = [(split.bucket.bucket_id, names([split])) for split in found.splits]
    assert sorted(kept) == sorted((at, [[f"f{number}"]]) for number, at in enumerate(buckets) if at.bucket >= 0)
    shown = planned(TableContext.open(str(tmp_path / "t")), [entry("f", at=buckets[3]), entry("g", at=BucketId(B, -(2**31)))])
    assert names(shown) == [["f"]]
    context = keyed(tmp_path / "s", **{"source.split.target-size": "10 b"})
    for sizes, packs in (([1, 2**63 - 1, 1, 1], [1, 1, 2]), ([2**62] * 5, [1] * 5), ([5, 5, -(2**63), 5], [2, 2])):
        files = [entry(f"f{number}", 10 * number, 10 * number + 9, file_size=size) for number, size in enumerate(sizes)]
        assert [len(split.files) for split in planned(context, files).splits] == packs


def test_partitions_of_which_no_file_is_read_are_not_listed(tmp_path: Path) -> None:
    context = partitioned(tmp_path)
    files = [entry("f0", 20, 29, at=BucketId(B, 0)), entry("f1", at=BucketId(A, 1)), entry("f2", at=BucketId(A, 0))]
    everything, some = planned(context, files), planned(context, files, "k < 5")
    assert (
        everything.partitions == [B, A] and some.partitions == [A] == ReadPlan(None, tuple(some.splits), some.counts).partitions
    )
    assert (some.counts.files_skipped_by_key, some.counts.buckets, some.counts.buckets_skipped) == (1, 3, 0)


def test_files_that_wait_are_counted_in_the_buckets_that_are_read(tmp_path: Path) -> None:
    context = keyed(tmp_path, **{"deletion-vectors.enabled": "true"})
    places = [(0, 0, 7), (0, 1, 10), (1, 0, 100), (1, 1, 1000)]
    files = [
        entry(f"f{b}{level}", 9 * n, 9 * n + 1, at=BucketId(EMPTY_ROW, b), level=level, row_count=rows)
        for n, (b, level, rows) in enumerate(places)
    ]
    plan = planned(context, files, buckets=[0])
    assert names(plan) == [["f01"]] and plan.levels == "above 0 only"
    counts = plan.counts
    assert (counts.files_skipped_by_level, counts.rows_skipped_by_level, counts.waiting_records) == (1, 7, 7)
    assert (counts.buckets, counts.buckets_skipped, counts.files_skipped_by_bucket) == (2, 1, 2)
    assert plan_scan(context, None).levels == "above 0 only"
    assert plan_scan(context, None, read_optimized=True).levels == f"{context.options.num_levels - 1} only"


def test_files_of_an_append_table_are_read_by_age(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"v": "INT"}, (), bucket=-1)
    none: dict[str, Any] = {"min_key": EMPTY_ROW, "max_key": EMPTY_ROW}
    ages = [(5, 9), (5, None), (0, 50), (5, -3), (0, None)]
    files = [
        entry(f"f{n}", **none, min_sequence_number=number, creation_time_millis=time) for n, (number, time) in enumerate(ages)
    ]
    assert names(planned(context, files)) == [["f4", "f2", "f3", "f1", "f0"]]


def test_added_files_are_shown_commit_by_commit_as_they_were_added(tmp_path: Path) -> None:
    """Whatever a read would merge, hide or sort; postponed rows only on request."""
    context = keyed(tmp_path, **{"deletion-vectors.enabled": "true"})
    first = [entry(f"f{n}", at=BucketId(EMPTY_ROW, n % 2), file_size=1000 - n, min_sequence_number=99 - n) for n in range(40)]
    second = [entry("late"), entry("waits", at=BucketId(EMPTY_ROW, -2))]
    plan = plan_added(context, None, [first, [], second], None)
    shown = [name for split in plan.splits for name in (file.file_name for file in split.files)]
    assert shown == [*(f"f{n}" for n in range(0, 40, 2)), *(f"f{n}" for n in range(1, 40, 2)), "late"]
    assert not any(split.needs_merge for split in plan.splits)
    arrivals = plan_added(context, None, [first, second], None, shows_postponed=True)
    assert sorted({file.file_name for split in arrivals.splits for file in split.files} - {*shown}) == ["waits"]
    evolves = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    with pytest.raises(NotSupported, match="cannot tell the changes"):
        plan_added(make_table(tmp_path / "e", {"v": "INT"}, (), bucket=-1, options=evolves), None, [], None)


def test_files_whose_columns_are_combined_are_read_by_range_of_ids(tmp_path: Path) -> None:
    """Those without ids come first, each alone; a range is in one split with all that overlap it."""
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "source.split.target-size": "1 b"}
    context = make_table(
        tmp_path / "t", {"p": "STRING", "v": "INT"}, (), ("p",), -1, options | {"source.split.open-file-cost": "1 b"}
    )
    ranges = [(A, 0, 10), (B, 10, 10), (A, 20, 9), (B, None, 10), (A, 0, 10), (B, None, 99), (A, 29, 1), (A, 5, 3), (B, 19, 1)]
    files = [
        entry(f"f{n}", at=BucketId(partition, 0), of=-1, first_row_id=first, row_count=rows)
        for n, (partition, first, rows) in enumerate(ranges)
    ]
    plan = planned(context, files, "v = 5")
    assert names(plan) == [["f0", "f4", "f7"], ["f2"], ["f6"], ["f3"], ["f5"], ["f1", "f8"]]
    assert [split.needs_merge for split in plan.splits] == [True, False, False, False, False, True]


def test_a_range_at_the_end_of_all_numbers_is_one(tmp_path: Path) -> None:
    """Its last id used to wrap, so that each of its files was a range of its own, whose rows came twice."""
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    context = make_table(tmp_path / "t", {"p": "STRING", "v": "INT"}, (), ("p",), -1, options)
    last = (1 << 63) - 2
    files = [entry(name, at=BucketId(A, 0), of=-1, first_row_id=last, row_count=5) for name in ("f0", "f1")]
    plan = planned(context, files, "v = 5")
    assert names(plan) == [["f0", "f1"]] and plan.splits[0].needs_merge
