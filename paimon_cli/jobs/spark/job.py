"""Runs Spark jobs that can be interrupted, on a classic SparkContext.

A failed or cancelled job is over only when its tasks have ended, up to four seconds later: until then they may write files.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import AccumulatorParam, SparkContext
from pyspark.errors import PySparkException

from paimon_cli.jobs.spark.failures import explained
from paimon_cli.jobs.spark.tasks import JobKey

T = TypeVar("T")

POLL_SECONDS = 0.1
END_SECONDS = 30.0
IDLE_SECONDS = 30.0

log = logging.getLogger(__name__)


class Reports(AccumulatorParam[list[Any]]):
    """Collects values that tasks report to the driver; Spark adds those of each successful task once, as soon as it ends."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:
        value1 += value2
        return value1


class SparkJob(threading.Thread, Generic[T]):
    """Runs `action`, which starts one Spark job, in a separate job group and thread."""

    def __init__(self, context: SparkContext, description: str, action: Callable[[], T]) -> None:
        super().__init__(name=f"spark-job-{description}", daemon=True)
        self._context = context
        self._key = JobKey()
        self._description = description
        self._action = action
        self._results: list[T] = []
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            # Cancelling does not interrupt tasks: an interrupted JVM task ends at once and leaves its Python process running,
            # whereas a task that is only marked as cancelled kills its Python process first.
            self._context.setJobGroup(self._key.tag, self._description, interruptOnCancel=False)
            _give(self._context, self._key)
            self._results.append(self._action())
        except (Py4JError, PySparkException, OSError) as failure:
            self._failure = failure

    def wait(self, on_poll: Callable[[], None]) -> T:
        """Wait for the result. `on_poll` is called repeatedly, and once more when the job is over. Raises a `PaimonError`.

        This thread does not call the JVM while the job runs: Ctrl-C in the middle of a call would corrupt the connection.
        """
        self.start()
        idle_warning = threading.Timer(IDLE_SECONDS, self._warn_without_executors)
        idle_warning.daemon = True
        idle_warning.start()
        try:
            while self.is_alive():
                self.join(POLL_SECONDS)
                on_poll()
        except BaseException:
            end_tasks(self._context, self._key.tag, may_start=self.is_alive)
            on_poll()
            raise
        finally:
            idle_warning.cancel()
        if self._failure is not None:
            end_tasks(self._context, self._key.tag, may_start=self.is_alive)
            on_poll()
            raise explained(self._failure, self._key) from self._failure
        on_poll()
        return self._results[0]

    def _warn_without_executors(self) -> None:
        """Warn if the job has no executors: a cluster without free resources lets a job wait forever."""
        try:
            executors = self._context._jsc.sc().getExecutorMemoryStatus().size()
        except (Py4JError, OSError):
            return
        master = str(self._context.master)
        if executors <= 1 and not master.startswith("local"):
            log.warning("still waiting: %s has given no executor yet (is there a free core, and enough free memory?)", master)


@contextmanager
def job_of_this_thread(context: SparkContext) -> Iterator[None]:
    """Wrap one Spark job that this thread runs, in its job group. Raises failures of Spark as `PaimonError`.

    When the job fails or is interrupted, its tasks have ended before the error is raised.
    """
    key = JobKey()
    _give(context, key)
    try:
        yield
    except BaseException as failure:
        # Another thread has its own connection to the JVM: an interrupt may have left an unread answer in that of this thread.
        ending = threading.Thread(target=end_tasks, args=(context, key.tag), daemon=True)
        ending.start()
        ending.join()
        if isinstance(failure, Py4JError | PySparkException | ConnectionRefusedError):  # the last: the JVM has exited
            raise explained(failure, key) from failure
        raise
    finally:
        with suppress(Py4JError, OSError):
            context.removeJobTag(key.tag)
            context.setLocalProperty(key.property_name, None)  # type: ignore[arg-type]  # removes it


def end_tasks(context: SparkContext, tag: str, may_start: Callable[[], bool] = lambda: False) -> None:
    """Cancel the jobs with this tag and wait until none of their tasks is running, the JVM is gone, or half a minute has passed.

    `may_start`: whether such a job may still start.
    """
    deadline = time.monotonic() + END_SECONDS
    try:
        while (may_start() or _has_active_tasks(context, tag)) and time.monotonic() < deadline:
            context.cancelJobsWithTag(tag)  # again and again: the job may start only now
            time.sleep(POLL_SECONDS)
    except (Py4JError, OSError) as failure:
        log.debug("the JVM does not answer any more: %s", failure)


def _has_active_tasks(context: SparkContext, tag: str) -> bool:
    """Whether tasks of jobs with this tag are running. Spark's counts may lag until the jobs have ended."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    is_running = any(job is not None and job.status == "RUNNING" for job in jobs)
    return is_running or any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


def _give(context: SparkContext, key: JobKey) -> None:
    """Tag the jobs that this thread starts, and let their tasks sign errors."""
    context.addJobTag(key.tag)
    context.setLocalProperty(key.property_name, key.secret)
