"""A run does what its dry run announced; limits, idle partitions and pinned plans choose among the buckets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.compact.compaction_task import CompactionTask, SkippedBucket
from paimon_cli.errors import FilesConflict, NotFound, PartialSuccess, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_report import decision_rows
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.lsm.compaction_picker import NEVER_PICKED
from paimon_cli.lsm.sorted_runs import sorted_runs
from paimon_cli.requests.compaction import StrategyName
from tests.rivals import beside
from tests.tables import compact, data_files, live_files, make_table, rows, write

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "points": "INT"}


class Clock:
    """A clock that is set by the test."""

    def __init__(self, now: int) -> None:
        self.now = now

    def now_millis(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    """Six commits to buckets 0 and 1 of one day and two to those of another day, on a test clock."""
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], bucket=2, options={"write-only": "true"})
    context = replace(context, clock=Clock(1_700_000_000_000))
    for number in range(6):
        write(context, [{"dt": "a", "id": n, "points": number} for n in range(40 + number)])
    context.clock.sleep(3600)
    for number in range(2):
        write(context, [{"dt": "b", "id": n, "points": number} for n in range(9)])
    return context


def run_counts(context: TableContext) -> dict[tuple[bytes, int], int]:
    states = bucket_files(context, context.snapshots.latest())
    return {place: len(sorted_runs(state.files, context.key_of)) for place, state in states.items()}


@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_the_run_does_what_the_dry_run_announced(table: TableContext, strategy: StrategyName) -> None:
    request = CompactRequest(strategy)
    plan = plan_compaction(table, request)
    announced = decision_rows(table, plan.decisions)
    before = rows(table)
    summary = compact(table, strategy=strategy)
    assert [replace(task, file_stamp="", state=NEVER_PICKED) for task in summary.plan.tasks] == [
        replace(task, file_stamp="", state=NEVER_PICKED) for task in plan.tasks
    ]
    assert [row.runs_after for row in announced] == [run_counts(table)[d.bucket_id] for d in plan.decisions]
    assert sum(row.files for row in announced) == summary.files_before
    assert sum(row.read_bytes for row in announced) == summary.bytes_before
    assert sum(row.write_bytes for row in announced) == pytest.approx(summary.bytes_after, rel=0.7)
    assert sum(row.files_after for row in announced) == summary.files_after
    assert rows(table) == before


def test_left_alone_for_a_reason(table: TableContext) -> None:
    announced = decision_rows(table, plan_compaction(table, CompactRequest("minor")).decisions)
    assert [(row.partition, row.reason) for row in announced[2:]] == [("dt=b", "none: 2 runs < trigger 5")] * 2
    for row in announced[:2]:
        assert (row.reason, row.runs_before, row.runs_after, row.output_level) == ("size-amplification", 6, 1, 5)
        assert "* 100 > 200 *" in (row.arithmetic or "")
        assert row.space_amplification_after == 0 < (row.space_amplification_before or 0)


def test_limits_give_the_turn_to_buckets_with_most_runs(table: TableContext) -> None:
    plan = plan_compaction(table, CompactRequest("full", max_buckets=2))
    assert {table.partition_path_of(task.partition) for task in plan.tasks} == {"dt=a/"}
    assert ["--max-buckets" in d.reason for d in plan.decisions if isinstance(d, SkippedBucket)] == [True, True]
    size = min(task.size for task in plan.tasks)
    (task,) = plan_compaction(table, CompactRequest("full", max_bytes=size, max_buckets=3)).tasks
    assert task.size == size
    done = compact(table, strategy="full", max_buckets=1)
    assert done.buckets == 1
    assert sum(compact(table, strategy="full", max_buckets=1).buckets for _ in range(5)) == 3


def test_idle_partitions_are_compacted_fully(table: TableContext) -> None:
    table.clock.sleep(60)
    request = CompactRequest("full", idle_time=1_800_000)
    plan = plan_compaction(table, request)
    assert {table.partition_path_of(task.partition) for task in plan.tasks} == {"dt=a/"}
    assert {d.reason for d in plan.decisions if isinstance(d, SkippedBucket)} == {"new data 60 s ago, not idle yet"}
    minor = replace(request, strategy="minor", idle_time=30_000)
    assert {(task.reason, task.output_level) for task in plan_compaction(table, minor).tasks} == {("full", 5)}
    compact(table, strategy="minor", idle_time=30_000)
    assert plan_compaction(table, minor).tasks == []


def test_a_pinned_plan_is_carried_out_beside_newer_data(table: TableContext) -> None:
    pinned = table.snapshots.latest_id()
    write(table, [{"dt": "b", "id": 100, "points": 9}])
    assert compact(table, if_snapshot=pinned).buckets == 4
    assert sorted(run_counts(table).values()) == [1, 1, 1, 2]
    files = data_files(table)
    with pytest.raises(FilesConflict):
        compact(table, if_snapshot=pinned)
    assert data_files(table) == files
    with pytest.raises(NotFound):
        compact(table, if_snapshot=99)


@pytest.mark.parametrize("on_conflict", ["skip", "fail"])
def test_a_conflict_costs_its_bucket_only(table: TableContext, on_conflict: str) -> None:
    before = rows(table)
    rival = beside(table, lambda: compact(table, bucket=(1,), partition=({"dt": "a"},)))
    with pytest.raises(PartialSuccess) as failure:
        compact(rival, on_conflict=on_conflict)
    assert failure.value.details["buckets_committed"] == 3
    assert set(run_counts(table).values()) == {1}
    assert rows(table) == before
    assert all(name in files_of_all(table) for name in data_files(table))


def test_only_the_bucket_in_conflict_is_planned_again(table: TableContext) -> None:
    before = rows(table)

    def compact_and_write() -> None:
        compact(table, bucket=(1,), partition=({"dt": "a"},))
        write(table, [{"dt": "a", "id": n, "points": 5} for n in range(40)])

    done = compact(beside(table, compact_and_write))
    assert (done.buckets, done.conflicts, len(done.snapshots)) == (4, 1, 2)
    assert sorted(run_counts(table).values()) == [1, 1, 1, 2]
    assert len(rows(table)) == len(before)
    assert all(name in files_of_all(table) for name in data_files(table))


def files_of_all(context: TableContext) -> set[str]:
    named = live_files(context)
    for number in context.snapshots.ids():
        for state in bucket_files(context, context.snapshots.get(number)).values():
            named |= {f"{context.partition_path_of(state.partition)}bucket-{state.bucket}/{f.file_name}" for f in state.files}
    return named


def test_gentle_waits_are_remembered_from_plan_to_plan(tmp_path: Path) -> None:
    options = {"force-lookup": "true", "lookup-compact": "gentle", "lookup-compact.max-interval": "5", "write-only": "true"}
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], options=options)
    write(context, [{"dt": "a", "id": 1, "points": 1}])
    states: dict[tuple[bytes, int], object] = {}
    picked = []
    for _ in range(5):
        (decision,) = plan_compaction(context, CompactRequest("minor"), "", states).decisions  # type: ignore[arg-type]
        states[decision.bucket_id] = decision.state
        picked.append(isinstance(decision, CompactionTask))
    assert picked == [False] * 4 + [True]


def test_all_files_are_rewritten_where_the_table_wants_it(table: TableContext) -> None:
    compact(table)
    assert compact(table).buckets == 0
    again = TableContext.open(table.url, {"compaction.force-rewrite-all-files": "true"})
    before = live_files(table)
    assert compact(again).buckets == 4
    assert not before & live_files(table)


def test_a_range_of_buckets_may_reach_beyond_the_table(table: TableContext) -> None:
    def chosen(*buckets: int | range) -> set[int]:
        return {decision.bucket for decision in plan_compaction(table, CompactRequest("full", bucket=buckets or None)).decisions}

    assert chosen(range(1000)) == chosen(0, range(1, 2)) == chosen() == {0, 1}
    assert chosen(range(1, 1000)) == {1}
    with pytest.raises(UsageError, match="no bucket 5"):
        chosen(0, range(5, 1000))
    with pytest.raises(UsageError, match="no bucket 2"):
        chosen(range(2), 2)
