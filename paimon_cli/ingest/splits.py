"""Cutting input files into splits that tasks read on their own, each row with a place in the order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.errors import BadInput
from paimon_cli.ingest.sources import SourceFile, source_files
from paimon_cli.storage.storage_for_url import storage_for_url

T = TypeVar("T")

PARQUET_SPLIT_BYTES = 32 << 20
"""Small enough that a few splits keep all tasks busy to the end, big enough that starting a task is cheap beside it."""
JSON_SPLIT_BYTES = 64 << 20
GZIP_BEST_RATIO = 1032
"""Deflate never packs tighter, so a gzip file holds fewer rows than this times its bytes."""


@dataclass(frozen=True)
class SourceSplit:
    """A piece of one input file. `start`, `length`: row groups of parquet, bytes of JSON lines (None: to the end).

    `first_row` is the 0-based number of its first row in the file; `order_base` + row number within the split is the order
    of arrival, unique and increasing over all splits of a job. `size`: its share of the file's bytes.
    """

    path: str
    format: str
    start: int
    length: int | None
    first_row: int
    order_base: int
    label: str = ""
    size: int = 0

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.label or self.path

    def bad_row(self, row: int, why: str, *, column: str | None = None, value: str | None = None) -> BadInput:
        """The error about a row of this split (0-based); the message counts data rows of the file from 1."""
        number = self.first_row + row + 1
        cell = "" if column is None else f", column '{column}'" if value is None else f", column '{column}' cannot take {value}"
        details = {"column": column, "value": value}
        return BadInput(
            f"{self.name}: row {number}{cell}",
            why,
            "nothing was committed; correct the input and run again",
            source=self.name,
            row=number,
            **{key: text for key, text in details.items() if text is not None},
        )


def plan_sources(
    sources: Sequence[str], format: str | None, storage_options: Mapping[str, str] | None = None
) -> list[SourceSplit]:
    """Splits of all sources in the given order.

    A source is a file, a directory, a glob or '-'; format comes from the extension unless given.
    Raises NotFound, UsageError, BadInput (a file that is not of its format).
    """
    splits: list[SourceSplit] = []
    order_base = 0
    for file in source_files(sources, format, storage_options):
        storage, path = storage_for_url(file.path, storage_options)
        with storage.open_input(path) as stream:
            pieces = list(_pieces(file, stream))
        for start, length, first_row, arrivals in pieces:
            share = file.size // len(pieces)
            splits.append(SourceSplit(file.path, file.format, start, length, first_row, order_base, file.label, share))
            order_base += arrivals
    return splits


def _pieces(file: SourceFile, stream: BinaryIO) -> Iterator[tuple[int, int | None, int, int]]:
    """(start, length, first row, numbers of arrival to reserve). Text reserves a number per byte: no row is shorter."""
    if file.format == "parquet":
        yield from _row_group_pieces(file, stream)
    elif file.format == "orc":
        # pyarrow tells the rows of an ORC file only as a whole, so its stripes cannot be numbered apart.
        yield 0, None, 0, _opened(file, lambda: OrcFile(stream)).nrows
    elif file.gzipped:
        yield 0, None, 0, file.size * GZIP_BEST_RATIO
    elif file.format == "json" and file.size > JSON_SPLIT_BYTES:
        yield from _line_pieces(stream)
    else:
        # A newline may stand inside quotes, so only a reader from the beginning knows where a CSV row starts.
        yield 0, None, 0, file.size


def _opened(file: SourceFile, open_file: Callable[[], T]) -> T:
    try:
        return open_file()
    except (pa.ArrowInvalid, OSError) as problem:
        raise BadInput(f"{file.label} is not a readable {file.format} file", str(problem), source=file.label) from problem


def _row_group_pieces(file: SourceFile, stream: BinaryIO) -> Iterator[tuple[int, int | None, int, int]]:
    """Neighbouring row groups together until they reach the size that is worth a task."""
    metadata = _opened(file, lambda: pq.ParquetFile(stream)).metadata
    start = first_row = rows = size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if number > start and size + group.total_byte_size > PARQUET_SPLIT_BYTES:
            yield start, number - start, first_row, rows
            start, first_row, rows, size = number, first_row + rows, 0, 0
        rows, size = rows + group.num_rows, size + group.total_byte_size
    yield start, metadata.num_row_groups - start, first_row, rows


def _line_pieces(stream: BinaryIO) -> Iterator[tuple[int, int | None, int, int]]:
    """Byte ranges that end behind a newline. Reads the file once: only so are row numbers of messages exact."""
    start = first_row = 0
    while block := stream.read(JSON_SPLIT_BYTES):
        if not block.endswith(b"\n"):
            block += stream.readline()
        yield start, len(block), first_row, len(block)
        start, first_row = start + len(block), first_row + len(line_bounds(block)[0])


NEWLINE, RETURN = 0x0A, 0x0D


def line_bounds(block: bytes) -> tuple[np.ndarray, np.ndarray]:
    """First byte and end of every line that holds something, without its line end; empty lines are no rows."""
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
