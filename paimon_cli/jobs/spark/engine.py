"""The engine on classic Spark: tasks run as an RDD, writes as a shuffle. Spark starts with the first job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Generic, TypeVar

from pyspark import SparkContext
from pyspark.accumulators import Accumulator

from paimon_cli.errors import PaimonError
from paimon_cli.jobs.engine import Progress, TasksFailed, Work, phase
from paimon_cli.jobs.spark.exchange_files import exchange_directory, write_through_files
from paimon_cli.jobs.spark.job import Reports, SparkJob
from paimon_cli.jobs.spark.session import RunningSpark, SparkRequest, start_spark
from paimon_cli.jobs.spark.submit import is_local
from paimon_cli.jobs.spark.tasks import freeze_modules, outcome_of, shared_tasks
from paimon_cli.jobs.spark.write import (
    WRITTEN,
    Shuffle,
    Steps,
    check_bucket_owners,
    chunks_of_splits,
    shuffle_of,
    write_on_spark,
    write_where_read,
)
from paimon_cli.pieces import PIECES
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_plan import Tallies, WritePlan

T = TypeVar("T")
R = TypeVar("R")
Outcome = tuple[int, R | PaimonError]
"""The number of a task, and its result or error."""

EXECUTOR_END_SECONDS = 1.0
"""How long to wait for the executors of a cluster, which stop without an acknowledgement."""


class SparkEngine:
    """Runs tasks on the Spark that `request` describes. After a failed job, the next one starts a new session."""

    name = "spark"
    reason = ""
    tasks_per_process = 1

    def __init__(self, request: SparkRequest, parallelism: int | None = None) -> None:
        self._request = request
        self._most_partitions = min(PIECES.max_spark_partitions, parallelism or PIECES.max_spark_partitions)
        self._running: RunningSpark | None = None
        self._master = request.master

    @property
    def retries_tasks(self) -> bool:
        """Whether a task may run twice and leave files of its first attempt; on this machine only with `local[N,FAILURES]`."""
        return self._is_on_cluster or "," in self._master

    @property
    def _is_on_cluster(self) -> bool:
        """Whether tasks run on a cluster. An existing session of this process may, whatever was requested."""
        return not (self._request.is_local and is_local(self._master))

    @property
    def shares_disk(self) -> bool:
        active = SparkContext._active_spark_context  # an existing context is used, whatever was requested
        return not self._is_on_cluster and (active is None or is_local(str(active.master)))

    def prepare(self, work: Work, progress: Progress) -> None:
        if not work.files or self._running is not None:
            return
        with phase(progress, "Starting Spark", None):
            self._spark()

    def run_tasks(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        on_done: Callable[[R], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[R]:
        if not tasks:
            return []
        context = self._spark().context
        reports: Accumulator[list[Outcome[R]]] = context.accumulator([], Reports())
        shares = [[(number, tasks[number]) for number in share] for share in shared_tasks(len(tasks), sizes)]
        numbered = context.parallelize(shares, min(len(shares), self._most_partitions))
        job = SparkJob(context, "tasks", lambda: numbered.foreachPartition(_partition_task(function, reports)))
        seen = _Outcomes[R](reports, on_done)
        try:
            job.wait(seen.poll)
        except PaimonError as error:
            self._abandon()
            raise TasksFailed(seen.results(), error) from error
        except BaseException:
            self._abandon()
            raise
        error_of_task = seen.first_error()
        if error_of_task is not None:
            raise TasksFailed(seen.results(), error_of_task)
        return seen.results()

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        running = self._spark()
        if not plan.shuffles:
            return write_where_read(self, plan, running.context.defaultParallelism, tallies, progress)
        shuffle = shuffle_of(plan, running.context.defaultParallelism)
        if not self._is_on_cluster:
            return self._write_through_files(running, shuffle, tallies, progress)
        steps: Steps = running.context.accumulator([], Reports())
        chunks = chunks_of_splits(running.session, shuffle, steps)
        job = SparkJob(running.context, "write", lambda: write_on_spark(chunks, shuffle, steps))
        shown = _WriteSteps(steps, progress, len(plan.splits), shuffle.writer_tasks)
        try:
            written, found = job.wait(shown.poll)
            tallies.update(found)
            return written
        except BaseException:
            self._abandon()
            raise
        finally:
            progress.finish()

    def _write_through_files(self, running: RunningSpark, shuffle: Shuffle, tallies: Tallies, progress: Progress) -> Written:
        with exchange_directory(running.context) as directory:
            return check_bucket_owners(write_through_files(self, shuffle, str(directory), tallies, progress))

    def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def _spark(self) -> RunningSpark:
        if self._running is None:
            self._running = start_spark(self._request)
            self._master = str(self._running.context.master)
        return self._running

    def _abandon(self) -> None:
        """Stop the session after a failed job, which ends the Python processes of its tasks."""
        self.stop()
        if self._is_on_cluster:
            time.sleep(EXECUTOR_END_SECONDS)


class _Outcomes(Generic[R]):
    """Collects the outcomes of tasks as they end."""

    def __init__(self, reports: Accumulator[list[Outcome[R]]], on_done: Callable[[R], None] | None) -> None:
        self._reports = reports
        self._on_done = on_done
        self._seen = 0
        self._finished: dict[int, R] = {}
        self._errors: dict[int, PaimonError] = {}

    def poll(self) -> None:
        fresh = self._reports.value[self._seen :]
        self._seen += len(fresh)
        for number, outcome in fresh:
            if isinstance(outcome, PaimonError):
                self._errors[number] = outcome
                continue
            self._finished[number] = outcome
            if self._on_done is not None:
                self._on_done(outcome)

    def results(self) -> list[R]:
        return [self._finished[number] for number in sorted(self._finished)]

    def first_error(self) -> PaimonError | None:
        return self._errors[min(self._errors)] if self._errors else None


class _WriteSteps:
    """Shows the two phases of a write: splits read, and writer tasks done."""

    def __init__(self, steps: Steps, progress: Progress, splits: int, writers: int) -> None:
        self._steps = steps
        self._progress = progress
        self._totals = (splits, writers)
        self._seen = 0
        self._reading = True
        progress.start("Reading and routing", splits)

    def poll(self) -> None:
        steps = self._steps.value
        for step in steps[self._seen :]:
            if self._reading and step == WRITTEN:
                self._reading = False
                self._progress.start("Sorting and writing", self._totals[1])
            self._progress.advance(1)
        self._seen = len(steps)


def _partition_task(
    function: Callable[[T], R], reports: Accumulator[list[Outcome[R]]]
) -> Callable[[Iterable[list[tuple[int, T]]]], None]:
    """Report a `PaimonError` as the outcome of its task, so that Spark does not retry it; Spark handles other exceptions."""

    def run(shares: Iterable[list[tuple[int, T]]]) -> None:
        freeze_modules()
        for number, task in chain.from_iterable(shares):
            reports.add([(number, outcome_of(function, task))])

    return run
