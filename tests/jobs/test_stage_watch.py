"""The committer process: what lands in a directory is committed once, in the order of names, however often it is killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.deduplication import commits_in
from paimon_cli.errors import CommitUnknown, NotFound, PartialSuccess, Refused, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.process import Terminated
from paimon_cli.jobs.staging import stage_job, stage_watch
from paimon_cli.jobs.staging.stage_commit import StagedWrite, StageSummary, Together, commit_and_compact
from paimon_cli.jobs.staging.stage_job import StageFile, check_stage, stage_write
from paimon_cli.jobs.staging.stage_watch import Checkpoint, CheckpointDone, LandingArea, StageWatch
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.storage import PutOutcome, Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from tests.commit.commit_tables import SteppingClock
from tests.rivals import Killed, Mortal
from tests.simulation.conftest import _quick_metadata as _quick_metadata
from tests.tables import data_files, live_files, make_table, rows, write

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    return make_table(tmp_path / "t", COLUMNS, ["id"], bucket=1)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    return tmp_path / "landing"


def land(context: TableContext, path: Path, *ids: int, value: str = "", **options: Any) -> None:
    """A writer leaves its stage file."""
    path.parent.mkdir(exist_ok=True)
    source = Path(context.url).parent / "rows.jsonl"
    source.write_text("".join(json.dumps({"id": id, "v": value or path.name}) + "\n" for id in ids))
    stage_write(
        context, WriteRequest(FileRows((str(source),), "json"), **options), StageFile(str(path)), LocalEngine(), NoProgress()
    )


def preparing(context: TableContext, order: str = "given") -> Callable[[Sequence[StagedWrite]], Callable[[], StageSummary]]:
    def prepare(writes: Sequence[StagedWrite]) -> Callable[[], StageSummary]:
        def commit() -> StageSummary:
            for one in writes:
                check_stage(context, one.file, one.staged)
            return commit_and_compact(context, writes, Together(order), "inline", LocalEngine(), NoProgress())

        return commit

    return prepare


def watch(context: TableContext, landing: Path, rounds: int = 1, **given: Any) -> list[CheckpointDone]:
    done: list[CheckpointDone] = []
    prepare = given.pop("prepare", preparing(context))
    StageWatch(LandingArea(str(landing)), prepare, SteppingClock(), done.append, **given).run(30, rounds)
    return done


def states(done: Sequence[CheckpointDone]) -> list[tuple[str, str]]:
    return [(one.name, one.state) for one in done]


def tree(landing: Path) -> list[str]:
    return sorted(str(path.relative_to(landing)) for path in landing.rglob("*") if path.is_file())


def test_files_are_committed_in_the_order_of_names_and_move(table: TableContext, landing: Path) -> None:
    for name in ("2", "1", "3"):
        land(table, landing / name, 1)
    (landing / "0.tmp").write_text("half")
    (landing / ".hidden").write_text("")
    done = watch(table, landing)
    assert states(done) == [("1", "committed"), ("2", "committed"), ("3", "committed")]
    assert [done[n].summary.snapshots[0].id for n in range(3)] == [1, 2, 3] and rows(table) == [{"id": 1, "v": "3"}]
    assert tree(landing) == [".hidden", "0.tmp", "done/1", "done/2", "done/3"]
    assert watch(table, landing) == []


def test_a_directory_is_one_checkpoint_when_it_is_complete(table: TableContext, landing: Path) -> None:
    for name in ("a", "b"):
        land(table, landing / "17" / name, 1)
    assert watch(table, landing) == [] and table.snapshots.latest_id() is None
    (landing / "17" / "_SUCCESS").touch()
    (done,) = watch(table, landing)
    assert (done.name, done.state, done.files, done.rows) == ("17", "committed", 2, 2)
    assert [s.id for s in done.summary.snapshots] == [1] and rows(table) == [{"id": 1, "v": "b"}]
    assert tree(landing) == ["done/17/_SUCCESS", "done/17/a", "done/17/b"] and not (landing / "17").exists()


def test_bad_ones_move_away_and_the_others_go_on(table: TableContext, landing: Path, tmp_path: Path) -> None:
    land(table, landing / "1", 1)
    (landing / "2").write_text("{}")
    land(make_table(tmp_path / "other", COLUMNS, ["id"]), landing / "3", 1)
    land(TableContext.open(table.url, {"commit.data-conflict-check": "bucket"}), landing / "4", 1)
    for name in ("a", "b"):
        land(table, landing / "5" / name, 1)
    (landing / "5" / "_SUCCESS").touch()
    land(table, landing / "6", 6)
    with pytest.raises(PartialSuccess, match="4 of 6 checkpoints could not be committed") as error:
        watch(table, landing, prepare=preparing(table, "refuse"))
    assert error.value.exit_code == 9 and str(landing / "failed") in error.value.why
    assert [path for path in tree(landing) if path.startswith("failed")] == [
        *("failed/2", "failed/3", "failed/4", "failed/5/_SUCCESS", "failed/5/a", "failed/5/b")
    ]
    assert {row["v"] for row in rows(table)} == {"1", "6"}


def test_kept_files_are_committed_once(table: TableContext, landing: Path) -> None:
    land(table, landing / "1", 1)
    assert states(watch(table, landing, rounds=2, keeps=True)) == [("1", "committed")]
    land(table, landing / "2", 2)
    assert states(watch(table, landing, rounds=3, keeps=True)) == [("2", "committed"), ("1", "already committed")]
    assert tree(landing) == ["1", "2"] and table.snapshots.latest_id() == 2


def test_a_checkpoint_without_files_is_said_to_be_empty(table: TableContext, landing: Path) -> None:
    (landing / "1").mkdir()
    (landing / "1" / "_SUCCESS").touch()
    assert states(watch(table, landing)) == [("1", "no files")]
    assert table.snapshots.latest_id() is None


def test_a_name_that_comes_again_replaces_nothing(table: TableContext, landing: Path) -> None:
    for id in (1, 2, 3):
        land(table, landing / "orders", id)
        watch(table, landing)
    assert tree(landing) == ["done/orders", "done/orders.1", "done/orders.2"] and len(rows(table)) == 3


def test_a_name_that_failed_before_waits_for_its_mark(table: TableContext, landing: Path) -> None:
    """A task that is repeated writes into the same subdirectory again: its first files are not those of the failed checkpoint."""
    (landing / "5").mkdir()
    (landing / "5" / "a").write_text("bad")
    (landing / "5" / "_SUCCESS").touch()
    with pytest.raises(PartialSuccess):
        watch(table, landing)
    assert tree(landing) == ["failed/5/_SUCCESS", "failed/5/a"] and not (landing / "5").exists()
    land(table, landing / "5" / "a", 1)
    assert watch(table, landing) == []
    land(table, landing / "5" / "b", 2)
    (landing / "5" / "_SUCCESS").touch()
    assert [(one.state, one.rows) for one in watch(table, landing)] == [("committed", 2)]
    assert {row["id"] for row in rows(table)} == {1, 2}


@pytest.mark.parametrize("error", [StorageUnavailable("away"), CommitUnknown("unclear")])
def test_an_error_of_the_store_is_tried_again_in_order(table: TableContext, landing: Path, error: Exception) -> None:
    land(table, landing / "1", 1)
    land(table, landing / "2", 1)
    left = [error, error]

    def prepare(writes: Sequence[StagedWrite]) -> Callable[[], StageSummary]:
        if left:
            raise left.pop()
        return preparing(table)(writes)

    done = watch(table, landing, rounds=3, prepare=prepare)
    assert states(done) == [("1", "try again"), ("1", "try again"), ("1", "committed"), ("2", "committed")]
    land(table, landing / "3", 1)
    left.append(error)
    with pytest.raises(type(error)):
        watch(table, landing, prepare=prepare)
    assert tree(landing) == ["3", "done/1", "done/2"]


def test_a_table_without_safe_commits_ends_it_and_moves_nothing(table: TableContext, landing: Path) -> None:
    land(table, landing / "1", 1)

    def prepare(writes: Sequence[StagedWrite]) -> Callable[[], StageSummary]:
        raise Refused("no safe commit")

    with pytest.raises(Refused, match="no safe commit"):
        watch(table, landing, rounds=5, prepare=prepare)
    assert tree(landing) == ["1"]


def test_a_directory_that_is_not_there(table: TableContext, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        watch(table, tmp_path / "none")


def test_a_stop_reports_what_has_failed(table: TableContext, landing: Path) -> None:
    class Stopping(SteppingClock):
        def sleep(self, seconds: float) -> None:
            raise Terminated

    def run() -> None:
        StageWatch(LandingArea(str(landing)), preparing(table), Stopping(), lambda done: None).run(30, None)

    with pytest.raises(Terminated):
        run()
    (landing / "1").write_text("bad")
    with pytest.raises(PartialSuccess):
        run()


@pytest.mark.in_part(2)
@pytest.mark.parametrize("keeps", [False, True])
def test_a_kill_at_any_step_commits_each_checkpoint_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool) -> None:
    """A checkpoint of two writers, a bad one of two, and a single one. The process is killed at each change in turn."""
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        folder.mkdir()
        context, landing = make_table(folder / "t", COLUMNS, ["id"], bucket=1), folder / "landing"
        landing.mkdir()
        write(context, [{"id": 1, "v": "old"}])
        for name in ("a", "b"):
            land(context, landing / "1" / name, 1)
        land(context, landing / "2" / "b", 2)
        (landing / "2" / "a").write_text("bad")
        for name in ("1", "2"):
            (landing / name / "_SUCCESS").touch()
        land(context, landing / "3", 3)
        mortal = Mortal(calls)
        with monkeypatch.context() as patch, contextlib.suppress(Killed, PartialSuccess):
            for module in (stage_job, stage_watch):
                patch.setattr(module, "storage_for_url", lambda name, mortal=mortal: (mortal, name))
            watch(TableContext.open(context.url, storage=mortal), landing, keeps=keeps)
        with contextlib.suppress(PartialSuccess):
            watch(context, landing, rounds=2, keeps=keeps)
        made = [len(commits_in(s)) for s in sorted(context.snapshots.newest_first(), key=lambda s: s.id)]
        assert {row["id"]: row["v"] for row in rows(context)} == {1: "b", 3: "3"}, calls
        assert made[:3] == [1, 3, 1] and sum(made[1:]) - made[1:].count(1) == 3, (calls, made)
        assert [s.commit_kind for s in context.snapshots.newest_first()].count("APPEND") == 3, calls
        assert [path for path in tree(landing) if not path.startswith("failed")] == (
            ["1/_SUCCESS", "1/a", "1/b", "3"] if keeps else ["done/1/_SUCCESS", "done/1/a", "done/1/b", "done/3"]
        ), calls
        assert {path.split(".")[0] for path in tree(landing) if path.startswith("failed")} == {
            *("failed/2/_SUCCESS", "failed/2/a", "failed/2/b")
        }, calls
        assert not live_files(context) - data_files(context)
        if mortal.left >= 0:
            break
    assert calls > 15


def test_what_is_no_file_does_not_stop_the_others(table: TableContext, landing: Path) -> None:
    """Whoever may write into the directory could otherwise end the committer."""
    os.mkfifo(landing / "0")
    (landing / "1").symlink_to("/etc")
    (landing / "3").symlink_to("nowhere")
    (landing / "4").symlink_to("4")
    (landing / "5").mkdir()
    os.mkfifo(landing / "5" / "a")
    (landing / "5" / "_SUCCESS").touch()
    (landing / "7").mkdir()
    (landing / "7" / "a").symlink_to("nowhere")
    (landing / "7" / "_SUCCESS").touch()
    land(table, landing / "6", 2)
    land(table, landing / "2", 1)
    done: list[CheckpointDone] = []
    watching = StageWatch(LandingArea(str(landing)), preparing(table), SteppingClock(), done.append)
    with pytest.raises(PartialSuccess, match="6 of 8 checkpoints"):
        watching.run(30, 2)
    assert [name for name, state in states(done) if state == "committed"] == ["2", "6"]
    assert [name for name, state in states(done) if state == "failed"] == ["0", "1", "3", "4", "5", "7"]
    assert rows(table) == [{"id": 1, "v": "2"}, {"id": 2, "v": "6"}]


class _Answering(WrappedStorage):
    """A store whose answer to the put of a stage file is what `put` returns or raises, after it has done something."""

    def __init__(self, inner: Storage, put: Callable[[Storage, str, bytes], PutOutcome], overwrite: bool = True) -> None:
        super().__init__(inner)
        self._put, self._overwrites = put, overwrite

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self._put(self.inner, path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        super().overwrite(path, data)
        if not self._overwrites:
            raise StorageUnavailable("the answer was lost")


def answering(monkeypatch: pytest.MonkeyPatch, put: Callable[[Storage, str, bytes], PutOutcome], **given: bool) -> None:
    """The store of the next stage file answers by `put`."""

    def location(file: StageFile) -> tuple[Storage, str]:
        monkeypatch.undo()
        storage, path = storage_for_url(file.name)
        return _Answering(storage, put, **given), path

    def exists(file: StageFile) -> bool:
        monkeypatch.setattr(StageFile, "_location", location)
        return False

    monkeypatch.setattr(StageFile, "exists", exists)


@pytest.mark.parametrize("answer", [PutOutcome.UNKNOWN, PutOutcome.EXISTS])
def test_a_stage_file_without_a_clear_answer_may_be_committed_already(
    table: TableContext, landing: Path, monkeypatch: pytest.MonkeyPatch, answer: PutOutcome
) -> None:
    """The writer deleted the data files of the snapshot that the committer process had made of them."""

    def put(storage: Storage, path: str, data: bytes) -> PutOutcome:
        assert storage.put_if_absent(path, data) is PutOutcome.CREATED
        assert states(watch(table, landing)) == [("1", "committed")] and not Path(path).exists()
        return answer

    answering(monkeypatch, put)
    with pytest.raises(CommitUnknown, match="may or may not have been written") as unknown:
        land(table, landing / "1", 1)
    assert unknown.value.exit_code == 11
    assert rows(table) == [{"id": 1, "v": "1"}]
    assert {Path(path).name for path in unknown.value.details["files"]} == {Path(path).name for path in data_files(table)}


def test_a_stage_file_that_shows_that_it_was_written_is_no_failure(
    table: TableContext, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(storage: Storage, path: str, data: bytes) -> PutOutcome:
        storage.put_if_absent(path, data)
        return PutOutcome.UNKNOWN

    answering(monkeypatch, put)
    land(table, landing / "1", 1)
    assert states(watch(table, landing)) == [("1", "committed")]


def test_a_stage_file_that_certainly_was_not_written_leaves_nothing(
    table: TableContext, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(storage: Storage, path: str, data: bytes) -> PutOutcome:
        raise StorageUnavailable("the disk is full")

    answering(monkeypatch, full)
    with pytest.raises(StorageUnavailable, match="the disk is full"):
        land(table, landing / "1", 1)
    assert data_files(table) == set() and tree(landing) == []

    def taken(storage: Storage, path: str, data: bytes) -> PutOutcome:
        storage.put_if_absent(path, b"another stage")
        return PutOutcome.EXISTS

    answering(monkeypatch, taken)
    with pytest.raises(UsageError, match="1 exists: it may hold a commit"):
        land(table, landing / "1", 1)
    assert data_files(table) == set() and (landing / "1").read_text() == "another stage"


@pytest.mark.parametrize("answers", [True, False])
def test_stage_files_on_a_store_without_a_safe_put(
    table: TableContext, landing: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    def put(storage: Storage, path: str, data: bytes) -> PutOutcome:
        raise Refused("no safe commit here")

    answering(monkeypatch, put, overwrite=answers)
    land(table, landing / "1", 1)
    assert states(watch(table, landing)) == [("1", "committed")] and rows(table) == [{"id": 1, "v": "1"}]


def test_a_failed_checkpoint_moves_away_even_where_committed_ones_are_kept(table: TableContext, landing: Path) -> None:
    land(table, landing / "1", 1)
    (landing / "2").write_text("bad")
    (landing / "3").write_text("worse")
    with pytest.raises(PartialSuccess, match="2 of 3 checkpoints"):
        watch(table, landing, rounds=2, keeps=True)
    assert tree(landing) == ["1", "failed/2", "failed/3"]


def test_a_kept_checkpoint_counts_as_committed_if_all_of_its_files_were(table: TableContext, landing: Path) -> None:
    """One that gets another file later fails: it would be lost without a word."""
    for name in ("a", "b"):
        land(table, landing / "1" / name, 1)
    (landing / "1" / "_SUCCESS").touch()
    (landing / "2").mkdir()
    (landing / "2" / "_SUCCESS").touch()
    (landing / "3").write_text("")
    with pytest.raises(PartialSuccess):
        watch(table, landing, keeps=True)
    watching = StageWatch(LandingArea(str(landing)), preparing(table), SteppingClock(), lambda done: None, True)
    committed = Checkpoint("1", ("1/a", "1/b"), True)
    assert watching._committed_in(committed) == 1
    assert watching._committed_in(Checkpoint("2", (), True)) is None
    assert watching._committed_in(Checkpoint("3", ("gone",))) is None
    land(table, landing / "1" / "c", 2)
    assert watching._committed_in(Checkpoint("1", ("1/a", "1/b", "1/c"), True)) is None
    with pytest.raises(PartialSuccess, match="1 of 2"):
        watch(table, landing, keeps=True)
    assert "failed/1/c" in tree(landing) and rows(table) == [{"id": 1, "v": "b"}]


def test_of_the_kept_ones_of_an_earlier_process_the_newest_is_committed_once_more(table: TableContext, landing: Path) -> None:
    """After the new ones: it may miss a compaction."""
    newest = {"a": 3, "b": None, "c": 9, "d": None, "e": 9, "f": 1}
    watching = StageWatch(LandingArea(str(landing)), preparing(table), SteppingClock(), lambda done: None, True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StageWatch, "_committed_in", lambda _, checkpoint: newest[checkpoint.name])
        found = [one.name for one in watching._kept_before([Checkpoint(name, (name,)) for name in newest])]
    assert found == ["b", "d", "e"] and watching._seen == {"a", "c", "e", "f"}


def failing_first(*errors: Exception) -> Callable[[LandingArea], list[Checkpoint]]:
    """A listing that raises these before it answers."""
    left, listed = [*errors], LandingArea.checkpoints

    def answer(area: LandingArea) -> list[Checkpoint]:
        if left:
            raise left.pop(0)
        return listed(area)

    return answer


def test_a_directory_that_cannot_be_listed_is_tried_again(table: TableContext, landing: Path) -> None:
    land(table, landing / "1", 1)
    away = StorageUnavailable("away")
    answer, done = failing_first(away, away), list[CheckpointDone]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LandingArea, "checkpoints", answer)
        watching = StageWatch(LandingArea(str(landing)), preparing(table), SteppingClock(), done.append)
        with pytest.raises(StorageUnavailable):
            watching.run(30, 1)
        watching.run(30, 2)
    assert [(one.name, one.state, one.error) for one in done] == [
        *(("", "try again", away), ("", "try again", away), ("1", "committed", None))
    ]
    assert (watching.tried, watching.failed) == (1, 0)


def test_what_was_kept_is_told_from_what_is_new_also_after_a_round_that_was_given_up(table: TableContext, landing: Path) -> None:
    for name in ("1", "2", "3"):
        land(table, landing / name, 1)
    watch(table, landing, keeps=True)
    land(table, landing / "4", 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LandingArea, "checkpoints", failing_first(StorageUnavailable("away")))
        done = watch(table, landing, rounds=3, keeps=True)
    assert states(done) == [("", "try again"), ("4", "committed"), ("3", "already committed")]


def test_a_checkpoint_that_another_process_has_moved_is_none(table: TableContext, landing: Path) -> None:
    land(table, landing / "2", 1)
    found = [[Checkpoint("1", ("1",)), Checkpoint("2", ("2",))]]
    listed = LandingArea.checkpoints
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LandingArea, "checkpoints", lambda area: found.pop() if found else listed(area))
        assert states(watch(table, landing)) == [("2", "committed")]
    assert tree(landing) == ["done/2"]


def test_what_has_moved_is_no_checkpoint(table: TableContext, landing: Path) -> None:
    for name in ("done", "failed"):
        land(table, landing / name / "1", 1)
        (landing / name / "_SUCCESS").touch()
    assert watch(table, landing) == [] and watch(table, landing, keeps=True) == []


def test_the_marks_of_a_directory_that_was_failing(table: TableContext, landing: Path) -> None:
    """A kill has left it: all of it moves, even if it has its mark again."""
    (landing / "1").mkdir()
    for name in ("_FAILING", "_SUCCESS", "a"):
        (landing / "1" / name).write_text(name)
    assert watch(table, landing) == []
    assert tree(landing) == ["failed/1/_SUCCESS", "failed/1/a"] and not (landing / "1").exists()


def test_unfinished_files_of_a_complete_directory_stay(table: TableContext, landing: Path) -> None:
    land(table, landing / "1" / "a", 1)
    for name in ("_SUCCESS", "b.tmp", ".c", "_d"):
        (landing / "1" / name).touch()
    assert states(watch(table, landing)) == [("1", "committed")]
    assert tree(landing) == ["1/.c", "1/_d", "1/b.tmp", "done/1/_SUCCESS", "done/1/a"]


def test_a_directory_of_which_only_the_mark_is_left_was_committed(table: TableContext, landing: Path) -> None:
    """A kill came before it moved."""
    for name in ("1", "2"):
        (landing / name).mkdir()
        (landing / name / "_SUCCESS").touch()
    (landing / "done" / "1").mkdir(parents=True)
    (landing / "done" / "1" / "a").write_text("{}")
    assert states(watch(table, landing)) == [("1", "already committed"), ("2", "no files")]


def test_signals_wait_for_each_commit_and_move(table: TableContext, landing: Path) -> None:
    log: list[Any] = []

    @contextlib.contextmanager
    def shield() -> Iterator[None]:
        log.append((table.snapshots.latest_id(), tree(landing)))
        yield
        log.append((table.snapshots.latest_id(), tree(landing)))

    for name in ("1", "2"):
        land(table, landing / name, 1)
    watch(table, landing, shield=shield)
    assert log == [
        *((None, ["1", "2"]), (1, ["2", "done/1"])),
        *((1, ["2", "done/1"]), (2, ["done/1", "done/2"])),
    ]
