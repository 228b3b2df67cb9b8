"""Decides whether tests detect a mutant.

A change inside a function is made in a fork of the session, where the function gets the code of the mutant. That is fast, but has
no effect on what the function did while modules were imported. So a mutant of a function that was called then, and that survives,
is judged again in a copy of the tree, in which pytest starts from scratch. Changes outside of functions, and those in code that
runs in other processes, are judged only there.
"""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from scripts.mutation.mutants import Mutant
from scripts.mutation.session import OPTIONS, ROOT, WORK, Session, ended

OWN_PROCESS = {"paimon_cli/bucket/orc_decoder.py"}
FOLDERS = ("paimon_cli", "tests", "scripts", "docs")
START_SECONDS = 15.0
"""Seconds that collecting the tests again may take."""
PASSED, FAILED, NOT_COLLECTED, WRONGLY_USED = 0, 1, 2, 4
"""Exit codes of pytest. The last two mean that the tests, or modules that they share, cannot import the mutant."""

RESULTS = {0: "survived", 1: "killed"}

Work = tuple[Mutant, list[str], float]
"""A mutant, the tests to run, and the seconds that they take on the original code."""


@dataclass(frozen=True)
class Verdict:
    """`survived`, `killed` (by `test`), `timed out`, or `not judged` because this program failed. A mutant whose line no test
    reaches has survived.
    """

    result: str
    test: str = ""
    seconds: float = 0.0


@dataclass
class _Running:
    mutant: Mutant
    sink: Path
    limit: float
    begun: float


def judge_all(session: Session, work: Iterable[Work], jobs: int) -> Iterator[tuple[Mutant, Verdict]]:
    """The verdict on each mutant, several in parallel. A mutant without tests has survived."""
    waiting = iter(work)
    running: dict[int, _Running] = {}
    try:
        while True:
            while len(running) < jobs and (following := next(waiting, None)) is not None:
                mutant, tests, seconds = following
                if tests:
                    child, started = _begin(session, mutant, tests, seconds)
                    running[child] = started
                else:
                    yield mutant, Verdict("survived", "no test reaches it")
            if not running:
                return
            for child, code, seconds in ended(list(running)):
                session.forget(child)
                started = running.pop(child)
                result = RESULTS.get(code, "not judged" if code > 0 else "killed")  # a signal: the mutant crashed the process
                yield started.mutant, Verdict(result, _read(started.sink), seconds)
            for child, started in list(running.items()):
                waited = time.monotonic() - started.begun
                if _cpu_seconds(child) > started.limit or waited > 10 * started.limit:
                    session.end(child)
                    yield running.pop(child).mutant, Verdict("timed out", "", round(waited, 1))
    finally:
        for child in running:
            session.end(child)


def _begin(session: Session, mutant: Mutant, tests: Sequence[str], seconds: float) -> tuple[int, _Running]:
    sink = WORK / "verdicts" / f"{time.monotonic_ns()}"
    sink.parent.mkdir(exist_ok=True)
    child = session.fork(lambda: _detect(session, mutant, tests, sink))
    return child, _Running(mutant, sink, START_SECONDS + 8 * seconds, time.monotonic())


def _read(sink: Path) -> str:
    test = sink.read_text() if sink.exists() else ""
    sink.unlink(missing_ok=True)
    return test


def _cpu_seconds(process: int) -> float:
    """The CPU seconds of a process and of those that it has waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass(eq=False)
class Failures:
    """A pytest plugin that writes down which test failed."""

    sink: Path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.sink.write_text(report.nodeid)


def _detect(session: Session, mutant: Mutant, tests: Sequence[str], sink: Path) -> int:
    change = _in_place(mutant)
    if change is None:
        return _judged_in_copy(mutant, tests, sink)
    was_called = _was_called(session, change[0].__code__)
    result = _patched(session, *change, tests, sink)
    return _judged_in_copy(mutant, tests, sink) if result == 0 and was_called else result


def _was_called(session: Session, code: CodeType) -> bool:
    """Whether the function, or one inside it, was called while modules were imported."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return session.has_run(code) or any(_was_called(session, part) for part in inner)


def _patched(session: Session, function: FunctionType, code: CodeType, tests: Sequence[str], sink: Path) -> int:
    inner = {id(old): new for old, new in _inner_codes(function.__code__, code) if old != new}
    if inner:  # inner functions that it has already created, perhaps while the module was imported
        gc.unfreeze()
        for made in [found for found in gc.get_objects() if type(found) is FunctionType and id(found.__code__) in inner]:
            made.__code__ = inner[id(made.__code__)]
    function.__code__ = code
    return session.run(tests, Failures(sink))


def _in_place(mutant: Mutant) -> tuple[FunctionType, CodeType] | None:
    """The function to change and its new code; None for a change outside of functions."""
    module = sys.modules.get(mutant.module.with_suffix("").as_posix().replace("/", "."))
    if module is None or not mutant.function or mutant.module.as_posix() in OWN_PROCESS:
        return None
    found: Any = module
    code = compile(mutant.code, str(module.__file__), "exec", dont_inherit=True)
    for name in mutant.function.split("."):
        found = inspect.getattr_static(found, name, None)
        parts = [part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name]
        if not parts:
            return None
        code = parts[0]
        function = _plain(found)
        if function is not None:
            is_changed = code != function.__code__ and code.co_freevars == function.__code__.co_freevars
            return (function, code) if is_changed else None
    return None


def _inner_codes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The pairs of inner functions that have the same position and the same free variables."""
    parts = ([part for part in code.co_consts if isinstance(part, CodeType)] for code in (old, new))
    for one, other in zip(*parts, strict=False):
        if one.co_name == other.co_name and one.co_freevars == other.co_freevars:
            yield one, other
            yield from _inner_codes(one, other)


def _plain(found: Any) -> FunctionType | None:
    """The function inside a decorator; None if there is none."""
    for name in ("fget", "func", "__func__"):
        found = getattr(found, name, None) or found
    found = inspect.unwrap(found) if callable(found) else found
    return found if isinstance(found, FunctionType) else None


def _judged_in_copy(mutant: Mutant, tests: Sequence[str], sink: Path) -> int:
    """Run pytest in a copy of the tree with the mutant, so that processes that a test starts have it, too."""
    tree = Path(os.environ["TMPDIR"]) / "tree"
    tree.mkdir()
    for file in (file for file in ROOT.iterdir() if file.is_file()):
        shutil.copy2(file, tree)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("*.pyc.*"))  # temporary files
    (tree / mutant.module).write_text(mutant.code)
    os.utime(tree / mutant.module, (0, 0))  # so that its compiled file is outdated
    (tree / "chosen.txt").write_text("\n".join([str(sink), *tests]))
    files = sorted({test.partition("::")[0] for test in tests})
    command = [sys.executable, "-B", "-m", "pytest", *OPTIONS, "-p", "scripts.mutation.chosen", *files]
    code = subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}).returncode
    if code in (PASSED, FAILED, NOT_COLLECTED, WRONGLY_USED) or code < 0:
        return int(code != PASSED)
    raise RuntimeError(f"pytest ended with exit code {code} for {mutant.key}")
