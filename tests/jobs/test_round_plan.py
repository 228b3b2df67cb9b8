"""The plan of a round: what its figures say, what its limits leave, and when the next is due."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from paimon_cli.compact import compaction_plan
from paimon_cli.compact.compaction_task import CompactionTask, Decision, SkippedBucket
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.stale_buckets import movable_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import rescale_job, round_plan
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.round_plan import BucketFigures, CompactionPlan, apply_limits, newest_data, plan_compaction
from paimon_cli.jobs.service.maintenance import REQUEST
from paimon_cli.metadata.data_file import SOURCE_APPEND, SOURCE_COMPACT, BucketId
from paimon_cli.storage.injected import moment_of_wall_clock
from tests.commit.commit_tables import data_file
from tests.jobs import test_stale_buckets as stale_buckets
from tests.jobs.test_leases import HandClock
from tests.tables import make_table, write

HOUR = 3_600_000


def task(bucket: int, size: int, runs: int = 5, level_0: int = 0, alone: CompactionTask | None = None) -> CompactionTask:
    """A compaction that reads so many bytes, of which readers wait for those of level 0."""
    file = replace(data_file(f"f{bucket}", 0, 9), file_size=size)
    found = CompactionTask(b"", bucket, 4, (file,), 5, 5, True, "due", "", runs, 1, 1, score=math.inf)
    return replace(found, level_0_size=level_0, level_0_alone=alone)


def deep(bucket: int, size: int, level_0: int, runs: int = 5) -> CompactionTask:
    """A compaction that goes deeper than level 0 needs."""
    return task(bucket, size, runs, level_0, task(bucket, level_0, runs, level_0))


def sizes(planned: list[CompactionTask], budget: int) -> list[int]:
    """What each compaction reads within a budget; 0 for those that are left."""
    found = apply_limits(planned, CompactRequest(budget_bytes=budget))
    return [one.read_size if isinstance(one, CompactionTask) else 0 for one in found]


def test_level_0_of_later_buckets_is_owed_until_their_turn() -> None:
    """The whole merge of the first is made if the budget has enough for it and for level 0 of the others, and no byte less."""
    planned = [deep(0, 500, 100, runs=9), deep(1, 400, 50, runs=8), task(2, 30, 7, 30)]
    assert sizes(planned, 930) == [500, 400, 30]
    assert sizes(planned, 929) == [500, 50, 30]
    assert sizes(planned, 580) == [500, 50, 30]
    assert sizes(planned, 579) == [100, 400, 30]
    assert sizes(planned, 180) == [100, 50, 30]
    assert sizes(planned, 530) == [100, 400, 30]
    assert sizes(planned, 529) == [100, 50, 30]


def test_other_merges_leave_what_is_owed_to_level_0() -> None:
    planned = [task(0, 500, 9), task(1, 60, 8, 60), task(2, 40, 7)]
    assert sizes(planned, 600) == [500, 60, 40] and sizes(planned, 599) == [500, 60, 0]
    assert sizes(planned, 560) == [500, 60, 0] and sizes(planned, 559) == [0, 60, 40]


def test_the_bytes_of_a_round_add_up() -> None:
    planned = [task(0, 50, 9), task(1, 50, 8), task(2, 50, 7)]
    assert sizes(planned, 149) == [50, 50, 0] and sizes(planned, 150) == [50, 50, 50]


def bucket_of(number: int, *files: tuple[int, int, int], partition: bytes = b"") -> BucketFiles:
    """Files by their wall clock time, source and their level."""
    made = [
        replace(data_file(f"{number}-{at}", 0, 9, level=level), creation_time_millis=millis, file_source=source)
        for at, (millis, source, level) in enumerate(files)
    ]
    return BucketFiles(partition, number, 4, tuple(made))


def test_what_is_not_compacted_is_as_old_as_its_oldest_file(tmp_path: Path) -> None:
    keyed = make_table(tmp_path / "k", {"k": "INT NOT NULL"}, ["k"], bucket=4)
    buckets = [bucket_of(0, (900, SOURCE_APPEND, 0), (100, SOURCE_COMPACT, 5)), bucket_of(1, (400, SOURCE_APPEND, 0))]
    figures = BucketFigures.of(keyed, buckets, [])
    assert figures.uncompacted_since == moment_of_wall_clock(400) and (figures.level_0_files, figures.max_level_0_files) == (2, 1)
    plain = make_table(tmp_path / "a", {"k": "INT"}, [], bucket=-1)
    picked: list[Decision] = [replace(task(0, 1), files=buckets[0].files), SkippedBucket(b"", 1, 1, "no")]
    assert BucketFigures.of(plain, buckets, picked).uncompacted_since == moment_of_wall_clock(100)
    assert BucketFigures.of(plain, buckets, [SkippedBucket(b"", 0, 1, "no")]).uncompacted_since is None


def test_a_partition_is_as_new_as_the_newest_data_of_any_of_its_buckets() -> None:
    new, old = bucket_of(0, (900, SOURCE_APPEND, 0)), bucket_of(1, (400, SOURCE_APPEND, 0), (950, SOURCE_COMPACT, 5))
    other = bucket_of(0, (100, SOURCE_COMPACT, 5), (70, SOURCE_COMPACT, 5), partition=b"p")
    expected = {b"": moment_of_wall_clock(900), b"p": moment_of_wall_clock(100)}
    assert newest_data([new, old, other]) == newest_data([other, old, new]) == expected


def idle_table(folder: Path) -> tuple[TableContext, HandClock]:
    """A table of two partitions, with its clock."""
    context = make_table(folder, {"dt": "STRING NOT NULL", "k": "INT NOT NULL"}, ["dt", "k"], ["dt"])
    write(context, [{"dt": dt, "k": 1} for dt in ("a", "b")], compact="none")
    clock = HandClock(context.clock.now_millis())
    return replace(TableContext.open(context.url), clock=clock), clock


def test_a_partition_is_idle_from_the_millisecond_on_that_the_plan_names(tmp_path: Path) -> None:
    context, clock = idle_table(tmp_path / "t")
    request = CompactRequest(idle_time=HOUR, strategy="full")
    waiting = plan_compaction(context, request)
    assert not waiting.tasks and waiting.idle_at is not None
    clock.millis = waiting.idle_at - 1
    early = plan_compaction(context, request)
    clock.millis = waiting.idle_at
    ready = plan_compaction(context, request)
    assert not early.tasks and early.idle_at == waiting.idle_at
    assert ready.tasks and (ready.idle_at is None or ready.idle_at > waiting.idle_at)
    clock.millis += HOUR
    late = plan_compaction(context, request)
    assert len(late.tasks) == 2 and late.idle_at is None, "nothing is waited for that has come"


def test_a_bucket_that_the_table_lacks_is_named_beside_those_that_it_has(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=2)
    with pytest.raises(UsageError, match="7"):
        plan_compaction(context, CompactRequest(bucket=7))
    write(context, [{"k": number} for number in range(9)], compact="none")
    assert len(plan_compaction(context, CompactRequest(bucket=(0, 1), strategy="full")).decisions) == 2
    for wanted in (7, (0, 7)):
        with pytest.raises(UsageError, match="7"):
            plan_compaction(context, CompactRequest(bucket=wanted))
        assert plan_compaction(context, CompactRequest(bucket=wanted, unknown_buckets_allowed=True)).snapshot_id == 1


def test_only_the_buckets_that_were_asked_for_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = idle_table(tmp_path / "t")
    every = plan_compaction(context, CompactRequest(strategy="full"))
    wanted, judged, plan = every.decisions[1].bucket_id, list[BucketId](), compaction_plan.plan_bucket

    def noted(context: TableContext, bucket: BucketFiles, *given: Any) -> Decision:
        judged.append(bucket.bucket_id)
        return plan(context, bucket, *given)

    monkeypatch.setattr(round_plan, "plan_bucket", noted)
    only = plan_compaction(context, CompactRequest(strategy="full"), only=frozenset({wanted}))
    assert judged == [wanted] and only.decisions == every.decisions[1:] and only.figures.buckets == 2


def test_an_unfinished_rescale_alone_is_work() -> None:
    assert not CompactionPlan(1).has_work and CompactionPlan(1, mixed=(b"",)).has_work
    unfinished: object = object()
    assert CompactionPlan(1, unfinished=unfinished).has_work  # type: ignore[arg-type]
    assert not CompactionPlan(1, (SkippedBucket(b"", 0, 1, "no"),)).has_work and CompactionPlan(1, (task(0, 1),)).has_work


def test_what_two_repairs_of_bucket_counts_would_move_is_counted_once(tmp_path: Path) -> None:
    """A partition with a stale commit is also one that a rescale has left: besides, only the others are moved for that."""
    context = stale_buckets.made(tmp_path)
    late = stale_buckets.prepared(context, [stale_buckets.row(1, "late")])
    with patch.object(rescale_job, "alter_table", lambda *_, **__: 1 / 0), pytest.raises(ZeroDivisionError):
        stale_buckets.rescale(context)
    late()
    with stale_buckets.counts_unchecked():
        write(TableContext.open(context.url), [stale_buckets.row(1, "x", "c")])
    now = TableContext.open(context.url)
    snapshot = now.snapshots.latest()
    assert snapshot is not None
    (stale,) = movable_partitions(now, snapshot)
    buckets = bucket_files(now, snapshot).values()
    other = [b for b in buckets if b.total_buckets == 2 and b.partition != stale.partition]
    plan = plan_compaction(now, REQUEST)
    assert plan.unfinished is not None and plan.mixed == (stale.partition,)
    assert plan.unfinished.partitions == {stale.partition, *(bucket.partition for bucket in other)} and len(other) == 1
    assert plan.size_to_move == stale.size + sum(file.file_size for file in other[0].files)
