"""A write on a Spark of our own on one machine: one job for each step, and rows in files between them.

Each task that reads rows, or assigns their buckets, writes the rows for all tasks of the next step to one file. The driver gets
the positions in these files, so that Spark only runs tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from paimon_cli.errors import PaimonError
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Engine, Progress, phase
from paimon_cli.jobs.spark.chunks import Chunk, ChunkFile, IndexFiles, gathered
from paimon_cli.jobs.spark.write import Shuffle
from paimon_cli.metadata.data_file import BucketId, IndexFileMeta
from paimon_cli.storage.whole_file import ScratchDirectory
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import Tallies, WritePlan

if TYPE_CHECKING:
    from pyspark import SparkContext

_FAILED = "failed-"
"""Prefix of marker files; the rest of the name is the number of a reader task that failed."""


def mark_failed(directory: str, task: int) -> None:
    """Record that a reader task has failed, so that later tasks need not start."""
    (Path(directory) / f"{_FAILED}{task}").touch()


def is_superseded(directory: str, task: int) -> bool:
    """Whether an earlier reader task has failed: its error will be reported, so this task need not run."""
    return any(int(mark.name.removeprefix(_FAILED)) < task for mark in Path(directory).glob(_FAILED + "*"))


def write_through_files(engine: Engine, shuffle: Shuffle, directory: str, tallies: Tallies, progress: Progress) -> Written:
    """Run a write as two jobs of `engine` (three with assigners), which exchange rows through files in `directory`.

    Raises the error of the first task that failed.
    """
    with phase(progress, "Reading and routing", len(shuffle.plan.splits)) as done:
        found = engine.run_tasks(partial(route_split, shuffle, directory), range(len(shuffle.plan.splits)), done)
    tallies.update((number, tally) for number, (_, tally) in enumerate(found))
    chunks = [chunk for part, _ in found for chunk in part]
    index_files: dict[BucketId, IndexFileMeta] = {}
    if shuffle.assigns:
        tasks = _by_task(chunks)
        with phase(progress, "Assigning buckets", len(tasks)) as done:
            assigned = engine.run_tasks(partial(assign_chunks, shuffle, directory), tasks, done)
        chunks = [chunk for part, _ in assigned for chunk in part]
        index_files = {bucket_id: file for _, files in assigned for bucket_id, file in files.items()}
    tasks = _by_task(chunks)
    with phase(progress, "Sorting and writing", len(tasks)) as done:
        written = engine.run_tasks(partial(write_chunks, shuffle.writer_plan), tasks, done)
    return Written.of_tasks(written).with_index_files(index_files)


def _by_task(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """The chunks of each task, in the order of arrival."""
    ordered = sorted(chunks, key=attrgetter("task", "arrival"))
    return [list(own) for _, own in groupby(ordered, key=attrgetter("task"))]


def route_split(shuffle: Shuffle, directory: str, number: int) -> tuple[list[Chunk], Tally]:
    """Route the rows of one split; returns its chunks and counts. Does nothing if an earlier split has failed."""
    tally = Tally()
    if is_superseded(directory, number):
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
    """Assign buckets to the rows of one assigner, in order of arrival; returns chunks for the writers, and hash index files."""
    plan = shuffle.assigner_plan(chunks[0].task)
    router = plan.router()
    assigned: list[Chunk] = []
    with ChunkFile(directory) as file:
        for rows in plan.placed(gathered(batch for chunk in chunks for batch in chunk.rows())):
            assigned += (file.append(*piece) for piece in shuffle.assigned_pieces(rows, router))
    return assigned, router.finish()


def write_chunks(plan: WritePlan, chunks: list[Chunk]) -> Written:
    """Sort and write the rows of one writer, in order of arrival."""
    with TableWriter(plan) as writer:
        for chunk in chunks:
            for rows in chunk.rows():
                writer.write(rows)
        return writer.finish()


def exchange_directory(context: SparkContext) -> ScratchDirectory:
    """A new directory for rows that tasks on this machine exchange, where Spark has its shuffles, too."""
    return ScratchDirectory("exchange", scratch_directory(context.getConf().get("spark.local.dir", ""), os.environ))


def scratch_directory(setting: str, environment: Mapping[str, str]) -> str | None:
    """The first directory that Spark would use for shuffles, from its environment or `spark.local.dir`; None for the default."""
    chosen = environment.get("SPARK_LOCAL_DIRS") or setting
    return chosen.split(",")[0].strip() or None
