"""The engine without a JVM: the same tasks, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from paimon_cli.errors import PaimonError
from paimon_cli.jobs.engine import TasksFailed
from paimon_cli.jobs.progress import Progress
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.write.table_writer import write_rows
from paimon_cli.write.write_plan import WritePlan

Task = TypeVar("Task")
Result = TypeVar("Result")


class LocalEngine:
    """Runs tasks one after the other."""

    name = "local"
    retries_tasks = False

    def run_tasks(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], on_done: Callable[[Result], None] | None = None
    ) -> list[Result]:
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

    def write_rows(self, plan: WritePlan, progress: Progress) -> list[CommitMessage]:
        progress.start("Writing rows", None)
        try:
            return write_rows(plan, progress.advance)
        finally:
            progress.finish()

    def stop(self) -> None:
        """Nothing is held."""
