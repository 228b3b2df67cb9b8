"""A write on Spark: Python tasks read and route the rows, the JVM shuffles and sorts them, Python tasks write the files."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from paimon_cli.datatypes.key_order import comparable
from paimon_cli.errors import PaimonError
from paimon_cli.jobs.spark_errors import carrying_errors
from paimon_cli.jobs.spark_types import carrier_name, carrier_schema, from_carrier, spark_schema, to_carrier
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, merge_schema
from paimon_cli.write.bucket_router import BucketRouter
from paimon_cli.write.sorted_rows_writer import BUCKET, PARTITION, write_sorted_rows
from paimon_cli.write.write_plan import WritePlan

READ, WRITTEN = "read", "written"
"""What tasks report: a split was read, a writer task is done."""


@dataclass(frozen=True)
class Shuffle:
    """How the rows of one write travel: which columns, in which order they are sorted, over how many writer tasks.

    Columns: those of `write_sorted_rows`, then the writer task of the row, then for each FLOAT or DOUBLE key an integer of
    the same order (Spark takes -0.0 and 0.0 as equal, Paimon does not).
    """

    plan: WritePlan
    reader_tasks: int
    writer_tasks: int

    @cached_property
    def rows(self) -> pa.Schema:
        """Columns as the writer gets them back."""
        columns = [*merge_schema(self.plan.context.schema), pa.field(PARTITION, pa.binary()), pa.field(BUCKET, pa.int32())]
        return pa.schema([field.with_nullable(True) for field in columns])

    @cached_property
    def float_keys(self) -> tuple[str, ...]:
        schema = self.plan.context.schema
        return tuple(n for n in schema.trimmed_primary_keys if pa.types.is_floating(self.rows.field(n).type))

    @cached_property
    def carrier(self) -> pa.Schema:
        return carrier_schema([*self.rows.types, pa.int32(), *(pa.int64() for _ in self.float_keys)])

    @property
    def task_position(self) -> int:
        return len(self.rows)

    def sort_columns(self) -> list[Column]:
        """Partition, bucket, key, arrival; the first two only where one task can get several of them."""
        schema = self.plan.context.schema
        positions = {name: i for i, name in enumerate(self.rows.names)}
        positions |= {name: self.task_position + 1 + i for i, name in enumerate(self.float_keys)}
        names = [PARTITION] if schema.partition_keys else []
        if schema.partition_keys or self.plan.total_buckets > self.writer_tasks:
            names.append(BUCKET)
        names += [*schema.trimmed_primary_keys, SEQUENCE_NUMBER]
        return [sf.col(carrier_name(positions[name])).asc_nulls_last() for name in names]

    def writer_of(self, partitions: pa.DictionaryArray, buckets: np.ndarray) -> np.ndarray:
        """The writer task of each row: the same for all rows of a bucket, neighbouring buckets in different tasks."""
        offsets = np.array([zlib.crc32(p) % self.writer_tasks for p in partitions.dictionary.to_pylist()], np.int64)
        if not self.plan.context.schema.partition_keys:
            offsets[:] = 0
        return ((offsets[partitions.indices.to_numpy()] + buckets) % self.writer_tasks).astype(np.int32)

    def packed(self, batch: pa.RecordBatch, router: BucketRouter) -> pa.RecordBatch:
        """A batch of incoming rows as Spark takes it."""
        partitions, buckets = router.route(batch)
        writers = pa.array(self.writer_of(partitions, buckets))
        orders = [comparable(batch.column(name)) for name in self.float_keys]
        columns = [*batch.columns, partitions.dictionary_decode(), pa.array(buckets, pa.int32()), writers, *orders]
        return to_carrier(columns, self.carrier)

    def end_marks(self) -> pa.RecordBatch:
        """One row for each writer task, all null, so that it is sorted behind all rows."""
        columns = [pa.nulls(self.writer_tasks, field.type) for field in self.carrier]
        columns[self.task_position] = pa.array(np.arange(self.writer_tasks, dtype=np.int32))
        return pa.RecordBatch.from_arrays(columns, schema=self.carrier)

    def unpacked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches for `write_sorted_rows`, without the end mark; an input that breaks off before its end mark is an error.

        Arrow's stream just ends when the JVM side of a task dies: without the mark the rows so far would look like all.
        """
        ended = False
        for batch in batches:
            if batch.num_rows == 0:
                continue
            rows = from_carrier(batch, self.rows)
            ended = not rows.column(SEQUENCE_NUMBER)[-1].is_valid
            rows = rows.slice(0, rows.num_rows - 1) if ended else rows
            if rows.num_rows:
                yield rows
        if not ended:
            raise EOFError("the shuffled rows broke off: the Spark task was cancelled or its JVM died")


