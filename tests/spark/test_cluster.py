"""A real standalone cluster: DataFrames, the data source and streams, while Python workers and whole executors are killed.

Executors are killed last: another one starts, and its first task imports everything again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_cli import Runtime, Table, spark
from tests.jobs.spark_cluster import SparkCluster
from tests.local_spark import users_session
from tests.nightly import at_night
from tests.spark.canary import Canary
from tests.spark.notebook import Notebook
from tests.spark.steps import parent_of, this_executor, this_worker
from tests.tables import data_files, make_table, named_files

pytestmark = pytest.mark.xdist_group("cluster")

COLUMNS = {"k": "BIGINT NOT NULL", "n": "BIGINT"}
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
Batches = Iterable[pa.RecordBatch]
Work = TypeVar("Work")


@pytest.fixture(scope="module")
def cluster_session(spark_cluster: SparkCluster) -> SparkSession:
    """With Spark's own defaults. A session that a user has started, without this package, is in `scripts.nightly.spark_steps`."""
    return users_session(spark_cluster.engine(), {"spark.sql.shuffle.partitions": "2"})


@pytest.mark.nightly
def test_a_notebook_on_a_cluster(cluster_session: SparkSession, tmp_path: Path) -> None:
    """Each time, one runs over Connect, and the tests below write, stream and compact on the cluster."""
    Notebook(cluster_session, tmp_path, brief=False).run()


@pytest.mark.nightly
def test_texts_in_data_are_never_believed_on_a_cluster(cluster_session: SparkSession, tmp_path: Path) -> None:
    """Each time, some are tried on this machine and over Connect."""
    Canary(cluster_session, tmp_path, brief=False).run()


def summing_table(folder: Path, buckets: int = 2) -> Table:
    return Table.open(make_table(folder / "t", COLUMNS, ["k"], bucket=buckets, options=SUMS).url)


def killing_once(marker: Path, kill: Callable[[], None]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Passes rows on; the first task that gets a row kills after it, in the middle of its partition."""

    def pass_on(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 1)
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                time.sleep(0.5)
                kill()
            yield batch.slice(1)

    return pass_on


@pytest.mark.parametrize(
    ("moment", "kill", "third"),
    [
        ("rows are staged", this_worker, 100),
        at_night("rows are staged", this_executor, 30_000),
        at_night("buckets are written", this_executor, 30_000),
    ],
)
def test_a_merge_whose_worker_is_killed_counts_once(
    cluster_session: SparkSession, tmp_path: Path, moment: str, kill: Callable[[], None], third: int
) -> None:
    """`third`: so many rows are in the table alone, in both, and in the DataFrame alone."""
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["k"], bucket=6 if third > 100 else 2).url)
    table.write(pa.table({"k": range(2 * third), "n": [1] * 2 * third}))
    rows = cluster_session.range(third, 3 * third, 1, 4).selectExpr("id as k", "1L as n")
    if moment == "rows are staged":
        rows = rows.mapInArrow(killing_once(tmp_path / "killed", kill), "k long, n long")
    merge = spark.merge(rows, table, on="k").when_matched_update({"n": "n + source.n"}).when_not_matched_insert_all()
    if moment == "rows are staged":
        summary = merge.execute()
        assert (tmp_path / "killed").exists()
    else:
        summary = with_a_killed_executor(table, merge.execute)
    table.refresh()
    assert (summary.updated, summary.inserted) == (third, third)
    assert table.scan().to_arrow().sort_by("k")["n"].to_pylist() == [1] * third + [2] * third + [1] * third
    assert data_files(table.context) == named_files(table.context)
    assert not list((tmp_path / "t" / "index").glob("*-*"))


@pytest.mark.parametrize(
    ("way", "kill"),  # each time, an executor is killed during the compaction below
    [
        ("format", this_worker),
        at_night("write", this_worker),
        at_night("format", this_executor),
        at_night("write", this_executor),
    ],
)
def test_a_write_whose_worker_is_killed_counts_once(
    cluster_session: SparkSession, tmp_path: Path, way: str, kill: Callable[[], None]
) -> None:
    table = summing_table(tmp_path)
    rows = cluster_session.range(0, 4000, 1, 4).selectExpr("id % 1000 as k", "1L as n")
    rows = rows.mapInArrow(killing_once(tmp_path / "killed", kill), "k long, n long")
    if way == "write":
        spark.write(rows, table.url)
    else:
        rows.write.format("paimon").mode("append").save(table.url)
    assert (tmp_path / "killed").exists()
    assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {4}
    assert table.scan().count() == 1000
    assert data_files(table.context) == named_files(table.context)


@pytest.mark.nightly
def test_a_micro_batch_whose_worker_is_killed_counts_once(cluster_session: SparkSession, tmp_path: Path) -> None:
    table = summing_table(tmp_path)
    (tmp_path / "source").mkdir()
    for number in range(3):
        (tmp_path / "source" / f"{number}.json").write_text("".join(f'{{"k": {k}, "n": 1}}\n' for k in range(200)))
    rows = cluster_session.readStream.schema("k long, n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "source"))
    rows = rows.mapInArrow(killing_once(tmp_path / "killed", this_executor), "k long, n long")
    writer = rows.writeStream.format("paimon").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(table.url).awaitTermination()
    assert (tmp_path / "killed").exists()
    assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {3}
    assert [snapshot.commit_identifier for snapshot in reversed(table.snapshots())] == [0, 1, 2]
    assert data_files(table.context) == named_files(table.context)


def test_a_compaction_whose_executor_is_killed_loses_nothing(cluster_session: SparkSession, tmp_path: Path) -> None:
    table = summing_table(tmp_path, buckets=6)
    keys = pa.array(range(60_000))
    for _ in range(4):
        table.write(pa.table({"k": keys, "n": pa.array([1] * len(keys))}), compact="none")
    compacting = Table.open(table.url, runtime=Runtime(engine="spark"))
    with_a_killed_executor(table, lambda: compacting.compact(strategy="full"))
    table.refresh()
    assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {4}
    assert table.scan().count() == len(keys)
    assert table.snapshots()[0].kind == "COMPACT"
    assert data_files(table.context) == named_files(table.context)


def with_a_killed_executor(table: Table, work: Callable[[], Work]) -> Work:
    """An executor is killed as soon as the work has written the first file."""
    before, killed, done = data_files(table.context), threading.Event(), threading.Event()

    def kill() -> None:
        while data_files(table.context) <= before and not done.is_set():
            time.sleep(0.002)
        if not done.is_set():
            kill_an_executor()
            killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        return work()
    finally:
        done.set()
        killer.join()
        assert killed.is_set()


def kill_an_executor() -> None:
    """With the Python workers below its daemon, which are a process group."""
    processes = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    executor = next(p for p in processes if b"CoarseGrainedExecutorBackend" in command_of(p) and is_below(p, os.getpid()))
    daemons = [process for process in processes if parent_of(process) == executor]
    os.kill(executor, signal.SIGKILL)
    for daemon in daemons:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon, signal.SIGKILL)


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def is_below(process: int, ancestor: int) -> bool:
    while process > 1 and process != ancestor:
        process = parent_of(process)
    return process == ancestor
