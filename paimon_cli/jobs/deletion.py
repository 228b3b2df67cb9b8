"""Deleting many files: side by side in this process, or as tasks of an engine for very many."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Work, phase
from paimon_cli.jobs.engine_choice import LOCAL
from paimon_cli.jobs.progress import Progress
from paimon_cli.maintain.parallel_calls import DeleteFiles, delete_files
from paimon_cli.storage.storage import Storage

FILES_OF_A_TASK = 5000
DELETIONS_PER_READ = 100
"""Deleting a hundred files takes about as long as reading one."""


def deletion(context: TableContext, engine: Engine | None, progress: Progress) -> DeleteFiles:
    """Delete in threads of this process, or as tasks where `engine` is Spark or chooses it. None: in this process.

    A task that runs twice finds its files gone, which is no error.
    """

    def delete(paths: Iterable[str]) -> int:
        doomed = list(paths)
        if engine is not None:
            engine.prepare(Work(files=len(doomed) // DELETIONS_PER_READ), progress)
        with phase(progress, "Deleting files", len(doomed)):
            if engine is None or engine.name == LOCAL:
                return delete_files(context, progress.advance)(doomed)
            portions = [tuple(doomed[start : start + FILES_OF_A_TASK]) for start in range(0, len(doomed), FILES_OF_A_TASK)]
            return sum(engine.run_tasks(functools.partial(_delete_portion, context.storage), portions, progress.advance))

    return delete


def _delete_portion(storage: Storage, paths: Sequence[str]) -> int:
    for path in paths:
        storage.delete(path)
    return len(paths)
