"""Spark for tests: one local engine."""

from __future__ import annotations

import pytest

from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest
from tests.local_spark import local_engine


@pytest.fixture(scope="module")
def spark_engine() -> SparkEngine:
    return local_engine()


class AsOnACluster(SparkRequest):
    """This machine treated as a cluster, whose tasks share no files."""

    @property
    def is_local(self) -> bool:
        return False


@pytest.fixture(scope="module")
def shuffling_engine(spark_engine: SparkEngine) -> SparkEngine:
    """An engine that writes as on a cluster, on the Spark of `spark_engine`."""
    spark_engine.run_tasks(abs, [1])
    return SparkEngine(AsOnACluster("local[2]"))


@pytest.fixture(params=["files", "shuffle"])
def any_spark_engine(request: pytest.FixtureRequest) -> SparkEngine:
    """Each way in which rows get from reader tasks to writer tasks."""
    engine: SparkEngine = request.getfixturevalue("spark_engine" if request.param == "files" else "shuffling_engine")
    return engine
