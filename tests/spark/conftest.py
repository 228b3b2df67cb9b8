"""A Spark session as its users have one: with Spark's own defaults, in a JVM that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest

USERS_CONFS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.shuffle.partitions": "3",
}


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    engine = SparkEngine(SparkRequest("local[2]"))
    spark = engine._spark().session.newSession()
    for key, value in USERS_CONFS.items():
        spark.conf.set(key, value)
    yield spark
    engine.stop()
