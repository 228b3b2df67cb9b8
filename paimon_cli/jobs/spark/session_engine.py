"""The engine in an existing session, classic or Spark Connect: it uses only DataFrames, no SparkContext and no JVM access.

A row is the number of a task, or of several small ones. The tasks are pickled with the function, and outcomes come back as rows.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from paimon_cli.errors import PaimonError, StorageUnavailable, UsageError, importing
from paimon_cli.jobs.engine import Progress, TasksFailed, Work, phase
from paimon_cli.jobs.process import CONNECT_MODE
from paimon_cli.jobs.spark.exchange_files import exchange_directory
from paimon_cli.jobs.spark.failures import explained
from paimon_cli.jobs.spark.submit import classic_context, is_local, send_package
from paimon_cli.jobs.spark.tasks import TASK_END_SECONDS, JobKey, freeze_modules, outcome_of, shared_tasks
from paimon_cli.jobs.spark.write import Task, chunks_of_splits, shuffle_of, write_on_spark, write_where_read
from paimon_cli.pieces import PIECES
from paimon_cli.storage.redaction import redact, shown_address
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_plan import Tallies, WritePlan

T = TypeVar("T")
R = TypeVar("R")
CONNECT_PORT, CONNECT_SECONDS = 15002, 10
OUTCOMES_SQL = "number long, outcome binary"


class SessionEngine:
    """Runs tasks in the caller's session and ships this package to its executors. The caller stops the session."""

    name = "spark"
    reason = ""
    tasks_per_process = 1
    retries_tasks = True

    def __init__(self, session: SparkSession) -> None:
        self._given = session

    @property
    def session(self) -> SparkSession:
        return self._given

    def prepare(self, work: Work, progress: Progress) -> None:
        """Nothing to prepare: the session is running."""

    def run_tasks(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        on_done: Callable[[R], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[R]:
        if not tasks:
            return []
        send_package(self.session)
        shares = shared_tasks(len(tasks), sizes)
        numbers = self.session.range(0, len(shares), 1, min(len(shares), PIECES.max_spark_partitions))
        outcomes = numbers.mapInArrow(_outcomes_of(function, tasks, shares), OUTCOMES_SQL)
        finished: dict[int, R] = {}
        errors: dict[int, PaimonError] = {}
        try:
            with self.one_job():
                for number, outcome in self._results_of(outcomes):
                    result = pickle.loads(outcome)
                    if isinstance(result, PaimonError):
                        errors[number] = result
                        continue
                    finished[number] = result
                    if on_done is not None:
                        on_done(result)
        except PaimonError as error:
            raise TasksFailed([finished[number] for number in sorted(finished)], error) from error
        results = [finished[number] for number in sorted(finished)]
        if errors:
            raise TasksFailed(results, errors[min(errors)])
        return results

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        parallelism = self.parallelism()
        if not plan.shuffles:
            return write_where_read(self, plan, parallelism, tallies, progress)
        send_package(self.session)
        with self.exchange() as directory, phase(progress, "Writing rows", None), self.one_job():
            shuffle = replace(shuffle_of(plan, parallelism), directory=directory)
            written, found = write_on_spark(chunks_of_splits(self.session, shuffle), shuffle)
        tallies.update(found)
        return written

    @property
    def shares_disk(self) -> bool:
        context = classic_context(self.session)
        return context is not None and is_local(str(context.master))

    @contextmanager
    def exchange(self) -> Iterator[str | None]:
        """A directory in which the tasks of a job can exchange rows; None if they may run on other machines."""
        context = classic_context(self.session)
        if context is None or not self.shares_disk:
            yield None
            return
        with exchange_directory(context) as directory:
            yield str(directory)

    def stop(self) -> None:
        """The caller stops the session."""

    def parallelism(self) -> int:
        """The number of partitions that Spark creates by default, as an estimate of how many tasks it runs at a time."""
        context = classic_context(self.session)
        if context is not None:
            return int(context.defaultParallelism)
        numbers = self.session.range(0, PIECES.max_spark_partitions).select(F.spark_partition_id().alias("number"))
        with self.one_job():
            return 1 + int(numbers.agg(F.max("number").alias("last")).collect()[0].last)

    def _results_of(self, outcomes: DataFrame) -> Iterable[Row]:
        """Stream the rows over Spark Connect; collect them in a classic session, which would stream one task after the other."""
        return outcomes.collect() if classic_context(self.session) is not None else outcomes.toLocalIterator()

    def one_job(self) -> AbstractContextManager[None]:
        """Wrap one Spark job: its failures are raised as `PaimonError`, an interrupt cancels it, and no task outlasts either."""
        context = classic_context(self.session)
        if context is None:
            return _job_over_connect(self.session)
        from paimon_cli.jobs.spark.job import job_of_this_thread  # imports py4j, which a client of Spark Connect may lack

        return job_of_this_thread(context)


class ConnectEngine(SessionEngine):
    """Opens its own session on a Spark Connect server with the first job, and closes it with `stop`."""

    def __init__(self, url: str, confs: Mapping[str, str]) -> None:
        self._url = url
        self._confs = confs
        self._opened: SparkSession | None = None
        self._is_connect_process = CONNECT_MODE in os.environ

    @property
    def session(self) -> SparkSession:
        if self._opened is None:
            self._opened = connected(self._url, self._confs)
        return self._opened

    def prepare(self, work: Work, progress: Progress) -> None:
        if work.files:
            with phase(progress, "Connecting to Spark", None):
                self._opened = self.session

    def stop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.stop()
            if not self._is_connect_process:
                os.environ.pop(CONNECT_MODE, None)


def connect_session_here() -> SparkSession | None:
    """The active Spark Connect session of a process in which PySpark starts no classic session; None if there is none."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    return cast("SparkSession | None", ConnectSession.getActiveSession())


def connected(url: str, confs: Mapping[str, str]) -> SparkSession:
    """A new session on the server at `sc://host:port/;key=value`.

    Raises `UsageError` for an invalid URL or missing packages, `StorageUnavailable` if the server cannot be reached.
    """
    try:
        host, port = urlsplit(url).hostname, urlsplit(url).port or CONNECT_PORT
    except ValueError:
        host, port = None, CONNECT_PORT
    if not host:
        what = f"the address {shown_address(url)} of a Spark Connect server"
        raise UsageError(what, "it names no host", "such as --remote sc://localhost:15002")
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        hint = "check the address, and that a Spark Connect server runs there"
        raise StorageUnavailable(f"no Spark Connect server at {host}:{port}", str(error), hint) from error
    try:
        with importing("packages for Spark Connect are not installed", "connect"):
            builder = SparkSession.builder.remote(url)
            for key, value in confs.items():
                builder = builder.config(key, value)
            return builder.create()
    except PySparkException as failure:
        shown = explained(failure)
        shown.why = redact(shown.why, {"remote": url, **confs})
        raise shown from None


@contextmanager
def _job_over_connect(session: SparkSession) -> Iterator[None]:
    """Wrap one Spark job. Its tasks cannot be watched from here, so a failure waits as long as they may still run."""
    key = JobKey()
    session.addTag(key.tag)
    try:
        session.conf.set(key.property_name, key.secret)
        yield
    except AnalysisException as failure:  # no task has started
        raise explained(failure, key) from failure
    except PySparkException as failure:
        time.sleep(TASK_END_SECONDS)
        raise explained(failure, key) from failure
    except BaseException:
        session.interruptTag(key.tag)
        time.sleep(TASK_END_SECONDS)
        raise
    finally:
        session.removeTag(key.tag)
        with suppress(PySparkException):  # the server is gone
            session.conf.unset(key.property_name)


def _outcomes_of(function: Callable[[T], R], tasks: Sequence[T], shares: Sequence[range]) -> Task:
    """A function from numbers of shares to the pickled outcomes of their tasks, with the numbers of these.

    A `PaimonError` is an outcome, so that Spark does not retry the task. Each Spark task receives all tasks, and unpickles only
    its own.
    """
    pickled = [pickle.dumps(task) for task in tasks]

    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_modules()
        for number in (task for batch in numbers for share in batch.column(0).to_pylist() for task in shares[share]):
            outcome = pickle.dumps(outcome_of(function, pickle.loads(pickled[number])))
            yield pa.record_batch([pa.array([number]), pa.array([outcome], pa.binary())], names=["number", "outcome"])

    return run
