"""Writes on Spark: the same rows as in this process, in their order, and no file left by a failed one."""

from __future__ import annotations

import datetime
import json
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.postponed_files import writer_of
from paimon_cli.bucket.stamped_files import DataFileNames, delete_stamped_files
from paimon_cli.errors import BadInput, DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.spark.chunks import Received, chunks_of, end_marks
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.write import Shuffle, reader_task
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, merge_schema
from paimon_cli.storage.injected import Step, StepTrace, SystemClock
from paimon_cli.write.write_plan import WritePlan
from tests.jobs.test_postponed_rows import BATCHES, bucket_counts, make, shown
from tests.jobs.test_postponed_rows import row as waiting
from tests.spark.canary import check_engine
from tests.tables import data_files, live_files, make_table, named_files, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def json_sources(folder: Path, count: int, rows_each: int, keys: int) -> WriteRequest:
    """Files whose later rows replace earlier ones."""
    for number in range(count):
        lines = (json.dumps({"k": (number * rows_each + i) % keys, "v": f"{number}/{i}"}) + "\n" for i in range(rows_each))
        (folder / f"in-{number}.jsonl").write_text("".join(lines))
    return WriteRequest(FileRows((str(folder / "in-*.jsonl"),), "json"))


STARTING_SPARK = [None, 0]
"""A phase of the first job of a session only."""


class Steps(NoProgress):
    """Records the reported progress."""

    def __init__(self) -> None:
        self.phases: list[list[Any]] = []

    def start(self, description: str, total: int | None) -> None:
        self.phases.append([total, 0])

    def advance(self, n: int = 1) -> None:
        self.phases[-1][1] += n


