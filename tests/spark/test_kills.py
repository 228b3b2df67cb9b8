"""Streams whose driver dies in the middle: every batch counts once, and nothing of the attempts that died stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.jobs.spark.java_runtime import find_java
from tests.nightly import at_night
from tests.tables import data_files, make_table, named_files

SECONDS = 900
STARTUP = str(Path(__file__).parents[1] / "startup")
DRIVER = """
import sys
from paimon_cli.jobs.spark.session import SparkRequest, start_spark

source, checkpoint, table = sys.argv[1:]
spark = start_spark(SparkRequest("local[2]")).session
stream = spark.readStream.schema("k long, n long").option("maxFilesPerTrigger", 1).json(source)
writer = stream.writeStream.format("paimon").option("checkpointLocation", checkpoint).trigger(availableNow=True)
writer.start(table).awaitTermination()
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


class KilledQuery:
    """A query in a process of its own, which can be killed with all that it has started."""

    def __init__(self, folder: Path, table: Table) -> None:
        self.command = [sys.executable, "-c", DRIVER, str(folder / "source"), str(folder / "checkpoint"), table.url]
        self.environment = {**os.environ, "JAVA_HOME": str(find_java(os.environ).home)}
        self.held, startup = folder / "held", folder / "startup"
        startup.mkdir()
        (startup / "sitecustomize.py").write_text(HELD.format(startup=STARTUP, held=str(self.held)))
        self.environment["PYTHONPATH"] = os.pathsep.join((str(startup), os.environ["PYTHONPATH"], *sys.path))

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, env=self.environment, start_new_session=True)

    def killed_when(self, comes: Callable[[], bool]) -> None:
        process = self.start()
        deadline = time.monotonic() + SECONDS
        while not comes():
            assert process.poll() is None, "the query ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
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
    query = KilledQuery(tmp_path, table)
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
