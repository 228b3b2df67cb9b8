"""Tag files: a copy of a snapshot, and how long to keep it (FORMAT.md, sections 3.3 and 13.2; Java Tag)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.java_json import dump_java_json
from paimon_cli.metadata.snapshot import Snapshot

_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PARTS = 7
"""Year, month, day, hour, minute, second, nanosecond; trailing zero parts may be missing."""


@dataclass(frozen=True)
class Tag:
    """`created_millis`: the writer's wall clock read as if it were UTC, as Java stores it; None for tags without a time limit.

    `retained_millis`: the time limit, None for a tag that stays until it is deleted.
    """

    snapshot: Snapshot
    created_millis: int | None = None
    retained_millis: int | None = None

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> Tag:
        """Read a tag file of any writer. Raises `DamagedFile` that names `path`."""
        snapshot = Snapshot.from_json(text, path)
        content = json.loads(text, parse_float=Decimal)
        return Tag(snapshot, _created(content.get(_CREATED), path), _retained(content.get(_RETAINED), path))


def tag_text(snapshot_text: bytes, created_millis: int, retained_millis: int) -> bytes:
    """Content of a tag with a time limit; one without is the snapshot's own text, which all versions read."""
    content = json.loads(snapshot_text, parse_float=Decimal)
    moment = _EPOCH + timedelta(milliseconds=created_millis)
    content[_CREATED] = [*moment.timetuple()[:6], moment.microsecond * 1000]
    content[_RETAINED] = (Decimal(retained_millis) / 1000).quantize(Decimal("1.000000000"))
    return dump_java_json(content).encode()


def snapshot_text(tag: bytes) -> bytes:
    """The text of the snapshot in a tag file, with every field that its writer wrote (Java Tag.trimToSnapshot).

    `DamagedFile` if it holds no snapshot.
    """
    Snapshot.from_json(tag)
    content = json.loads(tag, parse_float=Decimal)
    if _CREATED not in content and _RETAINED not in content:
        return tag
    return dump_java_json({key: value for key, value in content.items() if key not in (_CREATED, _RETAINED)}).encode()


def _created(parts: Any, path: str) -> int | None:
    if parts is None:
        return None
    try:
        numbers = [int(part) for part in parts] + [0] * (_PARTS - len(parts))
        year, month, day, hour, minute, second, nanos = numbers
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except (TypeError, ValueError) as error:
        raise DamagedFile(f"tag file {path} has a wrong {_CREATED}", str(error), path=path) from error
    return int(moment.timestamp()) * 1000 + nanos // 1_000_000


def _retained(seconds: Any, path: str) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | Decimal):
        raise DamagedFile(f"tag file {path} has a wrong {_RETAINED}", f"found {seconds!r}", path=path)
    return int(seconds * 1000)
