"""Writes on Spark: the same rows as in this process, in Paimon's order, and no file left by a failed one."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.data_file_writer import DataFileNames, DataFileWriter
from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.datatypes.key_order import order_words, stable_order
from paimon_cli.errors import BadInput, DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.local_engine import LocalEngine
from paimon_cli.jobs.progress import NoProgress
from paimon_cli.jobs.spark_engine import SparkEngine
from paimon_cli.jobs.spark_job import Reports
from paimon_cli.jobs.spark_types import from_carrier
from paimon_cli.jobs.spark_write import Shuffle, incoming_frame, shuffle_of, sorted_frame
from paimon_cli.jobs.write_job import WriteRequest, plan_write, run_write
from paimon_cli.metadata.data_file import EMPTY_ROW
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.write.bucket_router import BucketRouter
from paimon_cli.write.sorted_rows_writer import BUCKET, PARTITION
from paimon_cli.write.write_plan import WritePlan
from tests.tables import data_files, live_files, make_table, rows

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def json_sources(folder: Path, count: int, rows_each: int, keys: int) -> WriteRequest:
    """Files whose later rows replace earlier ones."""
    for number in range(count):
        lines = (json.dumps({"k": (number * rows_each + i) % keys, "v": f"{number}/{i}"}) + "\n" for i in range(rows_each))
        (folder / f"in-{number}.jsonl").write_text("".join(lines))
    return WriteRequest((str(folder / "in-*.jsonl"),), "json")


class Steps(NoProgress):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.phases: list[list[Any]] = []

    def start(self, description: str, total: int | None) -> None:
        self.phases.append([total, 0])

    def advance(self, n: int = 1) -> None:
        self.phases[-1][1] += n


def test_several_sources_and_buckets_give_the_rows_of_a_local_write(spark_engine: SparkEngine, tmp_path: Path) -> None:
    request = json_sources(tmp_path, count=3, rows_each=2000, keys=2500)
    here, there = (make_table(tmp_path / name, COLUMNS, ["k"], bucket=5) for name in ("local", "spark"))
    steps = Steps()
    for _ in range(2):
        summary = run_write(there, request, spark_engine, steps)
        run_write(here, request, LocalEngine(), NoProgress())
    assert (summary.rows, summary.buckets, summary.engine) == (2500, 5, "spark")
    assert rows(there) == rows(here)
    assert data_files(there) == live_files(there)
    assert steps.phases == [[3, 3], [4, 4]] * 2


def test_partitioned_rows_and_an_empty_input(spark_engine: SparkEngine, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING NOT NULL", **COLUMNS}, ["p", "k"], ["p"], bucket=2)
    given = [{"p": f"p{k % 7}", "k": k, "v": "x"} for k in range(300)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    run_write(context, WriteRequest((str(tmp_path / "in.jsonl"),), "json"), spark_engine, NoProgress())
    assert rows(context) == sorted(given, key=json.dumps)
    assert len(live_files(context)) == 14
    (tmp_path / "in.jsonl").write_text("")
    summary = run_write(context, WriteRequest((str(tmp_path / "in.jsonl"),), "json"), spark_engine, NoProgress())
    assert (summary.rows, summary.files) == (0, 0)


def test_every_type_survives_the_way_through_spark(spark_engine: SparkEngine, tmp_path: Path) -> None:
    from tests.jobs.test_spark_types import VALUES

    columns: dict[str, Any] = {"k": "INT NOT NULL"}
    columns |= {
        f"c{i} `.'": json.loads(text) if text.startswith("{") else text for i, text in enumerate(VALUES) if text != "TIMESTAMP(9)"
    }
    here, there = (make_table(tmp_path / name, columns, ["k"], bucket=2) for name in ("local", "spark"))
    arrays = [pa.array(range(3), pa.int32())]
    schema = Shuffle(plan_of(here), 1, 1).rows
    values = [values for text, values in VALUES.items() if text != "TIMESTAMP(9)"]
    arrays += [pa.array(given, schema.field(name).type) for name, given in zip(list(columns)[1:], values, strict=True)]
    pq.write_table(pa.table(arrays, names=list(columns)), tmp_path / "in.parquet")
    request = WriteRequest((str(tmp_path / "in.parquet"),))
    run_write(here, request, LocalEngine(), NoProgress())
    run_write(there, request, spark_engine, NoProgress())
    assert len(rows(there)) == 3
    assert rows(there) == rows(here)


def plan_of(context: TableContext, *sources: Path) -> WritePlan:
    return plan_write(context, WriteRequest(tuple(map(str, sources))) if sources else empty_request(context))


def empty_request(context: TableContext) -> WriteRequest:
    source = Path(context.url).parent / "empty.jsonl"
    source.write_text("")
    return WriteRequest((str(source),), "json")


TRICKY: dict[str, list[Any]] = {
    "DOUBLE": [math.nan, 0.0, -0.0, math.inf, -math.inf, 5e-324, -5e-324, 1.0, -1.0],
    "FLOAT": [math.nan, 0.0, -0.0, math.inf, -math.inf, 1e-45, -1e-45],
    "STRING": ["", "a", "ab", "a\x00", "B", "é", "\uffff", "\U00010000", "z", "abcdefgh", "abcdefghi"],
    "BYTES": [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00", b"\x00\x00"],
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127, -1, 0],
    "DECIMAL(5, 2)": [Decimal("-1.00"), Decimal("0.01"), Decimal("-999.99"), Decimal("10.00"), Decimal("9.00")],
    "DECIMAL(38, 2)": [Decimal("-1.00"), Decimal(10) ** 35, -(Decimal(10) ** 35), Decimal("0.01")],
    "DATE": [datetime.date(1969, 12, 31), datetime.date(1, 1, 1), datetime.date(9999, 1, 1), datetime.date(1970, 1, 1)],
    "TIME(3)": [datetime.time(1), datetime.time(0, 0, 0, 1000), datetime.time(23)],
    "TIMESTAMP(6)": [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(1970, 1, 1),
        datetime.datetime(1, 1, 1),
    ],
}


def test_sparks_order_is_paimons_for_every_type_of_key(spark_engine: SparkEngine, tmp_path: Path) -> None:
    """One table: `kind` says which key column varies in a row, the others stand still."""
    names = {f"k{i}": text for i, text in enumerate(TRICKY)}
    context = make_table(
        tmp_path / "t", {"kind": "INT NOT NULL"} | {n: f"{t} NOT NULL" for n, t in names.items()}, ["kind", *names]
    )
    kinds = [number for number, values in enumerate(TRICKY.values()) for _ in values]
    table: dict[str, pa.Array] = {"kind": pa.array(kinds, pa.int32())}
    schema = Shuffle(plan_of(context), 1, 1).rows
    for number, (name, values) in enumerate(zip(names, TRICKY.values(), strict=True)):
        varying = iter(values)
        table[name] = pa.array([next(varying) if kind == number else values[0] for kind in kinds], schema.field(name).type)
    shuffled = np.random.default_rng(7).permutation(len(kinds))
    pq.write_table(pa.table(table).take(pa.array(shuffled)), tmp_path / "in.parquet")

    engine_session = spark_engine._spark().session
    shuffle = shuffle_of(plan_of(context, tmp_path / "in.parquet"), 2)
    reports = engine_session.sparkContext.accumulator([], Reports())
    found = sorted_frame(incoming_frame(engine_session, shuffle, reports), shuffle).toArrow().combine_chunks()
    (batch,) = shuffle.unpacked(found.to_batches())
    words = order_words([batch.column(name) for name in ("kind", *names)])
    assert batch.num_rows == len(kinds)
    assert stable_order(words).tolist() == list(range(len(kinds)))


def test_a_bad_row_is_told_as_such_and_leaves_no_file(spark_engine: SparkEngine, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2)
    request = json_sources(tmp_path, count=2, rows_each=100, keys=100)
    (tmp_path / "in-9.jsonl").write_text('{"k": 1, "v": "a"}\n{"k": null, "v": "b"}\n')
    with pytest.raises(BadInput) as told:
        run_write(context, request, spark_engine, NoProgress())
    assert told.value.details["row"] == 2
    assert told.value.details["column"] == "k"
    assert data_files(context) == set()
    assert context.snapshots.latest() is None


class PlanWithABrokenBucket(WritePlan):
    """Bucket 1 cannot be written."""

    def level_0_writer(self, partition: bytes, bucket: int, names: DataFileNames) -> DataFileWriter:
        if bucket == 1:
            raise DamagedFile("bucket 1 is broken", "this test wants it", "", bucket=bucket)
        return super().level_0_writer(partition, bucket, names)


def test_a_writer_that_fails_takes_all_files_of_the_job_with_it(spark_engine: SparkEngine, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    plan = plan_write(context, json_sources(tmp_path, count=1, rows_each=1000, keys=1000))
    broken = PlanWithABrokenBucket(**{f.name: getattr(plan, f.name) for f in fields(plan)})
    with pytest.raises(DamagedFile) as told:
        spark_engine.write_rows(broken, NoProgress())
    assert told.value.details == {"bucket": 1}
    delete_stamped_files(context, plan.file_stamp)
    assert data_files(context) == set()


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Shuffle, pa.RecordBatch]:
    """A shuffle over 2 writers and a packed batch of it."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    request = json_sources(tmp_path, count=1, rows_each=50, keys=50)
    shuffle = Shuffle(plan_write(context, request), 1, 2)
    (batch,) = shuffle.plan.incoming.read(shuffle.plan.splits[0])
    return shuffle, shuffle.packed(batch, BucketRouter(context.schema, context.options))


