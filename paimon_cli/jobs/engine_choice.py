"""The choice of the engine for a job: with `auto`, small jobs run in this process and bulk jobs on Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from paimon_cli.errors import UsageError
from paimon_cli.installation import install_command
from paimon_cli.jobs.engine import Engine, LocalEngine, Progress, WhyNotSpark, Work
from paimon_cli.jobs.process import CONNECT_MODE, let_pandas_in, usable_cores
from paimon_cli.options.option_text import human_size, parse_size

if TYPE_CHECKING:
    from paimon_cli.write.table_writer import Written
    from paimon_cli.write.write_plan import Tallies, WritePlan

T = TypeVar("T")
R = TypeVar("R")

AUTO, SPARK, LOCAL = "auto", "spark", "local"
ENGINES = (AUTO, SPARK, LOCAL)
THRESHOLD_KEY = "engine.spark-threshold"
"""Key of `paimon.yaml`."""


@dataclass(frozen=True)
class Threshold:
    """The size of a job from which `auto` uses Spark: bytes to read, or number of files."""

    size: int = 1 << 30
    files: int = 1000

    @classmethod
    def parse(cls, text: str, source: str = THRESHOLD_KEY) -> Threshold:
        """Parse `512 mb`, or `512 mb, 200` with a number of files. Raises `UsageError`, which names `source` as the source."""
        size, comma, files = (part.strip() for part in text.partition(","))
        hint = "write it as 1 gb, or 1 gb,1000"
        if comma and not (files.isascii() and files.isdigit()):
            raise UsageError(f"cannot read {source} '{text}'", f"'{files}' is not a number of files", hint)
        try:
            return cls(parse_size(size), int(files) if comma else cls.files)
        except UsageError:
            raise UsageError(f"cannot read {source} '{text}'", f"'{size}' is not a size", hint) from None

    def is_reached_by(self, work: Work) -> bool:
        return bool(work.files) and not work.is_in_memory and (work.size >= self.size or work.files >= self.files)

    def compared_with(self, work: Work) -> str:
        """The comparison that decides, as text: `3.8 MB < 1.0 GB`, `1,200 files >= 1,000`."""
        if work.is_in_memory:
            return "the rows are in this process"
        if work.size < self.size and work.files >= self.files:
            return f"{work.files:,} file{'' if work.files == 1 else 's'} >= {self.files:,}"
        return f"{human_size(work.size)} {'<' if work.size < self.size else '>='} {human_size(self.size)}"


CONNECT = "sc://"
"""URL prefix of a Spark Connect server."""


@dataclass(frozen=True)
class EngineRequest:
    """The user's choice of an engine. `master` may be a Spark Connect server, `sc://host:port`.

    `threads` limits the concurrent tasks in this process, `tasks` those on Spark.
    """

    engine: str = AUTO
    master: str | None = None
    spark_conf: Mapping[str, str] | None = None
    threads: int | None = None
    tasks: int | None = None
    threshold: Threshold = Threshold()


def check_engine(name: str) -> None:
    """Raise `UsageError` for an unknown engine."""
    if name not in ENGINES:
        raise UsageError(f"unknown engine '{name}'", f"choose one of {', '.join(ENGINES)}")


def open_engine(request: EngineRequest) -> Engine:
    """The requested engine, not started yet. `--master` and `--spark-conf` imply Spark.

    Raises `UsageError` for an unknown engine, for Spark settings with `local`, and if PySpark is not installed.
    """
    names_spark = request.master is not None or bool(request.spark_conf)
    check_engine(request.engine)
    if request.engine == LOCAL and names_spark:
        raise UsageError("--engine local takes no --master, --remote or --spark-conf", "it runs in this process, without Spark")
    if request.engine == SPARK or names_spark:
        return _spark_engine(request)
    local = LocalEngine(request.threads or usable_cores())
    if request.engine == LOCAL:
        return local
    return AutoEngine(request.threshold, local, lambda: _spark_engine(request))


SPARK_IS_MISSING = "Spark is not installed"


def _has_spark() -> bool:
    return find_spec("pyspark") is not None


def _spark_engine(request: EngineRequest) -> Engine:
    if not _has_spark():
        raise UsageError("cannot run on Spark", SPARK_IS_MISSING, f"{install_command('spark')}, or use --engine local")
    let_pandas_in()
    if request.master is not None and request.master.startswith(CONNECT):
        from paimon_cli.jobs.spark.session_engine import ConnectEngine

        return ConnectEngine(request.master, request.spark_conf or {})
    if request.master is None and not request.spark_conf and CONNECT_MODE in os.environ:
        from paimon_cli.jobs.spark.session_engine import SessionEngine, connect_session_here

        if (session := connect_session_here()) is not None:
            return SessionEngine(session)
    from paimon_cli.jobs.spark.engine import SparkEngine
    from paimon_cli.jobs.spark.session import requested_spark

    return SparkEngine(requested_spark(request.master, request.spark_conf or {}, os.environ), request.tasks)


class AutoEngine:
    """Chooses an engine for each job by the work passed to `prepare`; once Spark runs, later jobs use it too."""

    def __init__(self, threshold: Threshold, local: Engine, spark: Callable[[], Engine]) -> None:
        self._threshold = threshold
        self._local = local
        self._start_spark = spark
        self._spark: Engine | None = None
        self._chosen = local
        self._reason = ""

    @property
    def name(self) -> str:
        return self._chosen.name

    @property
    def reason(self) -> str:
        return self._reason

    @property
    def retries_tasks(self) -> bool:
        return self._chosen.retries_tasks

    @property
    def shares_disk(self) -> bool:
        if self._spark is None and _has_spark():
            self._spark = self._start_spark()  # nothing runs before it is prepared
        return self._spark is None or self._spark.shares_disk

    @property
    def tasks_per_process(self) -> int:
        return self._chosen.tasks_per_process

    def choose(self, work: Work) -> str:
        """Choose the engine for this work and record the reason; returns the name of the engine."""
        if self._threshold.is_reached_by(work):
            if not _has_spark():
                compared = self._threshold.compared_with(work)
                self._reason = WhyNotSpark(f"auto: {compared}, but {SPARK_IS_MISSING}: {install_command('spark')}")
                return self.name
            if self._spark is None:
                self._spark = self._start_spark()
            self._chosen = self._spark
        if self._chosen is self._local or self._threshold.is_reached_by(work):
            self._reason = f"auto: {self._threshold.compared_with(work)}"
        else:
            self._reason = "auto: Spark is running already"
        return self.name

    def prepare(self, work: Work, progress: Progress) -> None:
        self.choose(work)
        self._chosen.prepare(work, progress)

    def run_tasks(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        on_done: Callable[[R], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[R]:
        return self._chosen.run_tasks(function, tasks, on_done, sizes)

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        return self._chosen.write_rows(plan, tallies, progress)

    def stop(self) -> None:
        self._local.stop()
        if self._spark is not None:
            self._spark.stop()
