"""`format("paimon")` beside other writers that assign keys to buckets between the distribution of the rows and their commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from paimon_cli import Table
from paimon_cli.errors import BucketsConflict, DataConflict
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.postponed_rows import write_postponed
from paimon_cli.jobs.spark.tasks import TASK_END_SECONDS
from paimon_cli.spark import source_writing
from paimon_cli.spark.data_source import PaimonDataSource
from paimon_cli.spark.source_options import SourceOptions
from paimon_cli.spark.source_writing import BatchWriter, StreamWriter, batch_writer
from paimon_cli.storage.injected import SystemClock, SystemRandom
from paimon_cli.write.write_plan import WritePlan
from tests.rivals import RivalStorage, beside
from tests.tables import data_files, make_table, named_files

COLUMNS = {"id": "BIGINT NOT NULL", "p": "STRING", "qty": "INT"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "dynamic": ([], {"dynamic-bucket.target-row-num": "3"}),
    "keys across partitions": (["p"], {}),
}
"""Partition keys and options of tables with the primary key `id` whose new keys have to be assigned."""
Rows = list[tuple[Any, ...]]


@pytest.fixture(params=KINDS)
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """Keys 0 to 9, with quantity 0."""
    partitions, options = KINDS[request.param]
    table = Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], partitions, bucket=-1, options=options).url)
    table.write(arrow(range(10), "old", 0))
    return table


def arrow(ids: range, partition: str, qty: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": [partition] * len(ids), "qty": pa.array([qty] * len(ids), pa.int32())})


def rows_of(table: Table) -> Rows:
    return sorted(tuple(row.values()) for row in table.scan(["id", "p", "qty"]).to_arrow().to_pylist())


EXPECTED = [
    *((n, "old", 0) for n in range(10)),
    *((n, "ours", 1) for n in range(20, 40)),
    *((n, "rival", 2) for n in range(40, 45)),
]


def check_sound(table: Table) -> None:
    """No key is in two buckets or partitions, all files are named by a snapshot, and the directory of temporary ones is gone."""
    assert table.verify(level="full").errors == 0
    assert data_files(table.context) == named_files(table.context)
    assert list(Path(table.url).glob("**/bucket-postpone")) == []
    assert table.plan_orphans(older_than="0 s", force=True).plan.files == []


def register_with_rival(session: SparkSession, url: str, log: Path) -> None:
    """Register a data source named `beside-a-rival`. Before the first publication of its first commit a rival adds keys 30 to 44.

    Each commit adds a line to `log`, with the number of its publications. Spark pickles the classes for its processes.
    """

    @contextmanager
    def overtaken(writer: BatchWriter | StreamWriter) -> Iterator[None]:
        acts = [] if log.exists() else [lambda: Table.open(url).write(arrow(range(30, 45), "rival", 2))]
        storage = RivalStorage(*acts)
        writer.plan = replace(writer.plan, context=TableContext.open(url, storage=storage))
        yield
        with log.open("a") as lines:
            print(storage.puts, file=lines)

    class Batch(BatchWriter):
        def commit(self, messages: Any) -> None:
            with overtaken(self):
                super().commit(messages)

    class Stream(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            with overtaken(self):
                super().commit(messages, batchId)

    class BesideRival(PaimonDataSource):
        @classmethod
        def name(cls) -> str:
            return "beside-a-rival"

        def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
            planned = super().writer(schema, overwrite)
            assert isinstance(planned, BatchWriter)
            return Batch(planned.plan, planned.request)

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            planned = super().streamWriter(schema, overwrite)
            assert isinstance(planned, StreamWriter)
            return Stream(planned.plan, planned.request)

    session.createDataFrame([(0,)], "n int")  # makes it the active session, in which Spark looks up the names of sources
    session.dataSource.register(BesideRival)


@pytest.mark.in_part(2)
def test_a_batch_assigns_again_what_a_rival_has_assigned(session: SparkSession, table: Table, tmp_path: Path) -> None:
    """Of keys 30 to 39, which both writers add, the rows of the later commit win, in the buckets that the rival has chosen."""
    log = tmp_path / "log"
    register_with_rival(session, table.url, log)
    rows = session.range(20, 40, 1, 4).selectExpr("id", "'ours' AS p", "1 AS qty")
    rows.write.format("beside-a-rival").mode("append").save(table.url)
    assert rows_of(table) == EXPECTED
    assert log.read_text() == "2\n", "one publication met the rival, and the next one succeeded"
    check_sound(table)
    rows.write.format("beside-a-rival").mode("append").save(table.url)
    assert rows_of(table) == EXPECTED and log.read_text() == "2\n1\n"
    check_sound(table)


@pytest.mark.in_part(2)
def test_a_micro_batch_assigns_again_what_a_rival_has_assigned(session: SparkSession, table: Table, tmp_path: Path) -> None:
    """Repeated by Spark after that, it does nothing."""
    log, checkpoint, source = tmp_path / "log", tmp_path / "checkpoint", tmp_path / "source"
    register_with_rival(session, table.url, log)
    register_with_rival(session, table.url, log)
    source.mkdir()
    for part in range(4):
        lines = (f'{{"id": {id}, "p": "ours", "qty": 1}}\n' for id in range(20 + part, 40, 4))
        (source / f"{part}.json").write_text("".join(lines))
    for publications in ("2\n", "2\n0\n"):
        stream = session.readStream.schema("id long, p string, qty int").json(str(source)).repartition(4)
        writer = stream.writeStream.format("beside-a-rival").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(table.url).awaitTermination()
        assert rows_of(table) == EXPECTED
        assert log.read_text() == publications
        check_sound(table)
        for name in ("0", ".0.crc"):
            (checkpoint / "commits" / name).unlink()
    assert table.snapshots()[0].commit_identifier == 0


def writer_of(table: Table, **options: str) -> BatchWriter:
    """A write of a DataFrame with the columns of the table, planned at the latest snapshot."""
    fields = [StructField("id", LongType(), False), StructField("p", StringType()), StructField("qty", IntegerType())]
    writer = batch_writer(SourceOptions.of({"path": table.url, **options}), StructType(fields), overwrite=False)
    assert isinstance(writer, BatchWriter)
    return writer


def batch(ids: range, partition: str, qty: int) -> Iterator[pa.RecordBatch]:
    return iter(arrow(ids, partition, qty).to_batches())


def test_two_writes_that_have_planned_on_the_same_snapshot(table: Table) -> None:
    """The second one assigns its new keys on top of those of the first."""
    first, second = writer_of(table), writer_of(table)
    messages = [first.written(batch(range(20, 40), "first", 1))]
    others = [second.written(batch(range(30, 45), "second", 2)), second.written(batch(range(20, 21), "second", 3))]
    first.commit([*messages])
    second.commit([*others])
    ours = [(20, "second", 3), *((n, "first", 1) for n in range(21, 30)), *((n, "second", 2) for n in range(30, 45))]
    assert rows_of(table) == [*((n, "old", 0) for n in range(10)), *ours]
    check_sound(table)


def test_a_commit_whose_snapshot_has_expired_is_planned_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash indexes, and files in which keys are looked up, are gone with their snapshot: the table is not damaged."""
    writer, plans = writer_of(table), []
    messages = [writer.written(batch(range(20, 40), "ours", 1))]

    def after_expiry(plan: WritePlan, *given: Any) -> Any:
        plans.append(plan)
        if len(plans) == 1:
            table.write(arrow(range(30, 45), "rival", 2))
            table.compact()
            assert table.expire(retain_max=1, retain_min=1, older_than="0 s").removed
        return write_postponed(plan, *given)

    monkeypatch.setattr(source_writing, "write_postponed", after_expiry)
    writer.commit([*messages])
    assert len(plans) == 2
    assert rows_of(table) == EXPECTED
    check_sound(table)