def test_several_sources_and_buckets_give_the_rows_of_a_local_write(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    request = json_sources(tmp_path, count=3, rows_each=2000, keys=2500)
    here, there = (make_table(tmp_path / name, COLUMNS, ["k"], bucket=5) for name in ("local", "spark"))
    steps = Steps()
    for _ in range(2):
        summary = run_write(there, request, any_spark_engine, steps)
        run_write(here, request, LocalEngine(), NoProgress())
    assert (summary.rows, summary.buckets, summary.engine) == (2500, 5, "spark")
    assert rows(there) == rows(here)
    assert data_files(there) == live_files(there)
    assert [phase for phase in steps.phases if phase != STARTING_SPARK] == [[3, 3], [4, 4]] * 2


def test_rows_arrive_in_their_order_however_they_are_split(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    """Many flushes of a tiny buffer: a merge that got rows out of order would keep an old one."""
    options = {"write-buffer-size": "16 kb", "write-buffer-spillable": "false", "write-only": "true"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options=options)
    run_write(context, json_sources(tmp_path, count=4, rows_each=500, keys=500), any_spark_engine, NoProgress())
    assert len(live_files(context)) > 2
    assert {row["v"] for row in rows(context)} == {f"3/{i}" for i in range(500)}


def test_a_task_that_reads_several_splits_counts_each_by_itself(tmp_path: Path) -> None:
    """So many splits share a reader task only in a large write."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2)
    plan = plan_write(context, json_sources(tmp_path, count=3, rows_each=5, keys=15), "u")
    chunks = reader_task(Shuffle(plan, 1, 2), None)(iter([pa.record_batch([pa.array([0, 1, 2])], names=["id"])]))
    received = Received([*chunks, end_marks(2)])
    assert sum(batch.num_rows for batch in received) == 15
    assert [(number, tally.rows) for number, tally in received.notes] == [(0, 5), (1, 5), (2, 5)]  # type: ignore[union-attr]


@pytest.mark.in_part(2)
def test_partitioned_rows_and_an_empty_input(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING NOT NULL", **COLUMNS}, ["p", "k"], ["p"], bucket=2)
    given = [{"p": f"p{k % 7}", "k": k, "v": "x"} for k in range(300)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    run_write(context, WriteRequest(FileRows((str(tmp_path / "in.jsonl"),), "json")), any_spark_engine, NoProgress())
    assert rows(context) == sorted(given, key=json.dumps)
    assert len(live_files(context)) == 14
    (tmp_path / "in.jsonl").write_text("")
    summary = run_write(context, WriteRequest(FileRows((str(tmp_path / "in.jsonl"),), "json")), any_spark_engine, NoProgress())
    assert (summary.rows, summary.files) == (0, 0)


TIME, STAMP = datetime.time(23, 59, 59, 999000), datetime.datetime(1, 1, 1, 0, 0, 0, 1000)
NESTED_ROW = """{"type": "ROW", "fields": [
    {"id": 90, "name": "a", "type": "TIME(3)"},
    {"id": 91, "name": "b", "type": {"type": "ARRAY", "element": {"type": "ROW", "fields": [
        {"id": 92, "name": "c", "type": "DATE"}, {"id": 93, "name": "d", "type": "INT NOT NULL"}]}}}]}"""
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, None, False],
    "TINYINT": [-128, None, 127],
    "BIGINT": [-(2**63), None, 2**63 - 1],
    "FLOAT": [-0.0, None, 1.5],
    "DECIMAL(38, 10)": [Decimal("-1234567890123456789012345678.0123456789"), None, Decimal(0)],
    "CHAR(3)": ["\U00010000", None, ""],
    "BINARY(2)": [b"\xff\x00", None, b""],
    "DATE": [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)],
    "TIME(3)": [TIME, None, datetime.time()],
    "TIMESTAMP(3)": [STAMP, None, datetime.datetime(9999, 12, 31)],
    "TIMESTAMP(6)": [STAMP, None, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc), None, None],
    '{"type":"ARRAY","element":"TIME(3) NOT NULL"}': [[TIME, TIME], None, []],
    '{"type":"MAP","key":"STRING","value":"TIMESTAMP(3)"}': [[("a", STAMP), ("b", None)], None, []],
    '{"type":"MULTISET","element":"DATE"}': [[(datetime.date(2024, 2, 29), 2)], None, []],
    NESTED_ROW: [{"a": TIME, "b": [{"c": None, "d": 1}]}, None, {"a": None, "b": None}],
}


@pytest.mark.in_part(2)
def test_every_type_survives_the_way_through_spark(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    columns: dict[str, Any] = {"k": "INT NOT NULL"}
    columns |= {f"c{i} `.'": json.loads(text) if text.startswith("{") else text for i, text in enumerate(VALUES)}
    here, there = (make_table(tmp_path / name, columns, ["k"], bucket=2) for name in ("local", "spark"))
    schema = merge_schema(here.schema)
    arrays = {"k": pa.array(range(3), pa.int32())}
    arrays |= {
        name: pa.array(given, schema.field(name).type) for name, given in zip(list(columns)[1:], VALUES.values(), strict=True)
    }
    pq.write_table(pa.table(arrays), tmp_path / "in.parquet")
    request = WriteRequest(FileRows((str(tmp_path / "in.parquet"),)))
    run_write(here, request, LocalEngine(), NoProgress())
    run_write(there, request, any_spark_engine, NoProgress())
    assert len(rows(there)) == 3
    assert rows(there) == rows(here)


def test_a_bad_row_is_reported_and_leaves_no_file(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2)
    request = json_sources(tmp_path, count=2, rows_each=100, keys=100)
    (tmp_path / "in-9.jsonl").write_text('{"k": 1, "v": "a"}\n{"k": null, "v": "b"}\n')
    with pytest.raises(BadInput) as failure:
        run_write(context, request, any_spark_engine, NoProgress())
    assert failure.value.details["row"] == 2
    assert failure.value.details["column"] == "k"
    assert data_files(context) == set()
    assert context.snapshots.latest() is None


def test_the_first_of_several_bad_rows_is_reported_when_rows_go_through_files(spark_engine: SparkEngine, tmp_path: Path) -> None:
    """The first in the order of the input, as in a local write, whichever task found one first."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2)
    request = json_sources(tmp_path, count=4, rows_each=1000, keys=100)
    for number in (1, 2, 3):
        with (tmp_path / f"in-{number}.jsonl").open("a") as source:
            source.write('{"k": null, "v": "bad"}\n')
    with pytest.raises(BadInput) as failure:
        run_write(context, request, spark_engine, NoProgress())
    assert str(failure.value.details["source"]).endswith("in-1.jsonl")
    assert data_files(context) == set()


class PlanWithABrokenBucket(WritePlan):
    """A plan with which bucket 1 cannot be written."""

    def level_0_writer(self, bucket_id: BucketId, names: DataFileNames) -> DataFileWriter:
        if bucket_id.bucket == 1:
            raise DamagedFile("bucket 1 is broken", "this test wants it", "", bucket=bucket_id.bucket)
        return super().level_0_writer(bucket_id, names)


def test_a_writer_that_fails_removes_all_files_of_the_job(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    plan = plan_write(context, json_sources(tmp_path, count=1, rows_each=1000, keys=1000))
    broken = PlanWithABrokenBucket(**{f.name: getattr(plan, f.name) for f in fields(plan)})
    with pytest.raises(DamagedFile) as failure:
        any_spark_engine.write_rows(broken, {}, NoProgress())
    assert failure.value.details == {"bucket": 1}
    delete_stamped_files(context, plan.file_stamp)
    assert data_files(context) == set()


@pytest.fixture
def routed(tmp_path: Path) -> tuple[Shuffle, pa.RecordBatch]:
    """A shuffle over 2 writers and 50 rows of it as chunks."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    shuffle = Shuffle(plan_write(context, json_sources(tmp_path, count=1, rows_each=50, keys=50)), 1, 2)
    (batch,) = shuffle.plan.incoming.read(shuffle.plan.splits[0], Tally())
    return shuffle, chunks_of(shuffle.first_pieces(batch, shuffle.first_router()))


def test_a_chunk_holds_all_rows_of_a_writers_buckets_as_they_arrived(routed: tuple[Shuffle, pa.RecordBatch]) -> None:
    shuffle, chunks = routed
    assert chunks.column("task").to_pylist() == [0, 1]
    arrivals = []
    for writer, rows_of_writer in enumerate(Received([chunks, end_marks(2)])):
        buckets = shuffle.plan.router().route(rows_of_writer).buckets
        assert set(buckets.tolist()) == {writer, writer + 2}
        arrivals.append(rows_of_writer.column(SEQUENCE_NUMBER).to_pylist())
        assert arrivals[-1] == sorted(arrivals[-1])
    assert chunks.column("arrival").to_pylist() == [arrived[0] for arrived in arrivals]
    assert sorted(arrivals[0] + arrivals[1]) == list(range(50))


@pytest.mark.in_part(2)
def test_tasks_compact_beside_and_hand_their_steps_and_figures_over(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    request = replace(json_sources(tmp_path, count=3, rows_each=2000, keys=2500), compact="async")
    options = {"write-buffer-size": "8 kb", "write-buffer-spillable": "false"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=3, options=options)
    steps: list[Step] = []
    summary = run_write(replace(context, trace=StepTrace(SystemClock(), steps.append)), request, any_spark_engine, NoProgress())
    assert len(rows(context)) == 2500
    assert data_files(context) == named_files(context)
    assert (summary.compacted, len(summary.snapshots)) == (3, 2)
    assert summary.buffer_size == 8192 and 0 < summary.buffer_peak <= 8192
    flushes = [step for step in steps if step.name == "flush"]
    assert len(flushes) == summary.flushes > 6
    assert {step.facts["bucket"] for step in flushes} == {"bucket-0", "bucket-1", "bucket-2"}
    assert {"pick", "rewrite", "snapshot"} <= {step.name for step in steps}
    write(context, [{"k": 0, "v": "new"}], compact="none")  # the writers may have compacted all there was
    compacted: list[Step] = []
    run_compact(
        replace(context, trace=StepTrace(SystemClock(), compacted.append)), CompactRequest(), any_spark_engine, NoProgress()
    )
    assert "snapshot" in {step.name for step in compacted}


def test_rows_are_postponed_without_a_shuffle_and_distributed_with_one(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    context = make(tmp_path / "t", postpone__target_row_num_per_bucket="40")
    sources = []
    for part in range(4):
        path = tmp_path / f"{part}.jsonl"
        path.write_text("".join(json.dumps(waiting(key, part, dt)) + "\n" for key in range(50) for dt in "ab"))
        sources.append(str(path))
    request = WriteRequest(FileRows(tuple(sources), "json"), parallelism=4)
    assert run_write(context, request, any_spark_engine, NoProgress()).rows == 400
    writers = {writer_of(name.rpartition("/")[2]) for name in data_files(context)}
    assert len(writers) > 1, "tasks that wrote what they read"
    run_compact(context, CompactRequest(), any_spark_engine, NoProgress())
    assert shown(context) == sorted((waiting(key, 3, dt) for key in range(50) for dt in "ab"), key=json.dumps)
    assert bucket_counts(context) == {"dt=a/": {5}, "dt=b/": {5}} and len(live_files(context)) == 10
    run_write(TableContext.open(context.url, BATCHES), replace(request, overwrite=True), any_spark_engine, NoProgress())
    assert bucket_counts(context) == {"dt=a/": {8}, "dt=b/": {8}} and len(shown(context)) == 100
    assert data_files(context) == named_files(context) and not any("postpone" in name for name in live_files(context))


@pytest.mark.in_part(2)
def test_texts_in_files_and_names_are_never_believed(any_spark_engine: SparkEngine, tmp_path: Path) -> None:
    check_engine(any_spark_engine, tmp_path, brief=False)
