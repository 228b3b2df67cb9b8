"""The data conflict check: did another commit write where this one writes since it read? (FORMAT.md, section 10.3)

Paimon has no such check. Without it, a read-modify-write undoes commits that it never saw, and two writers of a bucket can draw
overlapping sequence numbers, so that the later commit may lose. Compactions change no rows and are no data conflict; two of them
conflict in the check of files.

The granularity decides what counts as the same place: a partition, a bucket, the key ranges of the files in it, or single keys.
The finer it is, the fewer commits are refused, and the more has to be read to decide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Protocol

from paimon_cli.commit.commit_messages import postpones_buckets
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import BucketsConflict, Conflict, DamagedFile, DataConflict, UsageError
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, DELETE, BucketId, CommitMessage, DataFileMeta, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.table_options import DATA_CONFLICT_CHECK, DATA_CONFLICT_CHECKS

OFF, PARTITION, BUCKET, RANGE, KEY = DATA_CONFLICT_CHECKS

CheckData = Callable[[Snapshot | None], None]
"""Raises `DataConflict` if the changes must not go on top of that snapshot; asked again at every attempt."""


@dataclass(frozen=True)
class Foreign:
    """A file that another commit added or deleted; `key`: the conflicting key in it, if keys were compared."""

    snapshot: Snapshot
    entry: ManifestEntry
    key: str = ""


class Written(Protocol):
    """Where a commit writes, at one granularity."""

    def meets(self, entry: ManifestEntry) -> bool:
        """Whether a file of another commit may be in the same place, as far as manifests show."""
        ...

    def first_in_the_way(self, suspects: Iterator[Foreign]) -> Foreign | None:
        """The first file that contradicts the commit, of those that `meets` lets pass."""
        ...


def check_of_messages(
    context: TableContext, identity: CommitIdentity, messages: Sequence[CommitMessage], read_snapshot_id: int | None
) -> CheckData:
    """For the append halves of messages, at the granularity of `commit.data-conflict-check`; where that is off, only rows that
    had been postponed and got their buckets since are in the way: they are older than ours, and numbered as high.

    `read_snapshot_id` None: the table was empty when the job began, so every commit since then counts.
    """
    granularity = context.options.commit_data_conflict_check
    written = [message for message in messages if message.has_append]
    if granularity == OFF:
        buckets = {message.bucket_id for message in written if message.bucket != POSTPONE_BUCKET}
        return DataConflictCheck(context, identity, WholePlaces(lambda e: e.bucket_id in buckets), read_snapshot_id, True).check
    if granularity == PARTITION:
        return check_of_partitions(context, identity, {message.partition for message in written}.__contains__, read_snapshot_id)
    return DataConflictCheck(context, identity, _written_by(context, written, granularity), read_snapshot_id).check


def _written_by(context: TableContext, messages: Sequence[CommitMessage], granularity: str) -> Written:
    if granularity == BUCKET:
        buckets = {message.bucket_id for message in messages}
        return WholePlaces(lambda entry: entry.bucket_id in buckets)
    if not context.schema.primary_keys:
        raise UsageError(
            f"{DATA_CONFLICT_CHECK}={granularity} for a table without a primary key",
            "its rows have no keys to compare",
            "use bucket or partition",
        )
    return WrittenKeys(context, messages) if granularity == KEY else WrittenRanges(context, messages)


def check_of_buckets(
    context: TableContext, identity: CommitIdentity, messages: Sequence[CommitMessage], read_snapshot_id: int | None
) -> CheckData:
    """A check of the messages' buckets, whatever the granularity of the option; in `bucket-postpone` there are no conflicts."""
    buckets = {message.bucket_id for message in messages if message.bucket != POSTPONE_BUCKET}
    return DataConflictCheck(context, identity, WholePlaces(lambda e: e.bucket_id in buckets), read_snapshot_id).check


def check_of_homes(context: TableContext, identity: CommitIdentity, messages: Sequence[CommitMessage]) -> CheckData:
    """A check that no key ends up in two buckets, for tables whose keys may live in any partition. Ignores the granularity."""
    written = [message for message in messages if message.has_append]
    read = min(((m.read_snapshot_id if m.keys_read_at is None else m.keys_read_at) or 0 for m in written), default=0)
    return DataConflictCheck(context, identity, KeysElsewhere(context, written), read, error=BucketsConflict).check


def check_of_partitions(
    context: TableContext,
    identity: CommitIdentity,
    written: Callable[[bytes], bool],
    read_snapshot_id: int | None,
    keeps_postponed: bool = False,
) -> CheckData:
    """A check of whole partitions, which an overwrite replaces whatever the granularity."""

    def holds(entry: ManifestEntry) -> bool:
        return written(entry.partition) and not (keeps_postponed and entry.is_postponed)

    return DataConflictCheck(context, identity, WholePlaces(holds), read_snapshot_id).check


