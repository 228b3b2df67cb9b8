"""The report about the tags of a table (FORMAT.md, section 13.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from paimon_cli.metadata.tag import Tag
from paimon_cli.table.table import Table


@dataclass(frozen=True)
class TagRow:
    """One tag; `time` in epoch millis, `created` the writer's wall clock, `time_retained` in seconds (None: no limit)."""

    name: str
    snapshot_id: int
    schema_id: int
    time: int
    total_record_count: int | None
    created: int | None
    time_retained: float | None


def tag_rows(table: Table) -> list[TagRow]:
    """All tags by snapshot, then name."""
    rows = [_row(name, tag) for name, tag in table.tags.all().items()]
    return sorted(rows, key=lambda row: (row.snapshot_id, row.name))


def read_tag(table: Table, name: str) -> TagRow:
    """NotFound when there is no such tag."""
    return _row(name, table.tags.get(name))


def tags_by_snapshot(table: Table) -> Mapping[int, tuple[str, ...]]:
    """The names of the tags of each snapshot id."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in tag_rows(table):
        found[row.snapshot_id].append(row.name)
    return {snapshot_id: tuple(names) for snapshot_id, names in found.items()}


def _row(name: str, tag: Tag) -> TagRow:
    snapshot = tag.snapshot
    return TagRow(
        name=name,
        snapshot_id=snapshot.id,
        schema_id=snapshot.schema_id,
        time=snapshot.time_millis,
        total_record_count=snapshot.total_record_count,
        created=tag.created_millis,
        time_retained=None if tag.retained_millis is None else tag.retained_millis / 1000,
    )
