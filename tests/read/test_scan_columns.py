"""Plans on columns are the plans that look at one file after the other."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from paimon_cli.history import table_state
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read import scan_plan
from paimon_cli.read.planned_splits import PlannedSplits
from paimon_cli.read.predicate import parse_predicate
from paimon_cli.read.scan_plan import ScanPlan, plan_scan
from tests.goldens import GOLDENS, Golden, golden_table
from tests.tables import compact, make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "s": "STRING NOT NULL", "v": "INT"}


def both_plans(
    context: TableContext, snapshot: Snapshot | None, monkeypatch: pytest.MonkeyPatch, where: str | None = None, **asked: object
) -> tuple[ScanPlan, ScanPlan]:
    predicate = None if where is None else parse_predicate(where, context.schema)
    plans = []
    for many in (10**9, 0):
        monkeypatch.setattr(table_state, "MANY_ENTRIES", many)
        plans.append(plan_scan(context, snapshot, predicate, **asked))  # type: ignore[arg-type]
    return plans[0], plans[1]


UNCOUNTED = ("partitions", "partitions_skipped", "files", "files_skipped_by_partition")


def assert_same(plain: ScanPlan, fast: ScanPlan, skips_blocks: bool = False) -> None:
    assert list(fast.splits) == list(plain.splits) and fast.splits == plain.splits
    assert fast.counts.files <= plain.counts.files
    same = {name: getattr(plain.counts, name) for name in UNCOUNTED} if skips_blocks else {}
    assert replace(fast.counts, **same) == plain.counts
    assert (fast.size, fast.row_count, fast.splits_to_merge) == (plain.size, plain.row_count, plain.splits_to_merge)
    assert fast.splits[:2] == plain.splits[:2]


@pytest.mark.parametrize("golden", GOLDENS, ids=str)
def test_plans_of_golden_tables(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    for snapshot in islice(context.snapshots.newest_first(), 4):
        for asked in ({}, {"read_optimized": True}, {"buckets": [1]}):
            assert_same(*both_plans(context, snapshot, monkeypatch, **asked))


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
    for where in (None, "dt = '1'", "dt > '0'", "dt = 'none'", "k = 3", "dt = '1' AND k < 4"):
        assert_same(*both_plans(context, snapshot, monkeypatch, where), where is not None and "dt =" in where)
    keep = context.partition_values
    assert_same(*both_plans(context, snapshot, monkeypatch, keep_partition=lambda p: keep(p) != ("0",), buckets=[0, 2]))


def test_blocks_without_the_partition_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"day": "DATE NOT NULL", "n": "INT NOT NULL", "t": "STRING NOT NULL", "k": "INT NOT NULL"}
    context = make_table(tmp_path / "t", types, tuple(types), ("day", "n", "t"), 1, {"manifest.merge-min-count": "1000"})
    for number in range(4):
        write(context, [{"day": f"2024-05-0{number + 1}", "n": 70_000 + number, "t": f"text-{number}", "k": 1}])
    snapshot = context.snapshots.latest()
    for where in ("day = DATE '2024-05-02'", "n = 70001", "t = 'text-1' AND n > 5", "n IN (70001, 9) AND k = 1"):
        plain, fast = both_plans(context, snapshot, monkeypatch, where)
        assert_same(plain, fast, skips_blocks=True)
        assert len(fast.splits) == 1 and fast.counts.files == 1
    assert parse_predicate(f"n = {10**12}", context.schema).partition_marks is None
    assert_same(*both_plans(context, snapshot, monkeypatch, "n = 70001.0"), skips_blocks=True)
    assert parse_predicate("n > 5 OR t = 'a'", context.schema).partition_marks is None
    assert parse_predicate("k = 5", context.schema).partition_marks is None


def test_split_after_split_is_made_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ("k",), (), 4)
    write(context, [{"k": k} for k in range(40)])
    plain, fast = both_plans(context, context.snapshots.latest(), monkeypatch)
    assert isinstance(fast.splits, PlannedSplits) and len(fast.splits) == 4
    again = pickle.loads(pickle.dumps(fast))
    assert again.splits[-1] == plain.splits[-1] == fast.splits[3] and again.splits == plain.splits
    with pytest.raises(IndexError):
        fast.splits[4]
    assert fast.splits != plain.splits[:3]


def test_keys_without_words_are_planned_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"k": "STRING NOT NULL"}, ("k",))
    write(context, [{"k": "x" * 300}, {"k": "y"}])
    plain, fast = both_plans(context, context.snapshots.latest(), monkeypatch)
    assert isinstance(fast.splits, tuple) and fast == plain
    monkeypatch.setattr(scan_plan, "column_splits", None)  # nothing but partitions and buckets is asked there
    assert both_plans(context, context.snapshots.latest(), monkeypatch, "k = 'y'")[1].counts.files == 1
