"""The cost of the compaction service in a warehouse of many small tables: seconds per round, and memory.

    python -m scripts.bench.service [--tables 1000] [--s3]

The service runs in a process of its own, on this machine's disk or, with `--s3`, against moto's S3 server. Rounds: the first one,
which reads every table; idle ones; one in which every hundredth table has new commits; and, in a second process, one in which all
tables must be compacted. Goals: an idle round takes at most 10 s, and the process at most 500 MB. Prints a table, and JSON lines
on stdout. The exit code is 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from paimon_cli import Table
from scripts.bench.measure import MACHINE
from tests.storage.s3_server import S3Server

MAX_SECONDS, MAX_MEGABYTES = 10, 500
IDLE_ROUNDS = 3
BELOW_TRIGGER, TRIGGER = 3, 5


@dataclass(frozen=True)
class Warehouse:
    """A warehouse: its directory or URL, its catalog options, and a function that copies a table's files into it."""

    url: str
    options: dict[str, str]
    add_copy: Callable[[Path, str], None]

    def open(self, number: int) -> Table:
        return Table.open(f"{self.url}/bench.db/t{number:05}", self.options)


@contextlib.contextmanager
def warehouse_at(server: S3Server | None) -> Iterator[Warehouse]:
    """An empty warehouse: in a bucket of the server if there is one, otherwise on this machine's disk."""
    if server is not None:
        url = server.new_bucket()
        bucket = url.removeprefix("s3://")

        def upload(table: Path, name: str) -> None:
            for file in filter(Path.is_file, table.rglob("*")):
                server.request("PUT", f"/{bucket}/bench.db/{name}/{file.relative_to(table).as_posix()}", file.read_bytes())

        yield Warehouse(url, server.options(), upload)
        return
    with tempfile.TemporaryDirectory() as folder:

        def copy(table: Path, name: str) -> None:
            shutil.copytree(table, Path(folder, "bench.db", name))

        yield Warehouse(folder, {}, copy)


@dataclass(frozen=True)
class Service:
    """A running service. It prints a line per round."""

    process: subprocess.Popen[str]
    lines: IO[str]

    def round(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lines.readline())
        return found

    def stop(self) -> float:
        """Stop the service. Returns its peak memory in MB."""
        self.process.terminate()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise SystemExit(f"the service ended with {self.process.returncode}")
        return usage.ru_maxrss / 1024


@contextlib.contextmanager
def service(warehouse: Warehouse) -> Iterator[Service]:
    words = [sys.executable, "-m", "paimon_cli", "compact", "--watch", "--warehouse", warehouse.url, "--engine", "local"]
    words += [word for key, value in warehouse.options.items() for word in ("--option", f"{key}={value}")]
    words += ["--interval", "1 s", "-o", "ndjson"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield Service(process, process.stdout)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def written(table: Table, commits: int) -> None:
    for number in range(commits):
        table.write(pa.table({"id": [1, 2 + number], "n": [number, number]}), compact="none")


def fill(warehouse: Warehouse, tables: int, commits: int) -> None:
    """Fill the warehouse with copies of one table, which is possible because Paimon's metadata holds no absolute paths."""
    columns = ["id BIGINT NOT NULL", "n BIGINT"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t")
        table = Table.create(str(path), columns=columns, primary_key="id", bucket=1, options={"write-only": "true"})
        written(table, commits)
        for number in range(tables):
            warehouse.add_copy(path, f"t{number:05}")


def steady(warehouse: Warehouse, tables: int) -> dict[str, float]:
    with service(warehouse) as running:
        figures = {"first round": running.round()["seconds"]}
        figures["idle round"] = statistics.median(running.round()["seconds"] for _ in range(IDLE_ROUNDS))
        for number in range(0, tables, 100):
            written(warehouse.open(number), TRIGGER - BELOW_TRIGGER)
        busy = next(found for found in iter(running.round, None) if found["buckets"])
        figures["busy round, one table in 100"] = busy["seconds"]
        figures["peak MB"] = running.stop()
    return figures


def compacted(warehouse: Warehouse, tables: int) -> dict[str, float]:
    with service(warehouse) as running:
        found = running.round()
        assert found["buckets"] == tables, f"{found['buckets']} of {tables} tables were compacted"
        return {"busy round, all tables": found["seconds"], "peak MB, all tables": running.stop()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--s3", action="store_true", help="keep the tables on moto's S3 server, which takes CPU time, too")
    arguments = parser.parse_args()
    tables, figures = arguments.tables, dict[str, float]()
    with contextlib.ExitStack() as running:
        server = running.enter_context(S3Server()) if arguments.s3 else None
        for commits, measured in ((BELOW_TRIGGER, steady), (TRIGGER + 1, compacted)):
            with warehouse_at(server) as warehouse:
                fill(warehouse, tables, commits)
                figures |= measured(warehouse, tables)
    goals = {"idle round": MAX_SECONDS, "peak MB": MAX_MEGABYTES, "peak MB, all tables": MAX_MEGABYTES}
    on = " on S3" if arguments.s3 else ""
    for name, value in figures.items():
        goal = goals.get(name)
        limit = "" if goal is None else f"  (at most {goal})"
        print(f"{name:<32}{value:>10.2f}{limit}", file=sys.stderr)
        measure, goal_of_it = ("megabytes", "goal_megabytes") if "MB" in name else ("wall", "goal_seconds")
        print(json.dumps({"name": f"service of {tables} tables{on}, {name}", measure: value, goal_of_it: goal, "on": MACHINE}))
    return int(any(figures[name] > goal for name, goal in goals.items()))


if __name__ == "__main__":
    sys.exit(main())
