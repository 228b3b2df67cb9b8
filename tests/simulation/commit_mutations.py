"""Bugs planted in the commit: its checks, the publication, what it knows of the past, and its manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from paimon_cli.commit import (
    commit_messages,
    committer,
    data_conflict,
    deduplication,
    files_conflict,
    prepared_snapshot,
    snapshot_publish,
)
from paimon_cli.commit.deduplication import CommitUsers
from paimon_cli.commit.files_conflict import check_files
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.commit.prepared_snapshot import PreparedSnapshot, prepare_snapshot
from paimon_cli.commit.snapshot_publish import Fate, publish
from paimon_cli.errors import PaimonError
from paimon_cli.history import snapshot_history
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import table_change, write_job, write_request
from paimon_cli.lab.simulation.sim_storage import SimStorage
from paimon_cli.maintain.end_of_history import EndOfHistory
from paimon_cli.metadata.data_file import ALL_FILES, CommitMessage, EntryKind, FileFilter, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.storage import PutOutcome
from tests.simulation.mutation import Patch, both, planted_in

# checks before a commit


@planted_in("compactor-compactor")
def files_conflict_unchecked() -> Patch:
    return patch.object(committer, "check_files", lambda context, latest, changes: None)


@planted_in("compactor-compactor")
def files_checked_at_the_first_attempt_only() -> Patch:
    """What was true for the snapshot of the lost race is assumed for the one that won."""
    checked: set[int] = set()

    def once(context: TableContext, latest: Snapshot | None, changes: Any) -> None:
        if id(changes) not in checked:
            checked.add(id(changes))
            kept.append(changes)
            check_files(context, latest, changes)

    kept: list[Any] = []
    return patch.object(committer, "check_files", once)


@planted_in("upgrades")
def level_overlap_unchecked() -> Patch:
    return patch.object(files_conflict, "_check_levels", lambda *arguments: None)


@planted_in("checked-writers")
def data_conflict_checked_at_the_first_attempt_only() -> Patch:
    real = data_conflict.DataConflictCheck.check
    looked: list[Any] = []

    def once(self: Any, latest: Snapshot | None) -> None:
        if not any(check is self for check in looked):
            looked.append(self)
            real(self, latest)

    return patch.object(data_conflict.DataConflictCheck, "check", once)


@planted_in("checked-writers")
def data_conflict_overlooks_the_first_foreign_snapshot() -> Patch:
    real = data_conflict.DataConflictCheck._delta

    def later(self: Any, snapshot: Snapshot) -> list[ManifestEntry]:
        return real(self, snapshot) if snapshot.id > self._read + 1 else []

    return patch.object(data_conflict.DataConflictCheck, "_delta", later)


# publication


@planted_in("writer-writer")
def put_instead_of_put_if_absent() -> Patch:
    def put(self: SimStorage, path: str, data: bytes) -> PutOutcome:
        self.overwrite(path, data)
        return PutOutcome.CREATED

    return patch.object(SimStorage, "put_if_absent", put)


@planted_in("writer-writer")
def exists_then_rename() -> Patch:
    """How careless writers publish on stores without a conditional put."""

    def put(self: SimStorage, path: str, data: bytes) -> PutOutcome:
        if self.exists(path):
            return PutOutcome.EXISTS
        self.overwrite(path, data)
        return PutOutcome.CREATED

    return patch.object(SimStorage, "put_if_absent", put)


@planted_in("writer-writer")
def no_identity_check_after_exists() -> Patch:
    """The answer of a put gets lost, the second put meets the first one's file and takes it for another writer's."""

    def publish(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
        path, content = context.layout.snapshot(snapshot.id), snapshot.to_json().encode()
        while True:
            outcome = context.storage.put_if_absent(path, content)
            if outcome is not PutOutcome.UNKNOWN:
                return outcome is PutOutcome.CREATED

    return patch.object(committer, "publish", publish)


@planted_in("writer-writer")
def exists_taken_for_success() -> Patch:
    def publish(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
        context.storage.put_if_absent(context.layout.snapshot(snapshot.id), snapshot.to_json().encode())
        return context.storage.exists(context.layout.snapshot(snapshot.id))

    return patch.object(committer, "publish", publish)


@planted_in("writer-writer")
def unknown_taken_for_success() -> Patch:
    def publish(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
        outcome = context.storage.put_if_absent(context.layout.snapshot(snapshot.id), snapshot.to_json().encode())
        return outcome is not PutOutcome.EXISTS

    return patch.object(committer, "publish", publish)


@planted_in("writer-writer")
def clean_up_of_metadata_after_unknown() -> Patch:
    def planted(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
        try:
            return publish(context, snapshot, base)
        except PaimonError:
            for meta in context.manifests.manifest_list(snapshot.delta_manifest_list):
                context.storage.delete(context.layout.manifest(meta.file_name))
            raise

    return patch.object(committer, "publish", planted)


def _removed_whatever_happens(context: TableContext, messages: Sequence[CommitMessage], result: CommitResult) -> None:
    if result.failure is not None:
        for _, path in commit_messages.created_files(context, messages):
            context.storage.delete(path)


@planted_in("writer-writer")
def data_files_deleted_after_unknown() -> Patch:
    return patch.object(table_change, "settle_files", _removed_whatever_happens)


@planted_in("writer-writer")
def retry_after_unknown_as_if_lost() -> Patch:
    def planted(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
        try:
            return publish(context, snapshot, base)
        except PaimonError:
            return False

    return patch.object(committer, "publish", planted)


@planted_in("writer-writer")
def hint_before_publication() -> Patch:
    def planted(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
        snapshot_publish.write_latest_hint(context, snapshot)
        return publish(context, snapshot, base)

    return patch.object(committer, "publish", planted)


@planted_in("slow-writer")
def expired_number_taken_for_free() -> Patch:
    """A slow writer's snapshot brings a number back to life that others have used and expired."""
    return patch.object(snapshot_publish, "_fate", lambda context, snapshot, base: Fate.CONTINUES)


