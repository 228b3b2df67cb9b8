"""`snapshots`, `tags`, `branches` and `manifests`: the versions of a table, and the manifests of a snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from paimon_cli.errors import DamagedFile
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.schema_report import shown_options
from paimon_cli.metadata.data_file import ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot, Tag
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.redaction import shown_name


@dataclass(frozen=True)
class TagRow:
    """One tag. `time`: of the snapshot, epoch millis; `created`: by the writer's wall clock; `time_retained`: seconds or None."""

    name: str
    snapshot_id: int
    schema_id: int
    time: int
    total_record_count: int | None
    created: int | None
    time_retained: float | None


OnDamage = Callable[[DamagedFile], object]
"""Receives the error of a file that cannot be read, which a listing leaves out."""


def tag_rows(table: TableContext, on_damage: OnDamage | None = None) -> list[TagRow]:
    """All tags by snapshot, then name. `on_damage`: receives the errors of damaged ones; without it they are raised."""
    rows = [_row(name, tag) for name, tag in table.tags.all(on_damage).items()]
    return sorted(rows, key=lambda row: (row.snapshot_id, row.name))


def read_tag(table: TableContext, name: str) -> TagRow:
    """The tag with this name. Raises `NotFound` if there is none."""
    return _row(name, table.tags.get(name))