@dataclass(frozen=True)
class WholePlaces:
    """Every file in our partitions or buckets is in the way."""

    holds: Callable[[ManifestEntry], bool]

    def meets(self, entry: ManifestEntry) -> bool:
        return self.holds(entry)

    def first_in_the_way(self, suspects: Iterator[Foreign]) -> Foreign | None:
        return next(suspects, None)


class WrittenRanges:
    """A file is in the way if its key range meets that of one of our files in the same bucket."""

    def __init__(self, context: TableContext, messages: Iterable[CommitMessage]) -> None:
        self._context = context
        self._files: dict[BucketId, list[DataFileMeta]] = {}
        self._whole: set[BucketId] = set()
        for message in messages:
            bucket_id = message.bucket_id
            self._files.setdefault(bucket_id, []).extend((*message.new_files, *message.deleted_files))
            if message.new_index_files or message.deleted_index_files or message.changelog_files or bucket_id.bucket < 0:
                self._whole.add(bucket_id)  # which keys these touch is written nowhere
        self._ranges = {bucket_id: _disjoint(self._bounds(file) for file in files) for bucket_id, files in self._files.items()}

    def meets(self, entry: ManifestEntry) -> bool:
        return entry.bucket_id in self._whole or self._overlaps(entry.bucket_id, entry)

    def _overlaps(self, bucket_id: BucketId, entry: ManifestEntry) -> bool:
        """Whether the key range of the file meets one of ours in that bucket."""
        low, high = self._bounds(entry.file)
        ranges = self._ranges.get(bucket_id, [])
        nearest = bisect_left(ranges, low, key=itemgetter(1))
        return nearest < len(ranges) and bool(ranges[nearest][0] <= high)

    def first_in_the_way(self, suspects: Iterator[Foreign]) -> Foreign | None:
        return next(suspects, None)

    def _bounds(self, file: DataFileMeta) -> tuple[Any, Any]:
        return self._context.key_of(file.min_key), self._context.key_of(file.max_key)


class WrittenKeys(WrittenRanges):
    """A file is in the way if it holds a key that one of our files in the same bucket holds: the key columns are read."""

    def first_in_the_way(self, suspects: Iterator[Foreign]) -> Foreign | None:
        by_place: dict[BucketId, list[Foreign]] = {}
        for suspect in suspects:
            bucket_id = suspect.entry.bucket_id
            if bucket_id in self._whole:
                return suspect
            by_place.setdefault(bucket_id, []).append(suspect)
        found = (self._sharing(bucket_id, there) for bucket_id, there in by_place.items())
        return next((foreign for foreign in found if foreign is not None), None)

    def _sharing(self, bucket_id: BucketId, suspects: Sequence[Foreign]) -> Foreign | None:
        return self._first_shared({bucket_id: self._files[bucket_id]}, suspects)

    def _first_shared(self, ours: Mapping[BucketId, Sequence[DataFileMeta]], suspects: Sequence[Foreign]) -> Foreign | None:
        from paimon_cli.bucket.merged_rows import first_shared_key  # loads Arrow

        theirs = {suspect.entry.file.file_name: suspect for suspect in suspects}
        places = {name: suspect.entry.bucket_id for name, suspect in theirs.items()}
        places |= {file.file_name: bucket_id for bucket_id, files in ours.items() for file in files}
        own = [file for files in ours.values() for file in files]
        try:
            shared = first_shared_key(self._context, places, own, [s.entry.file for s in theirs.values()])
        except DamagedFile as error:
            raise self._gone_or_damaged(error, theirs.values()) from error
        return None if shared is None else replace(theirs[shared.file_name], key=shared.key)

    def _gone_or_damaged(self, error: DamagedFile, suspects: Iterable[Foreign]) -> SnapshotGone | DamagedFile:
        """Files of other commits may have been replaced and expired since: no damage, but then the check cannot decide."""
        paths = {self._context.data_file_path(s.entry.partition, s.entry.bucket, s.entry.file) for s in suspects}
        path = error.details.get("path")
        if path not in paths or self._context.storage.exists(path):
            return error
        return SnapshotGone(f"{path}, which was committed since, has expired")


