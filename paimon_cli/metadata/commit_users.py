"""The highest commit identifier of each user, kept in snapshots after the users' own have expired (FORMAT.md, section 3.2).

It is kept in the snapshot's `properties`, which other tools ignore. Their commits do not carry it on, so it is searched for in
the snapshots from the newest down.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
