"""Partitions that outgrow their buckets: services split them while writers go on, whatever is killed or committed in between."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.compact.bucket_counts import SETTLED_MILLIS
from paimon_cli.compact.compaction_task import CompactionTask, RegroupedPartition
from paimon_cli.errors import FilesConflict, PaimonError, StorageUnavailable
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_report import decision_rows
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.goal_merges import merges_of
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.maintenance import REQUEST, Quiet, RunLimits, maintain
from paimon_cli.jobs.service.next_round import NextStep, decisions_of
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.storage.injected import BelatedClock, SystemClock
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.nightly import at_night
from tests.rivals import Killed, Mortal, RivalStorage, beside
from tests.tables import compact, data_files, make_table, named_files, rows, write

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
TARGET = 10


def made(folder: Path, **options: str) -> TableContext:
    own = {"postpone.batch-write-fixed-bucket": "false", "postpone.target-row-num-per-bucket": str(TARGET)}
    return make_table(folder, COLUMNS, ["p", "k"], ["p"], -2, {**own, **options})


def put(context: TableContext, keys: Sequence[int], value: str = "x", partitions: str = "a") -> None:
    write(context, [{"p": p, "k": key, "v": value} for p in partitions for key in keys])


def round_of(context: TableContext, request: CompactRequest = REQUEST) -> CompactSummary:
    return run_compact(TableContext.open(context.url, clock=context.clock), request, LocalEngine(2), NoProgress())


def largest(context: TableContext) -> dict[str, tuple[int, int]]:
    """Partition -> its bucket count, and the stored rows of its largest bucket."""
    found: dict[str, tuple[int, int]] = {}
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        if bucket.bucket >= 0:
            path, size = context.partition_path_of(bucket.partition), sum(file.row_count for file in bucket.files)
            found[path] = (bucket.total_buckets, max(size, found.get(path, (0, 0))[1]))
    return found


def values(context: TableContext) -> dict[tuple[str, int], str]:
    return {(row["p"], row["k"]): row["v"] for row in rows(context)}


def test_a_partition_that_grows_a_hundredfold_under_a_writer(tmp_path: Path) -> None:
    context = made(tmp_path / "t", **{"changelog-producer": "lookup"})
    put(context, range(8), partitions="ab")
    round_of(context)
    Table.open(context.url).tags.create("small")
    small, expected = rows(context), values(context)
    put(context, range(800))
    expected |= {("a", key): "x" for key in range(800)}
    commits = iter(range(100))

    def writer() -> None:
        number = next(commits)
        put(context, [number, 900 + number], f"w{number}")
        expected.update({("a", key): f"w{number}" for key in (number, 900 + number)})

    for _ in range(2):
        before = next(commits)
        expected_before = before
        run_compact(beside(context, writer, writer, writer), REQUEST, LocalEngine(2), NoProgress())
        assert expected_before < next(commits), "the writer commits between plan and commit, and nothing is refused"
    count, most = largest(context)["p=a/"]
    assert count in (64, 128) and most <= 2 * TARGET and largest(context)["p=b/"] == (1, 8)
    round_of(context)
    assert values(context) == expected
    assert not list(check_table(TableContext.open(context.url), rows=True))
    assert Table.open(context.url).scan(tag="small").to_arrow().num_rows == len(small) == 16
    writes = [s for s in context.snapshots.newest_first() if s.commit_kind == "APPEND"]
    assert len(writes) == 2 + len([key for key in expected if key[1] >= 900])


def test_a_stream_sees_each_row_once(tmp_path: Path) -> None:
    context = made(tmp_path / "t", **{"changelog-producer": "lookup"})
    seen: Counter[tuple[int, str, str]] = Counter()
    last = 0
    for number in range(4):
        put(context, range(40 * 3**number), f"v{number}")
        round_of(context)
        latest = context.snapshots.latest_id() or 0
        for row in Table.open(context.url).changelog(last + 1, latest).to_arrow().to_pylist():
            seen[row["k"], row["v"], row["rowkind"]] += 1
        last = latest
    assert largest(context)["p=a/"][0] > 16
    assert set(seen.values()) == {1}
    assert {(k, v) for k, v, kind in seen if kind in ("+I", "+U")} >= {(row["k"], row["v"]) for row in rows(context)}
    assert sum(kind == "+I" for *_, kind in seen) == len(rows(context))


def test_small_buckets_become_fewer_once_they_are_a_day_old(tmp_path: Path) -> None:
    context = made(tmp_path / "t", **{"postpone.default-bucket-num": "8"})
    put(context, range(9))
    round_of(context)
    assert largest(context)["p=a/"][0] == 8
    own = {"postpone.target-row-num-per-bucket": "1000", "postpone.default-bucket-num": "2"}
    later = TableContext.open(context.url, own, clock=BelatedClock(context.clock, -2 * SETTLED_MILLIS))
    before = rows(context)
    summary = run_compact(later, REQUEST, LocalEngine(), NoProgress())
    assert (summary.regrouped, summary.buckets) == (1, 2) and largest(context)["p=a/"] == (2, 6)
    assert rows(context) == before and not list(check_table(context, rows=True))
    assert run_compact(later, REQUEST, LocalEngine(), NoProgress()).snapshots == ()


@pytest.mark.parametrize("step", [3, at_night(1)])
def test_a_run_that_is_killed_leaves_the_rows_and_the_next_one_does_it(step: int, tmp_path: Path) -> None:
    context = made(tmp_path / "t", **{"deletion-vectors.enabled": "true"})
    put(context, range(8))
    compact(context)
    put(context, range(4, 60), "y")
    compact(context)
    before = rows(context)
    kills = 0
    for number in range(0, 1000, step):
        copy = TableContext.open(str(shutil.copytree(tmp_path / "t", tmp_path / str(number))))
        mortal = Mortal(number)
        try:
            run_compact(replace(copy, storage=mortal), REQUEST, LocalEngine(), NoProgress())
        except Killed:
            kills += 1
        now = TableContext.open(copy.url)
        assert rows(now) == before and not list(check_table(now, rows=True))
        assert set(largest(now).values()) <= {(1, 60), (8, 11), (8, 10), (8, 9)} | {(8, most) for most in range(7, 13)}
        round_of(now)
        assert largest(now)["p=a/"][0] == 8 and rows(now) == before
        assert named_files(now) <= data_files(now)
        if mortal.left >= 0:
            break
        shutil.rmtree(now.url)
    else:
        raise AssertionError("the run never ends")
    assert kills >= 5 // step


def test_another_compaction_comes_first(tmp_path: Path) -> None:
    """The round plans the partition again on top of it; with `--on-conflict fail` it ends."""
    context = made(tmp_path / "t")
    put(context, range(60))
    round_of(context, CompactRequest("minor"))
    assert largest(context)["p=a/"][0] == 6
    small = {"postpone.target-row-num-per-bucket": "4"}

    def other() -> None:
        put(context, range(5), "new")
        compact(context, strategy="full")

    with pytest.raises(FilesConflict):
        run_compact(beside(context, other, options=small), replace(REQUEST, on_conflict="fail"), LocalEngine(), NoProgress())
    assert largest(context)["p=a/"][0] == 6 and data_files(context) == named_files(context)
    summary = run_compact(beside(context, other, options=small), REQUEST, LocalEngine(), NoProgress())
    assert (summary.regrouped, summary.conflicts) == (1, 1) and largest(context)["p=a/"][0] == 24
    assert {value for (_, key), value in values(context).items() if key < 5} == {"new"}
    assert data_files(context) == named_files(context) and not list(check_table(context, rows=True))


def test_a_failure_after_the_first_partition_leaves_what_was_committed(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    put(context, range(60), partitions="ab")
    round_of(context, CompactRequest("minor"))
    before, small = rows(context), {"postpone.target-row-num-per-bucket": "4"}

    def fail() -> None:
        raise StorageUnavailable("the store is away", "on purpose")

    failing = TableContext.open(context.url, small, storage=RivalStorage(lambda: None, fail))
    with pytest.raises(PaimonError, match="the store is away"):
        run_compact(failing, REQUEST, LocalEngine(), NoProgress())
    assert sorted(count for count, _ in largest(context).values()) == [6, 24] and rows(context) == before
    assert data_files(context) == named_files(context) and not list(check_table(context, rows=True))


def test_a_batch_into_buckets_that_began_before_moves_its_rows(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    put(context, range(60))
    round_of(context, CompactRequest("minor"))
    batch = TableContext.open(context.url, {"postpone.batch-write-fixed-bucket": "true"})
    small = TableContext.open(context.url, {"postpone.target-row-num-per-bucket": "4"})
    job = beside(batch, lambda: run_compact(small, REQUEST, LocalEngine(), NoProgress()))
    put(replace(batch, storage=job.storage), range(3), "batch")
    assert largest(context)["p=a/"][0] == 24 and list(values(context).values()).count("batch") == 3
    assert data_files(context) == named_files(context) and not list(check_table(context, rows=True))


def test_only_services_change_counts_and_only_of_whole_tables(tmp_path: Path) -> None:
    context = made(tmp_path / "t", **{"postpone.default-bucket-num": "1"})
    put(context, range(60), partitions="ab")
    compact(context)
    for request in (
        CompactRequest("minor"),
        replace(REQUEST, partition=[{"p": "a"}]),
        replace(REQUEST, bucket=[0]),
        replace(REQUEST, if_snapshot=context.snapshots.latest_id()),
    ):
        assert not plan_compaction(context, request).regrouped
    plan = plan_compaction(context, REQUEST)
    assert [(one.bucket, one.buckets, one.new_buckets) for one in plan.regrouped] == [(0, 1, 8), (0, 1, 8)]
    row, _ = decision_rows(context, plan.decisions)
    assert row.reason.startswith("1 -> 8 buckets: its largest bucket has 60 rows") and row.read_bytes == plan.regrouped[0].size
    fixed = make_table(tmp_path / "fixed", COLUMNS, ["p", "k"], ["p"], 1)
    put(fixed, range(60))
    assert not plan_compaction(fixed, REQUEST).regrouped


def test_a_partition_beyond_the_limits_is_compacted_as_it_is(tmp_path: Path) -> None:
    options = {"postpone.default-bucket-num": "1", "num-sorted-run.compaction-trigger": "2", "write-only": "true"}
    context = made(tmp_path / "t", **options)
    for number in range(3):
        put(context, range(60), f"v{number}", partitions="ab")
        compact(context)
    size = plan_compaction(context, REQUEST).regrouped[0].size
    plan = plan_compaction(context, replace(REQUEST, budget_bytes=size + 10))
    assert len(plan.regrouped) == 1 and len(plan.decisions) == 2
    left = plan_compaction(context, replace(REQUEST, budget_bytes=1))
    assert not left.regrouped and not any(isinstance(d, (RegroupedPartition, CompactionTask)) for d in left.decisions)
    run_compact(context, replace(REQUEST, budget_bytes=size + 10), LocalEngine(), NoProgress())
    assert sorted(count for count, _ in largest(context).values()) == [1, 8]


def test_waiting_rows_do_not_delay_a_split(tmp_path: Path) -> None:
    """One round gives the rows their buckets, and splits these."""
    context = made(tmp_path / "t", **{"postpone.default-bucket-num": "1"})
    put(context, range(60))
    summary = round_of(context)
    assert (summary.regrouped, largest(context)["p=a/"][0], len(summary.snapshots)) == (1, 8, 2)
    put(context, range(100, 104))
    assert {bucket.bucket for bucket in bucket_files(context, context.snapshots.latest())} >= {POSTPONE_BUCKET}
    assert round_of(context).regrouped == 0 and len(rows(context)) == 64


def test_the_round_that_splits_a_partition_shows_the_rows_that_wait_in_it(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    put(context, range(60))
    round_of(context, CompactRequest("minor"))
    put(context, range(100, 104))
    small = TableContext.open(context.url, {"postpone.target-row-num-per-bucket": "4"})
    assert len(rows(small)) == 60
    assert run_compact(small, REQUEST, LocalEngine(2), NoProgress()).regrouped == 1
    assert len(rows(context)) == 64


def test_commands(tmp_path: Path, run: Run) -> None:  # noqa: F811
    context = made(tmp_path / "t", **{"postpone.default-bucket-num": "1"})
    put(context, range(60))
    compact(context)
    (planned,) = run("buckets", "plan", context.url, "-o", "json").json["items"]
    assert (planned["action"], planned["when"]) == ("split", "next round of maintain or compact --watch")
    assert "1 bucket to compact" in run("maintain", context.url, "--dry-run", code=None).out
    shown = run("compact", context.url, "--watch", "--max-rounds", 1, "--interval", "1s").err
    assert "another bucket count in 1 partition" in shown
    (after,) = run("buckets", "plan", context.url, "-o", "json").json["items"]
    assert (after["action"], after["buckets"], after["when"]) == ("keep", 8, "")
    assert not find_orphans(context, context.clock.now_millis() + 1000, True).files


def test_a_goal_without_a_budget_does_not_keep_buckets_from_being_split(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    put(context, range(8))
    round_of(context)
    put(context, range(800))
    round_of(context, replace(REQUEST, regroups=False))
    before, _ = largest(context)["p=a/"]
    served = [ServedTable("t", lambda: TableContext.open(context.url))]
    limits = RunLimits(Budget(SystemClock()), 60.0, merges_of("latency"))
    list(maintain(served, LocalEngine(), Quiet(NoProgress), contextlib.nullcontext, None, limits))
    assert largest(context)["p=a/"][0] > before


def test_the_explanation_of_a_round_names_splits(tmp_path: Path) -> None:
    context = made(tmp_path / "t")
    put(context, range(8))
    round_of(context)
    put(context, range(800))
    round_of(context, replace(REQUEST, regroups=False))
    served = [ServedTable("t", lambda: TableContext.open(context.url))]
    (explained,) = decisions_of(served, SystemClock(), 60.0)
    assert (explained.decision, explained.buckets) == (NextStep.COMPACT, 1) and "1 -> 16 buckets" in explained.why
