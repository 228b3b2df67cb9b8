"""What tasks on Spark and their driver share: how errors travel, are explained and are shown.

Needs neither a SparkContext nor py4j, which a client of Spark Connect may lack.
"""

from __future__ import annotations

import base64
import gc
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from paimon_cli import errors
from paimon_cli.errors import PaimonError, StorageUnavailable, UsageError
from paimon_cli.lsm.sorted_runs import shares

T = TypeVar("T")
R = TypeVar("R")

MAX_PARTITIONS = 1000
"""The greatest number of Spark tasks in a job; each costs about 30 ms."""
TASK_END_SECONDS = 5
"""How long the Python process of a cancelled task may still run: Spark looks every two seconds for cancelled tasks, gives their
processes two seconds (`spark.python.task.killTimeout`), and kills them."""
SHARED_BYTES, LEAST_BYTES = 32 << 20, 4 << 20
"""Small tasks share a Spark task until they read `SHARED_BYTES` together; one that reads less counts as `LEAST_BYTES`."""

_SHOWN = re.compile(r"\bpaimon_cli\.errors\.(\w+): ([^\n]*)(?:\n\s*hint: ([^\n]*))?")
_CARRIED = re.compile(r"paimon-cli-error<([A-Za-z0-9+/=]+)>")
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(.*?)(?:\n\s*\n|\n\s+SQLSTATE: |\n\tat |\Z)", re.DOTALL)
_JAVA_EXCEPTION = re.compile(r"^(?:Caused by|): (?:[\w$]+\.)*([\w$]+(?:Exception|Error): [^\n]*)", re.MULTILINE)
_LOST = re.compile(
    r"(ExecutorLostFailure[^\n]*|Master removed our application[^\n]*|Job \d+ cancelled because SparkContext[^\n]*)"
)
_CANCELLED = re.compile(r"\[SPARK_JOB_CANCELLED\]|\[OPERATION_CANCELED\]|^: java\.[\w.]*Interrupt\w*Exception", re.MULTILINE)


class TaskError(Exception):
    """Carries a `PaimonError` from a task to the driver in its message, because Spark transports only text."""

    def __init__(self, error: PaimonError) -> None:
        super().__init__(f"paimon-cli-error<{base64.b64encode(pickle.dumps(error)).decode()}>")


@contextmanager
def carrying_errors() -> Iterator[None]:
    """In a task: wrap a `PaimonError` so that `explained` can restore it on the driver."""
    try:
        yield
    except PaimonError as error:
        raise TaskError(error) from error


HIDES_TRACEBACK = "SPARK_HIDE_TRACEBACK"


_modules_frozen = 0


def freeze_modules() -> None:
    """Exempt all imported modules from the garbage collector, which Spark runs after each call of a Python process."""
    global _modules_frozen
    if len(sys.modules) > _modules_frozen:
        gc.freeze()
        _modules_frozen = len(sys.modules)


@contextmanager
def called_by_spark() -> Iterator[None]:
    """In Python processes of the user's own query: show a `PaimonError` as its text and hint, without a traceback.

    Spark ends a Python process after an error, so the environment variable affects only this error.
    """
    freeze_modules()
    try:
        yield
    except PaimonError as error:
        os.environ[HIDES_TRACEBACK] = "1"
        if error.hint:
            error.what, error.why = f"{error.message}\nhint: {error.hint}", ""
            error.set_hint("")  # Python 3.11 would print the hint once more, as a note of the exception
        raise


def explained(failure: Exception) -> PaimonError:
    """The error to raise for an exception of PySpark or py4j. The caller chains it to `failure`, which has the tracebacks."""
    text = str(failure)
    if carried := _CARRIED.search(text):
        error = pickle.loads(base64.b64decode(carried[1]))
        if isinstance(error, PaimonError):
            return error
    if shown := _SHOWN.search(text):
        error_class = getattr(errors, shown[1], None)
        if isinstance(error_class, type) and issubclass(error_class, PaimonError):
            return error_class(shown[2], hint=shown[3] or "")
    return _environment_error(text) or PaimonError(
        "a Spark task failed", _last_line(text), "run it again with --trace to see where; --engine local runs without Spark"
    )


def _environment_error(text: str) -> PaimonError | None:
    """The error for a failure of executors or the JVM that is unrelated to the table; None for other failures."""
    if missing := _MISSING_MODULE.search(text):
        return UsageError(
            f"the Spark executors lack the Python module '{missing[1]}'",
            "they are sent the package itself, but not its dependencies",
            "install paimon-cli in the executors' Python, or name a Python that has it: --spark-conf spark.pyspark.python=PATH",
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        return UsageError(
            "the Spark executors run another Python version than this command",
            _matching_line(text, "PYTHON_VERSION_MISMATCH"),
            "name a matching one: --spark-conf spark.pyspark.python=PATH",
        )
    if "java.lang.OutOfMemoryError" in text:
        return StorageUnavailable(
            "Spark ran out of memory",
            _matching_line(text, "java.lang.OutOfMemoryError"),
            "give it more: --spark-conf spark.driver.memory=8g (local) or spark.executor.memory=8g (cluster)",
        )
    if lost := _LOST.search(text):
        return StorageUnavailable(
            "Spark lost its executors", lost[1], "they usually run out of memory: raise spark.executor.memory"
        )
    if _CANCELLED.search(text):
        return StorageUnavailable(
            "the Spark job was cancelled", "another thread, Spark's web page or the end of its query did it", "run it again"
        )
    if "Python worker exited unexpectedly" in text:
        return StorageUnavailable(
            "a Python worker of Spark died",
            "it was killed or crashed",
            "the usual cause is lack of memory: use fewer cores, such as --master 'local[2]'",
        )
    if "Py4JNetworkError" in text or "Answer from Java side is empty" in text or "Connection refused" in text:
        return StorageUnavailable(
            "Spark's JVM has exited",
            "it ended while a job was running",
            "the usual cause is lack of memory: --spark-conf spark.driver.memory=8g",
        )
    return None


def _matching_line(text: str, needle: str) -> str:
    return next(line.strip() for line in text.splitlines() if needle in line)


def _last_line(text: str) -> str:
    """The last line of the innermost Python traceback, else the innermost Java exception, else the message's first line."""
    if traceback := _TRACEBACK.search(text):
        messages = [line for line in traceback[1].splitlines() if line and not line.startswith(" ")]
        return messages[-1] if messages else "no reason was given"
    causes = _JAVA_EXCEPTION.findall(text)
    return causes[-1] if causes else text.split("\n", 1)[0]


def shared_tasks(count: int, sizes: Sequence[int] | None) -> list[range]:
    """The numbers of tasks in shares, each for one Spark task. `sizes`: bytes that each task reads; None: nothing is shared."""
    if sizes is None:
        return [range(number, number + 1) for number in range(count)]
    return shares(sizes, LEAST_BYTES, SHARED_BYTES)


def outcome_of(function: Callable[[T], R], task: T) -> R | PaimonError:
    try:
        return function(task)
    except PaimonError as error:
        return error
