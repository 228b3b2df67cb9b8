"""Which commit took a file away: what the user needs to know to make sense of a conflict."""

from __future__ import annotations

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DELETE, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot


def who_removed(
    context: TableContext, latest: Snapshot | None, entry: ManifestEntry, read_snapshot_id: int | None
) -> Snapshot | None:
    """The snapshot whose delta deletes the file, looking from the newest down to what the job had read; None if not found."""
    if latest is None:
        return None
    for snapshot in context.snapshots.newest_first():
        if read_snapshot_id is not None and snapshot.id <= read_snapshot_id:
            return None
        try:
            manifests = [m for m in context.manifests.manifest_list(snapshot.delta_manifest_list) if m.num_deleted_files]
            for entries in context.manifests.entries(manifests):
                if any(e.kind == DELETE and e.identity == entry.identity for e in entries):
                    return snapshot
        except (NotFound, DamagedFile):
            return None  # expired while we looked: the conflict stands all the same
    return None
