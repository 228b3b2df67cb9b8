"""A Spark session as its users have one, for each module, in the Spark that all modules share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from paimon_cli.jobs.spark import session_engine
from paimon_cli.spark import source_writing
from tests.local_spark import local_engine, users_session


@pytest.fixture(scope="module")
def session() -> SparkSession:
    return users_session(local_engine(), {"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": "3"})


@pytest.fixture(autouse=True)
def _no_task_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed job waits five seconds for tasks that may still write, which the tests of `BeatingRows` alone have."""
    for module in (session_engine, source_writing):
        monkeypatch.setattr(module, "TASK_END_SECONDS", 0)
