"""Who commits what, and whether this very commit was made before: exactly once (FORMAT.md, sections 3.2 and 10.2).

The highest commit identifier of each user is kept in the `properties` of snapshots, after the user's own have expired. Other
tools ignore these properties and do not carry them on, so they are searched for in the snapshots from the newest down.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paimon_cli.errors import Conflict, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot

PROPERTY = "paimon-cli.commit-users"
MOST_USERS = 256
"""Users recorded by name, the most recent ones; older ones are in a Bloom filter."""
_LONGEST_NAME = 64
_FILTER_BYTES = 8192
"""With 10,000 users a filter mistakes 5 of 100 unknown users for known ones; while it is nearly empty it compresses well."""


@dataclass(frozen=True)
class CommitUsers:
    """The repeatable commits from snapshot `since` on; 1 means all.

    `highest`: the highest identifier by user, the most recent last. `others`: a Bloom filter of all older users.
    """

    since: int = 1
    highest: Mapping[str, int] = field(default_factory=dict)
    others: bytes = b""

    def identifier_of(self, user: str) -> int | None:
        """The highest identifier of the user; None if it is not known by name."""
        return self.highest.get(_name(user))

    def may_know(self, user: str) -> bool:
        """False only if no user of this name has committed since `since`."""
        name = _name(user)
        return name in self.highest or (bool(self.others) and all(self.others[at] & bit for at, bit in _bits(name)))

    def with_commit(self, user: str, identifier: int) -> CommitUsers:
        name = _name(user)
        highest = {other: known for other, known in self.highest.items() if other != name}
        highest[name] = max(identifier, self.highest.get(name, identifier))
        others = self.others
        if len(highest) > MOST_USERS:
            forgotten = next(iter(highest))
            del highest[forgotten]
            others = _with_bits(others, forgotten)
        return replace(self, highest=highest, others=others)

    def to_text(self) -> str:
        content: dict[str, object] = {"since": self.since}
        if self.highest:
            content["highest"] = dict(self.highest)
        if self.others:
            content["others"] = base64.b64encode(zlib.compress(self.others)).decode()
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_properties(properties: Mapping[str, str] | None) -> CommitUsers | None:
        """None if the snapshot has no record of users, or an unreadable one: then it counts as a snapshot of another tool."""
        text = (properties or {}).get(PROPERTY)
        try:
            return None if text is None else _parsed(json.loads(text))
        except (ValueError, zlib.error, RecursionError):
            return None


def _parsed(content: object) -> CommitUsers:
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    since, highest, packed = content.get("since"), content.get("highest", {}), content.get("others", "")
    if type(since) is not int or since < 1 or not isinstance(highest, dict) or not isinstance(packed, str):
        raise ValueError("fields of other types")
    if not all(type(identifier) is int for identifier in highest.values()):
        raise ValueError("an identifier that is no whole number")
    others = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), _FILTER_BYTES + 1) if packed else b""
    if len(others) not in (0, _FILTER_BYTES):
        raise ValueError("a filter of another size")
    return CommitUsers(since, highest, others)


def _name(user: str) -> str:
    """Long names are replaced by their digest, to limit the size of the record."""
    if len(user) <= _LONGEST_NAME:
        return user
    return "sha256:" + hashlib.sha256(user.encode(errors="surrogatepass")).hexdigest()


def _bits(name: str) -> list[tuple[int, int]]:
    """Four positions in the filter as byte and bit; two bytes of a digest address its 65,536 bits."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    places = [int.from_bytes(digest[at : at + 2], "big") for at in range(0, 8, 2)]
    return [(place >> 3, 1 << (place & 7)) for place in places]


def _with_bits(others: bytes, name: str) -> bytes:
    filled = bytearray(others or bytes(_FILTER_BYTES))
    for at, bit in _bits(name):
        filled[at] |= bit
    return bytes(filled)


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
    own = context.random.uuid()
    return CommitIdentity(f"{prefix}_{own}" if prefix else own)


