"""A write on a Spark of this machine: the rows go from task to task through files.

Each task that reads rows, or gives them their buckets, writes what the tasks of the next step get to one file of Arrow data.
A chunk is named by the place in such a file where it begins; each task reads its own chunks, in the order of arrival.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from paimon_cli.errors import PaimonError
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Engine, Progress, phase
from paimon_cli.jobs.spark.write import IndexFiles, Shuffle, gathered
from paimon_cli.metadata.data_file import BucketId, IndexFileMeta
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import Tallies, WritePlan

FAILED = "failed-"
"""Beginning of the names of marks: the reader task of that number met an error."""


@dataclass(frozen=True)
class Chunk:
    """Where rows for one task begin in a file; `arrival` of the first of them orders chunks."""

    task: int
    arrival: int
    path: str
    offset: int

    def rows(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.path) as file:
            file.seek(self.offset)
            yield from pa.ipc.open_stream(file)


class ChunkFile(AbstractContextManager["ChunkFile"]):
    """The chunks that one task sends: a new file in `directory`, whichever attempt of the task this is."""

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


def mark_failed(directory: str, task: int) -> None:
    """Tell the reader tasks that feed this task to stop."""
    (Path(directory) / f"{FAILED}{task}").touch()


def is_for_nothing(directory: str, task: int) -> bool:
    """Whether a task before this one has failed: then its error is the one to tell."""
    return any(int(mark.name.removeprefix(FAILED)) < task for mark in Path(directory).glob(FAILED + "*"))


def write_through_files(engine: Engine, shuffle: Shuffle, directory: str, tallies: Tallies, progress: Progress) -> Written:
    """Two jobs of `engine`, three with assigners; the rows in between lie in `directory`. Raises the error of the first task that
    failed."""
    with phase(progress, "Reading and routing", len(shuffle.plan.splits)) as done:
        found = engine.run_tasks(partial(read_split, shuffle, directory), range(len(shuffle.plan.splits)), done)
    tallies.update((number, tally) for number, (_, tally) in enumerate(found))
    chunks = [chunk for part, _ in found for chunk in part]
    made: dict[BucketId, IndexFileMeta] = {}
    if shuffle.assigns:
        tasks = _by_task(chunks)
        with phase(progress, "Assigning buckets", len(tasks)) as done:
            assigned = engine.run_tasks(partial(assign_chunks, shuffle, directory), tasks, done)
        chunks = [chunk for part, _ in assigned for chunk in part]
        made = {bucket_id: file for _, files in assigned for bucket_id, file in files.items()}
    tasks = _by_task(chunks)
    with phase(progress, "Sorting and writing", len(tasks)) as done:
        written = engine.run_tasks(partial(write_chunks, shuffle.writer_plan), tasks, done)
    return Written.of_tasks(written).with_index_files(made)


def _by_task(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """The chunks of each task, in the order of arrival."""
    ordered = sorted(chunks, key=attrgetter("task", "arrival"))
    return [list(own) for _, own in groupby(ordered, key=attrgetter("task"))]


def read_split(shuffle: Shuffle, directory: str, number: int) -> tuple[list[Chunk], Tally]:
    """Route the rows of a split of the plan; its chunks, none where an earlier split is known to have failed."""
    tally = Tally()
    if is_for_nothing(directory, number):
        return [], tally
    router = shuffle.first_router()
    chunks: list[Chunk] = []
    try:
        with ChunkFile(directory) as file:
            for rows in gathered(shuffle.plan.incoming.read(shuffle.plan.splits[number], tally)):
                chunks += (file.append(*piece) for piece in shuffle.first_pieces(rows, router))
    except PaimonError:
        mark_failed(directory, number)
        raise
    return chunks, tally


def assign_chunks(shuffle: Shuffle, directory: str, chunks: list[Chunk]) -> tuple[list[Chunk], IndexFiles]:
    """Assign the rows of one assigner, which come in the order of arrival: chunks for the writers, and the hash indexes."""
    plan = shuffle.assigner_plan(chunks[0].task)
    router = plan.router()
    assigned: list[Chunk] = []
    with ChunkFile(directory) as file:
        for rows in plan.placed(gathered(batch for chunk in chunks for batch in chunk.rows())):
            assigned += (file.append(*piece) for piece in shuffle.assigned_pieces(rows, router))
    return assigned, router.finish()


def write_chunks(plan: WritePlan, chunks: list[Chunk]) -> Written:
    """Sort and write the rows of one writer, which come in the order of arrival."""
    with TableWriter(plan) as writer:
        for chunk in chunks:
            for rows in chunk.rows():
                writer.write(rows)
        return writer.finish()
