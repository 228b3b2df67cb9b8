"""Merges a DataFrame into a table: tasks write its rows to temporary files, and the tasks that change the table read them there.

The rows do not come to the driver. It gets the positions of pieces of these files, with the least and greatest values by which
files of the table are skipped. The temporary files are in the directory `index` of the table, where `orphans rm` finds those of a
driver that was killed.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame

from paimon_cli.api.arguments import checks_call, takes
from paimon_cli.api.merging import Merge
from paimon_cli.api.table import Table
from paimon_cli.bucket.stamped_files import new_stamp, stamped_index_files, stamped_uuid
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import UsageError, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.merge_source import (
    KnownValues,
    MergeSource,
    Placement,
    SourceRows,
    StagedPiece,
    StagedSource,
    known_values,
    source_fields,
    typed_rows,
)
from paimon_cli.jobs.spark.chunks import gathered
from paimon_cli.jobs.spark.submit import check_running, send_package
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.jobs.spark.write import Task
from paimon_cli.requests.fields import Names
from paimon_cli.requests.writing import ChangeCall
from paimon_cli.spark.spark_types import arrow_timezone
from paimon_cli.spark.table_call import TableCall
from paimon_cli.spark.task_rows import arrow_columns, partition_number
from paimon_cli.spark.writing import FrameEngine, compute_rows_of_batch
from paimon_cli.storage.capabilities import overlapping_writes
from paimon_cli.storage.deletions import delete_all

if TYPE_CHECKING:
    from paimon_cli.jobs.merge_job import MergeSummary
    from paimon_cli.requests.merging import MergeCall, MergeClause


class FrameMerge(TableCall, ChangeCall):
    """A merge of a DataFrame into a table, `on` columns that are equal in both."""

    on: Names = Names()
    _: KW_ONLY
    timezone: str | None = None


@checks_call
@takes(FrameMerge)
def merge(frame: DataFrame, name: str | os.PathLike[str] | Table, call: FrameMerge) -> Merge:
    """Begin a merge of a DataFrame into a table: `merge(news, "shop.orders", on="id").when_matched_update_all().execute()`.

    `name` may be an opened table; else `name`, `options`, `warehouse` and `branch` are those of `Table.open`. `on` and the others
    are those of `Table.merge`. `execute` computes the rows of the DataFrame once; they do not come to the driver. Spark's
    timestamps are instants: for a column without time zone they are converted to the time zone of the session.

    In `foreachBatch` of a stream pass `commit_user` (the query id) and `commit_id` (the batch id), so that a batch that Spark
    repeats is merged once.
    """
    given: object = frame
    if not isinstance(given, DataFrame):
        hint = "Table.merge takes Arrow, pandas and polars data"
        raise UsageError(f"{type(given).__name__} is not a Spark DataFrame", "this function merges only DataFrames", hint)
    session = frame.sparkSession
    check_running(session)
    if frame.isStreaming:
        raise UsageError(
            "the DataFrame is a stream", "a merge is one commit", "call this function for each batch in foreachBatch"
        )
    table = call.table_in(name, session=session)
    timezone = call.timezone or arrow_timezone(str(session.conf.get("spark.sql.session.timeZone")))
    begun = table.merge(FrameToMerge(frame), call.on, **vars(ChangeCall.of(call)), timezone=timezone)

    def run(call: MergeCall, clauses: tuple[MergeClause, ...]) -> MergeSummary:
        summary = table._merge(call, clauses)
        if summary.already_committed:
            compute_rows_of_batch(frame)
        return summary

    return begun.run_by(run)


@dataclass(frozen=True)
class FrameToMerge(SourceRows):
    """The rows of a DataFrame."""

    frame: DataFrame

    @property
    def columns(self) -> pa.Schema:
        return arrow_columns(self.frame.schema)

    @contextmanager
    def opened(self, context: TableContext, on: Sequence[str], timezone: str | None) -> Iterator[MergeSource]:
        fields = source_fields(self.columns, context.readable_schema, on)
        staging = Staging(context, new_stamp(context), fields, tuple(on), timezone)
        try:
            yield staging.run(self.frame)
        finally:
            with cleaning_up():
                delete_all(context.storage, stamped_index_files(context, staging.stamp))


@dataclass(frozen=True)
class Staged:
    """What one task has written, and values of its rows."""

    pieces: tuple[StagedPiece, ...]
    known: Mapping[str, KnownValues]


@dataclass(frozen=True)
class Staging:
    """Writes the rows of a DataFrame to temporary files with `stamp` in their names. Picklable."""

    context: TableContext
    stamp: str
    fields: tuple[DataField, ...]
    on: tuple[str, ...]
    timezone: str | None

    def run(self, frame: DataFrame) -> StagedSource:
        engine = FrameEngine(frame)
        send_package(engine.session)
        with engine.one_job():
            staged: list[Staged] = [
                pickle.loads(row.staged) for row in engine.frame.mapInArrow(self._task(), "staged binary").collect()
            ]
        pieces = tuple(piece for part in staged for piece in part.pieces)
        names = dict.fromkeys(name for part in staged for name in part.known)
        known = {name: KnownValues.joined([part.known[name] for part in staged if name in part.known]) for name in names}
        total = Placement.of(self.context, self.on).total_buckets
        return StagedSource(self.context, pieces, self.fields, self.on, known, total)

    def _task(self) -> Task:
        def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with called_by_spark():
                staged = pickle.dumps(self.staged(batches, partition_number()))
                yield pa.record_batch([pa.array([staged], pa.binary())], names=["staged"])

        return stage

    def staged(self, batches: Iterable[pa.RecordBatch], partition: int) -> Staged:
        """Write the rows of one partition. Each attempt of a task writes a file of its own."""
        placement, pieces, known = Placement.of(self.context, self.on), list[StagedPiece](), dict[str, list[KnownValues]]()
        path = f"{self.context.layout.index_directory}/index-{stamped_uuid(self.context, self.stamp)}-0"
        rows, source = 0, f"partition {partition} of the DataFrame"
        with overlapping_writes(self.context.storage), _arrow_file(self.context, path) as write:
            for batch in gathered(batches):
                typed = typed_rows(batch, self.fields, self.timezone, rows, source)
                rows += typed.num_rows
                for name, values in known_values(typed, self.fields, self.on).items():
                    known.setdefault(name, []).append(values)
                for of_partition, bucket, part in placement.pieces(typed):
                    write(part)
                    pieces.append(StagedPiece(path, len(pieces), part.num_rows, of_partition, bucket))
        return Staged(tuple(pieces), {name: KnownValues.joined(values) for name, values in known.items()})


@contextmanager
def _arrow_file(context: TableContext, path: str) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """A new file for record batches, which is created with the first one."""
    opened: list[tuple[BinaryIO, pa.RecordBatchFileWriter]] = []

    def write(rows: pa.RecordBatch) -> None:
        if not opened:
            sink = context.storage.open_output(path)
            opened.append((sink, pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))))
        opened[0][1].write_batch(rows)

    try:
        yield write
        for _, writer in opened:
            writer.close()
    finally:
        for sink, _ in opened:
            sink.close()
