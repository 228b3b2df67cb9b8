"""Recognises commits that were made before, so that a repeated commit happens exactly once (FORMAT.md, sections 3.2 and 10.2).

The `properties` of snapshots record the highest commit identifier of each user, also after the user's own snapshots have expired.
Other tools ignore these properties and do not copy them, so they are searched for from the newest snapshot backwards. If the
history cannot tell, because other tools commit and snapshots expire, records beside the snapshots decide (`commit_records`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from paimon_cli.commit.commit_records import (
    UNKNOWN_RECORD,
    CommitIntents,
    last_record,
    properties_of_record,
    recorded_name,
    was_made,
)
from paimon_cli.errors import Conflict, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.redaction import shown_name

PROPERTY = "paimon-cli.commit-users"
WRITERS_PROPERTY = "paimon-cli.writers"
MAX_NAMED_USERS = 256
"""How many users are recorded by name, the most recent ones. Older ones are in a Bloom filter."""
_FILTER_BYTES = 8192
"""With 10,000 users, the filter takes 5 of 100 unknown users for known ones. It compresses well while it is nearly empty."""


@dataclass(frozen=True)
class CommitUsers:
    """A record of all repeatable commits from snapshot `since` on (1: of all).

    `highest`: user -> highest identifier, the most recent user last. `others`: a Bloom filter of all older users.
    """

    since: int = 1
    highest: Mapping[str, int] = field(default_factory=dict)
    others: bytes = b""

    def identifier_of(self, user: str) -> int | None:
        """The highest identifier of the user, None if the user is not recorded by name."""
        return self.highest.get(recorded_name(user))

    def may_know(self, user: str) -> bool:
        """False only if the user has not committed from snapshot `since` on."""
        name = recorded_name(user)
        return name in self.highest or (bool(self.others) and all(self.others[at] & bit for at, bit in _bits(name)))

    def with_commit(self, user: str, identifier: int) -> CommitUsers:
        """The record with one more commit."""
        name = recorded_name(user)
        highest = {other: number for other, number in self.highest.items() if other != name}
        highest[name] = max(identifier, self.highest.get(name, identifier))
        others = self.others
        if len(highest) > MAX_NAMED_USERS:
            oldest = next(iter(highest))
            del highest[oldest]
            others = _with_bits(others, oldest)
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
        """The record in the properties of a snapshot; None without one, or if it cannot be parsed, as for other tools."""
        text = (properties or {}).get(PROPERTY)
        try:
            return None if text is None else _parsed(json.loads(text))
        except (ValueError, zlib.error, RecursionError):
            return None


def _parsed(content: object) -> CommitUsers:
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    since, highest, packed = content.get("since"), content.get("highest", {}), content.get("others", "")
    if type(since) is not int or since < 1 or not isinstance(highest, dict) or not isinstance(packed, str):
        raise ValueError("fields of wrong types")
    if not all(type(identifier) is int for identifier in highest.values()):
        raise ValueError("an identifier that is not a whole number")
    others = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), _FILTER_BYTES + 1) if packed else b""
    if len(others) not in (0, _FILTER_BYTES):
        raise ValueError("a filter of the wrong size")
    return CommitUsers(since, highest, others)


def _bits(name: str) -> list[tuple[int, int]]:
    """The four bits of a name in the filter, as (byte, mask). Two bytes of a digest address one of its 65,536 bits."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    bits = [int.from_bytes(digest[at : at + 2], "big") for at in range(0, 8, 2)]
    return [(bit >> 3, 1 << (bit & 7)) for bit in bits]


def _with_bits(others: bytes, name: str) -> bytes:
    filled = bytearray(others or bytes(_FILTER_BYTES))
    for at, bit in _bits(name):
        filled[at] |= bit
    return bytes(filled)


BATCH_IDENTIFIER = 2**63 - 1
"""The identifier of commits that are never repeated (Java BatchWriteBuilder.COMMIT_IDENTIFIER)."""


