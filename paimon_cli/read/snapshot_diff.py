"""What lies between two snapshots: files that came and went, or rows (`snapshots diff`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paimon_cli.datatypes.canonical_json import canonical_rows
from paimon_cli.datatypes.partition_path import natural_order
from paimon_cli.datatypes.row_kind import SHORT
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.difference_plan import plan_difference
from paimon_cli.read.difference_reader import read_difference

ADDED, REMOVED = "added", "removed"


@dataclass(frozen=True)
class FileChange:
    """A data file that lives in one of the snapshots only."""

    change: str
    partition: str
    bucket: int
    level: int
    file: str
    rows: int
    size: int


@dataclass(frozen=True)
class RowChange:
    """A row that readers of the two snapshots see differently, with the kind that leads from the first to the second."""

    kind: str
    values: dict[str, Any]


def file_changes(context: TableContext, before: Snapshot, after: Snapshot) -> list[FileChange]:
    """Removed files first, by bucket and level."""
    old, new = ({entry.identity: entry for entry in context.manifests.live_entries(snapshot)} for snapshot in (before, after))
    found = [(REMOVED, old[i]) for i in old.keys() - new.keys()] + [(ADDED, new[i]) for i in new.keys() - old.keys()]
    changes = [
        FileChange(
            change,
            context.partition_path_of(e.partition).rstrip("/"),
            e.bucket,
            e.file.level,
            e.file.file_name,
            e.file.row_count,
            e.file.file_size,
        )
        for change, e in found
    ]
    return sorted(changes, key=lambda c: (natural_order(c.partition), c.bucket, c.change == ADDED, c.level, c.file))


def row_changes(context: TableContext, before: Snapshot, after: Snapshot) -> Iterator[RowChange]:
    """Bucket by bucket; only what differing files hold is read. Rows are shown in the newer snapshot's columns."""
    seen = context.at_schema(after.schema_id)
    fields = seen.schema.fields
    for split in plan_difference(seen, before, after).splits:
        assert split.before is not None
        for batch in read_difference(seen, split.before, (split.bucket, *split.beside), both_sides=True):
            kinds = [SHORT[kind] for kind in batch.column(VALUE_KIND).to_pylist()]
            rows = canonical_rows(batch.select(seen.schema.field_names), fields)
            yield from map(RowChange, kinds, rows)
