"""Chunks: rows on their way from one task of a Spark job to another.

A chunk is a single binary value to Spark, so that rows are never converted between Python and the JVM; with Spark columns, that
conversion took five times as long as the whole write does now. On a cluster the value is the rows themselves, as an Arrow
stream. On one machine the rows are in a file of the task that sends them, and the value says where. A chunk may also be a note
or the mark after the last chunk.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import stable_order
from paimon_cli.ingest.faults import Tally
from paimon_cli.metadata.data_file import BucketId, IndexFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.pieces import PIECES

CHUNKS = pa.schema([pa.field("task", pa.int32()), pa.field("arrival", pa.int64()), pa.field("rows", pa.binary())])
CHUNKS_SQL = "task int, arrival long, rows binary"
END_OF_ROWS = 2**63 - 1
"""`arrival` of the mark after the last chunk of a task."""
NOTE = -1
"""`arrival` of a note."""


IndexFiles = Mapping[BucketId, IndexFileMeta]
Note = tuple[int, Tally] | IndexFiles
"""Side results of a task: the number and counts of a split that it read, or the hash index files that it wrote as an assigner.

Notes travel with the rows to the first writer, which returns them, because Spark Connect has no accumulators."""

Piece = tuple[int, int, pa.RecordBatch]
"""Rows for one task: its number, the arrival number of the first row, and the rows in order of arrival."""


def pieces(rows: pa.RecordBatch, tasks: np.ndarray) -> Iterator[Piece]:
    """The rows of each task that gets any; `tasks`: the task number of each row (int array)."""
    order = stable_order([tasks])
    grouped, tasks = rows.take(pa.array(order)), tasks[order]
    starts = np.flatnonzero(np.append(True, tasks[1:] != tasks[:-1]))
    lengths = np.diff(np.append(starts, len(tasks)))
    for start, length in zip(starts, lengths, strict=True):
        piece = grouped.slice(int(start), int(length))
        yield int(tasks[start]), piece.column(SEQUENCE_NUMBER)[0].as_py(), piece


def chunks_of(found: Iterable[Piece]) -> pa.RecordBatch:
    """The pieces as Spark rows, in the schema `CHUNKS`."""
    numbers, arrivals, rows = zip(*found, strict=True)
    return pa.record_batch([numbers, arrivals, [_packed(piece) for piece in rows]], schema=CHUNKS)


def _packed(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def note_chunk(note: Note) -> pa.RecordBatch:
    """A note for the first task of the next step, which sorts before its chunks."""
    return pa.record_batch([[0], [NOTE], [pickle.dumps(note)]], schema=CHUNKS)


def end_marks(tasks: int) -> pa.RecordBatch:
    """One end mark for each task, which sorts after all its chunks."""
    return pa.record_batch([range(tasks), [END_OF_ROWS] * tasks, [b""] * tasks], schema=CHUNKS)


@dataclass(frozen=True)
class Chunk:
    """The position of some rows for one task: a byte offset in a file. `arrival`: the arrival number of the first row."""

    task: int
    arrival: int
    path: str
    offset: int

    def rows(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.path) as file:
            file.seek(self.offset)
            yield from pa.ipc.open_stream(file)


class ChunkFile(AbstractContextManager["ChunkFile"]):
    """The file with the chunks that one task sends; each attempt of a task creates a new file in `directory`."""

    def __init__(self, directory: str) -> None:
        handle, self._path = tempfile.mkstemp(dir=directory, prefix="chunks-", suffix=".arrows")
        self._file = os.fdopen(handle, "wb")

    def append(self, task: int, arrival: int, rows: pa.RecordBatch) -> Chunk:
        offset = self._file.tell()
        with pa.ipc.new_stream(self._file, rows.schema) as stream:
            stream.write_batch(rows)
        return Chunk(task, arrival, self._path, offset)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


Send = Callable[[Iterable[Piece]], pa.RecordBatch]
"""Turns pieces into chunks, as Spark rows in the schema `CHUNKS`."""


@contextmanager
def sending(directory: str | None) -> Iterator[Send]:
    """A context in which a task sends its pieces: through a new file in `directory`, or with the chunks themselves if None."""
    if directory is None:
        yield chunks_of
        return
    with ChunkFile(directory) as file:
        yield partial(_chunks_in, file)


def _chunks_in(file: ChunkFile, found: Iterable[Piece]) -> pa.RecordBatch:
    chunks = [file.append(*piece) for piece in found]
    tasks, arrivals = [chunk.task for chunk in chunks], [chunk.arrival for chunk in chunks]
    return pa.record_batch([tasks, arrivals, [pickle.dumps(chunk) for chunk in chunks]], schema=CHUNKS)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at least `routed_bytes`, except the last: the overhead of small chunks would dominate."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= PIECES.routed_bytes:
            yield pa.concat_batches(held)
            held, size = [], 0
    if any(part.num_rows for part in held):
        yield pa.concat_batches(held)


class Received:
    """The rows of a task's chunks, which can be read once; `notes` is complete after that. `in_files`: see `sending`.

    Arrow's stream simply ends if the JVM side of a task dies, so the last chunk must be an end mark; without one,
    `EOFError` is raised.
    """

    def __init__(self, chunks: Iterable[pa.RecordBatch], *, in_files: bool = False) -> None:
        self._chunks = chunks
        self._in_files = in_files
        self.notes: list[Note] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        ended = False
        for batch in self._chunks:
            for arrival, rows in zip(batch.column("arrival").to_pylist(), batch.column("rows"), strict=True):
                ended = arrival == END_OF_ROWS
                if arrival == NOTE:
                    self.notes.append(pickle.loads(rows.as_py()))
                elif not ended:
                    yield from pickle.loads(rows.as_py()).rows() if self._in_files else pa.ipc.open_stream(rows.as_buffer())
        if not ended:
            raise EOFError("the shuffled rows are incomplete: the Spark task was cancelled or its JVM died")


def numbered_from_0(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Renumber rows by arrival from 0: the numbers given by Spark partitions are sparse and would exhaust sequence numbers."""
    count = 0
    for batch in batches:
        numbers = pa.array(np.arange(count, count + batch.num_rows))
        index = batch.schema.get_field_index(SEQUENCE_NUMBER)
        yield batch.set_column(index, batch.schema.field(index), numbers)
        count += batch.num_rows
