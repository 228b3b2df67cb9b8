"""A load into a table whose primary key does not include the partition, against the same load into fixed buckets.

    python -m scripts.bench.cross_partition [--rows 50000000] [--load 1000000] [--rounds 5]

Both tables hold ROWS keys and eight other columns, at the top level. The keys of the first are spread over ten partitions and
buckets of two million rows, so that every file may hold any key. Half of the loaded keys already exist, and a fifth of these move
to another partition. Both tables are write-only, and the rows come from one Parquet file. Also prints the peak memory of the
first load, measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.datatypes.bucket_functions import row_buckets
from paimon_cli.datatypes.bucket_hash import encode_rows
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.key_order import stable_order
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_COMPACT, BucketId, CommitMessage, FileChanges
from paimon_cli.metadata.data_file_schema import merge_rows
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import HASHED
from scripts.bench import lookup
from scripts.bench.measure import MIN_ROUNDS, Comparison, peak_megabytes, report

COLUMNS = {**lookup.COLUMNS, "day": "INT NOT NULL"}
DAYS = 10
BUCKET_ROWS = 2_000_000
BATCH_ROWS = 1_000_000
TOP_LEVEL = 5
RATIO, MEGABYTES = 3.0, 1024
BucketsOf = Callable[[np.ndarray, int], np.ndarray]
"""The bucket of each id, given the ids and the number of buckets in all partitions."""


def new_table(folder: Path, partition_keys: tuple[str, ...], bucket: int) -> TableContext:
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    options = {"bucket": str(bucket), "file.format": "parquet", "write-only": "true"}
    schema = TableSchema(0, fields, len(fields) - 1, partition_keys, ("id",), options, None, 0)
    (folder / "schema").mkdir(parents=True)
    (folder / "schema" / "schema-0").write_text(schema.to_json())
    return TableContext.open(str(folder))


def values(ids: np.ndarray, days: np.ndarray) -> dict[str, pa.Array]:
    return {**lookup.values(ids, np.random.default_rng(3)), "day": pa.array(days.astype(np.int32))}


def fill(context: TableContext, rows: int, buckets: list[BucketId], buckets_of: BucketsOf) -> None:
    """Fill the buckets with rows of even ids, from 0 on."""
    names, days = DataFileNames(context), len(buckets) // max(1, len({bucket_id.bucket for bucket_id in buckets}))
    writers = [DataFileWriter(context, bucket_id, level=TOP_LEVEL, source=SOURCE_COMPACT, names=names) for bucket_id in buckets]
    template = values(np.arange(BATCH_ROWS), np.zeros(BATCH_ROWS))
    for start in range(0, rows, BATCH_ROWS):
        ids = np.arange(start, min(rows, start + BATCH_ROWS), dtype=np.int64) * 2
        numbers = buckets_of(ids, len(buckets))
        order = stable_order([numbers.astype(np.int64)])
        batch = {name: column.slice(0, len(ids)) for name, column in template.items()}
        batch |= {"id": pa.array(ids[order]), "day": pa.array((numbers[order] % days).astype(np.int32))}
        grouped = merge_rows(context.schema, batch, 0, start)
        ends = np.searchsorted(numbers[order], np.arange(len(buckets) + 1))
        for writer, begin, end in zip(writers, ends, ends[1:], strict=False):
            if end > begin:
                writer.write(grouped.slice(begin, end - begin))
    total = context.options.bucket
    made = [(bucket_id, FileChanges(added=writer.close())) for bucket_id, writer in zip(buckets, writers, strict=True)]
    messages = [CommitMessage(*bucket_id, total, append) for bucket_id, append in made]
    Committer(context).commit(messages, fresh_identity(context))


def cross_table(folder: Path, rows: int) -> TableContext:
    context = new_table(folder, ("day",), -1)
    days = [encode_rows([pa.array([day], pa.int32())], context.partition_types)[0].as_py() for day in range(DAYS)]
    count = max(1, rows // BUCKET_ROWS // DAYS) * DAYS
    fill(context, rows, [BucketId(days[n % DAYS], n // DAYS) for n in range(count)], lambda ids, n: (ids // 2 * 7919) % n)
    return context


def fixed_table(folder: Path, rows: int) -> TableContext:
    count = max(1, rows // BUCKET_ROWS // DAYS) * DAYS
    context = new_table(folder, (), count)
    types = context.schema.types_of(["id"])
    fill(
        context,
        rows,
        [BucketId(EMPTY_ROW, n) for n in range(count)],
        lambda ids, n: row_buckets([pa.array(ids)], types, n, HASHED),
    )
    return context


def load_file(path: Path, rows: int, load: int) -> str:
    random = np.random.default_rng(7)
    known = random.choice(rows, load // 2, replace=False).astype(np.int64) * 2
    new = random.choice(rows, load - load // 2, replace=False).astype(np.int64) * 2 + 1
    count = max(1, rows // BUCKET_ROWS // DAYS) * DAYS
    home = (known // 2 * 7919) % count % DAYS
    days = np.append(np.where(random.random(len(known)) < 0.2, (home + 1) % DAYS, home), random.integers(0, DAYS, len(new)))
    order = random.permutation(load)
    pq.write_table(pa.table(values(np.append(known, new)[order], days[order])), path)
    return str(path)


def write(context: TableContext, source: str) -> None:
    summary = run_write(TableContext.open(context.url), WriteRequest(FileRows((source,))), LocalEngine(), NoProgress())
    assert summary.rows


def roll_back(*contexts: TableContext) -> None:
    """Roll back to the first snapshot. The files of the load become orphans."""
    for context in contexts:
        for number in context.snapshots.ids():
            if number > 1:
                context.storage.delete(context.layout.snapshot(number))
        for hint in ("LATEST", "EARLIEST"):
            context.storage.delete(f"{context.layout.root}/snapshot/{hint}")


def memory_met(url: str, source: str) -> bool:
    """Run a load in a process of its own, and print its peak memory. Returns whether the goal was met."""
    command = [sys.executable, "-m", "scripts.bench.cross_partition", "--measure-memory", url, source]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"peak memory of the load: {peak:.0f} MB (goal {MEGABYTES})", file=sys.stderr)
    print(
        json.dumps(
            {
                "name": "peak memory of a cross-partition load",
                "megabytes": peak,
                "goal_megabytes": MEGABYTES,
                "met": peak <= MEGABYTES,
            }
        )
    )
    return peak <= MEGABYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--load", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--folder", type=Path, help="create the tables here and keep them; existing ones are used again")
    parser.add_argument("--measure-memory", nargs=2, metavar=("TABLE", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_memory:
        write(TableContext.open(arguments.measure_memory[0]), arguments.measure_memory[1])
        print(peak_megabytes())
        return
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = load_file(folder / "load.parquet", arguments.rows, arguments.load)
        makers = {"cross": cross_table, "fixed": fixed_table}
        cross, fixed = (
            TableContext.open(str(folder / name)) if (folder / name).exists() else make(folder / name, arguments.rows)
            for name, make in makers.items()
        )
        comparison = Comparison(
            f"upsert of {arguments.load:,} rows into {arguments.rows:,} keys across partitions : into fixed buckets",
            lambda: write(cross, source),
            lambda: write(fixed, source),
            RATIO,
            lambda: roll_back(cross, fixed),
        )
        met = report([comparison], arguments.rounds)
        roll_back(cross)
        met &= memory_met(cross.url, source)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
