"""Tables with deletion vectors: upserts of few and of many rows, and scans of the remaining rows, against their floors.

    python -m scripts.bench.vectors [--rows 10000000] [--rounds 5] [--only scan]

The table has ROWS rows in four buckets, and is compacted. Upserts change random rows. A whole command runs in a new process that
writes and compacts; a service round is what `compact --watch` does about such rows, with the caches of earlier rounds. Scans read
files in which 5 % of the rows were updated; their floor is plain pyarrow, which reads all rows of these files. Commands with a
changelog by lookup change rows in ten ranges, or random rows; the latter must read nearly all old values, so their floor is
the command without a changelog plus one read of all values.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.history.file_cache import FileCache
from paimon_cli.history.kept_files import KeptFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.read.scan_plan import Split, plan_scan
from paimon_cli.read.split_reader import in_parts, read_in_parallel, read_split
from paimon_cli.requests.compaction import StrategyName
from scripts.bench.cost_growth import cpu_of_process
from scripts.bench.lookup import BATCH_ROWS, CLUSTERS, COLUMNS, new_table, values
from scripts.bench.measure import MIN_ROUNDS, Comparison, cpu_with_children, report

OPTIONS = {"bucket": "4", "deletion-vectors.enabled": "true", "write-only": "true"}
FEW, MANY = 1_000, 200_000
COMMAND_SECONDS, ROUND_SECONDS = 1.5, 0.3
FASTER = 1.7


def source(path: Path, batches: Iterator[np.ndarray]) -> Path:
    """A Parquet file of rows with these keys."""
    random = np.random.default_rng(2)
    writer: pq.ParquetWriter | None = None
    for ids in batches:
        rows = pa.table(values(ids, random))
        writer = writer or pq.ParquetWriter(path, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()
    return path


def upserts(folder: Path, rows: int, count: int, number: int) -> Path:
    ids = np.random.default_rng(number).choice(rows, count, replace=False).astype(np.int64)
    return source(folder / f"upsert-{count}-{number}.parquet", iter([ids]))


def write(context: TableContext, path: Path) -> None:
    run_write(context, WriteRequest(FileRows((str(path),))), LocalEngine(), NoProgress())


def compact(context: TableContext, strategy: StrategyName = "minor") -> None:
    run_compact(context, CompactRequest(strategy=strategy), LocalEngine(), NoProgress())


def linked(table: Path, copy: Path) -> TableContext:
    """A copy of the table with hard links, which is possible because files are never changed in place."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(table, copy, copy_function=os.link)
    for hint in (copy / "snapshot").glob("*ST"):
        content = hint.read_bytes()
        hint.unlink()
        hint.write_bytes(content)
    return TableContext.open(str(copy))


def report_seconds(name: str, goal: float, rounds: int, once: Callable[[int], float]) -> bool:
    """Print the median of the CPU seconds that `once` measures. Returns whether it meets the goal."""
    seconds = statistics.median([once(number) for number in range(rounds + 1)][1:])
    print(f"{name}: {seconds:.2f} s of CPU (goal {goal}, {'met' if seconds <= goal else 'MISSED'})", file=sys.stderr)
    print(json.dumps({"name": name, "cpu": seconds, "goal_cpu": goal, "met": seconds <= goal}), flush=True)
    return seconds <= goal


def small_upserts(folder: Path, table: Path, rows: int, rounds: int) -> bool:
    linked(table, folder / "command")

    def command(number: int) -> float:
        path = upserts(folder, rows, FEW, number)
        command = [sys.executable, "-m", "paimon_cli", "write", str(folder / "command"), str(path), "--engine", "local"]
        return cpu_of_process([*command, "--option", "write-only=false"])

    met = report_seconds(f"upsert of {FEW} rows into {rows}, whole command", COMMAND_SECONDS, rounds, command)
    served, kept = linked(table, folder / "served"), KeptFiles(keeps_copies=True)

    def service_round(number: int) -> float:
        write(served, upserts(folder, rows, FEW, 100 + number))
        began = time.process_time()
        compact(replace(TableContext.open(served.url), cache=FileCache(kept)))
        return time.process_time() - began

    return (
        report_seconds(f"service round after an upsert of {FEW} rows into {rows}", ROUND_SECONDS, rounds, service_round) and met
    )


def large_upserts(folder: Path, table: Path, rows: int) -> Iterator[Comparison]:
    many = upserts(folder, rows, MANY, 1)
    looked_up, full = folder / "looked-up", folder / "full"

    def reset() -> None:
        for copy in (looked_up, full):
            write(linked(table, copy), many)

    yield Comparison(
        f"upsert of {MANY} rows into {rows}, compacted : compacted in full",
        lambda: compact(TableContext.open(str(looked_up))),
        lambda: compact(TableContext.open(str(full)), "full"),
        0.2,
        reset,
    )


