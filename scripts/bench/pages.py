"""Bytes that a condition on a column that is no key reads from a compacted table, against the pages that hold matching rows.

    python -m scripts.bench.pages [--rows 2000000]

The column `at` rises with the key, as times of events do. The bytes read include footers and page indexes. Also prints the CPU
time of the read, against one without the condition.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.parquet_footer import PageLocations
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.predicate import Predicate, parse_predicate
from scripts.bench.lookup import COLUMNS, CountingStorage, new_table, values
from scripts.bench.measure import MACHINE

GOAL = 1.2
START = 1_700_000_000_000
SHARES = (0.001, 0.01, 0.1)
"""The shares of the rows that the conditions select."""


def compacted(folder: Path, rows: int) -> TableContext:
    """A compacted bucket of rows of which `at` is a second later for each key."""
    ids = np.arange(rows)
    columns = {**values(ids, np.random.default_rng(4)), "at": pa.array(START + 1000 * ids).cast(pa.timestamp("ms"))}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    context = new_table(folder / "t", {"bucket": "1", "write-only": "true"})
    run_write(context, WriteRequest(FileRows((str(folder / "rows.parquet"),))), LocalEngine(), NoProgress())
    run_compact(context, CompactRequest(strategy="full"), LocalEngine(), NoProgress())
    return context


def read(context: TableContext, predicate: Predicate | None) -> tuple[int, int, float]:
    """The number of rows, the bytes read from data files, and seconds of CPU."""
    storage = CountingStorage()
    counted = TableContext.open(context.url, storage=storage)
    plan = plan_scan(counted, counted.snapshots.latest(), predicate)
    before, begin = storage.bytes_read, time.process_time()
    rows = sum(b.num_rows for split in plan.splits for b in read_split(counted, split, tuple(COLUMNS), predicate))
    return rows, storage.bytes_read - before, time.process_time() - begin


def bytes_of_pages(context: TableContext, first: int, last: int) -> int:
    """The bytes of the pages of all columns that hold rows with keys from `first` to `last`, which are their row numbers."""
    total = at = 0
    splits = plan_scan(context, context.snapshots.latest()).splits
    for name in (file.file_name for split in splits for file in split.files):
        with Path(context.layout.root, "bucket-0", name).open("rb") as source:
            footer = read_footer(source)
            for group, entry in enumerate(footer.groups):
                rows = entry.required(3)
                for column in COLUMNS:
                    chunk = footer.chunk(group, footer.columns[column].first_leaf)
                    source.seek(chunk.required(4))
                    pages = PageLocations.decode(source.read(chunk.required(5)))
                    ends = np.append(pages.first_rows[1:], rows) + at
                    total += int(pages.sizes[(pages.first_rows + at <= last) & (ends > first)].sum())
                at += rows
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows, met = parser.parse_args().rows, True
    with tempfile.TemporaryDirectory() as folder:
        context = compacted(Path(folder), rows)
        _, whole, whole_cpu = read(context, None)
        for share in SHARES:
            first, count = rows // 3, int(rows * share)
            moments = [pa.scalar(START + 1000 * n, pa.timestamp("ms")).as_py().isoformat(" ") for n in (first, first + count)]
            predicate = parse_predicate(f"at >= TIMESTAMP '{moments[0]}' AND at < TIMESTAMP '{moments[1]}'", context.schema)
            found, size, cpu = read(context, predicate)
            pages = bytes_of_pages(context, first, first + count - 1)
            ratio = size / pages
            met &= found == count and ratio <= GOAL
            print(f"{share:.1%} of {rows} rows: read {size} bytes, {ratio:.2f} x the pages that match (goal {GOAL}), ", end="")
            print(f"{size / whole:.3f} of all bytes, {cpu / whole_cpu:.3f} of the CPU of a whole read")
            figures = {"name": "pages", "share": share, "ratio": ratio, "of_all": size / whole, "cpu": cpu / whole_cpu}
            print(json.dumps({**figures, "goal": GOAL, "met": ratio <= GOAL, **MACHINE}))
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
