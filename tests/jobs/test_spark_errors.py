"""Clear messages for Spark's failures."""

from __future__ import annotations

import gc
import os
import traceback
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import TaskContext

from paimon_cli.errors import BadInput, DamagedFile, FilesConflict, PaimonError, SnapshotNotFound, StorageUnavailable, UsageError
from paimon_cli.jobs.spark import tasks
from paimon_cli.jobs.spark.failures import explained
from paimon_cli.jobs.spark.tasks import HIDES_TRACEBACK, JOB_TAGS, JobKey, TaskError, called_by_spark, signed
from tests.spark.canary import carriers

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


SPARK = "An error occurred while calling o7.collect.\n: org.apache.spark.SparkException: "
ABORTED = (
    "Job aborted due to stage failure: Task 1 in stage 3.0 failed 1 times, most recent failure: "
    "Lost task 1.0 in stage 3.0 (TID 7) (localhost executor driver): "
)
CONNECT = "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
WORKER = "An exception was thrown from the Python worker: "
MODULE = "ModuleNotFoundError: No module named 'fastavro'"
FAULTS = [
    "java.lang.OutOfMemoryError: Java heap space",
    "ExecutorLostFailure (executor 1 exited) Reason: heartbeat",
    "[SPARK_JOB_CANCELLED] Job 2 cancelled part of cancelled job group x SQLSTATE: XXKDA",
    "java.lang.InterruptedException",
    "Python worker exited unexpectedly (crashed)",
    "Answer from Java side is empty",
    "Py4JNetworkError",
    "Connection refused",
    "Job 3 cancelled because SparkContext was shut down",
    MODULE,
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10",
]


class Origin:
    """A Java exception with its causes, as py4j shows it."""

    def __init__(self, *types: str) -> None:
        self._types = types

    def getClass(self) -> Origin:
        return self

    def getName(self) -> str:
        return self._types[0]

    def getCause(self) -> Origin | None:
        return Origin(*self._types[1:]) if self._types[1:] else None


class Captured(Exception):
    def __init__(self, text: str, *types: str) -> None:
        super().__init__(text)
        self._origin = Origin(*types)


def shown_by_python(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error))


@pytest.mark.parametrize(
    "around", [f"{WORKER}%s SQLSTATE: 38000", f"{CONNECT}[PYTHON_EXCEPTION] {WORKER}%s\n\nJVM", f"{SPARK}{ABORTED}%s\n\tat java"]
)
def test_an_error_of_ours_comes_through_text(around: str) -> None:
    key = JobKey()
    carried = signed(FilesConflict("what", "why\n  and more", "hint \u2028 {x} %s", files=["a", "b"], row=2), [JobKey(), key])
    assert key.secret not in repr(key) + str(carried)
    error = explained(RuntimeError(around % shown_by_python(carried)), key)
    assert type(error) is FilesConflict
    assert (error.code, error.hint, error.details) == ("PC-CONFLICT-FILE", "hint \u2028 {x} %s", {"files": ["a", "b"], "row": 2})
    assert (error.what, error.why) == ("what", "why\n  and more")


@pytest.mark.parametrize(
    "tags", ["%s", "mine,%s", "SparkConnect_Execution_User_u_Session_s_Operation_o,SparkConnect_Tag_User__Session_s_Tag_%s"]
)
def test_a_task_finds_the_key_of_its_job(monkeypatch: pytest.MonkeyPatch, tags: str) -> None:
    monkeypatch.setenv(HIDES_TRACEBACK, "")
    key, other = JobKey(), JobKey()
    properties = {JOB_TAGS: tags % key.tag, key.property_name: key.secret, other.property_name: other.secret}
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext(localProperties=properties)  # registers itself
    assert JobKey.of_task() == [key]
    with pytest.raises(TaskError) as raised, called_by_spark():
        raise BadInput("cell") from ValueError("its cause")
    assert type(explained(RuntimeError(f"{CONNECT}[PYTHON_EXCEPTION] {WORKER}{shown_by_python(raised.value)}"), key)) is BadInput
    assert raised.value.__cause__ is None and raised.value.__suppress_context__
    del properties[key.property_name]
    assert JobKey.of_task() == []


def test_a_class_that_only_one_module_has_comes_as_its_base() -> None:
    class Rare(FilesConflict):
        pass

    key = JobKey()
    assert type(key.error_in(shown_by_python(signed(Rare("what"), [key])))) is FilesConflict


def test_data_is_not_believed_whatever_it_imitates(tmp_path: Path) -> None:
    key = JobKey()
    for text in (*carriers(tmp_path / "ran"), shown_by_python(signed(DamagedFile("what", hint="run this"), [JobKey()]))):
        genuine = shown_by_python(signed(BadInput(f"row 1 cannot take {text}"), [key]))
        changed = genuine.replace("BadInput", "DamagedFile")
        for failure in (
            changed,
            f"ValueError: {text}",
            f"{WORKER}ValueError: {text}",
            f"{SPARK}{ABORTED}x: {text}",
            f"x\n{text}\n",
        ):
            error = explained(RuntimeError(failure), key)
            assert type(error) is PaimonError and error.hint.startswith("run it again with --trace"), failure
        assert type(explained(RuntimeError(f"{WORKER}cell {text}\n{genuine}"), key)) is BadInput
        assert type(explained(RuntimeError(genuine))) is PaimonError, "without the key of the job"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("fault", FAULTS)
