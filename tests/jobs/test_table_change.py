"""The skeleton of jobs, function by function: which new files stay, which commits are repeated, and whose identity they have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import (
    Conflict,
    DamagedFile,
    DataConflict,
    FilesConflict,
    NotFound,
    PaimonError,
    SnapshotExpired,
    StorageUnavailable,
    UsageError,
)
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.table_change import (
    NewFiles,
    again_on_conflict,
    check_writable_table,
    compacted_by_writers,
    expiry_noticed,
    identity_of,
    settled,
    write_files,
)
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.metadata.data_file import DELETION_VECTORS, EMPTY_ROW, CommitMessage, FileChanges, IndexFileMeta
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_plan import Tallies, WritePlan
from tests.commit.commit_tables import data_file, make_table
from tests.tables import data_files, write
from tests.tables import make_table as table_of_columns

STAMP = "0123456789abcdef"
UUID = "01234567-89ab-cdef-0000-000000000000"


def put(context: TableContext, *names: str) -> None:
    for name in names:
        path = Path(context.url, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def present(context: TableContext) -> set[str]:
    root = Path(context.url)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "schema" not in path.parts}


def named(name: str) -> str:
    """A file of the job: its name has the stamp."""
    return f"data-{UUID}-{name}.parquet"


def message(bucket: int = 0, **changes: Any) -> CommitMessage:
    return CommitMessage(EMPTY_ROW, bucket, 2, read_snapshot_id=0, **changes)


def test_of_the_files_of_a_job_those_stay_that_a_message_names(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"deletion-vectors.enabled": "true"})
    index = IndexFileMeta(DELETION_VECTORS, f"index-{UUID}-0", 1, 1, ())
    kept = [f"bucket-0/{named('0')}", f"bucket-1/{named('1')}", f"bucket-1/{named('2')}", f"index/index-{UUID}-0"]
    others = ["bucket-0/data-ffffffff-89ab-cdef-0000-000000000000-0.parquet", "index/index-ffffffff-0"]
    put(context, *kept, *others, f"bucket-0/{named('7')}", f"index/index-{UUID}-7")
    messages = [
        message(0, append=FileChanges(added=(data_file(named("0")),))),
        message(1, append=FileChanges(added=(data_file(named("1")),))),
        message(1, compact=FileChanges(added=(data_file(named("2"), level=5),), added_indexes=(index,))),
    ]
    new_files = NewFiles(context, STAMP)
    new_files.delete_repeated(LocalEngine(), messages)
    assert len(present(context)) == 8, "this engine repeats no task"
    new_files.delete_all_but(messages)
    assert present(context) == {*kept, *others}
    new_files.delete_all_but(())
    assert present(context) == {*others}


CONFLICT = FilesConflict("another job compacted the files", "by a test")


@pytest.mark.parametrize(
    ("failure", "keep_on", "stays"),
    [
        (None, None, True),
        (None, Conflict, True),
        (CONFLICT, None, False),
        (CONFLICT, Conflict, True),
        (CONFLICT, DataConflict, False),
        (StorageUnavailable("no"), Conflict, False),
        (StorageUnavailable("no"), None, False),
    ],
)
def test_the_files_of_a_refused_commit_stay_only_for_another_attempt(
    tmp_path: Path, failure: PaimonError | None, keep_on: type[PaimonError] | None, stays: bool
) -> None:
    context = make_table(tmp_path / "t")
    put(context, f"bucket-0/{named('0')}")
    messages = [message(append=FileChanges(added=(data_file(named("0")),)))]

    def publish() -> CommitResult:
        if failure is not None:
            raise failure
        return CommitResult(attempts=3)

    new_files = NewFiles(context, STAMP)
    if failure is None:
        assert new_files.commit(messages, publish, keep_on).attempts == 3
        assert new_files.commit_halves(messages, publish).attempts == 3
    else:
        with pytest.raises(type(failure)):
            new_files.commit(messages, publish, keep_on)
    assert bool(present(context)) == stays
    if failure is not None:
        with pytest.raises(type(failure)):
            new_files.commit_halves(messages, publish)
        assert not present(context)


def test_rows_stay_committed_without_the_compactions_of_their_writers(tmp_path: Path) -> None:
    context = table_of_columns(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    write(context, [{"k": 1}])
    snapshot, rows = context.snapshots.latest(), data_files(context)
    assert snapshot is not None
    (file,) = (Path(name).name for name in rows)
    put(context, f"bucket-0/{named('9')}")
    both = message(append=FileChanges(added=(data_file(file),)), compact=FileChanges(added=(data_file(named("9"), level=5),)))
    refused = CommitResult((snapshot,)).ended_by(CONFLICT)
    result = NewFiles(context, STAMP).commit_halves([both], lambda: refused)
    assert result.failure is CONFLICT and data_files(context) == rows
    assert compacted_by_writers([both, message()], result, (None,)) == {"compacted": 0, "compaction_lost": str(CONFLICT)}
    with pytest.raises(PaimonError, match="by a test") as failure:
        NewFiles(context, STAMP).commit_halves([both], lambda: CommitResult().ended_by(CONFLICT))
    assert failure.value.details["published_snapshots"] == []
    other = CommitResult((snapshot,)).ended_by(UsageError("a bug", "by a test"))
    with pytest.raises(UsageError):
        NewFiles(context, STAMP).commit_halves([both], lambda: other)


def test_a_summary_counts_the_compactions_that_were_committed_and_names_the_first_that_was_lost() -> None:
    compacted = message(compact=FileChanges(added=(data_file("a"),)))
    made = CommitResult()
    of = compacted_by_writers
    assert of([compacted, message(), compacted], made, (None, None)) == {"compacted": 2, "compaction_lost": None}
    assert of([compacted], made, (None, "first", "second")) == {"compacted": 1, "compaction_lost": "first"}


class RepeatingEngine(LocalEngine):
    """Leaves what a first attempt of a task has written, as a cluster may."""

    retries_tasks = True

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Any) -> Written:
        super().write_rows(plan, tallies, progress)
        tallies.clear()
        return super().write_rows(plan, tallies, progress)


def test_a_write_keeps_the_files_of_the_last_attempts_and_counts_its_splits(tmp_path: Path) -> None:
    context = table_of_columns(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=2)
    write(context, [{"k": number} for number in range(9)])
    before = data_files(context)
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f'{{"k": {number}}}\n' for number in range(50)))
    tallies: Tallies = {}
    plan = plan_write(context, WriteRequest(FileRows((str(source),), "json")))
    written = write_files(plan, RepeatingEngine(), NoProgress(), tallies)
    names = {f"bucket-{one.bucket}/{file.file_name}" for one in written.messages for file in one.append.added}
    assert len(names) == 2 and data_files(context) == before | names
    assert sum(tally.rows for tally in tallies.values()) == 50


def test_both_halves_of_a_writer_become_one(tmp_path: Path) -> None:
    """It flushed a, b and c; then it merged a with the older o into m, and moved b up."""
    context = make_table(tmp_path / "t", {"changelog-producer": "input"})
    a, b, c, o, m = (data_file(name) for name in "abcom")
    logs = data_file("changelog-1"), data_file("changelog-2")
    upgraded, merged = replace(b, level=5), replace(m, level=5)
    index, old_index = (IndexFileMeta(DELETION_VECTORS, name, 1, 1, ()) for name in ("new", "old"))
    given = message(
        append=FileChanges(added=(a, b, c), removed=(data_file("r"),), changelog=logs[:1]),
        compact=FileChanges((merged, upgraded), (a, b, o), logs[1:], (index,), (old_index,)),
    )
    put(context, *(f"bucket-0/{name}" for name in ("a", "b", "c", "o", "m", "r", "changelog-1", "changelog-2")))
    one = settled(context, given)
    assert {(file.file_name, file.level) for file in one.added} == {("c", 0), ("m", 5), ("b", 5)} and len(one.added) == 3
    assert [file.file_name for file in one.removed] == ["r", "o"] and one.changelog == logs
    assert (one.added_indexes, one.removed_indexes) == ((index,), (old_index,))
    assert present(context) == {f"bucket-0/{name}" for name in ("b", "c", "o", "m", "r", "changelog-1", "changelog-2")}
    silent = settled(context, given, reports_rows=False)
    assert silent == replace(one, changelog=())
    assert present(context) == {f"bucket-0/{name}" for name in ("b", "c", "o", "m", "r")}


@pytest.mark.parametrize(
    ("user", "number", "assume_new", "words"),
    [
        (None, 0, False, "without commit_user"),
        (None, 5, False, "without commit_user"),
        ("me", -1, False, "negative"),
        ("me", BATCH_IDENTIFIER + 1, False, "too large"),
        ("", None, False, "is empty"),
        ("", 0, False, "is empty"),
        ("me", None, True, "without commit_id"),
    ],
)
def test_an_identity_that_would_recognise_nothing_is_refused(
    tmp_path: Path, user: str | None, number: int | None, assume_new: bool, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        identity_of(make_table(tmp_path / "t"), user, number, assume_new)


def test_the_identity_of_a_commit_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    assert identity_of(context, "me", 0) == CommitIdentity("me", 0)
    assert identity_of(context, "me", BATCH_IDENTIFIER) == identity_of(context, "me", None) == CommitIdentity("me")
    assert identity_of(context, "me", 7, assume_new=True) == CommitIdentity("me", 7, assume_new=True)
    fresh = [identity_of(context, None, None) for _ in range(2)]
    assert fresh[0].user != fresh[1].user and all(identity.identifier == BATCH_IDENTIFIER for identity in fresh)


class NoClock:
    """Says how long it was asked to wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now_millis(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def attempts_until(failures: list[PaimonError]) -> Callable[[], str]:
    def attempt() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    return attempt


def test_a_change_is_tried_again_after_conflicts_that_may_pass(tmp_path: Path) -> None:
    clock = NoClock()
    context = replace(make_table(tmp_path / "t"), clock=clock)
    passing: list[PaimonError] = [DataConflict("a"), FilesConflict("b"), SnapshotExpired("c")]
    assert again_on_conflict(context, attempts_until([*passing]), "wait") == ("done", 4)
    assert len(clock.waits) == 3 and all(0 <= wait <= 1 for wait in clock.waits)
    assert again_on_conflict(context, attempts_until([*passing]), "wait", max_attempts=4) == ("done", 4)
    with pytest.raises(SnapshotExpired, match=r"c \(3 attempts\)") as failure:
        again_on_conflict(context, attempts_until([*passing]), "wait", max_attempts=3)
    assert (failure.value.hint, failure.value.details["attempts"]) == ("wait", 3)
    for refusal in (Conflict("other"), StorageUnavailable("no")):
        with pytest.raises(type(refusal)):
            again_on_conflict(context, attempts_until([refusal]), "wait")
    with pytest.raises(DataConflict):
        again_on_conflict(context, attempts_until([*passing]), "wait", conflicts=(FilesConflict,))


def test_a_change_that_counts_on_one_snapshot_is_tried_once(tmp_path: Path) -> None:
    context = replace(make_table(tmp_path / "t"), only_on=0, clock=NoClock())
    left: list[PaimonError] = [DataConflict("moved on"), DataConflict("again")]
    with pytest.raises(DataConflict, match="moved on") as failure:
        again_on_conflict(context, attempts_until(left), "plan again")
    assert len(left) == 1 and failure.value.details["attempts"] == 1


def test_files_that_are_gone_with_their_snapshot_are_no_damage(tmp_path: Path) -> None:
    context = table_of_columns(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    write(context, [{"k": 1}])
    for error in (DamagedFile("data-1 is missing"), NotFound("data-1")):
        for planned_at, wanted in ((1, type(error)), (None, type(error)), (7, SnapshotExpired)):
            with pytest.raises(wanted), expiry_noticed(context, planned_at):
                raise error
    for planned_at in (1, None, 7):
        with pytest.raises(SnapshotExpired), expiry_noticed(context, planned_at):
            raise SnapshotGone("snapshot 1 is gone", "it has expired")
        with pytest.raises(FilesConflict), expiry_noticed(context, planned_at):
            raise FilesConflict("another job")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "none"}, "aggregate function 'none'"),
        ({"partition.end-input-to-done": "true", "partition.mark-done-action": "none"}, "action 'none'"),
        ({"file.format": "csv"}, "data files are written as parquet"),
        ({"file.format": "avro", "file.compression": "none-such"}, "none-such"),
    ],
)
def test_what_a_write_cannot_do_is_refused_before_it_begins(tmp_path: Path, options: dict[str, str], words: str) -> None:
    columns = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}
    check_writable_table(table_of_columns(tmp_path / "good", columns, ["dt", "k"], ["dt"]))
    with pytest.raises(PaimonError, match=words):
        check_writable_table(table_of_columns(tmp_path / "t", columns, ["dt", "k"], ["dt"], 1, options))
