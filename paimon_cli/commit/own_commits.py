"""Was this very commit made before, by an earlier run or by a twin of this process? (exactly once, format section 10.2)"""

from __future__ import annotations

from paimon_cli.commit.identity import BATCH_IDENTIFIER, CommitIdentity
from paimon_cli.errors import Conflict
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot


class OwnCommits:
    """Looks at every snapshot once; identities that are never repeated find nothing."""

    def __init__(self, context: TableContext, identity: CommitIdentity) -> None:
        self._context = context
        self._identity = identity
        self._seen = 0

    def made_before(self) -> bool:
        """Whether the newest snapshot of this user has reached the identifier (Java filterCommitted).

        An identity whose APPEND was published counts as made even if its COMPACT was not: the rows are there, and what the
        compaction would have merged can be merged again. Snapshots without an identifier of their own say nothing.
        """
        if not self._identity.is_repeatable:
            return False
        for snapshot in self._context.snapshots.newest_first():
            self._seen = max(self._seen, snapshot.id)
            if self._is_of_user(snapshot):
                return snapshot.commit_identifier >= self._identity.identifier
        return False

    def made_meanwhile(self, latest: Snapshot | None, kind: str) -> bool:
        """The same of the snapshots up to `latest` that are new since the last look, by user, identifier and kind.

        Raises `Conflict` if it cannot be told, or if a later identifier was committed: whoever repeats that one would not find it
        behind ours.
        """
        if latest is None or not self._identity.is_repeatable:
            return False
        for number in range(self._seen + 1, latest.id + 1):
            snapshot = latest if number == latest.id else self._context.snapshots.find(number)
            self._seen = number
            if snapshot is None:
                raise self._untold(number)
            if not self._is_of_user(snapshot):
                continue
            if snapshot.commit_identifier > self._identity.identifier:
                raise self._overtaken(snapshot)
            if (snapshot.commit_identifier, snapshot.commit_kind) == (self._identity.identifier, kind):
                return True
        return False

    def _is_of_user(self, snapshot: Snapshot) -> bool:
        return snapshot.commit_user == self._identity.user and snapshot.commit_identifier != BATCH_IDENTIFIER

    def _untold(self, number: int) -> Conflict:
        user, identifier = self._identity.user, self._identity.identifier
        return Conflict(
            f"it cannot be told whether commit {identifier} of user {user} was made meanwhile",
            f"snapshot {number} has expired since this commit began",
            "look for its rows before trying again; keep snapshots longer than a commit takes",
            snapshot_id=number,
            commit_user=user,
        )

    def _overtaken(self, snapshot: Snapshot) -> Conflict:
        user, identifier = self._identity.user, self._identity.identifier
        return Conflict(
            f"commit {identifier} of user {user} was overtaken by commit {snapshot.commit_identifier}",
            f"snapshot {snapshot.id} has it, and identifiers of one user must rise",
            "let one process at a time commit for a user, or give each its own --commit-user",
            snapshot_id=snapshot.id,
            commit_user=user,
            commit_identifier=str(snapshot.commit_identifier),
        )