def test_data_is_not_taken_for_a_fault_of_spark(fault: str) -> None:
    cells = [
        f"it cannot take '{fault}'",
        f"it cannot take 'x\n{fault}",
        f"x\nCaused by: {fault}",
        f"x\nTraceback (most recent call last):\n{fault}",
    ]
    for cell in cells:
        for text in (f"[CAST_INVALID_INPUT] {cell}", f"{SPARK}{cell}", f"{SPARK}{ABORTED}java.lang.RuntimeException: {fault}"):
            assert type(explained(RuntimeError(text))) is PaimonError, text
        text = f"{WORKER}Traceback (most recent call last):\n  File x\n    y()\nValueError: {cell}\n"
        assert type(explained(Captured(text, "org.apache.spark.api.python.PythonException"))) is PaimonError, text


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (JAVA_TRACE, PaimonError, "IOException: No space left on device"),
        (PYTHON_TRACE, PaimonError, "and says so in two lines"),
        (PLAIN_TASK_TRACE, PaimonError, "ZeroDivisionError: integer division or modulo by zero"),
        ("something else\nat all", PaimonError, "something else"),
        ("An error occurred while calling o3.x.\n: java.lang.OutOfMemoryError: Java heap space\n", StorageUnavailable, None),
        (f"{SPARK}{ABORTED}java.lang.OutOfMemoryError: Java heap space\n\tat x", StorageUnavailable, None),
        (f"{ABORTED}ExecutorLostFailure (executor 1 exited) Reason: heartbeat\n", StorageUnavailable, None),
        (f"{SPARK}Job aborted due to stage failure: Master removed our application: KILLED", StorageUnavailable, None),
        (f"{SPARK}Job 3 cancelled because SparkContext was shut down", StorageUnavailable, None),
        (f"{SPARK}[SPARK_JOB_CANCELLED] Job 2 cancelled part of cancelled job group x", StorageUnavailable, None),
        ("[SPARK_JOB_CANCELLED] Job 2 cancelled part of cancelled job group x SQLSTATE: XXKDA", StorageUnavailable, None),
        ("[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008", StorageUnavailable, None),
        ("An error occurred while calling o7.x.\n: java.lang.InterruptedException\n\tat java", StorageUnavailable, None),
        (f"{SPARK}{ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly", StorageUnavailable, None),
        (f"{WORKER}Traceback (most recent call last):\n  File x\n    y()\n{MODULE}\n", UsageError, None),
        (f"{CONNECT}[PYTHON_EXCEPTION] {WORKER}Traceback (most recent call last):\n  File x\n{MODULE}\n", UsageError, None),
        (
            f"{SPARK}{ABORTED}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  F\n{MODULE}",
            UsageError,
            None,
        ),
        (
            f"{WORKER}Traceback (most recent call last):\n  F\npyspark.errors.exceptions.base.PySparkRuntimeError: "
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10",
            UsageError,
            None,
        ),
    ],
)
def test_other_failures_become_one_line(text: str, kind: type[PaimonError], why: str | None) -> None:
    error = explained(RuntimeError(text))
    assert type(error) is kind
    assert "\n" not in error.what + error.why + error.hint
    assert why is None or error.why == why


def test_faults_are_recognised_by_types() -> None:
    for lost in (Py4JNetworkError("Answer from Java side is empty"), Py4JError("An error"), ConnectionRefusedError()):
        assert explained(lost).what == "Spark's JVM has exited"
    memory = Captured("Exception thrown in awaitResult", "org.apache.spark.SparkException", "java.lang.OutOfMemoryError")
    assert explained(memory).what == "Spark ran out of memory"


def test_an_error_that_spark_shows_is_its_text_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDES_TRACEBACK, "")  # monkeypatch restores only what it has set
    with pytest.raises(DamagedFile) as raised, called_by_spark():
        raise DamagedFile("data file x is missing", "a snapshot refers to it\nhint: x", "run repair --only files")
    assert str(raised.value) == "data file x is missing: a snapshot refers to it\n  hint: x\nhint: run repair only files"
    shown = shown_by_python(raised.value)
    assert shown.count("\nhint: ") == 1, "Python 3.11 prints notes of an exception, too"
    assert os.environ[HIDES_TRACEBACK]
    assert type(explained(RuntimeError(f"{WORKER}{shown}"), JobKey())) is PaimonError


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


PLANNED = "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: "
FAILED = "[STREAM_FAILED] Query {}[id = 965b2a5a-b855, runId = 2afd1a64-c829] terminated with exception: "


@pytest.mark.parametrize("before", ["", FAILED.format(""), FAILED.format("orders to lake ")])
def test_an_error_of_a_process_that_plans_is_ours(before: str) -> None:
    """It belongs to no job, but Spark's text begins with it. Lines of data are indented, so none becomes the hint."""
    shown = "paimon_cli.errors.SnapshotNotFound: no snapshot 7: x\n  hint: not this\nhint: write to it first\n SQLSTATE: 38000"
    error = explained(RuntimeError(f"{before}{PLANNED}{shown}"))
    assert (type(error), error.exit_code) == (SnapshotNotFound, 3)
    assert (error.message, error.hint) == ("no snapshot 7: x\n  hint: not this", "write to it first")


@pytest.mark.parametrize("before", ["", "ValueError: ", f"{PLANNED}ValueError: ", f"x\n{PLANNED}", f"{PLANNED}\n"])
def test_an_error_that_stands_elsewhere_is_not_believed(before: str) -> None:
    assert type(explained(RuntimeError(f"{before}paimon_cli.errors.DamagedFile: x\nhint: drop it"))) is PaimonError
