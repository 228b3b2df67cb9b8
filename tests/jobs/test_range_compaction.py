"""Large buckets compacted in key ranges: the same rows at every snapshot, progress that stays, and whatever happens between."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket import data_file_reader
from paimon_cli.bucket.key_range import RangeReader
from paimon_cli.commit.committer import Committer
from paimon_cli.compact import bucket_compactor
from paimon_cli.compact.bucket_compactor import MergeRewriter, rewriter_of, run_compaction
from paimon_cli.compact.compaction_task import CompactionTask, task_steps
from paimon_cli.errors import CommitUnknown, DamagedFile, PartialSuccess, StorageUnavailable, Unpublished
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import bucket_task, task_processes
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.lsm.compaction_picker import Rewrite
from paimon_cli.lsm.sorted_runs import key_sections, sorted_runs
from paimon_cli.metadata.data_file import CommitMessage, DataFileMeta
from paimon_cli.pieces import PIECES
from tests.tables import Row, compact, make_table, rows, write

OPTIONS = {"write-only": "true", "target-file-size": "4kb", "parquet.enable.dictionary": "false"}
RANGE = 6000
KEYS: dict[str, tuple[dict[str, str], Callable[[int], Row]]] = {
    "int": ({"k": "INT NOT NULL"}, lambda n: {"k": n}),
    "text": ({"k": "STRING NOT NULL"}, lambda n: {"k": f"{'x' * 40}{n:06}"}),
    "two": ({"a": "STRING NOT NULL", "b": "INT NOT NULL"}, lambda n: {"a": f"{n // 700}", "b": n % 700 - 350}),
    "decimal": ({"k": "DECIMAL(20, 2) NOT NULL"}, lambda n: {"k": f"{n}.25"}),
}


class Killed(BaseException):
    """The process dies: nothing of it runs any more."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "key_range_bytes", RANGE)
    monkeypatch.setattr(PIECES, "least_key_ranges", 1)
    monkeypatch.setattr(PIECES, "least_groups_of_range", 1)
    monkeypatch.setattr(PIECES, "row_group_bytes", 4000)
    monkeypatch.setattr(PIECES, "batch_rows", 300)


def loaded(folder: Path, key: str = "int", **options: str) -> TableContext:
    """A table with files at the top level, and level 0 with changes of keys everywhere, newer keys, and deletes."""
    columns, key_of = KEYS[key]
    context = make_table(folder, {**columns, "v": "INT", "t": "STRING"}, list(columns), options={**OPTIONS, **options})

    def row(n: int, op: str, v: int) -> Row:
        return {
            **key_of(n),
            "v": None if n % 5 == 0 else v,
            "t": None if n % 3 == 0 else f"text {n * 7919 % 10007} {v}",
            "_op": op,
        }

    write(context, [row(n, "+I", 1) for n in range(0, 3000, 2)])
    compact(context, ranges_over=None)
    write(context, [row(n, "+U", 2) for n in range(0, 3000, 90)])
    write(context, [row(n, "+I", 3) for n in range(1, 3400, 101)])
    write(context, [row(n, "-D", 4) for n in range(0, 3000, 70)])
    return context


def files(context: TableContext) -> tuple[DataFileMeta, ...]:
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    return bucket.files


def newest(context: TableContext) -> int:
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    return snapshot.id


def is_compacted(context: TableContext) -> bool:
    return {file.level for file in files(context)} == {context.options.num_levels - 1}


def check_versions(context: TableContext, before: int, expected: list[Row]) -> None:
    """Each later snapshot has the same rows and valid runs; the whole table is in order."""
    for number in range(before, newest(context) + 1):
        assert rows(context, snapshot_id=number) == expected, number
        snapshot = context.snapshots.get(number)
        assert number == before or snapshot.commit_kind == "COMPACT"
        (bucket,) = bucket_files(context, snapshot).values()
        for run in sorted_runs(bucket.files, context.key_of):
            assert all(len(section) == 1 for section in key_sections(run.files, context.key_of))
    assert list(check_table(context, rows=True)) == []


@pytest.mark.in_part(2)
@pytest.mark.parametrize("key", KEYS)
def test_ranges_hold_the_same_rows_at_each_snapshot(tmp_path: Path, key: str) -> None:
    context = loaded(tmp_path / "t", key)
    expected, before = rows(context), newest(context)
    (task,) = plan_compaction(context, CompactRequest(ranges_over=1)).tasks
    done = compact(context, ranges_over=1)
    count = len(done.snapshots) - 1
    assert f"; {count} ranges of keys after the upper runs are cut (" in task.arithmetic
    assert count > 2 and done.buckets == 1
    assert is_compacted(context)
    check_versions(context, before, expected)
    assert compact(context, ranges_over=1).snapshots == ()


