"""`df.write.format("paimon")` and `writeStream`: tasks write files, and one commit in a process of the driver publishes them.

A Python data source cannot shuffle rows before it writes them. So each task adds level-0 files to all buckets that its rows
belong to, whereas `paimon_cli.spark.write` has one writer for each bucket, and creates fewer files. Where tasks must not add
files to the same bucket, because it has to be assigned or its rows have one order, they write temporary postponed files, and
the process that commits writes their rows to the buckets.

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
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from paimon_cli.api.table import Table
from paimon_cli.bucket.stamped_files import remove_temporary_directories, stamped_files
from paimon_cli.catalog.open_table import report_hosts
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.errors import NotSupported, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_text
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.due_compaction import compact_due, waiting_after
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.postponed_rows import write_postponed
from paimon_cli.jobs.process import usable_cores
from paimon_cli.jobs.spark.tasks import TASK_END_SECONDS, called_by_spark
from paimon_cli.jobs.table_change import NewFiles, again_on_conflict, check_writable_table, expiry_noticed, identity_of
from paimon_cli.jobs.write_job import ASSIGNED_MEANWHILE, MAX_ASSIGNMENTS, OUTDATED, commit_rows
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.maintain.mark_done import mark_written
from paimon_cli.maintain.used_names import UsedNames
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import CompactionMode
from paimon_cli.options.option_text import counted
from paimon_cli.spark.source_options import SourceOptions
from paimon_cli.spark.task_rows import FrameRows, check_columns, checked_rows
from paimon_cli.storage.capabilities import overlapping_writes
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.web_address import AllowedHosts
from paimon_cli.write.bucket_writer import consecutively_numbered
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import TargetBuckets, WritePlan

log = logging.getLogger(__name__)

ROWS_OF_TASK = 1 << 28
"""Sequence numbers reserved for each partition of a commit: few enough for one commit per second over years."""
QUERY = "sql.streaming.queryId"
"""Local property of the tasks of a micro-batch: the id of the query, which the checkpoint preserves across restarts."""
BATCH = "streaming.sql.batchId"
BATCH_DIGITS, _MAX_DIGITS = 12, 20
"""Hex digits of a file stamp that identify the batch, and all its digits: one names the process, 7 identify the attempt."""
OF_TASKS, OF_COMMIT = "0", "1"


@dataclass
class TaskMessage(WriterCommitMessage):
    """The result of a task: its pickled `Written`, the commit that it belongs to, and the numbers of rows that it left out:
    `skipped`, because they do not fit the table, and `others`, because other writers own their buckets.

    `stamp` is in the names of all files of this attempt, and of no others. In a stream it begins with `batch`, digits that all
    attempts of the batch share, so that a repeated batch finds the files of earlier attempts.
    """

    written: bytes
    skipped: int
    others: int
    stamp: str
    read_snapshot_id: int | None
    query: str = ""
    batch: str = ""


def batch_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """A writer for `df.write`. Raises the errors that `Table.write` raises before it reads rows."""
    plan, request, table = _planned(options, schema, overwrite)
    identity_of(plan.context, request.commit_user, request.commit_id, request.assume_new)
    return BatchWriter(plan, request, hosts=report_hosts(table.context))


def stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """A writer for `df.writeStream`. Spark creates one for each micro-batch."""
    plan, request, _ = _planned(options, schema, overwrite)
    if request.commit_id is not None:
        raise NotSupported("option commit_id for a stream", "each micro-batch has its own number", "leave it out")
    if plan.context.mode.bucket_mode.postpones:
        plan = replace(plan, buckets=TargetBuckets(POSTPONE_BUCKET))  # `postpone.batch-write-fixed-bucket` is for batch jobs
    return StreamWriter(plan, request)


def _planned(options: SourceOptions, schema: StructType, overwrite: bool) -> tuple[WritePlan, WriteRequest, Table]:
    arguments = options.write_arguments()
    table = options.table()
    table.check_commit()
    context = table.context
    check_writable_table(context)
    rows = FrameRows(options.timezone)
    request = WriteRequest(rows, overwrite=overwrite, allow_empty=True, compact=CompactionMode.NONE, **arguments)
    plan = plan_write(context, request, request.commit_user or context.random.uuid())
    check_columns(plan, schema)
    return plan, request, table


def distributes(plan: WritePlan) -> bool:
    """Whether the rows get their buckets only in the process that commits, as tasks must not add files to the same bucket."""
    mode = plan.context.mode
    any_task_may = mode.has_keys if mode.bucket_mode.follows_from_row else not mode.bucket_mode.has_buckets
    only_postpones = plan.postpones and plan.buckets.known is None
    return not (any_task_may or only_postpones)


@dataclass
class _Writing:
    """Common base of `BatchWriter` and `StreamWriter`. `engine`: runs in the process that commits, on the driver's machine.

    `hosts`: where the partitions that a batch has written may be reported.
    """

    plan: WritePlan
    request: WriteRequest
    engine: LocalEngine = field(default_factory=lambda: LocalEngine(usable_cores()))
    hosts: AllowedHosts = field(default_factory=AllowedHosts)

    def written(self, batches: Iterator[pa.RecordBatch], query: str = "", batch: str = "") -> TaskMessage:
        """Write the rows of one task to new files."""
        stamp = _stamp(batch, OF_TASKS, self.plan)
        plan = self.plan.postponing(stamp) if distributes(self.plan) else replace(self.plan, file_stamp=stamp)
        tally, task = Tally(), TaskContext.get()
        partition = 0 if task is None else task.partitionId()
        with TableWriter(plan.by_writer(partition)) as writer:
            for rows in in_order_of_partitions(checked_rows(plan, batches, partition, tally), partition):
                writer.write(rows)
            written = writer.finish()
        left_out = tally.bad_rows, tally.other_bucket_rows
        return TaskMessage(pickle.dumps(written), *left_out, stamp, plan.read_snapshot_id, query, batch)

    def commit_written(self, messages: Sequence[TaskMessage], identity: CommitIdentity) -> set[bytes]:
        """Commit the new files. Returns the partitions with new rows, as serialized `BinaryRow`."""
        context = self.plan.context
        written = Written.of_tasks(pickle.loads(message.written) for message in messages).messages
        first = messages[0] if messages else TaskMessage(b"", 0, 0, self.plan.file_stamp, self.plan.read_snapshot_id)
        plan = replace(self.plan, file_stamp=first.stamp, read_snapshot_id=first.read_snapshot_id)
        new_files = NewFiles(context, first.stamp)
        committer = Committer(context)
        committed: list[CommitMessage] = []
        if committer.is_committed(identity):
            if distributes(plan):
                new_files.delete_all_but(())  # temporary files, whose stamp no committed file has
            else:
                new_files.settle(written, CommitResult(outcome=CommitOutcome.DUPLICATE))
        else:
            if distributes(plan):
                committed = self._distributed(committer, first, written, identity)
            else:
                new_files.delete_all_but(written)
                committed = self._committed(committer, plan, written, identity)
            if skipped := sum(message.skipped for message in messages):
                log.warning("%s skipped, because values do not fit the table", counted(skipped, "row"))
            if others := sum(message.others for message in messages):
                log.warning("%s of other buckets left out", counted(others, "row"))
        if first.batch:
            delete_unused(context, first.batch, committed)
        self._show_rows(committed)
        return {message.partition for message in committed or written}

    def _show_rows(self, committed: Sequence[CommitMessage]) -> None:
        """Compact where reads or streams see the rows only then. Logs how many records still wait.

        `committed`: none if an earlier run has committed the rows; it may have died before the compaction.
        """
        context, buckets = self.plan.context, {message.bucket_id for message in committed} or None
        if context.mode.awaits_compaction:
            due = compact_due(context, buckets, self.engine, NoProgress())
            if due.lost is not None:
                log.warning("the rows are committed, but their compaction failed: %s", due.lost)
        if (waiting := waiting_after(context, buckets)) != 0:
            log.warning("%s", waiting_text(context.layout.argument, waiting))

    def _distributed(
        self, committer: Committer, first: TaskMessage, postponed: list[CommitMessage], identity: CommitIdentity
    ) -> list[CommitMessage]:
        """Write the rows of temporary files to their buckets and commit them; returns the committed messages.

        New keys get their buckets at the latest snapshot, again if another job has assigned some before the commit. `first`: a
        message of the tasks that wrote the temporary files.
        """
        context = self.plan.context
        request = replace(self.request, read_snapshot=first.read_snapshot_id or 0)

        def attempt() -> list[CommitMessage]:
            with expiry_noticed(context, None):
                planned = plan_write(context, request, splits=())
            plan = replace(planned, file_stamp=_stamp(first.batch, OF_COMMIT, planned))
            with expiry_noticed(context, plan.planned_at), NewFiles(context, plan.file_stamp).deleted_on_failure():
                written = write_postponed(plan, postponed, self.engine, NoProgress())
            return self._committed(committer, plan, written.messages, identity)

        try:
            with overlapping_writes(context.storage):
                committed, times = again_on_conflict(context, attempt, ASSIGNED_MEANWHILE, MAX_ASSIGNMENTS, OUTDATED)
            if times > 1:
                log.warning("the rows were written to their buckets %d times, because of commits by other jobs", times)
            return committed
        finally:
            NewFiles(context, first.stamp).delete_all_but(())

    def _committed(
        self, committer: Committer, plan: WritePlan, messages: list[CommitMessage], identity: CommitIdentity
    ) -> list[CommitMessage]:
        """Commit the messages; returns them, or none if an earlier run has made this commit."""
        done, committed = commit_rows(committer, plan, messages, self.request, identity)
        return [] if done.already_committed else committed

    def delete_written(self, messages: Sequence[WriterCommitMessage | None], *stamps: str) -> None:
        """After a failure: delete the files with these stamps, or with the stamp of a message, unless a version refers to them.

        A version may, because two attempts of a batch, one of them committed, can have the same stamp. Deletes nothing if all
        tasks have succeeded, because then a commit was attempted. A task that fails deletes its own files. Spark does not wait
        for the other tasks, which may go on writing until their Python processes are killed.
        """
        if messages and all(message is not None for message in messages):
            return
        for seconds in (0, TASK_END_SECONDS):
            self.plan.context.clock.sleep(seconds)
            for stamp in {*stamps, *(message.stamp for message in _given(messages))}:
                delete_unused(self.plan.context, stamp)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """One write of a DataFrame, as one commit."""

    @called_by_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.written(iterator)

    @called_by_spark()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        request, context = self.request, self.plan.context
        identity = identity_of(context, request.commit_user, request.commit_id, request.assume_new)
        mark_written(context, self.commit_written(_given(messages), identity), log.warning, self.hosts)

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
            user = self._user(given[0].query)
            self.commit_written(given, CommitIdentity(user, batchId, assume_new=self.request.assume_new))

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


def delete_unused(context: TableContext, stamp: str, committed: Sequence[CommitMessage] = ()) -> None:
    """Delete the files whose stamp begins with `stamp`, unless a snapshot, changelog or tag refers to them.

    No attempt with this stamp may still commit. Files of `committed` are kept.
    """
    with cleaning_up():
        left = stamped_files(context, stamp, {file.file_name for message in committed for file in message.created_files()})
        if left:
            used = UsedNames(context)
            used.refresh()  # after the files were listed: what is committed meanwhile counts as used
            unused = [path for path in left if path.rpartition("/")[2] not in used.names]
            delete_all(context.storage, unused)
            remove_temporary_directories(context, {path.rpartition("/")[0] for path in unused})


def _stamp(batch: str, made_by: str, plan: WritePlan) -> str:
    """The stamp of the files of one attempt: the digits of its batch, if it has one, and digits of its own.

    These are few, so that two attempts of some batch may have the same. Temporary files are deleted by their stamp, so files of
    the commit, which are not to be deleted with them, differ in the digit `made_by`.
    """
    return f"{batch}{made_by}{plan.file_stamp}"[:_MAX_DIGITS] if batch else plan.file_stamp


def _given(messages: Iterable[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [message for message in messages if isinstance(message, TaskMessage)]
