"""Tasks in processes of their own: results and errors come back, and no process outlives the one that began it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import Refused, StorageUnavailable
from paimon_cli.jobs.engine import Computing, LocalEngine, TasksFailed
from paimon_cli.jobs.task_processes import TaskProcesses
from paimon_cli.pieces import PIECES

SECONDS = 30


@pytest.fixture(autouse=True)
def each_task_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "least_process_bytes", 1)


def soon(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    return is_so()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def met(folder: str, task: int) -> tuple[int, int]:
    """The task and the process that ran it, once all three tasks have begun."""
    (Path(folder) / str(task)).write_text(str(os.getpid()))
    assert soon(lambda: len(os.listdir(folder)) == 3)
    return task, os.getpid()


def fails(task: int) -> int:
    if task == 2:
        raise Refused("task 2 is refused", "as tests go", "try another", number=2)
    return task


def dies(parent: int, task: int) -> int:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def has_a_bug(parent: int, task: int) -> int:
    if os.getpid() != parent:
        raise LookupError(task, lambda: None)  # cannot be pickled
    return task


def sleeps(folder_and_parent: tuple[str, int], task: int) -> None:
    folder, parent = folder_and_parent
    (Path(folder) / str(os.getpid())).write_text("")
    time.sleep(0.01 if os.getpid() == parent else 4 * SECONDS)


class Of:
    """A function of this module and its first argument: found by name in the other process."""

    def __init__(self, function: Callable[..., object], first: object) -> None:
        self.function, self.first = function, first

    def __call__(self, task: int) -> object:
        return self.function(self.first, task)


def run(function: Callable[[int], Any], tasks: list[int]) -> list[Any]:
    return LocalEngine(3).run_tasks(Computing(function), tasks, None, [1] * len(tasks))


def test_tasks_run_in_several_processes(tmp_path: Path) -> None:
    found = run(Of(met, str(tmp_path)), [1, 2, 3])
    assert [task for task, _ in found] == [1, 2, 3]
    processes = {process for _, process in found}
    assert len(processes) == 3 and os.getpid() in processes
    assert soon(lambda: not any(is_running(process) for process in processes - {os.getpid()}))


def test_small_tasks_and_others_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "least_process_bytes", 2)
    assert set(LocalEngine(3).run_tasks(Computing(here), [1, 2, 3], None, [1, 1, 1])) == {os.getpid()}
    assert set(LocalEngine(3).run_tasks(here, [1, 2, 3], None, [9, 9, 9])) == {os.getpid()}


def here(task: int) -> int:
    return os.getpid()


@pytest.mark.parametrize(
    ("waits", "sizes", "threads"), [(False, [1, 1, 1], 1), (True, [1, 1, 1], 3), (False, [2, 2, 2], 2), (False, [9, 9, 9], 3)]
)
def test_small_tasks_that_only_compute_share_a_thread(
    monkeypatch: pytest.MonkeyPatch, waits: bool, sizes: list[int], threads: int
) -> None:
    monkeypatch.setattr(PIECES, "least_process_bytes", 1_000)
    monkeypatch.setattr(PIECES, "least_thread_bytes", 3)
    begun = threading.Barrier(threads)

    def thread(task: int) -> int:
        if task <= threads:
            begun.wait(SECONDS)  # so that no thread takes the task of another
        return threading.get_ident()

    found = LocalEngine(3).run_tasks(Computing(thread, waits), [1, 2, 3], None, sizes)
    assert len(set(found)) == threads
    assert (threading.get_ident() in found) is (threads == 1)


def test_an_error_of_a_task_keeps_its_class_and_facts() -> None:
    with pytest.raises(TasksFailed) as raised:
        run(fails, [1, 2, 3])
    error = raised.value.error
    assert type(error) is Refused
    assert (error.what, error.why, error.hint, error.details) == (
        "task 2 is refused",
        "as tests go",
        "try another",
        {"number": 2},
    )


def test_a_process_that_dies_is_an_error_with_a_hint() -> None:
    with pytest.raises(TasksFailed) as raised:
        run(Of(dies, os.getpid()), [1, 2, 3])
    error = raised.value.error
    assert isinstance(error, StorageUnavailable)
    assert "SIGKILL" in error.why and "--memory" in error.hint


def test_a_process_that_cannot_be_started_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(TasksFailed) as raised:
        run(Of(dies, os.getpid()), [1, 2, 3])
    error = raised.value.error
    assert isinstance(error, StorageUnavailable)
    assert "cannot be started" in error.what and "/no/such/python" in error.why


def test_a_bug_is_told_with_its_traceback() -> None:
    with TaskProcesses(Of(has_a_bug, os.getpid()), 2) as processes:
        assert processes(1) == 1
        with pytest.raises(RuntimeError, match=r"LookupError"):
            processes(2)


def test_ctrl_c_ends_the_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(done: object) -> None:
        assert soon(lambda: len(os.listdir(tmp_path)) == 3)
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        LocalEngine(3).run_tasks(Computing(Of(sleeps, (str(tmp_path), os.getpid()))), [1, 2, 3], interrupted, [1, 1, 1])
    assert time.monotonic() - began < 3 * SECONDS
    others = [int(name) for name in os.listdir(tmp_path) if int(name) != os.getpid()]
    assert others and not any(map(is_running, others))


def test_a_process_that_is_killed_leaves_none_behind(tmp_path: Path) -> None:
    program = (
        "from tests.jobs.test_task_processes import *\n"
        "PIECES.least_process_bytes = 1\n"
        f"run(Of(sleeps, ({str(tmp_path)!r}, 0)), [1, 2, 3])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    assert soon(lambda: len(os.listdir(tmp_path)) == 3)
    parent.kill()
    parent.wait()
    assert soon(lambda: not any(is_running(int(name)) for name in os.listdir(tmp_path)))