WriterCommit = tuple[str, int]
"""The user and identifier of a commit."""


@dataclass(frozen=True)
class CommitIdentity:
    """The user and identifier of a commit. Identifiers of a user must increase; a repeated one is recognised and does nothing.

    `newer_than`: no snapshot up to this id can hold the commit. `assume_new`: if neither the history nor a record shows any more
    whether the commit was made before, assume that it was not. `writers`: (user, identifier) of the commits of other writers that
    this one makes in their place; none for a writer that commits itself. `properties`: further properties of its snapshot, which
    its record beside the snapshots has, too, such as how far a stream of changes was read.
    """

    user: str
    identifier: int = BATCH_IDENTIFIER
    newer_than: int = 0
    assume_new: bool = False
    writers: tuple[WriterCommit, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def is_repeatable(self) -> bool:
        return self.identifier != BATCH_IDENTIFIER


def fresh_identity(context: TableContext) -> CommitIdentity:
    """An identity with a unique user, which starts with `commit.user-prefix` if that is set."""
    prefix = context.options.commit_user_prefix
    uuid = context.random.uuid()
    return CommitIdentity(f"{prefix}_{uuid}" if prefix else uuid)


def commits_in(snapshot: Snapshot) -> set[WriterCommit]:
    """The commits that a snapshot makes: its own, and the commits of writers that it replaces."""
    return {(snapshot.commit_user, snapshot.commit_identifier), *_writers_in(snapshot.properties)}


def _writers_in(properties: Mapping[str, str] | None) -> Iterable[WriterCommit]:
    text = (properties or {}).get(WRITERS_PROPERTY)
    if text is None:
        return ()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    pairs = content if isinstance(content, list) else []
    return ((p[0], p[1]) for p in pairs if isinstance(p, list) and [type(part) for part in p] == [str, int])


_LOOK_BACK = 32
"""How many snapshots of other tools a commit that is never repeated reads to find a record of users."""


class Deduplication:
    """Searches the history for a commit with this identity, reading each snapshot once. See `CommitIdentity.is_repeatable`."""

    def __init__(self, context: TableContext, identity: CommitIdentity) -> None:
        self._context = context
        self.identity = identity
        own = ((identity.user, identity.identifier), *identity.writers) if identity.is_repeatable else ()
        self.intents = CommitIntents(context, own, dict(identity.properties))
        self._checked = 0

    def already_committed(self) -> bool:
        """Whether this user has committed the identifier, or a higher one (Java filterCommitted).

        The newest snapshot of the user decides, or the newest snapshot with a record of users. A snapshot before a gap, or before
        EARLIEST, proves nothing, because no other snapshot was built on it. If the history does not show it, the records beside
        the snapshots decide. Raises `Refused` if they cannot tell either.

        A commit counts as made once its APPEND is published, even if its COMPACT is not: the rows are committed, and can be
        compacted again. Snapshots with the identifier of batch commits do not count.
        """
        identity = self.identity
        if not identity.is_repeatable:
            return False
        oldest = 1
        for snapshot in self._context.snapshots.unbroken(self._context.snapshots.latest()):
            self._checked = max(self._checked, snapshot.id)
            oldest = snapshot.id
            if oldest <= identity.newer_than:
                return False
            if self._is_of_user(snapshot):
                if snapshot.commit_identifier == identity.identifier:
                    self.intents.confirm(snapshot)
                return snapshot.commit_identifier >= identity.identifier
            users = CommitUsers.from_properties(snapshot.properties)
            if users is not None:
                return self._is_recorded(users, snapshot.id)
        if oldest > max(identity.newer_than + 1, 1):
            why = f"snapshots before {oldest} have expired, and the remaining ones do not record who committed in them"
            return self._is_recorded_beside(oldest, why)
        return False

    def _is_recorded(self, users: CommitUsers, snapshot_id: int) -> bool:
        highest = users.identifier_of(self.identity.user)
        if highest is not None:
            return highest >= self.identity.identifier
        if users.may_know(self.identity.user):
            why = f"the table records its last {MAX_NAMED_USERS} users by name, and this is probably an older one"
            return self._is_recorded_beside(snapshot_id, why, is_known=True)
        if users.since > self.identity.newer_than + 1:
            why = f"the users who committed before snapshot {users.since} had already expired when users were first recorded"
            return self._is_recorded_beside(users.since, why)
        return False

    def _is_recorded_beside(self, oldest: int, why: str, *, is_known: bool = False) -> bool:
        """Whether the records beside the snapshots show the commit, which is not in the history from `oldest` on."""
        user, identifier = self.identity.user, self.identity.identifier
        made = was_made(self._context, user, identifier, oldest, self._checked, is_known=is_known)
        if made is None:
            self._assume_new(why)
        return bool(made)

    def _assume_new(self, why: str) -> None:
        if not self.identity.assume_new:
            user, identifier = shown_name(self.identity.user), self.identity.identifier
            raise Refused(
                f"cannot determine whether commit {identifier} of user {user} was made before",
                why,
                "look for its rows; if they are not there, run it again with --assume-new",
                commit_user=user,
                commit_identifier=str(identifier),
            )

    def committed_since_begin(self, latest: Snapshot | None, kind: str) -> bool:
        """Whether a snapshot since the last check, up to `latest`, has this user, identifier and commit kind.

        Raises `Conflict` if a snapshot has expired, or if the user has committed a higher identifier: after our commit, that one
        would not be recognised if it is repeated.
        """
        if latest is None or not self.identity.is_repeatable:
            return False
        for number in range(self._checked + 1, latest.id + 1):
            snapshot = latest if number == latest.id else self._context.snapshots.find(number)
            self._checked = number
            if snapshot is None:
                raise self._undecided(number)
            if not self._is_of_user(snapshot):
                if self._holds_writers(snapshot):
                    return True
                continue
            if snapshot.commit_identifier > self.identity.identifier:
                raise self._later_one_committed(snapshot)
            if (snapshot.commit_identifier, snapshot.commit_kind) == (self.identity.identifier, kind):
                self.intents.confirm(snapshot)
                return True
        return False

    def _holds_writers(self, snapshot: Snapshot) -> bool:
        """Whether another committer has made this commit in the meantime. Raises `Refused` if it has made a part of it."""
        own = set(self.identity.writers) or {(self.identity.user, self.identity.identifier)}
        made = own & commits_in(snapshot)
        if made and made != own:
            user, identifier = min(made)
            user = shown_name(user)
            raise Refused(
                f"commit {identifier} of user {user} was made by another committer in snapshot {snapshot.id}",
                f"it is one of {len(own)} that are to be committed together, and the others were not made",
                "leave its file out",
                snapshot_id=snapshot.id,
                commit_user=user,
            )
        return bool(made)

    def _is_of_user(self, snapshot: Snapshot) -> bool:
        return snapshot.commit_user == self.identity.user and snapshot.commit_identifier != BATCH_IDENTIFIER

    def _undecided(self, number: int) -> Conflict:
        user, identifier = shown_name(self.identity.user), self.identity.identifier
        return Conflict(
            f"cannot determine whether commit {identifier} of user {user} was made meanwhile",
            f"snapshot {number} has expired since this commit began",
            "look for its rows before trying again; keep snapshots longer than a commit takes",
            snapshot_id=number,
            commit_user=user,
        )

    def _later_one_committed(self, snapshot: Snapshot) -> Conflict:
        user, identifier = shown_name(self.identity.user), self.identity.identifier
        return Conflict(
            f"commit {identifier} of user {user} was overtaken by commit {snapshot.commit_identifier}",
            f"snapshot {snapshot.id} has it, and the identifiers of a user must increase",
            "let one process at a time commit for a user, or give each its own --commit-user",
            snapshot_id=snapshot.id,
            commit_user=user,
            commit_identifier=str(snapshot.commit_identifier),
        )


class LastCommit(NamedTuple):
    """The last commit of a user: its identifier, and the properties that its identity had; None if these are lost."""

    identifier: int
    properties: Mapping[str, str] | None


def last_commit(context: TableContext, user: str) -> LastCommit | None:
    """The last repeatable commit of a user; None if it has made none.

    The newest snapshot of the user shows it. If that has expired, its record beside the snapshots does. Raises `Refused` if
    neither can tell.
    """
    oldest, highest, may_have = 1, None, False
    latest = context.snapshots.latest()
    for snapshot in context.snapshots.unbroken(latest):
        oldest = snapshot.id
        if snapshot.commit_user == user and snapshot.commit_identifier != BATCH_IDENTIFIER:
            return LastCommit(snapshot.commit_identifier, snapshot.properties or {})
        users = CommitUsers.from_properties(snapshot.properties)
        if users is not None and highest is None:
            highest, may_have = users.identifier_of(user), users.may_know(user) or users.since > 1
            if not may_have:
                return None
    if oldest == 1 and highest is None:
        return None
    found = last_record(context, user, oldest, 0 if latest is None else latest.id)
    if found is None and highest is None:
        return None
    if found is None or found is UNKNOWN_RECORD or (highest is not None and found.identifier < highest):
        raise Refused(
            f"cannot determine how far user {shown_name(user)} has come in {context.name}",
            f"snapshots before {oldest} have expired, and the record of its last commit is lost or was never completed",
            "look which rows are there, and go on as another user",
            commit_user=shown_name(user),
        )
    return LastCommit(found.identifier, properties_of_record(context, found))


def recorded_users(context: TableContext, latest: Snapshot | None, identity: CommitIdentity) -> CommitUsers | None:
    """The record of users for a new snapshot on top of `latest`; None if the table has no record so far.

    The first repeatable commit reads all snapshots for it. Commits that are never repeated only continue a recent record.
    """
    users, newer = _newest_record(context, latest, None if identity.is_repeatable else _LOOK_BACK)
    if users is None:
        return None
    for snapshot in reversed(newer):
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            users = users.with_commit(snapshot.commit_user, snapshot.commit_identifier)
    own = [*identity.writers, (identity.user, identity.identifier)] if identity.is_repeatable else []
    for user, identifier in own:
        users = users.with_commit(user, identifier)
    return users


def user_properties(context: TableContext, latest: Snapshot | None, identity: CommitIdentity) -> dict[str, str]:
    """The record of users (`recorded_users`), and the writers of a commit that is made for them, as properties of a snapshot."""
    users = recorded_users(context, latest, identity)
    record = {} if users is None else {PROPERTY: users.to_text()}
    writers = json.dumps(identity.writers, separators=(",", ":"), ensure_ascii=False)
    return {**dict(identity.properties), **record, **({WRITERS_PROPERTY: writers} if identity.writers else {})}


def _newest_record(
    context: TableContext, latest: Snapshot | None, max_snapshots: int | None
) -> tuple[CommitUsers | None, list[Snapshot]]:
    """The newest record of users, and the snapshots after it, newest first; an empty record if all snapshots have none.

    None if the last `max_snapshots` have no record, and there are more.
    """
    newer: list[Snapshot] = []
    for snapshot in context.snapshots.unbroken(latest):
        users = CommitUsers.from_properties(snapshot.properties)
        if users is not None:
            return users, newer
        if len(newer) == max_snapshots:
            return None, []
        newer.append(snapshot)
    oldest = newer[-1].id if newer else 1
    return (CommitUsers(oldest), newer) if max_snapshots is None or oldest == 1 else (None, [])
