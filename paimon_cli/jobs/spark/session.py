"""A Spark session for a command-line tool: quiet, quick to start, and without files in the working directory.

The JVM keeps a class data archive of Spark in the user's cache. Executors get this package as a zip.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import site
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import paimon_cli
from paimon_cli.errors import StorageUnavailable
from paimon_cli.jobs.process import usable_memory
from paimon_cli.jobs.spark.java_runtime import JavaRuntime, find_java, user_cache
from paimon_cli.jobs.spark.submit import WORKERS_PYTHON, WORKERS_PYTHON_VARIABLE, is_local, send_to_executors
from paimon_cli.processor import OWN_WORKER, fast_sort
from paimon_cli.storage.injected import SystemRandom
from paimon_cli.storage.redaction import holds_secret, redact, shown_value
from paimon_cli.storage.whole_file import ScratchDirectory

_PREFIX, _SUFFIX = "spark-classes-", ".jsa"
MAX_ARCHIVES = 3
"""Archives take about 70 MB each; each pair of Java and PySpark needs one."""
NOT_YET = b"\0\0\0\0"
"""The first bytes of an archive that is still being written."""


def archive_options(java: JavaRuntime, cache: Path | None, only_use: bool = False) -> list[str]:
    """The JVM options to use the archive in `cache` or, unless `only_use`, to write it when the JVM exits.

    Empty without a cache. A JVM that writes the archive prints some lines to its output.
    """
    if cache is None:
        return []
    installation = f"{java.build} {Path(pyspark.__file__).parent} {pyspark.__version__}"
    key = _PREFIX + hashlib.sha256(installation.encode()).hexdigest()[:16]
    archives = sorted(cache.glob(f"{_PREFIX}*{_SUFFIX}"), key=_written, reverse=True)
    usable = [path for path in archives if path.name.startswith(key) and _is_whole(path)]
    # JVMs that started at the same time may each have written an archive; unfinished ones are not usable.
    for path in {*archives[MAX_ARCHIVES:], *usable[1:]} - {*usable[:1]}:
        with contextlib.suppress(OSError):  # removed by another process, or owned by another user
            path.unlink()
    if usable:
        return [f"-XX:SharedArchiveFile={usable[0]}"]
    if only_use:
        return []
    # A unique name, because two JVMs writing to the same file would corrupt it.
    return [f"-XX:ArchiveClassesAtExit={cache / f'{key}-{SystemRandom().uuid()}{_SUFFIX}'}"]


def _written(path: Path) -> int:
    """The modification time in nanoseconds; 0 if the file is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(NOT_YET)) > NOT_YET
    except OSError:
        return False


LOCAL_MASTER, _MASTER = "local[*]", "spark.master"
LOG_PREFIX = re.compile(r"^[\d/]+ [\d:]+ (?:ERROR|WARN) ")
ERROR_WORD = re.compile(r"Exception|Error\b|Invalid |[Gg]iving up")
MAX_ERRORS_SHOWN = 2
SMALLEST_HEAP, LARGEST_HEAP = 1 << 30, 4 << 30

FIXED_CONFS = {
    "spark.app.name": "paimon-cli",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.task.killTimeout": "100ms",  # Spark does not ask a cancelled Python task to end, so waiting is useless
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "false",  # it would merge and split partitions, but each bucket needs one writer
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",  # chunks of rows of a write: up to 16 MiB each
}

