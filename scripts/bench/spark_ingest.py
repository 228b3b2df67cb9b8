"""`paimon_cli.spark.ingest` of a file of Debezium's events, against Spark reading the same JSON and writing it as Parquet.

    python -m scripts.bench.spark_ingest [--events 2000000] [--rounds 5] [--master local[2]]

The stream reads the file as text and ends with it: one batch into one table, which is new. The floor is a job of Spark with the
schema given, which neither tells kinds of events apart, nor keeps one row a key. Both run in one session, whose JVM has Spark's
default compiler settings and 2 GB.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from paimon_cli import Table, spark
from scripts.bench.event_files import NAMES, write_events
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.process_tree import tree_cpu_seconds
from scripts.bench.spark_write import SPARKS_OWN_JVM, started_spark

GOAL = 2.0
_TYPES = ("BIGINT", "BIGINT", "STRING", "DOUBLE", "BOOLEAN", "BIGINT", "STRING", "STRING", "INT")
_IMAGE = f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in zip(NAMES, _TYPES, strict=True))}>"
_SOURCE = "STRUCT<version: STRING, connector: STRING, name: STRING, ts_ms: BIGINT, db: STRING, `table`: STRING, pos: BIGINT>"
SCHEMA = f"before {_IMAGE}, after {_IMAGE}, source {_SOURCE}, op STRING, ts_ms BIGINT"


def comparison(session: SparkSession, folder: Path, events: int) -> Comparison:
    given = folder / "events"
    given.mkdir()
    write_events(given / "events.json", "debezium", events, tables=1)

    def ingest() -> None:
        stream = session.readStream.format("text").load(str(given))
        asked = {"format": "debezium", "into": "shop", "warehouse": str(folder / "wh"), "primary_key": "id"}
        writer = spark.ingest(stream, **asked).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert Table.open(str(folder / "wh" / "shop.db" / "t0")).snapshots()

    def spark_alone() -> None:
        session.read.schema(SCHEMA).json(str(given)).write.option("compression", "zstd").parquet(str(folder / "alone"))

    def reset() -> None:
        for name in ("wh", "checkpoint", "alone"):
            shutil.rmtree(folder / name, ignore_errors=True)

    return Comparison(f"ingest on Spark, {events} events", ingest, spark_alone, GOAL, reset, tree_cpu_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    confs = {**SPARKS_OWN_JVM, "spark.driver.memory": "2g"}
    with tempfile.TemporaryDirectory() as folder, started_spark(arguments.master, confs) as running:
        met = report([comparison(running.session, Path(folder), arguments.events)], arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
