"""Tables as DataFrames, against Spark's own reading of the same files; all rows go into the sink `noop`.

    python -m scripts.bench.spark_read [--rows 2000000] [--rounds 5] [--master local[2]] [--only TEXT]

There are two compacted tables. In one, 5 % of the rows were deleted after it was compacted, so its files have deletion vectors.
A third has a tenth of the rows in 300 buckets, and half of them were replaced later, so that all files must be merged. The floor
is `spark.read.parquet` of the same columns of the files, which includes deleted and replaced rows. Each comparison has a session
of its own, because the JVM compiles more and more of what both sides need, and the order of comparisons would change the ratios.

Where Spark itself sets a limit, the read is also compared with the least that Spark takes: for a Python data source, one that
only passes on batches which lie ready; for deleted rows, a plain test of row numbers. The last line of each is that limit
against the floor.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from paimon_cli import Table
from paimon_cli.spark import read
from paimon_cli.spark.worker_rows import read_partition, split_partitions
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.passes_on import PassesOn
from scripts.bench.process_tree import tree_cpu_seconds
from scripts.bench.spark_write import BUCKETS, COLUMNS, ROWS_OF_BATCH, SPARKS_OWN_JVM, source, started_spark

CONFS = {**SPARKS_OWN_JVM, ROWS_OF_BATCH: "10000"}
DELETED = 0.05
WARM_UPS = 8
GOAL_OF_LEAST = 1.3
NUMBER_IN_FILE = "_metadata.row_index"
WHOLE, NARROW, SELECTIVE = tuple(COLUMNS), ("a",), "a = 7"
SMALL_BUCKETS = 300


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


def write_batches(table: Table, schema: StructType, folder: Path) -> Path:
    """The batches that `format("paimon")` sends to Spark, in files for `PassesOn`."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(split_partitions(table.scan(columns=schema.names).rows)):
        with pa.ipc.new_file(folder / f"{number}.arrow", to_arrow_schema(schema, timezone="UTC")) as writer:
            for batch in read_partition(part, schema):
                writer.write_batch(batch)
    return folder


def passed_on(session: SparkSession, case: Case, schema: StructType) -> DataFrame:
    """Batches that lie ready, through a Python data source: no source in Python takes less."""
    session.dataSource.register(PassesOn)
    folder = Path(case.table.url).with_name(f"batches of {case.name}")
    if not folder.exists():
        write_batches(case.table, schema, folder)
    return session.read.format("passes_on").schema(schema).load(str(folder))


def left_out(session: SparkSession, case: Case, schema: StructType) -> DataFrame:
    """As many rows left out by a plain test of their numbers: no test of a bitmap takes less."""
    rows = session.read.schema(schema).parquet(*live_files(case.table))
    return rows.where(f"{NUMBER_IN_FILE} % {round(1 / DELETED)} <> 0")


@dataclass(frozen=True)
class Case:
    """A way to read a table. The floor reads `columns` of the table's files, and applies `where` to them.

    `least`: what Spark needs for the same without this package; it is compared with the subject, and with the floor.
    """

    name: str
    goal: float
    table: Table
    columns: tuple[str, ...]
    frame: Callable[[SparkSession, str], DataFrame]
    where: str | None = None
    least: Callable[[SparkSession, Case, StructType], DataFrame] | None = None

    def comparisons(self, session: SparkSession) -> Iterator[Comparison]:
        paths, needed = live_files(self.table), None if self.where is not None else self.columns
        schema = read(session, self.table.url, needed).schema

        def floor() -> None:
            found = session.read.schema(schema).parquet(*paths)
            all_rows((found if self.where is None else found.where(self.where)).select(*self.columns))

        def subject() -> None:
            all_rows(self.frame(session, self.table.url))

        def compared(name: str, subject: Callable[[], None], floor: Callable[[], None], goal: float | None) -> Comparison:
            return Comparison(name, subject, floor, goal, cpu_seconds=tree_cpu_seconds, warm_ups=WARM_UPS)

        yield compared(self.name, subject, floor, self.goal)
        if (of_spark := self.least) is not None:

            def least() -> None:
                all_rows(of_spark(session, self, schema))

            words = of_spark.__name__.replace("_", " ")
            yield compared(f"{self.name}, against rows {words}", subject, least, GOAL_OF_LEAST)
            yield compared(f"{self.name}, rows {words}", least, floor, None)


def cases(folder: Path, rows: int) -> list[Case]:
    given = source(folder / "in.parquet", rows)
    plain = new_table(folder / "plain", given, {})
    marked = with_deleted_rows(new_table(folder / "marked", given, {"deletion-vectors.enabled": "true"}), rows)
    small = small_buckets(folder / "small", rows // 10)

    def narrow(session: SparkSession, url: str) -> DataFrame:
        return read(session, url, NARROW)

    def selective(session: SparkSession, url: str) -> DataFrame:
        return read(session, url).where(SELECTIVE)

    def by_format(session: SparkSession, url: str) -> DataFrame:
        return session.read.format("paimon").load(url)

    def by_schema(session: SparkSession, url: str) -> DataFrame:
        return session.read.format("paimon").schema("a int").load(url)

    all_of_small = tuple(small.context.schema.field_names)
    return [
        Case("read, all columns", 1.1, plain, WHOLE, read),
        Case("read, one column", 1.1, plain, NARROW, narrow),
        Case("read, selective filter", 1.1, plain, WHOLE, selective, SELECTIVE),
        Case("read, 5 % deleted, all columns", 1.2, marked, WHOLE, read, least=left_out),
        Case("read, 5 % deleted, one column", 1.7, marked, NARROW, narrow, least=left_out),
        Case("format, all columns", 1.4, plain, WHOLE, by_format, least=passed_on),
        Case("format, one column by user schema", 1.6, plain, NARROW, by_schema, least=passed_on),
        Case("read, small buckets", 1.0, small, all_of_small, read),
        Case("format, small buckets", 1.0, small, all_of_small, by_format),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only what has TEXT in its name")
    arguments = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(Path(folder), arguments.rows):
            if arguments.only in case.name:
                with started_spark(arguments.master, CONFS) as spark:
                    met &= report(case.comparisons(spark.session), arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
