"""Spark for tests: one local engine per module, one real standalone cluster per module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paimon_cli.jobs.spark_engine import SparkEngine
from paimon_cli.jobs.spark_session import SparkRequest
from tests.jobs.spark_cluster import QUICK_JVM, SparkCluster


@pytest.fixture(scope="module")
def spark_engine() -> Iterator[SparkEngine]:
    engine = SparkEngine(SparkRequest("local[2]", {"spark.driver.extraJavaOptions": QUICK_JVM}))
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start(workers=2)
        yield cluster
    finally:
        cluster.stop()
