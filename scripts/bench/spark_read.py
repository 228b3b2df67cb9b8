"""Tables as DataFrames, against Spark's own reading of the same files; all rows go into the sink `noop`.

    python -m scripts.bench.spark_read [--rows 2000000] [--rounds 5] [--master local[2]] [--only TEXT]

There are two compacted tables. In one, 5 % of the rows were deleted after it was compacted, so its files have deletion vectors.
A third has a tenth of the rows in 300 buckets, and half of them were replaced later, so that all files must be merged. The floor
is `spark.read.parquet` of the same columns of the files, which includes deleted and replaced rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from paimon_cli import Table
from paimon_cli.spark import read
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.process_tree import tree_cpu_seconds
from scripts.bench.spark_write import BUCKETS, COLUMNS, ROWS_OF_BATCH, SPARKS_OWN_JVM, source, started_spark

CONFS = {**SPARKS_OWN_JVM, ROWS_OF_BATCH: "10000"}
DELETED = 0.05
WARM_UPS = 8
WHOLE, NARROW, SELECTIVE = tuple(COLUMNS), ("a",), "a = 7"
SMALL_BUCKETS = 300
ROWS_OF_SOURCE, ONE_BY_SCHEMA = "format, all columns", "format, one column by user schema"


def new_table(folder: Path, given: Path, options: dict[str, str]) -> Table:
    columns = [f"{name} {type}" for name, type in COLUMNS.items()]
    table = Table.create(str(folder), columns=columns, primary_key=["id"], bucket=BUCKETS, options=options)
    table.write(str(given), compact="none")
    table.compact(strategy="full")
    return table


def with_deleted_rows(table: Table, rows: int) -> Table:
    ids = np.random.default_rng(5).choice(rows, int(rows * DELETED), replace=False)
    table.write(pa.table({"id": ids}), op="delete")
    return table


def small_buckets(folder: Path, rows: int) -> Table:
    table = Table.create(str(folder), columns=["id bigint", "a int", "s string"], primary_key=["id"], bucket=SMALL_BUCKETS)
    for step in (1, 2):
        ids = np.arange(0, rows, step)
        texts = pa.array(ids).cast(pa.string())
        table.write(pa.table({"id": ids, "a": ids.astype(np.int32), "s": texts}), compact="none")
    return table


def live_files(table: Table) -> list[str]:
    return [
        f"file://{table.context.data_file_path(*s.bucket.bucket_id, f)}" for s in table.scan().rows.plan.splits for f in s.files
    ]


def all_rows(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def comparisons(session: SparkSession, folder: Path, rows: int) -> Iterator[Comparison]:
    given = source(folder / "in.parquet", rows)
    plain = new_table(folder / "plain", given, {})
    marked = with_deleted_rows(new_table(folder / "marked", given, {"deletion-vectors.enabled": "true"}), rows)

    def against(
        name: str, table: Table, subject: Callable[[], DataFrame], columns: Sequence[str], where: str | None, goal: float
    ) -> Comparison:
        paths = live_files(table)
        schema = read(session, table.url, columns).schema

        def floor() -> None:
            found = session.read.schema(schema if where is None else read(session, table.url).schema).parquet(*paths)
            all_rows((found if where is None else found.where(where)).select(*columns))

        return Comparison(name, lambda: all_rows(subject()), floor, goal, cpu_seconds=tree_cpu_seconds, warm_ups=WARM_UPS)

    yield against("read, all columns", plain, lambda: read(session, plain.url), WHOLE, None, 1.1)
    yield against("read, one column", plain, lambda: read(session, plain.url, NARROW), NARROW, None, 1.1)
    yield against("read, selective filter", plain, lambda: read(session, plain.url).where(SELECTIVE), WHOLE, SELECTIVE, 1.1)
    yield against("read, 5 % deleted, all columns", marked, lambda: read(session, marked.url), WHOLE, None, 1.7)
    yield against("read, 5 % deleted, one column", marked, lambda: read(session, marked.url, NARROW), NARROW, None, 3.5)
    source_rows = session.read.format("paimon")
    yield against(ROWS_OF_SOURCE, plain, lambda: source_rows.load(plain.url), WHOLE, None, 2.0)
    small = small_buckets(folder / "small", rows // 10)
    columns = tuple(small.context.schema.field_names)
    yield against("read, small buckets", small, lambda: read(session, small.url), columns, None, 1.0)
    yield against("format, small buckets", small, lambda: source_rows.load(small.url), columns, None, 1.0)
    yield against(ONE_BY_SCHEMA, plain, lambda: session.read.format("paimon").schema("a int").load(plain.url), NARROW, None, 2.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only what has TEXT in its name")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started_spark(arguments.master, CONFS) as spark:
        met = report(list(comparisons(spark.session, Path(folder), arguments.rows)), arguments.rounds, arguments.only)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
