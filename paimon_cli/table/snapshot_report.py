"""Snapshots of a table with what their manifest lists and tags add to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.table.table import Table
from paimon_cli.table.tag_report import tags_by_snapshot


@dataclass(frozen=True)
class SnapshotRow:
    """One snapshot; `time` in epoch millis, `files_added` and `files_deleted` counted by the delta manifest list."""

    id: int
    kind: str
    time: int
    commit_user: str
    commit_identifier: int
    schema_id: int
    delta_record_count: int | None
    total_record_count: int | None
    files_added: int
    files_deleted: int
    watermark: int | None
    tags: tuple[str, ...]


@dataclass(frozen=True)
class SnapshotDetails(SnapshotRow):
    """A snapshot with the files it names. `attempts`, `duration_ms`: of paimon-cli's commits, None of others'."""

    base_manifest_list: str
    delta_manifest_list: str
    changelog_manifest_list: str | None
    index_manifest: str | None
    changelog_record_count: int | None
    statistics: str | None
    attempts: int | None
    duration_ms: int | None
    properties: Mapping[str, str] | None
    uuid: str | None
    version: int | None


def snapshot_rows(table: Table, limit: int | None = None, kind: str | None = None, user: str | None = None) -> list[SnapshotRow]:
    """Newest first; the manifest lists of the chosen ones only are read."""
    chosen = (s for s in table.snapshots.newest_first() if kind in (None, s.commit_kind) and user in (None, s.commit_user))
    tags = tags_by_snapshot(table)
    return [SnapshotRow(**_columns(table, snapshot, tags)) for snapshot in islice(chosen, limit)]


def snapshot_details(table: Table, snapshot: Snapshot) -> SnapshotDetails:
    return SnapshotDetails(
        **_columns(table, snapshot, tags_by_snapshot(table)),
        base_manifest_list=snapshot.base_manifest_list,
        delta_manifest_list=snapshot.delta_manifest_list,
        changelog_manifest_list=snapshot.changelog_manifest_list,
        index_manifest=snapshot.index_manifest,
        changelog_record_count=snapshot.changelog_record_count,
        statistics=snapshot.statistics,
        attempts=snapshot.commit_attempts,
        duration_ms=snapshot.commit_duration_millis,
        properties=snapshot.properties,
        uuid=snapshot.uuid,
        version=snapshot.version,
    )


def _columns(table: Table, snapshot: Snapshot, tags: Mapping[int, tuple[str, ...]]) -> dict[str, Any]:
    delta = table.manifests.manifest_list(snapshot.delta_manifest_list)
    return {
        "id": snapshot.id,
        "kind": snapshot.commit_kind,
        "time": snapshot.time_millis,
        "commit_user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "schema_id": snapshot.schema_id,
        "delta_record_count": snapshot.delta_record_count,
        "total_record_count": snapshot.total_record_count,
        "files_added": sum(manifest.num_added_files for manifest in delta),
        "files_deleted": sum(manifest.num_deleted_files for manifest in delta),
        "watermark": snapshot.watermark,
        "tags": tags.get(snapshot.id, ()),
    }
