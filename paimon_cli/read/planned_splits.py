"""The splits of a plan over very many files: a sequence that makes each split on access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

from paimon_cli.history.table_state import BucketFiles, LazyBuckets
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.read.split import Split

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
