"""The plan of a write: one picklable value that all of its tasks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.hash_index import HashIndexes
from paimon_cli.bucket.key_locations import KeyLocations
from paimon_cli.bucket.postponed_files import postponed_options
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.metadata.data_file import SOURCE_APPEND, BucketId, CommitMessage
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import counted
from paimon_cli.write.bucket_assigner import Share
from paimon_cli.write.key_placement import KeyPlacement
from paimon_cli.write.routers import (
    AssignedRouter,
    AssignerRouter,
    DynamicRouter,
    FixedRouter,
    KeyShareRouter,
    PartitionCountRouter,
    PostponingRouter,
    Router,
    TogetherRouter,
    UnawareRouter,
)

CompactBucket = Callable[[TableContext, BucketFiles, Callable[[], bool]], CommitMessage | None]
"""Compacts a bucket if a trigger fires, else returns None. The write phase gets this function, because it does not import the
compaction phase.

The last argument says whether the compaction is still wanted; if not, it raises `CancelledError`. Raises `FilesConflict` if
another job has replaced the files, in which case the rows of the bucket can still be committed.
"""

Tallies = dict[int, Tally]
"""Number of a split in the plan -> its tally."""


class SplitRows(Protocol):
    """The rows of a plan's splits: validated rows of a source, or the table's own. Picklable."""

    def read(self, split: Any, tally: Tally, /) -> Iterator[pa.RecordBatch]:
        """The rows of one split in `merge_schema`; `_SEQUENCE_NUMBER` is their position in the order of arrival.

        `tally` counts the rows and faults of the split. It is complete after the last row.
        """
        ...


@dataclass(frozen=True)
class TargetBuckets:
    """How many buckets the partitions have to which rows are written.

    `option`: the table's option `bucket`; `others`: counts of partitions that were written with another value of it. `assigned`:
    in tables with postponed buckets, the count of each partition; None if rows are postponed. `known`: the present counts, if
    those of new partitions depend on their number of rows, so that this write postpones its rows first and counts them.
    """

    option: int
    others: Mapping[bytes, int] = field(default_factory=dict)
    assigned: Mapping[bytes, int] | None = None
    known: Mapping[bytes, int] | None = None

    def of(self, partition: bytes) -> int:
        return self.option if self.assigned is None else self.assigned[partition]


@dataclass(frozen=True)
class BucketAssignment(ABC):
    """How keys get their buckets where these depend on other rows of the table.

    `assigners`: how many tasks share the keys; `assigner`: the one whose rows these are, None for all. `is_done`: another task
    has assigned the rows, and they have a column with the bucket.
    """

    assigners: int = 1
    assigner: int | None = None
    is_done: bool = False

    @abstractmethod
    def placed(self, context: TableContext, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The rows in the form in which `router` takes them."""

    @abstractmethod
    def router(self, context: TableContext, file_stamp: str) -> Router:
        """The router of rows that are not assigned yet."""

    @abstractmethod
    def assigner_router(self, schema: TableSchema) -> Router:
        """The router to assigners that are tasks of their own."""


