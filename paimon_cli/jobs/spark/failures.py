"""Which error a failure of Spark becomes: that of a task, one for a fault of executors or the JVM, or a general one.

The texts of Spark quote data. So a fault is recognised by types of exceptions, or by the beginning of a text, where Spark names
the fault before it quotes anything. Needs neither a SparkContext nor py4j, which a client of Spark Connect may lack.
"""

from __future__ import annotations

import re

from paimon_cli import errors
from paimon_cli.errors import PaimonError, StorageUnavailable, UsageError
from paimon_cli.jobs.spark.tasks import JobKey

_ABORTED = r"Job aborted due to stage failure: (?:Task [^\n]*?\(TID \d+\) \([^\n)]*\): )?"
_CLASS = r"(?:org\.apache\.spark\.(?:\w+\.)*\w+Exception: )?"
_START = rf"\s*(?:An error occurred while calling [^\n]*\n: )?{_CLASS}(?:{_ABORTED}{_CLASS})?"
"""What stands before the reason: py4j's call, the class of the exception, the task that failed and its exception."""
_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
_NO_MEMORY = re.compile(_START + r"(java\.lang\.OutOfMemoryError[^\n]*)")
_LOST = re.compile(
    _START + r"(ExecutorLostFailure[^\n]*|Master removed our application[^\n]*|Job \d+ cancelled because SparkContext[^\n]*)"
)
_CANCELLED = re.compile(_START + r"(?:\[SPARK_JOB_CANCELLED\]|\[OPERATION_CANCELED\]|java\.[\w.]*Interrupt\w*Exception\b)")
_WORKER_DIED = re.compile(_START + r"Python worker exited unexpectedly")
_PYTHON = (
    r"\s*(?:An exception was thrown from the Python worker\. Please see the stack trace below\.\n)?"
    r"(?:\[PYTHON_EXCEPTION\] )?(?:An exception was thrown from the Python worker:\s+)?"
)
_PREFACE = re.compile(r"\A" + _START + _PYTHON)
_PYTHON_ERROR = re.compile(_START + _PYTHON + r"Traceback \(most recent call last\):\n(?: [^\n]*\n)*([^\n]*)")
"""The first exception of a Python worker: lines of its traceback are indented, so that none can be taken for it."""
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OTHER_PYTHON = re.compile(r"(?:\w+\.)*PySparkRuntimeError: \[PYTHON_VERSION_MISMATCH\]")
_LINES = r"[^\n]*(?:\n  [^\n]*)*"
_OF_SOURCE = re.compile(
    _START
    + r"(?:\[STREAM_FAILED\] Query (?:[^\n\[\]]+ )?\[id = [\w-]+, runId = [\w-]+\] terminated with exception: )?"
    + r"\[PYTHON_(?:STREAMING_)?DATA_SOURCE_(?:RUNTIME_)?ERROR\] Failed [\w ]*: paimon_cli\.errors\.(?P<name>\w+): "
    + rf"(?P<what>{_LINES})(?:\nhint: (?P<hint>{_LINES}))?(?:\n? *SQLSTATE|\n|\Z)"
)
"""An error of the data source in a process that belongs to no job, and so cannot sign it: Spark names it before anything else.
Further lines of its text are indented, so that none can be taken for a hint.
"""
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(.*?)(?:\n\s*\n|\n\s+SQLSTATE: |\n\tat |\Z)", re.DOTALL)
_JAVA_EXCEPTION = re.compile(r"^(?:Caused by|): (?:[\w$]+\.)*([\w$]+(?:Exception|Error): [^\n]*)", re.MULTILINE)
MAX_CAUSES = 20


def explained(failure: Exception, key: JobKey | None = None) -> PaimonError:
    """The error to raise for an exception of PySpark or py4j. The caller chains it to `failure`, which has the tracebacks.

    `key`: that of the job that failed.
    """
    if _has_no_jvm(failure):
        return StorageUnavailable(
            "Spark's JVM has exited",
            "it ended while a job was running",
            "the usual cause is lack of memory: --spark-conf spark.driver.memory=8g",
        )
    text = str(failure)
    if key is not None and (error := key.error_in(text)) is not None:
        return error
    return (
        _error_of_source(text)
        or _fault_of_python(text)
        or _fault_of_spark(text, failure)
        or PaimonError(
            "a Spark task failed", _last_line(text), "run it again with --trace to see where; --engine local runs without Spark"
        )
    )


