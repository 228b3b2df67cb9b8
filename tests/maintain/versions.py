"""What must hold for a table's versions, whatever was done to them: each can be read, and there are no orphans."""

from __future__ import annotations

from pathlib import Path

from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList
from paimon_cli.invariants.check import check_table
from paimon_cli.maintain.named_files import file_paths, metadata_paths
from paimon_cli.maintain.retention import tagged_snapshots
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from tests.tables import rows


def branches(context: TableContext) -> list[TableContext]:
    names = BranchList(context.storage, context.layout).names()
    return [context.at_branch(name) for name in (MAIN_BRANCH, *names)]


def files_on_disk(context: TableContext) -> set[str]:
    """Every data file and manifest."""
    root = Path(context.url)
    return {str(path) for pattern in ("**/bucket-*/*", "manifest/*", "index/*") for path in root.glob(pattern)}


def named_files(context: TableContext) -> set[str]:
    """Every data file and manifest that a snapshot or tag of any branch needs."""
    named: set[str] = set()
    for branch in branches(context):
        for snapshot in (*branch.snapshots.newest_first(), *tagged_snapshots(branch)):
            named.update(metadata_paths(branch, snapshot))
            for entry in branch.manifests.live_entries(snapshot):
                named.update(file_paths(branch, entry))
    return named


def check_versions(context: TableContext) -> None:
    """All snapshots of all branches can be read to the last row, no named file is missing, and hints are right."""
    assert named_files(context) <= files_on_disk(context)
    for branch in branches(context):
        assert not list(check_table(branch, rows=True))
        for number in branch.snapshots.ids():
            rows(branch, snapshot_id=number)
        hint = Path(branch.layout.latest_hint)
        assert not hint.exists() or int(hint.read_text()) <= (branch.snapshots.latest_id() or 0)
