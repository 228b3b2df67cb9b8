"""Which files a snapshot brings and needs: data files that a commit made dead, and the metadata that a snapshot names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, DELETE, ManifestEntry, SimpleStats
from paimon_cli.metadata.snapshot import Snapshot

FileKey = tuple[bytes, int, str]
"""Partition, bucket and name of a data file: whatever its level, it is one file on storage."""
_NO_STATS = SimpleStats()


@dataclass(frozen=True, slots=True)
class DoomedFile:
    """A file that may be deleted; `size` in bytes if metadata has it."""

    path: str
    kind: str
    size: int | None = None


def key_of_file(entry: ManifestEntry) -> FileKey:
    return (entry.partition, entry.bucket, entry.file.file_name)


def files_made_dead(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Files that no snapshot from this one on needs: deleted by its commit and not added again, as an upgrade does."""
    changes = context.manifests.delta_entries(snapshot)
    added = {key_of_file(entry) for entry in changes if entry.kind == ADD}
    return [lean(entry) for entry in changes if entry.kind == DELETE and key_of_file(entry) not in added]


def lean(entry: ManifestEntry) -> ManifestEntry:
    """The entry without keys and statistics: a hundred thousand of them are kept at once."""
    file = replace(entry.file, min_key=b"", max_key=b"", key_stats=_NO_STATS, value_stats=_NO_STATS, embedded_file_index=None)
    return replace(entry, file=file)


def changelog_entries(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Changelog files of the snapshot's own commit."""
    if snapshot.changelog_manifest_list is None:
        return []
    manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
    return [lean(entry) for entries in context.manifests.entries(manifests) for entry in entries if entry.kind == ADD]


def file_paths(context: TableContext, entry: ManifestEntry) -> Iterator[str]:
    """The data file and what goes with it. Files outside of the table are not ours to delete."""
    return (file.path for file in doomed_data(context, entry, "data"))


def doomed_data(context: TableContext, entry: ManifestEntry, kind: str) -> Iterator[DoomedFile]:
    """The data file of an entry and its extra files, as files to delete."""
    if entry.file.external_path is None:
        path = context.data_file_path_of(entry.partition, entry.bucket, entry.file.file_name)
        yield DoomedFile(path, kind, entry.file.file_size)
        for name in entry.file.extra_files:
            yield DoomedFile(context.data_file_path_of(entry.partition, entry.bucket, name), "index")


def manifest_lists(snapshot: Snapshot, changelog: bool = True) -> list[tuple[str, int | None]]:
    """Names and sizes of the snapshot's lists."""
    lists: list[tuple[str | None, int | None]] = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if changelog:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    return [(name, size) for name, size in lists if name is not None]


def files_of_lists(context: TableContext, lists: Sequence[tuple[str, int | None]]) -> Iterator[DoomedFile]:
    """The manifests that these lists name; the lists come last."""
    for name, size in lists:
        for meta in context.manifests.manifest_list(name, size):
            yield DoomedFile(context.layout.manifest(meta.file_name), "manifest", meta.file_size)
    for name, size in lists:
        yield DoomedFile(context.layout.manifest(name), "manifest list", size)


def index_files(context: TableContext, snapshot: Snapshot) -> Iterator[DoomedFile]:
    """Index files and their manifest."""
    layout = context.layout
    for index in context.manifests.index_entries(snapshot):
        if index.index_file.external_path is None:
            yield DoomedFile(layout.index(index.index_file.file_name), "index", index.index_file.file_size)
    if snapshot.index_manifest is not None:
        yield DoomedFile(layout.manifest(snapshot.index_manifest), "index manifest")


def statistics_files(context: TableContext, snapshot: Snapshot) -> list[DoomedFile]:
    """What ANALYZE wrote, which later snapshots inherit."""
    if snapshot.statistics is None:
        return []
    return [DoomedFile(f"{context.layout.statistics_directory}/{snapshot.statistics}", "statistics")]


def metadata_files(context: TableContext, snapshot: Snapshot) -> list[DoomedFile]:
    """Manifests, lists, index manifest, index files and statistics; a file comes after those that it names."""
    indexes, lists = index_files(context, snapshot), files_of_lists(context, manifest_lists(snapshot))
    return [*indexes, *statistics_files(context, snapshot), *lists]


def metadata_paths(context: TableContext, snapshot: Snapshot) -> list[str]:
    """Paths of the metadata files of a snapshot."""
    return [file.path for file in metadata_files(context, snapshot)]


def total_size(files: Iterable[DoomedFile]) -> int:
    return sum(file.size or 0 for file in files)
