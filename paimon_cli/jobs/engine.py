"""What a job asks of the place where its work runs: Spark or this process."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.progress import Progress
from paimon_cli.storage.trace import Step

if TYPE_CHECKING:
    from paimon_cli.metadata.data_file import DataFileMeta
    from paimon_cli.write.table_writer import Written
    from paimon_cli.write.write_plan import Tallies, WritePlan


T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Work:
    """How much a job reads, as far as its plan tells: bytes, and the number of files that hold them.

    `is_in_memory`: this process holds the rows, and would have to send them to any other.
    """

    size: int = 0
    files: int = 0
    is_in_memory: bool = False

    @classmethod
    def of(cls, files: Iterable[DataFileMeta]) -> Work:
        sizes = [file.file_size for file in files]
        return cls(sum(sizes), len(sizes))


class TasksFailed(Exception):
    """At least one task failed; the others ran to their end or are dead, so their files can be committed or deleted.

    `finished` holds the results of the tasks that succeeded, in task order; `error` is what the user should read.
    """

    def __init__(self, finished: list[Any], error: PaimonError) -> None:
        super().__init__(str(error))
        self.finished = finished
        self.error = error


class Engine(Protocol):
    """Runs the same tasks on Spark or in this process. Its owner calls `stop`."""

    @property
    def name(self) -> str:
        """`spark` or `local`: where the last job ran, or the next one will."""
        ...

    @property
    def reason(self) -> str:
        """Why that one, when the user left the choice to us; otherwise empty."""
        ...

    @property
    def tasks_per_process(self) -> int:
        """How many tasks share the memory of one process."""
        ...

    def prepare(self, work: Work, progress: Progress) -> None:
        """Get ready for a job of that size, before its first task; a job without files needs no preparation.

        This is where `auto` makes its choice and where Spark starts, which `progress` shows as a phase of its own.
        Raises `StorageUnavailable` or `UsageError` when Spark does not start.
        """
        ...

    @property
    def retries_tasks(self) -> bool:
        """Whether a task may run twice, so that files of its first attempt may be left although the job succeeded."""
        ...

    def run_tasks(self, function: Callable[[T], R], tasks: Sequence[T], on_done: Callable[[R], None] | None = None) -> list[R]:
        """Results in task order. `function`, tasks and results must be picklable; a task may run more than once.

        `on_done` gets each result in this thread as soon as it is known, also when this raises in the end (Ctrl-C too).
        When a task fails, others may still run to their end; then `TasksFailed` is raised. When this raises, whatever it
        is, no task is running any more.
        """
        ...

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        """Read, route, sort and write all rows of the plan, compact if it says so.

        `tallies` gets what was found in each split. When this raises, no task of the job is running any more.

        Files of tasks that had finished may be left: the caller deletes what bears the plan's `file_stamp`.
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
    """A task's result, and the steps that the driver has not seen."""

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
