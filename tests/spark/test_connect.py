"""Jobs and DataFrames over Spark Connect, with a server of the installed PySpark on loopback: no SparkContext, no JVM here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paimon_cli import Runtime, Table, spark
from paimon_cli.errors import BadInput, StorageUnavailable, UsageError
from paimon_cli.jobs.engine import TasksFailed
from paimon_cli.jobs.process import CONNECT_MODE
from paimon_cli.jobs.spark import session_engine
from paimon_cli.jobs.spark.session_engine import ConnectEngine, connected
from paimon_cli.jobs.spark.tasks import TASK_END_SECONDS
from tests.local_spark import end_shared_spark
from tests.nightly import BRIEF
from tests.ports import free_port
from tests.spark.beating_rows import BeatingRows
from tests.spark.canary import Canary, check_engine
from tests.spark.connect_server import connect_server
from tests.spark.notebook import Notebook
from tests.spark.raised import check_errors
from tests.spark.steps import play
from tests.tables import data_files, make_table, named_files

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    end_shared_spark()
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.fixture(scope="module")
def engine(server: str) -> Iterator[ConnectEngine]:
    """Each session of the server starts Python processes of its own, so most tests share this one."""
    engine = ConnectEngine(server, {})
    yield engine
    engine.stop()


@pytest.fixture
def remote(engine: ConnectEngine) -> SparkSession:
    return engine.session


def test_a_dataframe_is_not_taken_for_its_session(remote: SparkSession) -> None:
    given: Any = remote.range(1)
    with pytest.raises(UsageError, match="is not a Spark session"):
        spark.read(given, "orders")


def test_jobs_run_on_the_server(server: str, remote: SparkSession, tmp_path: Path) -> None:
    """One in a session of its own, as a command does it; the others in that of the caller."""
    source = tmp_path / "rows.csv"
    source.write_text("id,n\n" + "".join(f"{n},{n}\n" for n in range(100)))
    context = make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "INT"}, ["id"], bucket=3)
    assert Table.open(context.url, runtime=Runtime(master=server)).write(str(source)).engine == "spark"
    table = Table.open(context.url, runtime=Runtime(session=remote))
    assert table.update({"n": "n + 1000"}, where="id < 10").rows == 10
    assert table.compact(strategy="full").engine == "spark"
    assert table.rescale(2).engine == "spark"
    assert Table.open(context.url).verify(level="full").errors == 0
    assert table.scan(where="n >= 1000").count() == 10
    source.write_text("id,n\n1,x\n")
    with pytest.raises(BadInput, match="column 'n'"):
        table.write(str(source))
    assert data_files(context) == named_files(context)


@pytest.mark.nightly
def test_texts_in_data_are_never_believed_over_connect(remote: SparkSession, tmp_path: Path) -> None:
    """Each time, some are tried on this machine, and texts in files and names over Connect."""
    before = set(remote.conf.getAll)
    Canary(remote, tmp_path, brief=False).run()
    assert set(remote.conf.getAll) == before, "keys of jobs are removed"


@BRIEF
def test_texts_in_files_and_names_are_never_believed_over_connect(engine: ConnectEngine, tmp_path: Path, brief: bool) -> None:
    check_engine(engine, tmp_path, brief)


def test_secrets_of_a_connection_reach_no_setting(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters of the URL are sent with each request. They are no settings of the session, nor variables of this process."""
    monkeypatch.delenv(CONNECT_MODE, raising=False)
    engine = ConnectEngine(f"{server}/;x-api-token=HUNTER2", {"spark.sql.shuffle.partitions": "2"})
    settings = {**engine.session.conf.getAll, **{row.key: row.value for row in engine.session.sql("SET").collect()}}
    assert settings["spark.sql.shuffle.partitions"] == "2"
    assert "HUNTER2" not in f"{settings} {dict(os.environ)}"
    engine.stop()
    assert CONNECT_MODE not in os.environ


