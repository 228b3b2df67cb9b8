"""A Spark Connect server of the installed PySpark on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paimon_cli.jobs.spark.java_runtime import find_java
from tests.jobs.spark_cluster import SPARK_HOME, START_SECONDS, quick_jvm
from tests.ports import free_port

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(folder: Path, master: str = "local[2]") -> Iterator[str]:
    """Its address. The server and what it has started end with the block."""
    port = free_port()
    confs = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    options = [word for key, value in confs.items() for word in ("--conf", f"{key}={value}")]
    options += ["--driver-java-options", quick_jvm()]
    java = {"JAVA_HOME": str(find_java(os.environ).home), "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-submit"), "--class", SERVER, "--master", master, *options, "spark-internal"],
            env={**os.environ, **java, "PYSPARK_PYTHON": sys.executable, "TEST_LOADED": "pandas pyarrow.parquet"},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_for(port)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError("the Spark Connect server did not start")
