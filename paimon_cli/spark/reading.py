"""A table as a DataFrame: Spark's own Parquet reader where rows only have to be left out, Python workers for other files.

1. plan: `Table.scan` finds the snapshot and the splits that can contain matching rows.
2. divide: `native_files` decides which files Spark reads.
3. native: one Parquet scan for each group of similar files. The rows to leave out are bitmaps, one per file, in the query
   itself or broadcast; Spark tests them with the position of each row.
4. others: `worker_rows` reads and merges them in Python workers.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from paimon_cli.api.arguments import checks_call, takes
from paimon_cli.api.runtime import check_session
from paimon_cli.api.scan import Scan, open_scan
from paimon_cli.api.table import Table
from paimon_cli.datatypes.data_type import DataField, fields_of
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import UsageError
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.jobs.spark.submit import check_running, classic_context
from paimon_cli.jobs.table_change import Summary
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, RowKind
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.requests.reading import ScanCall, SparkCall
from paimon_cli.spark.native_files import Division, NativeFile, all_to_python, divided, read_columns
from paimon_cli.spark.spark_types import nullable_schema, spark_condition, spark_type
from paimon_cli.spark.table_call import TableCall
from paimon_cli.spark.worker_rows import merged_frame, task_parts
from paimon_cli.storage.whole_file import ScratchStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_LITERAL_FILES = 8
MAX_LITERAL_ROWS = 4_000_000
"""Up to these limits, bitmaps become literals of the query, which saves the 0.1 s that a broadcast takes."""
_SIZE, POSITION, _WORDS = "_paimon_size", "_paimon_position", "_paimon_words"
_METADATA = "_metadata"
_OWN_COLUMNS = (_METADATA, _SIZE, POSITION, _WORDS)
"""Columns that are added while rows are left out. One of the table with such a name, in any case, would be mistaken for it."""
SIZE_OF_FILE, PLACE_IN_FILE = f"{_METADATA}.file_size", f"{_METADATA}.row_index"
AS_WRITTEN = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""Options that keep settings of the session from changing dates before 1582 or leaving out files."""
WITHOUT_BOUNDS = {"parquet.filter.stats.enabled": "false", "parquet.filter.columnindex.enabled": "false"}
"""Options with which Spark's reader skips no row group by bounds. In files that Arrow wrote these ignore NaN, which in Spark is
the greatest number: `x > 5` would lose it.
"""
LISTED_BY_JOB = "spark.sql.sources.parallelPartitionDiscovery.threshold"
MAX_LISTED_FILES = 32
"""The setting for the number of files above which Spark finds their sizes in a job, with a task for each; and its default."""
CASE_SENSITIVE = "spark.sql.caseSensitive"
V1_SOURCES = "spark.sql.sources.useV1SourceList"
OTHER_FILE = "a data file has another size, or more rows, than its manifest says; read it with native=False"


class FrameCall(TableCall, SparkCall):
    """A read of a table as a DataFrame."""

    def check(self) -> None:
        super().check()
        if self.order_by is not None:
            raise UsageError("--order-by of a DataFrame", "Spark changes the order of rows", "frame.orderBy(...) of the result")


Readable = str | os.PathLike[str] | Table | Scan


@checks_call
@takes(FrameCall)
def read(spark: SparkSession, name: Readable, call: FrameCall) -> DataFrame:
    """The rows of a table, merged by key, at one snapshot. It is chosen now, so that every use of the DataFrame reads the same.

    Files are chosen now, too. If they overlap, their keys may be merged by this call, which takes up to about a second.

    `name`, `options`, `warehouse` and `branch` are those of `Table.open`; `name` may be an opened table, too, or a scan. The
    others are those of `Table.scan`. `where` skips files by their statistics; conditions of the DataFrame are pushed into Spark's
    scan of the remaining files. Instead of `order_by`, sort the DataFrame.

    `native` says whether Spark's Parquet reader may open data files. By default it may on local disks and HDFS; True: in object
    stores too, with the session's own credentials (`spark.hadoop.fs.s3a...`); False: Python workers read all.

    Raises `NotFound`, `UsageError`, and `NotSupported` for columns that Spark cannot hold, such as TIME. A query that runs
    after its snapshot has expired fails in Spark, because the files are gone.
    """
    check_session(spark)
    check_running(spark)
    scan = _scan_of(name, call)
    frame = frame_of(spark, scan, native=call.native)
    return frame if scan.request.limit is None else frame.limit(scan.request.limit)


@dataclass(frozen=True, repr=False)
class SparkPlan(Summary):
    """Who reads the files of a table. `native_…`: Spark's Parquet reader; `hidden_rows`: those that it leaves out by bitmaps.

    `python_…`: Python workers. `reasons`: why they do, with the number of files.
    """

    snapshot: int | None
    native_files: int = 0
    native_rows: int = 0
    native_size: int = 0
    hidden_rows: int = 0
    python_files: int = 0
    python_rows: int = 0
    python_size: int = 0
    python_tasks: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)


