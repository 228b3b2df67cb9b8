"""A write with many flushes that compacts concurrently (`--compact async`), against one that stops to compact (`inline`).

    python -m scripts.bench.compact_beside [--rows 3000000] [--buckets 16] [--rounds 5] [--only async]

The buffer is small and does not spill, so that each bucket gets a dozen or more level-0 files, which the compactions of both ways
have to merge. Wall time is what counts: the same merges cost the same CPU time. Stalls are those of the last round. `--only`
measures one way, for use with a profiler.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.process import usable_cores
from paimon_cli.jobs.write_job import WriteSummary, run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.choices import CompactionMode
from scripts.bench.measure import MACHINE, MIN_ROUNDS, Comparison, report

COLUMNS = {"k": "BIGINT NOT NULL", "v": "STRING", "w": "DOUBLE"}
FLUSHES_OF_A_BUCKET = 20
ROW_BYTES = 45


def source_of(folder: Path, rows: int) -> str:
    """A file with two versions of each key on average, in random order. Each call writes the same rows."""
    random = np.random.default_rng(7)
    texts = pa.array(random.integers(0, 1 << 60, rows)).cast(pa.string())
    table = pa.table({"k": random.integers(0, rows // 2, rows), "v": texts, "w": random.random(rows)})
    path = folder / "rows.parquet"
    pq.write_table(table, path, row_group_size=100_000)
    return str(path)


class Writes:
    """Each call writes to a new table. `summaries` has the last summary of each way."""

    def __init__(self, folder: Path, rows: int, buckets: int) -> None:
        self._table = folder / "t"
        self._request = WriteRequest(FileRows((source_of(folder, rows),)))
        fields = tuple(DataField(number, name, parse_sql_type(text)) for number, (name, text) in enumerate(COLUMNS.items()))
        options = {
            "bucket": str(buckets),
            "write-buffer-size": f"{rows * ROW_BYTES // FLUSHES_OF_A_BUCKET} b",
            "write-buffer-spillable": "false",
        }
        self._schema = TableSchema(0, fields, len(COLUMNS) - 1, (), ("k",), options, None, 0)
        self.summaries: dict[str, WriteSummary] = {}

    def empty_table(self) -> None:
        shutil.rmtree(self._table, ignore_errors=True)
        (self._table / "schema").mkdir(parents=True)
        (self._table / "schema" / "schema-0").write_text(self._schema.to_json())

    def write(self, compaction: Any) -> None:
        context = TableContext.open(str(self._table))
        request = replace(self._request, compact=compaction)
        self.summaries[compaction] = run_write(context, request, LocalEngine(usable_cores()), NoProgress())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--only", choices=(CompactionMode.ASYNC, CompactionMode.INLINE))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paimon-cli-bench-") as folder:
        writes = Writes(Path(folder), arguments.rows, arguments.buckets)
        if arguments.only:
            writes.empty_table()
            writes.write(arguments.only)
        else:
            name = f"compact async against inline, {arguments.rows:,} rows, {arguments.buckets} buckets"
            subject, floor = (lambda: writes.write(CompactionMode.ASYNC)), (lambda: writes.write(CompactionMode.INLINE))
            report([Comparison(name, subject, floor, reset=writes.empty_table)], arguments.rounds)
        for way, done in writes.summaries.items():
            figures = {"stalls": done.stalls, "stall_seconds": done.stall_seconds, "seconds": done.seconds}
            waits = {"compaction_wait_seconds": done.compaction_wait_seconds, "flushes": done.flushes}
            print(json.dumps({"name": f"compact {way}", **figures, **waits, "on": MACHINE}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
