"""Cuts the input files of a write into splits that tasks read independently.

A split carries what its reader needs to number rows by the order of arrival, across all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.errors import BadInput, DamagedFile
from paimon_cli.ingest.faults import Fault
from paimon_cli.ingest.input_files import CLONE, SourceFile, source_files
from paimon_cli.ingest.text_blocks import begins_array, compression_of, line_bounds
from paimon_cli.ingest.text_form import PLAIN, UTF_8, TextForm
from paimon_cli.pieces import PIECES

ARROW_MAGIC = b"ARROW1"


T = TypeVar("T")
MAX_ARRIVALS = 2**63 - 1

BEGINNING_BYTES = 4096
MAX_DEFLATE_RATIO = 1032
"""Deflate never compresses better, so a gzip file holds fewer rows than this times its bytes. Other codecs have no such limit."""
MIN_ARCHIVE_ROWS = 1 << 32
"""Numbers of arrival reserved at least for a file of such a codec, however small it is."""


@dataclass(frozen=True)
class SourceSplit:
    """A part of one input file, or of Arrow data in memory. Tasks read splits independently.

    `start`, `length`: row groups of Parquet, bytes of JSON lines, rows of Arrow data (`length` None: to the end). `first_row`:
    the number of its first row in the file, from 0. `order_base` plus the row number within the split is the order of arrival,
    unique and increasing over all splits of a job; `arrivals` numbers are reserved for the split. `name`: for messages. `size`:
    its share of the file's bytes.
    """

    path: str
    format: str
    start: int
    length: int | None
    first_row: int
    order_base: int
    name: str = ""
    size: int = 0
    arrivals: int = MAX_ARRIVALS

    def fault(self, row: int, why: str, column: str | None = None, value: object = None, is_parsed: bool = True) -> Fault:
        """The fault of a row of this split, which counts from 0; the fault counts rows of the file from 1."""
        return Fault(self.name, self.first_row + row + 1, column, value, why, is_parsed)

    def check_room(self, rows: int) -> None:
        """Raise `BadInput` if the split has more rows than reserved numbers of arrival: the next split uses the following."""
        if rows > self.arrivals:
            raise BadInput(
                f"{self.name} holds more rows than its size allows", "its compression ratio is implausible", "unpack it first"
            )


class RawRows(NamedTuple):
    """Rows as the reader of a format returns them. `rows`: their numbers within the split, from 0, as int64.

    `faults` may concern rows of the batch, where the bad cells are null, and rows that could not be read at all.
    """

    batch: pa.RecordBatch
    rows: np.ndarray
    faults: Sequence[Fault] = ()


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows, so that the columns of an empty source are checked, too."""
    return pa.RecordBatch.from_pylist([], schema=schema)


def plan_sources(
    sources: Sequence[str],
    format: str | None,
    storage_options: Mapping[str, str] | None = None,
    form: TextForm = PLAIN,
    *,
    allow_empty: bool = False,
    instead: str = CLONE,
) -> list[SourceSplit]:
    """Splits of all sources in the given order.

    A source is a file, a directory, a glob or '-'; its extension gives the format unless `format` does. `allow_empty`, `instead`:
    see `source_files`. Raises `NotFound`, `UsageError`, `BadInput` (a file that is not of its format).
    """
    splits: list[SourceSplit] = []
    order_base = 0
    files = source_files(sources, format, storage_options, allow_empty=allow_empty, instead=instead)
    if files and form != PLAIN:
        form.check_used_by({file.format for file in files})
    for file in files:
        try:
            with file.storage.open_input(file.path) as stream:
                pieces = list(_pieces(file, stream, form))
        except DamagedFile as problem:  # such as an empty directory
            raise BadInput(f"{file.label} cannot be read", problem.why, source=file.label) from problem
        for start, length, first_row, arrivals in pieces:
            share = file.size // len(pieces)
            split = SourceSplit(file.path, file.format, start, length, first_row, order_base, file.label, share, arrivals)
            splits.append(split)
            order_base += arrivals
    return splits


def _pieces(file: SourceFile, stream: BinaryIO, form: TextForm) -> Iterator[tuple[int, int | None, int, int]]:
    """(start, length, first row, reserved numbers of arrival). Text reserves one number per byte, because no row is shorter."""
    if file.format == "parquet":
        yield from row_group_pieces(_opened(file, lambda: pq.ParquetFile(stream)).metadata)
    elif file.format == "orc":
        # pyarrow reports the row count of an ORC file only as a whole, so its stripes cannot be numbered separately.
        yield 0, None, 0, _opened(file, lambda: OrcFile(stream)).nrows
    elif file.format == "arrow":
        yield 0, None, 0, _opened(file, lambda: _arrow_rows(stream))
    elif (compression := compression_of(file.path)) is not None:
        least = 0 if compression == "gzip" else MIN_ARCHIVE_ROWS
        yield 0, None, 0, max(file.size * MAX_DEFLATE_RATIO, least)
    elif file.format == "json" and file.size > PIECES.json_split_bytes and form.encoding == UTF_8 and not _is_array(stream):
        yield from _line_pieces(stream)
    else:
        # A newline may be inside quotes, so only a reader that starts at the beginning knows where a CSV row starts.
        yield 0, None, 0, file.size


def _opened(file: SourceFile, open_file: Callable[[], T]) -> T:
    try:
        return open_file()
    except (pa.ArrowInvalid, OSError) as problem:
        raise BadInput(f"{file.label} is not a readable {file.format} file", str(problem), source=file.label) from problem


def arrow_file(stream: BinaryIO, columns: list[int] | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches of Arrow's IPC format, a file (Feather) or a stream. `columns`: positions of the columns to read."""
    beginning = stream.read(len(ARROW_MAGIC))
    stream.seek(0)
    options = pa.ipc.IpcReadOptions(included_fields=columns)
    if beginning != ARROW_MAGIC:
        reader = pa.ipc.open_stream(stream, options=options)
        return reader.schema, iter(reader)
    file = pa.ipc.open_file(stream, options=options)
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))


def _arrow_rows(stream: BinaryIO) -> int:
    return sum(batch.num_rows for batch in arrow_file(stream, columns=[0])[1])


def row_group_pieces(metadata: pq.FileMetaData) -> Iterator[tuple[int, int, int, int]]:
    """Runs of row groups that are big enough to be worth a task: (first group, number of groups, first row, rows)."""
    start = first_row = rows = size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if number > start and size + group.total_byte_size > PIECES.parquet_split_bytes:
            yield start, number - start, first_row, rows
            start, first_row, rows, size = number, first_row + rows, 0, 0
        rows, size = rows + group.num_rows, size + group.total_byte_size
    yield start, metadata.num_row_groups - start, first_row, rows


def _is_array(stream: BinaryIO) -> bool:
    """Whether a JSON file is one array, whose elements are not lines. Rewinds the stream."""
    is_array = begins_array(stream.read(BEGINNING_BYTES))
    stream.seek(0)
    return is_array


def _line_pieces(stream: BinaryIO) -> Iterator[tuple[int, int | None, int, int]]:
    """Byte ranges that end after a newline. The file is read once, because messages must give exact row numbers."""
    start = first_row = 0
    while block := stream.read(PIECES.json_split_bytes):
        if not block.endswith(b"\n"):
            block += stream.readline()
        yield start, len(block), first_row, len(block)
        start, first_row = start + len(block), first_row + len(line_bounds(block)[0])
