"""A pytest session that has collected all tests, and forks processes to run some of them."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import NoReturn

import pytest
from _pytest.main import pytest_runtestloop

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutation"
LEFT_OUT = re.compile(r"spark|^tests/processes/|test_judge|test_smoke_script|test_cold_start|test_planted_bugs")
OPTIONS = ("-q", "-x", "-s", "-m", "not nightly or in_part", "-p", "no:cacheprovider", "--timeout", "120")


def test_files(only: Sequence[str] = ()) -> list[str]:
    """The test files that neither need Spark nor kill processes; only from these folders, if there are any."""
    found = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").glob("**/test_*.py"))]
    wanted = tuple(f"tests/{name}" for name in only or [""])
    return [file for file in found if file.startswith(wanted) and not LEFT_OUT.search(file)]


@dataclass
class Session:
    """The collected tests. `fork` starts a process that has all of them."""

    collected: pytest.Session
    items: dict[str, pytest.Item]
    files: list[str]
    has_run: Callable[[CodeType], bool]
    """Whether a function was called while the tests, and with them the modules, were imported."""
    _folders: dict[int, Path] = field(default_factory=dict)

    def fork(self, work: Callable[[], int]) -> int:
        """Start a process with the collected tests. Returns its id; its exit code is the result of `work`."""
        folder = Path(tempfile.mkdtemp(dir=WORK))
        child = os.fork()
        if child == 0:
            _become(work, folder)
        self._folders[child] = folder
        return child

    def run(self, tests: Sequence[str], plugin: object) -> int:
        """In a fork, run these tests in this order until one fails."""
        self.collected.config.pluginmanager.register(plugin)
        self.collected.items = [self.items[test] for test in tests]
        with contextlib.suppress(self.collected.Failed, self.collected.Interrupted):
            pytest_runtestloop(self.collected)
        return int(self.collected.testsfailed > 0)

    def end(self, child: int) -> None:
        """End the process and all that its tests have started."""
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.forget(child)

    def log(self, child: int) -> str:
        """The output of the process."""
        return (self._folders[child] / "log.txt").read_text(errors="replace")

    def forget(self, child: int) -> None:
        """End what the tests of a process that has ended have left, such as workers of a pool, and delete its output."""
        folder = self._folders.pop(child)
        kill_rest(child, folder)
        shutil.rmtree(folder, ignore_errors=True)


def kill_rest(group: int, folder: Path) -> None:
    """End the processes of the group, and those of other groups that were started with this directory for temporary files."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    marker = f"TMPDIR={folder}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if marker in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)


def _become(work: Callable[[], int], folder: Path) -> NoReturn:
    code = 3
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None
        code = work()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


@dataclass(eq=False)
class _Program:
    """A pytest plugin that runs a program with the collected tests, instead of the tests."""

    program: Callable[[Session], int]
    files: list[str]
    result: int = 3
    _called: dict[int, CodeType] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.setprofile(None)
        gc.collect()
        gc.freeze()
        items = {item.nodeid: item for item in session.items}
        self.result = self.program(Session(session, items, self.files, lambda code: id(code) in self._called))
        return True

    def note_call(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._called[id(frame.f_code)] = frame.f_code


def with_tests(program: Callable[[Session], int], only: Sequence[str] = ()) -> int:
    """Collect the tests, then run the program within the session. Returns its result. Exits if there are no tests to collect."""
    files = test_files(only)
    if not files:
        sys.exit(f"no test is in {', '.join(f'tests/{name}' for name in only)}")
    WORK.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    running = _Program(program, files)
    sys.setprofile(running.note_call)
    pytest.main([*OPTIONS, *running.files], plugins=[running])
    return running.result


def ended(children: Sequence[int]) -> Iterator[tuple[int, int, float]]:
    """The id, exit code and CPU seconds of each process that has ended."""
    time.sleep(0.02)
    for child in children:
        number, status, usage = os.wait4(child, os.WNOHANG)
        if number:
            yield child, os.waitstatus_to_exitcode(status), round(usage.ru_utime + usage.ru_stime, 2)


def say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
