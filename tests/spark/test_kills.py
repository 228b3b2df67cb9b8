"""Drivers that die in the middle: every batch of a stream counts once; a merge happens as a whole or not at all.

Processes are killed at night: each has a JVM of its own. Each time, what a driver leaves that dies is made of a table beside it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_cli import Table, spark
from paimon_cli.commit.committer import Committer
from paimon_cli.jobs.spark.java_runtime import find_java
from paimon_cli.maintain.used_names import UsedNames
from tests.jobs.test_merge_job import KINDS, SCHEMA, create
from tests.nightly import at_night
from tests.tables import data_files, make_table, named_files

SECONDS = 900
STARTUP = str(Path(__file__).parents[1] / "startup")
STREAM = """
import sys
from paimon_cli.jobs.spark.session import SparkRequest, start_spark

source, checkpoint, table = sys.argv[1:]
spark = start_spark(SparkRequest("local[2]")).session
stream = spark.readStream.schema("k long, n long").option("maxFilesPerTrigger", 1).json(source)
writer = stream.writeStream.format("paimon").option("checkpointLocation", checkpoint).trigger(availableNow=True)
writer.start(table).awaitTermination()
"""
MERGE = """
import sys
from paimon_cli import spark as paimon
from paimon_cli.jobs.spark.session import SparkRequest, start_spark

table, rows = sys.argv[1:]
spark = start_spark(SparkRequest("local[2]")).session
news = spark.range(0, int(rows), 1, 2).selectExpr("'a' as dt", "cast(id as int) as id", "'new' as name", "1 as points")
merge = paimon.merge(news, table, on="id").when_matched_update({"points": "points + source.points"})
merge.when_not_matched_insert_all().execute()
"""
HELD = """
import os, sys, time
sys.path.insert(0, {startup!r})
del sys.modules["sitecustomize"]
import sitecustomize
sys.path.remove({startup!r})
if not os.path.exists({held!r}):
    import paimon_cli.commit.committer as committer

    def hold(*given, **named):
        open({held!r}, "w").close()
        time.sleep(3600)

    committer.Committer.commit = hold
