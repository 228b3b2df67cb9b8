"""Tags of a table: copies of snapshots under a name (format section 13.2)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TAG_PREFIX
from paimon_cli.table.table import Table

CREATE_TIME_PARTS = 7
"""Year, month, day, hour, minute, second, nanosecond; trailing zero parts may be missing."""


@dataclass(frozen=True)
class TagRow:
    """One tag; times in epoch millis, `time_retained` in seconds (None: kept until deleted)."""

    name: str
    snapshot_id: int
    schema_id: int
    time: int
    total_record_count: int | None
    created: int | None
    time_retained: float | None


def tag_rows(table: Table) -> list[TagRow]:
    """All tags by snapshot, then name."""
    rows = [read_tag(table, name) for name in tag_names(table)]
    return sorted(rows, key=lambda row: (row.snapshot_id, row.name))


def tag_names(table: Table) -> list[str]:
    statuses = table.storage.list_directory(table.layout.tag_directory)
    return sorted(s.name.removeprefix(TAG_PREFIX) for s in statuses if s.name.startswith(TAG_PREFIX) and not s.is_directory)


def read_tag(table: Table, name: str) -> TagRow:
    """NotFound when there is no such tag."""
    path = table.layout.tag(name)
    try:
        text = table.storage.read_bytes(path).decode()
    except FileNotFoundError as error:
        raise NotFound(f"no tag '{name}'", hint="paimon-cli tags ls shows the tags") from error
    snapshot, content = Snapshot.from_json(text, path), json.loads(text)
    return TagRow(
        name=name,
        snapshot_id=snapshot.id,
        schema_id=snapshot.schema_id,
        time=snapshot.time_millis,
        total_record_count=snapshot.total_record_count,
        created=_created(content.get("tagCreateTime"), path),
        time_retained=None if (retained := content.get("tagTimeRetained")) is None else float(retained),
    )


def tags_by_snapshot(table: Table) -> Mapping[int, tuple[str, ...]]:
    """The names of the tags of each snapshot id."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in tag_rows(table):
        found[row.snapshot_id].append(row.name)
    return {snapshot_id: tuple(names) for snapshot_id, names in found.items()}


def _created(parts: Any, path: str) -> int | None:
    """Java's LocalDateTime as a list of numbers: the writer's wall clock, taken as UTC."""
    if parts is None:
        return None
    try:
        numbers = [int(part) for part in parts] + [0] * (CREATE_TIME_PARTS - len(parts))
        year, month, day, hour, minute, second, nanos = numbers
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except (TypeError, ValueError) as error:
        raise DamagedFile(f"tag file {path} has a wrong tagCreateTime", str(error)) from error
    return int(moment.timestamp()) * 1000 + nanos // 1_000_000
