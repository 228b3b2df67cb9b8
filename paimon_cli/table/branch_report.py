"""Branches of a table with where they begin and where they are."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.table.table import Table


@dataclass(frozen=True)
class BranchRow:
    """`time`: of the latest snapshot, in epoch millis; ids are None for a branch that nothing was committed to."""

    name: str
    first_snapshot: int | None
    latest_snapshot: int | None
    schema_id: int | None
    time: int | None
    total_record_count: int | None


def branch_rows(table: Table) -> list[BranchRow]:
    """Main first, then by name."""
    return [branch_row(table, name) for name in (MAIN_BRANCH, *table.branches.names())]


def branch_row(table: Table, name: str) -> BranchRow:
    layout = table.layout.of_branch(name)
    snapshots = SnapshotHistory(table.storage, layout)
    latest = snapshots.latest()
    return BranchRow(
        name,
        snapshots.earliest_id(),
        None if latest is None else latest.id,
        SchemaHistory(table.storage, layout).latest_id(),
        None if latest is None else latest.time_millis,
        None if latest is None else latest.total_record_count,
    )