def _has_no_jvm(failure: Exception) -> bool:
    """Whether the connection to the JVM, or to the server of Spark Connect, is lost."""
    types = {base.__name__ for base in type(failure).__mro__}
    status = getattr(failure, "getGrpcStatusCode", None)
    return (
        isinstance(failure, ConnectionError)
        or "Py4JNetworkError" in types
        or ("Py4JError" in types and "Py4JJavaError" not in types)
        or (status is not None and status().name == "UNAVAILABLE")
    )


def _error_of_source(text: str) -> PaimonError | None:
    """The error that the data source has raised when Spark planned or committed; None for other failures."""
    found = _OF_SOURCE.match(text)
    kind = None if found is None else vars(errors).get(found["name"])
    if found is None or not (isinstance(kind, type) and issubclass(kind, PaimonError)):
        return None
    of_texts = next(base for base in kind.__mro__ if issubclass(base, PaimonError) and base.__init__ is PaimonError.__init__)
    return of_texts(found["what"], "", found["hint"] or "")


def _fault_of_python(text: str) -> PaimonError | None:
    """The error for a Python of the executors that cannot run our tasks; None for other failures."""
    if (error := _PYTHON_ERROR.match(text)) is None:
        return None
    if missing := _MISSING_MODULE.match(error[1]):
        return UsageError(
            f"the Spark executors lack the Python module '{missing[1]}'",
            "they are sent the package itself, but not its dependencies",
            "install it in the executors' Python, or name a Python that has it: --spark-conf spark.pyspark.python=PATH",
        )
    if _OTHER_PYTHON.match(error[1]):
        return UsageError(
            "the Spark executors run another Python version than this command",
            error[1],
            "name a matching one: --spark-conf spark.pyspark.python=PATH",
        )
    return None


def _fault_of_spark(text: str, failure: Exception) -> PaimonError | None:
    """The error for a failure of executors or the JVM that is unrelated to the table; None for other failures."""
    no_memory = _NO_MEMORY.match(text)
    if no_memory or _OUT_OF_MEMORY in _java_types(failure):
        return StorageUnavailable(
            "Spark ran out of memory",
            no_memory[1] if no_memory else _OUT_OF_MEMORY,
            "give it more: --spark-conf spark.driver.memory=8g (local) or spark.executor.memory=8g (cluster)",
        )
    if lost := _LOST.match(text):
        return StorageUnavailable(
            "Spark lost its executors", lost[1], "they usually run out of memory: raise spark.executor.memory"
        )
    if _CANCELLED.match(text):
        return StorageUnavailable(
            "the Spark job was cancelled", "another thread, Spark's web page or the end of its query did it", "run it again"
        )
    if _WORKER_DIED.match(text):
        return StorageUnavailable(
            "a Python worker of Spark died",
            "it was killed or crashed",
            "the usual cause is lack of memory: use fewer cores, such as --master 'local[2]'",
        )
    return None


def _java_types(failure: Exception) -> list[str]:
    """The classes of a Java exception and its causes; none over Spark Connect, whose server keeps the objects."""
    java = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    types: list[str] = []
    while java is not None and len(types) < MAX_CAUSES:
        types.append(str(java.getClass().getName()))
        java = java.getCause()
    return types


def _last_line(text: str) -> str:
    """The last line of the innermost Python traceback, else the innermost Java exception, else the message's first line."""
    if traceback := _TRACEBACK.search(text):
        messages = [line for line in traceback[1].splitlines() if line and not line.startswith(" ")]
        return messages[-1] if messages else "no reason was given"
    causes = _JAVA_EXCEPTION.findall(text)
    return causes[-1] if causes else _PREFACE.sub("", text, count=1).split("\n", 1)[0]
