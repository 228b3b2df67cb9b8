"""The interfaces between a job and what runs it: the engine, Spark or this process, and the display of its progress."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from paimon_cli.errors import PaimonError

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.metadata.data_file import DataFileMeta
    from paimon_cli.storage.trace import Step
    from paimon_cli.write.table_writer import Written
    from paimon_cli.write.write_plan import Tallies, WritePlan

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Work:
    """The size of a job as far as its plan knows: bytes to read, and the number of files that hold them.

    `is_in_memory`: this process holds the rows, and would have to send them to any other process.
    """

    size: int = 0
    files: int = 0
    is_in_memory: bool = False

    @classmethod
    def of(cls, files: Iterable[DataFileMeta]) -> Work:
        sizes = [file.file_size for file in files]
        return cls(sum(sizes), len(sizes))


class TasksFailed(Exception):
    """At least one task failed. The others have ended or are dead, so their files can be committed or deleted.

    `finished` holds the results of the tasks that succeeded, in task order; `error` is the error to report.
    """

    def __init__(self, finished: list[Any], error: PaimonError) -> None:
        super().__init__(str(error))
        self.finished = finished
        self.error = error


class Progress(Protocol):
    """One job's phases, one after the other. Called from one thread only."""

    def start(self, description: str, total: int | None) -> None:
        """A new phase of `total` steps (None: unknown); ends the one before."""
        ...

    def advance(self, n: int = 1) -> None: ...

    def finish(self) -> None: ...


class NoProgress:
    """Says nothing."""

    def start(self, description: str, total: int | None) -> None: ...

    def advance(self, n: int = 1) -> None: ...

    def finish(self) -> None: ...


class Engine(Protocol):
    """Runs the same tasks on Spark or in this process. Its owner calls `stop`."""

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
        """How many tasks share the memory of one process."""
        ...

    def prepare(self, work: Work, progress: Progress) -> None:
        """Get ready for a job of that size, before its first task; a job without files needs no preparation.

        This is where `auto` chooses and where Spark starts, which `progress` shows as a separate phase. Raises
        `StorageUnavailable` or `UsageError` if Spark does not start.
        """
        ...

    @property
    def retries_tasks(self) -> bool:
        """Whether a task may run twice, so that files of its first attempt may remain although the job succeeded."""
        ...

    def run_tasks(self, function: Callable[[T], R], tasks: Sequence[T], on_done: Callable[[R], None] | None = None) -> list[R]:
        """The results in task order. `function`, tasks and results must be picklable; a task may run more than once.

        `on_done` is called in this thread with each result as soon as it is known, even if this raises later (also for Ctrl-C).
        If a task fails, others may run to their end before `TasksFailed` is raised. After any error no task is running.
        """
        ...

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        """Read, route, sort and write all rows of the plan, and compact if it says so.

        `tallies` gets what was found in each split. After an error no task of the job is running; files of finished tasks may
        remain: the caller deletes the files that bear the plan's `file_stamp`.
        """
        ...

    def stop(self) -> None:
        """Release everything; may be called twice."""
        ...


@contextlib.contextmanager
def phase(progress: Progress, description: str, total: int | None) -> Iterator[Callable[[object], None]]:
    """One phase of a job. Yields what counts one step, as the `on_done` of tasks; tasks that failed raise their first error."""
    progress.start(description, total)
    try:
        yield lambda result: progress.advance()
    except TasksFailed as failed:
        raise failed.error from failed
    finally:
        progress.finish()


@dataclass(frozen=True)
class _Traced(Generic[R]):
    """The result of a task, and the steps that the driver has not seen."""

    result: R
    steps: tuple[Step, ...]


def run_traced(
    engine: Engine,
    context: TableContext,
    function: Callable[[TableContext, T], R],
    tasks: Sequence[T],
    on_done: Callable[[R], None] | None = None,
) -> list[R]:
    """`run_tasks` of a function on one table whose steps are shown with `--trace`, wherever the tasks run."""
    if not context.trace.is_on:
        return engine.run_tasks(functools.partial(function, context), tasks, on_done)

    def show(traced: _Traced[R]) -> None:
        context.trace.show(traced.steps)
        if on_done is not None:
            on_done(traced.result)

    try:
        traced = engine.run_tasks(functools.partial(_traced, function, context), tasks, show)
    except TasksFailed as failed:
        failed.finished = [task.result for task in failed.finished]
        raise
    return [task.result for task in traced]


def _traced(function: Callable[[TableContext, T], R], context: TableContext, task: T) -> _Traced[R]:
    return _Traced(function(context, task), context.trace.taken())
