"""The results of the tasks of a compaction become one for each bucket, and each task has its share of the memory."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import DamagedFile, SnapshotExpired, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import bucket_tasks, sort_job
from paimon_cli.jobs.bucket_task import CompactedPart, FailedBucket
from paimon_cli.jobs.bucket_tasks import _memory_of_a_task, _per_bucket, run_bucket_tasks
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.range_compaction import RangeCommits
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.pieces import PIECES
from paimon_cli.requests.compaction import MIN_MEMORY
from tests.commit.commit_tables import data_file, make_table


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    return make_table(tmp_path / "t")


def message(bucket: int, *names: str) -> CommitMessage:
    files = tuple(data_file(name) for name in names)
    return CommitMessage(EMPTY_ROW, bucket, 4, compact=FileChanges(removed=files, added=files[:1], changelog=files[1:]))


def task(bucket: int, stamp: str = "s") -> CompactionTask:
    return CompactionTask(EMPTY_ROW, bucket, 4, (data_file(f"{bucket}"),), 5, 5, True, "due", "", 2, 1, 1, file_stamp=stamp)


def failed(bucket: int, what: str = "damaged") -> FailedBucket:
    return FailedBucket(task(bucket), DamagedFile(what))


def test_the_messages_of_a_bucket_are_one_in_the_order_of_its_tasks() -> None:
    found = _per_bucket([message(1, "a", "b"), message(0, "x"), message(1, "c", "d"), message(1, "e")])
    assert [one.bucket_id.bucket for one in found] == [1, 0] and found[1] == message(0, "x")
    (first, _) = found
    assert isinstance(first, CommitMessage) and [file.file_name for file in first.compact.removed] == ["a", "b", "c", "d", "e"]
    assert [file.file_name for file in first.compact.added] == ["a", "c", "e"]
    assert [file.file_name for file in first.compact.changelog] == ["b", "d"]


def test_a_bucket_fails_with_the_first_of_its_tasks_that_does() -> None:
    one, two = failed(1, "first"), failed(1, "second")
    for results in ([one, message(1, "a"), two], [message(1, "a"), one, message(1, "b"), two], [one, two]):
        assert _per_bucket([*results, message(2, "z")]) == [one, message(2, "z")]
    assert _per_bucket([]) == []


class _Engine(LocalEngine):
    def __init__(self, name: str, tasks: int) -> None:
        super().__init__()
        self.name, self._tasks = name, tasks

    @property
    def tasks_per_process(self) -> int:
        return self._tasks


@pytest.mark.parametrize(
    ("given", "container", "tasks", "share"),
    [
        *((None, None, 4, None), (None, 1 << 50, 4, None), (None, 80 << 20, 4, 10 << 20), (None, 3 << 20, 4, MIN_MEMORY)),
        *((400 << 20, None, 4, 100 << 20), (400 << 20, 8 << 20, 1, 400 << 20), (4 << 20, None, 4, MIN_MEMORY)),
    ],
)
def test_the_memory_is_shared_by_the_tasks_of_a_process(
    monkeypatch: pytest.MonkeyPatch, given: int | None, container: int | None, tasks: int, share: int | None
) -> None:
    monkeypatch.setattr(PIECES, "merge_bytes", 256 << 20)
    monkeypatch.setattr(bucket_tasks, "container_memory", lambda: container)
    assert _memory_of_a_task(CompactRequest(memory=given), _Engine("local", tasks)) == share
    elsewhere = None if given is None else share
    assert _memory_of_a_task(CompactRequest(memory=given), _Engine("spark", tasks)) == elsewhere, "its limits are not ours"


def test_too_little_memory_for_all_tasks_is_refused() -> None:
    for given, tasks in ((4 * MIN_MEMORY - 1, 4), (MIN_MEMORY, 2)):
        with pytest.raises(UsageError, match=f"too small for {tasks} concurrent compactions"):
            _memory_of_a_task(CompactRequest(memory=given), _Engine("local", tasks))


def run(context: TableContext, *tasks: CompactionTask, ranges: RangeCommits | None = None, **request: Any) -> list[Any]:
    ranges = ranges or RangeCommits(NewFiles(context, "s", contextlib.nullcontext), LocalEngine())
    return list(run_bucket_tasks(ranges, CompactRequest(**request), CompactionPlan(7, tasks), NoProgress()))


def test_all_partitions_of_a_sort_fail_with_the_snapshot(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is told from a missing file: the snapshot is not there any more."""

    def expire(*_: object) -> None:
        raise DamagedFile("a data file is missing")

    monkeypatch.setattr(sort_job, "sort_partitions", expire)
    results = run(context, task(0), task(1), order_by=("k",))
    assert [one.task for one in results] == [task(0), task(1)]
    assert all(isinstance(one.error, SnapshotExpired) and "snapshot 7" in one.error.what for one in results)


def test_parts_that_ranges_commit_are_no_results(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets them would commit them once more. Files of parts that an engine repeated are deleted at the end."""
    log: list[str] = []

    class Ranges(RangeCommits):
        def commit(self, finished: CompactedPart) -> bool:
            log.append(finished.stamp)
            return finished.stamp == "range"

        def delete_repeated(self) -> None:
            log.append("deleted")

    def compacted(_: TableContext, of: CompactionTask) -> CompactedPart:
        return CompactedPart(of.file_stamp, message(of.bucket, of.file_stamp), {})

    monkeypatch.setattr(bucket_tasks, "compact_part", compacted)
    monkeypatch.setattr(bucket_tasks, "run_traced", _in_turn)
    ranges = Ranges(NewFiles(context, "s", contextlib.nullcontext), LocalEngine())
    found = run(context, task(0, "range"), task(1, "own"), task(2, "range"), task(1, "own"), ranges=ranges)
    (one,) = found
    assert one.bucket_id.bucket == 1 and [file.file_name for file in one.compact.removed] == ["own", "own"]
    assert log == ["range", "own", "range", "own", "deleted"]


def _in_turn(_: object, context: TableContext, function: Any, tasks: Any, done: Any, *__: object, **___: object) -> None:
    for one in tasks:
        done(function(context, one))


@pytest.mark.parametrize("fails", ["run_traced", "_per_bucket"])
def test_files_are_deleted_if_the_engine_fails(context: TableContext, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    deleted: list[str] = []

    class Files(NewFiles):
        def deleted_on_failure(self) -> contextlib.AbstractContextManager[None]:
            return _noting("own")

    class Ranges(RangeCommits):
        def deleted_on_failure(self) -> contextlib.AbstractContextManager[None]:
            return _noting("ranges")

    @contextlib.contextmanager
    def _noting(name: str) -> Any:
        try:
            yield
        except BaseException:
            deleted.append(name)
            raise

    def fail(*_: object, **__: object) -> None:
        raise StorageUnavailable("away")

    monkeypatch.setattr(bucket_tasks, "run_traced", _in_turn)
    monkeypatch.setattr(bucket_tasks, "compact_part", lambda _, of: CompactedPart("s", message(of.bucket, "x"), {}))
    monkeypatch.setattr(bucket_tasks, fails, fail)
    with pytest.raises(StorageUnavailable):
        run(context, task(0), ranges=Ranges(Files(context, "s", contextlib.nullcontext), LocalEngine()))
    assert sorted(deleted) == ["own", "ranges"]
