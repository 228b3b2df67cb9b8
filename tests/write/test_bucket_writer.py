"""A writer's tree under flushes and compactions in any order, against plain lists of file names."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import FilesConflict, StorageUnavailable
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DELETION_VECTORS, EMPTY_ROW, CommitMessage, DataFileMeta, FileChanges, IndexFileMeta
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.write.bucket_writer import BucketTree, Compactions, InThisThread
from tests.commit.commit_tables import data_file, make_table


class Later(Executor):
    """Runs what was submitted when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **named)))
        return future

    def go_on(self) -> None:
        for future, work in self.waiting:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
        self.waiting.clear()


@dataclass
class Deletions(LocalStorage):
    """Notes what is deleted."""

    deleted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def delete(self, path: str) -> None:
        self.deleted.append(path.rpartition("/")[2])


class Merging:
    """A compaction of chance: nothing, some of the newest files into one of a higher level, or one file moved up."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.made: list[str] = []
        self.changelogs: list[str] = []
        self.offered: list[list[str]] = []

    def __call__(self, context: TableContext, bucket: BucketFiles, gives_up: Callable[[], bool]) -> CommitMessage | None:
        if gives_up():
            raise CancelledError
        self.offered.append([file.file_name for file in bucket.files])
        if not bucket.files or self._dice.random() < 0.2:
            return None
        if self._dice.random() < 0.3:
            moved = self._dice.choice(bucket.files)
            after = [replace(moved, level=moved.level + 1)]
            before = [moved]
        else:
            before = list(bucket.files[-self._dice.randint(1, len(bucket.files)) :])
            name = f"merged-{len(self.made)}"
            self.made.append(name)
            after = [data_file(name, level=self._dice.randint(1, 5), extra_files=(f"{name}.index",))]
        self.changelogs.append(f"changes-{len(self.changelogs)}")
        changelog = (data_file(self.changelogs[-1]),)
        return CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed=tuple(before), added=tuple(after), changelog=changelog))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_committed_is_what_flushes_and_compactions_left(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    storage, executor, merging = Deletions(), Later(), Merging(dice)
    context = replace(make_table(tmp_path), storage=storage)
    start = [data_file(f"start-{number}", level=dice.choice([0, 0, 5])) for number in range(dice.randint(0, 3))]
    bucket = BucketFiles(EMPTY_ROW, 0, 2, tuple(start))
    tree = BucketTree(context, bucket, Compactions(context, merging, executor))
    flushed: list[DataFileMeta] = []
    assert tree.has_unseen_runs
    for step in range(dice.randint(1, 14)):
        action = dice.choice(["flush", "flush", "begin", "go on", "take"])
        if action == "flush":
            files = [data_file(f"flushed-{step}-{number}", extra_files=(f"x-{step}-{number}",)) for number in range(2)]
            tree.flushed(files)
            flushed += files
            assert tree.has_unseen_runs
        elif action == "begin":
            may_begin = tree.has_unseen_runs and not executor.waiting and tree._running is None
            assert tree.begin_compaction() == may_begin
            assert not (may_begin and tree.has_unseen_runs)
        elif action == "go on":
            executor.go_on()
        elif not executor.waiting:
            tree.take_result(wait=dice.random() < 0.5)
        else:
            assert not tree.take_result(wait=False), "it is still at work"
    executor.go_on()
    tree.take_result(wait=True)
    message = tree.message(7)
    levels = [file.level for file in tree._live]
    assert tree.run_count == levels.count(0) + len({level for level in levels if level})
    assert message.append.added == tuple(flushed) and message.read_snapshot_id == 7 and message.total_buckets == 2
    before, after = ([file.file_name for file in half] for half in (message.compact.removed, message.compact.added))
    known = [file.file_name for file in (*start, *flushed)]
    assert len(set(before)) == len(before) and len(set(after)) == len(after)
    assert set(before) <= set(known), "only what the table or this commit knows can go"
    left = {name for name in known if name not in before} | set(after)
    assert {file.file_name for file in tree._live} == left
    for half in message.compact.added:
        assert half in tree._live
    assert [file.file_name for file in message.compact.changelog] == merging.changelogs
    untouched = [file.file_name for file in tree._live if file.file_name in known and file.file_name not in after]
    assert untouched == [name for name in known if name in untouched], "files keep their order"
    gone = {name for name in merging.made if name not in left}
    assert sorted(storage.deleted) == sorted([*gone, *(f"{name}.index" for name in gone)])


def test_a_merged_file_replaces_its_newest_input(tmp_path: Path) -> None:
    """The order of files decides between equal sequence numbers."""
    context = make_table(tmp_path)
    start = [data_file("old", level=5), data_file("a"), data_file("b")]

    def merge(context: TableContext, bucket: BucketFiles, gives_up: Callable[[], bool]) -> CommitMessage:
        return CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed=bucket.files[1:3], added=(data_file("ab", level=4),)))

    executor = Later()
    tree = BucketTree(context, BucketFiles(EMPTY_ROW, 0, 2, tuple(start)), Compactions(context, merge, executor))
    assert tree.run_count == 3 and tree.begin_compaction()
    tree.flushed([data_file("c")])
    assert not tree.take_result(wait=False) and tree.run_count == 4
    executor.go_on()
    assert tree.take_result(wait=False)
    assert [file.file_name for file in tree._live] == ["old", "ab", "c"] and tree.run_count == 3
    assert not tree.take_result(wait=True), "it was taken already"


def test_a_file_that_one_compaction_makes_and_others_move_stays(tmp_path: Path) -> None:
    """It is neither among the files that go, nor deleted."""
    storage = Deletions()
    context = replace(make_table(tmp_path), storage=storage)
    made = [data_file("made", level=level) for level in (3, 4, 5)]
    steps = iter([((data_file("a"), data_file("b")), made[0]), ((made[0],), made[1]), ((made[1],), made[2])])

    def merge(context: TableContext, bucket: BucketFiles, gives_up: Callable[[], bool]) -> CommitMessage:
        removed, added = next(steps)
        return CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed=removed, added=(added,)))

    start = BucketFiles(EMPTY_ROW, 0, 2, (data_file("a"), data_file("b")))
    tree = BucketTree(context, start, Compactions(context, merge, InThisThread()))
    for _ in range(3):
        tree.compact()
    message = tree.message(1)
    assert message.compact.added == (made[2],) and {file.file_name for file in message.compact.removed} == {"a", "b"}
    assert storage.deleted == []


def test_what_is_dropped_is_deleted_and_not_in_the_message(tmp_path: Path) -> None:
    """Another job has replaced the files that the second compaction reads, and so those of the first one."""
    storage = Deletions()
    context = replace(make_table(tmp_path), storage=storage)
    change = FileChanges(removed=(data_file("a"),), added=(data_file("made", level=3),), changelog=(data_file("changes"),))
    answers = iter([CommitMessage(EMPTY_ROW, 0, 2, compact=change)])

    def merge(context: TableContext, bucket: BucketFiles, gives_up: Callable[[], bool]) -> CommitMessage:
        if (message := next(answers, None)) is None:
            raise FilesConflict("another job was faster")
        return message

    tree = BucketTree(context, BucketFiles(EMPTY_ROW, 0, 2, (data_file("a"),)), Compactions(context, merge, InThisThread()))
    tree.flushed([data_file("b")])
    tree.compact()
    assert tree.message(1).compact == change
    tree.compact()
    message = tree.message(1)
    assert tree.compaction_lost is not None and message.compact == FileChanges()
    assert [file.file_name for file in message.append.added] == ["b"] and sorted(storage.deleted) == ["changes", "made"]


def test_index_files_of_compactions_replace_each_other_and_go_when_they_are_dropped(tmp_path: Path) -> None:
    """The second compaction replaces the vectors of the first one; for the third one, another job was faster."""
    storage = Deletions()
    context = replace(make_table(tmp_path, {"deletion-vectors.enabled": "true"}), storage=storage)
    start, first, second = (IndexFileMeta(DELETION_VECTORS, name, 1, 1) for name in ("start", "first", "second"))
    steps = iter([(start, first), (first, second)])

    def merge(context: TableContext, bucket: BucketFiles, gives_up: Callable[[], bool]) -> CommitMessage:
        if (step := next(steps, None)) is None:
            raise FilesConflict("another job was faster")
        removed, added = bucket.files[-1:], (bucket.files[-1].upgraded(bucket.files[-1].level + 1),)
        return CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed, added, (), step[1:], step[:1]))

    bucket = BucketFiles(EMPTY_ROW, 0, 2, (data_file("upper", level=4), data_file("a")), (start,))
    tree = BucketTree(context, bucket, Compactions(context, merge, InThisThread()))
    tree.compact()
    tree.compact()
    message = tree.message(1)
    assert (message.compact.removed_indexes, message.compact.added_indexes) == ((start,), (second,))
    assert (message.read_index_files, message.read_upper_files, storage.deleted) == (("start",), ("upper",), ["first"])
    tree.compact()
    assert tree.message(1).compact == FileChanges() and storage.deleted == ["first", "second"]


def test_a_tree_without_compactions_only_grows(tmp_path: Path) -> None:
    tree = BucketTree(make_table(tmp_path), BucketFiles(EMPTY_ROW, 0, 2, ()), None)
    tree.flushed([data_file("a")])
    assert not tree.begin_compaction() and not tree.take_result(wait=True) and tree.run_count == 1


def test_the_error_of_a_compaction_is_raised_by_the_next_call(tmp_path: Path) -> None:
    failures = [ValueError("first"), ValueError("second")]

    def fail(context: TableContext, bucket: BucketFiles, gives_up: Callable[[], bool]) -> CommitMessage:
        raise failures[len(seen) - 1]

    seen: list[int] = []
    context = make_table(tmp_path)
    compactions = Compactions(context, fail, InThisThread())
    compactions.check()
    tree = BucketTree(context, BucketFiles(EMPTY_ROW, 0, 2, ()), compactions)
    for number in (1, 2):
        seen.append(number)
        tree.flushed([data_file(f"f{number}")])
        assert tree.begin_compaction()
        with pytest.raises(ValueError):
            tree.take_result(wait=True)
    with pytest.raises(ValueError, match="first"):
        compactions.check()
    compactions.give_up()
    assert compactions._given_up.is_set()
    compactions.close()


def test_work_in_this_thread_is_done_at_once() -> None:
    done: list[tuple[object, ...]] = []

    def work(first: int, *, second: int) -> int:
        done.append((first, second))
        if second == 0:
            raise FilesConflict("another job was faster")
        return first // second

    here = InThisThread()
    assert here.submit(work, 6, second=3).result() == 2 and done == [(6, 3)]
    failed = here.submit(work, 6, second=0)
    assert failed.done() and isinstance(failed.exception(), FilesConflict) and done == [(6, 3), (6, 0)]


def test_leaving_waits_for_what_is_at_work_and_begins_nothing_more(tmp_path: Path) -> None:
    context, begun, may_end, ended = make_table(tmp_path), threading.Event(), threading.Event(), list[int]()

    def compact_bucket(context: TableContext, bucket: BucketFiles, is_given_up: Callable[[], bool]) -> CommitMessage | None:
        begun.set()
        assert may_end.wait(120)
        ended.append(bucket.bucket)
        return None

    compactions = Compactions(context, compact_bucket, ThreadPoolExecutor(1))
    running, *waiting = [compactions.begin(BucketFiles(EMPTY_ROW, number, 3, ())) for number in range(3)]
    assert begun.wait(120)
    closing = threading.Thread(target=compactions.close)
    closing.start()
    while not all(future.cancelled() for future in waiting) and closing.is_alive():
        closing.join(0.01)
    assert closing.is_alive() and not ended, "one is at work still"
    may_end.set()
    closing.join(120)
    assert ended == [0] and running.result() is None


def test_a_compactor_is_informed_when_its_caller_is_gone(tmp_path: Path) -> None:
    answers: list[bool] = []

    def compact_bucket(context: TableContext, bucket: BucketFiles, is_given_up: Callable[[], bool]) -> CommitMessage | None:
        answers.append(is_given_up())
        if bucket.bucket == 1:
            raise FilesConflict("another job was faster")
        if bucket.bucket > 1:
            raise StorageUnavailable(f"the disk of {bucket.bucket} is full")
        return None

    compactions = Compactions(make_table(tmp_path), compact_bucket, InThisThread())
    for number in (0, 1):
        compactions.begin(BucketFiles(EMPTY_ROW, number, 4, ()))
        compactions.check()
    compactions.give_up()
    for number in (2, 3):
        compactions.begin(BucketFiles(EMPTY_ROW, number, 4, ()))
        with pytest.raises(StorageUnavailable, match="disk of 2 is full"):
            compactions.check()
    assert answers == [False, False, True, True]


def test_a_flushed_file_that_a_dropped_compaction_has_moved_stays(tmp_path: Path) -> None:
    """It has the name of the file that is to be committed."""
    storage = Deletions()
    context = replace(make_table(tmp_path), storage=storage)
    flushed = data_file("flushed")
    answers = iter([CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges((flushed,), (flushed.upgraded(1),)))])

    def merge(context: TableContext, bucket: BucketFiles, gives_up: Callable[[], bool]) -> CommitMessage:
        if (message := next(answers, None)) is None:
            raise FilesConflict("another job was faster")
        return message

    tree = BucketTree(context, BucketFiles(EMPTY_ROW, 0, 2, (data_file("a"),)), Compactions(context, merge, InThisThread()))
    tree.flushed([flushed])
    tree.compact()
    tree.compact()
    message = tree.message(1)
    assert tree.compaction_lost is not None and storage.deleted == [] and tree.run_count == 2
    assert (message.append.added, message.compact) == ((flushed,), FileChanges())
