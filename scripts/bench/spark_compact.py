"""`compact` on Spark, against the same tasks in this process on the same number of cores: what Spark costs beyond its start.

    python -m scripts.bench.spark_compact [--buckets 64] [--rows 100000] [--rounds 5] [--master local[2]]

Each bucket has ROWS rows in two overlapping runs. The tasks are planned once, and each call runs them; nothing is committed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import FULL_STRATEGY, plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.data_file import CommitMessage
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.process_tree import tree_cpu_seconds
from scripts.bench.spark_write import new_table, started_spark

GOAL = 1.15
RUNS = 2


def overlapping_runs(folder: Path, buckets: int, rows: int) -> TableContext:
    """A table with two level-0 files in each bucket, which share a third of their keys."""
    context = new_table(folder / "t", buckets)
    random = np.random.default_rng(5)
    count = buckets * rows // RUNS
    for _ in range(RUNS):
        keys = random.choice(2 * count, count, replace=False)
        numbers = random.random(count)
        texts = pa.array(keys).cast(pa.string())
        times = pa.array(keys).cast(pa.timestamp("us"))
        columns = [
            pa.array(keys),
            pa.array(keys.astype(np.int32)),
            numbers,
            texts,
            keys,
            times,
            numbers.astype(np.float32),
            texts,
        ]
        pq.write_table(pa.table(columns, names=context.schema.field_names), folder / "in.parquet")
        run_write(context, WriteRequest(FileRows((str(folder / "in.parquet"),))), LocalEngine(), NoProgress())
    return context


def comparison(context: TableContext, name: str, spark: Engine, here: Engine) -> Comparison:
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    tasks = [plan_bucket(context, bucket, FULL_STRATEGY, snapshot.id) for bucket in bucket_files(context, snapshot).values()]
    made: list[Path] = []

    def run_on(engine: Engine) -> None:
        chosen = [task for task in tasks if isinstance(task, CompactionTask)]
        for message in engine.run_tasks(partial(run_compaction, context), chosen):
            made.extend(paths_of(context, message))

    def reset() -> None:
        while made:
            made.pop().unlink()

    return Comparison(name, partial(run_on, spark), partial(run_on, here), GOAL, reset, tree_cpu_seconds)


def paths_of(context: TableContext, message: CommitMessage) -> list[Path]:
    return [Path(context.data_file_path(message.partition, message.bucket, file)) for file in message.compact.added]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buckets", type=int, default=64)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each bucket")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started_spark(arguments.master) as spark:
        context = overlapping_runs(Path(folder), arguments.buckets, arguments.rows)
        here = LocalEngine(spark.context.defaultParallelism)
        name = f"compact on Spark, {arguments.buckets} buckets of {arguments.rows} rows"
        met = report([comparison(context, name, SparkEngine(SparkRequest()), here)], arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