def shuffle_of(plan: WritePlan, parallelism: int) -> Shuffle:
    """Several splits share a reader task when there are many; a writer task gets at least one bucket of a partition."""
    reader_tasks = max(1, min(len(plan.splits), 16 * parallelism))
    writers = plan.parallelism or 2 * parallelism
    if not plan.context.schema.partition_keys:
        writers = min(writers, plan.total_buckets)
    return Shuffle(plan, reader_tasks, max(1, writers))


def incoming_frame(session: SparkSession, shuffle: Shuffle, reports: Accumulator[list[str]]) -> DataFrame:
    """Routed rows of all splits; reader task i reads a range of the plan's splits."""
    numbers = session.range(0, max(1, len(shuffle.plan.splits)), 1, shuffle.reader_tasks)
    return numbers.mapInArrow(reader_task(shuffle, reports), spark_schema(shuffle.carrier))


def sorted_frame(incoming: DataFrame, shuffle: Shuffle) -> DataFrame:
    """Each bucket in one partition, sorted as `write_sorted_rows` wants it."""
    shuffled = incoming.repartitionById(shuffle.writer_tasks, carrier_name(shuffle.task_position))
    wanted = [carrier_name(i) for i in range(len(shuffle.rows))]
    return shuffled.sortWithinPartitions(*shuffle.sort_columns()).select(*wanted)


def write_on_spark(session: SparkSession, shuffle: Shuffle, reports: Accumulator[list[str]]) -> list[CommitMessage]:
    """Run the whole write as one Spark job of two stages."""
    rows = sorted_frame(incoming_frame(session, shuffle, reports), shuffle)
    messages = rows.mapInArrow(writer_task(shuffle, reports), "message binary").collect()
    return [pickle.loads(row.message) for row in messages]


Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def reader_task(shuffle: Shuffle, reports: Accumulator[list[str]]) -> Task:
    """Split numbers -> routed rows. The first split's task also sends every writer its end mark."""

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = shuffle.plan
        with carrying_errors():
            router = BucketRouter(plan.context.schema, plan.context.options)
            for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
                if number == 0:
                    yield shuffle.end_marks()
                for split in plan.splits[number : number + 1]:
                    for batch in plan.incoming.read(split):
                        yield shuffle.packed(batch, router)
                    reports.add([READ])

    return read


def writer_task(shuffle: Shuffle, reports: Accumulator[list[str]]) -> Task:
    """Sorted rows -> files; gives one pickled commit message per bucket."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying_errors():
            for message in write_sorted_rows(shuffle.plan, shuffle.unpacked(batches)):
                yield pa.record_batch([pa.array([pickle.dumps(message)], pa.binary())], names=["message"])
            reports.add([WRITTEN])

    return write


def check_messages(messages: list[CommitMessage]) -> list[CommitMessage]:
    """Each bucket must come from exactly one task; anything else would lose the order of its rows."""
    places = {(message.partition, message.bucket) for message in messages}
    if len(places) != len(messages):
        raise PaimonError("rows of one bucket were written by several tasks", "the shuffle did not keep them together")
    return messages
