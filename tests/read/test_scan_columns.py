"""Splits equal those of a plain plan that goes through one file after the other."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import TableBounds
from paimon_cli.read.scan_plan import PlannedSplits, ReadPlan, Split, plan_scan
from paimon_cli.sql.predicate import Predicate, parse_predicate
from tests.goldens import GOLDENS, Golden, golden_table
from tests.tables import compact, make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "s": "STRING NOT NULL", "v": "INT"}


class PlainPlan:
    """The splits of a snapshot, bucket by bucket and file by file."""

    def __init__(self, context: TableContext, predicate: Predicate | None = None) -> None:
        self.context, self.predicate, self.bounds = context, predicate, TableBounds(context)

    def splits(
        self,
        snapshot: Snapshot | None,
        keep_partition: Callable[[bytes], bool] = lambda partition: True,
        buckets: list[int] | None = None,
        read_optimized: bool = False,
    ) -> list[Split]:
        context, found = self.context, []
        whole = sorted(bucket_files(context, snapshot).values(), key=lambda b: (context.partition_path_of(b.partition), b.bucket))
        for bucket in whole:
            if bucket.bucket < 0 or not keep_partition(bucket.partition) or (buckets and bucket.bucket not in buckets):
                continue
            if self.may_match(self.bounds.of_partition(bucket.partition)):
                top = context.options.num_levels - 1
                hides = context.mode.hides_level_0
                files = [file for file in bucket.files if not (hides and file.level == 0)]
                files = [file for file in files if file.level == top or not (read_optimized and context.schema.primary_keys)]
                found += self.of_bucket(bucket, files)
        return found

    def of_bucket(self, bucket: BucketFiles, files: list[DataFileMeta]) -> list[Split]:
        if not self.context.mode.reads_merge:
            sections = [[file] for file in sorted(files, key=lambda f: (f.min_sequence_number, f.creation_time_millis or 0))]
        else:
            files = [file for file in files if self.may_match(self.bounds.of_keys(*bucket.bucket_id, file))]
            runs = key_sections(files, self.context.key_of)
            sections = [[file for run in section for file in run.files] for section in runs]
        mixes = self.context.options.merge_engine.combines_versions
        sections = [
            members
            for members in sections
            if (len(members) > 1 and mixes) or any(self.may_match(self.bounds.of_file(*bucket.bucket_id, f)) for f in members)
        ]
        limit, least = self.context.options.split_target_size, self.context.options.split_open_file_cost
        if self.context.mode.deletion_vectors and not self.context.mode.reads_merge and self.context.schema.primary_keys:
            limit = 0  # few files, each read for itself
        packs: list[list[list[DataFileMeta]]] = []
        filled = 0
        for members in sections:
            weight = max(sum(file.file_size for file in members), least)
            if not packs or filled + weight > limit:
                packs.append([])
                filled = 0
            packs[-1].append(members)
            filled += weight
        return [_split(bucket, pack) for pack in packs]

    def may_match(self, bounds: object) -> bool:
        return self.predicate is None or self.predicate.may_match(bounds)  # type: ignore[arg-type]


def _split(bucket: BucketFiles, sections: list[list[DataFileMeta]]) -> Split:
    """Files to be merged are in the order of the bucket, which decides between equal sequence numbers."""
    files, merges = [file for members in sections for file in members], any(len(members) > 1 for members in sections)
    return Split(replace(bucket, files=tuple(sorted(files, key=bucket.files.index) if merges else files)), merges)


def assert_planned(context: TableContext, snapshot: Snapshot | None, where: str | None = None, **asked: object) -> ReadPlan:
    predicate = None if where is None else parse_predicate(where, context.schema)
    plan = plan_scan(context, snapshot, predicate, **asked)  # type: ignore[arg-type]
    if predicate is not None:
        asked = {**asked, "buckets": asked.get("buckets")}
    expected = PlainPlan(context, predicate).splits(snapshot, **asked)  # type: ignore[arg-type]
    if predicate is not None:  # rows of other buckets do not match: those are left out too
        holding = {b.total_buckets: predicate.buckets(b.total_buckets) for b in bucket_files(context, snapshot).values()}
        expected = [s for s in expected if (known := holding[s.bucket.total_buckets]) is None or s.bucket.bucket in known]
    assert list(plan.splits) == expected and plan.splits == tuple(expected) and plan.splits[:2] == tuple(expected[:2])
    sizes = (sum(s.size for s in expected), sum(s.row_count for s in expected), sum(s.needs_merge for s in expected))
    assert (plan.size, plan.row_count, plan.splits_to_merge) == sizes
    counts, left = plan.counts, sum(len(split.bucket.files) for split in expected)
    skipped = counts.files_skipped_by_partition + counts.files_skipped_by_bucket + counts.files_skipped_by_level
    skipped += counts.files_skipped_by_key + counts.files_skipped_by_value + counts.files_skipped_by_index
    assert counts.files == left + skipped, "each live file is read or skipped"
    return plan


@pytest.mark.in_part(12)
@pytest.mark.parametrize("golden", GOLDENS, ids=str)
def test_plans_of_golden_tables(golden: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    for snapshot in islice(context.snapshots.newest_first(), 4):
        assert_planned(context, snapshot)
        assert_planned(context, snapshot, read_optimized=True)
        assert_planned(context, snapshot, buckets=[1])


@pytest.mark.in_part(2)
@pytest.mark.parametrize("seed", range(4))
def test_plans_of_random_tables(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(seed)
    options = {"target-file-size": "1 kb", "num-sorted-run.compaction-trigger": "100"}
    options |= {"source.split.target-size": source.choice(["2 kb", "9 kb"]), "source.split.open-file-cost": "1 b"}
    context = make_table(tmp_path / "t", COLUMNS, ("dt", "k", "s"), ("dt",), 3, options)
    for _ in range(5):
        low, high = sorted((source.randrange(90), source.randrange(90)))
        rows = [{"dt": f"{k % 3}", "k": k // 9, "s": f"key {k}" * (k % 4), "v": k} for k in range(low, high + 1)]
        write(context, rows)
        if source.random() < 0.4:
            compact(context, strategy="full")
    snapshot = context.snapshots.latest()
    for many in (10**9, 0):
        monkeypatch.setattr(PIECES, "many_entries", many)
        for where in (None, "dt = '1'", "dt > '0'", "dt = 'none'", "k = 3", "dt = '1' AND k < 4", "v > 50"):
            assert_planned(context, snapshot, where)
    keep = context.partition_values
    assert_planned(context, snapshot, keep_partition=lambda p: keep(p) != ("0",), buckets=[0, 2])


def test_blocks_without_the_partition_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if there are many entries; the files of few entries are counted."""
    types = {"day": "DATE NOT NULL", "n": "INT NOT NULL", "t": "STRING NOT NULL", "k": "INT NOT NULL"}
    context = make_table(tmp_path / "t", types, tuple(types), ("day", "n", "t"), 1, {"manifest.merge-min-count": "1000"})
    for number in range(4):
        write(context, [{"day": f"2024-05-0{number + 1}", "n": 70_000 + number, "t": f"text-{number}", "k": 1}])
    snapshot = context.snapshots.latest()
    for where in ("day = DATE '2024-05-02'", "n = 70001", "t = 'text-1' AND n > 5", "n IN (70001, 9) AND k = 1"):
        monkeypatch.setattr(PIECES, "many_entries", 5)
        skipped = 4 - assert_planned(context, snapshot, where).counts.manifests_skipped
        assert assert_planned(context, snapshot, where).counts.files == skipped
        monkeypatch.setattr(PIECES, "many_entries", 0)
        fast = assert_planned(context, snapshot, where)
        assert len(fast.splits) == 1 and fast.counts.files == 1
    assert parse_predicate(f"n = {10**12}", context.schema).partition_marks is None
    assert_planned(context, snapshot, "n = 70001.0")
    assert parse_predicate("n > 5 OR t = 'a'", context.schema).partition_marks is None
    assert parse_predicate("k = 5", context.schema).partition_marks is None


def test_splits_are_made_on_demand(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ("k",), (), 4)
    write(context, [{"k": k} for k in range(40)])
    plan = assert_planned(context, context.snapshots.latest())
    assert isinstance(plan.splits, PlannedSplits) and len(plan.splits) == 4
    again, plain = pickle.loads(pickle.dumps(plan)), tuple(plan.splits)
    assert again.splits[-1] == plain[-1] == plan.splits[3] and again.splits == plain
    with pytest.raises(IndexError):
        plan.splits[4]
    assert plan.splits != plain[:3]


def test_keys_whose_bytes_have_no_order(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "STRING NOT NULL"}, ("k",), (), 1, {"num-sorted-run.compaction-trigger": "100"})
    for rows in (["x" * 300, "y"], ["x" * 301, "x" * 302], ["z" * 300], ["a"]):
        write(context, [{"k": key} for key in rows])
    plan = assert_planned(context, context.snapshots.latest())
    assert plan.splits_to_merge == 1
    assert assert_planned(context, context.snapshots.latest(), "k = 'y'").counts.files_skipped_by_key == 3
