"""Clear messages for Spark's failures."""

from __future__ import annotations

import gc
import os
import traceback

import pytest

from paimon_cli.errors import Conflict, DamagedFile, FilesConflict, PaimonError, StorageUnavailable, UsageError
from paimon_cli.jobs.spark import tasks
from paimon_cli.jobs.spark.tasks import HIDES_TRACEBACK, called_by_spark, carrying_errors, explained

JAVA_TRACE = """An error occurred while calling o9.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed
\tat org.apache.spark.Scheduler.run(Scheduler.scala:7)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
PYTHON_TRACE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 9, in main
    process()
ValueError: the cell is odd
and says so in two lines

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:7)
"""
PLAIN_TASK_TRACE = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 9, in main
    process()
    ~~~~~~~^^
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:7)
"""
"""The error of a Spark without an SQL session."""


def test_an_error_of_ours_comes_through_text() -> None:
    with pytest.raises(Exception, match="paimon-cli-error<") as raised, carrying_errors():
        raise FilesConflict("what", "why", "hint", files=["a", "b"])
    error = explained(RuntimeError(f"Job aborted: {raised.value}\n\tat java"))
    assert isinstance(error, Conflict)
    assert (error.code, error.hint, error.details) == ("PC-CONFLICT-FILE", "hint", {"files": ["a", "b"]})


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (JAVA_TRACE, PaimonError, "IOException: No space left on device"),
        (PYTHON_TRACE, PaimonError, "and says so in two lines"),
        (PLAIN_TASK_TRACE, PaimonError, "ZeroDivisionError: integer division or modulo by zero"),
        ("something else\nat all", PaimonError, "something else"),
        ("x\nCaused by: java.lang.OutOfMemoryError: Java heap space", StorageUnavailable, None),
        ("Lost task: ExecutorLostFailure (executor 1 exited) Reason: heartbeat\n", StorageUnavailable, None),
        ("[SPARK_JOB_CANCELLED] Job 2 cancelled part of cancelled job group x SQLSTATE: XXKDA", StorageUnavailable, None),
        ("An error occurred while calling o7.x.\n: java.lang.InterruptedException\n\tat java", StorageUnavailable, None),
        ("SparkException: Python worker exited unexpectedly (crashed)", StorageUnavailable, None),
        ("Answer from Java side is empty", StorageUnavailable, None),
        ("ModuleNotFoundError: No module named 'fastavro'", UsageError, None),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10", UsageError, None),
    ],
)
def test_other_failures_become_one_line(text: str, kind: type[PaimonError], why: str | None) -> None:
    error = explained(RuntimeError(text))
    assert type(error) is kind
    assert "\n" not in error.what + error.why + error.hint
    assert why is None or error.why == why


def test_an_error_that_spark_shows_is_its_text_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDES_TRACEBACK, "")  # monkeypatch restores only what it has set
    with pytest.raises(DamagedFile) as raised, called_by_spark():
        raise DamagedFile("data file x is missing", "a snapshot refers to it", "run repair --only files")
    assert str(raised.value) == "data file x is missing: a snapshot refers to it\nhint: run repair only files"
    shown = "".join(traceback.format_exception_only(raised.value))
    assert shown.count("hint: ") == 1, "Python 3.11 prints notes of an exception, too"
    assert os.environ[HIDES_TRACEBACK]
    seen = explained(RuntimeError(f"Job aborted:\npaimon_cli.errors.DamagedFile: {raised.value}\n\tat java"))
    assert isinstance(seen, DamagedFile)
    assert (str(seen), seen.hint) == ("data file x is missing: a snapshot refers to it", "run repair only files")


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDES_TRACEBACK, raising=False)
    with pytest.raises(ZeroDivisionError), called_by_spark():
        raise ZeroDivisionError
    assert HIDES_TRACEBACK not in os.environ


def test_modules_are_spared_when_garbage_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_modules_frozen", 0)
    gc.unfreeze()
    with called_by_spark():
        frozen = gc.get_freeze_count()
    with called_by_spark():
        again = gc.get_freeze_count()
    gc.unfreeze()
    assert 0 < again <= frozen  # what a call leaves behind is not kept
