"""`--engine auto`: little work in this process, much on Spark, depending on the threshold."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from paimon_cli.api.runtime import Runtime
from paimon_cli.cli.parameters import EngineName
from paimon_cli.errors import UsageError
from paimon_cli.installation import install_command
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress, Progress, Work
from paimon_cli.jobs.engine_choice import ENGINES, AutoEngine, EngineRequest, Threshold, open_engine


class StandIn(LocalEngine):
    """Stands in for Spark, without a JVM, and records its calls."""

    name = "spark"

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[Work] = []
        self.stopped = False

    def prepare(self, work: Work, progress: Progress) -> None:
        self.prepared.append(work)

    def stop(self) -> None:
        self.stopped = True


def auto(size: int, files: int) -> tuple[AutoEngine, list[StandIn]]:
    started: list[StandIn] = []

    def start() -> Engine:
        started.append(StandIn())
        return started[-1]

    return AutoEngine(Threshold(size, files), LocalEngine(3), start), started


@pytest.mark.parametrize(
    ("work", "name", "reason"),
    [
        (Work(1023, 2), "local", "auto: 1023 B < 1.0 kB"),
        (Work(1024, 1), "spark", "auto: 1.0 kB >= 1.0 kB"),
        (Work(10, 4), "local", "auto: 10 B < 1.0 kB"),
        (Work(10, 5), "spark", "auto: 5 files >= 5"),
        (Work(), "local", "auto: 0 B < 1.0 kB"),
        (Work(5000, 1, is_in_memory=True), "local", "auto: the rows are in this process"),
    ],
)
def test_the_threshold_decides_and_the_reason_explains_it(work: Work, name: str, reason: str) -> None:
    engine, started = auto(1024, 5)
    engine.prepare(work, NoProgress())
    assert (engine.name, engine.reason) == (name, reason)
    assert [spark.prepared for spark in started] == ([[work]] if name == "spark" else [])
    assert engine.tasks_per_process == (1 if name == "spark" else 3)


def test_a_spark_that_runs_already_takes_little_work_too_and_is_stopped_once() -> None:
    engine, started = auto(1000, 5)
    engine.prepare(Work(5000, 1), NoProgress())
    engine.prepare(Work(1, 1), NoProgress())
    assert (engine.name, engine.reason) == ("spark", "auto: Spark is running already")
    assert len(started) == 1
    engine.stop()
    assert started[0].stopped


def test_without_preparation_tasks_run_in_this_process() -> None:
    engine, started = auto(0, 0)
    assert engine.run_tasks(abs, [-1, 2]) == [1, 2]
    assert not started


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512 mb", Threshold(512 << 20, 1000)), ("1gb,20", Threshold(1 << 30, 20)), ("0 b, 7", Threshold(0, 7))],
)
def test_thresholds_are_a_size_and_perhaps_a_number_of_files(text: str, expected: Threshold) -> None:
    assert Threshold.parse(text) == expected


@pytest.mark.parametrize("text", ["much", "1 gb,", "1 gb,-1", "1 gb,²", ",5"])
def test_other_thresholds_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="spark_threshold"):
        Threshold.parse(text, "--spark-threshold")


def test_local_refuses_settings_of_spark() -> None:
    for more in ({"master": "local[2]"}, {"spark_conf": {"spark.x": "1"}}):
        settings: dict[str, Any] = more
        with pytest.raises(UsageError, match="engine='local' takes no master"):
            open_engine(EngineRequest("local", **settings))


def test_an_unknown_engine_is_refused_with_the_list_when_it_is_named() -> None:
    for choose in (lambda: Runtime(engine="flink"), lambda: open_engine(EngineRequest("flink"))):
        with pytest.raises(UsageError, match="unknown engine 'flink'") as refused:
            choose()
        assert refused.value.why == "choose one of auto, spark, local"
    assert [Runtime(engine=name).engine for name in ENGINES] == list(typing.get_args(EngineName)) == list(ENGINES)


def test_without_pyspark_bulk_work_stays_local_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.jobs.engine_choice._has_spark", lambda: False)
    engine = open_engine(EngineRequest(threshold=Threshold(10, 10)))
    engine.prepare(Work(11, 1), NoProgress())
    assert (engine.name, engine.reason) == (
        "local",
        f"auto: 11 B >= 10 B, but Spark is not installed: {install_command('spark')}",
    )
    for asked in (EngineRequest("spark"), EngineRequest(master="yarn"), EngineRequest(master="sc://localhost:15002")):
        with pytest.raises(UsageError, match="Spark is not installed") as refused:
            open_engine(asked)
        assert install_command("spark") in refused.value.hint
