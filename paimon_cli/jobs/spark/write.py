"""A write on Spark: reader tasks route rows; writer tasks sort them and write data files.

If any task may add files to any bucket, the tasks that read rows also write them (`write_where_read`). In tables with dynamic
buckets, rows go to the assigner of their key first, then to the writer of the assigned bucket. Rows travel as chunks of Arrow
data (`chunks`): in one job with Spark's shuffle (`write_on_spark`), or on a Spark of our own on one machine with a job for each
step (`exchange_files`).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from paimon_cli.errors import PaimonError
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Engine, Progress, phase
from paimon_cli.jobs.spark.chunks import (
    CHUNKS_SQL,
    Note,
    Piece,
    Received,
    Send,
    end_marks,
    gathered,
    note_chunk,
    numbered_from_0,
    pieces,
    sending,
)
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.write.routers import Routed, Router, with_buckets
from paimon_cli.write.table_writer import TableWriter, Written, write_rows
from paimon_cli.write.write_plan import Tallies, WritePlan

_READ, WRITTEN = "read", "written"
Steps = Accumulator[list[str]]
"""For the progress display only: a split was read (counted again if its task is repeated), or a writer task is done."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Shuffle:
    """How the rows of one write are distributed among tasks."""

    plan: WritePlan
    reader_tasks: int
    writer_tasks: int
    numbers_rows: bool = False
    """Whether rows get their final arrival numbers only after the shuffle, because the number of rows was not known before."""
    directory: str | None = None
    """Where tasks on one machine exchange rows through files; None: chunks carry the rows."""

    @property
    def assigners_number(self) -> bool:
        """Whether assigners number the rows: if keys can move, a deletion must precede a later row in the same bucket."""
        return self.numbers_rows and self.plan.looks_up_keys

    @property
    def writers_number(self) -> bool:
        return self.numbers_rows and not self.assigners_number

    def writer_of(self, routed: Routed) -> np.ndarray:
        """The writer task of each row (int64): the same for all rows of a bucket; neighbouring buckets get different tasks."""
        partitioned = bool(self.plan.context.schema.partition_keys)
        offsets = np.array([zlib.crc32(p) if partitioned else 0 for p in routed.partitions.to_pylist()], np.int64)
        return (offsets[routed.codes] + routed.buckets) % self.writer_tasks

    def receivers(self, routed: Routed) -> np.ndarray:
        """The task that receives each row from the readers: its assigner if there are assigners, else its writer."""
        return routed.buckets if self.assigns else self.writer_of(routed)

    @property
    def assigns(self) -> bool:
        """Whether rows go to assigners before they go to the writers."""
        return self.plan.assignment is not None

    @property
    def receiver_tasks(self) -> int:
        assignment = self.plan.assignment
        return self.writer_tasks if assignment is None else assignment.assigners

    def sending(self) -> AbstractContextManager[Send]:
        """A context in which a task sends pieces."""
        return sending(self.directory)

    def received(self, chunks: Iterable[pa.RecordBatch]) -> Received:
        """The rows of chunks that were sent."""
        return Received(chunks, in_files=self.directory is not None)

    def first_router(self) -> Router:
        """The router of the reader tasks."""
        assignment = self.plan.assignment
        return self.plan.router() if assignment is None else assignment.assigner_router(self.plan.context.schema)

    def assigner_plan(self, number: int) -> WritePlan:
        """The plan of one assigner."""
        return self.plan.with_assignment(assigner=number)

    @property
    def writer_plan(self) -> WritePlan:
        """The plan of the writers."""
        return self.plan.with_assignment(is_done=True)

    def first_pieces(self, rows: pa.RecordBatch, router: Router) -> Iterator[Piece]:
        """The rows for each receiver; `router` comes from `first_router`."""
        return pieces(rows, self.receivers(router.route(rows)))

    def assigned_pieces(self, rows: pa.RecordBatch, router: Router) -> Iterator[Piece]:
        """The rows of an assigner for each writer."""
        routed = router.route(rows)
        return pieces(with_buckets(routed.rows, routed.buckets), self.writer_of(routed))


def shuffle_of(plan: WritePlan, parallelism: int) -> Shuffle:
    """Choose the number of reader and writer tasks. With many splits, several share a reader task."""
    reader_tasks = max(1, min(len(plan.splits), 16 * parallelism))
    writers = plan.parallelism or 2 * parallelism
    plan = plan.with_assigners(plan.parallelism or parallelism)
    if not plan.context.schema.partition_keys and plan.buckets.option > 0:
        writers = min(writers, plan.buckets.option)
    return Shuffle(plan, reader_tasks, max(1, writers))


def chunks_of_splits(session: SparkSession, shuffle: Shuffle, steps: Steps | None = None) -> DataFrame:
    """The rows of the plan's splits as chunks for their receivers; each reader task reads a range of the splits."""
    numbers = session.range(0, max(1, len(shuffle.plan.splits)), 1, shuffle.reader_tasks)
    return numbers.mapInArrow(reader_task(shuffle, steps), CHUNKS_SQL)


