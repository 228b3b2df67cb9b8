"""Turns commit messages into the changes of a snapshot, and deletes their files if the commit is refused.

The changes are entries of manifests and of the index manifest (FORMAT.md, sections 4.5 and 10.2).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property

from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import BeingDropped, FilesConflict, PaimonError, Unpublished, UsageError, cleaning_up
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    BucketId,
    CommitMessage,
    DataFileMeta,
    EntryKind,
    FileFilter,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.directories import remove_empty_directories


@dataclass(frozen=True)
class SnapshotChanges:
    """The changes of one snapshot: entries of the delta (DELETEs before ADDs), of the changelog, and of the index manifest.

    `check_files`: the files to delete must still be live, and levels must stay disjoint. `replaces_partitions`: the DELETEs are
    all live files of the changed partitions, so that their bucket count may change. `read_snapshot_id`: the oldest snapshot that
    a writer has read, None if unknown. What the changes are based on: `read_vectors`, by bucket the index files of deletion
    vectors; `read_upper_files`, by bucket the data files above level 0 in which older rows were looked up; `read_hash_indexes`,
    by partition the state of the hash indexes that assigned rows to buckets. `next_row_id`: the id of the next row after the
    changes, if they give rows their ids.
    """

    kind: str
    entries: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...] = ()
    new_indexes: tuple[IndexManifestEntry, ...] = ()
    deleted_indexes: tuple[IndexManifestEntry, ...] = ()
    check_files: bool = False
    replaces_partitions: bool = False
    read_snapshot_id: int | None = None
    read_vectors: tuple[tuple[BucketId, tuple[str, ...]], ...] = ()
    read_upper_files: tuple[tuple[BucketId, tuple[str, ...]], ...] = ()
    read_hash_indexes: frozenset[tuple[bytes, str]] = frozenset()
    next_row_id: int | None = None

    @cached_property
    def is_empty(self) -> bool:
        return not (self.entries or self.changelog or self.new_indexes or self.deleted_indexes)

    def numbered_by_snapshot(self, snapshot_id: int) -> SnapshotChanges:
        """The changes, with the id of the snapshot as the sequence number of all rows in new files."""
        entries = (replace(e, file=e.file.numbered(snapshot_id)) if e.kind == EntryKind.ADD else e for e in self.entries)
        return replace(self, entries=tuple(entries))

    def unnumbered(self) -> SnapshotChanges:
        """The changes, in which new and changed rows have no numbers yet."""
        entries = (replace(e, file=e.file.unnumbered()) if e.kind == EntryKind.ADD else e for e in self.entries)
        return replace(self, entries=tuple(entries))

    def with_row_ids(self, snapshot_id: int, next_row_id: int) -> SnapshotChanges:
        """The changes, in which new rows have ids from `next_row_id` on, and new or changed rows the id of the snapshot as their
        sequence number (FORMAT.md, section 7.5; Java RowTrackingCommitUtils).

        The files of a partition get neighbouring ids. Files that store the ids of their rows, or had ids before, keep them.
        """
        added: dict[bytes, list[ManifestEntry]] = {}
        for entry in self.entries:
            if entry.kind == EntryKind.ADD:
                added.setdefault(entry.partition, []).append(entry)
        entries = [entry for entry in self.entries if entry.kind != EntryKind.ADD]
        for entry in (entry for partition in added.values() for entry in partition):
            file = entry.file.tracked(snapshot_id, next_row_id)
            next_row_id += file.row_count if file.first_row_id != entry.file.first_row_id else 0
            entries.append(replace(entry, file=file))
        changed = tuple(entries) != self.entries
        return replace(self, entries=tuple(entries), next_row_id=next_row_id) if changed else self


ChangesOn = Callable[[Snapshot | None], SnapshotChanges]
"""Returns the changes to commit on top of the latest snapshot. Called for every attempt."""


class CommitKind(Enum):
    """What a job commits. It decides how the changes are checked, and what readers of streams see."""

    WRITE = auto()
    """New rows, and compactions of the files below them."""
    DISTRIBUTE = auto()
    """Rows that a compaction brings into their buckets: newer rows that others commit there meanwhile are a conflict."""
    REPAIR = auto()
    """Files that the table had lost. Those that they replace must be live, and the rows keep their place among the snapshots."""
    RESTORE = auto()
    """An older state of the table, in the same way. The snapshot is an OVERWRITE, which streams skip."""

    @property
    def is_of_old_rows(self) -> bool:
        """Whether the rows were in the table before."""
        return self in (CommitKind.REPAIR, CommitKind.RESTORE)


def append_changes(messages: Sequence[CommitMessage], kind: CommitKind) -> SnapshotChanges:
    """The changes in the append halves of messages.

    An APPEND; an OVERWRITE if an older state is restored, files are deleted, or deletion vectors are added (as in Java 1.3) or
    removed.
    """
    deleted = _entries(EntryKind.DELETE, messages, lambda m: m.append.removed)
    new_indexes = _indexes(EntryKind.ADD, messages, lambda m: m.append.added_indexes)
    deleted_indexes = _indexes(EntryKind.DELETE, messages, lambda m: m.append.removed_indexes)
    indexes = (*new_indexes, *deleted_indexes)
    rewrites = bool(deleted) or any(entry.index_file.index_type == DELETION_VECTORS for entry in indexes)
    return SnapshotChanges(
        kind=OVERWRITE if rewrites or kind is CommitKind.RESTORE else APPEND,
        entries=deleted + _entries(EntryKind.ADD, messages, lambda m: m.append.added),
        changelog=_entries(EntryKind.ADD, messages, lambda m: m.append.changelog),
        new_indexes=new_indexes,
        deleted_indexes=deleted_indexes,
        check_files=rewrites or kind.is_of_old_rows,
        read_snapshot_id=oldest_read(messages),
        read_hash_indexes=frozenset((m.partition, m.read_hash_index) for m in messages if m.read_hash_index is not None),
    )


def compact_changes(messages: Sequence[CommitMessage]) -> SnapshotChanges:
    """The changes in the compact halves of messages."""
    before = _entries(EntryKind.DELETE, messages, lambda m: m.compact.removed)
    return SnapshotChanges(
        kind=COMPACT,
        entries=before + _entries(EntryKind.ADD, messages, lambda m: m.compact.added),
        changelog=_entries(EntryKind.ADD, messages, lambda m: m.compact.changelog),
        new_indexes=_indexes(EntryKind.ADD, messages, lambda m: m.compact.added_indexes),
        deleted_indexes=_indexes(EntryKind.DELETE, messages, lambda m: m.compact.removed_indexes),
        check_files=True,
        read_snapshot_id=oldest_read(messages),
        read_vectors=tuple((m.bucket_id, m.read_index_files) for m in messages if m.read_index_files is not None),
        read_upper_files=tuple((m.bucket_id, m.read_upper_files) for m in messages if m.read_upper_files is not None),
    )


def overwrite_changes(
    context: TableContext,
    messages: Sequence[CommitMessage],
    replaced: Callable[[bytes], bool],
    latest: Snapshot | None,
    keeps_postponed: bool = False,
) -> SnapshotChanges:
    """The changes that delete all live files of the replaced partitions at `latest`, and add the new files (FORMAT.md, 10.5).

    `keeps_postponed`: files in `bucket-postpone` are not deleted. Raises `UsageError` if a new file is in a partition that is not
    replaced.
    """
    moves_rows = context.mode.bucket_mode.moves_keys  # adds deletes in other partitions
    for message in messages:
        if message.append and not (moves_rows or replaced(message.partition)):
            raise UsageError(
                f"rows outside the partitions to overwrite: {partition_text(context, message.partition)}",
                "an overwrite may only write to the partitions that it replaces",
            )
    live, indexes = [], []
    if latest is not None:
        live = context.manifests.live_entries(latest, FileFilter(replaced))
        live = [entry for entry in live if not (keeps_postponed and entry.is_postponed)]
        indexes = [entry for entry in context.manifests.index_entries(latest) if replaced(entry.partition)]
    deleted = tuple(ManifestEntry(EntryKind.DELETE, e.partition, e.bucket, e.total_buckets, e.file) for e in live)
    return SnapshotChanges(
        kind=OVERWRITE,
        entries=deleted + _entries(EntryKind.ADD, messages, lambda m: m.append.added),
        new_indexes=_indexes(EntryKind.ADD, messages, lambda m: m.append.added_indexes),
        deleted_indexes=tuple(IndexManifestEntry(EntryKind.DELETE, e.partition, e.bucket, e.index_file) for e in indexes),
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
    """The id of the oldest snapshot that a writer has read; None if one of them has read none, or it is not known."""
    ids = [m.read_snapshot_id for m in messages]
    known = [number for number in ids if number is not None]
    return min(known) if known and len(known) == len(ids) else None


def meets_distributed_rows(context: TableContext, messages: Iterable[CommitMessage]) -> bool:
    """Whether the messages add to buckets of a table whose compactions bring rows into buckets, too."""
    return postpones_buckets(context) and any(m.append and m.bucket != POSTPONE_BUCKET for m in messages)


def postpones_buckets(context: TableContext) -> bool:
    """Whether the buckets of the table are postponed, even if this job overrides the option to rewrite partitions."""
    return POSTPONE_BUCKET in (context.options.bucket, context.schema.typed_options.bucket)


def apply_index_changes(
    context: TableContext, previous: Sequence[IndexManifestEntry], changes: SnapshotChanges
) -> list[IndexManifestEntry]:
    """The entries of the index manifest after the changes. A new hash index replaces the one of its bucket.

    Raises `FilesConflict` if another commit has changed the index since it was read: a file to delete is not current, or a bucket
    would get a second file of deletion vectors, so that vectors would be lost.
    """
    current = {_index_key(entry): entry for entry in previous}
    for entry in changes.deleted_indexes:
        removed = current.pop(_index_key(entry), None)
        if removed is None or removed.index_file.file_name != entry.index_file.file_name:
            raise _changed_by_others(context, entry)
    marked = {entry.bucket_id: entry for entry in current.values() if entry.index_file.index_type == DELETION_VECTORS}
    has_buckets = bool(context.schema.primary_keys) or context.options.bucket != -1
    for entry in changes.new_indexes:
        if has_buckets and entry.index_file.index_type == DELETION_VECTORS and entry.bucket_id in marked:
            raise _changed_by_others(context, marked[entry.bucket_id])
        current[_index_key(entry)] = IndexManifestEntry(EntryKind.ADD, entry.partition, entry.bucket, entry.index_file)
    return list(current.values())


def _index_key(entry: IndexManifestEntry) -> tuple[object, ...]:
    """The identity of an entry: its bucket and index type, for deletion vectors also the name of the file."""
    key = (entry.partition, entry.bucket, entry.index_file.index_type)
    return (*key, entry.index_file.file_name) if entry.index_file.index_type == DELETION_VECTORS else key


def _changed_by_others(context: TableContext, entry: IndexManifestEntry) -> FilesConflict:
    file = entry.index_file
    directory = context.bucket_path(entry.partition, entry.bucket)
    return FilesConflict(
        f"index file {file.file_name} of {directory} is no longer current",
        f"another commit replaced the {file.index_type} index of this bucket since it was read",
        "run the job again",
        file=file.file_name,
        bucket=entry.bucket,
    )


def delete_created_files(context: TableContext, messages: Sequence[CommitMessage], published: Sequence[Snapshot] = ()) -> int:
    """Delete the data, changelog and index files of messages whose commit was not made, but for the `published` part of it.
    Returns how many were deleted.

    Files that a snapshot names stay, because a commit of two halves may have published the first one. Must not be called if the
    outcome is unknown, since a snapshot might still appear.
    """
    named = files_named_since(context, messages, [snapshot.id for snapshot in published])
    files = [path for name, path in created_files(context, messages) if name not in named]
    delete_all(context.storage, files)
    return len(files)


def settle_files(context: TableContext, messages: Sequence[CommitMessage], result: CommitResult) -> None:
    """Delete the files of `messages` that no snapshot will ever name, after their commit has ended with `result`.

    `CommitOutcome` decides, and nothing else does. A clean-up that fails leaves orphans, and is noted in the failure.
    """
    if not result.outcome.leaves_unnamed_files:
        return
    with cleaning_up(result.failure):
        delete_created_files(context, messages, result.snapshots)
        if isinstance(result.failure, BeingDropped):  # writing new files has made directories again that the drop had removed
            remove_empty_directories(context.storage, context.url)


@contextlib.contextmanager
def removed_on_refusal(context: TableContext, messages: Sequence[CommitMessage]) -> Iterator[None]:
    """A context around the work on `messages` and their commit: `settle_files` if one of them fails."""
    try:
        yield
    except (PaimonError, Unpublished) as failure:
        settle_files(context, messages, CommitResult.failed(failure))
        raise


def created_files(context: TableContext, messages: Sequence[CommitMessage]) -> list[tuple[str, str]]:
    """(name, path) of all files that these messages created. Extra files have the name of their data file."""
    files = []
    for message in messages:
        for file in message.created_files():
            files += [(file.file_name, path) for path in context.file_paths(message.partition, message.bucket, file)]
        for index in message.created_index_files():
            files.append((index.file_name, context.layout.index(index.file_name)))
    return files


def files_named_since(context: TableContext, messages: Sequence[CommitMessage], published: Sequence[int] = ()) -> set[str]:
    """Names of all files that were added to the table after the oldest snapshot that a writer of the messages has read.

    If that snapshot has expired, they include the live files of the oldest existing snapshot. `published`: snapshots that name
    files of the messages; after a rollback, their ids may be below those that were read.
    """
    ids = [*(message.read_snapshot_id for message in messages), *(number - 1 for number in published)]
    begin = min((number for number in ids if number is not None), default=0) if None not in ids else 0
    named: set[str] = set()
    oldest = None
    for snapshot in context.snapshots.newest_first(even_if_dropped=True):
        if snapshot.id <= begin:
            return named
        named |= {entry.file.file_name for entry in context.manifests.delta_entries(snapshot) if entry.kind == EntryKind.ADD}
        named |= {entry.index_file.file_name for entry in context.manifests.index_entries(snapshot)}
        if snapshot.changelog_manifest_list is not None:
            changelogs = context.manifests.manifest_list(snapshot.changelog_manifest_list)
            named |= {entry.file.file_name for entries in context.manifests.entries(changelogs) for entry in entries}
        oldest = snapshot
    if oldest is not None and oldest.id != 1:
        named |= {entry.file.file_name for entry in context.manifests.live_entries(oldest)}
    return named
