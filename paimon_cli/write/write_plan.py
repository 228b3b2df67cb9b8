"""What the tasks of one write share, as one picklable value."""

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
"""Compacts a bucket if a trigger fires, else returns None. The last argument returns whether to give up, with `CancelledError`.
`FilesConflict` if another job has replaced the files; the rows of the bucket can be committed all the same. The write phase
gets such a function, because it does not know the compaction phase."""

Tallies = dict[int, Tally]
"""What was found in each split of a plan, by its number."""


class SplitRows(Protocol):
    """The rows of a plan's splits as the table takes them: checked rows of a source, or the table's own. Picklable."""

    def read(self, split: Any, tally: Tally, /) -> Iterator[pa.RecordBatch]:
        """The rows of one split in `merge_schema`; `_SEQUENCE_NUMBER` is their place in the order of arrival.

        `tally` counts what was found in the split; it is complete when all rows were taken.
        """
        ...


@dataclass(frozen=True)
class WritePlan:
    """What to read, where rows go and how their files are named.

    `first_sequences`: committed maximum + 1 of each (partition, bucket) that has files; 0 for the others. An incoming row
    gets that number plus its place in the order of arrival, so numbers rise, with gaps, whichever task writes the bucket.
    `file_stamp`: 16 hex digits in the names of all data files of this job. `compact_bucket`: compacts buckets, None for a
    write that leaves that to others; then `existing` (the buckets at the read snapshot) is not needed. `compacts_beside`: after
    each flush, in threads of their own, instead of when a bucket is full or done. `other_bucket_counts`: bucket counts of the
    partitions that were not written with `total_buckets`. `replaces_rows`: the rows take the place of older ones, and what
    changes by that is in no changelog file, as in Java. `commit_user`, `writer_id`: what names a writer of postponed files.
    `bucket_counts`: in tables with postponed buckets, the number of buckets of each partition; None where rows are postponed.
    `counts_on`: the rows decide on these numbers where the table has none (here, those that it has), so they are postponed within
    this write first, and counted there. `hash_indexes`: what the buckets of keys follow from, if dynamic; `assigners`: how many
    open buckets at a time; `assigner`: the one whose rows these are, None for all; `rows_are_assigned`: the rows bring along the
    buckets that another task has given them. `lookup_buckets`: where keys are looked up, if they may live in any partition,
    as snapshot `keys_read_at` has them (0: the empty table).
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
        """Whether rows go into `bucket-postpone`, as they come."""
        return self.context.mode.bucket_mode is BucketMode.POSTPONED and self.bucket_counts is None

    @property
    def records_input(self) -> bool:
        """Whether the rows go into changelog files, too, as they come (`changelog-producer=input`)."""
        return self.context.mode.changelog_producer == INPUT and not (self.replaces_rows or self.postpones)

    @property
    def route(self) -> str:
        """What decides on the bucket of a row, as the trace names it."""
        mode = self.context.mode
        kind = "append" if not mode.has_keys else "key-value"
        return f"{kind}-{mode.bucket_mode.name.lower() if self.bucket_counts is None else 'fixed'}"

    @property
    def shuffles(self) -> bool:
        """Whether all rows of a bucket have to come to the same task. Where any task may add files to it, they do so only if the
        table asks for few tasks in a partition (`partition.sink-strategy=hash`).
        """
        any_task_may = self.context.mode.bucket_mode is BucketMode.UNAWARE or self.postpones
        return not any_task_may or self.context.options.partition_sink_strategy == "hash"

    @property
    def sort_keys(self) -> tuple[str, ...]:
        """What rows without a key are sorted by; nothing where they stay in the order of arrival."""
        return ()

    @property
    def assigns(self) -> bool:
        """Whether it depends on other rows of the table which bucket a row gets."""
        return self.hash_indexes is not None or self.lookup_buckets is not None

    def placed(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The rows to be written in place of those that come, with their buckets; the same where no key can have moved."""
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
        """What gives rows to assigners, where those are tasks of their own."""
        kind = AssignerRouter if self.lookup_buckets is None else KeyShareRouter
        return kind(self.context.schema, self.assigners)

    def with_assigners(self, parallelism: int) -> WritePlan:
        """With as many assigners as options ask for, or as can work at a time (Java's writers on Flink and Spark do likewise)."""
        if not self.assigns:
            return self
        options = self.context.options
        most = options.dynamic_bucket_assigner_parallelism
        count = options.dynamic_bucket_initial_buckets or most or parallelism
        limit = options.dynamic_bucket_max_buckets
        return replace(self, assigners=min(count, most or count, count if limit == -1 else limit))

    def hash_index_state(self, partition: bytes) -> str | None:
        """The state of the index by which the rows of a partition get buckets; None if no index decides, or it goes away."""
        return None if self.hash_indexes is None or self.replaces_rows else self.hash_indexes.state(partition)

    def check_total(self, partition: bytes) -> None:
        """`UsageError` if rows of that partition would go into other buckets than older ones of their keys."""
        total = self.other_bucket_counts.get(partition)
        if total is not None:
            place = self.context.partition_path_of(partition).rstrip("/") or "the table"
            buckets = self.total_buckets if self.total_buckets > 0 else total
            raise UsageError(
                f"{place} was written with {total} buckets, the table's option says {self.total_buckets}",
                "rows of one key must stay in one bucket",
                "try again if a rescale is running, which changes the option last; otherwise run: "
                f"paimon-cli rescale {self.context.layout.argument} --buckets {buckets}",
            )

    def first_sequence(self, bucket_id: BucketId) -> int:
        return self.first_sequences.get(bucket_id, 0)

    def start_of(self, bucket_id: BucketId) -> tuple[BucketFiles, int, DataFileNames]:
        """What a writer of the bucket begins with: its files, the number of its first row, and names for new files.

        Errors as `check_total`.
        """
        self.check_total(bucket_id.partition)
        buckets = self.total_buckets if self.bucket_counts is None else self.bucket_counts[bucket_id.partition]
        files = self.existing.get(bucket_id, BucketFiles(*bucket_id, buckets, ()))
        return files, self.first_sequence(bucket_id), DataFileNames(self._of_level_0, self.file_stamp)

    @cached_property
    def _of_level_0(self) -> TableContext:
        """The table with the options by which files of level 0 are written."""
        if not self.postpones:
            return self.context
        return replace(self.context, options=postponed_options(self.context, self.commit_user, self.writer_id))

    def level_0_writer(self, bucket_id: BucketId, names: DataFileNames) -> DataFileWriter:
        return DataFileWriter(self._of_level_0, bucket_id, level=0, source=SOURCE_APPEND, names=names)