@checks_call
@takes(FrameCall)
def explain(spark: SparkSession, name: Readable, call: FrameCall) -> SparkPlan:
    """What Spark reads by itself if `read` is called with these arguments, and what goes through Python, and why.

    Plans as `read` does; no rows are read, but keys of overlapping files may be merged. `name`, `options`, `warehouse`, `branch`
    and `native` are those of `read`; the others are those of `Table.scan`.
    """
    check_session(spark)
    check_running(spark)
    scan = _scan_of(name, call)
    division = _division(spark, scan, call.native)
    rest = [file for split in division.splits for file in split.files]
    return SparkPlan(
        None if scan.plan.snapshot is None else scan.plan.snapshot.id,
        native_files=len(division.files),
        native_rows=sum(file.rows for file in division.files),
        native_size=sum(file.size for file in division.files),
        hidden_rows=sum(
            int(np.unpackbits(file.hidden.view(np.uint8)).sum()) for file in division.files if file.hidden is not None
        ),
        python_files=len(rest),
        python_rows=sum(file.row_count for file in rest),
        python_size=sum(file.file_size for file in rest),
        python_tasks=len(task_parts(scan, division.splits)) if division.splits else 0,
        reasons=dict(division.reasons),
    )


def _scan_of(name: Readable, call: FrameCall) -> RowScan:
    """The planned scan. Raises `UsageError` for arguments that a scan or an opened table has already."""
    if not isinstance(name, Scan):
        return open_scan(call.table(name), call).rows
    call.check_open()
    if ScanCall.of(call) != ScanCall():
        raise UsageError("the scan is planned", "its columns, condition and snapshot were chosen", "give them to Table.scan")
    if name.rows.request.order_by:
        raise UsageError("order_by of a scan", "Spark changes the order of rows", "frame.orderBy(...) of the result")
    return name.rows


_scratch_of_frames: list[ScratchStorage] = []
"""Temporary files that DataFrames of this process may read at any time, so they are kept until the process ends."""


def frame_of(spark: SparkSession, scan: RowScan, *, native: bool | None = None) -> DataFrame:
    """The rows of a planned scan."""
    if isinstance(scan.context.storage, ScratchStorage):
        _scratch_of_frames.append(scan.context.storage)
    division = _division(spark, scan, native)
    parts = [_native_frame(spark, scan, division.files)] if division.files else []
    if division.splits or not parts:
        parts.append(merged_frame(spark, scan, division.splits))
    return reduce(DataFrame.unionByName, parts)


def _division(spark: SparkSession, scan: RowScan, native: bool | None) -> Division:
    """Who reads the files, as this session is set."""
    if not _distinguishes(spark, scan):
        return all_to_python(scan, f"columns differ only in upper and lower case, and {CASE_SENSITIVE} is not set")
    division = divided(scan, native)
    if any(file.hidden is not None for file in division.files) and not _has_positions(spark, division.files):
        return all_to_python(scan, f"{V1_SOURCES} is without parquet, or a column has the name of one that is added here")
    return division


def _has_positions(spark: SparkSession, files: Sequence[NativeFile]) -> bool:
    """Whether Spark's Parquet reader has the metadata columns with sizes and row numbers, and can add ours.

    Version 2 of the source has not, and a column called `_metadata` hides them.
    """
    if any(name is not None and name.lower() in _OWN_COLUMNS for file in files for name in file.old_names):
        return False
    return "parquet" in str(spark.conf.get(V1_SOURCES)).lower().replace(" ", "").split(",")


def _distinguishes(spark: SparkSession, scan: RowScan) -> bool:
    """Whether Spark's Parquet reader distinguishes the columns of the table and of its files, and the fields of each ROW.

    Some may differ only in upper and lower case. Old files may hold columns that were dropped or renamed since.
    """
    if str(spark.conf.get(CASE_SENSITIVE)).lower() == "true":
        return True
    schemas = scan.context.schemas
    old = {file.schema_id for split in scan.plan.splits for file in split.files} - {scan.context.schema.id}
    return all(
        _are_distinct(schema.fields, _stored_columns(schema))
        for schema in (scan.context.schema, *map(schemas.named, sorted(old)))
    )


def _stored_columns(schema: TableSchema) -> list[str]:
    """The columns that data files have beside those of the table."""
    keys = [f"{KEY_PREFIX}{name}" for name in schema.trimmed_primary_keys]
    return [*keys, SEQUENCE_NUMBER, VALUE_KIND] if schema.primary_keys else []


def _are_distinct(fields: Sequence[DataField], others: Sequence[str] = ()) -> bool:
    names = [*(field.name for field in fields), *others]
    if len({name.lower() for name in names}) < len(names):
        return False
    return all(_are_distinct(fields_of(part)) for field in fields for part in field.type.parts())