"""
"""A `sitecustomize` with which the first commit never begins; the file says that it is due."""


class KilledDriver:
    """A program in a process of its own, which can be killed with all that it has started."""

    def __init__(self, folder: Path, program: str, *arguments: object) -> None:
        self.command = [sys.executable, "-c", program, *map(str, arguments)]
        self.environment = {**os.environ, "JAVA_HOME": str(find_java(os.environ).home)}
        self.held, startup = folder / "held", folder / "startup"
        startup.mkdir()
        (startup / "sitecustomize.py").write_text(HELD.format(startup=STARTUP, held=str(self.held)))
        self.environment["PYTHONPATH"] = os.pathsep.join((str(startup), os.environ["PYTHONPATH"], *sys.path))

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, env=self.environment, start_new_session=True)

    def killed_when(self, comes: Callable[[], object]) -> None:
        process = self.start()
        deadline = time.monotonic() + SECONDS
        while not comes():
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def run(self) -> None:
        process = self.start()
        assert process.wait(SECONDS) == 0


@pytest.mark.nightly
@pytest.mark.parametrize(("bucket", "kills"), [(2, 1), (2, 2), (-1, 2)])
def test_a_driver_that_is_killed_in_the_middle_of_batches(tmp_path: Path, bucket: int, kills: int) -> None:
    """Before its commit, and the second time after it, before Spark has noted that the batch is done.

    Each time, batches are repeated that are as these leave them (`test_streams`).
    """
    sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    context = make_table(tmp_path / "t", {"k": "BIGINT NOT NULL", "n": "BIGINT"}, ["k"], bucket=bucket, options=sums)
    table = Table.open(context.url)
    (tmp_path / "source").mkdir()
    batches = 2 * kills
    for number in range(batches):
        rows = "".join(f'{{"k": {k}, "n": {10**number}}}\n' for k in range(50))
        (tmp_path / "source" / f"{number}.json").write_text(rows)
    query = KilledDriver(tmp_path, STREAM, tmp_path / "source", tmp_path / "checkpoint", table.url)
    query.killed_when(query.held.exists)
    assert data_files(context) - named_files(context), "it died before its commit"
    if kills > 1:
        following = tmp_path / "t" / "snapshot" / f"snapshot-{len(table.snapshots()) + 1}"
        query.killed_when(following.exists)
    query.run()
    assert {row["n"] for row in table.scan().to_arrow().to_pylist()} == {int("1" * batches)}
    assert [snapshot.commit_identifier for snapshot in reversed(table.snapshots())] == [*range(batches)]
    assert data_files(context) == named_files(context)
    assert not (tmp_path / "t" / "bucket-postpone").exists()
    assert table.verify(level="full").errors == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "moment"),
    [
        *((name, "before the commit") for name in ("fixed", "any partition", "append with vectors")),
        *(("fixed", moment) for moment in ("rows are staged", "buckets are written", "after the commit")),
    ],
)
def test_a_driver_that_is_killed_in_the_middle_of_a_merge(tmp_path: Path, name: str, moment: str) -> None:
    """The table shows all of the merge or nothing of it, and what is left are orphans."""
    table, rows = table_of_old_rows(tmp_path, name), 50 if moment == "before the commit" else 400_000
    before = data_files(table.context)
    driver = KilledDriver(tmp_path, MERGE, table.url, rows)
    moments: dict[str, Callable[[], object]] = {
        "before the commit": driver.held.exists,
        "rows are staged": lambda: staged(table),
        "buckets are written": lambda: data_files(table.context) - before,
        "after the commit": (tmp_path / "t" / "snapshot" / f"snapshot-{len(table.snapshots()) + 1}").exists,
    }
    if moment != "before the commit":
        driver.held.touch()
    driver.killed_when(moments[moment])
    check_left(table, rows, happened=moment == "after the commit")


@pytest.mark.parametrize("name", ["fixed", at_night("any partition"), at_night("append with vectors")])
def test_what_a_driver_leaves_that_dies_before_the_commit_of_a_merge(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All that such a driver has written is in a copy of the table that is made while the commit is due."""
    table, commit, left = table_of_old_rows(tmp_path, name), Committer.commit, tmp_path / "left"

    def copy_first(committer: Committer, *given: Any, **named: Any) -> Any:
        shutil.copytree(tmp_path / "t", left)
        return commit(committer, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "commit", copy_first)
        news = session.range(0, 50, 1, 2).selectExpr("'a' as dt", "cast(id as int) as id", "'new' as name", "1 as points")
        merge = spark.merge(news, table, on="id").when_matched_update({"points": "points + source.points"})
        merge.when_not_matched_insert_all().execute()
    table.refresh()
    assert points_of(table) == [11] * 30 + [1] * 20
    check_left(Table.open(str(left)), 50, happened=False)


def table_of_old_rows(folder: Path, name: str) -> Table:
    table = create(folder, KINDS[name])
    table.write(pa.Table.from_pylist([{"dt": "b", "id": i, "name": "old", "points": 10} for i in range(30)], schema=SCHEMA))
    return table


def staged(table: Table) -> list[Path]:
    return list((Path(table.url) / "index").glob("index-*"))


def check_left(table: Table, rows: int, happened: bool) -> None:
    """The table of a driver that has died shows all of the merge or nothing; it can be merged again, and cleaned."""
    table.refresh()
    assert points_of(table) == ([11] * 30 + [1] * (rows - 30) if happened else [10] * 30)
    assert (data_files(table.context) - named_files(table.context)) or staged(table), "it died in the middle"
    assert table.verify(level="full").errors == 0
    if not happened:
        ids = pa.array(range(rows), pa.int32())
        news = pa.table({"dt": ["a"] * rows, "id": ids, "name": ["new"] * rows, "points": pa.array([1] * rows, pa.int32())})
        merge = table.merge(news, on="id").when_matched_update({"points": "points + source.points"})
        merge.when_not_matched_insert_all().execute()
    assert points_of(table) == [11] * 30 + [1] * (rows - 30)
    table.remove_orphans(older_than="0s", force=True)
    assert data_files(table.context) == named_files(table.context)
    used = UsedNames(table.context)
    used.refresh()
    assert {file.name for file in staged(table)} <= used.names
    assert table.verify(level="full").errors == 0


def points_of(table: Table) -> list[int]:
    return table.scan().to_arrow().sort_by("id")["points"].to_pylist()