def clustered_upserts(folder: Path, rows: int) -> Path:
    starts = (np.arange(CLUSTERS) * 2 + 1) * rows // (2 * CLUSTERS)
    ids = np.concatenate([np.arange(start, start + MANY // CLUSTERS) for start in starts])
    return source(folder / "clustered.parquet", iter([ids]))


def with_options(context: TableContext, **options: str) -> TableContext:
    """The table with additional options, as if it had been created with them."""
    path = Path(context.layout.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    path.unlink()  # it is a link to the file of another table
    path.write_text(json.dumps({**schema, "options": {**schema["options"], **options}}))
    return TableContext.open(context.url)


def changelogs(folder: Path, table: Path, rows: int) -> Iterator[Comparison]:
    plain, recorded = folder / "without-changelog", folder / "with-changelog"

    def reset() -> None:
        with_options(linked(table, plain), **{"write-only": "false"})
        with_options(linked(table, recorded), **{"write-only": "false", "changelog-producer": "lookup"})

    def command(copy: Path, path: Path) -> None:
        command = [sys.executable, "-m", "paimon_cli", "write", str(copy), str(path), "--engine", "local"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def command_and_read() -> None:
        command(plain, random)
        context = TableContext.open(str(table))
        values = [name for name in COLUMNS if name != "id"]
        splits = plan_scan(context, context.snapshots.latest()).splits
        for _ in read_in_parallel(splits, lambda split: read_split(context, split, values), 1):
            pass

    clustered, random = clustered_upserts(folder, rows), upserts(folder, rows, MANY, 1)
    yield Comparison(
        f"changelog by lookup of {MANY} clustered rows, whole command : without a changelog",
        lambda: command(recorded, clustered),
        lambda: command(plain, clustered),
        2.0,
        reset,
        cpu_with_children,
    )
    yield Comparison(
        f"changelog by lookup of {MANY} random rows, whole command : without a changelog, and a read of the values",
        lambda: command(recorded, random),
        command_and_read,
        1.3,
        reset,
        cpu_with_children,
    )


def scans(folder: Path, table: Path, rows: int) -> Iterator[Comparison]:
    scanned = linked(table, folder / "scanned")
    write(scanned, upserts(folder, rows, rows // 20, 2))
    compact(scanned)
    plan = plan_scan(scanned, scanned.snapshots.latest())
    found = {file.file_name: (split.bucket.bucket_id, file) for split in plan.splits for file in split.bucket.files}
    paths = [scanned.data_file_path(*bucket, file) for bucket, file in found.values()]

    def scan(columns: Sequence[str], threads: int = 1) -> int:
        batches = read_in_parallel(plan.splits, lambda split: read_split(scanned, split, columns), threads)
        return sum(batch.num_rows for batch in batches)

    def plain(columns: Sequence[str]) -> int:
        opened = (pq.ParquetFile(path, buffer_size=256 << 10, page_checksum_verification=True) for path in paths)
        found = (batch for file in opened for batch in file.iter_batches(65536, columns=list(columns), use_threads=False))
        return sum(batch.num_rows for batch in found)

    if scan(["quantity"]) != rows:
        raise AssertionError("the scan does not show every key once")
    for name, columns, goal in (
        ("all columns", tuple(COLUMNS), 1.12),
        ("an INT", ("quantity",), 1.35),
        ("a text", ("note",), 1.2),
    ):
        yield Comparison(
            f"scan of a vector table, 5 % deleted, {name}",
            lambda columns=columns: scan(columns),  # type: ignore[misc]
            lambda columns=columns: plain(columns),  # type: ignore[misc]
            goal,
        )


def report_two_readers(scanned: TableContext, rounds: int) -> bool:
    """Scan all columns of one bucket with two readers that share its files. Returns whether they are FASTER times as fast as one.

    A shared machine does not have two idle cores. So the CPU time of each part is measured while two readers work, and the parts
    are dealt out to them in order: the share of the busier one is the time that two cores would take.
    """
    (split, *_) = plan_scan(scanned, scanned.snapshots.latest()).splits
    parts = in_parts(scanned, [split], 2)
    alone: list[float] = []
    shared: list[float] = []
    for _ in range(rounds + 1):
        began = time.process_time()
        for _ in read_in_parallel([split], lambda split: read_split(scanned, split, tuple(COLUMNS)), 1):
            pass
        alone.append(time.process_time() - began)
        seconds = dict.fromkeys(parts, 0.0)

        def read(part: Split, seconds: dict[Split, float] = seconds) -> Iterator[pa.RecordBatch]:
            began = time.thread_time()
            yield from read_split(scanned, part, tuple(COLUMNS))
            seconds[part] = time.thread_time() - began  # each part is read in a thread of its own

        for _ in read_in_parallel(parts, read, 2):
            pass
        readers = [0.0, 0.0]
        for part in parts:
            readers[readers.index(min(readers))] += seconds[part]
        shared.append(max(readers))
    ratio = statistics.median(one / two for one, two in zip(alone[1:], shared[1:], strict=True))
    name = f"scan of one bucket in {len(parts)} parts, two readers"
    print(f"{name}: {ratio:.2f} times as fast as one (goal {FASTER}, {'met' if ratio >= FASTER else 'MISSED'})", file=sys.stderr)
    print(json.dumps({"name": name, "ratio": ratio, "goal": FASTER, "met": ratio >= FASTER}), flush=True)
    return ratio >= FASTER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--only", choices=["small", "large", "changelog", "scan"], action="append", help="repeatable")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, rows = Path(name), arguments.rows
        ids = np.random.default_rng(3).permutation(rows)
        context = new_table(folder / "t", OPTIONS)
        write(context, source(folder / "rows.parquet", (ids[i : i + BATCH_ROWS] for i in range(0, rows, BATCH_ROWS))))
        compact(context, "full")
        met = True
        if arguments.only is None or "small" in arguments.only:
            met = small_upserts(folder, folder / "t", rows, arguments.rounds)
        for name, comparisons in (("large", large_upserts), ("changelog", changelogs), ("scan", scans)):
            if arguments.only is None or name in arguments.only:
                met &= report(comparisons(folder, folder / "t", rows), arguments.rounds)
        if arguments.only is None or "scan" in arguments.only:
            met &= report_two_readers(TableContext.open(str(folder / "scanned")), arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
