"""Files copied as Spark tasks, which may run twice: the same copy that this process makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.restore_job import restore_table
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.requests.backup import RestoreOptions
from tests.jobs.backups import backup, check_same, opened
from tests.jobs.test_backup_job import fill, rich_table
from tests.pieces import injected

T = TypeVar("T")
R = TypeVar("R")


class Twice(LocalEngine):
    """Runs each task twice, as a cluster may that has lost an executor."""

    retries_tasks = True

    def run_tasks(
        self,
        function: Callable[[T], R],
        tasks: Sequence[T],
        on_done: Callable[[R], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[R]:
        for task in tasks:
            function(task)
        return super().run_tasks(function, tasks, on_done, sizes)


def test_on_spark(spark_engine: SparkEngine, tmp_path: Path) -> None:
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    summary = backup(table, copy, engine=spark_engine, bandwidth="100 mb")
    assert summary.engine == "spark" and summary.files
    check_same(table, opened(copy))
    fill(table, 1, first=30)
    backup(table, copy, engine=spark_engine)
    check_same(table, opened(copy))


def test_tasks_that_run_twice(tmp_path: Path) -> None:
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    with injected(3):
        backup(table, copy, engine=Twice())
        restore_table(opened(copy), TableLocation(str(tmp_path / "n"), "n"), RestoreOptions(history=True), Twice(), NoProgress())
        restore_table(opened(copy), TableLocation(table.url, "t"), RestoreOptions(), Twice(), NoProgress())
    check_same(opened(copy), opened(tmp_path / "n"))
