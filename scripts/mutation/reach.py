"""Measures which lines each test reaches: all tests run once under coverage, file by file.

The result is kept until the file, the modules that the tests of its folder share, or a module that it reaches changes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import signal
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import coverage
import pytest

from scripts.mutation.mutants import Mutant
from scripts.mutation.session import ROOT, WORK, Session, ended

LONGEST_TEST = 10.0
SLOWER = 2
"""How much slower a test is while its lines are recorded."""
KEPT = WORK / "reach"


@dataclass(frozen=True)
class Reach:
    """The tests that pass on the original code, how long each takes, and the lines that they reach.

    `changed`: modules whose lines have changed since they were measured.
    """

    seconds: dict[str, float]
    data: coverage.CoverageData
    changed: frozenset[str]

    def tests_of(self, mutant: Mutant, room: str, budget: float) -> tuple[list[str], float]:
        """The tests to run within the budget, and how long they take. Those of the room come first, then the fastest."""
        module = mutant.module.as_posix()
        lines = self.data.contexts_by_lineno(module)
        found = {test for line in range(mutant.first_line, mutant.last_line + 1) for test in lines.get(line, ())}
        if not found or module in self.changed:  # in the first case the line runs only during the import, if at all
            found = {test for tests in lines.values() for test in tests}
        in_room = f"tests/{room}/"
        ranked = sorted(
            found & self.seconds.keys(), key=lambda test: self.seconds[test] * (0.2 if test.startswith(in_room) else 1)
        )
        spent = list(itertools.accumulate(self.seconds[test] for test in ranked))
        chosen = sum(seconds <= budget for seconds in spent)
        return ranked[:chosen], spent[chosen - 1] if chosen else 0.0


class _TooLong(BaseException):
    """Ends a test that takes too much CPU time; no error, which a search for examples would take for one that it has found."""


def _give_up(*_: object) -> None:
    raise _TooLong


@dataclass(eq=False)
class _Recorder:
    """A pytest plugin that records by test what it reaches, and its CPU time. Ends tests that take too long."""

    measured: coverage.Coverage
    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.measured.switch_context(item.nodeid)
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SLOWER * LONGEST_TEST)
        try:
            result = yield
        except _TooLong:  # between the phases of a test
            self.failed.add(item.nodeid)
            return True
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        self.seconds[item.nodeid] = round(time.process_time() - begun, 4) + 0.002
        self.measured.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def _measure(session: Session, tests: Sequence[str], sink: Path, digests: Mapping[str, str]) -> int:
    """In a fork, write into files beside `sink` what the tests reach and how long they take."""
    session.collected.config.option.maxfail = 0
    signal.signal(signal.SIGPROF, _give_up)
    measured = coverage.Coverage(
        data_file=str(sink), source=["paimon_cli"], concurrency=["thread", "greenlet"], config_file=False
    )
    measured.set_option("run:relative_files", True)
    recorder = _Recorder(measured)
    measured.start()
    session.run(tests, recorder)
    measured.stop()
    measured.save()
    usable = {test: took for test, took in recorder.seconds.items() if test not in recorder.failed and took <= LONGEST_TEST}
    modules = {module: digests[module] for module in measured.get_data().measured_files()}
    sink.with_suffix(".json").write_text(json.dumps({"modules": modules, "seconds": usable}))
    return 0


def reach(session: Session, jobs: int, any_age: bool, folders: tuple[str, ...] = ("tests/",)) -> Reach:
    """Measure each file of tests in the folders if it or a module that it reaches has changed; with `any_age` only if it has."""
    KEPT.mkdir(parents=True, exist_ok=True)
    modules = (ROOT / "paimon_cli").glob("**/*.py")
    digests = {path.relative_to(ROOT).as_posix(): _digest(path) for path in modules}
    files = [file for file in session.files if file.startswith(folders)]
    wanted = {file: KEPT / f"{_digest(ROOT / file, *_shared(ROOT / file))}.sqlite" for file in files}
    missing = [(file, sink) for file, sink in wanted.items() if not _is_usable(sink, digests, any_age)]
    running: list[int] = []
    while missing or running:
        while missing and len(running) < jobs:
            file, sink = missing.pop()
            sink.unlink(missing_ok=True)
            tests = [test for test in session.items if test.startswith(f"{file}::")]
            running.append(session.fork(lambda tests=tests, sink=sink: _measure(session, tests, sink, digests)))  # type: ignore[misc]
        for child, code, _ in ended(running):
            running.remove(child)
            if code:
                raise RuntimeError(f"tests could not be measured:\n{session.log(child)[-4000:]}")
            session.forget(child)
    seconds: dict[str, float] = {}
    changed: set[str] = set()
    together = coverage.CoverageData(no_disk=True)
    for sink in wanted.values():
        seconds |= json.loads(sink.with_suffix(".json").read_text())["seconds"]
        changed |= _changed(sink, digests)
        one = coverage.CoverageData(str(sink))
        one.read()
        together.update(one)
    return Reach({test: took for test, took in seconds.items() if test in session.items}, together, frozenset(changed))


def _shared(file: Path) -> list[Path]:
    return [path for path in sorted(file.parent.glob("*.py")) if not path.name.startswith("test_")]


def _is_usable(sink: Path, digests: Mapping[str, str], any_age: bool) -> bool:
    return sink.with_suffix(".json").exists() and (any_age or not _changed(sink, digests))


def _changed(sink: Path, digests: Mapping[str, str]) -> set[str]:
    """The modules that have changed since the file was measured."""
    measured = json.loads(sink.with_suffix(".json").read_text())["modules"]
    return {module for module, digest in measured.items() if digests.get(module) != digest}


def _digest(*paths: Path) -> str:
    content = hashlib.sha256()
    for path in paths:
        content.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return content.hexdigest()[:24]
