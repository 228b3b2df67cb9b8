"""The live files of a snapshot, bucket by bucket: where reads, writes and compactions begin."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ALL_FILES, BucketId, DataFileMeta, FileFilter, IndexFileMeta
from paimon_cli.metadata.snapshot import Snapshot

if TYPE_CHECKING:
    import numpy as np

    from paimon_cli.history.live_columns import FileTable


@dataclass(frozen=True)
class BucketFiles:
    """One bucket at one snapshot. `total_buckets` is what its newest file was written with; files are oldest first."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)


@dataclass(frozen=True, eq=False)
class LazyBuckets(Mapping[BucketId, BucketFiles]):
    """Buckets whose files become objects when a bucket is asked for, each time anew. Picklable."""

    table: FileTable
    index_files: Mapping[BucketId, tuple[IndexFileMeta, ...]]

    @cached_property
    def _rows(self) -> dict[BucketId, np.ndarray]:
        return self.table.rows_by_bucket

    def __getitem__(self, bucket_id: BucketId) -> BucketFiles:
        entries = [self.table.entry(row) for row in self._rows[bucket_id].tolist()]
        files = tuple(entry.file for entry in entries)
        return BucketFiles(*bucket_id, entries[-1].total_buckets, files, self.index_files.get(bucket_id, ()))

    def __iter__(self) -> Iterator[BucketId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def bucket_files(context: TableContext, snapshot: Snapshot | None, wanted: FileFilter = ALL_FILES) -> LazyBuckets:
    """Buckets with at least one live file; none for `snapshot` None, a table that nothing was committed to."""
    if snapshot is None:
        from paimon_cli.history.live_columns import FileTable  # loads numpy, which commands on snapshots do without

        return LazyBuckets(FileTable.of([]), {})
    return LazyBuckets(context.manifests.live_files(snapshot, wanted), _index_files(context, snapshot))


@dataclass(frozen=True)
class CommittedState:
    """What a writer has to know of each bucket: its greatest sequence number, and what its newest file was written for."""

    max_sequences: Mapping[BucketId, int]
    total_buckets: Mapping[BucketId, int]


def committed_state(buckets: LazyBuckets) -> CommittedState:
    """No files are made objects for it."""
    table = buckets.table
    return CommittedState(table.greatest_by_bucket("max_sequences"), table.newest_by_bucket("total_buckets"))


def expect_buckets(context: TableContext, asked: Collection[int], found: Iterable[BucketFiles]) -> None:
    """UsageError for a number beyond the table's buckets, NotFound where buckets come with their rows (`bucket` -1)."""
    present = {bucket.bucket: bucket.total_buckets for bucket in found}
    count = max((context.options.bucket, *present.values()))
    unknown = [number for number in asked if number not in present and not 0 <= number < count]
    hint = f"paimon-cli buckets ls {context.layout.argument}"
    if unknown and count > 0:
        raise UsageError(f"{context.url} has no bucket {unknown[0]}", f"its buckets are 0 to {count - 1}", hint)
    if unknown:
        numbers = ", ".join(map(str, sorted(present))) or "none yet"
        raise NotFound(f"{context.url} has no bucket {unknown[0]}", f"its buckets are {numbers}", hint)


def _index_files(context: TableContext, snapshot: Snapshot) -> dict[BucketId, tuple[IndexFileMeta, ...]]:
    indexes: dict[BucketId, list[IndexFileMeta]] = {}
    for index in context.manifests.index_entries(snapshot):
        indexes.setdefault(index.bucket_id, []).append(index.index_file)
    return {bucket_id: tuple(files) for bucket_id, files in indexes.items()}
