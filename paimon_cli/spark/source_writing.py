"""`df.write.format("paimon")` and `writeStream`: tasks write files, and one commit in a process of the driver publishes them.

A Python data source cannot shuffle rows before it writes them. So each task adds level-0 files to all buckets that its rows
belong to, whereas `paimon_cli.spark.write` has one writer for each bucket, and creates fewer files.

A stream commits each micro-batch with the identity (query, number of the batch), so that a batch that Spark repeats takes effect
once. Spark calls:

- `write` in each task. It returns a message with the new files.
- `commit` when all tasks have succeeded. If it fails, it deletes the new files, unless a snapshot may refer to them.
- `abort` when a task or the commit has failed. If a task has failed, nothing was committed, and all new files are deleted.
- nothing if the driver dies. Spark repeats the batch; the commit of the repeated batch deletes the files of earlier attempts.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from paimon_cli.bucket.stamped_files import stamped_files
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import NotSupported, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.compact_job import show_level_0
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.jobs.table_change import NewFiles, check_writable_table, identity_of
from paimon_cli.jobs.write_job import commit_rows
from paimon_cli.jobs.write_request import NO_COMPACTION, WriteRequest, plan_write
from paimon_cli.maintain.mark_done import mark_written
from paimon_cli.maintain.orphans import UsedNames
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.table_mode import BucketMode
from paimon_cli.spark.source_options import SourceOptions
from paimon_cli.spark.task_rows import FrameRows, check_columns, checked_rows
from paimon_cli.storage.storage import delete_all
from paimon_cli.write.bucket_writer import consecutively_numbered
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import WritePlan

ANY_TASK_WRITES_ANY_BUCKET = (BucketMode.FIXED, BucketMode.UNAWARE)
"""Bucket modes in which uncoordinated tasks may add files to the same bucket."""
log = logging.getLogger(__name__)

ROWS_OF_TASK = 1 << 28
"""Sequence numbers reserved for each partition of a commit: few enough for one commit per second over years."""
TASK_END_SECONDS = 3
"""More than the time that the Python process of a cancelled task may still run (`spark.python.task.killTimeout`, default 2 s)."""
QUERY = "sql.streaming.queryId"
"""Local property of the tasks of a micro-batch: the id of the query, which the checkpoint preserves across restarts."""
BATCH = "streaming.sql.batchId"
BATCH_DIGITS, MAX_DIGITS = 14, 20
"""Hex digits of a file stamp that identify the batch, and all its digits: the other 6 identify the attempt."""


@dataclass
class TaskMessage(WriterCommitMessage):
    """The result of a task: its pickled `Written`, the number of skipped rows, and the commit that it belongs to.

    `stamp` is in the names of all files of this attempt, and of no others. In a stream it begins with `batch`, digits that all
    attempts of the batch share, so that a repeated batch finds the files of earlier attempts.
    """

    written: bytes
    skipped: int
    stamp: str
    read_snapshot_id: int | None
    query: str = ""
    batch: str = ""


def batch_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """A writer for `df.write`. Raises the errors that `Table.write` raises before it reads rows."""
    return BatchWriter(*_planned(options, schema, overwrite))


def stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """A writer for `df.writeStream`. Spark creates one for each micro-batch."""
    plan, request = _planned(options, schema, overwrite)
    if request.commit_id is not None:
        raise NotSupported("option commit_id for a stream", "each micro-batch has its own number", "leave it out")
    return StreamWriter(plan, request)


def _planned(options: SourceOptions, schema: StructType, overwrite: bool) -> tuple[WritePlan, WriteRequest]:
    arguments = options.write_arguments()
    table = options.table()
    table.check_commit()
    context = table.context
    check_writable_table(context)
    mode = context.mode
    if mode.bucket_mode not in ANY_TASK_WRITES_ANY_BUCKET or (not mode.has_keys and mode.bucket_mode is BucketMode.FIXED):
        buckets = mode.bucket_mode.value if mode.has_keys else "buckets but without a primary key"
        raise NotSupported(
            f"the data source does not write tables with {buckets}",
            "one task must write all rows of a bucket, and a data source cannot tell Spark how to distribute them",
            "use paimon_cli.spark.write(df, name)",
        )
    rows = FrameRows(options.timezone)
    request = WriteRequest(rows, overwrite=overwrite, allow_empty=True, compaction=NO_COMPACTION, **arguments)
    plan = plan_write(context, request)
    check_columns(plan, schema)
    return plan, request


@dataclass
class _Writing:
    """Common base of `BatchWriter` and `StreamWriter`."""

    plan: WritePlan
    request: WriteRequest

    def written(self, batches: Iterator[pa.RecordBatch], query: str = "", batch: str = "") -> TaskMessage:
        """Write the rows of one task to new files."""
        plan = replace(self.plan, file_stamp=batch + self.plan.file_stamp[: MAX_DIGITS - len(batch)])
        tally, task = Tally(), TaskContext.get()
        partition = 0 if task is None else task.partitionId()
        with TableWriter(plan) as writer:
            for rows in in_order_of_partitions(checked_rows(plan, batches, partition, tally), partition):
                writer.write(rows)
            written = writer.finish()
        return TaskMessage(pickle.dumps(written), tally.bad_rows, plan.file_stamp, plan.read_snapshot_id, query, batch)

    def _commit(self, messages: Sequence[TaskMessage], identity: CommitIdentity) -> set[bytes]:
        """Commit the new files. Returns the partitions with new rows, as serialized `BinaryRow`."""
        context = self.plan.context
        written = Written.of_tasks(pickle.loads(message.written) for message in messages)
        read = messages[0].read_snapshot_id if messages else self.plan.read_snapshot_id
        stamp = messages[0].stamp if messages else self.plan.file_stamp
        plan = replace(self.plan, file_stamp=stamp, read_snapshot_id=read)
        committer = Committer(context)
        committed: list[CommitMessage] = []
        if committer.is_committed(identity):
            NewFiles(context, stamp).delete_created(written.messages)
        else:
            NewFiles(context, stamp).delete_all_but(written.messages)
            done, _ = commit_rows(committer, plan, written.messages, self.request, identity)
            committed += [] if done.already_committed else written.messages
            if skipped := sum(message.skipped for message in messages):
                log.warning("%s rows that do not fit the table were skipped", f"{skipped:,}")
        if messages and messages[0].batch:
            delete_unused(context, messages[0].batch, committed)
        if (hidden := show_level_0(context, (), LocalEngine(), NoProgress())) is not None:
            log.warning("the rows are committed, but not visible before a compaction: %s", hidden)
        return {message.partition for message in written.messages}

    def delete_written(self, messages: Sequence[WriterCommitMessage | None], *stamps: str) -> None:
        """After a failure: delete the files with these stamps, or with the stamp of a message.

        Deletes nothing if all tasks have succeeded, because then a commit was attempted. A task that fails deletes its own files.
        Spark does not wait for the other tasks, which may go on writing until their Python processes are killed.
        """
        if messages and all(message is not None for message in messages):
            return
        for seconds in (0, TASK_END_SECONDS):
            self.plan.context.clock.sleep(seconds)
            for stamp in {*stamps, *(message.stamp for message in _given(messages))}:
                NewFiles(self.plan.context, stamp).delete_all_but(())


class BatchWriter(_Writing, DataSourceArrowWriter):
    """One write of a DataFrame, as one commit."""

    @called_by_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.written(iterator)

    @called_by_spark()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        request, context = self.request, self.plan.context
        identity = identity_of(context, request.commit_user, request.commit_id, request.assume_new)
        mark_written(context, self._commit(_given(messages), identity), log.warning)

    @called_by_spark()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.delete_written(messages, self.plan.file_stamp)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The micro-batches of a stream. The commit user consists of the option `commit_user`, if set, and the id of the query."""

    @called_by_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None, "Spark runs tasks with a context"
        query, number = str(task.getLocalProperty(QUERY)), task.getLocalProperty(BATCH)
        shared = f"{self._user(query)} {number}".encode()
        return self.written(iterator, query, hashlib.sha256(shared).hexdigest()[:BATCH_DIGITS])

    @called_by_spark()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        given = _given(messages)
        if given:
            self._commit(given, CommitIdentity(self._user(given[0].query), batchId, assume_new=self.request.assume_new))

    @called_by_spark()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.delete_written(messages)

    def _user(self, query: str) -> str:
        """With the query id: with a new checkpoint, a query numbers its batches from 0 again, which are not repetitions."""
        return query if self.request.commit_user is None else f"{self.request.commit_user}-{query}"


