"""A write on Spark: reader tasks route rows, Spark shuffles them as chunks of Arrow data, writer tasks sort and write files.

A chunk is one value to Spark, so no row is ever converted between Python and the JVM: with rows in columns of Spark that
conversion took most of the time (measured: five times the whole write).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from paimon_cli.datatypes.key_order import stable_order
from paimon_cli.errors import PaimonError
from paimon_cli.ingest.rejects import Tally
from paimon_cli.jobs.spark.job import carrying_errors
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.write.bucket_router import BucketRouter
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import WritePlan

WRITTEN = None
Report = tuple[int, Tally] | None
"""What tasks report: what was found in a split that was read (again where a task is repeated), or a writer task that is done."""

CHUNKS = pa.schema([pa.field("writer", pa.int32()), pa.field("arrival", pa.int64()), pa.field("rows", pa.binary())])
CHUNKS_SQL = "writer int, arrival long, rows binary"
END_OF_ROWS = 2**63 - 1
"""`arrival` of the mark behind the last chunk of a writer."""

ROUTED_BYTES = 16 << 20
"""Arrow bytes that a reader task collects before it cuts them into one chunk per writer."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Shuffle:
    """Over how many tasks the rows of one write go."""

    plan: WritePlan
    reader_tasks: int
    writer_tasks: int

    def router(self) -> BucketRouter:
        return BucketRouter(self.plan.context.schema, self.plan.context.options)

    def writer_of(self, partitions: pa.DictionaryArray, buckets: np.ndarray) -> np.ndarray:
        """The writer task of each row: the same for all rows of a bucket, neighbouring buckets in different tasks."""
        partitioned = bool(self.plan.context.schema.partition_keys)
        offsets = np.array([zlib.crc32(p) if partitioned else 0 for p in partitions.dictionary.to_pylist()], np.int64)
        return (offsets[partitions.indices.to_numpy()] + buckets) % self.writer_tasks

    def pieces(self, rows: pa.RecordBatch, router: BucketRouter) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Number of a writer, first arrival and rows of each writer that gets some, rows in the order of arrival."""
        writers = self.writer_of(*router.route(rows))
        order = stable_order([writers])
        grouped, writers = rows.take(pa.array(order)), writers[order]
        starts = np.flatnonzero(np.append(True, writers[1:] != writers[:-1]))
        lengths = np.diff(np.append(starts, len(writers)))
        for start, length in zip(starts, lengths, strict=True):
            piece = grouped.slice(int(start), int(length))
            yield int(writers[start]), piece.column(SEQUENCE_NUMBER)[0].as_py(), piece

    def chunks(self, rows: pa.RecordBatch, router: BucketRouter) -> pa.RecordBatch:
        """The pieces as rows of Spark."""
        numbers, arrivals, pieces = zip(*self.pieces(rows, router), strict=True)
        return pa.record_batch([numbers, arrivals, [_packed(piece) for piece in pieces]], schema=CHUNKS)

    def end_marks(self) -> pa.RecordBatch:
        """One mark for each writer task, which sorts behind its chunks."""
        count = self.writer_tasks
        return pa.record_batch([range(count), [END_OF_ROWS] * count, [b""] * count], schema=CHUNKS)


def shuffle_of(plan: WritePlan, parallelism: int) -> Shuffle:
    """Several splits share a reader task when there are many; a writer task gets at least one bucket of a partition."""
    reader_tasks = max(1, min(len(plan.splits), 16 * parallelism))
    writers = plan.parallelism or 2 * parallelism
    if not plan.context.schema.partition_keys:
        writers = min(writers, plan.total_buckets)
    return Shuffle(plan, reader_tasks, max(1, writers))


def shuffled_chunks(session: SparkSession, shuffle: Shuffle, reports: Accumulator[list[Report]]) -> DataFrame:
    """Each bucket's rows in one partition, in the order of arrival; reader task i reads a range of the plan's splits."""
    numbers = session.range(0, max(1, len(shuffle.plan.splits)), 1, shuffle.reader_tasks)
    chunks = numbers.mapInArrow(reader_task(shuffle, reports), CHUNKS_SQL)
    return chunks.repartitionById(shuffle.writer_tasks, "writer").sortWithinPartitions("arrival")


def write_on_spark(session: SparkSession, shuffle: Shuffle, reports: Accumulator[list[Report]]) -> Written:
    """Run the whole write as one Spark job of two stages."""
    chunks = shuffled_chunks(session, shuffle, reports)
    tasks = chunks.mapInArrow(writer_task(shuffle.plan, reports), "written binary").collect()
    return Written.of_tasks(pickle.loads(row.written) for row in tasks)


def reader_task(shuffle: Shuffle, reports: Accumulator[list[Report]]) -> Task:
    """Split numbers -> chunks. The first split's task also sends every writer its end mark."""

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = shuffle.plan
        with carrying_errors():
            router = shuffle.router()
            for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
                if number == 0:
                    yield shuffle.end_marks()
                for split in plan.splits[number : number + 1]:
                    tally = Tally()
                    for rows in gathered(plan.incoming.read(split, tally)):
                        yield shuffle.chunks(rows, router)
                    reports.add([(number, tally)])

    return read


def writer_task(plan: WritePlan, reports: Accumulator[list[Report]]) -> Task:
    """Chunks -> files; gives what it has `Written`, pickled."""

    def write(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying_errors():
            with TableWriter(plan) as writer:
                for rows in unpacked(chunks):
                    writer.write(rows)
                written = pickle.dumps(writer.finish())
                yield pa.record_batch([pa.array([written], pa.binary())], names=["written"])
            reports.add([WRITTEN])

    return write


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at least `ROUTED_BYTES`, the last one aside: small chunks would cost more than their rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(part.nbytes for part in held) >= ROUTED_BYTES:
            yield pa.concat_batches(held)
            held = []
    if any(part.num_rows for part in held):
        yield pa.concat_batches(held)


def unpacked(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a writer's chunks; an input that breaks off before its end mark is an error.

    Arrow's stream just ends when the JVM side of a task dies: without the mark the rows so far would look like all.
    """
    ended = False
    for batch in chunks:
        for arrival, rows in zip(batch.column("arrival"), batch.column("rows"), strict=True):
            ended = arrival.as_py() == END_OF_ROWS
            if not ended:
                yield from pa.ipc.open_stream(rows.as_buffer())
    if not ended:
        raise EOFError("the shuffled rows broke off: the Spark task was cancelled or its JVM died")


def _packed(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def check_places(written: Written) -> Written:
    """Each bucket must come from exactly one task; anything else would lose the order of its rows."""
    bucket_ids = {message.bucket_id for message in written.messages}
    if len(bucket_ids) != len(written.buckets):
        raise PaimonError("rows of one bucket were written by several tasks", "the shuffle did not keep them together")
    return written
