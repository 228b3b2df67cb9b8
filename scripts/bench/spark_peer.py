"""Tables as DataFrames, against Java's paimon-spark: reads into the sink `noop`, and a write, in sessions that keep running.

    python -m scripts.bench.spark_peer --spark-python SPARK_ENV/bin/python --jars PAIMON_SPARK.jar,PAIMON.jar
        [--rows 10000000] [--rounds 5] [--only TEXT]

Both sides read the same tables, which this package has written: a compacted one, the same with 5 % of its rows marked by deletion
vectors, and one of a load and four upserts of a tenth, whose files must be merged. Columns and filters are applied to the
DataFrame, unless the name says that they are arguments of `read`. Each write creates a new table. CPU seconds are those of all
processes of both sides, which take turns. With fewer rows, mostly the planning of queries is measured: reads of two million rows
take 0.2 to 0.6 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from paimon_cli import Table
from scripts.bench.against_peers import Side
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.process_tree import tree_cpu_seconds
from scripts.bench.spark_read import NARROW, SELECTIVE, WHOLE, new_table, with_deleted_rows
from scripts.bench.spark_write import new_table as new_written_table
from scripts.bench.spark_write import source

ROOT = Path(__file__).resolve().parents[2]
SIDE = ROOT / "scripts" / "bench" / "peers" / "spark_side.py"
GOAL = 1.0
WARM_UPS = 10
"""Unmeasured rounds, until the JVM has compiled the code that Spark generates for a query. Java's own classes take fewer."""
UPSERTS = 4


def started(name: str, interpreter: str, arguments: Sequence[str], folder: Path) -> Side:
    ours = {"PYTHONPATH": str(ROOT)} if name == "ours" else {}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [interpreter, str(SIDE), *arguments],
            env={**os.environ, **ours},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    return Side(name, process, folder / name)


def table_of_runs(folder: Path, given: Path, rows: int) -> Table:
    table = Table.open(new_written_table(folder).url)
    table.write(str(given))
    loaded = pq.read_table(given)
    random = np.random.default_rng(7)
    for _ in range(UPSERTS):
        table.write(loaded.take(random.choice(rows, rows // 10, replace=False)))
    return table


def comparisons(ours: Side, theirs: Side, tables: Path, given: Path) -> Iterator[Comparison]:
    def against(name: str, **asked: Any) -> Comparison:
        read = {"columns": WHOLE, "where": None, "named": False, **asked}
        counts = [side.ask(do="count", **read)["rows"] for side in (ours, theirs)]
        if len(set(counts)) > 1:
            raise SystemExit(f"{name}: the sides count {counts} rows")
        subject, floor = (lambda side=side: side.ask(do="read", **read) for side in (ours, theirs))
        return Comparison(name, subject, floor, GOAL, cpu_seconds=tree_cpu_seconds, warm_ups=WARM_UPS)

    for table, what in (("plain", "compacted"), ("marked", "5 % deleted"), ("runs", "to be merged")):
        yield against(f"{what}, all columns", table=table)
        yield against(f"{what}, one column", table=table, columns=NARROW)
        yield against(f"{what}, selective filter", table=table, where=SELECTIVE)
    yield against("to be merged, one column named in the read", table="runs", columns=NARROW, named=True)
    yield against("to be merged, selective filter named in the read", table="runs", where=SELECTIVE, named=True)
    numbers = iter(range(1000))

    def write(side: Side) -> None:
        name = f"written_{next(numbers)}"
        new_written_table(tables / name)
        side.ask(do="write", table=name, source=str(given))

    yield Comparison(
        "write of a DataFrame", lambda: write(ours), lambda: write(theirs), GOAL, cpu_seconds=tree_cpu_seconds, warm_ups=2
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spark-python", required=True, help="interpreter with the PySpark that the jars are for")
    parser.add_argument("--jars", required=True, help="paimon-spark and what it needs, separated by commas")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only what has TEXT in its name")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = folder / "bench.db"
        given = source(folder / "in.parquet", asked.rows)
        new_table(tables / "plain", given, {})
        with_deleted_rows(new_table(tables / "marked", given, {"deletion-vectors.enabled": "true"}), asked.rows)
        table_of_runs(tables / "runs", given, asked.rows)
        ours = started("ours", sys.executable, [name], folder)
        theirs = started("paimon-spark", asked.spark_python, [name, asked.jars], folder)
        try:
            met = report(comparisons(ours, theirs, tables, given), asked.rounds, asked.only)
        finally:
            for side in (ours, theirs):
                side.process.kill()
                side.process.wait()
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
