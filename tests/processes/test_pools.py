"""Processes of the nightly programs do not outlive a program that was killed, and a failure names the seed that repeats it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest

from scripts.nightly import properties
from scripts.nightly.pool import each
from tests.properties.trial import Trial

PROGRAM = """
import os, sys, time
from scripts.nightly.pool import pool
with pool(1) as processes:
    print(processes.submit(os.getpid).result(), flush=True)
    {}
"""


@pytest.mark.parametrize("then", ["sys.stdin.read()", "processes.submit(time.sleep, 600).result()"])
def test_a_pool_idle_or_busy_ends_with_its_killed_program(then: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(then)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        of_pool = os.pidfd_open(int(program.stdout.readline()))
        program.kill()
    ended, _, _ = select.select([of_pool], [], [], 200)
    os.close(of_pool)
    assert ended


def inverted(task: tuple[str, int]) -> float:
    _, number = task
    return 1 / number if number < 3 else os._exit(1)


@pytest.mark.parametrize(("number", "failure"), [(0, ZeroDivisionError), (3, BrokenProcessPool)])
def test_a_task_that_fails_or_kills_its_process_is_named(
    number: int, failure: type[Exception], capfd: pytest.CaptureFixture[str]
) -> None:
    results = each(1, inverted, [("seed 1", 2), ("seed 2", number)])
    assert next(results) == 0.5
    with pytest.raises(failure):
        next(results)
    assert f"('seed 2', {number})" in capfd.readouterr().err


def test_any_failure_of_a_table_is_a_difference_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(trial: Trial, dice: object) -> None:
        raise AttributeError("a bug of ours")

    monkeypatch.setattr(Trial, "random_step", fails)
    _, ((name, story),) = properties.play_many(("deduplicate", "7-0", 1))
    assert name == "deduplicate:7-0-0" and "a bug of ours" in story
