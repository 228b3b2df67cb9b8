"""The package on other machines: the zip that executors import, and lines of `--print-spark-submit`, run for real."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.jobs.spark.java_runtime import find_java
from paimon_cli.jobs.spark.submit import send_package, write_package_archive
from tests.jobs.spark_cluster import SparkCluster
from tests.local_spark import end_shared_spark

pytestmark = pytest.mark.xdist_group("cluster")


def test_the_archive_is_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = write_package_archive(tmp_path / "a"), write_package_archive(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_a_python_that_has_only_the_archive_runs_the_engine_from_it(tmp_path: Path) -> None:
    archive = write_package_archive(tmp_path)
    program = (
        "import paimon_cli, paimon_cli.compact.bucket_compactor, paimon_cli.write.table_writer\n"
        "from paimon_cli.options.option_catalog import OPTIONS\n"
        "print(paimon_cli.__file__, len(OPTIONS) > 100)"
    )
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [f"{archive}/paimon_cli/__init__.py", "True"]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    (tmp_path / "in.csv").write_text("id,v\n1,a\n2,b\n")
    return Table.create(str(tmp_path / "t"), columns=["id BIGINT NOT NULL", "v STRING"], primary_key=["id"], bucket=2)


def printed(*words: object) -> list[str]:
    """The words of the line, printed by a process that never loads PySpark."""
    program = "import sys; from paimon_cli.cli.app import app\ntry: app()\nfinally: assert 'pyspark' not in sys.modules"
    command = [sys.executable, "-c", program, *map(str, words), "--print-spark-submit"]
    return shlex.split(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def submitted(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The line, run as a user's shell would run it."""
    java = {"JAVA_HOME": str(find_java(os.environ).home), "SPARK_LOCAL_IP": "127.0.0.1", "TEST_LOADED": "pandas pyarrow.parquet"}
    environment = {**os.environ, **java, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(shlex.join(words), shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.nightly
def test_the_line_for_this_machine_runs_and_the_exit_code_of_its_driver_comes_back(table: Table, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,v\nx,a\n")
    ran = submitted(printed("write", "t", "in.csv", "--master", "local[2]"), tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert "column 'id'" in ran.stdout, "the driver's Python has one output"


@pytest.mark.nightly
def test_the_line_for_a_cluster_runs(spark_cluster: SparkCluster, table: Table, tmp_path: Path) -> None:
    """Executors have only the Python packages of the archive."""
    script = f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode()
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as environment:
        python = tarfile.TarInfo("bin/python")
        python.size, python.mode = len(script), 0o755
        environment.addfile(python, io.BytesIO(script))
    confs = [f"--spark-conf={key}={value}" for key, value in spark_cluster.confs.items() if "python" not in key.lower()]
    end_shared_spark()  # its application has all cores of the cluster
    ran = submitted(printed("write", "t", "in.csv", "--master", spark_cluster.url, *confs), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "2 rows" in ran.stdout and " on spark" in ran.stdout
    assert table.scan().count() == 2


class ConnectSession:
    """The part of a session over Spark Connect that takes the package, which takes a while."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def addArtifacts(self, path: str, pyfile: bool) -> None:
        self.sent.append(path)
        time.sleep(0.2)


def test_threads_that_begin_together_send_the_package_once() -> None:
    given: Any = ConnectSession()
    threads = [threading.Thread(target=send_package, args=(given,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given.sent) == 1
