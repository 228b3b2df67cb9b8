"""The service: tables that appear and disappear, its reports, delayed signals, and tasks in threads."""

from __future__ import annotations

import io
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from rich.console import Console

from paimon_cli.cli.live_display import LiveDisplay
from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.service_log import RoundLines
from paimon_cli.errors import (
    BadOption,
    FilesConflict,
    NotFound,
    NotSupported,
    PaimonError,
    TookTooLong,
    UnsupportedOption,
    UsageError,
    class_of_code,
)
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, TasksFailed
from paimon_cli.jobs.process import StopSignals, Terminated
from paimon_cli.jobs.service.compaction_service import CompactionService
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, TableRound, raise_failures
from paimon_cli.requests.compaction import ConflictChoice
from paimon_cli.storage.injected import SystemClock
from paimon_cli.storage.storage import Storage
from tests.rivals import beside
from tests.tables import compact, make_table, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}


class Display(LiveDisplay):
    """A display on a fake terminal that keeps the rounds."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        super().__init__(RoundLines(OutputFormat.TABLE), Console(file=self.text, force_terminal=True, width=150))
        self.rounds: list[ServiceRound] = []

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        super().round_done(done, pause_seconds)
        self.rounds.append(done)

    def drawn(self) -> str:
        text = io.StringIO()
        Console(file=text, width=150).print(self.picture())
        return text.getvalue()


class Pause:
    """A clock whose sleeps run the next of `deeds`."""

    def __init__(self, *deeds: object) -> None:
        self.deeds = list(deeds)

    def now_millis(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.deeds.pop(0)()  # type: ignore[operator]


def made(folder: Path, name: str, commits: int) -> TableContext:
    context = make_table(folder / name, COLUMNS, ["id"], options={"write-only": "true"})
    for number in range(commits):
        write(context, [{"id": 1, "n": number}])
    return context


def serve(
    tables: dict[str, TableContext | Path],
    clock: Pause,
    rounds: int,
    on_conflict: ConflictChoice = "retry",
    leases: Leases | None = None,
) -> Display:
    display = Display()

    def served(name: str, table: TableContext | Path) -> ServedTable:
        return ServedTable(name, lambda: TableContext.open(str(table)) if isinstance(table, Path) else table)

    with StopSignals() as signals, display:
        service = CompactionService(
            lambda: [served(*each) for each in tables.items()],
            CompactRequest("full", on_conflict=on_conflict),
            LocalEngine(2),
            clock,
            display,
            signals.shield,
            leases,
        )
        service.run(1.0, rounds)
    return display


def test_tables_come_go_and_fail_without_stopping_the_others(tmp_path: Path) -> None:
    made(tmp_path, "a", 3)
    made(tmp_path, "gone", 2)
    tables: dict[str, TableContext | Path] = {"a": tmp_path / "a", "gone": tmp_path / "gone"}

    def replace_one() -> None:
        shutil.rmtree(tmp_path / "gone")
        made(tmp_path, "new", 2)
        tables["new"] = tmp_path / "new"

    display = serve(tables, Pause(replace_one), 2)
    states = [[(table.table, table.state) for table in done.tables] for done in display.rounds]
    assert states[0] == [("a", "compacted"), ("gone", "compacted")]
    assert states[1] == [("a", "nothing to do"), ("gone", "gone"), ("new", "compacted")]
    drawn = display.drawn()
    assert "3 -> 1" in drawn and "nothing to do" in drawn and "round 2 of 3 tables" in drawn
    assert "no table at" in display.text.getvalue()


def test_the_first_conflict_ends_a_service_that_is_to_fail(tmp_path: Path) -> None:
    context = made(tmp_path, "a", 3)
    rival = beside(context, lambda: compact(context))
    with pytest.raises(FilesConflict):
        serve({"a": rival}, Pause(), 5, on_conflict="fail")
    other = made(tmp_path, "b", 3)
    display = serve({"b": beside(other, lambda: compact(other))}, Pause(lambda: None), 2)
    assert [done.tables[0].summary.conflicts for done in display.rounds] == [1, 0]


def test_a_table_that_cannot_be_compacted_decides_the_exit_of_the_last_round(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        TableContext.open(str(tmp_path / "none"))
    assert serve({"none": tmp_path / "none"}, Pause(), 1).rounds[0].tables[0].state == "gone"


@pytest.mark.parametrize("moment", ["after it is created", "before it is deleted"])
def test_a_signal_leaves_no_lease_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    context = made(tmp_path, "a", 2)
    put, delete = Leases._put, Leases._delete

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def put_lease(leases: Leases, storage: Storage, directory: str, number: int) -> bool:
        created = put(leases, storage, directory, number)
        if moment.startswith("after"):
            terminate()
        return created

    def delete_lease(leases: Leases, storage: Storage, directory: str, number: int) -> None:
        if number and moment.startswith("before"):
            terminate()
        delete(leases, storage, directory, number)

    monkeypatch.setattr(Leases, "_put", put_lease)
    monkeypatch.setattr(Leases, "_delete", delete_lease)
    leases = Leases("compaction", "me", 60_000, SystemClock())
    with pytest.raises(Terminated):
        serve({"a": context}, Pause(), 1, leases=leases)
    assert not leases.held
    assert not context.storage.list_directory(context.layout.lease_directory)


def test_signals_wait_for_the_end_of_the_outermost_shield() -> None:
    seen = []
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        with pytest.raises(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Terminated), signals.shield():
            with signals.shield():
                os.kill(os.getpid(), signal.SIGTERM)
                seen.append("inner")
            seen.append("outer")
        with pytest.raises(KeyboardInterrupt) as interrupt, signals.shield():
            os.kill(os.getpid(), signal.SIGINT)
        assert not isinstance(interrupt.value, Terminated)
    assert seen == ["inner", "outer"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_tasks_in_threads_keep_their_order_and_all_have_ended_after_a_failure() -> None:
    together = threading.Barrier(2, timeout=120)

    def task(number: int) -> int:
        together.wait()
        if number == 3:
            raise NotFound("three")
        return number * 10

    done: list[int] = []
    assert LocalEngine(2).run_tasks(task, [0, 1], done.append) == [0, 10]
    assert sorted(done) == [0, 10]
    with pytest.raises(TasksFailed) as failure:
        LocalEngine(2).run_tasks(task, [2, 3])
    assert failure.value.finished == [20] and isinstance(failure.value.error, NotFound)


def test_several_failures_have_the_class_of_one_even_if_that_holds_facts_of_its_table() -> None:
    def failed(error: PaimonError) -> list[TableRound]:
        return [TableRound(name, RoundState.FAILED, error=error) for name in ("a", "b")]

    with pytest.raises(NotSupported, match="2 of 2 tables could not be compacted"):
        raise_failures(failed(UnsupportedOption("not honoured", option="k", value="v")))
    with pytest.raises(UsageError):
        raise_failures(failed(BadOption("bad value", key="k", value="v")))
    assert class_of_code(TookTooLong("slow")) is TookTooLong
