"""The input of `Table.write`: files, tables, scans, or data in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.api.scan import Scan
from paimon_cli.errors import BadInput, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.ingest.row_sources import RowSource
    from paimon_cli.ingest.text_form import TextForm
    from paimon_cli.jobs.engine import Engine
    from paimon_cli.jobs.merge_source import SourceRows
    from paimon_cli.metadata.table_schema import TableSchema


MOST_KINDS = 4
"""How many types of items an error names."""


def row_source(data: Any, format: str | None, form: TextForm | None, timezone: str | None, into: OpenedTable) -> RowSource:
    """The rows of a write into a table: those of a table or scan, of files in `format` and `form`, or Arrow data.

    Raises `UsageError` for other data and options.
    """
    from paimon_cli.ingest.input_files import TABLE_MARK
    from paimon_cli.ingest.row_sources import ArrowRows, FileRows, RowSource
    from paimon_cli.ingest.text_form import TextForm, given_form

    if isinstance(data, RowSource):
        return data
    paths = _file_paths(data)
    if paths is None and (format is not None or form is not None):
        raise UsageError("format and form need files", "the data is in memory or a table", "remove them")
    zone = TextForm(timezone=timezone).timezone
    if isinstance(data, (OpenedTable, Scan)):
        return _table_rows(data, zone, into)
    if paths is None:
        if (reader := _reader_of(data)) is not None:
            return _collected(reader, zone)
        return ArrowRows(_arrow_table(data, into.context.schema), timezone=zone)
    if form is not None and timezone is not None:
        raise UsageError("timezone cannot be combined with form", "a form has its own time zone", "set it in the form")
    instead = f"read it as a table: paimon-cli write {into.context.layout.argument} --from-table {TABLE_MARK}"
    text_form = TextForm(timezone=timezone) if form is None else given_form(form)
    return FileRows(paths, format, text_form, into.context.place.store_options, instead)


def _table_rows(data: OpenedTable | Scan, timezone: str | None, into: OpenedTable) -> RowSource:
    """The rows of a scan, or of a table at its latest snapshot.

    Raises `UsageError` for all rows of the table that is written itself. A scan with a condition is the caller's choice of rows.
    """
    from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
    from paimon_cli.jobs.table_rows import TableRows

    scan = data.rows if isinstance(data, Scan) else plan_rows(data.context, ReadRequest())
    rows = TableRows(data.name, scan, timezone)
    if rows.is_of(into.context.layout) and rows.is_whole:
        raise UsageError(
            f"{into.name} is its own source",
            "its rows would be inserted once more, or undo changes that were made since the snapshot",
            f"to restore a snapshot: paimon-cli rollback {into.context.layout.argument} --to N --as-new",
        )
    return rows


def is_spark_frame(data: Any) -> bool:
    """Whether it is a DataFrame of Spark, classic or Connect, which would come to this process row by row."""
    return type(data).__name__ == "DataFrame" and type(data).__module__.startswith("pyspark.sql.")


def merge_rows_of(data: Any, into: OpenedTable, engine: Engine) -> SourceRows:
    """The rows of a merge. Raises `UsageError` for files, whose columns have no types before they are a table's."""
    from paimon_cli.jobs.merge_source import SourceRows
    from paimon_cli.jobs.spilled_source import StreamedRows

    return data if isinstance(data, SourceRows) else StreamedRows(_rows_to_merge(data, into), lambda: engine.shares_disk)


def _rows_to_merge(data: Any, into: OpenedTable) -> pa.RecordBatchReader:
    from paimon_cli.pieces import PIECES

    if _file_paths(data) is not None:
        raise UsageError(
            "a merge takes no paths",
            "its columns need types",
            "read the file: pyarrow.dataset.dataset(path), or load a table from it",
        )
    if is_spark_frame(data):
        raise UsageError(
            "a merge takes no DataFrame of Spark", "its session does that", "paimon_cli.spark.merge(frame, table, on=...)"
        )
    if isinstance(data, (OpenedTable, Scan)):
        from paimon_cli.jobs.row_scan import ReadRequest, plan_rows

        return (data if isinstance(data, Scan) else Scan(data, plan_rows(data.context, ReadRequest()))).to_batches()
    return _reader_of(data) or _arrow_table(data, into.context.schema).to_reader(max_chunksize=PIECES.batch_rows)