def test_rivals_without_end_are_a_conflict_that_leaves_no_file(table: Table) -> None:
    writer = writer_of(table)
    messages = [writer.written(batch(range(20, 40), "ours", 1))]
    rivals = [lambda n=n: table.write(arrow(range(30 + n, 31 + n), "rival", 2)) for n in range(10)]
    writer.plan = replace(writer.plan, context=beside(table.context, *rivals, options={"commit.max-retry-wait": "1 ms"}))
    with pytest.raises(BucketsConflict, match="10 attempts"):
        writer.commit([*messages])
    writer.abort([*messages])
    assert rows_of(table) == [*((n, "old", 0) for n in range(10)), *((n, "rival", 2) for n in range(30, 40))]
    check_sound(table)


class LateTask(SystemClock):
    """A task goes on while the others are waited for."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if seconds:
            self.act()


def test_files_of_a_task_that_ends_after_the_failure_are_deleted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_writing, "TASK_END_SECONDS", TASK_END_SECONDS)
    writer = writer_of(table)
    message = writer.written(batch(range(20, 30), "ours", 1))
    late = LateTask(lambda: writer.written(batch(range(30, 40), "ours", 1)))
    writer.plan = replace(writer.plan, context=replace(writer.plan.context, clock=late))
    writer.abort([message, None])
    assert late.sleeps == [0, TASK_END_SECONDS]
    check_sound(table)


def test_a_refused_commit_leaves_no_files(table: Table) -> None:
    """A conflict of data stays one: the rows were read before the other commit."""
    writer = writer_of(table, **{"commit.data-conflict-check": "key"})
    messages = [writer.written(batch(range(20, 23), "ours", 1))]
    table.write(arrow(range(22, 23), "ours", 9))
    with pytest.raises(DataConflict):
        writer.commit([*messages])
    writer.abort([*messages])
    assert rows_of(table) == [*((n, "old", 0) for n in range(10)), (22, "ours", 9)]
    check_sound(table)


class FewDigits(SystemRandom):
    """UUIDs whose first 16 digits are always the same."""

    def uuid(self) -> str:
        return f"00000000-0000-4000-{super().uuid()[19:]}"


@pytest.mark.parametrize("bucket", [1, -1])
def test_attempts_of_a_batch_whose_random_digits_are_equal(tmp_path: Path, bucket: int) -> None:
    """A stamp has room for few of them. No clean-up by stamp deletes what another attempt or the commit itself has written."""
    made = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=bucket)
    table = Table.open(made.url)
    for _ in range(2):
        planned = writer_of(table)
        plan = replace(planned.plan, context=replace(made, random=FewDigits()), file_stamp="0" * 16)
        writer = StreamWriter(plan, planned.request)
        message = writer.written(batch(range(3), "p", 1), "query", "ba7c4" * 2 + "00")
        writer.commit([message], 0)
        assert rows_of(table) == [(n, "p", 1) for n in range(3)]
        check_sound(table)
    assert len(table.snapshots()) == 1
