"""`write` on Spark and `paimon_cli.spark.write`, against Spark alone: read, repartition by bucket, sort, write Parquet.

    python -m scripts.bench.spark_write [--rows 10000000] [--rounds 5] [--master local[2]] [--only TEXT]

Both run in one session, whose start is measured separately. Its JVM has Spark's default compiler settings, because those of
paimon-cli would slow down the floor. The floor writes the same rows in the same order with the same compression; it computes no
statistics and no sequence numbers, and does not merge equal keys.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from paimon_cli import spark
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import RunningSpark, SparkRequest, start_spark
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_schema import TableSchema
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.process_tree import tree_cpu_seconds

GOAL, GOAL_OF_FRAMES = 1.3, 1.0
BUCKETS = 4
ROW_GROUP = 500_000
SPARKS_OWN_JVM = {"spark.driver.defaultJavaOptions": "-XX:+TieredCompilation"}
ROWS_OF_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
COLUMNS = {
    "id": "BIGINT NOT NULL",
    "a": "INT",
    "b": "DOUBLE",
    "c": "STRING",
    "d": "BIGINT",
    "ts": "TIMESTAMP(6)",
    "e": "FLOAT",
    "u": "STRING",
}


def source(path: Path, rows: int) -> Path:
    """`rows` different keys in random order, as Parquet."""
    random = np.random.default_rng(1)
    keys = random.permutation(rows)
    writer = None
    for start in range(0, rows, ROW_GROUP):
        ids = keys[start : start + ROW_GROUP]
        count = len(ids)
        columns = [
            pa.array(ids),
            pa.array(random.integers(0, 1000, count).astype(np.int32)),
            pa.array(random.random(count)),
            _named("name-", random.integers(0, 5000, count)),
            pa.array(random.integers(0, 10**12, count)),
            pa.array(random.integers(1_500_000_000_000_000, 1_700_000_000_000_000, count)).cast(pa.timestamp("us")),
            pa.array(random.random(count).astype(np.float32)),
            _named("user-", ids),
        ]
        table = pa.table(columns, names=list(COLUMNS))
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=ROW_GROUP)
    if writer is not None:
        writer.close()
    return path


def _named(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def new_table(folder: Path, buckets: int = BUCKETS) -> TableContext:
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    options = {"bucket": str(buckets), "file.format": "parquet", "write-only": "true"}
    (folder / "schema").mkdir(parents=True)
    (folder / "schema" / "schema-0").write_text(TableSchema(0, fields, 7, (), ("id",), options, None, 0).to_json())
    return TableContext.open(str(folder))


def comparisons(session: SparkSession, folder: Path, rows: int) -> Iterator[Comparison]:
    given = source(folder / "in.parquet", rows)
    engine = SparkEngine(SparkRequest())  # it uses the existing session

    def write() -> None:
        summary = run_write(new_table(folder / "t"), WriteRequest(FileRows((str(given),))), engine, NoProgress())
        assert (summary.rows, summary.buckets) == (rows, BUCKETS)

    def write_frame() -> None:
        summary = spark.write(session.read.parquet(str(given)), new_table(folder / "t").url)
        assert (summary.rows, summary.buckets) == (rows, BUCKETS)

    def spark_alone() -> None:
        parted = session.read.parquet(str(given)).repartitionById(BUCKETS, F.expr(f"cast(pmod(hash(id), {BUCKETS}) as int)"))
        written = parted.sortWithinPartitions("id").write.option("compression", "zstd")
        written.option("parquet.compression.codec.zstd.level", "1").parquet(str(folder / "alone"))

    def reset() -> None:
        for name in ("t", "alone"):
            shutil.rmtree(folder / name, ignore_errors=True)

    yield Comparison(f"write on Spark, {rows} rows", write, spark_alone, GOAL, reset, tree_cpu_seconds)
    session.conf.set(ROWS_OF_BATCH, "10000")  # Spark's default; paimon-cli's own sessions never write DataFrames
    name = f"write of a DataFrame, {rows} rows"
    yield Comparison(name, write_frame, spark_alone, GOAL_OF_FRAMES, reset, tree_cpu_seconds)


@contextmanager
def started_spark(master: str, confs: Mapping[str, str] | None = None) -> Iterator[RunningSpark]:
    """A session that all engines in this process use, in a JVM of its own. Prints what its start took."""
    cpu, wall = tree_cpu_seconds(), time.perf_counter()
    running = start_spark(SparkRequest(master, confs or {}))
    seconds = {"wall": round(time.perf_counter() - wall, 2), "cpu": round(tree_cpu_seconds() - cpu, 2)}
    print(f"start of the Spark session: {seconds['wall']} s, {seconds['cpu']} s of CPU", file=sys.stderr)
    print(json.dumps({"name": "start of the Spark session", **seconds}), flush=True)
    try:
        yield running
    finally:
        running.stop()
        _end_jvm()


def _end_jvm() -> None:
    """End the JVM, which PySpark would use for the next session of this process, with all that it has compiled."""
    gateway = SparkContext._gateway
    assert gateway is not None, "a session was started"
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only what has TEXT in its name")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started_spark(arguments.master, SPARKS_OWN_JVM) as running:
        met = report(comparisons(running.session, Path(folder), arguments.rows), arguments.rounds, arguments.only)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
