"""What a commit writes to, at the granularities of the data conflict check: whole buckets, ranges of keys, single keys.

The finer it is, the fewer commits of others are conflicts, and the more must be read to decide. A table in `data_conflict` shows
the same commits at each granularity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Protocol

from paimon_cli.errors import DamagedFile
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, CommitMessage, DataFileMeta, EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class ConcurrentChange:
    """A file that another commit added or deleted, or a bucket of whose files it changed deletion vectors (`entry` is None).

    `key`: the conflicting key in the file as text, if keys were compared.
    """

    snapshot: Snapshot
    bucket_id: BucketId
    entry: ManifestEntry | None = None
    key: str = ""


class WrittenPlaces(Protocol):
    """What a commit writes to, at one granularity."""

    def holds(self, bucket_id: BucketId) -> bool:
        """Whether a change of unknown rows of this bucket is a conflict."""
        ...

    def meets(self, entry: ManifestEntry) -> bool:
        """Whether a file of another commit may be a conflict, as far as its manifest entry shows."""
        ...

    def first_conflict(self, suspects: Iterator[ConcurrentChange]) -> ConcurrentChange | None:
        """The first conflict among files for which `meets` is true, and buckets for which `holds` is true."""
        ...


@dataclass(frozen=True)
class WholeBuckets:
    """Every change of certain buckets or partitions is a conflict. `holds`: whether a bucket is one of them."""

    holds: Callable[[BucketId], bool]

    def meets(self, entry: ManifestEntry) -> bool:
        return self.holds(entry.bucket_id)

    def first_conflict(self, suspects: Iterator[ConcurrentChange]) -> ConcurrentChange | None:
        return next(suspects, None)


class WrittenRanges:
    """A file is a conflict if its key range overlaps that of one of our files in the same bucket."""

    def __init__(self, context: TableContext, messages: Iterable[CommitMessage]) -> None:
        self._context = context
        self._files: dict[BucketId, list[DataFileMeta]] = {}
        self._whole: set[BucketId] = set()
        for message in messages:
            bucket_id = message.bucket_id
            self._files.setdefault(bucket_id, []).extend((*message.append.added, *message.append.removed))
            if message.append.added_indexes or message.append.removed_indexes or message.append.changelog or bucket_id.bucket < 0:
                self._whole.add(bucket_id)  # their keys are not in the metadata
        self._ranges = {bucket_id: _disjoint(self._bounds(file) for file in files) for bucket_id, files in self._files.items()}

    def holds(self, bucket_id: BucketId) -> bool:
        return bucket_id in self._files

    def meets(self, entry: ManifestEntry) -> bool:
        return entry.bucket_id in self._whole or self._overlaps(entry.bucket_id, entry)

    def _overlaps(self, bucket_id: BucketId, entry: ManifestEntry) -> bool:
        """Whether the key range of the file overlaps that of one of our files in this bucket."""
        low, high = self._bounds(entry.file)
        ranges = self._ranges.get(bucket_id, [])
        nearest = bisect_left(ranges, low, key=itemgetter(1))
        return nearest < len(ranges) and bool(ranges[nearest][0] <= high)

    def first_conflict(self, suspects: Iterator[ConcurrentChange]) -> ConcurrentChange | None:
        return next(suspects, None)

    def _bounds(self, file: DataFileMeta) -> tuple[Any, Any]:
        return self._context.key_of(file.min_key), self._context.key_of(file.max_key)


class WrittenKeys(WrittenRanges):
    """A file is a conflict if it shares a key with one of our files in the same bucket. Key columns of files are read."""

    def first_conflict(self, suspects: Iterator[ConcurrentChange]) -> ConcurrentChange | None:
        by_bucket: dict[BucketId, list[ConcurrentChange]] = {}
        for suspect in suspects:
            if suspect.entry is None or suspect.bucket_id in self._whole:
                return suspect
            by_bucket.setdefault(suspect.bucket_id, []).append(suspect)
        conflicts = (self._sharing(bucket_id, in_bucket) for bucket_id, in_bucket in by_bucket.items())
        return next((foreign for foreign in conflicts if foreign is not None), None)

    def _sharing(self, bucket_id: BucketId, suspects: Sequence[ConcurrentChange]) -> ConcurrentChange | None:
        return self._first_shared({bucket_id: self._files[bucket_id]}, suspects)

    def _first_shared(
        self, ours: Mapping[BucketId, Sequence[DataFileMeta]], suspects: Sequence[ConcurrentChange]
    ) -> ConcurrentChange | None:
        from paimon_cli.bucket.shared_keys import first_shared_key  # loads Arrow

        entries = [suspect.entry for suspect in suspects if suspect.entry is not None]
        theirs = {entry.file.file_name: suspect for suspect, entry in zip(suspects, entries, strict=True)}
        bucket_ids = {name: suspect.bucket_id for name, suspect in theirs.items()}
        bucket_ids |= {file.file_name: bucket_id for bucket_id, files in ours.items() for file in files}
        our_files = [file for files in ours.values() for file in files]
        try:
            shared = first_shared_key(self._context, bucket_ids, our_files, [entry.file for entry in entries])
        except DamagedFile as error:
            raise self._gone_or_damaged(error, entries) from error
        return None if shared is None else replace(theirs[shared.file_name], key=shared.key)

    def _gone_or_damaged(self, error: DamagedFile, entries: Iterable[ManifestEntry]) -> SnapshotGone | DamagedFile:
        """The error to raise: a file of another commit may have been replaced and expired, so that the check cannot decide."""
        paths = {self._context.data_file_path(entry.partition, entry.bucket, entry.file) for entry in entries}
        path = error.path
        if path not in paths or self._context.storage.exists(path):
            return error
        return SnapshotGone(f"{path}, which was committed since, has expired")


class KeysElsewhere(WrittenKeys):
    """A file is a conflict if it adds a key that one of our files in another bucket holds.

    Two jobs may update a key where it lives. But if one of them moves the key, or if it is new to both, it could end up in two
    buckets, and readers would see it twice. Rows that lose their marks in a deletion vector are back where they were.
    """

    def holds(self, bucket_id: BucketId) -> bool:
        return any(True for _ in self._others(bucket_id))

    def meets(self, entry: ManifestEntry) -> bool:
        return entry.kind == EntryKind.ADD and any(
            self._overlaps(bucket_id, entry) for bucket_id in self._others(entry.bucket_id)
        )

    def first_conflict(self, suspects: Iterator[ConcurrentChange]) -> ConcurrentChange | None:
        by_bucket: dict[BucketId, list[ConcurrentChange]] = {}
        for suspect in suspects:
            if suspect.entry is None:
                return suspect
            by_bucket.setdefault(suspect.bucket_id, []).append(suspect)
        for bucket_id, in_bucket in by_bucket.items():
            shared = self._first_shared({other: self._files[other] for other in self._others(bucket_id)}, in_bucket)
            if shared is not None:
                return shared
        return None

    def _others(self, bucket_id: BucketId) -> Iterator[BucketId]:
        """The other buckets of our files that may hold the same keys."""
        part = self._key_part(bucket_id.partition)
        return (own for own in self._files if own != bucket_id and self._key_part(own.partition) == part)

    def _key_part(self, partition: bytes) -> tuple[Any, ...]:
        """The values of the partition columns that belong to the primary key."""
        values = zip(self._context.schema.partition_keys, self._context.partition_values(partition), strict=True)
        return tuple(value for name, value in values if name in self._context.schema.primary_keys)


def _disjoint(ranges: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The union of the ranges as disjoint ranges, ascending."""
    disjoint: list[tuple[Any, Any]] = []
    for low, high in sorted(ranges):
        if disjoint and low <= disjoint[-1][1]:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], high))
        else:
            disjoint.append((low, high))
    return disjoint
