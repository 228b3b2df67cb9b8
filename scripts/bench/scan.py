"""A merge-on-read scan to Arrow against a plain pyarrow read of the same files, and a write against pyarrow alone.

    python -m scripts.bench.scan [--rows 2000000] [--rounds 5]

The table has ROWS rows in two buckets, then four upserts of a tenth of them each; nothing is compacted. The floor of the write
sorts the same rows by key and writes one file.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from scripts.bench.measure import MIN_ROUNDS, Comparison, report

COLUMNS = {"id": "BIGINT NOT NULL", "a": "INT", "b": "DOUBLE", "c": "STRING", "d": "STRING"}
UPSERTS = 4


def new_table(folder: Path) -> TableContext:
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    options = {"bucket": "2", "file.format": "parquet", "write-only": "true", "write-buffer-size": "1 gb"}
    (folder / "schema").mkdir(parents=True)
    (folder / "schema" / "schema-0").write_text(TableSchema(0, fields, 4, (), ("id",), options, None, 0).to_json())
    return TableContext.open(str(folder))


def source(path: Path, ids: np.ndarray) -> Path:
    texts = pc.binary_join_element_wise("item-", pa.array(ids % 1000).cast(pa.string()), "")
    long_texts = pc.utf8_lpad(pa.array(ids * 7919 % 1_000_003).cast(pa.string()), 24, "x")
    columns = [pa.array(ids), pa.array((ids % 97).astype(np.int32)), pa.array(ids * 0.5), texts, long_texts]
    pq.write_table(pa.table(columns, names=list(COLUMNS)), path)
    return path


def comparisons(folder: Path, rows: int) -> Iterator[Comparison]:
    random = np.random.default_rng(3)
    first = source(folder / "first.parquet", random.permutation(rows).astype(np.int64))
    upserts = [source(folder / f"{i}.parquet", random.choice(rows, rows // 10, replace=False)) for i in range(UPSERTS)]
    context = new_table(folder / "t")
    for path in (first, *upserts):
        run_write(context, WriteRequest(FileRows((str(path),))), LocalEngine(), NoProgress())
    plan = plan_scan(context, context.snapshots.latest())
    paths = [
        context.data_file_path(split.bucket.partition, split.bucket.bucket, file)
        for split in plan.splits
        for file in split.bucket.files
    ]

    def scan() -> int:
        batches = (batch for split in plan.splits for batch in read_split(context, split, tuple(COLUMNS)))
        return pa.Table.from_batches(list(batches)).num_rows

    def plain() -> int:
        return sum(pq.read_table(path, columns=list(COLUMNS), use_threads=False).num_rows for path in paths)

    yield Comparison(f"merge-on-read scan, {rows} rows and {UPSERTS} upserts of a tenth", scan, plain, 1.4)

    def write() -> None:
        run_write(new_table(folder / "w"), WriteRequest(FileRows((str(first),))), LocalEngine(), NoProgress())

    def sort_and_write() -> None:
        table = pq.read_table(first, use_threads=False)
        ordered = table.take(pc.sort_indices(table, [("id", "ascending")]))
        pq.write_table(ordered, folder / "sorted.parquet", compression="zstd", compression_level=1, use_dictionary=["c"])

    yield Comparison(
        f"local write, {rows} rows", write, sort_and_write, 1.00, lambda: shutil.rmtree(folder / "w", ignore_errors=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        met = report(comparisons(Path(folder), arguments.rows), arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