def tags_by_snapshot(table: TableContext, on_damage: OnDamage | None = None) -> Mapping[int, tuple[str, ...]]:
    """The names of the tags of each snapshot id."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in tag_rows(table, on_damage):
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


@dataclass(frozen=True)
class SnapshotRow:
    """One snapshot. `time`: epoch millis; `files_added`, `files_deleted`: by its delta manifest list."""

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
    """A snapshot with the files that it names. `attempts`, `duration_ms`: None unless recorded, as by paimon-cli."""

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
    operation: str | None
    writer_version: str | None
    next_row_id: int | None


def snapshot_rows(
    table: TableContext,
    limit: int | None = None,
    kind: str | None = None,
    user: str | None = None,
    on_damage: OnDamage | None = None,
) -> list[SnapshotRow]:
    """The snapshots, newest first, of one commit kind or user if given. Reads the delta lists of the selected ones only.

    `on_damage`: receives the errors of snapshots and tags that cannot be read, which are left out; without it they are raised.
    """
    snapshots = table.snapshots.newest_first(on_damage=on_damage)
    chosen = (s for s in snapshots if kind in (None, s.commit_kind) and user in (None, s.commit_user))
    tags, rows = tags_by_snapshot(table, on_damage), list[SnapshotRow]()
    for snapshot in islice(chosen, limit):
        try:
            rows.append(SnapshotRow(**_columns(table, snapshot, tags)))
        except SnapshotGone:  # it has expired since it was listed
            continue
        except DamagedFile as damage:
            if on_damage is None:
                raise
            on_damage(damage)
    return rows


def snapshot_details(table: TableContext, snapshot: Snapshot) -> SnapshotDetails:
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
        properties=None if snapshot.properties is None else shown_options(snapshot.properties),
        uuid=snapshot.uuid,
        version=snapshot.version,
        operation=None if snapshot.operation is None else shown_name(snapshot.operation),
        writer_version=None if snapshot.writer_version is None else shown_name(snapshot.writer_version),
        next_row_id=snapshot.next_row_id,
    )


def _columns(table: TableContext, snapshot: Snapshot, tags: Mapping[int, tuple[str, ...]]) -> dict[str, Any]:
    delta = table.manifests.delta_manifests(snapshot)
    return {
        "id": snapshot.id,
        "kind": snapshot.commit_kind,
        "time": snapshot.time_millis,
        "commit_user": shown_name(snapshot.commit_user),
        "commit_identifier": snapshot.commit_identifier,
        "schema_id": snapshot.schema_id,
        "delta_record_count": snapshot.delta_record_count,
        "total_record_count": snapshot.total_record_count,
        "files_added": sum(manifest.num_added_files for manifest in delta),
        "files_deleted": sum(manifest.num_deleted_files for manifest in delta),
        "watermark": snapshot.watermark,
        "tags": tags.get(snapshot.id, ()),
    }


@dataclass(frozen=True)
class BranchRow:
    """One branch. `time`: of its latest snapshot, epoch millis; None like the ids if the branch has no commits."""

    name: str
    first_snapshot: int | None
    latest_snapshot: int | None
    schema_id: int | None
    time: int | None
    total_record_count: int | None


def branch_rows(table: TableContext, on_damage: OnDamage | None = None) -> list[BranchRow]:
    """The branches: main first, the others by name. `on_damage`: receives the errors of those that cannot be read, which are left
    out; without it they are raised.
    """
    rows = list[BranchRow | None]()
    for name in (MAIN_BRANCH, *table.branches.directories()):
        try:
            rows.append(_branch_row(table, name))
        except DamagedFile as damage:
            if on_damage is None:
                raise
            on_damage(damage)
    return [row for row in rows if row is not None]


def branch_row(table: TableContext, name: str) -> BranchRow:
    """The branch with this name. Raises `NotFound` if there is none."""
    row = _branch_row(table, name)
    if row is None:
        raise table.branches.missing(name)
    return row


def _branch_row(table: TableContext, name: str) -> BranchRow | None:
    newest = table.branches.newest(name)
    if newest is None:
        return None
    schema, latest = newest
    return BranchRow(
        name,
        SnapshotHistory(table.storage, table.layout.of_branch(name)).earliest_id(),
        None if latest is None else latest.id,
        schema.id,
        None if latest is None else latest.time_millis,
        None if latest is None else latest.total_record_count,
    )


_BASE, _DELTA, _CHANGELOG, _INDEX = "base", "delta", "changelog", "index"
LISTS = (_BASE, _DELTA, _CHANGELOG, _INDEX)


@dataclass(frozen=True)
class ManifestRow:
    """One manifest of the manifest list `list`; bucket and level ranges are None if they were not recorded.

    For the index manifest, `added` counts its index files.
    """

    list: str
    file: str
    size: int
    added: int
    deleted: int
    schema_id: int | None
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None


def manifest_rows(
    table: TableContext, snapshot: Snapshot | None, lists: Sequence[str] = LISTS, on_damage: OnDamage | None = None
) -> list[ManifestRow]:
    """The manifests of the given lists, in the order in which a reader applies them: base, then delta.

    `on_damage`: receives the errors of lists that cannot be read, which are left out; without it they are raised.
    """
    rows = list[ManifestRow]()
    if snapshot is None:
        return rows
    for name in (name for name in LISTS if name in lists):
        try:
            rows += _rows_of(table, snapshot, name)
        except DamagedFile as damage:
            if on_damage is None:
                raise
            on_damage(damage)
    return rows


def _rows_of(table: TableContext, snapshot: Snapshot, name: str) -> Iterator[ManifestRow]:
    if name == _INDEX:
        yield from _index_rows(table, snapshot.index_manifest)
        return
    list_names = {
        _BASE: snapshot.base_manifest_list,
        _DELTA: snapshot.delta_manifest_list,
        _CHANGELOG: snapshot.changelog_manifest_list,
    }
    list_name = list_names[name]
    if list_name is not None:
        yield from (_manifest_row(name, manifest) for manifest in table.manifests.manifest_list(list_name))


def _manifest_row(list_name: str, manifest: ManifestFileMeta) -> ManifestRow:
    return ManifestRow(
        list=list_name,
        file=manifest.file_name,
        size=manifest.file_size,
        added=manifest.num_added_files,
        deleted=manifest.num_deleted_files,
        schema_id=manifest.schema_id,
        min_bucket=manifest.min_bucket,
        max_bucket=manifest.max_bucket,
        min_level=manifest.min_level,
        max_level=manifest.max_level,
    )


def _index_rows(table: TableContext, name: str | None) -> Iterator[ManifestRow]:
    if name is not None:
        entries = table.manifests.index_manifest(name)
        size = table.storage.file_size(table.layout.manifest(name))
        yield ManifestRow(_INDEX, name, size, added=len(entries), deleted=0, schema_id=None)
