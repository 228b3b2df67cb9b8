"""The plan of a write: one picklable value that all of its tasks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.hash_index import HashIndexes
from paimon_cli.bucket.key_homes import KeyHomes
from paimon_cli.bucket.postponed_files import postponed_options
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.metadata.data_file import SOURCE_APPEND, BucketId, CommitMessage
from paimon_cli.metadata.table_mode import INPUT, BucketMode
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
class WritePlan:
    """What to read, where rows go, and how their files are named.

    Sequence numbers. `first_sequences`: for each bucket with files, the highest committed number + 1 (others: 0). A row gets that
    number plus its position in the order of arrival, so numbers increase, with gaps, whichever task writes the bucket.

    Files. `file_stamp`: 16 hex digits in the names of all data files of this job. `commit_user`, `writer_id`: identify a writer
    in the names of postponed files. `replaces_rows`: the rows replace older ones (overwrite); no changelog file shows that, as in
    Java.

    Compaction. `compact_bucket`: compacts buckets; None if this write does not compact, and does not need `existing`, the buckets
    at the read snapshot. `compacts_beside`: compact after each flush, in separate threads, instead of when a bucket has too many
    runs and at the end.

    Buckets. `total_buckets`: the table's option; `other_bucket_counts`: bucket counts of partitions that were written with
    another one. `bucket_counts`: in tables with postponed buckets, the bucket count of each partition; None if rows are
    postponed. `counts_on`: the known bucket counts, where those of other partitions depend on their number of rows, so that this
    write postpones its rows first and counts them. `hash_indexes`: the hash indexes of a table with dynamic buckets.
    `assigners`: how many assigners open buckets; `assigner`: the one whose rows these are, None for all. `rows_are_assigned`:
    rows have a column with the bucket that another task has assigned. `lookup_buckets`: where keys are looked up if they may live
    in any partition, at snapshot `keys_read_at` (0: the empty table).
    """

    context: TableContext
    incoming: SplitRows
    splits: tuple[Any, ...]
    total_buckets: int
    first_sequences: dict[BucketId, int] = field(default_factory=dict)
    read_snapshot_id: int | None = None
    file_stamp: str = ""
    parallelism: int | None = None
    compact_bucket: CompactBucket | None = None
    compacts_beside: bool = False
    existing: Mapping[BucketId, BucketFiles] = field(default_factory=dict)
    other_bucket_counts: Mapping[bytes, int] = field(default_factory=dict)
    replaces_rows: bool = False
    commit_user: str = ""
    writer_id: int = 0
    bucket_counts: Mapping[bytes, int] | None = None
    counts_on: Mapping[bytes, int] | None = None
    hash_indexes: HashIndexes | None = None
    assigners: int = 1
    assigner: int | None = None
    rows_are_assigned: bool = False
    lookup_buckets: Mapping[BucketId, BucketFiles] | None = None
    keys_read_at: int | None = None

    @property
    def postpones(self) -> bool:
        """Whether rows go into `bucket-postpone`, in the order of arrival."""
        return self.context.mode.bucket_mode is BucketMode.POSTPONED and self.bucket_counts is None

    @property
    def records_input(self) -> bool:
        """Whether rows also go into changelog files, unmerged (`changelog-producer=input`)."""
        return self.context.mode.changelog_producer == INPUT and not (self.replaces_rows or self.postpones)

    @property
    def route(self) -> str:
        """The way in which rows get their buckets, for the trace."""
        mode = self.context.mode
        kind = "append" if not mode.has_keys else "key-value"
        return f"{kind}-{mode.bucket_mode.name.lower() if self.bucket_counts is None else 'fixed'}"

    @property
    def shuffles(self) -> bool:
        """Whether all rows of a bucket must go to the same task. Where any task may add files to it, this is the case only
        with `partition.sink-strategy=hash`, which limits the tasks per partition.
        """
        any_task_may = self.context.mode.bucket_mode is BucketMode.UNAWARE or self.postpones
        return not any_task_may or self.context.options.partition_sink_strategy == "hash"

    @property
    def sort_keys(self) -> tuple[str, ...]:
        """The columns by which rows of an append table are sorted; none if they stay in the order of arrival."""
        return ()

    @property
    def assigns(self) -> bool:
        """Whether the bucket of a row depends on other rows of the table."""
        return self.hash_indexes is not None or self.lookup_buckets is not None

    def placed(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The rows to write, with their buckets if keys may live in any partition; otherwise the rows as they are."""
        if self.lookup_buckets is None or self.rows_are_assigned:
            return batches
        share = Share() if self.assigner is None else Share(self.assigner, self.assigners)
        return KeyPlacement(self.context, KeyHomes(self.context, self.lookup_buckets), share).placed(batches)

    def router(self) -> Router:
        if self.rows_are_assigned or self.lookup_buckets is not None:
            return AssignedRouter(self.context.schema)
        if self.hash_indexes is not None:
            return DynamicRouter(self.context, self.hash_indexes, self.assigners, self.assigner, self.file_stamp)
        if self.context.mode.bucket_mode is BucketMode.UNAWARE:
            return UnawareRouter(self.context.schema)
        if self.postpones:
            return PostponingRouter(self.context.schema)
        if self.bucket_counts is not None:
            return PartitionCountRouter(self.context.schema, self.context.options, self.bucket_counts)
        return FixedRouter(self.context.schema, self.context.options)

    def assigner_router(self) -> Router:
        """The router to the assigners of rows, where these are separate tasks."""
        kind = AssignerRouter if self.lookup_buckets is None else KeyShareRouter
        return kind(self.context.schema, self.assigners)

    def with_assigners(self, parallelism: int) -> WritePlan:
        """The plan with as many assigners as options say, or as can run in parallel (like Java's writers on Flink and Spark)."""
        if not self.assigns:
            return self
        options = self.context.options
        max_assigners = options.dynamic_bucket_assigner_parallelism
        count = options.dynamic_bucket_initial_buckets or max_assigners or parallelism
        max_buckets = options.dynamic_bucket_max_buckets
        return replace(self, assigners=min(count, max_assigners or count, count if max_buckets == -1 else max_buckets))

    def hash_index_state(self, partition: bytes) -> str | None:
        """The state of the hash index of a partition, for the commit to compare; None if there is none, or it is replaced."""
        return None if self.hash_indexes is None or self.replaces_rows else self.hash_indexes.state(partition)

    def check_total(self, partition: bytes) -> None:
        """Raise `UsageError` if the partition has another bucket count than the table's option, so that keys would move."""
        total = self.other_bucket_counts.get(partition)
        if total is not None:
            path = self.context.partition_path_of(partition).rstrip("/") or "the table"
            buckets = self.total_buckets if self.total_buckets > 0 else total
            raise UsageError(
                f"{path} was written with {counted(total, 'bucket')}, but the table's option says {self.total_buckets}",
                "rows of one key must stay in one bucket",
                "try again if a rescale is running, which changes the option last; otherwise run: "
                f"paimon-cli rescale {self.context.layout.argument} --buckets {buckets}",
            )

    def first_sequence(self, bucket_id: BucketId) -> int:
        return self.first_sequences.get(bucket_id, 0)

    def start_of(self, bucket_id: BucketId) -> tuple[BucketFiles, int, DataFileNames]:
        """What a writer of the bucket needs: its existing files, the sequence number of its first row, and names for new files.

        Raises the errors of `check_total`.
        """
        self.check_total(bucket_id.partition)
        buckets = self.total_buckets if self.bucket_counts is None else self.bucket_counts[bucket_id.partition]
        files = self.existing.get(bucket_id, BucketFiles(*bucket_id, buckets, ()))
        return files, self.first_sequence(bucket_id), DataFileNames(self._level_0_context, self.file_stamp)

    @cached_property
    def _level_0_context(self) -> TableContext:
        """The table with the options for files of level 0."""
        if not self.postpones:
            return self.context
        return replace(self.context, options=postponed_options(self.context, self.commit_user, self.writer_id))

    def level_0_writer(self, bucket_id: BucketId, names: DataFileNames) -> DataFileWriter:
        return DataFileWriter(self._level_0_context, bucket_id, level=0, source=SOURCE_APPEND, names=names)
