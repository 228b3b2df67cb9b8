"""How calls run: the engine, and where progress, warnings and steps go."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.command_texts import in_python
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import printable
from paimon_cli.storage.injected import Clock, NoTrace, SystemClock, Trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_cli.jobs.engine import Engine, Progress


_MILLIS_BETWEEN_LINES = 200


def _warn_in_python(message: str) -> None:
    """Issue a warning at the line that called this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("paimon_cli."):
        frame, level = frame.f_back, level + 1
    warnings.warn(in_python(message), UserWarning, stacklevel=level)


@checks_arguments
@dataclass(frozen=True)
class Runtime:
    """How calls run.

    `engine`: `auto`, `local` or `spark`; `auto` runs small jobs in this process and jobs from `spark_threshold` on (a size,
    or a size and a number of files: `1 gb,1000`) on Spark. `master` (`spark://`, `yarn`, ... or a Spark Connect server,
    `sc://host:port`) and `spark_conf` select and configure Spark. `session`: run all jobs in this Spark session, classic or
    Spark Connect, which is not stopped. `given_engine`: a running engine to use instead. `profile`: the profile of
    `paimon.yaml` with the default of `spark_threshold`; None for that of the environment or of the file. `progress`: True
    shows the phases of jobs in a line on stderr; a function creates another display for each job. `warn`: receives warnings;
    `trace`: receives the steps.
    """

    engine: str = "auto"
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark_threshold: str | None = None
    progress: bool | Callable[[], Progress] | None = None
    warn: Callable[[str], None] = _warn_in_python
    trace: Trace = field(default_factory=NoTrace, repr=False)
    session: SparkSession | None = field(default=None, repr=False)
    given_engine: Engine | None = field(default=None, repr=False)
    profile: str | None = None

    def __post_init__(self) -> None:
        if self.engine != "auto":
            from paimon_cli.jobs.engine_choice import check_engine

            check_engine(self.engine)
        if self.session is None:
            return
        check_session(self.session)
        if self.engine == "local" or self.master is not None or self.spark_conf:
            raise UsageError(
                "session cannot be combined with engine='local', master or spark_conf",
                "the session already determines where jobs run and how",
                "leave out the others",
            )

    def __dir__(self) -> list[str]:
        """What is for callers: a notebook proposes no plumbing."""
        plumbing = ("engine_running", "given_engine", "new_progress", "open_engine")
        return [name for name in super().__dir__() if name not in plumbing]

    def new_progress(self) -> Progress:
        if self.progress is True:
            return ProgressLine()
        if self.progress:
            return self.progress()
        from paimon_cli.jobs.engine import NoProgress

        return NoProgress()

    def open_engine(self, parallelism: int | None = None) -> Engine:
        """The engine, not started yet. `parallelism`: the most concurrent threads of this process, or tasks on Spark."""
        if self.given_engine is not None:
            return self.given_engine
        if self.session is not None:
            from paimon_cli.jobs.spark.session_engine import SessionEngine

            return SessionEngine(self.session)
        from paimon_cli.catalog.metastore.settings import catalog_setting
        from paimon_cli.jobs.engine_choice import AUTO, THRESHOLD_KEY, EngineRequest, Threshold, open_engine

        threshold = Threshold()
        if self.spark_threshold is not None:
            threshold = Threshold.parse(self.spark_threshold, "--spark-threshold")
        elif self.engine == AUTO and (setting := catalog_setting(THRESHOLD_KEY, self.profile)) is not None:
            threshold = Threshold.parse(setting, f"{THRESHOLD_KEY} of paimon.yaml")
        return open_engine(EngineRequest(self.engine, self.master, self.spark_conf, parallelism, parallelism, threshold))

    @contextmanager
    def engine_running(self, parallelism: int | None = None) -> Iterator[Engine]:
        """The engine, which is stopped at the end of the block."""
        engine = self.open_engine(parallelism)
        try:
            yield engine
        finally:
            engine.stop()


class ProgressLine:
    """Shows the phases of a job in one line of stderr, which notebooks show as well."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._description, self._total, self._done, self._shown_at, self._width = "", 0, 0, 0, 0

    def start(self, description: str, total: int | None) -> None:
        self._description, self._total, self._done = description, total or 0, 0
        self._show()

    def advance(self, n: int = 1) -> None:
        self._done += n
        if self._clock.now_millis() - self._shown_at >= _MILLIS_BETWEEN_LINES:
            self._show()

    def finish(self) -> None:
        if self._description:
            self._show()
            print(file=sys.stderr, flush=True)
        self._description, self._width = "", 0

    def _show(self) -> None:
        self._shown_at = self._clock.now_millis()
        count = f" {self._done:,} of {self._total:,}" if self._total else f" {self._done:,}" if self._done else ""
        text = f"{printable(self._description)}{count}"
        print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)  # spaces cover what was longer
        self._width = len(text)


def check_session(given: object) -> None:
    """Raise `UsageError` unless this is a Spark session. A DataFrame of Spark Connect has any attribute, as a column."""
    if not hasattr(type(given), "createDataFrame"):
        raise UsageError(f"{type(given).__name__} is not a Spark session", "spark.read and the runtime of jobs need the session")
