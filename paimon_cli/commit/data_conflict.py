"""Has somebody written where we write since we read? Paimon never asks (format section 10.3, "not checked").

Unasked, a read-modify-write undoes commits that it never saw, and rows of two writers of a bucket get overlapping sequence
numbers, so that the later commit may lose. Compactions change no rows: beside a write they are no conflict, and two of
them meet in the check of files.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_cli.commit.identity import CommitIdentity
from paimon_cli.errors import DataConflict
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot

OFF, PARTITION, BUCKET = "off", "partition", "bucket"

CheckData = Callable[[Snapshot | None], None]
"""Raises `DataConflict` if the changes must not go on top of that snapshot; asked again at every attempt."""


def unchecked(latest: Snapshot | None) -> None:
    """Lets everything pass."""


def check_of_places(
    context: TableContext, identity: CommitIdentity, places: set[tuple[bytes, int]], read_snapshot_id: int | None
) -> CheckData:
    """For rows added to these (partition, bucket), at the granularity of `commit.data-conflict-check`.

    `read_snapshot_id` None: nothing had been committed when the job began, so that every commit since then counts.
    """
    granularity = context.options.commit_data_conflict_check
    partitions = {partition for partition, _ in places}
    if granularity == OFF or not places:
        return unchecked
    if granularity == PARTITION:
        return check_of_partitions(context, identity, partitions.__contains__, read_snapshot_id)
    return DataConflictCheck(context, identity, lambda e: (e.partition, e.bucket) in places, read_snapshot_id).check


def check_of_partitions(
    context: TableContext, identity: CommitIdentity, written: Callable[[bytes], bool], read_snapshot_id: int | None
) -> CheckData:
    """For whole partitions, as an overwrite replaces them whatever the granularity."""
    if context.options.commit_data_conflict_check == OFF:
        return unchecked
    return DataConflictCheck(context, identity, lambda e: written(e.partition), read_snapshot_id).check


class DataConflictCheck:
    """Looks at each snapshot behind the read one, once however many attempts the commit takes."""

    def __init__(
        self,
        context: TableContext,
        identity: CommitIdentity,
        is_ours: Callable[[ManifestEntry], bool],
        read_snapshot_id: int | None,
    ) -> None:
        self._context = context
        self._identity = identity
        self._is_ours = is_ours
        self._read = self._checked = read_snapshot_id or 0

    def check(self, latest: Snapshot | None) -> None:
        """Raise `DataConflict` for the first snapshot up to `latest` that wrote to our place, or that cannot be read any more."""
        newest = latest.id if latest else 0
        if newest < self._checked:
            raise self._untold(f"the table went back to snapshot {newest}")
        for number in range(self._checked + 1, newest + 1):
            snapshot = latest if number == newest else self._context.snapshots.find(number)
            if snapshot is None:
                raise self._untold(f"snapshot {number} has expired")
            self._check_snapshot(snapshot)
            self._checked = number

    def _check_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.commit_kind not in (APPEND, OVERWRITE) or self._is_own(snapshot):
            return
        try:
            entries = self._context.manifests.delta_entries(snapshot)
        except SnapshotGone as error:
            raise self._untold(f"snapshot {snapshot.id} has expired") from error
        for entry in entries:
            if self._is_ours(entry):
                raise self._conflict(snapshot, entry)

    def _is_own(self, snapshot: Snapshot) -> bool:
        """Commits of one user without identifiers are several jobs', so they are strangers to each other."""
        own = (self._identity.user, self._identity.identifier)
        return self._identity.is_repeatable and (snapshot.commit_user, snapshot.commit_identifier) == own

    def _conflict(self, snapshot: Snapshot, entry: ManifestEntry) -> DataConflict:
        partition = self._context.partition_path_of(entry.partition)
        return DataConflict(
            f"{partition}bucket-{entry.bucket} was written after snapshot {self._read}, which this job had read",
            f"snapshot {snapshot.id} ({snapshot.commit_kind}, user {snapshot.commit_user}) changed it",
            "read the latest snapshot and run the job again: what it would write may be out of date",
            partition=partition.rstrip("/"),
            bucket=entry.bucket,
            snapshot_id=snapshot.id,
            commit_user=snapshot.commit_user,
            commit_kind=snapshot.commit_kind,
            read_snapshot_id=self._read,
        )

    def _untold(self, why: str) -> DataConflict:
        return DataConflict(
            f"it cannot be told whether others wrote to the same place after snapshot {self._read}, which this job had read",
            why,
            "read the latest snapshot and run the job again; keep snapshots longer than a job takes",
            read_snapshot_id=self._read,
        )
