"""The changes of one snapshot: commit messages as manifest entries (FORMAT.md, section 10.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.data_file import ADD, DELETE, DataFileMeta, FileFilter, IndexFileMeta, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot

DELETION_VECTORS = "DELETION_VECTORS"


@dataclass(frozen=True)
class SnapshotChanges:
    """Entries of the delta (DELETEs before ADDs), of the changelog, and of the index manifest, for one snapshot.

    `check_files`: the files to delete must still be there and levels must stay disjoint. `replaces_partitions`: the DELETEs
    are all that lives in the touched partitions, so their bucket count may change. `read_snapshot_id`: the oldest snapshot
    that a writer of these changes saw, None if unknown.
    """

    kind: str
    entries: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...] = ()
    new_indexes: tuple[IndexManifestEntry, ...] = ()
    deleted_indexes: tuple[IndexManifestEntry, ...] = ()
    check_files: bool = False
    replaces_partitions: bool = False
    read_snapshot_id: int | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.changelog or self.new_indexes or self.deleted_indexes)


ChangesOn = Callable[[Snapshot | None], SnapshotChanges]
"""The changes to make if that snapshot is the latest; asked again at every attempt."""


def append_changes(messages: Sequence[CommitMessage], check_files: bool) -> SnapshotChanges:
    """The append halves. With deletes or deletion vectors the snapshot is an OVERWRITE, as Java has it since 1.3."""
    deleted = _entries(DELETE, messages, lambda m: m.deleted_files)
    new_indexes = _indexes(ADD, messages, lambda m: m.new_index_files)
    rewrites = bool(deleted) or any(entry.index_file.index_type == DELETION_VECTORS for entry in new_indexes)
    return SnapshotChanges(
        kind=OVERWRITE if rewrites else APPEND,
        entries=deleted + _entries(ADD, messages, lambda m: m.new_files),
        changelog=_entries(ADD, messages, lambda m: m.changelog_files),
        new_indexes=new_indexes,
        deleted_indexes=_indexes(DELETE, messages, lambda m: m.deleted_index_files),
        check_files=check_files or rewrites,
        read_snapshot_id=oldest_read(messages),
    )


def compact_changes(messages: Sequence[CommitMessage]) -> SnapshotChanges:
    """The compact halves."""
    before = _entries(DELETE, messages, lambda m: m.compact_before)
    return SnapshotChanges(
        kind=COMPACT,
        entries=before + _entries(ADD, messages, lambda m: m.compact_after),
        changelog=_entries(ADD, messages, lambda m: m.compact_changelog_files),
        new_indexes=_indexes(ADD, messages, lambda m: m.compact_new_index_files),
        deleted_indexes=_indexes(DELETE, messages, lambda m: m.compact_deleted_index_files),
        check_files=True,
        read_snapshot_id=oldest_read(messages),
    )


def overwrite_changes(
    context: TableContext, messages: Sequence[CommitMessage], replaced: Callable[[bytes], bool], latest: Snapshot | None
) -> SnapshotChanges:
    """Delete all live files of the replaced partitions at `latest` and add the new files (FORMAT.md, section 10.5).

    Raises `UsageError` if a new file lies in a partition that is not replaced.
    """
    for message in messages:
        if message.has_append and not replaced(message.partition):
            raise UsageError(
                f"rows outside the partitions to overwrite: {context.partition_path_of(message.partition)}",
                "an overwrite may only write to the partitions that it replaces",
            )
    live, indexes = [], []
    if latest is not None:
        live = context.manifests.live_entries(latest, FileFilter(replaced))
        indexes = [entry for entry in context.manifests.index_entries(latest) if replaced(entry.partition)]
    deleted = tuple(ManifestEntry(DELETE, e.partition, e.bucket, e.total_buckets, e.file) for e in live)
    return SnapshotChanges(
        kind=OVERWRITE,
        entries=deleted + _entries(ADD, messages, lambda m: m.new_files),
        new_indexes=_indexes(ADD, messages, lambda m: m.new_index_files),
        deleted_indexes=tuple(IndexManifestEntry(DELETE, e.partition, e.bucket, e.index_file) for e in indexes),
        check_files=True,
        replaces_partitions=True,
        read_snapshot_id=oldest_read(messages),
    )


def _entries(
    kind: int, messages: Iterable[CommitMessage], files: Callable[[CommitMessage], Iterable[DataFileMeta]]
) -> tuple[ManifestEntry, ...]:
    return tuple(ManifestEntry(kind, m.partition, m.bucket, m.total_buckets, file) for m in messages for file in files(m))


def _indexes(
    kind: int, messages: Iterable[CommitMessage], files: Callable[[CommitMessage], Iterable[IndexFileMeta]]
) -> tuple[IndexManifestEntry, ...]:
    return tuple(IndexManifestEntry(kind, m.partition, m.bucket, file) for m in messages for file in files(m))


def oldest_read(messages: Iterable[CommitMessage]) -> int | None:
    """The oldest snapshot that a writer saw; None if one saw none, or it is not known."""
    seen = [m.read_snapshot_id for m in messages]
    known = [number for number in seen if number is not None]
    return min(known) if known and len(known) == len(seen) else None