@pytest.mark.nightly
def test_a_notebook_over_connect(remote: SparkSession, tmp_path: Path) -> None:
    """Each time, one runs on this machine."""
    Notebook(remote, tmp_path, brief=False).run()


def test_no_task_goes_on_after_a_failure(remote: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_engine, "TASK_END_SECONDS", TASK_END_SECONDS)
    beating = BeatingRows(tmp_path / "beats")
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, [], bucket=-1).url)
    with pytest.raises(BadInput, match="the first partition fails"):
        spark.write(beating.frame(remote, first_fails=True), table.url)
    assert beating.have_ended()
    assert table.snapshot_ids() == []
    assert data_files(table.context) == set()


@pytest.mark.nightly
def test_dynamic_buckets_are_assigned_on_the_server(remote: SparkSession, tmp_path: Path) -> None:
    options = {"dynamic-bucket.target-row-num": "30"}
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "INT"}, ["id"], bucket=-1, options=options).url)
    for first in (0, 50):
        spark.write(remote.range(first, first + 100, 1, 3).selectExpr("id", "1 as n"), table.url)
    assert table.scan().count() == 150
    assert table.verify(level="full").errors == 0
    assert spark.read(remote, table.url).agg({"n": "sum"}).collect()[0][0] == 150


def test_tasks_fail_with_the_error_of_the_first_that_failed(engine: ConnectEngine) -> None:
    with pytest.raises(TasksFailed, match="task 1") as failed:
        engine.run_tasks(_odd_ones_fail, range(5))
    assert failed.value.finished == [0, 2, 4]


def _odd_ones_fail(number: int) -> int:
    if number % 2:
        raise UsageError(f"task {number}")
    return number


def test_a_client_with_nothing_but_connect() -> None:
    """The package `pyspark-client` has neither the classic part of PySpark nor py4j."""
    lacking = "import sys; sys.modules['py4j'] = sys.modules['pyspark.core'] = None"
    used = "import paimon_cli.jobs.spark.session_engine; from paimon_cli.spark import read, write, PaimonDataSource"
    subprocess.run([sys.executable, "-c", f"{lacking}; {used}"], check=True)


def test_a_server_that_is_not_there() -> None:
    port = free_port()
    with pytest.raises(StorageUnavailable, match=f"no Spark Connect server at 127.0.0.1:{port}"):
        connected(f"sc://127.0.0.1:{port}", {})


@pytest.mark.parametrize("url", ["sc://host:abc", "sc://", "sc://:15002"])
def test_an_invalid_address(url: str) -> None:
    with pytest.raises(UsageError, match=r"the address sc:.*names no host"):
        connected(url, {})


def test_frames_are_written_and_read(remote: SparkSession, tmp_path: Path) -> None:
    """By the data source, a function, and a merge."""
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "INT"}, ["id"], bucket=2).url)
    rows = remote.range(0, 20, 1, 2).selectExpr("id", "cast(id as int) as n")
    rows.where("id < 10").write.format("paimon").mode("append").save(table.url)
    spark.write(rows.where("id >= 10"), table.url)
    merge = spark.merge(rows.where("id % 2 = 0"), table.url, on="id").when_matched_update({"n": "n + 100"})
    assert merge.execute().updated == 10
    found = {row.id: row.n for row in remote.read.format("paimon").load(table.url).collect()}
    assert found == {n: n if n % 2 else n + 100 for n in range(20)}
    assert sorted(row.id for row in spark.read(remote, table.url, where="n >= 100").collect()) == [*range(0, 20, 2)]
    assert table.verify(level="full").errors == 0


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["partitioned", "append", "lookup"])
def test_random_steps(remote: SparkSession, tmp_path: Path, kind: str) -> None:
    assert play(remote, tmp_path, kind, "small", 5) == 5


@pytest.mark.nightly
def test_errors_have_class_and_hint(remote: SparkSession, tmp_path: Path) -> None:
    check_errors(remote, tmp_path, brief=False)
