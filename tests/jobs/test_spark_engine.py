"""Tasks on Spark: results, errors, interruption. Task functions are nested so that executors get them by value."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import TaskContext

from paimon_cli.errors import DamagedFile, PaimonError, UsageError
from paimon_cli.jobs.engine import NoProgress, TasksFailed
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest
from paimon_cli.jobs.spark.session_engine import SessionEngine
from paimon_cli.pieces import PIECES
from paimon_cli.write.write_plan import WritePlan
from tests.nightly import first


def test_results_come_in_task_order_and_are_reported_as_they_come(spark_engine: SparkEngine) -> None:
    finished: list[int] = []
    assert spark_engine.run_tasks(abs, [-3, 1, -2], finished.append) == [3, 1, 2]
    assert sorted(finished) == [1, 2, 3]
    assert spark_engine.run_tasks(abs, []) == []


def test_a_session_of_a_cluster_that_was_there_already_retries_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So leftovers of their first attempts are deleted, although this engine was not given the name of the cluster."""
    for master, retries in (("spark://host:7077", True), ("yarn", True), ("local[2,3]", True), ("local[2]", False)):
        running = SimpleNamespace(context=SimpleNamespace(master=master))
        monkeypatch.setattr("paimon_cli.jobs.spark.engine.start_spark", lambda request, running=running: running)
        engine = SparkEngine(SparkRequest("local[*]"))
        engine._spark()
        assert engine.retries_tasks is retries, master


def test_rows_take_the_shuffle_of_a_cluster_that_was_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers may be on other machines, which do not have the files of this one."""

    def shuffled(*of: object) -> None:
        raise KeyError("shuffled")

    context = SimpleNamespace(master="spark://host:7077", defaultParallelism=2, accumulator=lambda *of: None)
    running = SimpleNamespace(context=context, session=None, stop=lambda: None)
    monkeypatch.setattr("paimon_cli.jobs.spark.engine.start_spark", lambda request: running)
    monkeypatch.setattr("paimon_cli.jobs.spark.engine.shuffle_of", lambda plan, parallelism: None)
    monkeypatch.setattr("paimon_cli.jobs.spark.engine.chunks_of_splits", shuffled)
    with pytest.raises(KeyError, match="shuffled"):
        SparkEngine(SparkRequest("local[*]")).write_rows(cast(WritePlan, SimpleNamespace(shuffles=True)), {}, NoProgress())


def test_an_engine_without_work_starts_no_spark() -> None:
    engine = SparkEngine(SparkRequest("spark://nowhere.invalid:1"))
    assert engine.run_tasks(abs, []) == []
    engine.stop()
    engine.stop()


@pytest.mark.parametrize(("master", "retries"), [("local[2]", False), ("local[2,3]", True), ("yarn", True)])
def test_where_tasks_are_tried_again(master: str, retries: bool) -> None:
    assert SparkEngine(SparkRequest(master)).retries_tasks is retries


def test_a_tasks_own_error_comes_out_whole_and_the_others_finish(spark_engine: SparkEngine) -> None:
    def task(number: int) -> int:
        if number == 2:
            raise DamagedFile("what", "why", "hint", file="f.parquet", row=7)
        return number * 10

    with pytest.raises(TasksFailed) as failed:
        spark_engine.run_tasks(task, [1, 2, 3])
    error = failed.value.error
    assert type(error) is DamagedFile
    assert (error.what, error.why, error.hint, error.details) == ("what", "why", "hint", {"file": "f.parquet", "row": 7})
    assert failed.value.finished == [10, 30]


def test_any_other_exception_is_one_line_and_the_engine_continues(spark_engine: SparkEngine) -> None:
    with pytest.raises(TasksFailed) as failed:
        spark_engine.run_tasks(lambda number: 1 // number, [0])
    error = failed.value.error
    assert type(error) is PaimonError
    assert (error.what, error.why) == ("a Spark task failed", "ZeroDivisionError: integer division or modulo by zero")
    assert "ZeroDivisionError" in str(error.__cause__), "--trace shows the chain"
    assert spark_engine.run_tasks(abs, [-1]) == [1]


def test_a_module_that_executors_lack_is_named(spark_engine: SparkEngine) -> None:
    def task(number: int) -> int:
        import no_such_dependency  # type: ignore[import-not-found]

        return number + len(no_such_dependency.__name__)

    with pytest.raises(TasksFailed) as failed:
        spark_engine.run_tasks(task, [1])
    assert type(failed.value.error) is UsageError
    assert "'no_such_dependency'" in failed.value.error.what


def test_very_many_tasks_share_spark_tasks(spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "max_spark_partitions", 3)
    assert spark_engine.run_tasks(abs, [-n for n in range(100)]) == list(range(100))


@pytest.mark.parametrize("in_session", first(1, [False, True]))
def test_small_tasks_share_spark_tasks(spark_engine: SparkEngine, in_session: bool) -> None:
    """Each with its own result or error. Great tasks have a Spark task of their own."""

    def task(number: int) -> tuple[int, int]:
        context = TaskContext.get()
        assert context is not None
        if number == 77:
            raise DamagedFile("number 77")
        return number, context.partitionId()

    engine = SessionEngine(spark_engine._spark().session) if in_session else spark_engine
    sizes, finished = [1 << 40 if number == 50 else 1 for number in range(300)], list[tuple[int, int]]()
    with pytest.raises(TasksFailed, match="number 77") as failed:
        engine.run_tasks(task, range(300), finished.append, sizes)
    assert sorted(finished) == failed.value.finished
    assert [number for number, _ in sorted(finished)] == [*range(77), *range(78, 300)]
    tasks = dict(finished)
    by_task = Counter(tasks.values())
    assert by_task[tasks[50]] == 1 and max(by_task.values()) == 8 and len(by_task) == 40


def test_ctrl_c_leaves_no_task_running(spark_engine: SparkEngine, tmp_path: Path) -> None:
    beats = tmp_path / "beats"

    def task(seconds: int) -> int:
        for _ in range(seconds * 100):
            with beats.open("a") as file:
                file.write(".")
            time.sleep(0.01)
        return seconds

    def interrupt(result: int) -> None:
        assert result == 0
        while not beats.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        spark_engine.run_tasks(task, [0, 60], interrupt)
    while True:  # the worker may be about to end; a task that goes on beats 6,000 times
        size = beats.stat().st_size
        time.sleep(2)
        if size == beats.stat().st_size:
            break
    assert 0 < size < 6000
