"""Every figure of a bucket's plan, and which buckets are chosen, compared with plain rules."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.compact.compaction_plan import plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask, Decision, PostponedRows, SkippedBucket, task_steps
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.round_plan import apply_limits, newest_data, tasks_of
from paimon_cli.lsm.compaction_picker import CompactionPicker, PickState, Rewrite
from paimon_cli.lsm.sorted_runs import sorted_runs
from paimon_cli.lsm.universal_compaction import run_sizes
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    EMPTY_ROW,
    CommitMessage,
    DataFileMeta,
    DeletionVectorRange,
    FileChanges,
    IndexFileMeta,
)
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.storage.injected import local_hour, moment_of_wall_clock
from tests.commit.commit_tables import SteppingClock, data_file, make_table

NOW = 1_700_000_000_000


def random_bucket(dice: random.Random, highest: int) -> BucketFiles:
    """Files of level 0 with any keys, and levels of one or two files side by side."""
    files: list[DataFileMeta] = []
    for level in sorted(dice.sample(range(1, highest + 1), dice.randint(0, 2)), reverse=True):
        files += [data_file(f"l{level}-{n}", n * 10, n * 10 + 9, level) for n in range(dice.randint(1, 2))]
    files += [data_file(f"l0-{n}", dice.randint(0, 9), dice.randint(9, 30)) for n in range(dice.randint(0, 6))]
    sized = [
        replace(
            file,
            file_size=dice.choice([1, 100, 5000]),
            max_sequence_number=n,
            min_sequence_number=n,
            creation_time_millis=NOW - dice.randint(0, 10**6),
            file_source=dice.choice([0, 1]),
        )
        for n, file in enumerate(files)
    ]
    return BucketFiles(EMPTY_ROW, dice.randint(0, 1), 2, tuple(sized))


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_has_the_figures_of_its_files(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    options = {
        "num-levels": dice.choice(["3", "6"]),
        "num-sorted-run.compaction-trigger": dice.choice(["2", "4"]),
        "merge-engine": dice.choice(["deduplicate", "first-row"]),
        "compaction.force-rewrite-all-files": dice.choice(["true", "false"]),
        **({"compaction.optimization-interval": f"{dice.randint(1, 15)} min"} if dice.random() < 0.5 else {}),
    }
    context = replace(make_table(tmp_path, options), clock=SteppingClock(NOW))
    bucket = random_bucket(dice, 6)
    runs = sorted_runs(bucket.files, context.key_of)
    highest = max((file.level for file in bucket.files), default=0)
    top = max(int(options["num-levels"]) - 1, highest)
    state = PickState(dice.choice([None, NOW - 5, NOW - 10**7]), dice.randint(0, 2))
    strategy = dice.choice(["minor", "full"])
    found = plan_bucket(context, bucket, strategy, 9, "stamp", state)
    total = sum(file.file_size for file in bucket.files)
    rewrites = options["compaction.force-rewrite-all-files"] == "true"
    assert found.bucket_id == (EMPTY_ROW, bucket.bucket) and found.runs_before == len(runs)
    tops = [moment_of_wall_clock(file.creation_time_millis or 0) for file in bucket.files if file.level == top]
    flushes = sum(file.level == 0 for file in bucket.files)
    last_full = max([*tops, *([state.last_full] if state.last_full else [])], default=None)
    known = PickState(last_full, max(state.waits, flushes - 1))
    pick, then = CompactionPicker.of(context.options, top, local_hour(NOW)).pick(run_sizes(runs), NOW, known)
    if strategy == "minor":
        assert (found.state, isinstance(found, SkippedBucket)) == (then, pick is None)
    if isinstance(found, SkippedBucket):
        assert (found.files, found.size, found.runs) == (len(bucket.files), total, len(runs))
        if strategy == "full":
            assert len(runs) == 0 or (len(runs) == 1 and runs[0].level == top and not rewrites)
            assert found.reason == ("no files" if not runs else "one run, already at the top level")
        return
    assert isinstance(found, CompactionTask)
    assert found.runs_after == len(runs) - _runs_of(found) + 1
    assert found.files == tuple(file for file in bucket.files if file in found.files), "in the order of the bucket"
    assert (found.read_snapshot_id, found.file_stamp, found.total_buckets, found.max_level) == (9, "stamp", 2, top)
    assert (found.bucket_size, found.oldest_size, found.rewrite_all) == (total, runs[-1].size, rewrites)
    assert found.size == sum(file.file_size for file in found.files)
    assert found.drop_deletes == (found.output_level != 0 and found.output_level >= highest)
    assert found.with_memory(None) is found and found.with_memory(5).memory == 5
    if strategy == "full":
        assert set(found.files) == set(bucket.files) and found.output_level == top and found.state.last_full == NOW
        return
    assert pick is not None and found.reason == pick.reason
    chosen = {file.file_name for run in runs[: pick.run_count] for file in run.files}
    assert {file.file_name for file in found.files} == chosen and found.output_level == pick.output_level
    left = {file.file_name for file in bucket.files} - chosen
    assert {file.file_name for file in found.others} == (left if options["merge-engine"] == "first-row" else set())


def _runs_of(task: CompactionTask) -> int:
    levels = [file.level for file in task.files]
    return levels.count(0) + len({level for level in levels if level})


def test_buckets_that_nothing_is_done_to(tmp_path: Path) -> None:
    context = make_table(tmp_path)
    top = context.options.num_levels - 1
    one = BucketFiles(EMPTY_ROW, 0, 2, (data_file("a", level=top),))
    full = plan_bucket(context, one, "full", 1)
    assert isinstance(full, SkippedBucket) and full.state.last_full == moment_of_wall_clock(1_700_000_000_000)
    assert isinstance(plan_bucket(context, replace(one, files=()), "full", 1), SkippedBucket)
    waiting = plan_bucket(context, replace(one, bucket=-2, files=(data_file("a"), data_file("b"))), "full", 1)
    assert isinstance(waiting, PostponedRows)
    assert (waiting.runs_before, waiting.size) == (2, 2000)
    with pytest.raises(UsageError, match="unknown compaction strategy"):
        plan_bucket(context, one, "universal", 1)


def test_rows_that_grow_too_old_make_all_files_be_rewritten(tmp_path: Path) -> None:
    context = make_table(tmp_path / "u", {"record-level.expire-time": "1 d", "record-level.time-field": "k"})
    bucket = BucketFiles(EMPTY_ROW, 0, 2, (data_file("a", level=context.options.num_levels - 1),))
    task = plan_bucket(context, bucket, "full", 1)
    assert isinstance(task, CompactionTask) and task.rewrite_all
    assert all(isinstance(step, Rewrite) for step in task_steps(context, task))


def decisions(context: TableContext, dice: random.Random) -> list[Decision]:
    found: list[Decision] = []
    for number in range(8):
        bucket = replace(random_bucket(dice, 5), bucket=number)
        found.append(plan_bucket(context, bucket, dice.choice(["minor", "full"]), 1))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_a_round_takes_the_buckets_with_most_runs(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    planned = decisions(make_table(tmp_path, {"num-sorted-run.compaction-trigger": "2"}), dice)
    tasks = [one for one in planned if isinstance(one, CompactionTask)]
    assert apply_limits(planned, CompactRequest()) == tuple(planned)
    assert [task.size for task in tasks_of(planned)] == sorted((task.size for task in tasks), reverse=True)
    limits = CompactRequest(max_bytes=dice.choice([None, 0, 5000, 9000]), max_buckets=dice.choice([None, 2, 1, 3]))
    taken: list[CompactionTask] = []
    for task in sorted(tasks, key=lambda task: (-task.runs_before, task.size)):
        fits = limits.max_bytes is None or sum(one.size for one in taken) + task.size <= limits.max_bytes
        if fits and (limits.max_buckets is None or len(taken) < limits.max_buckets):
            taken.append(task)
    found = apply_limits(planned, limits)
    assert [one.bucket_id for one in found] == [one.bucket_id for one in planned]
    for before, after in zip(planned, found, strict=True):
        if isinstance(before, SkippedBucket) or before in taken:
            assert after == before
            continue
        assert isinstance(after, SkippedBucket)
        assert (after.runs, after.files, after.size) == (before.runs_before, len(before.files), before.size)
        assert after.reason.startswith(f"{before.reason}, but ")
        at_most = limits.max_buckets is not None and len(taken) >= limits.max_buckets
        assert ("--max-buckets" in after.reason) == at_most or "--max-bytes" in after.reason


@pytest.mark.parametrize(
    ("limits", "left"),
    [({"max_buckets": 1}, 0), ({"max_buckets": 2}, 1), ({"max_bytes": 100}, 0), ({"max_bytes": 130}, 1), ({"turn_bytes": 1}, 1)],
)
def test_distributed_rows_count_towards_the_limits_of_a_round(tmp_path: Path, limits: dict[str, Any], left: int) -> None:
    """The first bucket after them may be all that a limit still allows, or be left. The turn of a service begins with it."""
    context = make_table(tmp_path, {"num-sorted-run.compaction-trigger": "2"})
    files = tuple(
        replace(data_file(f"l0-{n}", 0, 9), file_size=10, min_sequence_number=n, max_sequence_number=n) for n in range(3)
    )
    planned = [plan_bucket(context, BucketFiles(EMPTY_ROW, bucket, 2, files), "full", 1) for bucket in range(2)]
    waiting = FileChanges(removed=(replace(data_file("w", 0, 9), file_size=100),))
    moved = CommitMessage(EMPTY_ROW, POSTPONE_BUCKET, 2, compact=waiting)
    other = CommitMessage(EMPTY_ROW, 0, 2, compact=waiting)
    request = CompactRequest(**limits).after([moved, other]).after_reading(100)
    assert [task.bucket for task in tasks_of(apply_limits(planned, request))] == list(range(left))


@pytest.mark.parametrize("seed", range(20))
def test_data_is_as_new_as_the_newest_file_that_was_written(seed: int) -> None:
    dice = random.Random(seed)
    buckets = [replace(random_bucket(dice, 5), partition=dice.choice([b"a", b"b"])) for _ in range(4)]
    found = newest_data(buckets)
    for partition in {bucket.partition for bucket in buckets if bucket.files}:
        files = [file for bucket in buckets if bucket.partition == partition for file in bucket.files]
        written = [file for file in files if file.file_source != 1] or files
        newest = max(file.creation_time_millis or 0 for file in written)
        assert found.pop(partition) == moment_of_wall_clock(newest)
    assert not found


def test_of_an_append_table_only_files_with_many_marked_rows_are_cleaned(tmp_path: Path) -> None:
    """By their share of the rows of a file: else each compaction would rewrite every file that has a vector."""
    context = make_table(tmp_path / "t", {"bucket": "-1", "compaction.delete-ratio-threshold": "0.2"}, primary_key=False)
    files = tuple(replace(data_file(name), row_count=10, file_size=1 << 40) for name in ("few", "many"))
    ranges = (DeletionVectorRange("few", 1, 22, 2), DeletionVectorRange("many", 23, 22, 3))
    vectors = IndexFileMeta(DELETION_VECTORS, "index-1-0", 45, 2, ranges)
    decision = plan_bucket(context, BucketFiles(EMPTY_ROW, 0, -1, files, (vectors,)), "minor", 1)
    assert isinstance(decision, CompactionTask) and [file.file_name for file in decision.files] == ["many"]
