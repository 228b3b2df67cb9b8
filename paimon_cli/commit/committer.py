"""The commit loop: read the latest snapshot, check, prepare, publish; after a lost race start again (FORMAT.md, section 10.2).

Before the publication only new files are written, which no snapshot names, and the publication is one atomic operation of the
storage. So a commit happens as a whole or not at all, wherever it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paimon_cli.commit.commit_messages import (
    ChangesOn,
    SnapshotChanges,
    append_changes,
    compact_changes,
    oldest_read,
    overwrite_changes,
)
from paimon_cli.commit.data_conflict import OFF, CheckData, check_of_messages, check_of_partitions, unchecked
from paimon_cli.commit.deduplication import CommitIdentity, Deduplication
from paimon_cli.commit.files_conflict import check_files
from paimon_cli.commit.prepared_snapshot import DeltaManifests, MetadataWriter, discard, discarded_on, prepare_snapshot
from paimon_cli.commit.snapshot_publish import RetryPolicy, announce, publish
from paimon_cli.errors import Conflict, PaimonError, Refused, StorageUnavailable, Unpublished, unpublished
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.option_catalog import COMMIT


@dataclass(frozen=True)
class CommitResult:
    """The snapshots that a commit made, oldest first, and how many attempts it took: 1 if no race was lost.

    `already_committed`: an earlier run, or a twin of this process, made this commit. Files of the messages that no snapshot
    names are then the caller's to delete, as after a conflict.
    """

    snapshots: tuple[Snapshot, ...] = ()
    attempts: int = 0
    already_committed: bool = False

    def followed_by(self, other: CommitResult) -> CommitResult:
        attempts = other.attempts + max(self.attempts - 1, 0)
        return CommitResult(self.snapshots + other.snapshots, attempts, other.already_committed)


@dataclass(frozen=True)
class _Step:
    """One snapshot to make."""

    changes_on: ChangesOn
    check_data: CheckData = unchecked


class Committer:
    """Turns commit messages into snapshots of one table."""

    def __init__(self, context: TableContext) -> None:
        context.check(COMMIT)
        self._context = context

    def commit(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        *,
        watermark: int | None = None,
        check_append_files: bool = False,
    ) -> CommitResult:
        """Publish an APPEND snapshot for the append halves, then a COMPACT snapshot for the compact halves.

        Raises `FilesConflict` or `DataConflict` if other commits contradict this one (its data files are the caller's to delete,
        see `commit.abort`), `StorageUnavailable` if all retries lost the race, `CommitUnknown` if the outcome is unknown.
        """
        append, compact = append_changes(messages, check_append_files), compact_changes(messages)
        steps: list[_Step] = []
        if not append.is_empty or (compact.is_empty and self._context.options.commit_force_create_snapshot):
            check = check_of_messages(self._context, identity, messages, append.read_snapshot_id)
            steps.append(_Step(lambda latest: append, check))
        return self._commit([*steps, *_compaction(compact)], identity, watermark)

    def overwrite(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        *,
        replaced_partitions: Callable[[bytes], bool],
        watermark: int | None = None,
        read_snapshot_id: int | None = None,
    ) -> CommitResult:
        """An OVERWRITE snapshot: the new files replace all live files of the partitions that `replaced_partitions` selects.

        The live files are read again at every attempt, so files that others added in the meantime are replaced too, unless the
        data conflict check is on: it checks from `read_snapshot_id` (else that of the messages) onwards. Compact halves follow as
        a COMPACT snapshot. Errors as `commit`.
        """
        read = oldest_read(messages) if read_snapshot_id is None else read_snapshot_id
        check = check_of_partitions(self._context, identity, replaced_partitions, read)
        step = _Step(lambda latest: overwrite_changes(self._context, messages, replaced_partitions, latest), check)
        return self._commit([step, *_compaction(compact_changes(messages))], identity, watermark)

    def _commit(self, steps: Sequence[_Step], identity: CommitIdentity, watermark: int | None) -> CommitResult:
        with unpublished():
            own = Deduplication(self._context, identity)
            is_made = own.already_committed()
        if is_made:
            return CommitResult(already_committed=True)
        done = CommitResult()
        for step in steps:
            try:
                done = done.followed_by(self._publish(step, identity, own, watermark))
            except (Conflict, StorageUnavailable) as refusal:
                refusal.details["published_snapshots"] = [snapshot.id for snapshot in done.snapshots]
                raise
            if done.already_committed:
                break
        return done

    def _publish(self, step: _Step, identity: CommitIdentity, own: Deduplication, watermark: int | None) -> CommitResult:
        context, writer = self._context, MetadataWriter(self._context)
        delta: DeltaManifests | None = None
        attempts = RetryPolicy(context)
        for attempt in attempts:
            try:
                with discarded_on(context, writer, PaimonError, Unpublished), unpublished():
                    latest = context.snapshots.latest()
                    changes = step.changes_on(latest)
                    is_made = own.committed_since_begin(latest, changes.kind)
                    if is_made or self._is_needless(changes):
                        discard(context, writer.written)
                        return CommitResult(attempts=attempt, already_committed=is_made)
                    self._check(step, changes, latest, attempt)
                    if delta is None or delta.changes is not changes:
                        discard(context, delta.files if delta else ())
                        delta = DeltaManifests.write(changes, writer)
                    prepared = prepare_snapshot(context, latest, delta, identity, watermark, writer, attempts)
            except SnapshotGone:
                writer, delta = MetadataWriter(context), None
                continue
            with discarded_on(context, writer, Refused, StorageUnavailable):
                published = publish(context, prepared.snapshot, latest)
            if published:
                announce(context, prepared.snapshot)
                return CommitResult((prepared.snapshot,), attempt)
            discard(context, prepared.files)
        discard(context, writer.written)
        raise attempts.exhausted()

    def _check(self, step: _Step, changes: SnapshotChanges, latest: Snapshot | None, attempt: int) -> None:
        added = sum(entry.kind == ADD for entry in changes.entries)
        with self._context.trace.timed(
            "check",
            attempt=attempt,
            kind=changes.kind,
            latest=None if latest is None else latest.id,
            added=added,
            deleted=len(changes.entries) - added,
            data_conflict_check=OFF if step.check_data is unchecked else self._context.options.commit_data_conflict_check,
        ):
            step.check_data(latest)
            check_files(self._context, latest, changes)

    def _is_needless(self, changes: SnapshotChanges) -> bool:
        return changes.is_empty and not self._context.options.commit_force_create_snapshot

    def is_committed(self, identity: CommitIdentity) -> bool:
        """Whether an earlier run made this commit (Java filterCommitted); always False for identities that are never repeated."""
        return Deduplication(self._context, identity).already_committed()


def _compaction(compact: SnapshotChanges) -> list[_Step]:
    return [] if compact.is_empty else [_Step(lambda latest: compact)]