def in_order_of_partitions(batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """The rows with sequence numbers that order them by partition. Raises `NotSupported` for more than `ROWS_OF_TASK` rows.

    Uncoordinated tasks add rows to the same buckets. If two of them used the same numbers, the order of the versions of a key
    would be undefined, and a compaction could change the winner.
    """
    count = 0
    for rows in batches:
        yield consecutively_numbered(rows, partition * ROWS_OF_TASK + count)
        count += rows.num_rows
        if count > ROWS_OF_TASK:
            raise NotSupported(
                f"partition {partition} of the DataFrame has more than {ROWS_OF_TASK:,} rows",
                "the data source has no more sequence numbers for one task",
                "repartition the DataFrame, or use paimon_cli.spark.write(df, name)",
            )


def delete_unused(context: TableContext, batch: str, committed: Sequence[CommitMessage]) -> None:
    """Delete the files of earlier attempts of a batch, unless a snapshot, changelog or tag refers to them.

    Called after the batch was committed, so that no other attempt can still commit. Files of `committed` are kept.
    """
    with cleaning_up():
        left = stamped_files(context, batch, {file.file_name for message in committed for file in message.created_files()})
        if left:
            used = UsedNames(context)
            used.refresh()  # after the files were listed: what is committed meanwhile counts as used
            delete_all(context.storage, [path for path in left if path.rpartition("/")[2] not in used.names])


def _given(messages: Iterable[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [message for message in messages if isinstance(message, TaskMessage)]
