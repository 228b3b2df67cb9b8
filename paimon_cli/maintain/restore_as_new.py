"""Rollback as a new commit: an OVERWRITE snapshot on top of the latest one, with the rows of an older one, or of a backup.

Files that later snapshots replaced are copied under new names: expiry deletes every file that a snapshot removed, so no snapshot
may add an old name again. Of a backup all files are copied: those of the table may be the very ones that are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_cli.commit.commit_messages import CommitKind, removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import check_of_partitions
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    BucketId,
    CommitMessage,
    DataFileMeta,
    DeletionVectorRange,
    FileChanges,
    IndexFileMeta,
    ManifestEntry,
)
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.storage.file_copy import FileCopy, FileToCopy


@dataclass(frozen=True)
class BucketDifference:
    """Files that one bucket has in addition to an older state, and files that it lacks.

    `total_buckets`: that of the older state.
    """

    bucket_id: BucketId
    total_buckets: int
    removed: tuple[DataFileMeta, ...]
    missing: tuple[DataFileMeta, ...]
    removed_indexes: tuple[IndexFileMeta, ...]
    missing_indexes: tuple[IndexFileMeta, ...]

    @property
    def copied_bytes(self) -> int:
        return sum(file.file_size for file in self.missing) + sum(index.file_size for index in self.missing_indexes)


def differences(context: TableContext, latest: Snapshot, target: Snapshot) -> list[BucketDifference]:
    """The buckets whose files differ between the two snapshots."""
    now, then = _by_bucket(context.manifests.live_entries(latest)), _by_bucket(context.manifests.live_entries(target))
    indexes_now, indexes_then = _indexes(context, latest), _indexes(context, target)
    found = []
    for bucket_id in sorted(now.keys() | then.keys() | indexes_now.keys() | indexes_then.keys()):
        have, want = now.get(bucket_id, {}), then.get(bucket_id, {})
        removed = tuple(entry.file for identity, entry in have.items() if identity not in want)
        missing = tuple(entry.file for identity, entry in want.items() if identity not in have)
        old, new = indexes_now.get(bucket_id, {}), indexes_then.get(bucket_id, {})
        removed_indexes = tuple(file for name, file in old.items() if name not in new)
        marked = {entry.file.file_name for entry in want.values()}
        missing_indexes = tuple(_of_files(file, marked) for name, file in new.items() if name not in old)
        if removed or missing or removed_indexes or missing_indexes:
            entry = next(iter((*want.values(), *have.values())), None)
            total = context.options.bucket if entry is None else entry.total_buckets
            found.append(BucketDifference(bucket_id, total, removed, missing, removed_indexes, missing_indexes))
    return found


def whole_difference(
    context: TableContext, latest: Snapshot | None, backup: TableContext, target: Snapshot
) -> list[BucketDifference]:
    """All buckets of a table, and of a version of its backup, as if they had no file in common."""
    now = {} if latest is None else _by_bucket(context.manifests.live_entries(latest))
    indexes_now = {} if latest is None else _indexes(context, latest)
    then, indexes_then = _by_bucket(backup.manifests.live_entries(target)), _indexes(backup, target)
    found = []
    for bucket_id in sorted(now.keys() | then.keys() | indexes_now.keys() | indexes_then.keys()):
        have, want = now.get(bucket_id, {}), then.get(bucket_id, {})
        marked = {entry.file.file_name for entry in want.values()}
        entry = next(iter((*want.values(), *have.values())), None)
        found.append(
            BucketDifference(
                bucket_id,
                context.options.bucket if entry is None else entry.total_buckets,
                tuple(entry.file for entry in have.values()),
                tuple(entry.file for entry in want.values()),
                tuple(indexes_now.get(bucket_id, {}).values()),
                tuple(_of_files(file, marked) for file in indexes_then.get(bucket_id, {}).values()),
            )
        )
    return found


CopyFiles = Callable[[Sequence[FileToCopy]], None]
"""Copies files, each to the name that it says."""


def restore_as_new(
    context: TableContext,
    latest: Snapshot | None,
    target: Snapshot,
    found: Iterable[BucketDifference],
    copy_files: CopyFiles | None = None,
) -> CommitResult:
    """Copy the missing files of `target` and commit. `copy_files`: from elsewhere, by default within the table.

    Raises `Conflict` if another commit wrote to any partition, even to one without a difference: the new snapshot would have its
    rows beside those of `target`. The copies are then deleted.
    """
    messages: list[CommitMessage] = []
    copy = copy_files or _within(context)
    with removed_on_refusal(context, messages):
        for difference in found:
            copy(_copy_into(context, difference, latest, messages))
        identity = fresh_identity(context)
        # after a rollback, rows of the target may have ids that are new to the latest snapshot
        committer = Committer(context, ConflictCheck.OFF, least_row_id=target.next_row_id or 0)
        whole = check_of_partitions(context, identity, lambda partition: True, None if latest is None else latest.id)
        return committer.commit(messages, identity, CommitKind.RESTORE, also=[whole])


def _within(context: TableContext) -> CopyFiles:
    copy = FileCopy(context.storage, context.layout.root, context.storage, context.layout.root)

    def copy_files(files: Sequence[FileToCopy]) -> None:
        for file in files:
            copy.copy(file)

    return copy_files


def _copy_into(
    context: TableContext, found: BucketDifference, latest: Snapshot | None, messages: list[CommitMessage]
) -> list[FileToCopy]:
    """The files to copy. The message is complete before the first byte is, so that copies can be deleted by their names after a
    failure.
    """
    partition, bucket = found.bucket_id
    stamp = context.random.uuid()
    if any(file.external_path is not None for file in found.missing):
        why = "files that are no longer live are copied within the directory of the table, and one of them is elsewhere"
        raise NotSupported(f"cannot restore {context.bucket_path(partition, bucket)}", why, "roll back without --as-new")
    names = {file.file_name: _new_name(file.file_name, f"data-{stamp}-{n}") for n, file in enumerate(found.missing)}
    indexes = [_renamed_index(file, f"index-{stamp}-{n}", names) for n, file in enumerate(found.missing_indexes)]
    copies = [_renamed(file, names[file.file_name]) for file in found.missing]
    messages.append(
        CommitMessage(
            partition,
            bucket,
            found.total_buckets,
            append=FileChanges(
                added=tuple(copies), removed=found.removed, added_indexes=tuple(indexes), removed_indexes=found.removed_indexes
            ),
            read_snapshot_id=None if latest is None else latest.id,
        )
    )
    files: list[FileToCopy] = []
    below = f"{context.layout.root}/"
    for old, new in zip(found.missing, copies, strict=True):
        for old_name, new_name in zip((old.file_name, *old.extra_files), (new.file_name, *new.extra_files), strict=True):
            source, sink = (
                context.data_file_path_of(partition, bucket, name).removeprefix(below) for name in (old_name, new_name)
            )
            files.append(FileToCopy(source, old.file_size if old_name == old.file_name else None, sink))
    for index, copy in zip(found.missing_indexes, indexes, strict=True):
        source, sink = (context.layout.index(name).removeprefix(below) for name in (index.file_name, copy.file_name))
        files.append(FileToCopy(source, index.file_size, sink))
    return files


def _of_files(index: IndexFileMeta, names: Collection[str]) -> IndexFileMeta:
    """The index file with the deletion vectors of these data files: Java leaves some of files that are gone."""
    return index.listing_vectors_of(names.__contains__)


def _renamed(file: DataFileMeta, name: str) -> DataFileMeta:
    return replace(file, file_name=name, extra_files=tuple(_new_extra(extra, file.file_name, name) for extra in file.extra_files))


def _renamed_index(file: IndexFileMeta, name: str, names: Mapping[str, str]) -> IndexFileMeta:
    """Copy an index file byte for byte: deletion vectors name their data files in the manifest only."""
    ranges = file.deletion_vector_ranges
    if ranges is not None:
        ranges = tuple(_moved(found, names) for found in ranges)
    return replace(file, file_name=name, deletion_vector_ranges=ranges)


def _moved(found: DeletionVectorRange, names: Mapping[str, str]) -> DeletionVectorRange:
    return replace(found, data_file_name=names.get(found.data_file_name, found.data_file_name))


def _new_name(old: str, stem: str) -> str:
    """A new name with the old suffix: format and codec follow the first dot, and readers rely on them."""
    return stem + old[old.index(".") :] if "." in old else stem


def _new_extra(extra: str, old: str, new: str) -> str:
    return new + extra.removeprefix(old) if extra.startswith(old) else f"{new}.{extra}"


def _by_bucket(entries: Iterable[ManifestEntry]) -> dict[BucketId, dict[object, ManifestEntry]]:
    found: dict[BucketId, dict[object, ManifestEntry]] = {}
    for entry in entries:
        found.setdefault(entry.bucket_id, {})[entry.identity] = entry
    return found


def _indexes(context: TableContext, snapshot: Snapshot) -> dict[BucketId, dict[str, IndexFileMeta]]:
    found: dict[BucketId, dict[str, IndexFileMeta]] = {}
    for entry in context.manifests.index_entries(snapshot):
        found.setdefault(entry.bucket_id, {})[entry.index_file.file_name] = entry.index_file
    return found
