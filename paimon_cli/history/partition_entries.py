"""The entries of one partition in one manifest, by bucket: objects if they are few, else columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from paimon_cli.metadata.data_file import ADD, ManifestEntry

if TYPE_CHECKING:  # loads numpy, which commits to small tables do without
    import numpy as np

    from paimon_cli.history.live_columns import PlacedColumns

Identity = tuple[object, ...]

_SAMPLE = 16
_MOST_MADE = 5000
"""Number of entries of columns that are kept as objects."""


@dataclass(frozen=True)
class BucketEntries:
    """The ADD entries of a bucket in their order, and the identities of its DELETE entries."""

    added: Sequence[ManifestEntry] = ()
    deleted: frozenset[Identity] = frozenset()

    @staticmethod
    def of(entries: Iterable[ManifestEntry]) -> BucketEntries:
        added, deleted = [], []
        for entry in entries:
            if entry.kind == ADD:
                added.append(entry)
            else:
                deleted.append(entry.identity)
        return BucketEntries(added, frozenset(deleted))


class PartitionEntries(Protocol):
    """The entries of a manifest in one partition."""

    def in_bucket(self, bucket: int) -> BucketEntries:
        """The entries of one bucket, possibly none."""
        ...

    @property
    def totals(self) -> Collection[int]:
        """The numbers of buckets that ADD entries were written for."""
        ...

    def sample(self, total: int) -> tuple[Sequence[ManifestEntry], bool]:
        """Some ADD entries that were written for this number of buckets, and whether these are all."""
        ...

    @property
    def newest_total(self) -> int | None:
        """The number of buckets that the last ADD entry was written for; None without any."""
        ...


@dataclass(frozen=True)
class FewEntries:
    """The plain form."""

    entries: Sequence[ManifestEntry]

    def in_bucket(self, bucket: int) -> BucketEntries:
        return self._buckets.get(bucket, _NONE)

    @cached_property
    def _buckets(self) -> dict[int, BucketEntries]:
        buckets = {entry.bucket for entry in self.entries}
        return {bucket: BucketEntries.of(e for e in self.entries if e.bucket == bucket) for bucket in buckets}

    @cached_property
    def _by_total(self) -> dict[int, list[ManifestEntry]]:
        found: dict[int, list[ManifestEntry]] = {}
        for entry in self.entries:
            if entry.kind == ADD:
                found.setdefault(entry.total_buckets, []).append(entry)
        return found

    @property
    def totals(self) -> Collection[int]:
        return self._by_total

    def sample(self, total: int) -> tuple[Sequence[ManifestEntry], bool]:
        return self._by_total[total], True

    @property
    def newest_total(self) -> int | None:
        return next((entry.total_buckets for entry in reversed(self.entries) if entry.kind == ADD), None)


_NONE = BucketEntries()


@dataclass(frozen=True)
class ManyEntries:
    """Columns of one partition: entries become objects when their bucket is asked for, and stay that for a while."""

    columns: PlacedColumns
    _made: dict[int, BucketEntries] = field(default_factory=dict)
    _samples: dict[int, tuple[Sequence[ManifestEntry], bool]] = field(default_factory=dict)

    def in_bucket(self, bucket: int) -> BucketEntries:
        if bucket not in self._made:
            if sum(len(known.added) + len(known.deleted) for known in self._made.values()) > _MOST_MADE:
                self._made.clear()
            self._made[bucket] = BucketEntries.of(self._entries(self._rows_by_bucket.get(bucket, ())))
        return self._made[bucket]

    @cached_property
    def _rows_by_bucket(self) -> dict[int, np.ndarray]:
        return {bucket: rows for (_, bucket), rows in self.columns.rows_by_place.items()}

    def _entries(self, rows: Iterable[int]) -> list[ManifestEntry]:
        return [self.columns.entry(int(row)) for row in rows]

    @cached_property
    def _rows_by_total(self) -> dict[int, np.ndarray]:
        totals, is_added = self.columns.numbers("total_buckets"), self.columns.numbers("kinds") == ADD
        return {total: (is_added & (totals == total)).nonzero()[0] for total in set(totals[is_added].tolist())}

    @property
    def totals(self) -> Collection[int]:
        return self._rows_by_total

    def sample(self, total: int) -> tuple[Sequence[ManifestEntry], bool]:
        if total not in self._samples:
            rows = self._rows_by_total[total]
            spread = rows[:: -(-len(rows) // _SAMPLE)]
            self._samples[total] = (self._entries(spread), len(spread) == len(rows))
        return self._samples[total]

    @cached_property
    def newest_total(self) -> int | None:
        newest = max(self._rows_by_total.items(), key=lambda known: int(known[1][-1]), default=None)
        return None if newest is None else newest[0]
