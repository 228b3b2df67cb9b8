"""`paimon_cli.spark.ingest` of Debezium events into one table, against Spark reading the same JSON and writing it as Parquet.

    python -m scripts.bench.spark_ingest [--events 2000000] [--files 8] [--rounds 5] [--master local[2]]

Both read the files as a stream that ends (`availableNow`), in four batches and one session. The floor parses the images after the
change with the schema of the table, and neither sorts nor merges them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paimon_cli import Table
from paimon_cli import spark as paimon
from scripts.bench.event_files import write_events
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.process_tree import tree_cpu_seconds
from scripts.bench.spark_write import ROWS_OF_BATCH, SPARKS_OWN_JVM, started_spark

GOAL, BATCHES = 2.0, 4
COLUMNS = {
    "id": "BIGINT NOT NULL",
    "customer": "BIGINT",
    "name": "STRING",
    "price": "DOUBLE",
    "active": "BOOLEAN",
    "created": "BIGINT",
    "note": "STRING",
    "city": "STRING",
    "quantity": "INT",
}


def comparisons(session: SparkSession, folder: Path, events: int, files: int) -> Iterator[Comparison]:
    source, each = folder / "events", events // files
    source.mkdir()
    for number in range(files):
        write_events(source / f"{number}.json", "debezium", each, 1, first=number * each)
    session.conf.set(ROWS_OF_BATCH, "10000")  # Spark's default
    image = ", ".join(f"{name} {kind.removesuffix(' NOT NULL')}" for name, kind in COLUMNS.items())

    def lines() -> DataFrame:
        return session.readStream.format("text").option("maxFilesPerTrigger", max(1, files // BATCHES)).load(str(source))

    def ingest() -> None:
        columns = [f"{name} {kind}" for name, kind in COLUMNS.items()]
        Table.create(str(folder / "wh/shop.db/t0"), columns=columns, primary_key="id", bucket=4, options={"write-only": "true"})
        writer = paimon.ingest(lines(), format="debezium", into="shop", warehouse=str(folder / "wh"))
        writer.option("checkpointLocation", str(folder / "one")).trigger(availableNow=True).start().awaitTermination()

    def spark_alone() -> None:
        parsed = lines().select(F.from_json("value", f"after STRUCT<{image}>, before STRUCT<{image}>, op STRING").alias("event"))
        rows = parsed.select("event.op", F.col("event.before.id").alias("old"), "event.after.*")
        writer = rows.writeStream.format("parquet").option("path", str(folder / "alone")).option("compression", "zstd")
        writer.option("checkpointLocation", str(folder / "two")).trigger(availableNow=True).start().awaitTermination()

    def reset() -> None:
        for name in ("wh", "alone", "one", "two"):
            shutil.rmtree(folder / name, ignore_errors=True)

    yield Comparison(f"{events:,} events of one table", ingest, spark_alone, GOAL, reset, tree_cpu_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started_spark(arguments.master, SPARKS_OWN_JVM) as running:
        met = report(comparisons(running.session, Path(folder), arguments.events, arguments.files), arguments.rounds, "")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
