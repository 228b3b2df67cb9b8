"""What becomes of the results of compactions: buckets with a conflict or a failure cost the others nothing, and leave no file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest

from paimon_cli.commit.commit_messages import CommitKind
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import Conflict, DamagedFile, DataConflict, FilesConflict, StorageUnavailable
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import compact_outcome
from paimon_cli.jobs.bucket_task import FailedBucket
from paimon_cli.jobs.compact_outcome import Outcome, commit_results, drop_conflicting, rewritten_files, try_commit
from paimon_cli.jobs.engine import LocalEngine
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    BucketId,
    CommitMessage,
    DataFileMeta,
    DeletionVectorRange,
    FileChanges,
    IndexFileMeta,
)
from tests.commit.commit_tables import data_file, live_names, make_table, partition
from tests.jobs.test_table_change import STAMP, named, put

DAYS = ("a", "b", "c")
PLACES = {day: BucketId(partition(day), 0) for day in DAYS}
NEW_SIZE, OLD_SIZE = 1000, 1000


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Two files in bucket 0 of each partition, and on disk the file into which each was merged."""
    made = make_table(tmp_path / "t", partitioned=True)
    commit(made, *(message(day, append=FileChanges(added=old(day))) for day in DAYS))
    put(made, *(on_disk(day) for day in DAYS))
    return made


def old(day: str) -> tuple[DataFileMeta, ...]:
    return data_file(f"{day}1"), data_file(f"{day}2")


def on_disk(day: str, name: str = "") -> str:
    return f"dt={day}/bucket-0/{named(name or day)}"


def message(day: str, **more: Any) -> CommitMessage:
    return CommitMessage(*PLACES[day], 2, read_snapshot_id=1, **more)


def merged(day: str) -> CommitMessage:
    return message(day, compact=FileChanges(added=(data_file(named(day), level=5),), removed=old(day)))


def commit(context: TableContext, *messages: CommitMessage) -> None:
    Committer(context).commit(messages, fresh_identity(context))


def rival(context: TableContext, day: str) -> None:
    """Another job has merged the files of a partition."""
    commit(context, message(day, compact=FileChanges(added=(data_file(f"{day}-theirs", level=5),), removed=old(day))))


def left(context: TableContext) -> set[str]:
    """The new files on disk."""
    root = Path(context.url)
    return {str(path.relative_to(root)) for path in root.glob("dt=*/bucket-*/*")}


def failed(day: str, error: Any) -> FailedBucket:
    class Task:
        bucket_id, bucket, files = PLACES[day], 0, old(day)

    return FailedBucket(cast(CompactionTask, Task()), error)


def committed(context: TableContext, *results: CommitMessage | FailedBucket) -> Outcome:
    outcome = Outcome()
    commit_results(NewFiles(context, STAMP), results, LocalEngine(), outcome)
    return outcome


def test_all_buckets_are_one_snapshot(context: TableContext) -> None:
    outcome = committed(context, *map(merged, DAYS))
    assert len(outcome.committed) == 3 and [snapshot.id for snapshot in outcome.snapshots] == [2]
    assert not outcome.conflicts and left(context) == {on_disk(day) for day in DAYS}
    assert live_names(context) == sorted(f"{named(day)}@5" for day in DAYS)
    assert committed(context) == Outcome()


def test_a_failed_bucket_leaves_no_file_and_the_others_are_committed(context: TableContext) -> None:
    put(context, on_disk("b", "half"))
    error, conflict = DamagedFile("b1 is damaged"), DataConflict("c was written")
    outcome = committed(context, merged("a"), failed("b", error), failed("c", conflict))
    assert (outcome.failures, outcome.conflicts) == ({PLACES["b"]: error}, {PLACES["c"]: conflict})
    assert outcome.committed == [merged("a")] and left(context) == {on_disk("a")}


def test_a_bucket_that_failed_because_its_files_were_replaced_is_a_conflict(context: TableContext) -> None:
    rival(context, "b")
    outcome = committed(context, failed("a", DamagedFile("a1")), failed("b", DamagedFile("b1 is missing")))
    assert list(outcome.failures) == [PLACES["a"]] and list(outcome.conflicts) == [PLACES["b"]]
    assert isinstance(outcome.conflicts[PLACES["b"]], FilesConflict) and "b1 is missing" in outcome.conflicts[PLACES["b"]].why


def test_a_bucket_that_was_replaced_meanwhile_costs_the_others_nothing(context: TableContext) -> None:
    rival(context, "b")
    outcome = committed(context, *map(merged, DAYS))
    assert [one.bucket_id for one in outcome.committed] == [PLACES["a"], PLACES["c"]]
    assert [snapshot.id for snapshot in outcome.snapshots] == [3] and list(outcome.conflicts) == [PLACES["b"]]
    assert left(context) == {on_disk("a"), on_disk("c")} and outcome.lost_written == NEW_SIZE
    assert live_names(context) == sorted([f"{named('a')}@5", "b-theirs@5", f"{named('c')}@5"])


