"""Rows on their way from reader tasks to writer tasks of one machine: Arrow chunks in files that both can open.

Spark's shuffle would take the same bytes through the JVM, which copies them some eight times (measured: half of a write's time).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

FAILED = "failed-"
"""Beginning of the names of marks: the reader task of that number met an error."""


@dataclass(frozen=True)
class Chunk:
    """Where rows for one writer task begin in a file; `arrival` of the first of them orders chunks."""

    writer: int
    arrival: int
    path: str
    offset: int

    def rows(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.path) as file:
            file.seek(self.offset)
            yield from pa.ipc.open_stream(file)


class ChunkFile(AbstractContextManager["ChunkFile"]):
    """The chunks of one reader task: a new file in `directory`, whichever attempt of the task this is."""

    def __init__(self, directory: str) -> None:
        handle, self._path = tempfile.mkstemp(dir=directory, prefix="chunks-", suffix=".arrows")
        self._file = os.fdopen(handle, "wb")

    def append(self, writer: int, arrival: int, rows: pa.RecordBatch) -> Chunk:
        offset = self._file.tell()
        with pa.ipc.new_stream(self._file, rows.schema) as stream:
            stream.write_batch(rows)
        return Chunk(writer, arrival, self._path, offset)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def mark_failed(directory: str, task: int) -> None:
    """Let reader tasks behind this one know that what they read is for nothing."""
    (Path(directory) / f"{FAILED}{task}").touch()


def is_for_nothing(directory: str, task: int) -> bool:
    """Whether a task before this one has failed: then its error is the one to tell."""
    return any(int(mark.name.removeprefix(FAILED)) < task for mark in Path(directory).glob(FAILED + "*"))
