"""Drivers that die in the middle: every batch of a stream counts once; a merge happens as a whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
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


@pytest.mark.parametrize(("bucket", "kills"), [(2, 1), at_night(2, 2), at_night(-1, 2)])
def test_a_driver_that_is_killed_in_the_middle_of_batches(tmp_path: Path, bucket: int, kills: int) -> None:
    """Before its commit, and the second time after it, before Spark has noted that the batch is done."""
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


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("fixed", "before the commit"),
        *(at_night(name, "before the commit") for name in ("any partition", "append with vectors")),
        *(at_night("fixed", moment) for moment in ("rows are staged", "buckets are written", "after the commit")),
    ],
)
def test_a_driver_that_is_killed_in_the_middle_of_a_merge(tmp_path: Path, name: str, moment: str) -> None:
    """The table shows all of the merge or nothing of it, and what is left are orphans."""
    table, rows = create(tmp_path, KINDS[name]), 50 if moment == "before the commit" else 400_000
    table.write(pa.Table.from_pylist([{"dt": "b", "id": i, "name": "old", "points": 10} for i in range(30)], schema=SCHEMA))
    before = data_files(table.context)
    driver = KilledDriver(tmp_path, MERGE, table.url, rows)

    def staged() -> list[Path]:
        return list((tmp_path / "t" / "index").glob("index-*"))

    moments: dict[str, Callable[[], object]] = {
        "before the commit": driver.held.exists,
        "rows are staged": staged,
        "buckets are written": lambda: data_files(table.context) - before,
        "after the commit": (tmp_path / "t" / "snapshot" / f"snapshot-{len(table.snapshots()) + 1}").exists,
    }
    if moment != "before the commit":
        driver.held.touch()
    driver.killed_when(moments[moment])
    table.refresh()
    happened = moment == "after the commit"
    assert points_of(table) == ([11] * 30 + [1] * (rows - 30) if happened else [10] * 30)
    assert (data_files(table.context) - named_files(table.context)) or staged(), "it died in the middle"
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
    assert {file.name for file in staged()} <= used.names
    assert table.verify(level="full").errors == 0


def points_of(table: Table) -> list[int]:
    return table.scan().to_arrow().sort_by("id")["points"].to_pylist()
