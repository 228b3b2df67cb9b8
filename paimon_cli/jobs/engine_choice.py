"""The engine that the user chose; PySpark is imported only for the one that needs it."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_cli.errors import UsageError
from paimon_cli.jobs.engine import Engine
from paimon_cli.jobs.pandas_on_demand import let_pandas_in
from paimon_cli.storage.cores import usable_cores

SPARK, LOCAL = "spark", "local"


def open_engine(
    engine: str, master: str | None = None, spark_conf: Mapping[str, str] | None = None, parallelism: int | None = None
) -> Engine:
    """`spark` on `master` (None: local[*]) or `local`. Starts nothing yet; UsageError for Spark settings without Spark.

    `parallelism`: tasks at a time; None: as many as Spark or this process has cores for.
    """
    if engine == LOCAL:
        if master is not None or spark_conf:
            raise UsageError("--engine local takes no --master and no --spark-conf", "it runs in this process, without Spark")
        from paimon_cli.jobs.local_engine import LocalEngine

        return LocalEngine(parallelism or usable_cores())
    if engine != SPARK:
        raise UsageError(f"unknown engine '{engine}'", f"it is {SPARK} or {LOCAL}")
    let_pandas_in()
    from paimon_cli.jobs.spark_engine import SparkEngine
    from paimon_cli.jobs.spark_session import LOCAL_MASTER, SparkRequest

    return SparkEngine(SparkRequest(master or LOCAL_MASTER, dict(spark_conf or {})), parallelism)
