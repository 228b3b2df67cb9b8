"""Full compaction of five overlapping runs in one bucket, by key and merge engine, against a plain pyarrow copy of the files.

    python -m scripts.bench.compaction [--rows 2000000] [--rounds 5] [--only 'int key']

ROWS is the total of all runs; each run holds a random fifth of the keys, so nearly all key ranges overlap. The copy writes all
rows, the compaction only the two thirds that remain, so a ratio below 1 is possible. The peak memory is that of another
compaction, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import FULL_STRATEGY, plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_schema import TableSchema
from scripts.bench.measure import MACHINE, MIN_ROUNDS, Comparison, peak_megabytes, report

SHAPES: dict[str, tuple[tuple[str, ...], dict[str, str], float]] = {
    "int key": (("k",), {}, 1.08),
    "string key": (("s",), {}, 1.12),
    "composite key": (("s", "k"), {}, 1.12),
    "partial-update": (("k",), {"merge-engine": "partial-update"}, 1.7),
    "sums": (
        ("k",),
        {
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "fields.b.aggregate-function": "sum",
            "fields.d.aggregate-function": "sum",
        },
        1.5,
    ),
}
"""Key columns, options, and the maximum ratio of the cost of a compaction to that of the copy."""
COLUMNS = {"k": "INT NOT NULL", "s": "STRING NOT NULL", "a": "BIGINT", "b": "DOUBLE", "c": "STRING", "d": "BIGINT"}
RUNS = 5
MAX_MEGABYTES = 512


def overlapping_runs(folder: Path, keys: tuple[str, ...], chosen: Mapping[str, str], rows: int) -> TableContext:
    """A table of one bucket with `RUNS` level-0 files. Each call creates the same rows."""
    random = np.random.default_rng(7)
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    options = {"bucket": "1", "file.format": "parquet", "write-only": "true", "write-buffer-size": "4 gb", **chosen}
    schema = TableSchema(0, fields, len(fields) - 1, (), keys, options, None, 0)
    (folder / "schema").mkdir(parents=True)
    (folder / "schema" / "schema-0").write_text(schema.to_json())
    context = TableContext.open(str(folder))
    source = folder.parent / "rows.parquet"
    for _ in range(RUNS):
        k = pa.array(random.permutation(rows)[: rows // RUNS].astype(np.int32))
        texts = pc.utf8_lpad(k.cast(pa.string()), 10, "0")
        numbers = random.random(len(k))
        amounts = pa.array((numbers * 1e9).astype(np.int64))
        columns = [k, texts, amounts, pa.array(numbers), texts, amounts]
        pq.write_table(pa.table(columns, names=list(COLUMNS)), source)
        run_write(context, WriteRequest(FileRows((str(source),))), LocalEngine(), NoProgress())
    return context


def full_compaction(context: TableContext) -> CompactionTask:
    snapshot = context.snapshots.latest()
    (bucket,) = bucket_files(context, snapshot).values()
    task = plan_bucket(context, bucket, FULL_STRATEGY, snapshot.id if snapshot else 0)
    assert isinstance(task, CompactionTask)
    return task


def comparison(name: str, context: TableContext, rows: int) -> Comparison:
    """Decoding, merging and writing, compared with decoding and writing."""
    task = full_compaction(context)
    paths = [Path(context.data_file_path(task.partition, task.bucket, file)) for file in task.files]
    made: list[Path] = []

    def merge() -> None:
        message = run_compaction(context, task)
        made.extend(Path(context.data_file_path(task.partition, task.bucket, file)) for file in message.compact.added)

    def copy() -> None:
        for path in paths:
            made.append(path.with_name(f"copy-of-{path.name}"))
            pq.write_table(pq.read_table(path), made[-1], compression="zstd", compression_level=1, use_dictionary=False)

    def reset() -> None:
        while made:
            made.pop().unlink()

    return Comparison(f"compact {RUNS} runs, {name}, {rows} rows", merge, copy, SHAPES[name][2], reset)


def memory_is_bounded(name: str, context: TableContext, rows: int) -> bool:
    command = [sys.executable, "-m", "scripts.bench.compaction", "--one", context.url]
    megabytes = float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    met = megabytes <= MAX_MEGABYTES
    said = "met" if met else "MISSED"
    print(f"{name}: peak memory {megabytes:.0f} MB (goal {MAX_MEGABYTES} MB, {said})", file=sys.stderr)
    measured = {"name": f"memory of compacting {name}, {rows} rows", "megabytes": megabytes, "goal_megabytes": MAX_MEGABYTES}
    print(json.dumps({**measured, "met": met, "on": MACHINE}), flush=True)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--only", choices=SHAPES, action="append", help="repeatable")
    parser.add_argument("--one", metavar="TABLE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        context = TableContext.open(arguments.one)
        run_compaction(context, full_compaction(context))
        print(peak_megabytes())
        return
    met = True
    for name in arguments.only or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            keys, options, _ = SHAPES[name]
            context = overlapping_runs(Path(folder) / "t", keys, options, arguments.rows)
            met &= report([comparison(name, context, arguments.rows)], arguments.rounds)
            met &= memory_is_bounded(name, context, arguments.rows)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
