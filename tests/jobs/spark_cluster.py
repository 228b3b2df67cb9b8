"""A real standalone Spark cluster on this machine, made of nothing but the installed PySpark."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import paimon_cli
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.java_runtime import find_java, user_cache
from paimon_cli.jobs.spark.session import SparkRequest, archive_options
from tests.local_spark import end_shared_spark, shared_engine
from tests.ports import free_port

START_SECONDS = 600
SPARK_HOME = Path(pyspark.__file__).parent
PACKAGE_HOME = Path(paimon_cli.__file__).parent.parent
STARTUP = Path(__file__).parents[1] / "startup"


def quick_jvm() -> str:
    """Tests are over before better compiled code pays. Spark's classes come from the archive that a local session has left."""
    archive = archive_options(find_java(os.environ), user_cache(os.environ), only_use=True)
    return " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive])


class SparkCluster:
    """A master and workers whose executors have one core each, as processes of this test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._jvm = quick_jvm()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    @property
    def confs(self) -> dict[str, str]:
        """What a driver on the same machine needs."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.pyspark.python": sys.executable,
            "spark.executorEnv.PYTHONPATH": f"{PACKAGE_HOME}{os.pathsep}{STARTUP}",  # as if an older version were installed
            "spark.executor.extraJavaOptions": self._jvm,
            "spark.driver.extraJavaOptions": self._jvm,
            "spark.shuffle.io.retryWait": "200ms",  # an executor that a test has killed does not come back
            "spark.task.maxFailures": "2",  # tests kill once; a task that is bound to fail is tried as often as this
        }

    def engine(self) -> SparkEngine:
        """All modules of tests share one application: each has executors, JVMs whose Python workers import everything."""
        return shared_engine(SparkRequest(self.url, self.confs))

    def session(self, confs: Mapping[str, str]) -> SparkSession:
        """A session that a user has made, without this package's settings. The environment says which Python and Java."""
        end_shared_spark()
        builder = SparkSession.builder.master(self.url).config("spark.ui.enabled", "false")
        for key, value in {**self.confs, **confs}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def start(self, executors: int, workers: int = 1) -> None:
        """`executors`: of each worker."""
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        log = self._run("master", master)
        size = ["-c", str(executors), "-m", f"{executors}g"]
        for number in range(workers):
            place = ["--host", "127.0.0.1", "--webui-port", "0", "-d", str(self._directory / f"work{number}")]
            self._run(f"worker{number}", ["org.apache.spark.deploy.worker.Worker", *place, *size, self.url])
        deadline = time.monotonic() + START_SECONDS
        while log.read_text().count("Registering worker") < workers:
            if time.monotonic() > deadline:
                raise TimeoutError(log.read_text())
            time.sleep(0.1)

    def executors(self) -> list[int]:
        """The processes of the executors that run now, which work in directories of the workers."""
        found = []
        for directory in Path("/proc").iterdir():
            if directory.name.isdigit():
                with contextlib.suppress(OSError):
                    is_own = (directory / "cwd").resolve().is_relative_to(self._directory)
                    if is_own and b"ExecutorBackend" in (directory / "cmdline").read_bytes():
                        found.append(int(directory.name))
        return found

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(300)

    def _run(self, name: str, command: list[str]) -> Path:
        """Start one daemon in an environment without this checkout on the Python path; returns its log."""
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "TEST_LOADED")}
        environment |= {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(find_java(os.environ).home)}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": self._jvm}
        log = self._directory / f"{name}.log"
        with log.open("wb") as sink:
            command = [str(SPARK_HOME / "bin" / "spark-class"), *command]
            process = subprocess.Popen(command, env=environment, cwd=self._directory, stdout=sink, stderr=sink)
        self._processes.append(process)
        return log
