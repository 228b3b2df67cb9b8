"""`read --output` and `--output-path`: writes the rows of a scan to files, in this process or as engine tasks, one per split."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.catalog.table_site import check_output_path
from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import UsageError, undone_on_failure
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.metadata.data_file_schema import VALUE_KIND, read_schema
from paimon_cli.read.row_text import CsvRows, JsonRows, bounded
from paimon_cli.read.scan_plan import ReadPlan, Split
from paimon_cli.read.selection import Selection
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.predicate import parse_predicate
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.whole_file import whole_file

_FORMATS = {"parquet": "parquet", "csv": "csv", "arrow": "arrow", "feather": "arrow"}
_FORMATS |= dict.fromkeys(("ndjson", "jsonl", "json"), "ndjson")
"""Formats by file extension. JSON files hold a row per line, as `write` takes them."""
COMPRESSIONS = {"gz": "gzip", "zst": "zstd"}
MIN_FILE_SIZE = 1 << 16
STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class FileForm:
    """The format of output files and, for text formats, an optional compression (`gz`, `zst`)."""

    format: str
    compression: str = ""

    @property
    def ending(self) -> str:
        return f"{self.format}.{self.compression}" if self.compression else self.format

    @staticmethod
    def is_known_for(path: str) -> bool:
        """Whether the extension of the path names a known format."""
        words = path.rpartition("/")[2].lower().split(".")
        endings = {words[-1], words[-2] if words[-1] in COMPRESSIONS else ""} if len(words) > 1 else set()
        return bool(endings & _FORMATS.keys())

    @staticmethod
    def of(path: str, format_name: str | None) -> FileForm:
        """The form for a path: `format_name` if given, else by the extension.

        Raises `UsageError` if neither names a format, or if the format cannot be compressed as a whole.
        """
        stem, _, last = path.rstrip("/").rpartition("/")[2].rpartition(".")
        compression = last if last in COMPRESSIONS else ""
        ending = stem.rpartition(".")[2] if compression else last if stem else ""
        if format_name is not None and format_name not in _FORMATS.values():
            raise UsageError(f"--format {format_name}", f"choose one of {', '.join(dict.fromkeys(_FORMATS.values()))}")
        found = format_name or _FORMATS.get(ending.lower())
        if found is None and path == STANDARD_OUTPUT:
            raise UsageError("--output - needs --format", "standard output has no extension", "add --format csv, or another")
        if found is None:
            hint = "end it in .parquet, .csv, .arrow or .ndjson (.csv.gz, .ndjson.zst), name the --format, or a directory: DIR/"
            raise UsageError(f"cannot tell the format of {path}", "its extension is not a known format", hint)
        if compression and found not in ("csv", "ndjson"):
            why, hint = "it compresses its own columns", f"leave .{compression} out"
            raise UsageError(f"{path}: {found} is not compressed as a whole", why, hint)
        return FileForm(found, compression)


@dataclass(frozen=True)
class OutputRequest:
    """Where to write the rows. `path`: a file, `-` for standard output, or with `file_size` a new or empty directory.

    `file_size`: start a new file after this many bytes; `replace`: overwrite an existing file.
    """

    path: str
    form: FileForm
    file_size: int | None = None
    replace: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


def export_rows(scan: RowScan, request: OutputRequest) -> ExportSummary:
    """Write the rows of a scan. After a failure no new file remains, and a file to be replaced is unchanged."""
    started = scan.context.clock.now_millis()
    batches = (piece for batch in scan.rows() for piece in bounded(batch))
    files = _one_file(scan, request, batches) if request.file_size is None else _directory(scan, request, batches)
    seconds = (scan.context.clock.now_millis() - started) / 1000
    return ExportSummary(request.path, tuple(files), "local", "", seconds)


def _one_file(scan: RowScan, request: OutputRequest, batches: Iterator[pa.RecordBatch]) -> list[ExportedFile]:
    if request.path == STANDARD_OUTPUT:
        rows, size = _fill(_Counted(sys.stdout.buffer), request.form, scan.fields, batches, None)
        return [ExportedFile(request.path, rows, size)]
    check_output_path(*storage_for_url(request.path, request.storage_options))
    with whole_file(request.path, request.storage_options, scan.context.random, replace=request.replace) as sink:
        rows, size = _fill(sink, request.form, scan.fields, batches, None)
    return [ExportedFile(request.path, rows, size)]


def _directory(scan: RowScan, request: OutputRequest, batches: Iterator[pa.RecordBatch]) -> list[ExportedFile]:
    """Write files of `file_size` into a directory; at least one, so that the schema is never lost."""
    directory = request.path.rstrip("/") or "/"
    storage, _ = _empty_directory(directory, request.storage_options)
    run = scan.context.random.uuid()
    files: list[ExportedFile] = []
    waiting = _Peekable(batches)

    def delete_written() -> None:
        delete_all(storage, (storage_for_url(file.path, request.storage_options)[1] for file in files))

    with undone_on_failure(delete_written):
        while waiting.has_more or not files:
            path = f"{directory}/part-{len(files):05d}-{run}.{request.form.ending}"
            with whole_file(path, request.storage_options, scan.context.random, make_parents=True) as sink:
                rows, size = _fill(sink, request.form, scan.fields, waiting, request.file_size)
            files.append(ExportedFile(path, rows, size))
    return files


def _empty_directory(path: str, storage_options: Mapping[str, str]) -> tuple[Storage, str]:
    """The storage and the path in it of an output directory. Raises `UsageError` if the directory is not empty."""
    storage, directory = storage_for_url(path, storage_options)
    check_output_path(storage, directory)
    if storage.list_directory(directory):
        raise UsageError(f"{path} is not empty", "files of another export would look like part of this one")
    return storage, directory


class _Peekable:
    """An iterator that knows whether there are more items, and that several loops can consume in turn."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._next = next(batches, None)

    @property
    def has_more(self) -> bool:
        return self._next is not None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._next is not None:
            found, self._next = self._next, next(self._batches, None)
            yield found


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _TextWriter:
    """Writes CSV or JSON lines."""

    def __init__(self, sink: Any, rows: CsvRows | JsonRows) -> None:
        self._sink = sink
        self._rows = rows
        sink.write(rows.head())

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._sink.write(self._rows.rows(batch))

    def close(self) -> None:
        """The caller closes the sink."""


