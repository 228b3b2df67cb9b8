"""A real standalone cluster: DataFrames, the data source and streams, while Python workers and whole executors are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_cli import Runtime, Table, spark
from tests.jobs.spark_cluster import SparkCluster
from tests.spark.notebook import Notebook
from tests.tables import data_files, make_table, named_files

COLUMNS = {"k": "BIGINT NOT NULL", "n": "BIGINT"}
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
Batches = Iterable[pa.RecordBatch]


@pytest.fixture(scope="module")
def cluster_session(spark_cluster: SparkCluster) -> Iterator[SparkSession]:
    """A session that a user has made, without this package's settings."""
    builder = SparkSession.builder.master(spark_cluster.url).config("spark.ui.enabled", "false")
    for key, value in spark_cluster.confs.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        yield session
        session.stop()


def test_a_notebook_on_a_cluster(cluster_session: SparkSession, tmp_path: Path) -> None:
    Notebook(cluster_session, tmp_path).run()


def summing_table(folder: Path, buckets: int = 2) -> Table:
    return Table.open(make_table(folder / "t", COLUMNS, ["k"], bucket=buckets, options=SUMS).url)


def killing_once(marker: Path, victim: Callable[[], int]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Passes rows on; the first task that gets a row kills a process after it, in the middle of its partition."""

    def pass_on(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 1)
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                time.sleep(0.5)
                os.kill(victim(), signal.SIGKILL)
            yield batch.slice(1)

    return pass_on


def executor_of_task() -> int:
    """The JVM above the daemon that has forked this Python process."""
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


@pytest.mark.parametrize("victim", [os.getpid, executor_of_task])
@pytest.mark.parametrize("way", ["write", "format"])
def test_a_write_whose_worker_is_killed_counts_once(
    cluster_session: SparkSession, tmp_path: Path, way: str, victim: Callable[[], int]
) -> None:
    table = summing_table(tmp_path)
    rows = cluster_session.range(0, 4000, 1, 4).selectExpr("id % 1000 as k", "1L as n")
    rows = rows.mapInArrow(killing_once(tmp_path / "killed", victim), "k long, n long")
    if way == "write":
        spark.write(rows, table.url)
    else:
        rows.write.format("paimon").mode("append").save(table.url)
    assert (tmp_path / "killed").exists()
    assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {4}
    assert table.scan().count() == 1000
    assert data_files(table.context) == named_files(table.context)


def test_a_micro_batch_whose_worker_is_killed_counts_once(cluster_session: SparkSession, tmp_path: Path) -> None:
    table = summing_table(tmp_path)
    (tmp_path / "source").mkdir()
    for number in range(3):
        (tmp_path / "source" / f"{number}.json").write_text("".join(f'{{"k": {k}, "n": 1}}\n' for k in range(200)))
    rows = cluster_session.readStream.schema("k long, n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "source"))
    rows = rows.mapInArrow(killing_once(tmp_path / "killed", executor_of_task), "k long, n long")
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
    before = data_files(table.context)
    done = threading.Event()
    killer = threading.Thread(target=kill_an_executor, args=(lambda: data_files(table.context) - before, done))
    killer.start()
    Table.open(table.url, runtime=Runtime(engine="spark")).compact(strategy="full")
    done.set()
    killer.join()
    table.refresh()
    assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {4}
    assert table.scan().count() == len(keys)
    assert table.snapshots()[0].kind == "COMPACT"
    assert data_files(table.context) == named_files(table.context)


def kill_an_executor(when: Callable[[], object], done: threading.Event) -> None:
    """As soon as the first new file is there, with its Python workers: one that outlives it may still finish a file."""
    while not when() and not done.is_set():
        time.sleep(0.002)
    for entry in Path("/proc").iterdir():
        if (
            entry.name.isdigit()
            and b"CoarseGrainedExecutorBackend" in command_of(entry)
            and is_below(int(entry.name), os.getpid())
        ):
            workers = [int(other.name) for other in Path("/proc").iterdir() if other.name.isdigit()]
            for process in sorted(number for number in workers if number != os.getpid() and is_below(number, int(entry.name))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return


def command_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def is_below(process: int, ancestor: int) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return False
    return False
