"""Which merges a goal asks for in real tables, what it leaves to Paimon's triggers, and what raises their price."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.compact.compaction_task import CompactionTask, Decision, SkippedBucket
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.goal_merges import TAG_HOURS, GoalMerges, _Charge, left_alone
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.lsm.rent_or_buy import HOUR_MILLIS, Goal
from paimon_cli.maintain.expire_partitions import partition_ends
from paimon_cli.maintain.retention import write_consumer
from tests.jobs.test_leases import HandClock
from tests.tables import compact, make_table, rows, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
EAGER = Goal("eager", 1e12)
LAZY = Goal("lazy", 1e-6)


def table(
    folder: Path, commits: int = 2, options: Mapping[str, str] | None = None, keys: tuple[str, ...] = ("id",)
) -> TableContext:
    context = make_table(folder, COLUMNS, [*keys], options={"write-only": "true", **(options or {})})
    for number in range(commits):
        write(context, [{"id": 1, "n": number}])
    return context


def later(context: TableContext, hours: float = 1.0) -> TableContext:
    """The table as it is seen so many hours after its last commit."""
    latest = context.snapshots.latest()
    assert latest is not None
    return TableContext.open(context.url, clock=HandClock(latest.time_millis + int(hours * HOUR_MILLIS)))


def decide(context: TableContext, goal: Goal | None, hours: float = 1.0, most_bytes: float = float("inf")) -> Decision:
    merges = None if goal is None else GoalMerges(goal, most_bytes=most_bytes)
    (decision,) = plan_compaction(later(context, hours), CompactRequest("minor", merges=merges)).decisions
    return decision


def test_a_goal_merges_when_reads_have_paid_and_the_triggers_play_no_part(tmp_path: Path) -> None:
    context = table(tmp_path / "t", 2)
    assert isinstance(decide(context, None), SkippedBucket), "two runs are below the trigger"
    task = decide(context, EAGER)
    assert isinstance(task, CompactionTask) and task.reason == "reads-pay" and task.score is not None and task.score > 1
    assert "60 reads/h x" in task.arithmetic and task.cost == task.size
    many = table(tmp_path / "many", 6)
    assert isinstance(decide(many, None), CompactionTask)
    waits = decide(many, LAZY)
    assert isinstance(waits, SkippedBucket) and waits.reason.startswith("score 0.00 < 1: ")


def test_the_plan_says_when_the_next_merge_will_have_been_paid(tmp_path: Path) -> None:
    context = table(tmp_path / "t", 2)
    goal = Goal("slow", 1e4)
    plan = plan_compaction(later(context, 0.01), CompactRequest("minor", merges=GoalMerges(goal)))
    assert not plan.tasks and plan.idle_at is not None
    clock = HandClock(plan.idle_at - 60_000)
    reopened = TableContext.open(context.url, clock=clock)
    request = CompactRequest("minor", merges=GoalMerges(goal))
    assert not plan_compaction(reopened, request).tasks
    clock.millis = plan.idle_at + 60_000
    assert plan_compaction(reopened, request).tasks


def test_the_rows_are_the_same_after_merges_by_a_goal(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    for number in range(12):
        write(context, [{"id": key, "n": number} for key in range(number, number + 5)])
        if number % 3 == 2:
            done = compact(later(context), strategy="minor", merges=GoalMerges(EAGER))
            assert done.buckets == 1
    assert sorted((row["id"], row["n"]) for row in rows(context)) == [(key, min(key, 11)) for key in range(16)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"changelog-producer": "full-compaction"}, "follow the commits"),
        ({"full-compaction.delta-commits": "3"}, "follow the commits"),
        ({"compaction.optimization-interval": "1 h"}, "schedule"),
        ({"compaction.total-size-threshold": "1 kb"}, "schedule"),
        ({"compaction.incremental-size-threshold": "1 kb"}, "schedule"),
    ],
)
def test_tables_that_compact_by_a_schedule_are_left_to_it(tmp_path: Path, options: dict[str, str], why: str) -> None:
    context = table(tmp_path / "t", 2, options)
    said = left_alone(context)
    assert said is not None and why in said
    by_goal, as_is = decide(context, EAGER), decide(context, None)
    assert dataclasses.replace(by_goal, state=as_is.state) == as_is if isinstance(by_goal, SkippedBucket) else by_goal == as_is


def test_append_tables_are_left_to_their_triggers(tmp_path: Path) -> None:
    context = table(tmp_path / "t", 3, {"bucket": "-1"}, keys=())
    assert left_alone(context) == "it has no sorted runs"
    assert decide(context, EAGER) == decide(context, None)


@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, {"changelog-producer": "lookup"}])
def test_level_0_is_forced_as_before_where_readers_wait_for_it(tmp_path: Path, options: dict[str, str]) -> None:
    context = table(tmp_path / "t", 0, options)
    write(context, [{"id": key, "n": 0} for key in range(5000)])
    forced = decide(context, LAZY)
    assert isinstance(forced, CompactionTask) and forced.reason == "force-up-level-0" and forced.score == float("inf")
    compact(context, strategy="minor", merges=GoalMerges(LAZY))
    write(context, [{"id": 1, "n": 9}])
    compact(context, strategy="minor", merges=GoalMerges(LAZY))
    assert isinstance(decide(context, LAZY), SkippedBucket), "nothing waits"
    deeper = decide(context, EAGER)
    assert isinstance(deeper, CompactionTask) and deeper.reason == "reads-pay", "reads pay for merges below level 0, too"
    assert deeper.score is not None and deeper.score < float("inf"), "but it need not be made"
    write(context, [{"id": 2, "n": 9}])
    both = decide(context, EAGER)
    assert isinstance(both, CompactionTask) and (both.reason, both.score) == ("reads-pay", float("inf")), "it takes level 0, too"
    request = CompactRequest("minor", merges=GoalMerges(EAGER, affords=lambda size: size < both.size))
    (alone,) = plan_compaction(later(context), request).decisions
    assert isinstance(alone, CompactionTask) and (alone.reason, alone.score) == ("force-up-level-0", float("inf"))
    assert alone.size < both.size, "the deeper merge may wait"
    plan = plan_compaction(later(context), CompactRequest("minor", merges=GoalMerges(EAGER)))
    for size, reason in ((both.read_size, "reads-pay"), (both.read_size - 1, "force-up-level-0"), (both.level_0_size - 1, None)):
        (limited,) = plan.prepared("stamp", CompactRequest("minor", budget_bytes=size)).decisions
        if reason is None:
            assert isinstance(limited, SkippedBucket)
        else:
            assert isinstance(limited, CompactionTask) and (limited.reason, limited.file_stamp) == (reason, "stamp")


def test_a_cold_table_is_merged_before_it_has_too_many_runs(tmp_path: Path) -> None:
    context = table(tmp_path / "t", 5)
    capped = decide(context, dataclasses.replace(LAZY, most_runs=4))
    assert isinstance(capped, CompactionTask) and capped.reason == "most-runs" and capped.arithmetic.startswith("5 runs > 4")
    assert isinstance(decide(context, dataclasses.replace(LAZY, most_runs=5)), SkippedBucket)
    stops = table(tmp_path / "s", 5, {"write-only": "false", "num-sorted-run.compaction-trigger": "4"})
    compact(stops, strategy="minor")
    for number in range(8):
        write(stops.with_options({"write-only": "true"}), [{"id": 1, "n": number}])
    stopped = decide(stops, LAZY)
    assert isinstance(stopped, CompactionTask) and stopped.reason == "most-runs", "writers of the table would stop at 7"


def score(context: TableContext) -> float:
    found = decide(context, EAGER)
    assert found.score is not None
    return found.score


def test_what_is_kept_for_long_is_dearer_to_replace(tmp_path: Path) -> None:
    short = table(tmp_path / "a", 2)
    long = table(tmp_path / "b", 2, {"snapshot.time-retained": "30 d"})
    assert score(long) < score(short) * 0.95
    tagged = table(tmp_path / "c", 2)
    before = score(tagged)
    Table.open(tagged.url).tags.create("kept")
    assert score(tagged) < before * 0.95
    lagging = table(tmp_path / "d", 2)
    prompt = decide(lagging, Goal("eager", 1e12, storage_hours=0.001)).score
    write_consumer(lagging, "slow", 1)
    waited = decide(lagging, Goal("eager", 1e12, storage_hours=0.001), hours=100.0).score
    assert prompt is not None and waited is not None
    assert waited < prompt * 3, "the snapshot that it still needs is 100 hours old"


@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")])
def test_the_tag_that_was_written_last_tells_for_how_long_they_are_kept(tmp_path: Path, names: tuple[str, ...]) -> None:
    context = table(tmp_path / "t", 1)
    for number, name in enumerate(names, 1):
        Table.open(context.url).tags.create(name, time_retained=f"{number} d")
        os.utime(context.layout.tag(name), (10**9 + number, 10**9 + number))
    assert _Charge.of(later(context), Goal("any", 1.0, storage_hours=1.0)).tag_hours == 24 * len(names)


def test_what_is_newer_than_a_tag_is_not_kept_by_it(tmp_path: Path) -> None:
    context = table(tmp_path / "t", 1)
    Table.open(context.url).tags.create("kept")
    time.sleep(0.002)
    write(context, [{"id": 1, "n": 7}])
    context = later(context)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    old, new = sorted(bucket.files, key=lambda file: file.min_sequence_number)
    charge = _Charge.of(context, Goal("any", 1.0, storage_hours=1.0))
    assert charge(old) == 1 + TAG_HOURS
    assert charge(new) == pytest.approx(1 + charge.hours)


def test_a_partition_that_is_about_to_expire_is_not_merged(tmp_path: Path) -> None:
    options = {"write-only": "true", "partition.expiration-time": "1 d", "partition.timestamp-formatter": "yyyy-MM-dd"}
    columns = {**COLUMNS, "dt": "STRING NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["id", "dt"], ["dt"], options=options)
    for number in range(2):
        write(context, [{"id": 1, "n": number, "dt": "2030-01-02"}])
    (partition,) = {partition for partition, _ in bucket_files(context, context.snapshots.latest())}
    end = partition_ends(context, {partition})[partition]

    def decided(hours_before: float) -> Decision:
        seen = TableContext.open(context.url, clock=HandClock(end - int(hours_before * HOUR_MILLIS)))
        request = CompactRequest("minor", merges=GoalMerges(Goal("an hour", 4e3, storage_hours=1e9)))
        (found,) = plan_compaction(seen, request).decisions
        return found

    assert isinstance(decided(2.0), CompactionTask), "reads pay within about an hour"
    late = decided(0.5)
    assert isinstance(late, SkippedBucket) and "expires in 0.5 h" in late.reason


def test_a_merge_that_no_budget_would_suffice_for_is_not_waited_for(tmp_path: Path) -> None:
    found = decide(table(tmp_path / "t", 2), EAGER, most_bytes=10)
    assert isinstance(found, SkippedBucket) and "more than the 10 that the budget and caps.bytes allow" in found.reason
    context = later(table(tmp_path / "later", 2), 0.01)
    buckets = list(bucket_files(context, context.snapshots.latest()).values())
    slow = Goal("slow", 1e4)
    assert GoalMerges(slow).choices(context, buckets).due
    assert not GoalMerges(slow, most_bytes=10).choices(context, buckets).due


def test_each_of_several_buckets_is_judged_as_if_it_were_alone(tmp_path: Path) -> None:
    """By its own runs and prices; the next merge is due when that of the first of them is."""
    context = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=4, options={"write-only": "true"})
    for number in range(5):
        write(context, [{"id": key, "n": number} for key in range(0, 40, 2 * number + 1)])
    context = later(context, 0.01)
    buckets = list(bucket_files(context, context.snapshots.latest()).values())
    assert len({sum(file.file_size for file in bucket.files) for bucket in buckets}) == 4
    merges = GoalMerges(Goal("slow", 1e4))
    together, alone = merges.choices(context, buckets), [merges.choices(context, [bucket]) for bucket in buckets]
    assert [together.of[bucket.bucket_id] for bucket in buckets] == [
        one.of[bucket.bucket_id] for one, bucket in zip(alone, buckets, strict=True)
    ]
    dues = [due for one in alone for due in one.due]
    assert len(set(dues)) > 1 and list(together.due) == [min(dues)] and min(dues) > context.clock.now_millis()
    bought = GoalMerges(EAGER, affords=lambda size: size % 2 == 0).choices(context, buckets)
    picked = [choice for choice in bought.of.values() if choice.pick is not None]
    assert len({(choice.cost or 0) % 2 for choice in picked}) == 2
    assert all(choice.is_affordable == ((choice.cost or 0) % 2 == 0) for choice in picked)
