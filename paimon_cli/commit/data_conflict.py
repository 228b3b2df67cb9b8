"""The data conflict check: has another commit written to the same rows since this job read the table? (FORMAT.md, section 10.3)

Java has no such check. Without it, a read-modify-write undoes commits that it has not seen, and two writers of a bucket can use
overlapping sequence numbers, so that rows of the later commit may lose. Compactions change no rows, so they are never a data
conflict; two compactions conflict in the files conflict check.

The granularity of the check is a partition, a bucket, the key ranges of files in a bucket, or single keys. The finer it is, the
fewer commits are refused, and the more must be read to decide.

A commit may change rows without adding or deleting a file: it marks them in deletion vectors, or takes marks away. Then its
delta is empty, and only the index manifest shows the change. The metadata lacks the keys of such rows, so the whole bucket
counts as written, whatever the granularity.

Example: a job writes the keys 10 and 20 into bucket 0 of partition x. Which commits since its read are a conflict?

| commit of another job | partition | bucket | range | key |
|---|---|---|---|---|
| key 15 into bucket 1 of x | yes | no | no | no |
| keys 30 and 40 into bucket 0 of x | yes | yes | no | no |
| key 16 into bucket 0 of x | yes | yes | yes | no |
| key 20 into bucket 0 of x | yes | yes | yes | yes |
| key 20 into bucket 0 of y | no | no | no | no |
| compaction of x | no | no | no | no |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from paimon_cli.commit.commit_messages import postpones_buckets
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.written_places import (
    ConcurrentChange,
    KeysElsewhere,
    WholeBuckets,
    WrittenKeys,
    WrittenPlaces,
    WrittenRanges,
)
from paimon_cli.errors import BucketsConflict, Conflict, DataConflict, UsageError
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, CommitMessage, EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.options.own_options import DATA_CONFLICT_CHECK
from paimon_cli.storage.redaction import shown_name

CheckData = Callable[[Snapshot | None], None]
"""Raises `DataConflict` if the changes must not be committed on top of this snapshot. Called for every attempt."""


def check_of_messages(
    context: TableContext,
    identity: CommitIdentity,
    messages: Sequence[CommitMessage],
    read_snapshot_id: int | None,
    granularity: str,
) -> CheckData:
    """The check for the append halves of messages.

    If the granularity is `off`, only postponed rows that were moved into the buckets since then are a conflict: they are older
    than ours, but may have higher sequence numbers. `read_snapshot_id`: None if the table was empty, so that all later commits
    count.
    """
    written = [message for message in messages if message.append]
    if granularity == ConflictCheck.OFF:
        buckets = {message.bucket_id for message in written if message.bucket != POSTPONE_BUCKET}
        return DataConflictCheck(context, identity, WholeBuckets(buckets.__contains__), read_snapshot_id, True).check
    if granularity == ConflictCheck.PARTITION:
        return check_of_partitions(context, identity, {message.partition for message in written}.__contains__, read_snapshot_id)
    return DataConflictCheck(context, identity, _written_by(context, written, granularity), read_snapshot_id).check


def _written_by(context: TableContext, messages: Sequence[CommitMessage], granularity: str) -> WrittenPlaces:
    if granularity == ConflictCheck.BUCKET:
        buckets = {message.bucket_id for message in messages}
        return WholeBuckets(buckets.__contains__)
    if not context.schema.primary_keys:
        raise UsageError(
            f"{DATA_CONFLICT_CHECK}={granularity} for a table without a primary key",
            "its rows have no keys to compare",
            "use bucket or partition",
        )
    return WrittenKeys(context, messages) if granularity == ConflictCheck.KEY else WrittenRanges(context, messages)


def check_of_buckets(
    context: TableContext, identity: CommitIdentity, messages: Sequence[CommitMessage], read_snapshot_id: int | None
) -> CheckData:
    """The check of whole buckets, whatever the granularity of the option. There are no conflicts in `bucket-postpone`."""
    buckets = {message.bucket_id for message in messages if message.bucket != POSTPONE_BUCKET}
    return DataConflictCheck(context, identity, WholeBuckets(buckets.__contains__), read_snapshot_id).check


def check_of_locations(context: TableContext, identity: CommitIdentity, messages: Sequence[CommitMessage]) -> CheckData:
    """The check that no key ends up in two buckets, for tables whose keys may live in any partition.

    At least one message adds files.
    """
    written = [message for message in messages if message.append]
    read = min((m.read_snapshot_id if m.keys_read_at is None else m.keys_read_at) or 0 for m in written)
    return DataConflictCheck(context, identity, KeysElsewhere(context, written), read, error=BucketsConflict).check


def check_of_partitions(
    context: TableContext,
    identity: CommitIdentity,
    written: Callable[[bytes], bool],
    read_snapshot_id: int | None,
    keeps_postponed: bool = False,
) -> CheckData:
    """The check of whole partitions, which an overwrite replaces, whatever the granularity of the option."""

    def holds(bucket_id: BucketId) -> bool:
        return written(bucket_id.partition) and not (keeps_postponed and bucket_id.bucket == POSTPONE_BUCKET)

    return DataConflictCheck(context, identity, WholeBuckets(holds), read_snapshot_id).check


def check_place(context: TableContext, latest: Snapshot | None) -> None:
    """Raise `DataConflict` if a commit of any kind has followed on the only snapshot on which the change may follow."""
    newest, planned = 0 if latest is None else latest.id, context.only_on
    planned_at, known = (planned.id, planned) if isinstance(planned, Snapshot) else (planned, None)
    is_other = known is not None and latest is not None and _commit_of(latest) != _commit_of(known)
    if planned_at is not None and (newest != planned_at or is_other):
        what = f"{context.address} is at snapshot {newest}, and the change was planned at snapshot {planned_at}"
        raise DataConflict(what, "another commit was made in between", "plan it again", planned_at=planned_at, latest=newest)


class DataConflictCheck:
    """Checks all snapshots after the one that the job has read, each of them once, however many attempts the commit takes."""

    def __init__(
        self,
        context: TableContext,
        identity: CommitIdentity,
        written: WrittenPlaces,
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
        self._last: Snapshot | None = None
        self._seen = context.snapshots.seen()
        """The newest snapshot that this process had read when its changes were complete; later that of the last check."""

    def check(self, latest: Snapshot | None) -> None:
        """Raise the conflict with the first snapshot, up to `latest`, that wrote to the same rows, or that cannot be read."""
        newest = latest.id if latest else 0
        if newest < self._checked:
            raise self._undecided(f"the table was rolled back to snapshot {newest}")
        if not self._only_distributed and self._is_replaced(latest):
            raise self._undecided(f"the table was rolled back, and another commit is snapshot {self._checked} now")
        try:
            found = self._written.first_conflict(self._suspects(latest, newest))
        except SnapshotGone as gone:
            raise self._undecided(gone.what) from gone
        if found is not None:
            raise self._conflict(found)
        self._seen = latest

    def _is_replaced(self, latest: Snapshot | None) -> bool:
        """Whether another commit has the number of a snapshot up to which all is known: numbers are used again after a rollback.

        What is written from what it held must not follow on the other one.
        """
        seen = self._seen
        if seen is None or latest is None or seen.id > self._checked:
            return False
        found = latest if seen.id == latest.id else self._context.snapshots.find(seen.id)
        return found is not None and _commit_of(found) != _commit_of(seen)

    def _suspects(self, latest: Snapshot | None, newest: int) -> Iterator[ConcurrentChange]:
        for number in range(self._checked + 1, newest + 1):
            snapshot = latest if number == newest else self._context.snapshots.find(number)
            if snapshot is None:
                raise self._undecided(f"snapshot {number} has expired")
            if not self._is_own(snapshot):
                yield from self._suspects_of(snapshot)
            self._checked, self._last = number, snapshot

    def _suspects_of(self, snapshot: Snapshot) -> Iterator[ConcurrentChange]:
        entries = self._with_new_rows(snapshot)
        yield from (ConcurrentChange(snapshot, entry.bucket_id, entry) for entry in entries if self._written.meets(entry))
        if snapshot.commit_kind in (APPEND, OVERWRITE) and not self._only_distributed:
            marked = self._with_other_vectors(snapshot, {entry.file.file_name for entry in entries})
            yield from (ConcurrentChange(snapshot, bucket_id) for bucket_id in marked if self._written.holds(bucket_id))

    def _with_other_vectors(self, snapshot: Snapshot, changed: Collection[str]) -> list[BucketId]:
        """The buckets in which the commit of a snapshot marked rows as deleted, or took marks away, in files that stay.

        `changed`: the data files that it added or deleted.
        """
        before, manifests = self._predecessor(snapshot), self._context.manifests
        if before is None and snapshot.id > 1:
            marks = snapshot.index_manifest is not None and bool(manifests.changed_vectors(None, snapshot))
            if marks or self._context.mode.deletion_vectors:
                raise SnapshotGone(f"snapshot {snapshot.id - 1} has expired")
            return []
        vectors = manifests.changed_vectors(before, snapshot)
        return [bucket_id for bucket_id, names in vectors.items() if not names <= set(changed)]

    def _predecessor(self, snapshot: Snapshot) -> Snapshot | None:
        number = snapshot.id - 1
        if self._last is not None and self._last.id == number:
            return self._last
        return self._context.snapshots.find(number) if number else None

    def _with_new_rows(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """The entries of a snapshot that change rows; of a COMPACT snapshot, those by which postponed rows got into buckets."""
        if snapshot.commit_kind in (APPEND, OVERWRITE):
            return [] if self._only_distributed else self._delta(snapshot)
        if not postpones_buckets(self._context):
            return []
        entries = self._delta(snapshot)
        distributed = {entry.partition for entry in entries if entry.kind == EntryKind.DELETE and entry.is_postponed}
        return [entry for entry in entries if entry.partition in distributed and not entry.is_postponed]

    def _delta(self, snapshot: Snapshot) -> list[ManifestEntry]:
        try:
            return self._context.manifests.delta_entries(snapshot)
        except SnapshotGone as error:
            raise self._undecided(f"snapshot {snapshot.id} has expired") from error

    def _is_own(self, snapshot: Snapshot) -> bool:
        """Whether this commit created the snapshot. Without an identifier that is never true, because jobs may share a user."""
        own = (self._identity.user, self._identity.identifier)
        return self._identity.is_repeatable and (snapshot.commit_user, snapshot.commit_identifier) == own

    def _conflict(self, found: ConcurrentChange) -> Conflict:
        snapshot, bucket_id = found.snapshot, found.bucket_id
        partition = self._context.partition_path_of(bucket_id.partition)
        what = f"{partition}bucket-{bucket_id.bucket}"
        if found.key:
            what = f"key {found.key} in {what}"
        elif isinstance(self._written, WrittenRanges) and found.entry is not None:
            what = f"a key range of {what}"
        return self._error(
            f"{what} was written after snapshot {self._read}, which this job has read",
            f"snapshot {snapshot.id} ({snapshot.commit_kind}, user {shown_name(snapshot.commit_user)}) "
            + ("changed it" if found.entry is not None else "changed which of its rows are marked as deleted"),
            "read the latest snapshot and run the job again: its rows may be out of date",
            partition=partition.rstrip("/"),
            bucket=bucket_id.bucket,
            snapshot_id=snapshot.id,
            commit_user=shown_name(snapshot.commit_user),
            commit_kind=snapshot.commit_kind,
            read_snapshot_id=self._read,
            **({"key": found.key} if found.key else {}),
        )

    def _undecided(self, why: str) -> Conflict:
        return self._error(
            f"cannot determine whether another commit wrote there after snapshot {self._read}, which this job has read",
            why,
            "read the latest snapshot and run the job again; keep snapshots longer than a job takes",
            read_snapshot_id=self._read,
        )


def _commit_of(snapshot: Snapshot) -> tuple[str, int, str, int]:
    """What tells a commit from others with its number, whatever metadata files it names since an erasure."""
    return snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind, snapshot.time_millis
