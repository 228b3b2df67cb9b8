"""What a job asks of the place where its work runs: Spark or this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from paimon_cli.errors import PaimonError
from paimon_cli.jobs.progress import Progress

if TYPE_CHECKING:
    from paimon_cli.write.table_writer import WrittenBucket
    from paimon_cli.write.write_plan import WritePlan

T = TypeVar("T")
R = TypeVar("R")


class TasksFailed(Exception):
    """At least one task failed; the others ran to their end or are dead, so their files can be committed or deleted.

    `finished` holds the results of the tasks that succeeded, in task order; `error` is what the user should read.
    """

    def __init__(self, finished: list[Any], error: PaimonError) -> None:
        super().__init__(str(error))
        self.finished = finished
        self.error = error


class Engine(Protocol):
    """Runs the same tasks on Spark or in this process; whoever makes one calls `stop`."""

    @property
    def name(self) -> str: ...

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

    def write_rows(self, plan: WritePlan, progress: Progress) -> list[WrittenBucket]:
        """Read, route, sort and write all rows of the plan, compact inline if it says so.

        When this raises, no task of the job is running any more.

        Files of tasks that had finished may be left: the caller deletes what bears the plan's `file_stamp`.
        """
        ...

    def stop(self) -> None:
        """Release everything; may be called twice."""
        ...
