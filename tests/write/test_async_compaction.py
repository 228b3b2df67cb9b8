"""Compactions beside the writing: the same rows whenever they end, waits only where they are needed, no files left over."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.compact import bucket_compactor
from paimon_cli.compact.bucket_compactor import MergeRewriter
from paimon_cli.errors import BadInput, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import LocalEngine, Progress
from paimon_cli.lab.lab_table import LabRandom
from paimon_cli.lsm.compaction_picker import Rewrite
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import Tallies, WritePlan
from tests.commit.commit_tables import SteppingClock
from tests.nightly import at_night
from tests.properties.oracle import Change, Row
from tests.properties.shapes import ENGINES, Layout, random_changes, random_layout
from tests.properties.trial import Trial
from tests.tables import compact, data_files, live_files, make_table, rows, write
from tests.threads import no_thread_left

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
FLUSHES = {"write-buffer-size": "4 kb", "write-buffer-spillable": "false"}


class Whenever(Executor):
    """Does its work in the end of the one who waits for it, or earlier, by chance."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        return _Later(self._dice, lambda: fn(*args, **named))


class _Later(Future[Any]):
    def __init__(self, dice: random.Random, work: Callable[[], Any]) -> None:
        super().__init__()
        self._dice = dice
        self._work = work

    def done(self) -> bool:
        if not super().done() and self._dice.random() < 0.4:
            self._do()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        if not super().done():
            self._do()
        return super().result(timeout)

    def _do(self) -> None:
        try:
            self.set_result(self._work())
        except Exception as error:
            self.set_exception(error)


