"""Cuts input files into splits that tasks read independently; each row keeps its place in the order of arrival.

JSON text is cut into lines: those of JSON lines, or the elements of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.errors import BadInput, DamagedFile
from paimon_cli.ingest.rejects import Fault
from paimon_cli.ingest.sources import SourceFile, compression_of, source_files
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.ingest.text_values import PLAIN
from paimon_cli.storage.storage_for_url import storage_for_url

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE, RETURN, SPACE, COMMA, QUOTE, BACKSLASH = b'\n\r ,"\\'
OPENING, CLOSING = b"[{", b"]}"
BLANKS = b" \t\r\n"
ARROW_MAGIC = b"ARROW1"


class NotAnArray(ValueError):
    """The text of an array does not end like an array."""


def begins_array(beginning: bytes) -> bool:
    return beginning.removeprefix(BYTE_ORDER_MARK).lstrip(BLANKS).startswith(b"[")


def array_blocks(source: BinaryIO, beginning: bytes, block_bytes: int) -> Iterator[bytes]:
    """The elements of one array as JSON lines. `beginning`: the text that has been read already. Raises `NotAnArray`.

    Line ends between the parts of an element become blanks. Elements are delimited by quotes and brackets; whether each is valid
    JSON is checked when its line is parsed.
    """
    held = beginning.removeprefix(BYTE_ORDER_MARK).lstrip(BLANKS)[1:]
    begun = False
    while True:
        read = source.read(block_bytes)
        held += read
        text, depth, outside = _structure(held)
        separators = np.flatnonzero(outside & (((text == COMMA) & (depth == 0)) | (depth < 0)))
        closed = np.flatnonzero(depth[separators] < 0)
        separators = separators[: closed[0] + 1] if len(closed) else separators
        if not len(closed) and not read:
            raise NotAnArray("the array has no end")
        if len(separators):
            elements = _elements(text, outside, separators)
            if b"" in elements and (begun or elements != [b""]):
                raise NotAnArray("an element of the array is empty")
            begun = True
            yield b"".join(element + b"\n" for element in elements if element)
            end = int(separators[-1])
            if len(closed):
                if held[end : end + 1] != b"]" or (held[end + 1 :] + source.read(block_bytes)).strip(BLANKS):
                    raise NotAnArray("the array does not end where the file does")
                return
            held = held[end + 1 :]


def _elements(text: np.ndarray, outside: np.ndarray, separators: np.ndarray) -> list[bytes]:
    """The elements before each separator, each on one line."""
    lines = text[: separators[-1]].copy()
    lines[outside[: len(lines)] & ((lines == NEWLINE) | (lines == RETURN))] = SPACE
    flat = lines.tobytes()
    return [flat[before + 1 : place].strip(BLANKS) for before, place in pairwise([-1, *separators.tolist()])]


def _structure(held: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bytes, the nesting depth of each (a closing bracket has the depth of what follows it), and whether it is outside of
    texts.
    """
    text = np.frombuffer(held, np.uint8)
    inside = np.cumsum((text == QUOTE) & ~_escaped(text), dtype=np.int32) & 1
    outside = inside == 0
    steps = np.isin(text, list(OPENING)).astype(np.int8) - np.isin(text, list(CLOSING)).astype(np.int8)
    return text, np.cumsum(steps * outside, dtype=np.int32), outside


def _escaped(text: np.ndarray) -> np.ndarray:
    """Bytes after an odd number of backslashes."""
    escaped = np.zeros(len(text), bool)
    slashes = np.flatnonzero(text == BACKSLASH)
    if len(slashes):
        breaks = np.flatnonzero(np.diff(slashes) != 1) + 1
        starts, ends = slashes[np.append(0, breaks)], slashes[np.append(breaks - 1, len(slashes) - 1)]
        odd = ends[(ends - starts) % 2 == 0] + 1
        escaped[odd[odd < len(text)]] = True
    return escaped