def _reader_of(data: Any) -> pa.RecordBatchReader | None:
    """The data as a stream, if it is one: a reader, or a pyarrow Dataset, whose module loads slowly."""
    import pyarrow as pa

    from paimon_cli.pieces import PIECES

    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(type(data), "scanner") and hasattr(type(data), "to_table"):  # some frames have any attribute, as a column
        return data.scanner(batch_size=PIECES.batch_rows).to_reader()
    return None


def _collected(reader: pa.RecordBatchReader, timezone: str | None) -> RowSource:
    """The rows of a stream, which a write may have to read twice: in memory, or in a temporary file if they are many."""
    from paimon_cli.bucket.spilled_runs import SpillDirectory
    from paimon_cli.ingest.row_sources import ArrowRows
    from paimon_cli.jobs.source_rows import StoredRows, batches_of

    spill = SpillDirectory()
    rows = StoredRows.collected(reader.schema, batches_of(reader), lambda: spill)
    return ArrowRows(rows.table, timezone=timezone, spill=spill)


def _file_paths(data: Any) -> tuple[str, ...] | None:
    """The paths, if `data` is a path or a list of paths."""
    if isinstance(data, (str, os.PathLike)):
        return (os.fspath(data),)
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        return tuple(os.fspath(item) for item in data)
    return None


def _arrow_table(data: Any, schema: TableSchema) -> pa.Table:
    """An Arrow table with the rows of `data`. Raises `UsageError` if it is not data in memory that Arrow accepts."""
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if hasattr(data, "__dataframe__") and type(data).__module__.startswith("pandas."):
            return _from_pandas(data, schema)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if (found := _from_python(data, schema)) is not None:
            return found
    except OverflowError as error:
        raise BadInput(f"the {type(data).__name__} cannot be converted to Arrow", str(error)) from error
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise BadInput(f"the {type(data).__name__} cannot be converted to Arrow", "; ".join(map(str, error.args))) from error
    raise _no_data(data)


def _from_python(data: Any, schema: TableSchema) -> pa.Table | None:
    """A table of what Python collects: a dict of columns, rows as dicts, batches or tables, and lazy frames."""
    import pyarrow as pa

    from paimon_cli.ingest.python_values import table_of_columns, table_of_rows

    if isinstance(data, Mapping):
        return table_of_columns(data, schema)
    if type(data).__name__ == "LazyFrame" and type(data).__module__.startswith("polars."):
        return pa.table(data.collect())
    if not isinstance(data, Iterable) or isinstance(data, (str, bytes)):
        return None
    parts = list(data)
    if all(isinstance(part, Mapping) for part in parts):
        return table_of_rows(parts, schema)
    if all(isinstance(part, pa.RecordBatch) for part in parts):
        return pa.Table.from_batches(parts)
    if all(hasattr(part, "__arrow_c_stream__") for part in parts):
        return pa.concat_tables([_arrow_table(part, schema) for part in parts], promote_options="default")
    kinds = list(dict.fromkeys(type(part).__name__ for part in parts))
    raise _no_data(data, f"its items have type {' and '.join(kinds[:MOST_KINDS])}; ")


def _no_data(data: Any, found: str = "") -> UsageError:
    what = "it must be an Arrow table, record batches, a data frame, a list of dicts, a dict of columns, or paths of files"
    return UsageError(f"cannot write {type(data).__name__} data", found + what)


def _from_pandas(frame: Any, schema: TableSchema) -> pa.Table:
    """The DataFrame as an Arrow table. Raises `BadInput` if a column of the table is in the index, which is not written.

    Columns of Python objects with maps, which Arrow would infer as lists or structs, have the table's type. Columns without
    values have no type: pandas makes them floats.
    """
    import pyarrow as pa

    from paimon_cli.datatypes.arrow_types import arrow_type

    for name in schema.field_names:
        if name in frame.index.names and name not in frame.columns:
            what = f"column '{name}' is in the index of the DataFrame"
            raise BadInput(what, "only columns are written", "make the index a column: frame.reset_index()", column=name)
    types = {field.name: arrow_type(field.type) for field in schema.fields if field.name in frame.columns}
    maps = {name: column for name, column in types.items() if "map<" in str(column) and str(frame.dtypes[name]) == "object"}
    table = pa.Table.from_pandas(frame.drop(columns=list(maps)), preserve_index=False)
    for name, column in maps.items():
        table = table.append_column(name, pa.array(frame[name], column, from_pandas=True))
    for index, values in enumerate(table.columns):
        if values.null_count == len(values):
            table = table.set_column(index, table.field(index).name, pa.nulls(len(values)))
    return table
