"""The Spark that tests share: each start takes seconds of CPU, most of it in imports of its first worker."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest

PASSWORD = "-".join(("the", "SHARED", "PASSWORD"))  # no command line that a test reads has the whole of it
SEEN = "-".join(("a", "SHARED", "CANARY"))
GIVEN_CONFS = {
    "spark.hadoop.fs.s3a.secret.key": PASSWORD,
    "spark.hadoop.fs.s3a.proxy": f"http://u:{PASSWORD}@h:1",
    "spark.hadoop.seen": SEEN,
}
"""What may be seen on a command line, and what may not (`jobs/test_spark_session`)."""

USERS_CONFS = {"spark.sql.adaptive.enabled": "true", "spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}

_engines: list[SparkEngine] = []


def local_engine() -> SparkEngine:
    """The engine of this machine, whose Spark starts with its first job and lasts for all modules of tests of this process."""
    return shared_engine(SparkRequest("local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC", **GIVEN_CONFS}))


def shared_engine(request: SparkRequest) -> SparkEngine:
    """The engine of a request, which lasts until a test asks for another one."""
    if not _engines or _engines[0]._request != request:
        end_shared_spark()
        _engines.append(SparkEngine(request))
    return _engines[0]


def users_session(engine: SparkEngine, confs: Mapping[str, str]) -> SparkSession:
    """A session with Spark's own defaults in the Spark of an engine, which has others."""
    session = engine._spark().session.newSession()
    for key, value in {**USERS_CONFS, **confs}.items():
        session.conf.set(key, value)
    return session


def end_shared_spark() -> None:
    """A process has one Spark at a time: end this one before a test starts or connects to another."""
    while _engines:
        _engines.pop().stop()
