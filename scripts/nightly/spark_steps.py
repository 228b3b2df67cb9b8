"""Random steps of Spark users on tables of all kinds, beside a table in plain Python: embedded, on a cluster, over Spark Connect.

    python -m scripts.nightly.spark_steps --where cluster --steps 300 --seed 7

Tasks fail, Python workers die and, on the cluster (a master and two workers on loopback, with speculation), executors.
Prints a JSON line. Each difference is printed with its story and the seed of its table, which `--table KIND:SEED` replays; then
the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import paimon_cli.spark as paimon
from paimon_cli.jobs.spark.java_runtime import find_java
from paimon_cli.jobs.spark.session_engine import connected
from tests.jobs.spark_cluster import SparkCluster, quick_jvm
from tests.spark.connect_server import connect_server
from tests.spark.steps import fails, play, this_executor, this_worker
from tests.spark.world import KINDS

STEPS_OF_A_TABLE = 10
MASTER = "local[2, 4]"
"""Two cores, and four attempts of each task, as on a cluster."""
CLUSTER_CONFS = {
    "spark.task.maxFailures": "4",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
}
Faults = tuple[Callable[[], None], ...]


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[SparkSession, Faults]]:
    builder = SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false")
    session = paimon.configure(builder.config("spark.driver.extraJavaOptions", quick_jvm())).getOrCreate()
    try:
        yield session, (fails, this_worker)
    finally:
        session.stop()


@contextmanager
def on_cluster(folder: Path) -> Iterator[tuple[SparkSession, Faults]]:
    os.environ.update(PYSPARK_PYTHON=sys.executable, JAVA_HOME=str(find_java(os.environ).home))
    cluster = SparkCluster(folder)
    try:
        cluster.start(executors=1, workers=2)
        session = cluster.session(CLUSTER_CONFS)
        try:
            yield session, (fails, this_worker, this_executor)
        finally:
            session.stop()
    finally:
        cluster.stop()


@contextmanager
def over_connect(folder: Path) -> Iterator[tuple[SparkSession, Faults]]:
    with connect_server(folder, MASTER) as url:
        session = connected(url, {})
        try:
            yield session, (fails, this_worker)
        finally:
            session.stop()


PLACES = {"embedded": embedded, "cluster": on_cluster, "connect": over_connect}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", choices=sorted(PLACES), default="embedded")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", help="KIND:SEED of a difference")
    arguments = parser.parse_args()
    kinds = list(KINDS)
    count = -(-arguments.steps // STEPS_OF_A_TABLE)
    tables = [(kinds[(number + arguments.seed) % len(kinds)], f"{arguments.seed}-{number}") for number in range(count)]
    if arguments.table:
        kind, _, seed = arguments.table.partition(":")
        tables = [(kind, seed)]
    begun, steps, differences = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(prefix="spark-steps-") as name:
        folder = Path(name)
        with PLACES[arguments.where](folder) as (session, faults):
            for kind, seed in tables:
                try:
                    steps += play(session, folder / "tables", kind, seed, STEPS_OF_A_TABLE, faults)
                except AssertionError as difference:
                    differences += 1
                    print(f"{difference}\n", flush=True)
    line = {"measure": f"spark-steps-{arguments.where}", "tables": len(tables), "steps": steps, "differences": differences}
    print(json.dumps({**line, "seed": arguments.seed, "seconds": round(time.monotonic() - begun, 1)}))
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
