"""A session of the user's own, in a Python that is not the first one on the PATH, and without a Java of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import paimon_cli.spark
from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.session import SUBMITTED
from paimon_cli.spark.source_options import SourceOptions

NOTEBOOK = """
import json, os, sys
from pyspark.sql import SparkSession
import pyarrow as pa
from paimon_cli import Table
import paimon_cli.spark as paimon

schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
table = Table.create(sys.argv[1], schema=schema, primary_key=["k"], options={"bucket": "1"})
table.write(pa.table({"k": [1], "v": ["one"]}))
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
spark = paimon.configure(builder).getOrCreate()
spark.createDataFrame([(1, "uno"), (2, "dos")], "k long, v string").write.format("paimon").mode("append").save(sys.argv[1])
now = {row["k"]: row["v"] for row in Table.open(sys.argv[1]).scan().to_arrow().to_pylist()}
first = {row.k: row.v for row in spark.read.format("paimon").option("versionAsOf", 1).load(sys.argv[1]).collect()}
try:
    paimon.configure()
    second = "no error"
except Exception as error:
    second = str(error)
print(json.dumps([now, first, spark.conf.get("spark.python.unix.domain.socket.enabled"), second]))
"""


@pytest.fixture
def not_activated(tmp_path: Path) -> dict[str, str]:
    """The variables of a process whose virtual environment is not on the PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")  # what Spark would take
    (tmp_path / "bin" / "python3").chmod(0o755)
    without = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in without}
    return {**environment, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}


def test_what_is_named_for_a_session_of_an_environment_that_is_not_activated(
    not_activated: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At night, such a session is started."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with patch.dict(os.environ, not_activated, clear=True):
        own = paimon_cli.spark.configure(SparkSession.Builder().config("spark.sql.shuffle.partitions", "1"))
        assert (os.environ["PYSPARK_PYTHON"], os.environ["PATH"]) == (sys.executable, not_activated["PATH"])
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
        os.environ["PYSPARK_PYTHON"] = "chosen"
        others = paimon_cli.spark.configure(SparkSession.Builder().config("spark.python.unix.domain.socket.enabled", "false"))
        assert os.environ["PYSPARK_PYTHON"] == "chosen"
    assert own._options == {"spark.sql.shuffle.partitions": "1", "spark.python.unix.domain.socket.enabled": "true"}
    assert others._options == {"spark.python.unix.domain.socket.enabled": "false"}
    assert java.is_file()


def test_where_spark_runs_already_nothing_is_named(session: SparkSession) -> None:
    before = dict(os.environ)
    with pytest.raises(UsageError, match="Spark runs in this process already"):
        paimon_cli.spark.configure()
    assert dict(os.environ) == before


@pytest.mark.nightly
def test_a_notebook_of_a_virtual_environment_that_is_not_activated(not_activated: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTEBOOK, str(tmp_path / "t")]
    done = subprocess.run(command, cwd=tmp_path, env=not_activated, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    now, first, sockets, second = json.loads(done.stdout.splitlines()[-1])
    assert now == {"1": "uno", "2": "dos"}
    assert first == {"1": "one"}
    assert sockets == "true"
    assert "Spark runs in this process already" in second


@pytest.mark.parametrize("name", ["SPARK_REMOTE", SUBMITTED])
def test_where_spark_is_elsewhere_nothing_is_started(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Over Spark Connect only the server's Java stack is left out of errors, unless the user wants it."""
    monkeypatch.setenv(name, "1")
    before = dict(os.environ)
    builder = SparkSession.Builder().appName("mine")
    assert paimon_cli.spark.configure(builder) is builder
    set_here = {} if name == SUBMITTED else {"spark.sql.connect.serverStacktrace.enabled": "false"}
    assert builder._options == {"spark.app.name": "mine", **set_here}
    wanted = SparkSession.Builder().config("spark.sql.connect.serverStacktrace.enabled", "true")
    assert paimon_cli.spark.configure(wanted)._options == {"spark.sql.connect.serverStacktrace.enabled": "true"}
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"versionAsOf": "7"}, {"snapshot": "7"}),
        ({"versionasof": "monday"}, {"tag": "monday"}),
        ({"timestampAsOf": "2026-01-02"}, {"as_of": "2026-01-02"}),
        ({"timestampAsOf": "1795949914"}, {"as_of": "2026-11-29T10:58:34+00:00"}),
        ({"timestampAsOf": "1795949914000"}, {"as_of": "1795949914000"}),
        ({"timestampAsOf": "9" * 5000}, {"as_of": "9" * 5000}),
        ({"versionAsOf": "7", "snapshot": "7"}, None),
        ({"timestampAsOf": "2026-01-02", "as_of": "2026-01-02"}, None),
    ],
)
def test_versions_as_in_other_formats(given: dict[str, str], named: dict[str, str] | None) -> None:
    if named is None:
        with pytest.raises(UsageError, match="they mean the same"):
            SourceOptions.of({"path": "db.t", **given})
    else:
        assert SourceOptions.of({"path": "db.t", **given}).values == {"path": "db.t", **named}
