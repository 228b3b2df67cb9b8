"""Writes a DataFrame to a table, in one commit.

1. Spark tasks check their rows against the table and route each to the writer of its bucket.
2. Writers, one for each bucket, sort their rows and write level-0 files. If any task may write to any bucket, there are no
   writers: the tasks that check the rows also write them.
3. The driver commits as `Table.write` does.

The rows are computed once, in one Spark job, without caching.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from paimon_cli.api.arguments import checks_call, takes
from paimon_cli.api.table import Table
from paimon_cli.errors import BadInput, NotSupported, PaimonError, UsageError
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Progress, phase
from paimon_cli.jobs.spark.chunks import CHUNKS_SQL, end_marks, gathered, note_chunk, numbered_from_0
from paimon_cli.jobs.spark.session_engine import SessionEngine
from paimon_cli.jobs.spark.submit import check_running, classic_context, send_package
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.jobs.spark.write import Shuffle, Task, shuffle_of, write_on_spark
from paimon_cli.options.choices import OnError
from paimon_cli.requests.writing import WriteCall
from paimon_cli.spark.source_writing import QUERY
from paimon_cli.spark.spark_types import arrow_timezone
from paimon_cli.spark.table_call import TableCall
from paimon_cli.spark.task_rows import FrameRows, check_columns, checked_rows, is_of_frame, partition_number
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import Tallies, WritePlan

if TYPE_CHECKING:
    from paimon_cli.jobs.write_job import WriteSummary


AsRows = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class FrameWrite(TableCall, WriteCall):
    """A write of a DataFrame into a table."""

    _: KW_ONLY
    on_written: Callable[[WriteSummary], None] | None = None


@checks_call
@takes(FrameWrite)
def write(frame: DataFrame, name: str | os.PathLike[str] | Table, call: FrameWrite) -> WriteSummary:
    """Write the rows of a DataFrame in one commit.

    `name`, `options`, `warehouse` and `branch` are those of `Table.open`; `name` may be an opened table, too. The others,
    with `on_written`, are those of `Table.write`. Columns are matched by name. Spark's timestamps are instants: for a column
    without time zone they are converted to the time zone of the session. `on_error` is `fail` or `skip`: the rows cannot be
    read again to list the bad cells in a file.

    In `foreachBatch` of a stream pass `commit_user` (the query id) and `commit_id` (the batch id), so that a batch that Spark
    repeats is written once. Its rows are computed nevertheless: otherwise Spark would lose the state of the query.

    Raises `BadInput` for rows that do not fit the table or cannot be computed, and the other errors of `Table.write`.
    """
    given: object = frame
    if not isinstance(given, DataFrame):
        hint = "Table.write takes Arrow, pandas and polars data"
        raise UsageError(f"{type(given).__name__} is not a Spark DataFrame", "this function writes only DataFrames", hint)
    check_running(frame.sparkSession)
    if frame.isStreaming:
        hint = 'rows.writeStream.format("paimon"), or call this function for each batch in foreachBatch'
        raise UsageError("the DataFrame is a stream", "only a query can write it", hint)
    if call.on_error not in (OnError.FAIL, OnError.SKIP):
        why = "its rows cannot be read again, as files are, to list the bad cells"
        hint = "on_error='skip' leaves rows with bad cells out; the result counts them"
        raise NotSupported(f"on_error={call.on_error!r} for a DataFrame", why, hint)
    table = call.table_in(name, engine=FrameEngine(frame))
    timezone = arrow_timezone(str(frame.sparkSession.conf.get("spark.sql.session.timeZone")))
    summary = table.write(FrameRows(timezone), **vars(WriteCall.of(call)), on_written=call.on_written)
    if summary.already_committed:
        compute_rows_of_batch(frame)
    return summary


def compute_rows_of_batch(frame: DataFrame) -> None:
    """Compute the rows of a DataFrame that were committed before, if it may be a micro-batch in `foreachBatch`.

    Only that stores the state of an aggregation or a join, and without it the query fails for good. A session of Spark Connect
    does not know in which query it is.
    """
    context = classic_context(frame.sparkSession)
    if context is None or context.getLocalProperty(QUERY) is not None:
        frame.write.format("noop").mode("overwrite").save()


class FrameEngine(SessionEngine):
    """Runs the write in the Spark session of the DataFrame."""

    def __init__(self, frame: DataFrame) -> None:
        super().__init__(frame.sparkSession)
        self._names = frame.columns
        self._columns = frame.schema
        self.frame = frame.toDF(*(f"c{i}" for i in range(len(self._names))))  # mapInArrow fails for names with a dot

    def check(self, plan: WritePlan) -> None:
        """Raise `BadInput`, before any task runs, for columns that the table cannot take."""
        check_columns(plan, self._columns)

    @property
    def as_rows(self) -> AsRows:
        """What makes rows of what a task receives."""
        return partial(_renamed, names=self._names)

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        if not is_of_frame(plan):
            return super().write_rows(plan, tallies, progress)
        self.check(plan)
        send_package(self.session)
        if not plan.shuffles:
            return self._write_where_read(plan, tallies, progress)
        shuffle = replace(shuffle_of(plan, self.parallelism()), numbers_rows=True)
        with self.exchange() as directory, phase(progress, "Writing rows", None), self.one_job():
            shuffle = replace(shuffle, directory=directory)
            chunks = self.frame.mapInArrow(routing_task(shuffle, self.as_rows), CHUNKS_SQL).unionAll(self._end_marks(shuffle))
            written, found = write_on_spark(chunks, shuffle)
        tallies.update(found)
        return written

    @contextmanager
    def one_job(self) -> Iterator[None]:
        """As in `SessionEngine`; an error that this package did not raise probably comes from the caller's DataFrame."""
        try:
            with super().one_job():
                yield
        except PaimonError as error:
            if type(error) is not PaimonError:
                raise
            hint = "an expression or function of the DataFrame has probably failed: see Spark's exception, its cause"
            raise BadInput(error.what, error.why, hint) from error.__cause__

    def _end_marks(self, shuffle: Shuffle) -> DataFrame:
        """End marks from an additional partition, because a DataFrame may have no partitions."""

        def marks(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in numbers:
                yield end_marks(shuffle.receiver_tasks)

        return self.session.range(0, 1, 1, 1).mapInArrow(marks, CHUNKS_SQL)

    def _write_where_read(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        written = self.frame.mapInArrow(writing_task(plan, self.as_rows), "written binary")
        with phase(progress, "Writing rows", None), self.one_job():
            results = [pickle.loads(row.written) for row in written.collect()]
        tallies.update((number, tally) for number, (_, tally) in enumerate(results))
        return Written.of_tasks(written for written, _ in results)


def routing_task(shuffle: Shuffle, as_rows: AsRows) -> Task:
    """A task from the rows of a partition to chunks for the first receivers."""

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with called_by_spark(), shuffle.sending() as chunks_of:
            tally, number, router = Tally(), partition_number(), shuffle.first_router()
            for rows in checked_rows(shuffle.plan, as_rows(gathered(batches)), number, tally):
                yield chunks_of(shuffle.first_pieces(rows, router))
            yield note_chunk((number, tally))

    return route


def writing_task(plan: WritePlan, as_rows: AsRows) -> Task:
    """A task that writes the rows of a partition to files."""

    def write_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with called_by_spark():
            tally, number = Tally(), partition_number()
            with TableWriter(plan.by_writer(number)) as writer:
                for rows in numbered_from_0(checked_rows(plan, as_rows(batches), number, tally)):
                    writer.write(rows)
                written = pickle.dumps((writer.finish(), tally))
                yield pa.record_batch([pa.array([written], pa.binary())], names=["written"])

    return write_partition


def _renamed(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return (batch.rename_columns(names) for batch in batches)
