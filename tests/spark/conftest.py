"""A Spark session as its users have one: with Spark's own defaults, for each module, in the Spark that all modules share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

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
