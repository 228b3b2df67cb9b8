"""The files that a snapshot names, as files to delete or copy: data files, changelogs, manifests, lists, indexes, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry, SimpleStats
from paimon_cli.metadata.snapshot import Snapshot

FileKey = tuple[bytes, int, str]
"""Partition, bucket and name of a data file: whatever its level, it is one file on storage."""


_NO_STATS = SimpleStats()


@dataclass(frozen=True, slots=True)
class FileToDelete:
    """A file that may be deleted; `size` in bytes if metadata has it."""

    path: str
    kind: str
    size: int | None = None


_RANKS = {"manifest": 1, "manifest list": 2, "index manifest": 2}


_DATA_RANK = 0


def rank_of(kind: str) -> int:
    """Files of a rank are named by those of a higher one only: the order in which they are deleted, and copied."""
    return _RANKS.get(kind, _DATA_RANK)


def key_of_file(entry: ManifestEntry) -> FileKey:
    return (entry.partition, entry.bucket, entry.file.file_name)


def files_made_dead(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Files deleted by the snapshot's commit and not added again, as an upgrade does; no later snapshot needs them."""
    changes = context.manifests.delta_entries(snapshot)
    added = {key_of_file(entry) for entry in changes if entry.kind == EntryKind.ADD}
    return [lean(entry) for entry in changes if entry.kind == EntryKind.DELETE and key_of_file(entry) not in added]


def lean(entry: ManifestEntry) -> ManifestEntry:
    """The entry without keys and statistics, because a hundred thousand entries are kept in memory."""
    file = replace(entry.file, min_key=b"", max_key=b"", key_stats=_NO_STATS, value_stats=_NO_STATS, embedded_file_index=None)
    return ManifestEntry(entry.kind, entry.partition, entry.bucket, entry.total_buckets, file)


def changelog_entries(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Changelog files added by the snapshot's own commit."""
    if snapshot.changelog_manifest_list is None:
        return []
    manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
    return [lean(entry) for entries in context.manifests.entries(manifests) for entry in entries if entry.kind == EntryKind.ADD]


def file_paths(context: TableContext, entry: ManifestEntry) -> Iterator[str]:
    """The data file and its extra files. Raises as `TableContext.file_paths`."""
    return (file.path for file in data_files_to_delete(context, entry, "data"))


def data_files_to_delete(context: TableContext, entry: ManifestEntry, kind: str) -> Iterator[FileToDelete]:
    """The data file of an entry and its extra files, as files to delete. Raises as `TableContext.file_paths`."""
    path, *extra = context.file_paths(entry.partition, entry.bucket, entry.file)
    yield FileToDelete(path, kind, entry.file.file_size)
    for beside in extra:
        yield FileToDelete(beside, "index")


def manifest_lists(snapshot: Snapshot, changelog: bool = True) -> list[tuple[str, int | None]]:
    """Names and sizes of the manifest lists of the snapshot."""
    lists: list[tuple[str | None, int | None]] = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if changelog:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    return [(name, size) for name, size in lists if name is not None]


def as_kept(context: TableContext, snapshot: Snapshot) -> Snapshot:
    """The snapshot as a tag keeps it: without its changelog if that list is gone. Java's expiry deletes it with the snapshot of
    the main branch, even if a branch began with that tag, whose first snapshot then still names it.
    """
    name = snapshot.changelog_manifest_list
    if name is None or context.storage.exists(context.layout.manifest(name)):
        return snapshot
    return replace(snapshot, changelog_manifest_list=None, changelog_manifest_list_size=None)


def kept_lists(context: TableContext, snapshot: Snapshot) -> list[tuple[str, int | None]]:
    """The manifest lists of a snapshot or tag. A tag does not keep the changelog of its snapshot (`as_kept`)."""
    return manifest_lists(as_kept(context, snapshot))


def files_of_lists(context: TableContext, lists: Sequence[tuple[str, int | None]]) -> Iterator[FileToDelete]:
    """The manifests named by these lists, then the lists."""
    for name, size in lists:
        for meta in context.manifests.manifest_list(name, size):
            yield FileToDelete(context.layout.manifest(meta.file_name), "manifest", meta.file_size)
    for name, size in lists:
        yield FileToDelete(context.layout.manifest(name), "manifest list", size)


def index_files(context: TableContext, snapshot: Snapshot) -> Iterator[FileToDelete]:
    """The index files, then their manifest."""
    layout = context.layout
    for index in context.manifests.index_entries(snapshot):
        if index.index_file.external_path is None:
            yield FileToDelete(layout.index(index.index_file.file_name), "index", index.index_file.file_size)
    if snapshot.index_manifest is not None:
        yield FileToDelete(layout.manifest(snapshot.index_manifest), "index manifest")


def statistics_files(context: TableContext, snapshot: Snapshot) -> list[FileToDelete]:
    """The file that ANALYZE wrote, which later snapshots inherit."""
    if snapshot.statistics is None:
        return []
    return [FileToDelete(f"{context.layout.statistics_directory}/{snapshot.statistics}", "statistics")]


def metadata_files(context: TableContext, snapshot: Snapshot) -> list[FileToDelete]:
    """Manifests, lists, index manifest, index files and statistics; a file comes after those that it names."""
    indexes, lists = index_files(context, snapshot), files_of_lists(context, kept_lists(context, snapshot))
    return [*indexes, *statistics_files(context, snapshot), *lists]


def metadata_paths(context: TableContext, snapshot: Snapshot) -> list[str]:
    """Paths of the metadata files of a snapshot."""
    return [file.path for file in metadata_files(context, snapshot)]


def total_size(files: Iterable[FileToDelete]) -> int:
    return sum(file.size or 0 for file in files)


def measured(context: TableContext, files: Sequence[FileToDelete]) -> list[FileToDelete]:
    """The files with their sizes. Files of unknown size that do not exist are left out."""
    directories = _sizes(context, {_directory(file) for file in files if file.size is None})
    found = []
    for file in files:
        sizes = directories.get(_directory(file))
        if sizes is None:
            found.append(file)
        elif file.path in sizes:
            found.append(replace(file, size=sizes[file.path]))
    return found


def _sizes(context: TableContext, directories: Iterable[str]) -> dict[str, dict[str, int]]:
    """File sizes by path, listed by directory."""
    return {name: {status.path: status.size for status in context.storage.list_directory(name)} for name in directories}


def _directory(file: FileToDelete) -> str:
    return file.path.rpartition("/")[0]
