"""The commit loop: latest -> check -> prepare -> publish -> settle, again from the latest until it is published.

Everything that is written before the publication is new files that nobody knows of, and the publication is one atomic
step of the storage; so a commit happens whole or not at all, wherever it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paimon_cli.commit.attempts import attempts
from paimon_cli.commit.commit_cleanup import discard, discarded_on
from paimon_cli.commit.files_conflict import check_files
from paimon_cli.commit.identity import CommitIdentity
from paimon_cli.commit.metadata_writer import MetadataWriter
from paimon_cli.commit.prepared_snapshot import DeltaManifests, prepare_snapshot
from paimon_cli.commit.snapshot_changes import ChangesOn, SnapshotChanges, append_changes, compact_changes, overwrite_changes
from paimon_cli.commit.snapshot_publish import announce, publish
from paimon_cli.errors import FilesConflict, PaimonError, Refused, StorageUnavailable
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class CommitResult:
    """The snapshots that a commit made, oldest first, and how many attempts they took in all.

    `already_committed`: an earlier run made this commit, nothing was done now.
    """

    snapshots: list[Snapshot] = field(default_factory=list)
    attempts: int = 0
    already_committed: bool = False


class Committer:
    """Turns commit messages into snapshots of one table."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def commit(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        *,
        watermark: int | None = None,
        check_append_files: bool = False,
    ) -> CommitResult:
        """An APPEND snapshot for the append halves, then a COMPACT snapshot for the compact halves; none for nothing.

        Raises `FilesConflict` if other commits contradict this one (its data files are the caller's to delete, see
        `commit.abort`), `StorageUnavailable` if all retries lost the race, `CommitUnknown` if the outcome cannot be told.
        """
        append, compact = append_changes(messages, check_append_files), compact_changes(messages)
        plans: list[ChangesOn] = []
        if not append.is_empty or (compact.is_empty and self._context.options.commit_force_create_snapshot):
            plans.append(lambda latest: append)
        if not compact.is_empty:
            plans.append(lambda latest: compact)
        return self._commit(plans, identity, watermark)

    def overwrite(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        *,
        keep_partition: Callable[[bytes], bool],
        watermark: int | None = None,
    ) -> CommitResult:
        """An OVERWRITE snapshot: the new files take the place of all that lives in the partitions that `keep_partition` selects.

        What lives there is found out anew at every attempt, so files that others added meanwhile go too. Compact halves
        follow as a COMPACT snapshot. Errors as `commit`.
        """
        compact = compact_changes(messages)
        plans: list[ChangesOn] = [lambda latest: overwrite_changes(self._context, messages, keep_partition, latest)]
        if not compact.is_empty:
            plans.append(lambda latest: compact)
        return self._commit(plans, identity, watermark)

    def is_committed(self, identity: CommitIdentity) -> bool:
        """Whether the newest snapshot of this user has reached the identifier (Java filterCommitted)."""
        for snapshot in self._context.snapshots.newest_first():
            if snapshot.commit_user == identity.user:
                return snapshot.commit_identifier >= identity.identifier
        return False

    def _commit(self, plans: Sequence[ChangesOn], identity: CommitIdentity, watermark: int | None) -> CommitResult:
        if identity.is_repeatable and self.is_committed(identity):
            return CommitResult(already_committed=True)
        done = CommitResult()
        for changes_on in plans:
            try:
                snapshot, attempt = self._publish(changes_on, identity, watermark)
            except FilesConflict as conflict:
                conflict.details["published_snapshots"] = [snapshot.id for snapshot in done.snapshots]
                raise
            made = [] if snapshot is None else [snapshot]
            done = CommitResult(done.snapshots + made, done.attempts + attempt)
        return done

    def _publish(self, changes_on: ChangesOn, identity: CommitIdentity, watermark: int | None) -> tuple[Snapshot | None, int]:
        context, writer = self._context, MetadataWriter(self._context)
        delta: DeltaManifests | None = None
        for attempt in attempts(context):
            try:
                with discarded_on(context, writer, PaimonError, KeyboardInterrupt):
                    latest = context.snapshots.latest()
                    changes = changes_on(latest)
                    if self._is_needless(changes):
                        return None, attempt
                    check_files(context, latest, changes)
                    if delta is None or delta.changes is not changes:
                        discard(context, delta.files if delta else ())
                        delta = DeltaManifests.write(changes, writer)
                    prepared = prepare_snapshot(context, latest, delta, identity, watermark, writer)
            except SnapshotGone:
                writer, delta = MetadataWriter(context), None
                continue
            with discarded_on(context, writer, Refused):
                published = publish(context, prepared.snapshot)
            if published:
                announce(context, prepared.snapshot)
                return prepared.snapshot, attempt
            discard(context, prepared.files)
        discard(context, writer.written)
        raise self._spent(attempt)

    def _is_needless(self, changes: SnapshotChanges) -> bool:
        return changes.is_empty and not self._context.options.commit_force_create_snapshot

    def _spent(self, attempt: int) -> StorageUnavailable:
        return StorageUnavailable(
            f"the commit to {self._context.url} was not made",
            f"other writers were faster in all {attempt} attempts",
            "run the job again, or raise commit.max-retries and commit.timeout",
            attempts=attempt,
        )