class KeysElsewhere(WrittenKeys):
    """A file is in the way if it brings a key that one of our files in another bucket holds.

    Two jobs may update a key where it lives. But where one of them moves it, or both see it for the first time, each would leave
    it in another bucket, and readers would see it twice.
    """

    def meets(self, entry: ManifestEntry) -> bool:
        return entry.kind == ADD and any(self._overlaps(bucket_id, entry) for bucket_id in self._others(entry.bucket_id))

    def first_in_the_way(self, suspects: Iterator[Foreign]) -> Foreign | None:
        by_place: dict[BucketId, list[Foreign]] = {}
        for suspect in suspects:
            by_place.setdefault(suspect.entry.bucket_id, []).append(suspect)
        for bucket_id, there in by_place.items():
            shared = self._first_shared({other: self._files[other] for other in self._others(bucket_id)}, there)
            if shared is not None:
                return shared
        return None

    def _others(self, bucket_id: BucketId) -> Iterator[BucketId]:
        """Our files in other buckets that may hold the same keys."""
        part = self._key_part(bucket_id.partition)
        return (own for own in self._files if own != bucket_id and self._key_part(own.partition) == part)

    def _key_part(self, partition: bytes) -> tuple[Any, ...]:
        """Values of the partition columns that belong to the primary key."""
        values = zip(self._context.schema.partition_keys, self._context.partition_values(partition), strict=True)
        return tuple(value for name, value in values if name in self._context.schema.primary_keys)


def _disjoint(ranges: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The ranges merged into disjoint ones, ascending."""
    found: list[tuple[Any, Any]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


class DataConflictCheck:
    """Checks each snapshot after the one that was read, once, however many attempts the commit takes."""

    def __init__(
        self,
        context: TableContext,
        identity: CommitIdentity,
        written: Written,
        read_snapshot_id: int | None,
        only_distributed: bool = False,
        error: type[Conflict] = DataConflict,
    ) -> None:
        self._error = error
        self._context = context
        self._only_distributed = only_distributed
        self._identity = identity
        self._written = written
        self._read = self._checked = read_snapshot_id or 0

    def check(self, latest: Snapshot | None) -> None:
        """Raise the conflict for the first snapshot up to `latest` that wrote to our place, or that cannot be read any more."""
        newest = latest.id if latest else 0
        if newest < self._checked:
            raise self._undecided(f"the table was rolled back to snapshot {newest}")
        try:
            found = self._written.first_in_the_way(self._suspects(latest, newest))
        except SnapshotGone as gone:
            raise self._undecided(gone.what) from gone
        if found is not None:
            raise self._conflict(found)

    def _suspects(self, latest: Snapshot | None, newest: int) -> Iterator[Foreign]:
        for number in range(self._checked + 1, newest + 1):
            snapshot = latest if number == newest else self._context.snapshots.find(number)
            if snapshot is None:
                raise self._undecided(f"snapshot {number} has expired")
            if not self._is_own(snapshot):
                yield from (Foreign(snapshot, entry) for entry in self._with_new_rows(snapshot) if self._written.meets(entry))
            self._checked = number

    def _with_new_rows(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Files that a snapshot changed as more than a compaction: those of a compaction where it gave out postponed rows."""
        if snapshot.commit_kind in (APPEND, OVERWRITE):
            return [] if self._only_distributed else self._delta(snapshot)
        if not postpones_buckets(self._context):
            return []
        entries = self._delta(snapshot)
        distributed = {entry.partition for entry in entries if entry.kind == DELETE and entry.is_postponed}
        return [entry for entry in entries if entry.partition in distributed and not entry.is_postponed]

    def _delta(self, snapshot: Snapshot) -> list[ManifestEntry]:
        try:
            return self._context.manifests.delta_entries(snapshot)
        except SnapshotGone as error:
            raise self._undecided(f"snapshot {snapshot.id} has expired") from error

    def _is_own(self, snapshot: Snapshot) -> bool:
        """Whether this commit made the snapshot. Jobs may share a user, so commits without an identifier are never recognised."""
        own = (self._identity.user, self._identity.identifier)
        return self._identity.is_repeatable and (snapshot.commit_user, snapshot.commit_identifier) == own

    def _conflict(self, found: Foreign) -> Conflict:
        snapshot, entry = found.snapshot, found.entry
        partition = self._context.partition_path_of(entry.partition)
        what = f"{partition}bucket-{entry.bucket}"
        if found.key:
            what = f"key {found.key} in {what}"
        elif isinstance(self._written, WrittenRanges):
            what = f"a key range of {what}"
        return self._error(
            f"{what} was written after snapshot {self._read}, which this job had read",
            f"snapshot {snapshot.id} ({snapshot.commit_kind}, user {snapshot.commit_user}) changed it",
            "read the latest snapshot and run the job again: its rows may be out of date",
            partition=partition.rstrip("/"),
            bucket=entry.bucket,
            snapshot_id=snapshot.id,
            commit_user=snapshot.commit_user,
            commit_kind=snapshot.commit_kind,
            read_snapshot_id=self._read,
            **({"key": found.key} if found.key else {}),
        )

    def _undecided(self, why: str) -> Conflict:
        return self._error(
            f"cannot determine whether another commit wrote there after snapshot {self._read}, which this job had read",
            why,
            "read the latest snapshot and run the job again; keep snapshots longer than a job takes",
            read_snapshot_id=self._read,
        )