class WithExecutor(LocalEngine):
    """The local engine whose compactions run where a test wants them."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        with TableWriter(plan, executor=self._executor) as writer:
            splits = [(split, tallies.setdefault(number, Tally())) for number, split in enumerate(plan.splits)]
            for batch in plan.placed(batch for split, tally in splits for batch in plan.incoming.read(split, tally)):
                for start in range(0, batch.num_rows, 4):
                    writer.write(batch.slice(start, 4))
            return writer.finish()


class AsyncTrial(Trial):
    """Writes compact beside themselves, each compaction ends by chance."""

    def __init__(self, folder: Path, layout: Layout, dice: random.Random) -> None:
        super().__init__(folder, layout)
        self._dice = dice

    def _write(self, rows: list[Row], overwrite: bool) -> None:
        write(self.context, rows, overwrite=overwrite, compact="async", engine=WithExecutor(Whenever(self._dice)))


def small_steps(layout: Layout, dice: random.Random) -> Layout:
    trigger = dice.choice((1, 2, 3))
    options = {key: value for key, value in layout.options.items() if key != "write-only"} | {
        "write-buffer-size": dice.choice(("32 b", "200 b")),
        "write-buffer-spillable": "false",
        "num-sorted-run.compaction-trigger": str(trigger),
        "num-sorted-run.stop-trigger": str(trigger + dice.choice((0, 1, 4))),
    }
    return replace(layout, options=options)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("seeds", [range(1), at_night(range(1, 5))], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_right_whenever_a_compaction_ends(engine: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        dice = random.Random(f"{engine} {seed}")
        trial = AsyncTrial(tmp_path, small_steps(random_layout(engine, dice), dice), dice)
        for _ in range(3):
            changes: list[Change] = [change for _ in range(10) for change in random_changes(trial.layout, dice)]
            trial.write(changes, overwrite=dice.random() < 0.2)
        trial.compact("full")
        trial.check()
        trial.close()


@pytest.mark.nightly
def test_waits_only_at_the_stop_trigger(tmp_path: Path) -> None:
    """A compaction that never ends by itself: without pressure the writer does not wait for it before the end."""

    class Never(random.Random):
        def random(self) -> float:
            return 1.0

    given = [{"k": k % 900, "v": f"value {k}"} for k in range(10_000)]
    for stop, is_stalled in (("6", True), ("100000", False)):
        context = make_table(tmp_path / stop, COLUMNS, ["k"], options={**FLUSHES, "num-sorted-run.stop-trigger": stop})
        most: list[int] = []
        summary = write(context, given, compact="async", engine=WithExecutor(_Watched(Never(), most)))
        assert bool(summary.stalls) is is_stalled
        assert summary.flushes > 20 and summary.compacted == 1
        assert (max(most) <= 6) is is_stalled, "no compaction is ever offered more runs than the stop trigger"
        assert sorted(rows(context), key=lambda row: row["k"]) == sorted(given[-900:], key=lambda row: row["k"])  # type: ignore[arg-type,return-value]


class _Watched(Whenever):
    """Remembers how many files each compaction was offered."""

    def __init__(self, dice: random.Random, most: list[int]) -> None:
        super().__init__(dice)
        self._most = most

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        (bucket,) = args
        self._most.append(len(bucket.files))
        return super().submit(fn, *args, **named)


def test_threads_compact_beside_and_end_with_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: set[str] = set()
    real = bucket_compactor.run_compaction

    def watched(*args: Any) -> CommitMessage:
        workers.add(threading.current_thread().name)
        return real(*args)

    monkeypatch.setattr(bucket_compactor, "run_compaction", watched)
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=3, options=FLUSHES)
    given = [{"k": k % 900, "v": f"value {k}"} for k in range(20_000)]
    with no_thread_left():
        write(context, given, compact="async", threads=2)
    assert workers and all(name.startswith("compaction") for name in workers)
    assert sorted(rows(context), key=lambda row: row["k"]) == sorted(given[-900:], key=lambda row: row["k"])  # type: ignore[arg-type,return-value]
    append = context.snapshots.get(1)
    flushed = {entry.file.file_name for entry in context.manifests.delta_entries(append)}
    on_disk = {Path(name).name for name in data_files(context)}
    assert on_disk == flushed | {Path(name).name for name in live_files(context)}, "what was made and consumed meanwhile is gone"


def test_a_compaction_that_fails_stops_the_writer_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=FLUSHES)
    write(context, [{"k": 1, "v": "kept"}])
    before = data_files(context)

    def failing(*args: object, **named: object) -> None:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(MergeRewriter, "rewrite", failing)
    bad: list[dict[str, Any]] = [*({"k": k, "v": "x" * 50} for k in range(300_000)), {"k": None, "v": "bad"}]
    with no_thread_left(), pytest.raises(StorageUnavailable, match="the disk is full"):
        write(context, bad, compact="async", threads=2)
    assert data_files(context) == before


def test_a_bad_row_gives_up_what_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compaction begins and then waits until the writer has failed; it must end, and leave no file."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={**FLUSHES, "num-sorted-run.stop-trigger": "1000"})
    real, begun, ended = MergeRewriter.rewrite, threading.Event(), []

    def slow(self: MergeRewriter, step: Rewrite) -> None:
        begun.set()
        while not self._is_given_up():
            threading.Event().wait(0.001)
        try:
            real(self, step)
        except CancelledError:
            ended.append(True)
            raise

    monkeypatch.setattr(MergeRewriter, "rewrite", slow)
    with no_thread_left(), pytest.raises(BadInput, match="a bad row"):
        write(context, [{"k": k, "v": "x" * 50} for k in range(2000)], compact="async", engine=EndsBadly(begun))
    assert ended == [True]
    assert not data_files(context)


class EndsBadly(LocalEngine):
    """A bad row after all rows of the sources, when an event has been set."""

    def __init__(self, due: threading.Event) -> None:
        super().__init__()
        self._due = due

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        with TableWriter(plan) as writer:
            for number, split in enumerate(plan.splits):
                for batch in plan.incoming.read(split, tallies.setdefault(number, Tally())):
                    writer.write(batch)
            assert self._due.wait(120)
            raise BadInput("a bad row")


def test_an_interrupt_leaves_neither_thread_nor_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options=FLUSHES)
    taken = []

    def interrupted(self: TableWriter) -> Written:
        taken.append(True)
        raise KeyboardInterrupt

    monkeypatch.setattr(TableWriter, "finish", interrupted)
    with no_thread_left(), pytest.raises(KeyboardInterrupt):
        write(context, [{"k": k % 500, "v": "x"} for k in range(20_000)], compact="async", threads=2)
    assert taken
    assert not data_files(context)


def test_one_thread_contexts_do_the_same_every_time(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        made = make_table(tmp_path / name, COLUMNS, ["k"], bucket=2, options=FLUSHES)
        context = replace(made, read_threads=1, random=LabRandom(1), clock=SteppingClock())
        write(context, [{"k": k % 700, "v": f"{k}"} for k in range(9_000)], compact="async")
        found.append((data_files(context), live_files(context), rows(context)))
    assert found[0] == found[1]


def test_rows_outlive_a_compaction_that_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=FLUSHES)
    for number in range(4):
        write(context, [{"k": number, "v": "old"}])
    real, rivals = Committer.commit, list[int]()

    def behind_a_rival(self: Committer, *args: Any, **named: Any) -> object:
        if not rivals:
            rivals.append(1)
            compact(TableContext.open(context.layout.root), strategy="full")
        return real(self, *args, **named)

    monkeypatch.setattr(Committer, "commit", behind_a_rival)
    summary = write(context, [{"k": 100 + k, "v": "new"} for k in range(3000)], compact="async", threads=2)
    assert summary.compaction_lost is not None and summary.compacted == 0
    assert len(rows(context)) == 3004
    named = {e.file.file_name for s in context.snapshots.newest_first() for e in context.manifests.delta_entries(s)}
    assert {Path(name).name for name in data_files(context)} <= named, "the lost compaction's files are removed"
