"""A real standalone cluster: the package ships itself, writes agree, faults are reported, attempts leave nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import BadInput
from paimon_cli.history.live_files import bucket_files
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.backup_job import Destination, run_backup
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.erasure.erase_job import EraseRequest, Erasure
from paimon_cli.jobs.erasure.erase_table import TableErasure
from paimon_cli.jobs.erasure.inventory import Inventory
from paimon_cli.jobs.history_check_job import run_history_check
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from paimon_cli.processor import OWN_WORKER, VARIABLE, fast_sort
from paimon_cli.requests.backup import BackupOptions
from paimon_cli.requests.integrity import HistoryCheckOptions
from paimon_cli.storage.confined_storage import ConfinedStorage
from tests.jobs.backups import check_same, opened
from tests.jobs.erasure.test_erase_table import CONDITION, GONE, KEYED, States, check, is_kept
from tests.jobs.spark_cluster import SparkCluster
from tests.jobs.test_backup_job import rich_table
from tests.nightly import at_night
from tests.pieces import injected
from tests.spark.canary import check_engine
from tests.tables import compact, data_files, live_files, make_table, rows, write

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster_engine(spark_cluster: SparkCluster) -> Iterator[SparkEngine]:
    engine = spark_cluster.engine()
    yield engine
    engine.stop()


def test_executors_import_the_shipped_package(cluster_engine: SparkEngine, tmp_path: Path) -> None:
    def task(number: int) -> tuple[str, str]:
        """A task that ends when the other executor has also started one."""
        import os
        import time
        from pathlib import Path

        import paimon_cli.write.table_writer

        deadline = time.monotonic() + 120
        (tmp_path / Path.cwd().name).touch()
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        return os.getcwd(), paimon_cli.write.table_writer.__file__

    places = cluster_engine.run_tasks(task, list(range(4)))
    assert len({directory for directory, _ in places}) == 2
    # Relative to the executor's directory, although the cluster's Python has another copy on its path (see the confs).
    assert all(file.startswith("./paimon_cli-") and ".zip/" in file for _, file in places), places


def test_workers_look_at_their_own_processor(cluster_engine: SparkEngine) -> None:
    def task(number: int) -> dict[str, str]:
        import os

        import paimon_cli.write.table_writer  # noqa: F401

        return {name: os.environ[name] for name in (OWN_WORKER, VARIABLE) if name in os.environ}

    expected = {OWN_WORKER: "1", **fast_sort({})}
    assert cluster_engine.run_tasks(task, [1, 2]) == [expected, expected]


def test_a_write_and_a_compaction_on_the_cluster(cluster_engine: SparkEngine, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=3)
    source = tmp_path / "in.jsonl"
    for version in ("old", "new"):
        given = [{"k": k, "v": f"{version} {k}"} for k in range(1000)]
        source.write_text("".join(json.dumps(row) + "\n" for row in given))
        run_write(context, WriteRequest(FileRows((str(source),), "json")), cluster_engine, NoProgress())
    assert rows(context) == sorted(given, key=json.dumps)
    assert data_files(context) == live_files(context)
    run_compact(context, CompactRequest(), cluster_engine, NoProgress())
    assert rows(context) == sorted(given, key=json.dumps)
    assert len(live_files(context)) == 3


@pytest.mark.nightly
def test_texts_in_files_and_names_are_never_believed_on_a_cluster(cluster_engine: SparkEngine, tmp_path: Path) -> None:
    """Each time, some are tried over Connect."""
    check_engine(cluster_engine, tmp_path, brief=False)


def test_a_task_that_fails_once_is_tried_again(cluster_engine: SparkEngine, tmp_path: Path) -> None:
    def task(place: str) -> int:
        from pathlib import Path

        if not Path(place).exists():
            Path(place).touch()
            raise ConnectionResetError("the network had a hiccup")
        return 1

    assert cluster_engine.retries_tasks
    assert cluster_engine.run_tasks(task, [str(tmp_path / "tried")]) == [1]


@pytest.mark.nightly
def test_a_bad_row_on_the_cluster_leaves_no_file(cluster_engine: SparkEngine, tmp_path: Path) -> None:
    """Each time, one fails over Connect."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=2)
    (tmp_path / "in.jsonl").write_text('{"k": 1}\n{"k": "x"}\n')
    with pytest.raises(BadInput) as failure:
        run_write(context, WriteRequest(FileRows((str(tmp_path / "in.jsonl"),), "json")), cluster_engine, NoProgress())
    assert failure.value.details["row"] == 2
    assert data_files(context) == set()


class KillsAnExecutor(NoProgress):
    """Kills one executor of a cluster when a task of the phase is done."""

    def __init__(self, cluster: SparkCluster, phase: str = "") -> None:
        self._cluster, self._phase, self._now = cluster, phase, ""
        self.killed: list[int] = []

    def start(self, description: str, total: int | None) -> None:
        self._now = description

    def advance(self, n: int = 1) -> None:
        if self._phase not in self._now:
            return
        for executor in [] if self.killed else self._cluster.executors()[:1]:  # the cluster may just be starting them again
            os.kill(executor, signal.SIGKILL)
            self.killed.append(executor)


def test_an_executor_dies_while_files_are_copied(
    spark_cluster: SparkCluster, cluster_engine: SparkEngine, tmp_path: Path
) -> None:
    table, copy = rich_table(tmp_path), tmp_path / "copy"
    progress = KillsAnExecutor(spark_cluster)
    with injected(2):
        there = Destination(ConfinedStorage(str(copy)), str(copy), str(copy))
        assert run_backup(table, there, BackupOptions(), cluster_engine, progress).files
    assert progress.killed
    check_same(table, opened(copy))


@pytest.mark.parametrize("phase", [at_night("Looking for rows"), "Writing files again", at_night("Looking again")])
def test_an_executor_dies_while_rows_are_erased(
    spark_cluster: SparkCluster, cluster_engine: SparkEngine, phase: str, tmp_path: Path
) -> None:
    context, progress = KEYED["partitions, a tag and a branch"](tmp_path / "t"), KillsAnExecutor(spark_cluster, phase)
    before = States.of(context.url)
    erasure = Erasure(context, EraseRequest(CONDITION), cluster_engine, progress)
    job = TableErasure(erasure, False, context.clock.now_millis(), str(tmp_path / "erased.json"))
    assert job.plan().files > 4
    done = job.run()
    assert progress.killed and done.found == () and done.engine == "spark"
    check(context.url, before, is_kept, *GONE)
    named = Inventory.take(context).paths(context)
    assert {f"{context.url}/{name}" for name in data_files(context)} <= named, "attempts leave nothing"
    assert json.loads((tmp_path / "erased.json").read_text())["proof"]["found"] == []


def test_an_executor_dies_while_a_history_is_compared(
    spark_cluster: SparkCluster, cluster_engine: SparkEngine, tmp_path: Path
) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options={"write-only": "true"})
    for number in range(6):
        write(context, [{"k": k, "v": number} for k in range(20)])
        compact(context, strategy="full")
    write(context, [{"k": 3, "v": 9}])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    newest = tuple(file for file in bucket.files if file.level == 0)
    lost = CommitMessage(bucket.partition, 0, 1, compact=FileChanges(removed=newest))  # a compaction that loses a file
    Committer(context).commit([lost], fresh_identity(context))
    progress = KillsAnExecutor(spark_cluster, "Comparing rows")
    found = run_history_check(context, HistoryCheckOptions(), None, cluster_engine, progress)
    assert progress.killed and [(a.rule, a.key) for a in found] == [("compaction-changed-rows", "k = 3")]
