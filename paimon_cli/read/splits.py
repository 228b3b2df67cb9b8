"""Splits: files of one bucket that hold whole keys and can be read independently (FORMAT.md, sections 11.1 and 11.2).

A plan over very many files makes each split when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

from paimon_cli.history.live_files import BucketFiles, LazyBuckets
from paimon_cli.metadata.data_file import DataFileMeta


@dataclass(frozen=True)
class Split:
    """Files of one bucket that hold whole keys: no version of their keys is in another split. Picklable.

    With `before` its rows are what leads from those files to these, which are in `beside` too where rows have moved
    between buckets.
    """

    bucket: BucketFiles
    needs_merge: bool
    before: tuple[BucketFiles, ...] | None = None
    beside: tuple[BucketFiles, ...] = ()

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All that have to be read."""
        return tuple(file for bucket in (*(self.before or ()), self.bucket, *self.beside) for file in bucket.files)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.file_size for file in self.files)

    @property
    def row_count(self) -> int:
        """Rows in the files: older versions and deletes count too."""
        return sum(file.row_count for file in self.files)


@dataclass
class ScanCounts:
    """What a plan looked at and what it skipped, by reason; files in skipped manifests, or parts of them, are not counted."""

    manifests: int = 0
    manifests_skipped: int = 0
    partitions: int = 0
    partitions_skipped: int = 0
    buckets: int = 0
    buckets_skipped: int = 0
    files: int = 0
    files_skipped_by_partition: int = 0
    files_skipped_by_bucket: int = 0
    files_skipped_by_level: int = 0
    rows_skipped_by_level: int = 0
    files_skipped_by_key: int = 0
    files_skipped_by_value: int = 0
    files_skipped_by_index: int = 0
    files_skipped_as_unchanged: int = 0


OrderFiles = Callable[[Sequence[DataFileMeta]], Sequence[DataFileMeta]]
"""Puts files that overlap in the order of their sections and runs."""


@dataclass(frozen=True)
class PlannedSplits(Sequence[Split]):
    """`files`: rows of `buckets.table`, split by split; `starts`: where each begins. Equal to the same splits in a tuple."""

    buckets: LazyBuckets
    files: np.ndarray
    starts: np.ndarray
    merges: np.ndarray
    total_buckets: np.ndarray
    order_files: OrderFiles

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, number: int) -> Split: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Split, ...]: ...

    def __getitem__(self, number: int | slice) -> Split | tuple[Split, ...]:
        if isinstance(number, slice):
            return tuple(self[place] for place in range(*number.indices(len(self))))
        number = range(len(self))[number]
        end = self.starts[number + 1] if number + 1 < len(self) else len(self.files)
        rows = self.files[self.starts[number] : end].tolist()
        entries = [self.buckets.table.entry(row) for row in rows]
        files: Sequence[DataFileMeta] = [entry.file for entry in entries]
        merges = bool(self.merges[number])
        bucket_id = entries[0].bucket_id
        bucket = BucketFiles(
            *bucket_id,
            int(self.total_buckets[number]),
            tuple(self.order_files(files) if merges else files),
            self.buckets.index_files.get(bucket_id, ()),
        )
        return Split(bucket, merges)

    def __iter__(self) -> Iterator[Split]:
        return (self[number] for number in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_same, self, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.buckets.table.numbers("sizes")[self.files].sum())

    @property
    def row_count(self) -> int:
        return int(self.buckets.table.numbers("row_counts")[self.files].sum())


T = TypeVar("T")


def _same(one: T, other: T) -> bool:
    return one == other