def _native_frame(spark: SparkSession, scan: RowScan, files: Sequence[NativeFile]) -> DataFrame:
    """The files read by Spark's Parquet reader: files that differ in `traits` take separate scans.

    Files with bitmaps are identified by their size, which takes Spark a fraction of the time that names would take; so those of
    equal size take separate scans, too.
    """
    groups: dict[tuple[Any, ...], list[NativeFile]] = defaultdict(list)
    twins: Counter[tuple[Any, ...]] = Counter()
    for file in files:
        traits = (file.old_names, file.has_retractions, file.may_hold_nan, file.hidden is not None)
        groups[traits, twins[traits, file.size]].append(file)
        twins[traits, file.size] += file.hidden is not None
    parts = [_parquet(spark, scan, group) for group in groups.values()]
    rows = reduce(DataFrame.unionByName, parts)
    if scan.predicate is not None:
        condition = spark_condition(scan.predicate.condition)
        assert condition is not None, "no file is native if Spark cannot compute the condition"
        rows = rows.where(condition)
    shown = tuple(scan.selection.columns)
    return rows if shown == read_columns(scan) else rows.select(*map(quoted_name, shown))


def _parquet(spark: SparkSession, scan: RowScan, files: Sequence[NativeFile]) -> DataFrame:
    """The rows of one group of files that are not deleted, with the columns of the scan under their current names.

    Conditions and columns are strings where possible: PySpark takes 3 ms to create a `Column`, because it records the call site.
    """
    fields = [scan.context.schema.field(name) for name in read_columns(scan)]
    old_names = files[0].old_names
    stored = [replace(column, name=old) for column, old in zip(fields, old_names, strict=True) if old is not None]
    schema = nullable_schema(stored)
    if files[0].has_retractions:
        schema = schema.add(VALUE_KIND, T.ByteType())
    options = AS_WRITTEN | (WITHOUT_BOUNDS if files[0].may_hold_nan else {})
    paths = [file.path for file in files]
    with _listed_by_driver(spark, paths):
        rows = spark.read.schema(schema).options(**options).parquet(*paths)
    if files[0].has_retractions:
        rows = rows.where(f"{VALUE_KIND} IN ({RowKind.INSERT}, {RowKind.UPDATE_AFTER})")
    if files[0].hidden is not None:
        rows = _without_hidden(spark, rows, files)
    if not files[0].has_retractions and old_names == tuple(column.name for column in fields):
        return rows
    return rows.select(*(_column(column, old) for column, old in zip(fields, old_names, strict=True)))


_listing = Lock()


@contextmanager
def _listed_by_driver(spark: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """In the block, Spark finds the sizes of local files without a job, whose tasks take much longer than the calls themselves.

    Not over Connect, where Spark finds them when the query runs.
    """
    if len(paths) <= MAX_LISTED_FILES or not paths[0].startswith("file:") or classic_context(spark) is None:
        yield
        return
    with _listing:
        before = spark.conf.get(LISTED_BY_JOB, None)
        spark.conf.set(LISTED_BY_JOB, len(paths))
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(LISTED_BY_JOB)
            else:
                spark.conf.set(LISTED_BY_JOB, before)


def _column(column: DataField, old_name: str | None) -> Column | str:
    if old_name is None:
        return F.lit(None).cast(spark_type(column.type)).alias(column.name)
    name = quoted_name(old_name)
    return name if old_name == column.name else F.col(name).alias(column.name)


def _without_hidden(spark: SparkSession, rows: DataFrame, files: Sequence[NativeFile]) -> DataFrame:
    """The rows that the bitmaps of their files do not hide."""
    words = [file.hidden for file in files if file.hidden is not None]
    if len(files) <= MAX_LITERAL_FILES and sum(file.rows for file in files) <= MAX_LITERAL_ROWS:
        cases = (f"WHEN {file.size} THEN {_literal(bits)}" for file, bits in zip(files, words, strict=True))
        return rows.where(_is_shown(f"CASE {SIZE_OF_FILE} {' '.join(cases)} END", PLACE_IN_FILE))
    sizes = pa.array([file.size for file in files], pa.int64())
    table = pa.table({_SIZE: sizes, _WORDS: pa.array(words, pa.list_(pa.int64()))})
    placed = rows.selectExpr("*", f"{SIZE_OF_FILE} AS {_SIZE}", f"{PLACE_IN_FILE} AS {POSITION}")
    joined = placed.join(spark.createDataFrame(table).hint("broadcast"), _SIZE, "left")
    return joined.where(_is_shown(_WORDS, POSITION)).drop(_SIZE, POSITION, _WORDS)


def _is_shown(words: str, position: str) -> str:
    return (
        f"coalesce(getbit(get({words}, cast(shiftright({position}, 6) AS int)), cast({position} & 63 AS int)), "
        f"raise_error('{OTHER_FILE}')) = 0"
    )


def _literal(words: np.ndarray) -> str:
    """SQL for an `array<bigint>`, which Spark evaluates once, during planning."""
    return f"cast(split('{','.join(map(str, words.tolist()))}', ',') AS array<bigint>)"
