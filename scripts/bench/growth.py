"""How the cost and memory of write, merge-on-read scan and full compaction grow with the number of rows.

    python -m scripts.bench.growth [--rows 1000000 10000000] [--rounds 5]

Each figure is a median of new processes with one thread, so the peak memory is that of one path alone. The exponent between two
sizes is 1 if the cost is proportional. The table has two buckets and an upsert of a tenth of its rows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from scripts.bench.measure import MACHINE, MIN_ROUNDS, peak_megabytes
from scripts.bench.peers.columns import COLUMNS
from scripts.bench.peers.workload import write_workload

BUCKETS = 2
PATHS = ("write", "upsert", "scan", "compact")


def new_table(folder: Path) -> Path:
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    options = {"bucket": str(BUCKETS), "file.format": "parquet", "write-only": "true"}
    (folder / "schema").mkdir(parents=True)
    schema = TableSchema(0, fields, len(fields) - 1, (), ("id",), options, None, 0)
    (folder / "schema" / "schema-0").write_text(schema.to_json())
    return folder


def write(table: Path, sources: list[Path]) -> None:
    for source in sources:
        run_write(TableContext.open(str(table)), WriteRequest(FileRows((str(source),))), LocalEngine(), NoProgress())


def scan(table: Path) -> int:
    """Scan the table without keeping its rows."""
    context = TableContext.open(str(table))
    splits = plan_scan(context, context.snapshots.latest()).splits
    return sum(pc.sum(batch["qty"]).as_py() for split in splits for batch in read_split(context, split, tuple(COLUMNS)))


def compact(table: Path) -> None:
    run_compact(TableContext.open(str(table)), CompactRequest(), LocalEngine(), NoProgress())


def run_one(path: str, folder: Path) -> None:
    """Run one path in this process, and print a line about it."""
    table = folder / "t"
    cpu, wall = time.process_time(), time.perf_counter()
    if path in ("write", "upsert"):
        write(table, [folder / f"in-{PATHS.index(path)}.parquet"])
    else:
        {"scan": scan, "compact": compact}[path](table)
    took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({**took, "peak_mb": peak_megabytes()}))


def measure(rows: int, rounds: int) -> dict[str, dict[str, Any]]:
    """The medians of each path."""
    taken: dict[str, list[dict[str, Any]]] = {path: [] for path in PATHS}
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        write_workload(source, rows, 1, rows // 10)
        for number in range(rounds):
            folder = source / str(number)
            new_table(folder / "t")
            for file in source.glob("in-*.parquet"):
                (folder / file.name).symlink_to(file)
            for path in PATHS:
                command = [sys.executable, "-m", "scripts.bench.growth", "--one", path, str(folder)]
                taken[path].append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    return {path: {key: statistics.median(t[key] for t in times) for key in times[0]} for path, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--one", nargs=2, metavar=("PATH", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        run_one(arguments.one[0], Path(arguments.one[1]))
        return
    sizes = sorted(arguments.rows)
    measured = {rows: measure(rows, arguments.rounds) for rows in sizes}
    for path in PATHS:
        for rows in sizes:
            times = measured[rows][path]
            text = f"{path:8} {rows:>11,} rows: {times['wall']:7.2f} s, CPU {times['cpu']:7.2f} s, peak {times['peak_mb']:.0f} MB"
            print(text, file=sys.stderr)
            print(json.dumps({"name": f"growth, {path}", "rows": rows, **times, "rounds": arguments.rounds, "on": MACHINE}))
        for low, high in pairwise(sizes):
            exponent = math.log(measured[high][path]["cpu"] / measured[low][path]["cpu"]) / math.log(high / low)
            print(f"{path:8} exponent {exponent:.2f} from {low:,} to {high:,}", file=sys.stderr)
            print(json.dumps({"name": f"growth, {path}", "from": low, "to": high, "exponent": exponent}), flush=True)


if __name__ == "__main__":
    main()
