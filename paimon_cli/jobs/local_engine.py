"""The engine without a JVM: the same tasks, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from paimon_cli.errors import PaimonError
from paimon_cli.jobs.engine import TasksFailed, Work
from paimon_cli.jobs.progress import Progress
from paimon_cli.write.table_writer import Written, write_rows
from paimon_cli.write.write_plan import Tallies, WritePlan

Task = TypeVar("Task")
Result = TypeVar("Result")


class LocalEngine:
    """Runs tasks one after the other, or `parallelism` at a time (Arrow works outside of Python's lock)."""

    name = "local"
    reason = ""
    retries_tasks = False

    def __init__(self, parallelism: int = 1) -> None:
        self._parallelism = parallelism

    @property
    def tasks_per_process(self) -> int:
        return self._parallelism

    def prepare(self, work: Work, progress: Progress) -> None:
        """This process is ready."""

    def run_tasks(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], on_done: Callable[[Result], None] | None = None
    ) -> list[Result]:
        if self._parallelism > 1 and len(tasks) > 1:
            return _run_in_threads(self._parallelism, function, tasks, on_done)
        results: list[Result] = []
        for task in tasks:
            try:
                result = function(task)
            except PaimonError as error:
                raise TasksFailed(results, error) from error
            results.append(result)
            if on_done is not None:
                on_done(result)
        return results

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        progress.start("Writing rows", None)
        try:
            return write_rows(plan, tallies, progress.advance, self._parallelism)
        finally:
            progress.finish()

    def stop(self) -> None:
        """Nothing is held."""


def _run_in_threads(
    threads: int, function: Callable[[Task], Result], tasks: Sequence[Task], on_done: Callable[[Result], None] | None
) -> list[Result]:
    """Results in task order. When this raises (a failure, Ctrl-C), waiting tasks are dropped and the others have ended."""
    pool = ThreadPoolExecutor(threads)
    futures = [pool.submit(function, task) for task in tasks]
    try:
        for future in as_completed(futures):
            result = future.result()
            if on_done is not None:
                on_done(result)
    except PaimonError as error:
        pool.shutdown(wait=True, cancel_futures=True)
        finished = [f.result() for f in futures if f.done() and not f.cancelled() and f.exception() is None]
        raise TasksFailed(finished, error) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [future.result() for future in futures]