def test_killed_between_any_two_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = loaded(tmp_path / "t")
    expected, before = rows(context), newest(context)
    real, kills, left = Committer.commit, 0, 1

    def dies_at_second(self: Committer, *given: Any, **named: Any) -> Any:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return real(self, *given, **named)

    while True:
        left = 1
        first = newest(context)
        with monkeypatch.context() as patch:
            patch.setattr(Committer, "commit", dies_at_second)
            try:
                compact(context, ranges_over=1)
                break
            except Killed:
                kills += 1
        assert newest(context) == first + 1, "finished parts stay"
        assert kills < 50
    assert kills >= 3 and is_compacted(context)
    check_versions(context, before, expected)


def test_a_writer_between_the_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = loaded(tmp_path / "t")
    real, written = Committer.commit, 0

    def after_a_writer(self: Committer, *given: Any, **named: Any) -> Any:
        nonlocal written
        written += 1
        with monkeypatch.context() as patch:
            patch.setattr(Committer, "commit", real)
            write(context, [{"k": n, "v": 1000 + written, "t": None} for n in range(written, 3000, 500)])
        return real(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", after_a_writer)
        done = compact(context, ranges_over=1)
    assert written == len(done.snapshots) > 3
    found = {row["k"]: row["v"] for row in rows(context)}
    for number in range(1, written + 1):
        for key in range(number, 3000, 500):
            assert found[key] == 1000 + number
    assert list(check_table(context, rows=True)) == []


def test_two_compactors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = loaded(tmp_path / "t")
    expected, before = rows(context), newest(context)
    real, calls = Committer.commit, 0

    def after_the_other(self: Committer, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            with monkeypatch.context() as patch:
                patch.setattr(Committer, "commit", real)
                compact(context, ranges_over=None)
        return real(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", after_the_other)
        compact(context, ranges_over=1)
    assert is_compacted(context)
    check_versions(context, before, expected)


def test_an_interrupted_compaction_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = loaded(tmp_path / "t")
    real, calls = Committer.commit, 0

    def interrupted(self: Committer, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Unpublished
        return real(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", interrupted)
        with pytest.raises(Unpublished):
            run_compact(context, CompactRequest(ranges_over=1), LocalEngine(2), NoProgress())
    assert list(check_table(context, rows=True)) == []
    assert calls == 3
    named = {
        file.file_name
        for number in context.snapshots.ids()
        for bucket in bucket_files(context, context.snapshots.get(number)).values()
        for file in bucket.files
    }
    assert {path.name for path in (tmp_path / "t").rglob("data-*")} == named


def test_files_of_a_range_stay_if_nobody_knows_whether_it_was_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = loaded(tmp_path / "t")
    expected, before = rows(context), newest(context)
    real, calls = Committer.commit, 0

    def without_answer(self: Committer, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        done = real(self, *given, **named)
        if calls == 3:
            raise CommitUnknown("the snapshot may be there", "the store gave no clear answer")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", without_answer)
        with pytest.raises(CommitUnknown):
            run_compact(context, CompactRequest(ranges_over=1), LocalEngine(2), NoProgress())
    assert calls == 3 == newest(context) - before
    check_versions(context, before, expected)


def test_a_failed_range_leaves_the_others_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = loaded(tmp_path / "t")
    expected, before = rows(context), newest(context)
    real, calls = bucket_compactor.run_compaction, 0

    def fails_once(context: TableContext, task: CompactionTask, **more: Any) -> CommitMessage:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StorageUnavailable("the disk is full")
        return real(context, task, **more)

    with monkeypatch.context() as patch:
        patch.setattr(bucket_task, "run_compaction", fails_once)
        with pytest.raises(PartialSuccess, match="1 of 1 buckets failed") as raised:
            compact(context, ranges_over=1)
    assert calls > 3 and len(raised.value.details["snapshots"]) == calls - 1 == newest(context) - before
    assert raised.value.details["buckets_committed"] == 0
    assert compact(context, ranges_over=1).buckets == 1
    assert is_compacted(context)
    check_versions(context, before, expected)


def one_section(folder: Path, key: str = "int", **options: str) -> TableContext:
    """As `loaded`, but the base is a single file of many row groups, where no upper file can be cut."""
    return loaded(folder, key, **{"target-file-size": "1gb", **options})


REPEATED: dict[str, tuple[dict[str, str], Callable[[int], Row]]] = {
    **KEYS,
    "repeated": ({"a": "INT NOT NULL", "b": "INT NOT NULL"}, lambda n: {"a": n // 2900, "b": n}),
}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("key", REPEATED)
def test_ranges_inside_of_a_section_are_one_commit(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KEYS, key, REPEATED[key])
    context, whole = one_section(tmp_path / "t", key), one_section(tmp_path / "whole", key)
    expected, before = rows(context), newest(context)
    compact(whole, ranges_over=None)
    (task,) = plan_compaction(context, CompactRequest(ranges_over=1)).tasks
    assert task.ranges > 2 and task.commits == 1
    assert f"; {task.ranges} ranges of keys, from " in task.arithmetic
    done = compact(context, ranges_over=1)
    assert len(done.snapshots) == 1 and done.buckets == 1
    assert is_compacted(context) and len(files(context)) == task.ranges
    assert sum(file.row_count for file in files(context)) == sum(file.row_count for file in files(whole))
    check_versions(context, before, expected)
    assert compact(context, ranges_over=1).snapshots == ()


def test_ranges_read_only_row_groups_that_may_hold_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = one_section(tmp_path / "t")
    read: list[int] = []
    real = data_file_reader.FilePart.groups

    def counted(self: data_file_reader.FilePart, file: Any) -> list[int]:
        found = real(self, file)
        read.append(len(found))
        return found

    (whole,) = plan_compaction(context, CompactRequest(ranges_over=None)).tasks
    ranges = CompactRequest(ranges_over=1).ranges_of(context, whole)
    assert ranges is not None
    monkeypatch.setattr(data_file_reader.FilePart, "groups", counted)
    run_compaction(context, whole)
    once = sum(read)
    read.clear()
    for part in ranges.parts:
        for task in part:
            run_compaction(context, task)
    small = len(whole.files) - 1  # upper files of one row group each, of which the first key column is read before
    assert sum(read) <= once + 2 * small * (ranges.count - 1)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("width", [1, 700])
@pytest.mark.parametrize("newest_only", [False, True])
def test_row_groups_without_newer_keys_are_copied_in_ranges_too(tmp_path: Path, newest_only: bool, width: int) -> None:
    """Also where many keys have the same first column."""
    options = {**OPTIONS, "target-file-size": "1gb"}
    columns = {"a": "INT NOT NULL", "k": "INT NOT NULL", "t": "STRING"}
    context = make_table(tmp_path / "t", columns, ["a", "k"], options=options)
    write(context, [{"a": n // width, "k": n, "t": f"text {n * 7919 % 10007}"} for n in range(3000)])
    compact(context, ranges_over=None)
    changed = range(2500, 2900, 3) if newest_only else range(0, 3300, 7)
    write(context, [{"a": n // width, "k": n, "t": None} for n in changed])
    expected, before = rows(context), newest(context)
    (task,) = plan_compaction(context, CompactRequest(ranges_over=1)).tasks
    ranges = CompactRequest(ranges_over=1).ranges_of(context, task)
    assert ranges is not None
    copied = []
    for part in ranges.parts[0]:
        with rewriter_of(context, part, lambda: False) as rewriter:
            (step,) = task_steps(context, part)
            assert isinstance(rewriter, MergeRewriter) and isinstance(step, Rewrite)
            rewriter.rewrite(step)
            copied.append(sum(map(len, rewriter._untouched.values())))
    assert (sum(copied) > 2) == newest_only and len(copied) > 2
    compact(context, ranges_over=1)
    check_versions(context, before, expected)


def test_a_failed_range_inside_of_a_section_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = one_section(tmp_path / "t")
    before, present = newest(context), {path.name for path in (tmp_path / "t").rglob("data-*")}
    real, calls = bucket_compactor.run_compaction, 0

    def fails_once(context: TableContext, task: CompactionTask, **more: Any) -> CommitMessage:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StorageUnavailable("the disk is full")
        return real(context, task, **more)

    with monkeypatch.context() as patch:
        patch.setattr(bucket_task, "run_compaction", fails_once)
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            compact(context, ranges_over=1)
    assert calls > 2 and newest(context) == before
    assert {path.name for path in (tmp_path / "t").rglob("data-*")} == present


def test_ranges_that_leave_rows_out_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of a footer may be wrong: a row group that no range has read must not be lost with its file."""
    context = one_section(tmp_path / "t")
    expected, before = rows(context), newest(context)
    real = RangeReader._may_hold

    def wrong(self: RangeReader, reader: Any, group: int) -> bool:
        return (group != 2 or reader.num_row_groups < 4) and real(self, reader, group)

    with monkeypatch.context() as patch:
        patch.setattr(RangeReader, "_may_hold", wrong)
        with pytest.raises(DamagedFile, match=r"place only \d+ of its \d+ rows"):
            compact(context, ranges_over=1)
    assert newest(context) == before and rows(context) == expected
    assert list(check_table(context, rows=True)) == []


def test_keys_without_comparable_statistics_are_not_divided(tmp_path: Path) -> None:
    options = {**OPTIONS, "target-file-size": "1gb"}
    context = make_table(tmp_path / "t", {"k": "TIMESTAMP(6) NOT NULL", "t": "STRING"}, ["k"], options=options)
    for begin in (0, 1):
        times = [f"2024-01-01T00:{n // 60:02}:{n % 60:02}.000000" for n in range(begin, 3000, 2)]
        write(context, [{"k": time, "t": f"text {time}"} for time in times])
    (task,) = plan_compaction(context, CompactRequest(ranges_over=1)).tasks
    assert task.arithmetic.endswith("; one range of keys: it has one section")


def test_ranges_in_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, section = loaded(tmp_path / "t"), one_section(tmp_path / "section")
    monkeypatch.setattr(PIECES, "least_process_bytes", 1)
    begun: list[int] = []
    real = task_processes._Process._start

    def counted(self: Any, function: Any) -> Any:
        begun.append(1)
        return real(self, function)

    monkeypatch.setattr(task_processes._Process, "_start", counted)
    for table in (context, section):
        expected, before = rows(table), newest(table)
        done = run_compact(table, CompactRequest(ranges_over=1), LocalEngine(2), NoProgress())
        assert is_compacted(table) and done.engine == "local"
        check_versions(table, before, expected)
    assert len(begun) >= 2


def test_killed_in_the_middle_finished_ranges_stay(tmp_path: Path) -> None:
    context = loaded(tmp_path / "t")
    expected, before = rows(context), newest(context)
    program = (
        "import sys\n"
        "from tests.jobs.test_range_compaction import *\n"
        f"PIECES.key_range_bytes, PIECES.row_group_bytes = {RANGE}, 4000\n"
        "PIECES.least_key_ranges = PIECES.least_process_bytes = 1\n"
        "run_compact(TableContext.open(sys.argv[1]), CompactRequest(ranges_over=1), LocalEngine(2), NoProgress())\n"
    )
    kept: set[str] = set()
    for _ in range(2):
        known = newest(context)
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "t")], cwd=Path(__file__).parents[2])
        end = time.monotonic() + 60
        while newest(context) < known + 2 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        process.kill()
        process.wait()
        assert newest(context) >= known + 2 or is_compacted(context)
        live = {file.file_name for file in files(context) if file.level == context.options.num_levels - 1}
        assert kept <= live, "what a killed job has committed is not compacted again"
        steps = [step for part in _parts(context) for step in task_steps(context, part)]
        kept = live - {file.file_name for step in steps if isinstance(step, Rewrite) for file in step.files}
    assert kept
    compact(context, ranges_over=1)
    assert is_compacted(context) and kept <= {file.file_name for file in files(context)}
    check_versions(context, before, expected)


def _parts(context: TableContext) -> list[CompactionTask]:
    """The tasks of the next compaction."""
    found = []
    for task in plan_compaction(context, CompactRequest(ranges_over=1)).tasks:
        ranges = CompactRequest(ranges_over=1).ranges_of(context, task)
        found += [task] if ranges is None else [of_range for part in ranges.parts for of_range in part]
    return found


def test_a_dry_run_says_why_a_large_bucket_is_one_range(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={**OPTIONS, "deletion-vectors.enabled": "true"})
    write(context, [{"k": 1}])
    (task,) = plan_compaction(context, CompactRequest(ranges_over=1)).tasks
    assert task.arithmetic.endswith("; one range of keys: deletion vectors belong to the whole bucket")
    assert (task.ranges, task.commits) == (1, 1)
    (task,) = plan_compaction(context, CompactRequest()).tasks
    assert "range" not in task.arithmetic


@pytest.mark.parametrize(
    "options",
    [
        {"changelog-producer": "full-compaction"},
        {"changelog-producer": "lookup"},
        {"deletion-vectors.enabled": "true"},
        {"merge-engine": "first-row"},
        {"sequence.snapshot-ordering": "true"},
    ],
)
def test_whole_buckets(tmp_path: Path, options: dict[str, str]) -> None:
    columns = {"k": "INT NOT NULL", "v": "INT"}
    context = make_table(tmp_path / "t", columns, ["k"], options={**OPTIONS, **options})
    write(context, [{"k": n, "v": n} for n in range(3000)])
    compact(context, ranges_over=None)
    write(context, [{"k": n, "v": -1} for n in range(0, 3000, 100)])
    assert len(compact(context, ranges_over=1).snapshots) == 1