_LOOK_BACK = 32
"""How many snapshots of other tools a commit that is never repeated goes back to find recorded users."""


class Deduplication:
    """Looks at every snapshot once; identities that are never repeated find nothing."""

    def __init__(self, context: TableContext, identity: CommitIdentity) -> None:
        self._context = context
        self.identity = identity
        self._seen = 0

    def already_committed(self) -> bool:
        """Whether this user has committed the identifier, or a higher one (Java filterCommitted).

        The newest snapshot of the user decides, or the newest one that has recorded the users of expired snapshots. A snapshot
        below a gap, or below EARLIEST, proves nothing, because no other was built on it. Raises `Refused` if nothing can be
        known.

        A commit whose APPEND was published counts as made even if its COMPACT was not: the rows are there, and what the
        compaction would have merged can be merged again. Snapshots with the identifier of batch commits do not count.
        """
        identity = self.identity
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
        highest = users.identifier_of(self.identity.user)
        if highest is not None:
            return highest >= self.identity.identifier
        if users.may_know(self.identity.user):
            self._assume_new(f"the table records its last {MOST_USERS} users by name, and this is probably an older one")
        elif users.since > self.identity.newer_than + 1:
            self._assume_new(
                f"the users who committed before snapshot {users.since} had already expired when users were first recorded"
            )
        return False

    def _assume_new(self, why: str) -> None:
        if not self.identity.assume_new:
            raise Refused(
                f"cannot determine whether commit {self.identity.identifier} of user {self.identity.user} was made before",
                why,
                "look for its rows; if they are not there, run it again with --assume-new",
                commit_user=self.identity.user,
                commit_identifier=str(self.identity.identifier),
            )

    def committed_since_begin(self, latest: Snapshot | None, kind: str) -> bool:
        """Whether a snapshot up to `latest`, new since the last check, has this user, identifier and kind.

        Raises `Conflict` if that cannot be known, or if the user has committed a higher identifier: a repetition of that commit
        would not be recognised after ours.
        """
        if latest is None or not self.identity.is_repeatable:
            return False
        for number in range(self._seen + 1, latest.id + 1):
            snapshot = latest if number == latest.id else self._context.snapshots.find(number)
            self._seen = number
            if snapshot is None:
                raise self._undecided(number)
            if not self._is_of_user(snapshot):
                continue
            if snapshot.commit_identifier > self.identity.identifier:
                raise self._later_one_committed(snapshot)
            if (snapshot.commit_identifier, snapshot.commit_kind) == (self.identity.identifier, kind):
                return True
        return False

    def _is_of_user(self, snapshot: Snapshot) -> bool:
        return snapshot.commit_user == self.identity.user and snapshot.commit_identifier != BATCH_IDENTIFIER

    def _undecided(self, number: int) -> Conflict:
        user, identifier = self.identity.user, self.identity.identifier
        return Conflict(
            f"cannot determine whether commit {identifier} of user {user} was made meanwhile",
            f"snapshot {number} has expired since this commit began",
            "look for its rows before trying again; keep snapshots longer than a commit takes",
            snapshot_id=number,
            commit_user=user,
        )

    def _later_one_committed(self, snapshot: Snapshot) -> Conflict:
        user, identifier = self.identity.user, self.identity.identifier
        return Conflict(
            f"commit {identifier} of user {user} was overtaken by commit {snapshot.commit_identifier}",
            f"snapshot {snapshot.id} has it, and identifiers of one user must rise",
            "let one process at a time commit for a user, or give each its own --commit-user",
            snapshot_id=snapshot.id,
            commit_user=user,
            commit_identifier=str(snapshot.commit_identifier),
        )


def recorded_users(context: TableContext, latest: Snapshot | None, identity: CommitIdentity) -> CommitUsers | None:
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


def user_properties(context: TableContext, latest: Snapshot | None, identity: CommitIdentity) -> dict[str, str]:
    """`recorded_users` as properties of a snapshot."""
    users = recorded_users(context, latest, identity)
    return {} if users is None else {PROPERTY: users.to_text()}


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