def test_rows_that_break_off_before_the_end_mark_are_an_error(packed: tuple[Shuffle, pa.RecordBatch]) -> None:
    shuffle, batch = packed
    wanted = range(len(shuffle.rows))
    whole = [batch.select(wanted), shuffle.end_marks().slice(0, 1).select(wanted)]
    assert sum(part.num_rows for part in shuffle.unpacked(whole)) == 50
    seen: Iterator[pa.RecordBatch] = shuffle.unpacked(whole[:1])
    assert next(seen).num_rows == 50
    with pytest.raises(EOFError):
        next(seen)


def test_all_rows_of_a_bucket_go_to_one_writer(packed: tuple[Shuffle, pa.RecordBatch]) -> None:
    shuffle, batch = packed
    writers = batch.column(shuffle.task_position).to_numpy()
    rows_of_task = from_carrier(batch.select(range(len(shuffle.rows))), shuffle.rows)
    buckets = rows_of_task.column(BUCKET).to_numpy()
    assert set(zip(buckets.tolist(), writers.tolist(), strict=True)) == {(0, 0), (1, 1), (2, 0), (3, 1)}
    assert set(rows_of_task.column(PARTITION).to_pylist()) == {EMPTY_ROW}
    assert rows_of_task.column(SEQUENCE_NUMBER).to_pylist() == list(range(50))
