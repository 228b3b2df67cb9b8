"""A scan: a planned read of a table, whose rows are read on demand."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.errors import UsageError, importing
from paimon_cli.requests.reading import ChangelogCall, FollowedCall, ScanCall, check_range

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from paimon_cli.api.opened_table import OpenedTable
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.export_job import ExportSummary, FileForm
    from paimon_cli.jobs.row_scan import FollowedChanges, Increment, ReadRequest, RowScan
    from paimon_cli.jobs.scan_analysis import ScanAnalysis, ScanPlan
    from paimon_cli.sql.predicate import Predicate

FILE_SIZE = "128 mb"


@checks_arguments
class ReadableRows(ABC):
    """Rows that can be converted for several libraries, and read by any that supports the Arrow PyCapsule interface."""

    @abstractmethod
    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a reader that yields them batch by batch."""

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.to_batches().read_all()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; `options` are passed to `pyarrow.Table.to_pandas`.

        Integer columns with nulls become floats, which are exact below 2^53; `types_mapper=pandas.ArrowDtype` keeps them.
        Raises `UsageError` if pandas is not installed.
        """
        installed("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame. Raises `UsageError` if polars is not installed."""
        return installed("polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for libraries that support the Arrow PyCapsule interface: `pyarrow.table(rows)`."""
        return self.to_batches().__arrow_c_stream__(requested_schema)


@checks_arguments
class Scan(ReadableRows):
    """Rows of a table at one snapshot, planned by `Table.scan`, and read by each method of the scan.

    >>> scan = example_table().scan(["id", "price"], where="price > 10", order_by="price DESC")
    >>> scan.to_arrow().to_pydict()
    {'id': [3, 2], 'price': [30.0, 20.0]}
    >>> scan.count()
    2
    >>> sum(batch.num_rows for batch in scan.to_batches())
    2
    >>> scan.explain().files
    1
    >>> scan.to_polars().shape
    (2, 2)
    >>> scan.to_duckdb().aggregate("sum(price)").fetchall()
    [(50.0,)]
    """

    def __init__(self, table: OpenedTable, rows: RowScan) -> None:
        self._table = table
        self.rows = rows

    def __dir__(self) -> list[str]:
        """What is for callers: a notebook proposes no plumbing."""
        return [name for name in super().__dir__() if name != "rows"]

    def __repr__(self) -> str:
        return f"Scan({self._table.name!r}, columns={[field.name for field in self.rows.fields]})"

    def _repr_html_(self) -> str:
        from paimon_cli.api.notebook import html_of_scan

        return html_of_scan(self.name, self.rows)

    @property
    def name(self) -> str:
        """The table as it was named when it was opened."""
        return self._table.name

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result: the chosen columns, preceded by `rowkind` if requested."""
        import pyarrow as pa

        from paimon_cli.datatypes.arrow_types import arrow_field

        return pa.schema([arrow_field(field) for field in self.rows.fields])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the condition, such as a comparison that no value can match, and about records that wait."""
        of_condition = self.rows.predicate.warnings if self.rows.predicate else ()
        waiting = self.rows.waiting_text
        return (*of_condition, *((waiting,) if waiting else ()))

    @property
    def waiting_records(self) -> int:
        """How many stored records are not shown, because they wait for a compaction, in the partitions and buckets that are read.

        They are committed: in tables with deletion vectors or merge engine first-row, and with postponed buckets, reads show new
        rows only once they have been compacted.
        """
        return self.rows.plan.counts.waiting_records

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a reader of batches, of which only a few are in memory at a time, except with `order_by`.

        Reading it may raise `DamagedFile`, `StorageUnavailable`, and `NotFound` if the snapshot expires in the meantime.
        """
        import pyarrow as pa

        schema = self.schema
        nested = [number for number, t in enumerate(schema.types) if _has_struct_in_struct(t)]
        return pa.RecordBatchReader.from_batches(schema, (_with_copies(batch.cast(schema), nested) for batch in self.rows.rows()))

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame of a session, as `paimon_cli.spark.read` reads them: at the snapshot of the scan."""
        frame: DataFrame = import_module("paimon_cli.spark").read(spark, self)  # that room is above this one, and needs PySpark
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation over the rows, in `connection` or DuckDB's default connection.

        Nothing is read before the relation is used; each use reads the same snapshot again, in bounded memory. DuckDB
        applies filters of the relation after the read: pass conditions that should skip files to `Table.scan`. Raises
        `UsageError` if duckdb is not installed.
        """
        module = installed("duckdb")
        if connection is not None and not isinstance(connection, module.DuckDBPyConnection):
            raise UsageError(f"connection of type {type(connection).__name__}", "it must be a connection of DuckDB or None")
        return (connection or module).from_arrow(self)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def filter(self, where: str, params: Mapping[str, Any] | None = None) -> Scan:
        """The rows of this scan that match a condition, too. `params`: values of parameters, which are written as `:name`.

        Raises `UsageError` for a scan with a limit, which would be applied after the condition.
        """
        return refined(self, where, params)

    def select(self, *columns: str | Sequence[str]) -> Scan:
        """This scan with these columns, or those of a list. They include nested fields (`a.b`)."""
        names = [name for given in columns for name in ([given] if isinstance(given, str) else given)]
        if not names:
            raise UsageError("no column is selected", "a scan has at least one", "such as select('id', 'name')")
        return replanned(self, columns=names)

    def count(self) -> int:
        """The number of rows; reads as little as possible, often only metadata."""
        return self.rows.count()

    def explain(self) -> ScanPlan:
        """Which files and row groups would be read and which are skipped, and why."""
        from paimon_cli.jobs.scan_analysis import explain_scan

        return explain_scan(self.rows)

    def analyze(self) -> ScanAnalysis:
        """Plan and read again in one thread, discard the rows, and measure the cost of each stage (`read --analyze`)."""
        from paimon_cli.jobs.scan_analysis import analyze_scan

        return analyze_scan(self._table.context, self.rows.request)

    def write_file(
        self, path: str, *, format: str | None = None, file_size: str | None = None, force: bool = False
    ) -> ExportSummary:
        """Write the rows in order to a file (`read --output`). After a failure no file remains.

        `format`: parquet, csv, arrow or ndjson, default by extension. If `path` ends in `/` or is a directory, files of
        `file_size` each are written to it. `force`: replace an existing file.
        """
        from paimon_cli.jobs.export_job import OutputRequest, export_rows

        form, size = file_form(path, format, file_size)
        return export_rows(self.rows, OutputRequest(path, form, size, force, self._table.context.place.store_options))

    def export(self, output_path: str) -> ExportSummary:
        """Write Parquet files, one per split, to a new or empty directory, in parallel on the engine (`read --output-path`)."""
        from paimon_cli.jobs.export_job import ExportRequest, run_export

        scan, runtime = self.rows, self._table.runtime
        if scan.request.limit is not None:
            raise UsageError(
                "--limit cannot be combined with --output-path", "tasks write their parts independently", "use --where"
            )
        options = self._table.context.place.store_options
        of_scan = scan.request
        request = ExportRequest(output_path, scan.selection, of_scan.where, of_scan.params, of_scan.row_kind, options)
        with runtime.engine_running() as engine, scan.of_existing_snapshot():
            return run_export(scan.context, scan.plan, request, engine, runtime.new_progress())


def _has_struct_in_struct(t: pa.DataType) -> bool:
    import pyarrow as pa

    parts = [t.field(number).type for number in range(t.num_fields)]
    return (pa.types.is_struct(t) and any(map(pa.types.is_struct, parts))) or any(map(_has_struct_in_struct, parts))


def _with_copies(batch: pa.RecordBatch, numbers: Sequence[int]) -> pa.RecordBatch:
    """The batch, with copies of these columns if they are slices: DuckDB loses the offset of a struct in a struct."""
    import pyarrow as pa

    for number in numbers:
        if batch.column(number).offset:
            batch = batch.set_column(number, batch.schema.field(number), pa.concat_arrays([batch.column(number)]))
    return batch


def installed(name: str, extra: str = "") -> Any:
    """Import an optional module. Raises `UsageError`, which names the `extra` to install (default: the module's name)."""
    with importing(f"the package {name} is not installed", extra or name):
        module = import_module(name)
    return module


def open_scan(table: OpenedTable, call: ScanCall) -> Scan:
    """Plan a scan: find the snapshot, and check columns and condition against its schema."""
    from paimon_cli.jobs.row_scan import ReadRequest
    from paimon_cli.metadata.table_layout import MAIN_BRANCH

    increment = None if call.incremental is None else _increment_of(call.incremental, call.incremental_mode)
    scan = _planned(table, ReadRequest.of(call, increment=increment))
    if scan.rows.is_of_latest and table.branch == MAIN_BRANCH:
        from paimon_cli.catalog.own_reads import count_read

        count_read(table.context.place, table.runtime.profile, scan.rows.partitions_read, table.runtime.warn)
    return scan


def _planned(table: OpenedTable, request: ReadRequest, parsed: Predicate | None = None) -> Scan:
    """The scan of a request, whose condition may be `parsed` already. Shows the warnings of its plan."""
    from paimon_cli.jobs.row_scan import plan_rows

    scan = Scan(table, plan_rows(table.supported, request, parsed))
    for warning in scan.warnings:
        table.runtime.warn(warning)
    return scan


def narrowed(scan: Scan, columns: Sequence[str], where: str | None) -> Scan:
    """The scan with other columns and another condition, whose warnings are shown; the others were shown for `scan`."""
    from paimon_cli.jobs.row_scan import plan_rows

    table = scan._table
    found = Scan(table, plan_rows(table.context, replace(scan.rows.request, columns=columns, where=where, params=None)))
    for warning in found.rows.predicate.warnings if found.rows.predicate else ():
        table.runtime.warn(warning)
    return found


def refined(scan: Scan, where: str, params: Mapping[str, Any] | None) -> Scan:
    """The scan with one more condition. Each is a whole condition of its own before they are joined."""
    from paimon_cli.sql.predicate import check_all_used, parse_predicate

    request = scan.rows.request
    if request.limit is not None:
        raise UsageError("a scan with a limit has no further condition", "the limit would be applied after it", "filter first")
    added, before = parse_predicate(where, scan.rows.context.schema, params), scan.rows.predicate
    known, new = request.params or {}, params or {}
    check_all_used(new, added.parameters)
    for name in new:
        if name in known and not _is_same(new[name], known[name]):
            raise UsageError(
                f"parameter '{name}' has a value already", "the conditions of a scan share them", "name it differently"
            )
    both = added if before is None else before.joined(added)
    return replanned(scan, both, where=both.sql, params=both.params)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values of parameters are equal: also lists, and arrays, which say so for each value."""
    import numpy as np

    if one is other:
        return True
    if type(one) is not type(other):
        return False
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else (one == other) is True


def replanned(scan: Scan, predicate: Predicate | None = None, **changes: Any) -> Scan:
    """The scan with other options, at the snapshot that it has read. `predicate`: its new condition, if that changes."""
    request, snapshot = scan.rows.request, scan.rows.plan.snapshot
    if snapshot is not None and scan.rows.is_of_latest and scan._table.context.snapshots.latest_id() != snapshot.id:
        changes |= {"snapshot": snapshot.id, "with_newest_schema": True}
    return _planned(scan._table, replace(request, **changes), predicate or scan.rows.predicate)


def plan_changes(table: OpenedTable, call: ChangelogCall) -> Scan:
    """The changes of a range of snapshots."""
    return _planned(table, _request_of_range(table, call))


def rows_of_latest(table: TableContext, call: ScanCall) -> RowScan:
    """The rows of a snapshot that was the latest one a moment ago, with the newest schema: its columns may be newer."""
    from paimon_cli.jobs.row_scan import ReadRequest, plan_rows

    return plan_rows(table, ReadRequest.of(call, with_newest_schema=True))


def rows_of_changes(table: OpenedTable, begin: int, end: int, columns: Sequence[str], where: str | None) -> RowScan:
    """The same for a batch of a stream, without warnings, which would be repeated for each batch."""
    from paimon_cli.jobs.row_scan import plan_rows

    request = _request_of_range(table, ChangelogCall(begin, end, columns=columns, where=where))
    return plan_rows(table.supported, replace(request, counts_waiting=False))


def _ends_of(table: OpenedTable, call: ChangelogCall) -> tuple[int, int | None]:
    """The ids of the first and the last snapshot of a range; None without an end. Raises `NotFound`, `UsageError`."""
    from paimon_cli.history.points_in_time import first_after

    begin = call.begin if isinstance(call.begin, int) else first_after(table.context, str(call.begin))
    end = table._snapshot_id(call.end)
    if end is not None:
        check_range(begin, end)
    return begin, end


def _request_of_range(table: OpenedTable, call: ChangelogCall) -> ReadRequest:
    from paimon_cli.jobs.row_scan import Increment, ReadRequest
    from paimon_cli.read.increments import CHANGES

    begin, end = _ends_of(table, call)
    increment = Increment(str(begin - 1), "" if end is None else str(end), CHANGES)
    return ReadRequest.of(call, row_kind=True, increment=increment)


def follow_changes(table: OpenedTable, call: FollowedCall) -> Changes:
    """The changes of the snapshots from `begin` on, including future snapshots."""
    from paimon_cli.jobs.row_scan import FollowedChanges, ReadRequest

    request = ReadRequest.of(call, row_kind=True, counts_waiting=False)
    return Changes(FollowedChanges(table.supported, request, *_ends_of(table, call), call.wait_seconds))


@dataclass(frozen=True)
class Changes:
    """The changes of a table, as `Table.follow_changelog` returns them."""

    rows: FollowedChanges

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches of changes as they are committed, with `rowkind` as the first column."""
        return self.rows.rows()


def _increment_of(text: str, mode: str) -> Increment:
    """Parse `A..B` with ids, tags or times; B defaults to the latest. Raises `UsageError`."""
    from paimon_cli.jobs.row_scan import Increment

    begin, dots, end = text.partition("..")
    if not dots or not begin:
        raise UsageError(f"--incremental {text}", "it must name two snapshots", "write them as 3..7")
    return Increment(begin, end, mode)


def file_form(path: str, file_format: str | None, file_size: str | None) -> tuple[FileForm, int | None]:
    """The format of an output and, for a directory, the size of its files in bytes."""
    from paimon_cli.jobs.export_job import MIN_FILE_SIZE, FileForm
    from paimon_cli.options.option_text import human_size, parse_size

    if file_size is None and not path.endswith("/") and not os.path.isdir(path):
        return FileForm.of(path, file_format), None
    size = parse_size(file_size or FILE_SIZE)
    if size < MIN_FILE_SIZE:
        raise UsageError(f"--file-size {file_size}", f"the minimum is {human_size(MIN_FILE_SIZE)}")
    if not path.endswith("/") and FileForm.is_known_for(path):
        raise UsageError(
            f"--output {path} is a single file", "--file-size applies only to directories", f"write --output {path}/"
        )
    return FileForm(file_format or "parquet"), size
