"""Tables of growing size in one Spark session: whether CPU per row stays, and how much memory a Python worker takes.

    python -m scripts.bench.spark_growth [--rows 1000000 5000000 50000000] [--buckets 16] [--master local[2]]

For each size: a DataFrame is written, a tenth of its keys is written again with other values, all rows are counted while files
overlap, and a compaction merges the files. The CPU is that of the driver's Python, the JVM, and the Python workers. The peak
memory of a worker is the highest that Linux notes for one process (VmHWM), and includes libraries that workers share. A small
table goes through all steps first, unmeasured, so that code is compiled and loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from paimon_cli import Runtime, Table, spark
from scripts.bench.measure import MACHINE
from scripts.bench.process_tree import cpu_seconds_by_program, descendants
from scripts.bench.spark_write import ROWS_OF_BATCH, SPARKS_OWN_JVM, new_table, source, started_spark

CONFS = {**SPARKS_OWN_JVM, ROWS_OF_BATCH: "10000"}
WARM_UP = 200_000
GROWTH, MEGABYTES = 1.15, 600.0
"""The goals: CPU per row relative to that of the first size, and the peak memory of a worker."""
LOOK_EVERY = 0.05


@dataclass(frozen=True)
class Step:
    """CPU seconds by process, and the highest peak memory of a worker that lived during the step."""

    name: str
    rows: int
    wall: float
    driver: float
    jvm: float
    workers: float
    worker_megabytes: float
    jvm_megabytes: float

    @property
    def per_million(self) -> float:
        return (self.driver + self.jvm + self.workers) / self.rows * 1e6


class Peaks:
    """Looks for the peak memory of workers and the JVM in a thread."""

    def __init__(self) -> None:
        self.worker = self.jvm = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def watched(self) -> Iterator[Peaks]:
        self._thread.start()
        try:
            yield self
        finally:
            self._done.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(LOOK_EVERY):
            cpu_seconds_by_program()  # notes the CPU of workers that Spark ends before the step is over
            for process in descendants():
                name, peak = _peak_of(process)
                if name == "java":
                    self.jvm = max(self.jvm, peak)
                elif name.startswith("python"):
                    self.worker = max(self.worker, peak)


def _peak_of(process: int) -> tuple[str, float]:
    """The program's name and its peak memory in megabytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return "", 0.0
    found = dict(line.split(":", 1) for line in lines)
    return found["Name"].strip(), int(found.get("VmHWM", "0 kB").split()[0]) / 1024


def measured(name: str, rows: int, work: Callable[[], object]) -> Step:
    peaks, before, own, wall = Peaks(), cpu_seconds_by_program(), time.process_time(), time.perf_counter()
    with peaks.watched():
        work()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    spent = {program: seconds - before.get(program, 0.0) for program, seconds in cpu_seconds_by_program().items()}
    workers = sum(seconds for program, seconds in spent.items() if program.startswith("python")) - own
    return Step(name, rows, wall, own, spent.get("java", 0.0), max(workers, 0.0), peaks.worker, peaks.jvm)


def steps(session: SparkSession, folder: Path, rows: int, buckets: int) -> Iterator[Step]:
    first, second = source(folder / "first.parquet", rows), source(folder / "second.parquet", rows // 10)
    url = new_table(folder / "t", buckets).url
    table = Table.open(url, runtime=Runtime(session=session))

    def write() -> None:
        assert spark.write(session.read.parquet(str(first)), url).rows == rows

    def upsert() -> None:
        spark.write(session.read.parquet(str(second)).withColumn("id", F.col("id") * 10), url)

    def count() -> None:
        assert spark.read(session, url, columns=["id"]).count() == rows

    def compact() -> None:
        table.refresh()
        assert table.compact(strategy="full").snapshots, "there was something to merge"

    yield measured("write", rows, write)
    yield measured("upsert of 10 %", rows // 10, upsert)
    yield measured("merging count", rows, count)
    yield measured("compaction", rows, compact)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000, 50_000_000], help="in growing order")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    base: dict[str, float] = {}
    met = True
    print(f"on {MACHINE['processor']}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder, started_spark(arguments.master, CONFS) as running:
        for rows in (WARM_UP, *arguments.rows):
            place = Path(folder) / str(rows)
            place.mkdir()
            for step in steps(running.session, place, rows, arguments.buckets):
                if rows == WARM_UP:
                    continue
                growth = step.per_million / base.setdefault(step.name, step.per_million)
                met &= growth <= GROWTH and step.worker_megabytes <= MEGABYTES
                print(json.dumps({**asdict(step), "growth": growth, "load": os.getloadavg()[0], "on": MACHINE}), flush=True)
                print(
                    f"{rows} rows, {step.name}: {step.wall:.1f} s; CPU: driver {step.driver:.1f} s, JVM {step.jvm:.1f} s, "
                    f"workers {step.workers:.1f} s, {step.per_million:.2f} s for a million rows, {growth:.2f} x the first size; "
                    f"peak of a worker {step.worker_megabytes:.0f} MB, of the JVM {step.jvm_megabytes:.0f} MB",
                    file=sys.stderr,
                )
            shutil.rmtree(place)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