_WRITERS: dict[str, Callable[[Any, pa.Schema, Sequence[DataField]], _Writer]] = {
    "parquet": lambda sink, schema, fields: pq.ParquetWriter(sink, schema, compression="zstd", store_decimal_as_integer=True),
    "arrow": lambda sink, schema, fields: pa.ipc.new_file(sink, schema),
    "csv": lambda sink, schema, fields: _TextWriter(sink, CsvRows(fields)),
    "ndjson": lambda sink, schema, fields: _TextWriter(sink, JsonRows(fields)),
}


def _fill(
    sink: BinaryIO | _Counted, form: FileForm, fields: Sequence[DataField], batches: Any, max_bytes: int | None
) -> tuple[int, int]:
    """Write rows until the batches end or the file has `max_bytes`; returns the rows and bytes written."""
    schema = pa.schema([arrow_field(one) for one in fields])
    rows = 0
    with _compressed(sink, form) as target, contextlib.closing(_WRITERS[form.format](target, schema, fields)) as writer:
        for batch in batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            rows += batch.num_rows
            if max_bytes is not None and sink.tell() >= max_bytes:
                break
    return rows, sink.tell()


@contextlib.contextmanager
def _compressed(sink: BinaryIO | _Counted, form: FileForm) -> Iterator[Any]:
    if not form.compression:
        yield sink
        return
    with pa.CompressedOutputStream(pa.PythonFile(_LeftOpen(sink), "w"), COMPRESSIONS[form.compression]) as stream:
        yield stream


class _Counted:
    """Standard output, which may be a pipe: counts its bytes and stays open."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = 0
        self.flush = stream.flush

    def write(self, data: Any) -> int:
        self._size += memoryview(data).nbytes
        return self._stream.write(data)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        """Standard output stays open."""


class _LeftOpen:
    """A sink that Arrow's compressor does not close."""

    closed = False

    def __init__(self, sink: BinaryIO | _Counted) -> None:
        self.write, self.flush, self.tell = sink.write, sink.flush, sink.tell

    def close(self) -> None:
        """The caller closes the sink."""


@dataclass(frozen=True)
class ExportRequest:
    """An export by engine tasks. `output_path`: a new or empty directory (path or URL), which `storage_options` apply to.

    `where`: a SQL predicate; `keep_kinds`: add the row kind as a column.
    """

    output_path: str
    selection: Selection
    where: str | None = None
    params: Mapping[str, Any] | None = None
    keep_kinds: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ExportedFile:
    """One file of the result; `size` in bytes."""

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
        """The total size in bytes."""
        return sum(file.size for file in self.files)


def run_export(
    context: TableContext, plan: ReadPlan, request: ExportRequest, engine: Engine, progress: Progress
) -> ExportSummary:
    """Write each split to a Parquet file. After a failure no file of the export remains."""
    started = context.clock.now_millis()
    storage, directory = _empty_directory(request.output_path, request.storage_options)
    run = context.random.uuid()
    tasks = [(f"{directory}/part-{number:05d}-{run}.parquet", split) for number, split in enumerate(plan.splits)]
    engine.prepare(Work.of(file for split in plan.splits for file in split.files), progress)
    unfinished = undone_on_failure(lambda: delete_all(storage, (path for path, _ in tasks)))
    with unfinished, phase(progress, "Reading splits", len(tasks)) as done:
        sizes = [split.size for split in plan.splits]
        files = engine.run_tasks(functools.partial(export_split, context, request), tasks, done, sizes)
    seconds = (context.clock.now_millis() - started) / 1000
    return ExportSummary(request.output_path, tuple(files), engine.name, engine.reason, seconds)


def export_split(context: TableContext, request: ExportRequest, task: tuple[str, Split]) -> ExportedFile:
    """Write the rows of one split to a Parquet file, as an engine task. A split without rows gives a file with the schema."""
    path, split = task
    predicate = None if request.where is None else parse_predicate(request.where, context.schema, request.params)
    kinds = [VALUE_KIND] if request.keep_kinds else []
    schema = pa.schema([*map(arrow_field, request.selection.fields), *read_schema(context.schema, kinds)])
    storage, target = storage_for_url(path, request.storage_options)
    rows = 0
    storage.delete(target)  # a file from an earlier attempt of this task
    with storage.open_output(target) as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd", store_decimal_as_integer=True) as writer:
            for batch in read_split(context, split, [*request.selection.columns, *kinds], predicate, request.keep_kinds):
                columns = [*request.selection.of(batch), *(batch.column(name) for name in kinds)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                rows += batch.num_rows
        size = sink.tell()
    return ExportedFile(path, rows, size)
