"""`read --output-path`: the rows of a scan as parquet files, one a split, written by engine tasks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.errors import UsageError, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, TasksFailed, Work
from paimon_cli.jobs.progress import Progress
from paimon_cli.metadata.data_file_schema import VALUE_KIND, read_schema
from paimon_cli.read.predicate import parse_predicate
from paimon_cli.read.scan_plan import ScanPlan
from paimon_cli.read.selection import Selection
from paimon_cli.read.split import Split
from paimon_cli.read.split_reader import read_split
from paimon_cli.storage.directories import delete_all
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.table.table_site import check_output_place


@dataclass(frozen=True)
class ExportRequest:
    """`output_path`: a directory (path or URL) that is missing or empty; `storage_options` lead there. `where`: SQL predicate."""

    output_path: str
    selection: Selection
    where: str | None = None
    keep_kinds: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ExportedFile:
    """One parquet file of the result."""

    path: str
    rows: int
    size: int


@dataclass(frozen=True)
class ExportSummary:
    """What was written, in the order of the scan."""

    output_path: str
    files: tuple[ExportedFile, ...]
    engine: str
    engine_reason: str
    seconds: float

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)


def run_export(
    context: TableContext, plan: ScanPlan, request: ExportRequest, engine: Engine, progress: Progress
) -> ExportSummary:
    """Write every split's rows; when a task fails, no file of the export stays behind."""
    started = context.clock.now_millis()
    storage, directory = storage_for_url(request.output_path, request.storage_options)
    check_output_place(storage, directory)
    if storage.list_directory(directory):
        raise UsageError(f"{request.output_path} is not empty", "files of another export would look like a part of this one")
    run = context.names.uuid()
    tasks = [(f"{directory}/part-{number:05d}-{run}.parquet", split) for number, split in enumerate(plan.splits)]
    engine.prepare(Work.of(file for split in plan.splits for file in split.files), progress)
    progress.start("Reading splits", len(tasks))
    try:
        task = functools.partial(export_split, context, request)
        files = engine.run_tasks(task, tasks, lambda file: progress.advance(1))
    except BaseException as failure:
        with cleaning_up(failure.error if isinstance(failure, TasksFailed) else failure):
            delete_all(storage, (path for path, _ in tasks))
        if isinstance(failure, TasksFailed):
            raise failure.error from failure
        raise
    finally:
        progress.finish()
    seconds = (context.clock.now_millis() - started) / 1000
    return ExportSummary(request.output_path, tuple(files), engine.name, engine.reason, seconds)


def export_split(context: TableContext, request: ExportRequest, task: tuple[str, Split]) -> ExportedFile:
    """One task: the split's rows as one parquet file, also when there are none, so that the schema is never lost."""
    path, split = task
    predicate = None if request.where is None else parse_predicate(request.where, context.schema)
    kinds = [VALUE_KIND] if request.keep_kinds else []
    schema = pa.schema([*map(arrow_field, request.selection.fields), *read_schema(context.schema, kinds)])
    storage, target = storage_for_url(path, request.storage_options)
    rows = 0
    storage.delete(target)  # of an attempt that Spark has given up
    with storage.open_output(target) as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd", store_decimal_as_integer=True) as writer:
            for batch in read_split(context, split, [*request.selection.columns, *kinds], predicate, request.keep_kinds):
                columns = [*request.selection.of(batch), *(batch.column(name) for name in kinds)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                rows += batch.num_rows
        size = sink.tell()
    return ExportedFile(path, rows, size)
