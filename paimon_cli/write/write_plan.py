"""All that the tasks of one write share, as one picklable value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileNames, DataFileWriter
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.rejects import Tally
from paimon_cli.metadata.data_file import SOURCE_APPEND, BucketId, CommitMessage, DataFileMeta
from paimon_cli.write.bucket_router import FixedRouter, Router

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
    partitions that were not written with `total_buckets`.
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

    def router(self) -> Router:
        return FixedRouter(self.context.schema, self.context.options)

    def check_total(self, partition: bytes) -> None:
        """`UsageError` if rows of that partition would go into other buckets than older ones of their keys."""
        total = self.other_bucket_counts.get(partition)
        if total is not None:
            place, table = self.context.partition_path_of(partition).rstrip("/") or "the table", self.context.layout.argument
            raise UsageError(
                f"{place} was written with {total} buckets, the table's option says {self.total_buckets}",
                "rows of one key must stay in one bucket",
                f"paimon-cli rescale {table} --buckets {self.total_buckets}, or overwrite the partition",
            )

    def first_sequence(self, partition: bytes, bucket: int) -> int:
        return self.first_sequences.get(BucketId(partition, bucket), 0)

    def level_0_writer(self, bucket_id: BucketId, names: DataFileNames) -> DataFileWriter:
        return DataFileWriter(self.context, bucket_id, level=0, source=SOURCE_APPEND, names=names)

    def message(self, partition: bytes, bucket: int, files: tuple[DataFileMeta, ...]) -> CommitMessage:
        return CommitMessage(partition, bucket, self.total_buckets, new_files=files, read_snapshot_id=self.read_snapshot_id)