# the past


def _hinted_latest(self: Any) -> int | None:
    return self._hint(self.layout.latest_hint) or max(self.ids(), default=None)


@planted_in("writer-writer")
def hint_trusted_blindly() -> Patch:
    return patch.object(snapshot_history.SnapshotHistory, "latest_id", _hinted_latest)


@planted_in("two-batches")
def sequence_numbers_from_zero() -> Patch:
    real = write_request.plan_write
    return patch.object(write_job, "plan_write", lambda *given: replace(real(*given), first_sequences={}))


@planted_in("writer-writer-restart")
def repeated_commit_not_recognised() -> Patch:
    return both(
        patch.object(deduplication.Deduplication, "already_committed", lambda self: False),
        patch.object(deduplication.Deduplication, "committed_since_begin", lambda self, latest, kind: False),
    )


@planted_in("writer-writer-restart")
def repeated_commit_looked_for_in_the_newest_snapshot_only() -> Patch:
    def newest(self: Any) -> bool:
        latest = self._context.snapshots.latest()
        self._checked = latest.id if latest else 0
        same = latest is not None and latest.commit_user == self.identity.user
        return same and latest.commit_identifier >= self.identity.identifier

    return patch.object(deduplication.Deduplication, "already_committed", newest)


@planted_in("slow-writer-restart")
def a_snapshot_below_a_gap_counts_as_made() -> Patch:
    """A slow writer put its snapshot under an expired number and died; its rows are nowhere."""

    def over_gaps(self: Any, newest: Snapshot | None) -> Iterator[Snapshot]:
        entries = self.storage.list_directory(self.layout.snapshot_directory)
        numbers = [int(e.name.removeprefix("snapshot-")) for e in entries if e.name.startswith("snapshot-")]
        found = (self.find(number) for number in sorted(numbers, reverse=True))
        return (replace(snapshot, properties=None) for snapshot in found if snapshot is not None)

    return patch.object(snapshot_history.SnapshotHistory, "unbroken", over_gaps)


@planted_in("slow-writer-restart")
def users_are_forgotten_with_their_snapshots() -> Patch:
    return patch.object(CommitUsers, "with_commit", lambda self, user, identifier: self)


@planted_in("twins")
def twins_commit_not_seen_between_attempts() -> Patch:
    return patch.object(deduplication.Deduplication, "committed_since_begin", lambda self, latest, kind: False)


