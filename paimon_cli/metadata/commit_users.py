"""The highest commit identifier of each user, kept in snapshots after the users' own have expired (FORMAT.md, section 3.2).

It stands in the snapshot's `properties`, which other readers hand on or ignore. Commits of others do not carry it on, so that
it is looked for in the newest snapshots one after the other.
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
"""Users that are known by name, those who committed last; the others are known by a filter."""
_LONGEST_NAME = 64
_FILTER_BYTES = 8192
"""A filter takes 10,000 users before it takes 5 of 100 strangers for one of them; compressed, it is as small as it is empty."""


@dataclass(frozen=True)
class CommitUsers:
    """All repeatable commits from snapshot `since` on, 1 for all that there were.

    `highest`: the highest identifier by user, who committed last comes last. `others`: a Bloom filter of the users before those.
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
        """None if the snapshot remembers nothing, or nothing that can be read: then it counts as somebody else's."""
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
    """Long names by their digest, so that the whole has a bound."""
    if len(user) <= _LONGEST_NAME:
        return user
    return "sha256:" + hashlib.sha256(user.encode(errors="surrogatepass")).hexdigest()


def _bits(name: str) -> list[tuple[int, int]]:
    """Four places in the filter, as byte and bit: 65,536 bits are as many as two bytes of a digest can say."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    places = [int.from_bytes(digest[at : at + 2], "big") for at in range(0, 8, 2)]
    return [(place >> 3, 1 << (place & 7)) for place in places]


def _with_bits(others: bytes, name: str) -> bytes:
    filled = bytearray(others or bytes(_FILTER_BYTES))
    for at, bit in _bits(name):
        filled[at] |= bit
    return bytes(filled)
