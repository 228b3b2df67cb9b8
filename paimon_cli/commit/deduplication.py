"""Who commits what, and whether this very commit was made before: exactly once (FORMAT.md, section 10.2)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.errors import Conflict, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.commit_users import MOST_USERS, CommitUsers
from paimon_cli.metadata.snapshot import Snapshot

BATCH_IDENTIFIER = 2**63 - 1
"""The identifier of commits that are never repeated (Java BatchWriteBuilder.COMMIT_IDENTIFIER)."""


@dataclass(frozen=True)
class CommitIdentity:
    """Identifiers of one user must rise from commit to commit; repeating one is recognised and does nothing.

    `newer_than`: no snapshot up to this one can hold the commit. `assume_new`: where the history no longer shows whether the
    commit was made before, assume that it was not.
    """

    user: str
    identifier: int = BATCH_IDENTIFIER
    newer_than: int = 0
    assume_new: bool = False

    @property
    def is_repeatable(self) -> bool:
        return self.identifier != BATCH_IDENTIFIER


def fresh_identity(context: TableContext) -> CommitIdentity:
    """A unique user, with the prefix of `commit.user-prefix` if the table has one."""
    prefix = context.options.commit_user_prefix
    own = context.names.uuid()
    return CommitIdentity(f"{prefix}_{own}" if prefix else own)


_LOOK_BACK = 32
"""How many snapshots of other tools a commit that is never repeated goes back to find recorded users."""


class Deduplication:
    """Looks at every snapshot once; identities that are never repeated find nothing."""

    def __init__(self, context: TableContext, identity: CommitIdentity) -> None:
        self._context = context
        self._identity = identity
        self._seen = 0

    def already_committed(self) -> bool:
        """Whether this user has committed the identifier, or a higher one (Java filterCommitted).

        The newest snapshot of the user decides, or the newest one that has recorded the users of expired snapshots. A snapshot
        below a gap, or below EARLIEST, proves nothing, because no other was built on it. Raises `Refused` if nothing can be
        known.

        A commit whose APPEND was published counts as made even if its COMPACT was not: the rows are there, and what the
        compaction would have merged can be merged again. Snapshots with the identifier of batch commits do not count.
        """
        identity = self._identity
        if not identity.is_repeatable:
            return False
        oldest = 1
        for snapshot in self._context.snapshots.unbroken(self._context.snapshots.latest()):
            self._seen = max(self._seen, snapshot.id)
            oldest = snapshot.id
            if oldest <= identity.newer_than:
                return False
            if self._is_of_user(snapshot):
                return snapshot.commit_identifier >= identity.identifier
            users = CommitUsers.from_properties(snapshot.properties)
            if users is not None:
                return self._was_remembered(users)
        if oldest > max(identity.newer_than + 1, 1):
            self._assume_new(
                f"snapshots before {oldest} have expired, and the remaining ones do not record who committed in them"
            )
        return False

    def _was_remembered(self, users: CommitUsers) -> bool:
        highest = users.identifier_of(self._identity.user)
        if highest is not None:
            return highest >= self._identity.identifier
        if users.may_know(self._identity.user):
            self._assume_new(f"the table records its last {MOST_USERS} users by name, and this is probably an older one")
        elif users.since > self._identity.newer_than + 1:
            self._assume_new(
                f"the users who committed before snapshot {users.since} had already expired when users were first recorded"
            )
        return False

    def _assume_new(self, why: str) -> None:
        if not self._identity.assume_new:
            raise Refused(
                f"cannot determine whether commit {self._identity.identifier} of user {self._identity.user} was made before",
                why,
                "look for its rows; if they are not there, run it again with --assume-new",
                commit_user=self._identity.user,
                commit_identifier=str(self._identity.identifier),
            )

    def committed_since_begin(self, latest: Snapshot | None, kind: str) -> bool:
        """Whether a snapshot up to `latest`, new since the last check, has this user, identifier and kind.

        Raises `Conflict` if that cannot be known, or if the user has committed a higher identifier: a repetition of that commit
        would not be recognised after ours.
        """
        if latest is None or not self._identity.is_repeatable:
            return False
        for number in range(self._seen + 1, latest.id + 1):
            snapshot = latest if number == latest.id else self._context.snapshots.find(number)
            self._seen = number
            if snapshot is None:
                raise self._undecided(number)
            if not self._is_of_user(snapshot):
                continue
            if snapshot.commit_identifier > self._identity.identifier:
                raise self._later_one_committed(snapshot)
            if (snapshot.commit_identifier, snapshot.commit_kind) == (self._identity.identifier, kind):
                return True
        return False

    def _is_of_user(self, snapshot: Snapshot) -> bool:
        return snapshot.commit_user == self._identity.user and snapshot.commit_identifier != BATCH_IDENTIFIER

    def _undecided(self, number: int) -> Conflict:
        user, identifier = self._identity.user, self._identity.identifier
        return Conflict(
            f"cannot determine whether commit {identifier} of user {user} was made meanwhile",
            f"snapshot {number} has expired since this commit began",
            "look for its rows before trying again; keep snapshots longer than a commit takes",
            snapshot_id=number,
            commit_user=user,
        )

    def _later_one_committed(self, snapshot: Snapshot) -> Conflict:
        user, identifier = self._identity.user, self._identity.identifier
        return Conflict(
            f"commit {identifier} of user {user} was overtaken by commit {snapshot.commit_identifier}",
            f"snapshot {snapshot.id} has it, and identifiers of one user must rise",
            "let one process at a time commit for a user, or give each its own --commit-user",
            snapshot_id=snapshot.id,
            commit_user=user,
            commit_identifier=str(snapshot.commit_identifier),
        )


def users_behind(context: TableContext, latest: Snapshot | None, identity: CommitIdentity) -> CommitUsers | None:
    """The users that a snapshot of this identity on top of `latest` records; None if no users have been recorded so far.

    Commits that are never repeated only carry on what they find nearby; the first repeatable commit reads all snapshots.
    """
    users, passed = _remembered(context, latest, None if identity.is_repeatable else _LOOK_BACK)
    if users is None:
        return None
    for snapshot in reversed(passed):
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            users = users.with_commit(snapshot.commit_user, snapshot.commit_identifier)
    return users.with_commit(identity.user, identity.identifier) if identity.is_repeatable else users


def _remembered(context: TableContext, latest: Snapshot | None, most: int | None) -> tuple[CommitUsers | None, list[Snapshot]]:
    """The newest record of users and the snapshots after it, newest first; else an empty record from the oldest snapshot."""
    passed: list[Snapshot] = []
    for snapshot in context.snapshots.unbroken(latest):
        users = CommitUsers.from_properties(snapshot.properties)
        if users is not None:
            return users, passed
        if len(passed) == most:
            return None, []
        passed.append(snapshot)
    oldest = passed[-1].id if passed else 1
    return (CommitUsers(oldest), passed) if most is None or oldest == 1 else (None, [])
