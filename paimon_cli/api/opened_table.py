"""An opened table, how its calls run (engine, warnings, progress), and the arguments that they accept."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.errors import PaimonError, UsageError, in_python
from paimon_cli.requests.selections import Buckets, Partitions, bucket_list, partition_list
from paimon_cli.storage.injected import NoTrace, Trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_cli.catalog.table import CatalogTable
    from paimon_cli.history.partition_spec import PartitionSpec
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.engine import Engine, Progress
    from paimon_cli.metadata.snapshot import Snapshot


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
    `paimon.yaml` with the default of `spark_threshold`; None for that of the environment or of the file. `progress`: creates
    the display for the phases of a job; `warn`: receives warnings; `trace`: receives the steps.
    """

    engine: str = "auto"
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark_threshold: str | None = None
    progress: Callable[[], Progress] | None = None
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

    def new_progress(self) -> Progress:
        if self.progress is not None:
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
        from paimon_cli.jobs.engine_choice import AUTO, THRESHOLD_KEY, EngineRequest, Threshold, open_engine
        from paimon_cli.metastore.settings import catalog_setting

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


def check_session(given: object) -> None:
    """Raise `UsageError` unless this is a Spark session. A DataFrame of Spark Connect has any attribute, as a column."""
    if not hasattr(type(given), "createDataFrame"):
        raise UsageError(f"{type(given).__name__} is not a Spark session", "spark.read and the runtime of jobs need the session")


Self = TypeVar("Self", bound="OpenedTable")


@checks_arguments
class OpenedTable:
    """The base of all parts of `Table`: the table, its context, and the checks before a commit.

    A table keeps the schema with which it was opened, until `refresh` is called. Snapshots are looked up by each call.
    """

    def __init__(self, opened: CatalogTable, runtime: Runtime) -> None:
        self.catalog_table = opened
        self.runtime = runtime
        self._may_commit = False

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    @property
    def name(self) -> str:
        """The table as it was named when it was opened, without secrets."""
        return self.catalog_table.name

    @property
    def url(self) -> str:
        """The normalised URL of the root directory."""
        return self.catalog_table.url

    @property
    def branch(self) -> str:
        """The branch that was opened, `main` by default."""
        return self.catalog_table.branch

    @property
    def context(self) -> TableContext:
        """The context for jobs, at the schema with which the table was opened. Internal to paimon_cli."""
        return self.catalog_table.context

    def refresh(self) -> None:
        """Use the latest schema from now on, in case another process has changed it."""
        self.catalog_table = replace(self.catalog_table)

    def with_options(self: Self, options: Mapping[str, str]) -> Self:
        """The same table with other table options, which apply only to calls on the result."""
        return type(self)(
            replace(self.catalog_table, options={**self.catalog_table.options, **options}),
            self.runtime,
        )

    def _warn_of_damage(self, damage: PaimonError) -> None:
        """Warn of a file that cannot be read, which a listing leaves out."""
        self.runtime.warn(f"{damage.message}; left out; {damage.hint or self.catalog_table.layout.if_damaged}")

    def _warn_of_buckets(self, *, in_rows: bool = False) -> None:
        """Warn of what no compaction mends: partitions with a wrong number of buckets, and lost schemas of files.

        `in_rows`: the rows of buckets name the counts already.
        """
        from paimon_cli.inspect.findings.examined_table import MIXED_COUNTS, OTHER_COUNT, ExaminedTable
        from paimon_cli.inspect.findings.finding import BUCKETS, ERROR, METADATA
        from paimon_cli.inspect.findings.runner import UNREADABLE, findings_of

        table = ExaminedTable(self.context, self.catalog_table.layout.argument)
        codes = (UNREADABLE,) if in_rows else (MIXED_COUNTS, OTHER_COUNT, UNREADABLE)
        for finding in findings_of(table, ERROR, (BUCKETS,), (METADATA,)):
            if finding.code in codes:
                self.runtime.warn(f"{finding.message}; run: {finding.command}")

    def check_call(self) -> None:
        """Raise `UsageError` for a read-only view, and for options that would damage the table if set for one call only.

        Jobs that change the table call it before they plan.
        """
        opened = self.catalog_table
        if opened.read_optimized:
            raise UsageError(f"{opened.name} is a view", "views are read-only", "leave out $ro")
        if opened.options:
            from paimon_cli.catalog.option_values import check_options_of_call

            check_options_of_call(opened.schemas.latest().options, opened.options, opened.snapshots.latest_id() is not None)

    def check_commit(self) -> None:
        """Check the call and the storage, once before the first commit. Raises `Refused` if no safe commit is possible.

        The newest snapshot is fetched meanwhile, for the plan of the same call only.
        """
        self.catalog_table.snapshots.forget_fetched()
        if self._may_commit:
            return
        self.check_call()
        self.catalog_table.snapshots.fetch_latest()
        if warning := self.catalog_table.check_commits():
            self.runtime.warn(warning)
        self._may_commit = True

    def _snapshot(self, snapshot: int | None) -> Snapshot | None:
        return self.catalog_table.snapshot(snapshot)

    def _partitions(self, partitions: Partitions | None) -> PartitionSpec | None:
        """The selected partitions; None for all."""
        if partitions is None:
            return None
        from paimon_cli.history.partition_spec import PartitionSpec

        return PartitionSpec.parse_any(self.context, partition_list(partitions))

    @staticmethod
    def _buckets(buckets: Buckets | None) -> frozenset[int] | None:
        """The selected bucket numbers; None for all."""
        from paimon_cli.history.live_files import bucket_numbers

        return bucket_numbers(bucket_list(buckets))

    def _expect_existing(self) -> None:
        """Raise `NotFound` if the table was dropped after it was opened: it would look like a healthy one without snapshots."""
        if self.catalog_table.snapshots.latest_id() is None:
            self.catalog_table.expect_not_dropped()


def option_texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Options as Paimon stores them: `true` for True. Raises `UsageError` for None, which is no value of any option."""
    for key, value in (options or {}).items():
        if value is None:
            raise UsageError(f"option {key}: None", "it is not the value of an option", "leave the option out")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (options or {}).items()}


def check_names(given: Mapping[str, object], options: type) -> None:
    """Raise `TypeError` for a keyword that is not declared in the `TypedDict` of options."""
    for name in given.keys() - options.__annotations__.keys():
        raise TypeError(f"there is no option '{name}'; the options are {', '.join(options.__annotations__)}")


def check_limit(limit: int | None) -> None:
    """Raise `UsageError` if the limit is not a number of rows."""
    if limit is not None and not 0 <= limit < 1 << 63:
        raise UsageError(f"--limit {limit}", "the number of rows cannot be negative" if limit < 0 else "the maximum is 2^63 - 1")
