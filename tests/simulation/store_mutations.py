"""Bugs planted in what only object stores use: uploads in the background, outcomes of conditional puts, snapshots read ahead."""

from __future__ import annotations

from contextlib import suppress
from unittest.mock import patch

from paimon_cli.commit import commit_records, committer, snapshot_publish
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain import expire_snapshots
from paimon_cli.maintain.expire_snapshots import ExpiryPlan
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.background_writes import BackgroundWrites
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.object_stores import StoreError
from paimon_cli.storage.overlapped_storage import OverlappedStorage
from paimon_cli.storage.storage import PutOutcome, Storage, Verified
from tests.simulation.mutation import Patch, nothing, planted_in


@planted_in("remote-inline-writer-expiry")
def second_snapshot_of_a_commit_builds_on_that_of_the_plan() -> Patch:
    """The compaction of the rows just written meets a files conflict, and is dropped."""

    def hint_alone(context: TableContext, snapshot: Snapshot) -> None:
        context.storage.overwrite(context.layout.latest_hint, str(snapshot.id).encode())

    return patch.object(committer, "write_latest_hint", hint_alone)


@planted_in("remote-update-and-write")
def snapshot_fetched_for_an_earlier_call_is_used() -> Patch:
    return patch.object(SnapshotHistory, "forget_fetched", nothing)


@planted_in("remote-writer-writer")
def publication_does_not_wait_for_uploads() -> Patch:
    def at_once(self: OverlappedStorage, path: str, data: bytes) -> PutOutcome:
        return self.inner.put_if_absent(path, data)

    return patch.object(OverlappedStorage, "put_if_absent", at_once)


@planted_in("remote-writer-writer")
def failed_upload_is_overlooked() -> Patch:
    return patch.object(BackgroundWrites, "_raise_failures", BackgroundWrites.wait)


@planted_in("remote-inline-writer-compactor")
def file_is_read_before_its_upload() -> Patch:
    return patch.object(OverlappedStorage, "before", nothing)


@planted_in("remote-writer-writer")
def broken_connection_counts_as_a_refusal() -> Patch:
    return patch.object(StoreError, "was_not_sent", True)


@planted_in("remote-writer-writer")
def busy_store_counts_as_a_success() -> Patch:
    return patch.object(snapshot_publish, "what_became", lambda *_: Verified.OURS)


def _created_or_theirs(storage: Storage, path: str, data: bytes, outcome: PutOutcome) -> Verified:
    return Verified.OURS if outcome is PutOutcome.CREATED else Verified.THEIRS


@planted_in("remote-writer-writer")
def existing_snapshot_is_always_that_of_another_writer() -> Patch:
    return patch.object(snapshot_publish, "what_became", _created_or_theirs)


@planted_in("remote-slow-writer")
def put_is_repeated_if_the_existing_object_is_missing() -> Patch:
    """It was our own, and has expired: the writer takes the second put for its only one, and the table for one without it."""

    def put(self: ObjectStorage, path: str, data: bytes) -> PutOutcome:
        outcome = self._put_once(path, data)
        return outcome if outcome is not PutOutcome.EXISTS or self.exists(path) else self._put_once(path, data)

    return patch.object(ObjectStorage, "put_if_absent", put)


@planted_in("remote-twins")
def open_record_of_a_commit_that_another_process_made() -> Patch:
    return patch.object(commit_records._Intent, "confirm", lambda self, snapshot: None)


@planted_in("remote-writer-expiry")
def expiry_goes_on_after_a_failed_delete() -> Patch:
    """As deletes in parallel do."""

    def delete(context: TableContext, plan: ExpiryPlan, deleted: list[int]) -> None:
        for number in plan.snapshot_ids:
            with suppress(StorageUnavailable):
                context.storage.delete(context.layout.snapshot(number))

    return patch.object(expire_snapshots, "_delete_snapshots", delete)
