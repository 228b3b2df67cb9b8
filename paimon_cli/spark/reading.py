"""A table as a DataFrame: Spark's own Parquet reader for files that need no merge, Python workers for the rest.

1. plan: `Table.scan` finds the snapshot and its splits; what a condition rules out is not in them.
2. divide: files whose rows are all current, in Parquet, with columns that Spark can match by name, are native (`NativeFiles`).
3. native: one Parquet scan for each set of like files. Deletion vectors are bitmaps in a broadcast table, one row per file, that
   Spark tests with the row's position.
4. the rest: merged by this package, in tasks that return Arrow batches.
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from paimon_cli.api.table import Table
from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.deletion_vectors import BucketVectors, load_vectors
from paimon_cli.casts.column_cast import same_type
from paimon_cli.datatypes.arrow_types import retyped
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.jobs.spark.job import shown_alone
from paimon_cli.jobs.spark.session import send_package
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import INSERT, UPDATE_AFTER, VALUE_KIND
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.read.scan_plan import Split
from paimon_cli.spark.spark_types import nullable_schema, spark_condition, spark_type
from paimon_cli.storage.whole_file import ScratchStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN_SCHEMES = ("hdfs://", "webhdfs://")
"""URLs that Spark reads with its own configuration, besides paths on this machine."""
GLOB_CHARACTERS = frozenset("{}[]*?\\")
"""Spark would take a path with one of them for a pattern."""
MOST_WORD_BYTES = 512 << 20
"""Bitmaps that are broadcast to the executors; files whose vectors do not fit are read by Python workers."""
MOST_TWINS = 8
"""Files with vectors that have one size, each of which takes a scan; further ones are read by Python workers."""
SIZE, POSITION, WORDS = "_paimon_size", "_paimon_position", "_paimon_words"
OTHER_FILE = "a data file has another size, or more rows, than its manifest says; read it with native=False"
IS_UNMARKED = (
    f"coalesce(getbit(get({WORDS}, cast(shiftright({POSITION}, 6) AS int)), cast({POSITION} & 63 AS int)), "
    f"raise_error('{OTHER_FILE}')) = 0"
)


def read(
    spark: SparkSession,
    name: str,
    columns: str | Sequence[str] | None = None,
    where: str | None = None,
    *,
    snapshot: int | None = None,
    tag: str | None = None,
    as_of: str | None = None,
    incremental: str | None = None,
    incremental_mode: str = "auto",
    row_kind: bool = False,
    options: Mapping[str, str] | None = None,
    warehouse: str | None = None,
    branch: str | None = None,
    native: bool | None = None,
) -> DataFrame:
    """The rows of a table, merged by key, at one snapshot that is found now: the same however often the DataFrame is used.

    `name`, `options`, `warehouse` and `branch` are those of `Table.open`; the rest is as in `Table.scan`. `where` skips files by
    the table's statistics; conditions of the DataFrame are pushed into Spark's scan of the files that remain.

    `native` says whether Spark's Parquet reader may open data files. By default it may on local disks and HDFS; True: in object
    stores too, with the session's own credentials (`spark.hadoop.fs.s3a...`); False: Python workers read all.

    Raises `NotFound`, `UsageError`, and `NotSupported` for columns that Spark cannot hold, such as TIME. A query that runs
    after its snapshot has expired fails in Spark, because the files are gone.
    """
    table = Table.open(name, options, warehouse=warehouse, branch=branch)
    scan = table.scan(
        columns,
        where,
        snapshot=snapshot,
        tag=tag,
        as_of=as_of,
        incremental=incremental,
        incremental_mode=incremental_mode,
        row_kind=row_kind,
    )
    return frame_of(spark, scan.rows, native=native)


_scratch_of_frames: list[ScratchStorage] = []
"""Files of this process that DataFrames read, whenever that is: they live until the process ends."""


def frame_of(spark: SparkSession, scan: RowScan, *, native: bool | None = None) -> DataFrame:
    """The rows of a planned scan."""
    if isinstance(scan.context.storage, ScratchStorage):
        _scratch_of_frames.append(scan.context.storage)
    files, splits = divided(scan, native)
    parts = [_native_frame(spark, scan, files)] if files else []
    if splits or not parts:
        parts.append(_merged_frame(spark, scan, splits))
    return reduce(DataFrame.unionByName, parts)


@dataclass(frozen=True)
class NativeFile:
    """A data file for Spark's Parquet reader. `old_names`: of its columns, in the order of those read; None where it lacks one.

    `has_retractions`: rows of it may be deletes, which are not to be shown.
    """

    path: str
    size: int
    old_names: tuple[str | None, ...]
    has_retractions: bool
    rows: int
    vector: DeletionVector | None = field(default=None, repr=False)


def divided(scan: RowScan, native: bool | None) -> tuple[list[NativeFile], list[Split]]:
    """The files that Spark reads by itself, and the splits that it cannot read."""
    if native is False or not _can_be_native(scan):
        return [], list(scan.plan.splits)
    files, splits = [], []
    reader = _NativeSplits(scan, native is True)
    for split in scan.plan.splits:
        found = reader.files_of(split)
        if found is None:
            splits.append(split)
        else:
            files += found
    return files, splits


def _can_be_native(scan: RowScan) -> bool:
    """Whether what is asked of every row can be computed by Spark, which knows no files that this process keeps for itself."""
    if isinstance(scan.context.storage, ScratchStorage):
        return False
    plain = not scan.request.keep_kinds and not any(value.path for value in scan.selection.values)
    return plain and (scan.predicate is None or spark_condition(scan.predicate.condition) is not None)


class _NativeSplits:
    """Decides on each split of a scan."""

    def __init__(self, scan: RowScan, object_stores: bool) -> None:
        self._context = scan.context
        self._fields = tuple(scan.context.schema.field(name) for name in _read_columns(scan))
        self._object_stores = object_stores
        self._names: dict[int, tuple[str | None, ...] | None] = {}
        self._word_bytes = 0
        self._marked_sizes: Counter[int] = Counter()

    def files_of(self, split: Split) -> list[NativeFile] | None:
        """The files of the split; None if one of them needs this package."""
        if split.needs_merge or split.before is not None or split.is_changelog:
            return None
        vectors = load_vectors(self._context, split.bucket)
        files = [self._file(split, file, vectors) for file in split.files]
        found = [file for file in files if file is not None]
        marked = [file for file in found if file.vector is not None]
        words = sum(file.rows // 8 for file in marked)
        sizes = self._marked_sizes + Counter(file.size for file in marked)
        if len(found) < len(files) or self._word_bytes + words > MOST_WORD_BYTES or max(sizes.values(), default=0) > MOST_TWINS:
            return None
        self._word_bytes += words
        self._marked_sizes = sizes
        return found

    def _file(self, split: Split, file: DataFileMeta, vectors: BucketVectors) -> NativeFile | None:
        names = self._old_names(file.schema_id)
        if names is None or file.external_path is not None or file_format(file.file_name) != "parquet":
            return None
        path = self._spark_path(self._context.data_file_path(split.bucket.partition, split.bucket.bucket, file))
        if path is None:
            return None
        retractions = _may_hold_retractions(self._context, file)
        return NativeFile(path, file.file_size, names, retractions, file.row_count, vectors.of(file.file_name))

    def _spark_path(self, path: str) -> str | None:
        if GLOB_CHARACTERS & set(path):
            return None
        if path.startswith("/"):
            return f"file://{path}"
        if path.startswith(PLAIN_SCHEMES):
            return path
        scheme, _, rest = path.partition("://")
        return f"{'s3a' if scheme == 's3' else scheme}://{rest}" if self._object_stores else None

    def _old_names(self, schema_id: int) -> tuple[str | None, ...] | None:
        """What the columns were called in that schema; None if a value would have to be converted, or a name misleads."""
        if schema_id not in self._names:
            old = {column.id: column for column in self._context.schemas.get(schema_id).fields}
            self._names[schema_id] = _matched(self._fields, old)
        return self._names[schema_id]


def _matched(fields: Sequence[DataField], old: Mapping[int, DataField]) -> tuple[str | None, ...] | None:
    names: list[str | None] = []
    for column in fields:
        then = old.get(column.id)
        if then is not None and not same_type(then.type, column.type):
            return None
        names.append(None if then is None else then.name)
    return tuple(names)


def _may_hold_retractions(context: TableContext, file: DataFileMeta) -> bool:
    """Whether a row of the file may be a delete. A compaction into the top level leaves none; elsewhere the count in the manifest
    cannot be trusted, because some writers always write 0 (FORMAT.md, section 11.1).
    """
    return context.mode.has_keys and not (file.level == context.options.num_levels - 1 and file.delete_row_count == 0)


def _read_columns(scan: RowScan) -> tuple[str, ...]:
    """Columns of the result, then those that only the condition needs."""
    return tuple(dict.fromkeys((*scan.selection.columns, *(scan.predicate.columns if scan.predicate else ()))))


def _native_frame(spark: SparkSession, scan: RowScan, files: Sequence[NativeFile]) -> DataFrame:
    """The files by Spark's Parquet reader: a scan for each set of columns, with and without retractions and vectors.

    Files with vectors are told apart by their sizes, which takes Spark a fraction of the time that names would: of those of equal
    size each is in a scan of its own.
    """
    alike: dict[tuple[Any, ...], list[NativeFile]] = defaultdict(list)
    twins: Counter[tuple[Any, ...]] = Counter()
    for file in files:
        kind = (file.old_names, file.has_retractions, file.vector is not None)
        alike[kind, twins[kind, file.size]].append(file)
        twins[kind, file.size] += file.vector is not None
    parts = [_parquet(spark, scan, group) for group in alike.values()]
    rows = reduce(DataFrame.unionByName, parts)
    if scan.predicate is not None:
        condition = spark_condition(scan.predicate.condition)
        assert condition is not None, "a condition that Spark cannot compute rules native reads out"
        rows = rows.where(condition)
    shown = tuple(scan.selection.columns)
    return rows if shown == _read_columns(scan) else rows.select(*map(quoted_name, shown))


def _parquet(spark: SparkSession, scan: RowScan, files: Sequence[NativeFile]) -> DataFrame:
    """Files of one kind: their columns under today's names, without rows that are deleted.

    Conditions and columns are texts where they can be: PySpark takes 3 ms to make a `Column`, as it notes where that is called.
    """
    fields = [scan.context.schema.field(name) for name in _read_columns(scan)]
    old_names, marked = files[0].old_names, files[0].vector is not None
    stored = [replace(column, name=old) for column, old in zip(fields, old_names, strict=True) if old is not None]
    schema = nullable_schema(stored)
    if files[0].has_retractions:
        schema = schema.add(VALUE_KIND, T.ByteType())
    rows = stored_rows = spark.read.schema(schema).parquet(*(file.path for file in files))
    if files[0].has_retractions:
        rows = rows.where(f"{VALUE_KIND} IN ({INSERT}, {UPDATE_AFTER})")
    if marked:
        placed = rows.selectExpr("*", f"_metadata.file_size AS {SIZE}", f"_metadata.row_index AS {POSITION}")
        rows = placed.join(_words(spark, files).hint("broadcast"), SIZE, "left").where(IS_UNMARKED)
    if rows is stored_rows and old_names == tuple(column.name for column in fields):
        return rows
    return rows.select(*(_column(column, old) for column, old in zip(fields, old_names, strict=True)))


def _column(column: DataField, old_name: str | None) -> Column | str:
    if old_name is None:
        return F.lit(None).cast(spark_type(column.type)).alias(column.name)
    name = quoted_name(old_name)
    return name if old_name == column.name else F.col(name).alias(column.name)


def _words(spark: SparkSession, files: Sequence[NativeFile]) -> DataFrame:
    """A row for each file: its size, and its vector as 64-bit words, one bit for each row of the file."""
    words = []
    for file in files:
        assert file.vector is not None, "files with and without vectors are read apart"
        bits = np.zeros(-(-file.rows // 64) * 64, bool)
        bits[np.array(file.vector.positions.to_array(), np.int64)] = True
        words.append(np.packbits(bits, bitorder="little").view(np.int64))
    sizes = pa.array([file.size for file in files], pa.int64())
    table = pa.table({SIZE: sizes, WORDS: pa.array(words, pa.list_(pa.int64()))})
    return spark.createDataFrame(table)


def _merged_frame(spark: SparkSession, scan: RowScan, splits: Sequence[Split]) -> DataFrame:
    """The splits by Python workers, a task each."""
    schema = nullable_schema(scan.fields)
    if not splits:
        return spark.createDataFrame([], schema)
    send_package(spark)
    tasks = replace(scan, plan=replace(scan.plan, splits=tuple(splits))).parts()
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reading(tasks, to_arrow_schema(schema, timezone="UTC")), schema)


def _reading(tasks: Sequence[RowScan], schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read_tasks(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
            yield from _spark_rows(tasks[number], schema)

    return read_tasks


def _spark_rows(part: RowScan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part of a scan, in a task, in the Arrow types that Spark takes."""
    gc.freeze()  # Spark collects garbage after each task: going through all imported modules took most of a small one
    with shown_alone():
        for rows in part.rows():
            columns = [retyped(rows.column(column.name), column.type, pa.Array.cast) for column in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def split_partitions(scan: RowScan) -> list[InputPartition]:
    """For a data source: a partition for each split of the scan, which brings all that its task needs.

    Without any splits one that holds no rows, as Spark would make it.
    """
    return [InputPartition(part) for part in scan.parts()] or [InputPartition(None)]


def read_partition(partition: InputPartition, schema: T.StructType) -> Iterator[pa.RecordBatch]:
    """The rows of such a partition in the Arrow schema that Spark derives from `schema`."""
    return iter(()) if partition.value is None else _spark_rows(partition.value, to_arrow_schema(schema, timezone="UTC"))


def check_types(schema: T.StructType, scan: RowScan) -> None:
    """`UsageError` if the user's schema gives a column another type than the table."""
    for given, own in zip(schema, nullable_schema(scan.fields), strict=True):
        if given.dataType != own.dataType:
            raise UsageError(
                f"column {given.name} is read as {given.dataType.simpleString()}",
                f"in the table it is {own.dataType.simpleString()}",
                f'give it that type, or cast it afterwards: .selectExpr("CAST({given.name} AS {given.dataType.simpleString()})")',
            )
