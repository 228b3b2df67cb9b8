"""The Spark on this machine that tests share: each start takes seconds of CPU, most of it in imports of its first worker."""

from __future__ import annotations

from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest

_engines: list[SparkEngine] = []


def local_engine() -> SparkEngine:
    """The engine, whose Spark starts with its first job and lasts for all modules of tests of this process."""
    if not _engines:
        _engines.append(SparkEngine(SparkRequest("local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})))
    return _engines[0]


def end_local_spark() -> None:
    """A process has one Spark at a time: end this one before a test starts or connects to another."""
    while _engines:
        _engines.pop().stop()
