"""Which files a snapshot brings and needs: data files that a commit made dead, and the metadata that a snapshot names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, DELETE, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot

FileKey = tuple[bytes, int, str]
"""Partition, bucket and name of a data file: whatever its level, it is one file on storage."""


def key_of_file(entry: ManifestEntry) -> FileKey:
    return (entry.partition, entry.bucket, entry.file.file_name)


def files_made_dead(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Files that no snapshot from this one on needs: deleted by its commit and not added again, as an upgrade does."""
    changes = context.manifests.delta_entries(snapshot)
    added = {key_of_file(entry) for entry in changes if entry.kind == ADD}
    return [entry for entry in changes if entry.kind == DELETE and key_of_file(entry) not in added]


def changelog_entries(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Changelog files of the snapshot's own commit."""
    if snapshot.changelog_manifest_list is None:
        return []
    manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
    return [entry for entries in context.manifests.entries(manifests) for entry in entries if entry.kind == ADD]


def file_paths(context: TableContext, entry: ManifestEntry) -> Iterator[str]:
    """The data file and what goes with it. Files outside of the table are not ours to delete."""
    if entry.file.external_path is None:
        for name in (entry.file.file_name, *entry.file.extra_files):
            yield context.data_file_path_of(entry.partition, entry.bucket, name)


def metadata_paths(context: TableContext, snapshot: Snapshot) -> list[str]:
    """Manifests, their lists, the index manifest, index files and statistics; the lists come last."""
    layout = context.layout
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list]
    present: Sequence[str] = [name for name in lists if name is not None]
    paths = [layout.manifest(meta.file_name) for name in present for meta in context.manifests.manifest_list(name)]
    for index in context.manifests.index_entries(snapshot):
        if index.index_file.external_path is None:
            paths.append(layout.index(index.index_file.file_name))
    if snapshot.index_manifest is not None:
        paths.append(layout.manifest(snapshot.index_manifest))
    if snapshot.statistics is not None:
        paths.append(f"{layout.root}/statistics/{snapshot.statistics}")
    return [*paths, *map(layout.manifest, present)]