@dataclass(frozen=True)
class IndexAssignment(BucketAssignment):
    """Dynamic buckets: the hash index of a partition knows the bucket of each key; new keys get a bucket that has room."""

    indexes: HashIndexes = field(kw_only=True)

    def placed(self, context: TableContext, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return batches

    def router(self, context: TableContext, file_stamp: str) -> Router:
        return DynamicRouter(context, self.indexes, self.assigners, self.assigner, file_stamp)

    def assigner_router(self, schema: TableSchema) -> Router:
        return AssignerRouter(schema, self.assigners)


@dataclass(frozen=True)
class LookupAssignment(BucketAssignment):
    """Keys that may live in any partition are looked up in `buckets`, the buckets of snapshot `read_at` (0: the empty table)."""

    buckets: Mapping[BucketId, BucketFiles] = field(kw_only=True)
    read_at: int = field(kw_only=True)

    def placed(self, context: TableContext, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        share = Share() if self.assigner is None else Share(self.assigner, self.assigners)
        return KeyPlacement(context, KeyLocations(context, self.buckets), share).placed(batches)

    def router(self, context: TableContext, file_stamp: str) -> Router:
        return AssignedRouter(context.schema)

    def assigner_router(self, schema: TableSchema) -> Router:
        return KeyShareRouter(schema, self.assigners)


@dataclass(frozen=True)
class CompactionWhileWriting:
    """How writers compact the buckets to which they write.

    `existing`: the buckets at the read snapshot. `beside`: compact after each flush, in separate threads, instead of when a
    bucket has too many runs and at the end.
    """

    compact_bucket: CompactBucket
    existing: Mapping[BucketId, BucketFiles] = field(default_factory=dict)
    beside: bool = False


@dataclass(frozen=True)
class PostponingWriter:
    """Identifies a writer in the names of postponed files. `is_temporary`: the files are never committed."""

    commit_user: str = ""
    number: int = 0
    is_temporary: bool = False


@dataclass(frozen=True)
class WritePlan:
    """What to read, where rows go, and how their files are named.

    `first_sequences`: for each bucket with files, the highest committed sequence number + 1 (others: 0). A row gets that number
    plus its position in the order of arrival, so numbers increase, with gaps, whichever task writes the bucket.

    `assignment`: None if the bucket of a row depends only on the row. `read_snapshot_id`: commits after it may be refused as
    conflicts. `file_stamp`: 16 hex digits in the names of all data files of this job. `compaction`: None if writers do not
    compact. `replaces_rows`: the rows replace older ones (overwrite); no changelog file shows that, as in Java. `planned_at`: the
    snapshot whose indexes and deletion vectors the writers read, which may be newer than the one of `read_snapshot_id`.
    """

    context: TableContext
    incoming: SplitRows
    splits: tuple[Any, ...]
    buckets: TargetBuckets
    assignment: BucketAssignment | None = None
    first_sequences: dict[BucketId, int] = field(default_factory=dict)
    read_snapshot_id: int | None = None
    file_stamp: str = ""
    postponing_writer: PostponingWriter = PostponingWriter()
    compaction: CompactionWhileWriting | None = None
    replaces_rows: bool = False
    parallelism: int | None = None
    planned_at: int | None = None

    @property
    def postpones(self) -> bool:
        """Whether rows go into `bucket-postpone`, in the order of arrival."""
        return self.buckets.option == POSTPONE_BUCKET and self.buckets.assigned is None

    @property
    def records_input(self) -> bool:
        """Whether rows also go into changelog files, unmerged (`changelog-producer=input`)."""
        return self.context.mode.changelog_producer.records_input and not (self.replaces_rows or self.postpones)

    @property
    def route(self) -> str:
        """The way in which rows get their buckets, for the trace."""
        mode = self.context.mode
        kind = "append" if not mode.has_keys else "key-value"
        return f"{kind}-{mode.bucket_mode.name if self.buckets.assigned is None else 'fixed'}"

    @property
    def shuffles(self) -> bool:
        """Whether all rows of a bucket must go to the same task. Where any task may add files to it, this is the case only
        with `partition.sink-strategy=hash`, which limits the tasks per partition.
        """
        any_task_may = not self.context.mode.bucket_mode.has_buckets or self.postpones
        return not any_task_may or self.context.options.partition_sink_strategy == "hash"

    @property
    def sort_keys(self) -> tuple[str, ...]:
        """The columns by which rows of an append table are sorted; none if they stay in the order of arrival."""
        return ()

    @property
    def buffer_size(self) -> int:
        """The memory of a task for rows that it has not written yet, in bytes."""
        return self.context.options.write_buffer_size

    @property
    def looks_up_keys(self) -> bool:
        """Whether keys may live in any partition, so that they are looked up."""
        return isinstance(self.assignment, LookupAssignment)

    @property
    def keys_read_at(self) -> int | None:
        """The snapshot in which keys were looked up; None if none were."""
        return self.assignment.read_at if isinstance(self.assignment, LookupAssignment) else None

    def placed(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The rows to write, with their buckets if keys may live in any partition; otherwise the rows as they are."""
        if self.assignment is None or self.assignment.is_done:
            return batches
        return self.assignment.placed(self.context, batches)

    def router(self) -> Router:
        if self.assignment is not None:
            done = self.assignment.is_done
            return AssignedRouter(self.context.schema) if done else self.assignment.router(self.context, self.file_stamp)
        if self.postpones:
            moves_keys = self.context.mode.bucket_mode.moves_keys
            return (TogetherRouter if moves_keys else PostponingRouter)(self.context.schema)
        if not self.context.mode.bucket_mode.has_buckets:
            return UnawareRouter(self.context.schema)
        if self.buckets.assigned is not None:
            return PartitionCountRouter(self.context.schema, self.context.options, self.buckets.assigned)
        return FixedRouter(self.context.schema, self.context.options)

    def with_assigners(self, parallelism: int) -> WritePlan:
        """The plan with as many assigners as options say, or as can run in parallel (like Java's writers on Flink and Spark)."""
        if self.assignment is None:
            return self
        options = self.context.options
        max_assigners = options.dynamic_bucket_assigner_parallelism
        count = options.dynamic_bucket_initial_buckets or max_assigners or parallelism
        max_buckets = options.dynamic_bucket_max_buckets
        return self.with_assignment(assigners=min(count, max_assigners or count, count if max_buckets == -1 else max_buckets))

    def with_assignment(self, **changes: Any) -> WritePlan:
        """The plan with changes to its assignment, if it has one."""
        return self if self.assignment is None else replace(self, assignment=replace(self.assignment, **changes))

    def postponing(self, file_stamp: str) -> WritePlan:
        """The plan of tasks that put the rows into temporary postponed files, whatever buckets the table has."""
        return replace(
            self,
            buckets=TargetBuckets(POSTPONE_BUCKET),
            assignment=None,
            compaction=None,
            file_stamp=file_stamp,
            postponing_writer=replace(self.postponing_writer, is_temporary=True),
        )

    def by_writer(self, number: int) -> WritePlan:
        """The plan of one of several writers that may add files to the same buckets."""
        return replace(self, postponing_writer=replace(self.postponing_writer, number=number))

    def hash_index_state(self, partition: bytes) -> str | None:
        """The state of the hash index of a partition, for the commit to compare; None if there is none, or it is replaced."""
        if self.replaces_rows or not isinstance(self.assignment, IndexAssignment):
            return None
        return self.assignment.indexes.state(partition)

    def check_bucket_count(self, partition: bytes) -> None:
        """Raise `UsageError` if the partition has another bucket count than the table's option, so that keys would move."""
        count, option = self.buckets.others.get(partition), self.buckets.option
        if count is not None:
            path = self.context.partition_path_of(partition).rstrip("/") or "the table"
            raise UsageError(
                f"{path} was written with {counted(count, 'bucket') if count > 0 else 'dynamic buckets'}, "
                f"but the table's option says {option}",
                "rows of one key must stay in one bucket",
                "try again if a rescale is running, which changes the option last; if one was interrupted, maintain finishes it"
                f"{f', or repeat it with --buckets {count}' if count > 0 else ''}; otherwise run: "
                f"paimon-cli rescale {self.context.layout.argument} --buckets {option if option > 0 else count} --yes",
            )

    def first_sequence(self, bucket_id: BucketId) -> int:
        return self.first_sequences.get(bucket_id, 0)

    def start_of(self, bucket_id: BucketId) -> tuple[BucketFiles, int, DataFileNames]:
        """What a writer of the bucket needs: its existing files, the sequence number of its first row, and names for new files.

        Raises the errors of `check_bucket_count`.
        """
        self.check_bucket_count(bucket_id.partition)
        files = None if self.compaction is None else self.compaction.existing.get(bucket_id)
        if files is None:
            files = BucketFiles(*bucket_id, self.buckets.of(bucket_id.partition), ())
        return files, self.first_sequence(bucket_id), DataFileNames(self._level_0_context, self.file_stamp)

    @cached_property
    def _level_0_context(self) -> TableContext:
        """The table with the options for files of level 0."""
        if not self.postpones:
            return self.context
        writer = self.postponing_writer
        options = postponed_options(self.context, writer.commit_user, writer.number, writer.is_temporary)
        return self.context.redefined(options=options)

    def level_0_writer(self, bucket_id: BucketId, names: DataFileNames) -> DataFileWriter:
        return DataFileWriter(self._level_0_context, bucket_id, level=0, source=SOURCE_APPEND, names=names)
