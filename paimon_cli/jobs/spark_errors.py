"""What went wrong in Spark as one clear error: a `PaimonError` of a task comes out unchanged, the rest is put in words."""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

from paimon_cli.errors import PaimonError, StorageUnavailable, UsageError

_CARRIED = re.compile(r"paimon-cli-error<([A-Za-z0-9+/=]+)>")
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(.*?)(?:\n\s*\n|\n\s+SQLSTATE: |\n\tat |\Z)", re.DOTALL)
_JAVA_EXCEPTION = re.compile(r"^(?:Caused by|): (?:[\w$]+\.)*([\w$]+(?:Exception|Error): [^\n]*)", re.MULTILINE)
_LOST = re.compile(
    r"(ExecutorLostFailure[^\n]*|Master removed our application[^\n]*|Job \d+ cancelled because SparkContext[^\n]*)"
)


class TaskError(Exception):
    """Carries a `PaimonError` from a task to the driver inside its message: Spark hands on nothing but text."""

    def __init__(self, error: PaimonError) -> None:
        super().__init__(f"paimon-cli-error<{base64.b64encode(pickle.dumps(error)).decode()}>")


@contextmanager
def carrying_errors() -> Iterator[None]:
    """In a task: lets a `PaimonError` reach `explained` on the driver."""
    try:
        yield
    except PaimonError as error:
        raise TaskError(error) from error


def explained(failure: Exception) -> PaimonError:
    """The error to show for an exception of PySpark or py4j; the caller chains it to `failure`, which has the traces."""
    text = str(failure)
    if carried := _CARRIED.search(text):
        error = pickle.loads(base64.b64decode(carried[1]))
        if isinstance(error, PaimonError):
            return error
    return _environment_error(text) or PaimonError(
        "a Spark task failed", _last_line(text), "run it again with --trace to see where; --engine local runs without Spark"
    )


def _environment_error(text: str) -> PaimonError | None:
    """Faults of the executors or the JVM that have nothing to do with the table."""
    if missing := _MISSING_MODULE.search(text):
        return UsageError(
            f"the Spark executors lack the Python module '{missing[1]}'",
            "they are sent the package itself, but not its dependencies",
            "install paimon-cli in the executors' Python, or name one that has it: --spark-conf spark.pyspark.python=PATH",
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
        return StorageUnavailable("Spark lost its executors", lost[1], "the memory of executors is the usual cause")
    if "Python worker exited unexpectedly" in text:
        return StorageUnavailable(
            "a Python worker of Spark died",
            "it was killed or crashed",
            "lack of memory is the usual cause: use fewer cores at once",
        )
    if "Py4JNetworkError" in text or "Answer from Java side is empty" in text or "Connection refused" in text:
        return StorageUnavailable(
            "Spark's JVM has exited", "it ended while a job was running", "lack of memory is the usual cause"
        )
    return None


def _matching_line(text: str, needle: str) -> str:
    return next(line.strip() for line in text.splitlines() if needle in line)


def _last_line(text: str) -> str:
    """The last line of the innermost Python traceback, else the innermost Java exception, else the message's first line."""
    if traceback := _TRACEBACK.search(text):
        told = [line for line in traceback[1].splitlines() if line and not line.startswith(" ")]
        return told[-1] if told else "no reason was given"
    causes = _JAVA_EXCEPTION.findall(text)
    return causes[-1] if causes else text.split("\n", 1)[0]