# manifests


@planted_in("writer-writer")
def base_of_the_old_latest_on_retry() -> Patch:
    """The base list of the first attempt is used again, whatever was published in the meantime."""
    first: dict[int, PreparedSnapshot] = {}

    def prepare(context: TableContext, latest: Snapshot | None, delta: Any, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, delta, *others)
        kept.append(delta)
        old = first.setdefault(id(delta), prepared).snapshot
        stale = replace(
            prepared.snapshot,
            base_manifest_list=old.base_manifest_list,
            base_manifest_list_size=old.base_manifest_list_size,
        )
        return PreparedSnapshot(stale, ())

    kept: list[Any] = []
    return patch.object(committer, "prepare_snapshot", prepare)


@planted_in("two-batches")
def delta_of_the_latest_lost_in_the_base() -> Patch:
    real = prepared_snapshot.merge_manifests

    def merge(context: TableContext, manifests: Sequence[Any], *others: Any) -> Any:
        return real(context, manifests[:-1] if len(manifests) > 1 else manifests, *others)

    return patch.object(prepared_snapshot, "merge_manifests", merge)


@planted_in("merged-manifests")
def merging_drops_deletes_of_older_manifests() -> Patch:
    real = FileTable.net

    def only_added(table: FileTable) -> FileTable:
        left = real(table)
        return left._without(left.numbers("kinds") != EntryKind.ADD)

    return patch.object(FileTable, "net", only_added)


@planted_in("merged-at-once")
def merging_forgets_deletes() -> Patch:
    """ADD and DELETE of a file meet in one manifest, and the ADD survives."""
    return patch.object(FileTable, "net", lambda table: table._without(table.numbers("kinds") != EntryKind.ADD))


@planted_in("compactor-compactor")
def deletes_folded_in_their_own_manifest_only() -> Patch:
    def live(reader: ManifestReader, snapshot: Snapshot, manifests: Iterable[Any], wanted: FileFilter = ALL_FILES) -> FileTable:
        tables = [FileTable.of(pieces).live() for pieces in reader.tables_of_each([*manifests])]
        return FileTable.of((piece for table in tables for piece in table.pieces), wanted)

    return patch.object(ManifestReader, "live_files_in", live)


@planted_in("writer-writer")
def delta_manifests_discarded_before_the_retry() -> Patch:
    """A lost race deletes all that the attempt wrote, but the next attempt names its delta again."""

    def prepare(context: TableContext, latest: Snapshot | None, delta: Any, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, delta, *others)
        return PreparedSnapshot(prepared.snapshot, (*prepared.files, *delta.files))

    return patch.object(committer, "prepare_snapshot", prepare)


@planted_in("writer-compactor")
def total_counted_on_the_snapshot_that_was_read() -> Patch:
    totals: dict[int, int] = {}

    def prepare(context: TableContext, latest: Snapshot | None, delta: Any, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, delta, *others)
        kept.append(delta)
        total = totals.setdefault(id(delta), prepared.snapshot.total_record_count)
        return PreparedSnapshot(replace(prepared.snapshot, total_record_count=total), prepared.files)

    kept: list[Any] = []
    return patch.object(committer, "prepare_snapshot", prepare)


@planted_in("writer-writer")
def times_of_each_writers_own_clock() -> Patch:
    def prepare(context: TableContext, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, *others)
        now = context.clock.now_millis()
        return PreparedSnapshot(replace(prepared.snapshot, time_millis=now), prepared.files)

    return patch.object(committer, "prepare_snapshot", prepare)


@planted_in("writer-drop-later")
def a_commit_does_not_look_for_the_schema_when_its_predecessor_is_gone() -> Patch:
    return patch.object(snapshot_publish, "is_same_table", lambda context: True)


@planted_in("writer-drop-later")
def a_drop_deletes_the_newest_snapshots_first() -> Patch:
    def newest_first(self: EndOfHistory) -> None:
        for number in reversed(SnapshotHistory(self._storage, self._layout).ids()[:-1]):
            self._storage.delete(self._layout.snapshot(number))

    return patch.object(EndOfHistory, "remove_snapshots", newest_first)
