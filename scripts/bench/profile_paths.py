"""Where the CPU time of each path goes: decoding, encoding, sorting and merging, routing, storage, other Python, Spark.

    python -m scripts.bench.profile_paths [--rows 2000000]

The workload is that of `against_peers` in a table of two buckets, with one thread. The time of Arrow's functions counts for our
function that calls them, so each share is that of a module of ours; the profiler makes Python look slightly slower than it is.
On Spark (local[2]) the shares are those of processes: its JVM, and Python including Arrow.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from scripts.bench.growth import compact, new_table, scan, write
from scripts.bench.measure import MACHINE
from scripts.bench.peers.workload import write_workload
from scripts.bench.process_tree import cpu_seconds_by_program
from scripts.bench.spark_write import started_spark

UPSERTS = 4
SHARES: dict[str, tuple[str, ...]] = {
    "decode": ("row_sources.py:_parquet", "data_file_reader.py:_batches_of", "parquet/core.py:__init__"),
    "check values": ("typed_columns.py:", "faults.py:"),
    "encode": ("parquet/core.py:", "file_encoders.py:"),
    "sort and merge": (
        *("/lsm/", "compute.py:take", "key_order.py:", "write_buffer.py:", "merged_rows.py:"),
        *("sort' of", "argsort", "nonzero"),
    ),
    "route": ("bucket_hash.py:", "key_order.py:", "write_plan.py:"),
    "storage": ("fsync", "_DurableFile", "/storage/", "spilled_runs.py:", "posix."),
    "commit and metadata": ("/commit/", "/metadata/", "/history/", "/json/"),
}
"""Share -> what the `file:name` of its functions contains. The first match counts."""
OTHER = "other Python"
PROCESSES = JVM, PYTHON = "JVM", "Python"


def share_of(location: str) -> str:
    return next((share for share, marks in SHARES.items() if any(mark in location for mark in marks)), OTHER)


def profile(work: Callable[[], object]) -> Counter[str]:
    """The CPU seconds of each share."""
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(work)
    seconds: Counter[str] = Counter()
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        seconds[share_of(f"{file}:{name}")] += own
    return seconds


def processes(work: Callable[[], object]) -> dict[str, float]:
    """The CPU seconds of each kind of process."""
    before = cpu_seconds_by_program()
    work()
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in cpu_seconds_by_program().items()}
    java = spent.pop("java", 0.0)
    return {JVM: java, PYTHON: sum(spent.values())}


def profile_on_spark(folder: Path) -> None:
    source, engine = str(folder / "in-0.parquet"), SparkEngine(SparkRequest())

    def write_on_spark(table: Path) -> None:
        run_write(TableContext.open(str(table)), WriteRequest(FileRows((source,))), engine, NoProgress())

    write_on_spark(new_table(folder / "warm on spark"))
    table = new_table(folder / "on spark")
    report("write on Spark", processes(lambda: write_on_spark(table)))
    write_on_spark(table)
    report(
        "compact on Spark", processes(lambda: run_compact(TableContext.open(str(table)), CompactRequest(), engine, NoProgress()))
    )


def report(path: str, seconds: Mapping[str, float]) -> None:
    total = sum(seconds.values())
    shares = {share: seconds[share] / total for share in (*SHARES, OTHER, *PROCESSES) if seconds.get(share)}
    print(f"{path:24} {total:6.2f} s: " + ", ".join(f"{name} {part:.0%}" for name, part in shares.items()), file=sys.stderr)
    print(json.dumps({"name": f"profile, {path}", "cpu": total, "shares": shares, "on": MACHINE}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_workload(folder, rows, UPSERTS, rows // 10)
        write(new_table(folder / "warm"), [folder / "in-1.parquet"])  # so that imports and caches are not measured
        scan(folder / "warm")
        table = new_table(folder / "t")
        report("write", profile(lambda: write(table, [folder / "in-0.parquet"])))
        upserts = [folder / f"in-{number}.parquet" for number in range(1, UPSERTS + 1)]
        report(f"write, {UPSERTS} upserts", profile(lambda: write(table, upserts)))
        report("merge-on-read scan", profile(lambda: scan(table)))
        report("full compaction", profile(lambda: compact(table)))
        report("scan when compacted", profile(lambda: scan(table)))
        with started_spark("local[2]"):
            profile_on_spark(folder)


if __name__ == "__main__":
    main()
