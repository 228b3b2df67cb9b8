"""Steps are reported as they end, kept in the copies that tasks have, and cost nothing where tracing is off."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.options.option_text import parse_duration
from paimon_cli.storage.injected import NoTrace, Step, StepTrace, SystemClock
from tests.commit.commit_tables import SteppingClock


def test_a_step_knows_when_it_ended_and_how_long_it_took() -> None:
    steps: list[Step] = []
    clock = SteppingClock(1000)
    trace = StepTrace(clock, steps.append)
    with trace.timed("flush", bucket="bucket-0") as facts:
        clock.now += 250
        trace.step("spill", bytes=7)
        clock.now += 250
        facts["rows"] = 3
    assert steps == [Step("spill", 1250, 0, {"bytes": 7}), Step("flush", 1500, 500, {"bucket": "bucket-0", "rows": 3})]
    assert trace.taken() == ()


def test_a_step_that_fails_says_so() -> None:
    steps: list[Step] = []
    with pytest.raises(StorageUnavailable), StepTrace(SteppingClock(), steps.append).timed("manifest", file="m"):
        raise StorageUnavailable("the disk is full")
    assert [(step.name, step.facts) for step in steps] == [("manifest", {"file": "m", "failed": "StorageUnavailable"})]


def test_the_copy_of_a_task_keeps_its_steps_until_they_are_shown() -> None:
    steps: list[Step] = []
    trace = StepTrace(SystemClock(), steps.append)
    copy = pickle.loads(pickle.dumps(trace))
    assert copy.is_on
    copy.step("flush", rows=1)
    assert steps == []
    kept = copy.taken()
    trace.show(kept)
    assert steps == list(kept) and len(kept) == 1
    assert copy.taken() == ()


def test_threads_do_not_lose_steps() -> None:
    steps: list[Step] = []
    trace = StepTrace(SystemClock(), steps.append)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: trace.step("step", number=number), range(500)))
    assert sorted(step.facts["number"] for step in steps) == list(range(500))


def test_a_trace_that_is_off_records_nothing() -> None:
    trace = NoTrace()
    with trace.timed("flush") as facts:
        facts["rows"] = 1
    trace.step("spill")
    trace.show([Step("flush", 0, 0, {})])
    assert trace.taken() == () and trace.is_on is False


def test_a_pause_of_centuries_is_one_that_the_system_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch`, `compact --watch` and others pause as long as the user says; the system refuses more than 292 years."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for text in ("2 s", "1000000 d"):
        SystemClock().sleep(parse_duration(text) / 1000)
    assert slept[0] == 2 and 10**8 < slept[1] < 2**63 / 10**9 / 2