def write_on_spark(chunks: DataFrame, shuffle: Shuffle, steps: Steps | None = None) -> tuple[Written, Tallies]:
    """Run a write as one Spark job: the source of the chunks, assigners if there are any, and writers.

    Each writer gets the rows of its buckets in order of arrival. Also returns the counts of each split.
    """
    received = _exchanged(chunks, shuffle.receiver_tasks)
    if shuffle.assigns:
        received = _exchanged(received.mapInArrow(assigner_task(shuffle), CHUNKS_SQL), shuffle.writer_tasks)
    tasks = received.mapInArrow(writer_task(shuffle, steps), "written binary").collect()
    results: list[tuple[Written, list[Note]]] = [pickle.loads(row.written) for row in tasks]
    notes = [note for _, found in results for note in found]
    index_files = {bucket_id: file for note in notes if isinstance(note, Mapping) for bucket_id, file in note.items()}
    written = Written.of_tasks(written for written, _ in results).with_index_files(index_files)
    return check_bucket_owners(written), dict(note for note in notes if isinstance(note, tuple))


def _exchanged(chunks: DataFrame, tasks: int) -> DataFrame:
    return chunks.repartitionById(tasks, "task").sortWithinPartitions("arrival")


def reader_task(shuffle: Shuffle, steps: Steps | None) -> Task:
    """A function from split numbers to chunks. The task of the first split also sends each receiver its end mark."""

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = shuffle.plan
        with called_by_spark(), shuffle.sending() as chunks_of:
            router = shuffle.first_router()
            for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
                if number == 0:
                    yield end_marks(shuffle.receiver_tasks)
                for split in plan.splits[number : number + 1]:
                    tally = Tally()
                    for rows in gathered(plan.incoming.read(split, tally)):
                        yield chunks_of(shuffle.first_pieces(rows, router))
                    yield note_chunk((number, tally))
                    if steps is not None:
                        steps.add([_READ])

    return read


def assigner_task(shuffle: Shuffle) -> Task:
    """A function from chunks to chunks with a bucket for each row; each assigner sends each writer an end mark."""

    def assign(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with called_by_spark(), shuffle.sending() as chunks_of:
            task = TaskContext.get()
            assert task is not None
            plan = shuffle.assigner_plan(task.partitionId())
            router = plan.router()
            received = shuffle.received(chunks)
            numbered = numbered_from_0(received) if shuffle.assigners_number else received
            for rows in plan.placed(gathered(numbered)):
                yield chunks_of(shuffle.assigned_pieces(rows, router))
            for note in (*received.notes, router.finish()):
                yield note_chunk(note)
            yield end_marks(shuffle.writer_tasks)

    return assign


def writer_task(shuffle: Shuffle, steps: Steps | None) -> Task:
    """A function from chunks to data files; it returns the pickled `Written` and the notes that it received."""

    def write(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with called_by_spark():
            received = shuffle.received(chunks)
            with TableWriter(shuffle.writer_plan) as writer:
                for rows in numbered_from_0(received) if shuffle.writers_number else received:
                    writer.write(rows)
                written = pickle.dumps((writer.finish(), received.notes))
                yield pa.record_batch([pa.array([written], pa.binary())], names=["written"])
            if steps is not None:
                steps.add([WRITTEN])

    return write


def write_where_read(engine: Engine, plan: WritePlan, parallelism: int, tallies: Tallies, progress: Progress) -> Written:
    """Run a write without a shuffle: each task writes the rows of the splits that it reads."""
    portions = portions_of(plan, parallelism)
    with phase(progress, "Writing rows", len(portions)) as done:
        results = engine.run_tasks(partial(write_portion, plan), portions, done)
    for _, found in results:
        tallies.update(found)
    return Written.of_tasks(written for written, _ in results)


def portions_of(plan: WritePlan, parallelism: int) -> list[range]:
    """Ranges of split numbers with about the same bytes each: as few as keep all cores busy and fill files."""
    if not plan.splits:
        return []
    sizes = np.array([max(1, split.size) for split in plan.splits])
    files = -(-int(sizes.sum()) // plan.context.mode.target_file_size)
    count = min(len(sizes), plan.parallelism or max(parallelism, files))
    share = -(-int(sizes.sum()) // count)
    portions = (sizes.cumsum() - (sizes + 1) // 2) // share
    starts = np.flatnonzero(np.append(True, portions[1:] != portions[:-1])).tolist()
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True)]


def write_portion(plan: WritePlan, numbers: range) -> tuple[Written, Tallies]:
    """Write some splits of the plan; also returns the counts of each split."""
    found: Tallies = {}
    portion = replace(plan.by_writer(numbers.start), splits=plan.splits[numbers.start : numbers.stop])
    written = write_rows(portion, found)
    return written, {numbers.start + offset: tally for offset, tally in found.items()}


def check_bucket_owners(written: Written) -> Written:
    """Check that each bucket was written by exactly one task; otherwise the order of its rows would be lost."""
    bucket_ids = {message.bucket_id for message in written.messages}
    if len(bucket_ids) != len(written.buckets):
        raise PaimonError("rows of one bucket were written by several tasks", "the shuffle did not keep them together")
    return written