JVM_OPTIONS = ("-XX:TieredStopAtLevel=1",)
"""Options for local Spark, whose JVM only distributes tasks and exits before further optimisation would pay off."""
LOCAL_CONFS = {
    "spark.python.unix.domain.socket.enabled": "true",  # over TCP each task waits some 40 ms for a delayed acknowledgement
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SparkRequest:
    """Where and how to run Spark. `confs` override all other settings; `verbose`: the JVM logs to stderr."""

    master: str = LOCAL_MASTER
    confs: Mapping[str, str] = field(default_factory=dict, repr=False)
    verbose: bool = False

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, in Python processes like this one."""
        return is_local(self.master)


class RunningSpark:
    """A context and its temporary directory. `is_ours`: whether this package started it."""

    def __init__(self, context: SparkContext, directory: ScratchDirectory | None) -> None:
        self.context = context
        self.is_ours = directory is not None
        self._directory = directory
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """The SQL session, created on first use: it takes the JVM half as long as the context, and plain tasks do not need it."""
        if self._session is None:
            self._session = SparkSession.getActiveSession() or SparkSession(self.context)
        return self._session

    def stop(self) -> None:
        """Stop the session if this package started it."""
        if self._directory is None:
            return
        try:
            (self._session or self.context).stop()
        except (Py4JError, OSError) as failure:
            log.debug("the JVM was gone before its session was stopped: %s", failure)
            _forget_jvm()
        self._directory.remove()


def start_spark(request: SparkRequest) -> RunningSpark:
    """Start Spark, or use the session that already runs in this process.

    Raises `UsageError` without Java, `StorageUnavailable` with the errors in the JVM's log if Spark does not start.
    """
    if SparkContext._active_spark_context is not None:
        send_to_executors(SparkContext._active_spark_context)
        return RunningSpark(SparkContext._active_spark_context, None)
    directory = ScratchDirectory("spark")
    jvm_log = directory.path / "jvm.log"
    try:
        java = find_java(os.environ)
        confs = spark_confs(request, directory.path, archive_options(java, user_cache(os.environ), request.verbose))
        with _environment({**fast_sort(os.environ), **environment_of(request, java)}):  # for its Python workers
            context = _spark_context(request, confs, jvm_log)
        context._accumulatorServer.handle_error = _log_broken_connection  # type: ignore[method-assign]
        send_to_executors(context)
        return RunningSpark(context, directory)
    except (Py4JError, PySparkException, OSError) as error:
        raise StorageUnavailable(
            f"Spark did not start with master {shown_value('', request.master)}",
            redact(_errors_in(jvm_log) or str(error).split("\n", 1)[0], request.confs),
            "check --master and --spark-conf; -v shows Spark's own log",
        ) from error


def spark_confs(request: SparkRequest, directory: Path, jvm_options: Sequence[str] = ()) -> dict[str, str]:
    """All Spark settings, with the user's last. `jvm_options`: additional options for a JVM on this machine."""
    confs = {
        **FIXED_CONFS,
        _MASTER: request.master,
        "spark.log.level": "WARN" if request.verbose else "ERROR",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    if request.is_local:
        options = " ".join(_quoted(option) for option in (*JVM_OPTIONS, *jvm_options))
        heap = f"{default_heap() >> 20}m"
        confs |= {**LOCAL_CONFS, "spark.driver.defaultJavaOptions": options, "spark.driver.memory": heap}
    else:
        confs[f"spark.executorEnv.{OWN_WORKER}"] = "1"
    return {**confs, **request.confs}


SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""`spark-submit` sets this variable for the Python process that it starts next to its JVM."""


def requested_spark(master: str | None, confs: Mapping[str, str], environment: Mapping[str, str]) -> SparkRequest:
    """The Spark that the user named, else that of the `spark-submit` that started this process, else embedded Spark."""
    named = confs.get(_MASTER) or master
    if SUBMITTED in environment:
        SparkContext._ensure_initialized()
        submitted = dict(SparkConf().getAll())
        chosen = named or submitted[_MASTER]
        return SparkRequest(chosen, {**submitted, **confs, _MASTER: chosen})
    chosen = named or LOCAL_MASTER
    return SparkRequest(chosen, {name: chosen if name == _MASTER else value for name, value in confs.items()})


def _quoted(option: str) -> str:
    """Quote an option for Spark's launcher, which splits options at spaces."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def default_heap(memory: int | None = None) -> int:
    """The heap of the JVM in bytes: a quarter of the memory (default: that of the machine or container), within 1 to 4 GiB."""
    return max(SMALLEST_HEAP, min(LARGEST_HEAP, (memory or usable_memory()) // 4))


def _spark_context(request: SparkRequest, confs: Mapping[str, str], jvm_log: Path) -> SparkContext:
    """Create a context in a new JVM, whose output stays out of the terminal, or in the JVM that this process already has."""
    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(confs.items()))
        # The settings for the JVM's start are on its command line, which every user of the machine can read. Secrets follow
        # through the socket of the gateway, to which all settings are sent once more.
        public = [(key, value) for key, value in confs.items() if not holds_secret(key, value)]
        at_start = SparkConf(loadDefaults=False).setAll(public)
        with jvm_log.open("wb") as sink:
            output = sys.stderr if request.verbose else sink
            gateway = launch_gateway(at_start, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        return SparkContext(conf=conf, gateway=gateway)
    return SparkContext(conf=SparkConf().setAll(list(confs.items())))


def environment_of(request: SparkRequest, java: JavaRuntime) -> dict[str, str]:
    """The environment variables that Spark reads while it starts."""
    values = {"JAVA_HOME": str(java.home)}
    python = request.confs.get(WORKERS_PYTHON)
    if request.is_local:
        package_home = str(Path(paimon_cli.__file__).parent.parent)
        values["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # another installation's jars would not fit this PySpark
        values["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
        values[WORKERS_PYTHON_VARIABLE] = python or sys.executable
        if package_home not in site.getsitepackages():
            paths = [package_home, os.environ.get("PYTHONPATH", "")]
            values["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    elif python:
        values[WORKERS_PYTHON_VARIABLE] = python
    return values


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during the block; changes to other variables are kept."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _errors_in(jvm_log: Path) -> str:
    """The errors in the JVM's log, or its last line."""
    lines = jvm_log.read_text(errors="replace").splitlines() if jvm_log.exists() else []
    lines = [LOG_PREFIX.sub("", line).strip() for line in lines if line.strip() and not line.startswith("\t")]
    errors = [line for line in lines if ERROR_WORD.search(line)]
    return " | ".join(dict.fromkeys(errors[:MAX_ERRORS_SHOWN] or lines[-1:]))


def _log_broken_connection(request: object, client_address: object) -> None:
    """Replace the traceback on stderr if the JVM dies while sending accumulator updates; the job reports the error itself."""
    log.debug("the JVM at %s closed the connection", client_address, exc_info=True)


def _forget_jvm() -> None:
    """Make the next session launch a new JVM: PySpark would keep using the one of this process even if it is dead."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