def line_bounds(block: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The first byte and the end of every line that is not empty, without its line end; empty lines are no rows."""
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == NEWLINE)
    if len(text) and text[-1] != NEWLINE:
        ends = np.append(ends, len(text))
    if not len(ends):
        return ends, ends
    starts = np.append(0, ends[:-1] + 1)
    ends = ends - ((ends > starts) & (text[ends - 1] == RETURN))
    filled = ends > starts
    return starts[filled], ends[filled]


T = TypeVar("T")
MOST_ARRIVALS = 2**63 - 1

PARQUET_SPLIT_BYTES = 32 << 20
"""Small enough that a few splits keep all tasks busy to the end, big enough that starting a task is cheap beside it."""
JSON_SPLIT_BYTES = 64 << 20
BEGINNING_BYTES = 4096
BEST_RATIO = 1032
"""Deflate never packs tighter, so a gzip file holds fewer rows than this times its bytes; so do honest files of others."""
ROWS_OF_ANY_ARCHIVE = 1 << 32


@dataclass(frozen=True)
class SourceSplit:
    """A part of one input file. `start`, `length`: row groups of parquet, bytes of JSON lines (None: to the end).

    `first_row` is the 0-based number of its first row in the file; `order_base` + row number within the split is the order of
    arrival, unique and increasing over all splits of a job; `arrivals` numbers are reserved for the split. `size`: its share of
    the file's bytes.
    """

    path: str
    format: str
    start: int
    length: int | None
    first_row: int
    order_base: int
    label: str = ""
    size: int = 0
    arrivals: int = MOST_ARRIVALS

    @property
    def name(self) -> str:
        """The name of the file in messages."""
        return self.label or self.path

    def fault(self, row: int, why: str, column: str | None = None, value: object = None) -> Fault:
        """A fault of a row of this split (0-based); faults count data rows of the file from 1."""
        return Fault(self.name, self.first_row + row + 1, column, value, why)

    def check_room(self, rows: int) -> None:
        """`BadInput` if a split has more rows than reserved numbers of arrival, since its rows would mix with those of the next
        split.
        """
        if rows > self.arrivals:
            raise BadInput(
                f"{self.name} holds more rows than its size allows", "its compression ratio is implausible", "unpack it first"
            )


class RawRows(NamedTuple):
    """Rows as the reader of a format returns them: their numbers within the split, and the faults found.

    Faults may concern rows of the batch, whose bad cells are null there, and rows that could not be read at all.
    """

    batch: pa.RecordBatch
    rows: np.ndarray
    faults: Sequence[Fault] = ()


def plan_sources(
    sources: Sequence[str],
    format: str | None,
    storage_options: Mapping[str, str] | None = None,
    form: TextForm = PLAIN,
    *,
    may_be_none: bool = False,
) -> list[SourceSplit]:
    """Splits of all sources in the given order.

    A source is a file, a directory, a glob or '-'; its format comes from the extension unless given. Raises `NotFound`,
    `UsageError`, `BadInput` (a file that is not of its format).
    """
    splits: list[SourceSplit] = []
    order_base = 0
    files = source_files(sources, format, storage_options, may_be_none=may_be_none)
    if files:
        form.check_used_by({file.format for file in files})
    for file in files:
        storage, path = storage_for_url(file.path, storage_options)
        try:
            with storage.open_input(path) as stream:
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
        yield from _row_group_pieces(file, stream)
    elif file.format == "orc":
        # pyarrow reports the row count of an ORC file only as a whole, so its stripes cannot be numbered separately.
        yield 0, None, 0, _opened(file, lambda: OrcFile(stream)).nrows
    elif file.format == "arrow":
        yield 0, None, 0, _opened(file, lambda: _arrow_rows(stream))
    elif file.compressed:
        least = 0 if compression_of(file.path) == "gzip" else ROWS_OF_ANY_ARCHIVE
        yield 0, None, 0, max(file.size * BEST_RATIO, least)
    elif file.format == "json" and file.size > JSON_SPLIT_BYTES and form.is_utf8 and not _is_array(stream):
        yield from _line_pieces(stream)
    else:
        # A newline may be inside quotes, so only a reader from the beginning knows where a CSV row starts.
        yield 0, None, 0, file.size


def _opened(file: SourceFile, open_file: Callable[[], T]) -> T:
    try:
        return open_file()
    except (pa.ArrowInvalid, OSError) as problem:
        raise BadInput(f"{file.label} is not a readable {file.format} file", str(problem), source=file.label) from problem


def arrow_file(stream: BinaryIO, columns: list[int] | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches of Arrow's IPC format, a file (Feather) or a stream; `columns`: the positions of those that are read."""
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


def _row_group_pieces(file: SourceFile, stream: BinaryIO) -> Iterator[tuple[int, int | None, int, int]]:
    """Neighbouring row groups, combined until they reach the size that is worth a task."""
    metadata = _opened(file, lambda: pq.ParquetFile(stream)).metadata
    start = first_row = rows = size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if number > start and size + group.total_byte_size > PARQUET_SPLIT_BYTES:
            yield start, number - start, first_row, rows
            start, first_row, rows, size = number, first_row + rows, 0, 0
        rows, size = rows + group.num_rows, size + group.total_byte_size
    yield start, metadata.num_row_groups - start, first_row, rows


def _is_array(stream: BinaryIO) -> bool:
    """Whether a JSON file is one array, whose elements are not lines; the stream is reset to its beginning."""
    found = begins_array(stream.read(BEGINNING_BYTES))
    stream.seek(0)
    return found


def _line_pieces(stream: BinaryIO) -> Iterator[tuple[int, int | None, int, int]]:
    """Byte ranges that end after a newline. The file is read once, because messages must give exact row numbers."""
    start = first_row = 0
    while block := stream.read(JSON_SPLIT_BYTES):
        if not block.endswith(b"\n"):
            block += stream.readline()
        yield start, len(block), first_row, len(block)
        start, first_row = start + len(block), first_row + len(line_bounds(block)[0])