def test_a_single_bucket_that_was_replaced_is_not_tried_again(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    rival(context, "b")
    for is_seen in (True, False):
        put(context, on_disk("b"))
        if not is_seen:
            monkeypatch.setattr(compact_outcome, "_replaced_buckets", lambda *_: set())
        outcome = committed(context, merged("b"))
        assert list(outcome.conflicts) == [PLACES["b"]] and not outcome.committed and outcome.lost_written == NEW_SIZE
        assert left(context) == {on_disk("a"), on_disk("c")}


def test_buckets_are_committed_one_by_one_if_nobody_knows_which_was_replaced(
    context: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival(context, "b")
    monkeypatch.setattr(compact_outcome, "_replaced_buckets", lambda *_: set())
    outcome = committed(context, *map(merged, DAYS))
    assert [one.bucket_id for one in outcome.committed] == [PLACES["a"], PLACES["c"]]
    assert [snapshot.id for snapshot in outcome.snapshots] == [3, 4] and list(outcome.conflicts) == [PLACES["b"]]
    assert left(context) == {on_disk("a"), on_disk("c")} and outcome.lost_written == NEW_SIZE


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_store_that_fails_between_two_buckets_leaves_no_file_of_those_that_wait(
    context: TableContext, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """At the first commit of all, at that without the replaced bucket, or at the first one by one."""
    rival(context, "b")
    real, calls, outcome = compact_outcome.try_commit, list[int](), Outcome()
    if broken == 3:
        monkeypatch.setattr(compact_outcome, "_replaced_buckets", lambda *_: set())

    def failing(new_files: NewFiles, messages: list[CommitMessage], *rest: Any) -> Conflict | None:
        calls.append(len(messages))
        if len(calls) == broken:
            new_files.settle(messages, CommitResult.failed(StorageUnavailable("the store is away")))
            raise StorageUnavailable("the store is away")
        return real(new_files, messages, *rest)

    monkeypatch.setattr(compact_outcome, "try_commit", failing)
    with pytest.raises(StorageUnavailable):
        commit_results(NewFiles(context, STAMP), [*map(merged, DAYS)], LocalEngine(), outcome)
    done = {on_disk("a")} if broken == 3 else set()
    assert left(context) == done and len(outcome.committed) == len(done) and calls == [[3], [3, 2], [3, 1, 1]][broken - 1]


def test_a_conflict_leaves_the_files_for_another_attempt(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    class Refusing:
        def __init__(self, context: TableContext) -> None: ...

        def commit(self, *arguments: Any, **named: Any) -> CommitResult:
            given.append((*arguments[2:], named))
            raise conflicts.pop(0)

    monkeypatch.setattr(compact_outcome, "Committer", Refusing)
    conflicts: list[Exception] = [FilesConflict("a"), DataConflict("b"), Conflict("c"), StorageUnavailable("d")]
    new_files, outcome = NewFiles(context, STAMP, began_millis=7), Outcome()
    for wanted in ("a", "b", "c"):
        refused = try_commit(new_files, [merged("a")], outcome, CommitKind.DISTRIBUTE)
        assert refused is not None and refused.what == wanted and on_disk("a") in left(context)
    assert given == [(CommitKind.DISTRIBUTE, {"work_begin_millis": 7})] * 3
    with pytest.raises(StorageUnavailable):
        try_commit(new_files, [merged("a")], outcome)
    assert outcome == Outcome() and on_disk("a") not in left(context)


def test_what_is_dropped_is_counted_and_leaves_no_file(context: TableContext) -> None:
    outcome, conflict = Outcome(), FilesConflict("another job")
    drop_conflicting(NewFiles(context, STAMP), [], conflict, outcome)
    assert outcome == Outcome()
    drop_conflicting(NewFiles(context, STAMP), [merged("a"), merged("c")], conflict, outcome)
    assert outcome == Outcome(conflicts={PLACES["a"]: conflict, PLACES["c"]: conflict}, lost_written=2 * NEW_SIZE)
    assert left(context) == {on_disk("b")}


def test_stages_add_up_and_a_repetition_replaces_the_conflicts() -> None:
    errors = {day: DamagedFile(day) for day in DAYS}
    conflicts = {day: FilesConflict(day) for day in DAYS}

    def outcome(day: str, factor: int) -> Outcome:
        own: Any = {"committed": [merged(day)], "snapshots": [day], "regrouped": [merged(day)]}
        numbers: dict[str, Any] = {one.name: factor * 2**at for at, one in enumerate(fields(Outcome)) if one.type == "int"}
        return Outcome(conflicts={PLACES[day]: conflicts[day]}, failures={PLACES[day]: errors[day]}, **own, **numbers)

    total = outcome("a", 1)
    total.rescaled_to = 4
    total.add_stage(outcome("b", 10))
    expected = {name: 11 * value for name, value in vars(outcome("a", 1)).items() if isinstance(value, int)}
    assert {name: getattr(total, name) for name in expected} == expected and len(expected) == 5
    assert total.committed == total.regrouped == [merged("a"), merged("b")] and total.snapshots == cast(Any, ["a", "b"])
    assert set(total.conflicts) == set(total.failures) == {PLACES["a"], PLACES["b"]} and total.rescaled_to == 4
    later = outcome("c", 100)
    later.rescaled_to = 8
    total.add_round(later)
    assert set(total.conflicts) == {PLACES["c"]} and set(total.failures) == set(PLACES.values()) and total.rescaled_to == 8
    assert {name: getattr(total, name) for name in expected} == {name: value // 11 * 111 for name, value in expected.items()}


def test_files_of_which_only_the_level_changed_were_neither_read_nor_written() -> None:
    moved = data_file("moved")
    both = FileChanges((data_file("new", level=5), data_file("moved", level=5)), (moved, *old("a")))
    read, written = rewritten_files([message("a", compact=both), merged("b"), message("c", append=FileChanges(added=old("c")))])
    assert [file.file_name for file in read] == ["a1", "a2", "b1", "b2"]
    assert [file.file_name for file in written] == ["new", named("b")]


def test_what_was_read_of_buckets_that_are_not_done_came_to_nothing() -> None:
    """a is done, in two messages; b is done in part, with a conflict; c has begun only."""
    half = message("b", compact=FileChanges(removed=old("b")[:1]))
    outcome = Outcome(committed=[merged("a"), merged("a"), half], conflicts={PLACES["b"]: FilesConflict("b")})
    begun = {PLACES["a"]: 4 * OLD_SIZE, PLACES["b"]: 3 * OLD_SIZE, PLACES["c"]: 500}
    outcome.note_lost(begun)
    assert outcome.lost_read == 2 * OLD_SIZE + 500 and outcome.read_size == 5 * OLD_SIZE + outcome.lost_read
    failing = Outcome(committed=[merged("a"), merged("a")], failures={PLACES["a"]: DamagedFile("a")})
    failing.note_lost({PLACES["a"]: 3 * OLD_SIZE})
    assert failing.lost_read == 0, "more was read than the plan knew"
    split = Outcome(regrouped=[merged("a")])
    split.note_lost({BucketId(PLACES["a"].partition, -1): 2 * OLD_SIZE, PLACES["b"]: 7})
    assert split.lost_read == 7 and split.read_size == 2 * OLD_SIZE + 7


def test_moves_read_what_they_replace_and_write_what_they_add(context: TableContext) -> None:
    commit(context, merged("a"))
    both = FileChanges(removed=old("b"), added=(data_file("b3", level=5), data_file("b4", 10, 19, level=5)))
    commit(context, message("b", compact=both))
    outcome = Outcome(moved_read=1)
    snapshots = [context.snapshots.get(number) for number in (2, 3)]
    outcome.note_moved(context, snapshots)
    assert (outcome.moved_read, outcome.moved_written, outcome.snapshots) == (1 + 4 * OLD_SIZE, 3 * NEW_SIZE, snapshots)


def test_a_bucket_is_current_while_it_has_what_was_read() -> None:
    def vectors(name: str) -> IndexFileMeta:
        return IndexFileMeta(DELETION_VECTORS, name, 1, 1, (DeletionVectorRange("up", 0, 1, 1),))

    def bucket(*files: DataFileMeta, indexes: tuple[IndexFileMeta, ...] = ()) -> BucketFiles:
        return BucketFiles(b"", 0, 2, files, indexes)

    a, b, up = data_file("a"), data_file("b"), data_file("up", level=5)
    base = compact_outcome._Base((a, up))
    assert base.is_current(bucket(a, up)) and base.is_current(bucket(b, a, up, indexes=(vectors("v"),)))
    for gone in (None, bucket(), bucket(a), bucket(a, data_file("up", level=4)), bucket(data_file("a", level=1), up)):
        assert not base.is_current(gone)
    looked_up = compact_outcome._Base((a,), upper_files=("up",))
    assert looked_up.is_current(bucket(a, b, up)) and looked_up.is_current(bucket(a))
    assert not looked_up.is_current(bucket(a, up, data_file("other", level=3)))
    assert not compact_outcome._Base((a,), upper_files=()).is_current(bucket(a, up))
    marked = compact_outcome._Base((a,), ("v",))
    assert marked.is_current(bucket(a, indexes=(vectors("v"),)))
    for others in ((), (vectors("w"),), (vectors("v"), vectors("w"))):
        assert not marked.is_current(bucket(a, indexes=others))
    assert not compact_outcome._Base((a,), ()).is_current(bucket(a, indexes=(vectors("v"),)))
