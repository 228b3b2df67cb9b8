"""Writing append tables and combining their small files, against pyarrow and Spark.

    python -m scripts.bench.append [--rows 10000000] [--files 1000] [--rounds 5] [--only local] [--master local[2]]

The copies that pyarrow makes have the settings of our files: codec, level, dictionaries, checksums, row groups of 32 MiB decoded.
A compaction is the whole job, from the plan to the commit. It copies row groups without decoding them, which pyarrow cannot do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress
from paimon_cli.jobs.process import usable_cores
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.jobs.spark.session import SparkRequest
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.process_tree import tree_cpu_seconds
from scripts.bench.spark_write import COLUMNS, SPARKS_OWN_JVM, source, started_spark

SIZES = {"1 MB": (31_500, 0.12), "100 KB": (3_150, 0.3)}
"""Rows of a small file, and the maximum ratio of the CPU time of a compaction to that of the copy."""
REPETITIVE = ["c"]
LOCAL, SPARK = "local", "spark"


def new_table(folder: Path, options: dict[str, str]) -> TableContext:
    """An append table without buckets."""
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    chosen = {"bucket": "-1", "file.format": "parquet", "write-only": "true", **options}
    (folder / "schema").mkdir(parents=True, exist_ok=True)
    (folder / "schema" / "schema-0").write_text(TableSchema(0, fields, len(fields) - 1, (), (), chosen, None, 0).to_json())
    return TableContext.open(str(folder))


def copied(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Write the batches as one Parquet file, with the settings of our files."""
    writer, waiting, size = None, list[pa.RecordBatch](), 0
    for batch in batches:
        writer = writer or pq.ParquetWriter(
            path,
            batch.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=REPETITIVE,
            store_schema=False,
            write_page_checksum=True,
            max_rows_per_page=20_000,
        )
        waiting.append(batch)
        size += batch.nbytes
        if size >= PIECES.row_group_bytes:
            writer.write_table(pa.Table.from_batches(waiting), row_group_size=1 << 30)
            waiting, size = [], 0
    if writer is not None:
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting), row_group_size=1 << 30)
        writer.close()


def written(folder: Path, given: Path, rows: int, engine: Engine) -> Callable[[], None]:
    def write() -> None:
        summary = run_write(new_table(folder / "t", {}), WriteRequest(FileRows((str(given),))), engine, NoProgress())
        assert summary.rows == rows

    return write


def emptied(folder: Path) -> Callable[[], None]:
    def reset() -> None:
        shutil.rmtree(folder / "t", ignore_errors=True)
        shutil.rmtree(folder / "alone", ignore_errors=True)

    return reset


def write_comparison(folder: Path, given: Path, rows: int) -> Comparison:
    def copy() -> None:
        (folder / "alone").mkdir()
        copied(pq.ParquetFile(given).iter_batches(), folder / "alone" / "copy.parquet")

    write = written(folder, given, rows, LocalEngine(usable_cores()))
    return Comparison(f"write to an append table, {rows:,} rows", write, copy, 1.15, emptied(folder))


def spark_comparison(session: SparkSession, folder: Path, given: Path, rows: int) -> Comparison:
    def spark_alone() -> None:
        written = session.read.parquet(str(given)).write.option("compression", "zstd")
        written.option("parquet.compression.codec.zstd.level", "1").parquet(str(folder / "alone"))

    write = written(folder, given, rows, SparkEngine(SparkRequest()))
    return Comparison(
        f"write to an append table on Spark, {rows:,} rows", write, spark_alone, 0.6, emptied(folder), tree_cpu_seconds
    )


def compact_comparison(folder: Path, size: str, files: int) -> Comparison:
    """The compaction of small files. Each time, the table is a copy with hard links of one that is not changed."""
    rows, goal = SIZES[size]
    given = source(folder / "small.parquet", rows * files)
    original = folder / "small"
    run_write(
        new_table(original, {"target-file-row-num": str(rows)}),
        WriteRequest(FileRows((str(given),))),
        LocalEngine(1),
        NoProgress(),
    )
    context = new_table(original, {})
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert len(bucket.files) == files
    paths = [context.data_file_path(*bucket.bucket_id, file) for file in bucket.files]

    def compact() -> None:
        summary = run_compact(TableContext.open(str(folder / "t")), CompactRequest(), LocalEngine(usable_cores()), NoProgress())
        assert summary.files_before == files

    def copy() -> None:
        (folder / "alone").mkdir()
        copied((batch for path in paths for batch in pq.ParquetFile(path).iter_batches()), folder / "alone" / "copy.parquet")

    def reset() -> None:
        emptied(folder)()
        shutil.copytree(original, folder / "t", copy_function=os.link)

    return Comparison(f"compact {files:,} files of {size}", compact, copy, goal, reset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--only", choices=(*SIZES, LOCAL, SPARK), action="append", help="repeatable")
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    chosen = arguments.only or (*SIZES, LOCAL, SPARK)
    met = True
    for size in (size for size in SIZES if size in chosen):
        with tempfile.TemporaryDirectory() as folder:
            met &= report([compact_comparison(Path(folder), size, arguments.files)], arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        given = source(Path(folder) / "in.parquet", arguments.rows) if {LOCAL, SPARK} & set(chosen) else None
        if given is not None and LOCAL in chosen:
            met &= report([write_comparison(Path(folder), given, arguments.rows)], arguments.rounds)
        if given is not None and SPARK in chosen:
            with started_spark(arguments.master, SPARKS_OWN_JVM) as spark:
                met &= report([spark_comparison(spark.session, Path(folder), given, arguments.rows)], arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
