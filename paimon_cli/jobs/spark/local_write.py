"""A write on a Spark of this machine: reader tasks route rows into Arrow files, writer tasks sort them and write data files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from paimon_cli.errors import PaimonError
from paimon_cli.ingest.rejects import Tally
from paimon_cli.jobs.engine import Engine, TasksFailed
from paimon_cli.jobs.progress import Progress
from paimon_cli.jobs.spark.write import Shuffle, gathered
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import Tallies, WritePlan

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


def write_through_files(engine: Engine, shuffle: Shuffle, directory: str, tallies: Tallies, progress: Progress) -> Written:
    """Two jobs of `engine`; the rows in between lie in `directory`. Raises the error of the first task that failed."""
    try:
        progress.start("Reading and routing", len(shuffle.plan.splits))
        read = partial(read_split, shuffle, directory)
        found = engine.run_tasks(read, range(len(shuffle.plan.splits)), _advancing(progress))
        tallies.update((number, tally) for number, (_, tally) in enumerate(found))
        chunks = sorted((chunk for part, _ in found for chunk in part), key=attrgetter("writer", "arrival"))
        tasks = [list(chunks_of_writer) for _, chunks_of_writer in groupby(chunks, key=attrgetter("writer"))]
        progress.start("Sorting and writing", len(tasks))
        written = engine.run_tasks(partial(write_chunks, shuffle.plan), tasks, _advancing(progress))
    except TasksFailed as failed:
        raise failed.error from failed
    return Written.of_tasks(written)


def read_split(shuffle: Shuffle, directory: str, number: int) -> tuple[list[Chunk], Tally]:
    """Route the rows of a split of the plan; its chunks, none where an earlier split is known to have failed."""
    tally = Tally()
    if is_for_nothing(directory, number):
        return [], tally
    router = shuffle.router()
    chunks: list[Chunk] = []
    try:
        with ChunkFile(directory) as file:
            for rows in gathered(shuffle.plan.incoming.read(shuffle.plan.splits[number], tally)):
                chunks += (file.append(*piece) for piece in shuffle.pieces(rows, router))
    except PaimonError:
        mark_failed(directory, number)
        raise
    return chunks, tally


def write_chunks(plan: WritePlan, chunks: list[Chunk]) -> Written:
    """Sort and write the rows of one writer, which come in the order of arrival."""
    with TableWriter(plan) as writer:
        for chunk in chunks:
            for rows in chunk.rows():
                writer.write(rows)
        return writer.finish()


def _advancing(progress: Progress) -> Callable[[object], None]:
    return lambda result: progress.advance()
