"""How far a table is behind the database whose changes it gets: what its snapshots say about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

LAG_PROPERTY = "paimon-cli.ingest-lag"


@dataclass(frozen=True)
class ReadLag:
    """`time`: when the newest change in the table was made in its source, in epoch millis. `behind`: events of its topics that
    were not read when it committed. `schema`: when its columns last followed those of the source. `inserts`, `updates`,
    `deletes`: rows of the commit. None where that is not known.
    """

    time: int | None = None
    behind: int | None = None
    schema: int | None = None
    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    def text(self) -> str:
        """As a property of a snapshot."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def of(properties: Mapping[str, str] | None) -> ReadLag | None:
        """What a snapshot says; None if it says nothing that can be read."""
        try:
            found = json.loads((properties or {})[LAG_PROPERTY])
            known = {name: value for name, value in found.items() if name in ReadLag.__dataclass_fields__}
            if not all(type(value) is int or (value is None and name in _OPTIONAL) for name, value in known.items()):
                return None
            return ReadLag(**known)
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
            return None


_OPTIONAL = frozenset(("time", "behind", "schema"))
NO_LAG = ReadLag()
