"""What a job needs of its surroundings: an engine that runs its tasks, and a display of its progress.

This module has both interfaces, and the engine that runs tasks in this process, without a JVM.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from paimon_cli.errors import PaimonError
from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import JobThreads

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.metadata.data_file import DataFileMeta
    from paimon_cli.storage.injected import Step
    from paimon_cli.write.table_writer import Written
    from paimon_cli.write.write_plan import Tallies, WritePlan

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Work:
    """The planned size of a job: bytes and files to read.

    `is_in_memory`: this process already holds the rows; running elsewhere would mean sending them.
    """

    size: int = 0
    files: int = 0
    is_in_memory: bool = False

    @classmethod
    def of(cls, files: Iterable[DataFileMeta]) -> Work:
        sizes = [file.file_size for file in files]
        return cls(sum(sizes), len(sizes))


class TasksFailed(Exception):
    """At least one task failed. No task is running any more, so files can be committed or deleted.

    `finished`: the results of the tasks that succeeded, in task order; `error`: the error to report.
    """

    def __init__(self, finished: list[Any], error: PaimonError) -> None:
        super().__init__(str(error))
        self.finished = finished
        self.error = error


class Progress(Protocol):
    """The phases of one job, one after the other. Called from one thread only."""

    def start(self, description: str, total: int | None) -> None:
        """Start a phase of `total` steps (None: unknown), ending the previous one."""
        ...

    def advance(self, n: int = 1) -> None: ...

    def finish(self) -> None: ...


class NoProgress:
    """Displays nothing."""

    def start(self, description: str, total: int | None) -> None: ...

    def advance(self, n: int = 1) -> None: ...

    def finish(self) -> None: ...


class WhyNotSpark(str):
    """Why a job that is large enough for Spark runs in this process: a reason that is printed without asking."""


@dataclass(frozen=True)
class Computing(Generic[T, R]):
    """A function whose tasks compute: in this process, many bytes of them run in several processes, few in one thread.

    `waits`: they also wait for a remote store, so that several at a time take less time, however small they are.
    """

    function: Callable[[T], R]
    waits: bool = False

    def __call__(self, task: T) -> R:
        return self.function(task)


class Engine(Protocol):
    """Runs tasks on Spark or in this process. Its owner calls `stop`."""

    @property
    def name(self) -> str:
        """`spark` or `local`: where the last job ran, or the next one will run."""
        ...

    @property
    def reason(self) -> str:
        """Why this engine was chosen automatically; empty if the user chose it."""
        ...

    @property
    def tasks_per_process(self) -> int:
        """How many tasks run at the same time in one process and share its memory."""
        ...

    def prepare(self, work: Work, progress: Progress) -> None:
        """Get ready for a job of this size, before its first task; does nothing for a job without files.

        This is where `auto` chooses the engine and where Spark starts, shown by `progress` as a separate phase. Raises
        `StorageUnavailable` or `UsageError` if Spark does not start.
        """
        ...

    @property
    def retries_tasks(self) -> bool:
        """Whether a task may run twice, so that files of its first attempt may remain after a successful job."""
        ...

    @property
    def shares_disk(self) -> bool:
        """Whether tasks run on this machine, wherever the engine is chosen, so that they can open its files."""
        ...

    def run_tasks(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        on_done: Callable[[R], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[R]:
        """Run the tasks; returns their results in task order. `function`, tasks and results must be picklable.

        `sizes`: the bytes that each task reads. With them, small tasks share a Spark task, which costs more than a small bucket,
        and large ones of a `Computing` function run in several processes of this machine.
        A task may run more than once. `on_done` is called in this thread with each result as soon as it is known, even
        if the call fails or is interrupted later. Raises `TasksFailed` if a task fails; other tasks may run to
        completion first. After any error no task is running.
        """
        ...

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        """Read, route, sort and write all rows of the plan, and compact if the plan says so.

        Fills `tallies` with the counts of each split. After an error no task is running, but files of finished tasks
        may remain: the caller deletes all files with the plan's `file_stamp`.
        """
        ...

    def stop(self) -> None:
        """Release everything; may be called twice."""
        ...


class LocalEngine:
    """Runs tasks in this process, `parallelism` at a time (Arrow and numpy release the GIL)."""

    name = "local"
    reason = ""
    retries_tasks = False
    shares_disk = True

    def __init__(self, parallelism: int = 1) -> None:
        self._parallelism = parallelism

    @property
    def tasks_per_process(self) -> int:
        return self._parallelism

    def prepare(self, work: Work, progress: Progress) -> None:
        """Nothing to prepare."""

    def run_tasks(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        on_done: Callable[[R], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[R]:
        if self._parallelism > 1 and len(tasks) > 1:
            if (count := self._processes(function, sizes)) > 1:
                from paimon_cli.jobs.task_processes import TaskProcesses

                with TaskProcesses(function, count) as processes:
                    return _run_in_threads(count, processes, tasks, on_done, processes.stop)
            if (threads := self._threads(function, sizes)) > 1:
                return _run_in_threads(threads, function, tasks, on_done)
        results: list[R] = []
        for task in tasks:
            try:
                result = function(task)
            except PaimonError as error:
                raise TasksFailed(results, error) from error
            results.append(result)
            if on_done is not None:
                on_done(result)
        return results

    def _threads(self, function: Callable[[T], R], sizes: Sequence[int] | None) -> int:
        """In how many threads to run tasks of these sizes. Small ones are mostly Python, which runs in one thread at a time, and
        each thread has buffers of its own, in ORC also a process that decodes.
        """
        if not isinstance(function, Computing) or function.waits or sizes is None:
            return self._parallelism
        return min(self._parallelism, max(1, sum(sizes) // PIECES.least_thread_bytes))

    def _processes(self, function: Callable[[T], R], sizes: Sequence[int] | None) -> int:
        """In how many processes to run tasks of these sizes; each takes half a second to start."""
        if not isinstance(function, Computing) or sizes is None or not sys.executable:
            return 1
        return min(self._parallelism, len(sizes), sum(sizes) // PIECES.least_process_bytes)

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        from paimon_cli.write.table_writer import write_rows  # loads Arrow, which commands on metadata do without

        progress.start("Writing rows", None)
        try:
            return write_rows(plan.with_assigners(1), tallies, progress.advance, self._parallelism)
        finally:
            progress.finish()

    def stop(self) -> None:
        """Nothing to release."""


def _run_in_threads(
    threads: int,
    function: Callable[[T], R],
    tasks: Sequence[T],
    on_done: Callable[[R], None] | None,
    stop: Callable[[], None] = lambda: None,
) -> list[R]:
    """The results in task order. After an error or Ctrl-C, waiting tasks are dropped and running tasks have ended, by `stop` if
    it can end them.
    """
    pool = JobThreads(threads)
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
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [future.result() for future in futures]


@contextlib.contextmanager
def phase(progress: Progress, description: str, total: int | None) -> Iterator[Callable[[object], None]]:
    """Show one phase of a job. Yields an `on_done` callback that counts one step; `TasksFailed` is raised as its first error."""
    progress.start(description, total)
    try:
        yield lambda result: progress.advance()
    except TasksFailed as failed:
        raise failed.error from failed
    finally:
        progress.finish()


@dataclass(frozen=True)
class _Traced(Generic[R]):
    """The result of a task, and the trace steps to show on the driver."""

    result: R
    steps: tuple[Step, ...]


def run_traced(
    engine: Engine,
    context: TableContext,
    function: Callable[[TableContext, T], R],
    tasks: Sequence[T],
    on_done: Callable[[R], None] | None = None,
    sizes: Sequence[int] | None = None,
    *,
    computes: bool = False,
) -> list[R]:
    """`Engine.run_tasks` for a function of one table; with `--trace`, shows the steps of the tasks wherever they run.

    `computes`: it is a `Computing` function.
    """
    waits = computes and context.storage.is_remote
    if not context.trace.is_on:
        call: Callable[[T], R] = functools.partial(function, context)
        return engine.run_tasks(Computing(call, waits) if computes else call, tasks, on_done, sizes)

    def show(traced: _Traced[R]) -> None:
        context.trace.show(traced.steps)
        if on_done is not None:
            on_done(traced.result)

    traced_call: Callable[[T], _Traced[R]] = functools.partial(_traced, function, context)
    try:
        traced = engine.run_tasks(Computing(traced_call, waits) if computes else traced_call, tasks, show, sizes)
    except TasksFailed as failed:
        failed.finished = [outcome.result for outcome in failed.finished]
        raise
    return [outcome.result for outcome in traced]


def _traced(function: Callable[[TableContext, T], R], context: TableContext, task: T) -> _Traced[R]:
    return _Traced(function(context, task), context.trace.taken())
