"""A Spark session as its users have one: with Spark's own defaults, for each module, in the Spark that all modules share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from paimon_cli.jobs.spark import session_engine
from paimon_cli.spark import source_writing
from tests.local_spark import local_engine

USERS_CONFS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.shuffle.partitions": "3",
}


@pytest.fixture(scope="module")
def session() -> SparkSession:
    spark = local_engine()._spark().session.newSession()
    for key, value in USERS_CONFS.items():
        spark.conf.set(key, value)
    return spark


@pytest.fixture(autouse=True)
def _no_task_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed job waits five seconds for tasks that may still write, which the tests of `BeatingRows` alone have."""
    for module in (session_engine, source_writing):
        monkeypatch.setattr(module, "TASK_END_SECONDS", 0)
