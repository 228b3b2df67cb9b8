"""Rollback as a new commit: an OVERWRITE snapshot on top of the latest one, with the rows of an older one.

Files that later snapshots replaced are copied under new names: expiry deletes every file that a snapshot removed, so no snapshot
may add an old name again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from paimon_cli.commit.commit_messages import CommitKind, removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import DamagedFile
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
from paimon_cli.pieces import PIECES


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


def restore_as_new(context: TableContext, latest: Snapshot, found: Iterable[BucketDifference]) -> CommitResult:
    """Copy the missing files and commit.

    Raises `Conflict` if another commit wrote to these partitions; the copies are then deleted.
    """
    messages: list[CommitMessage] = []
    with removed_on_refusal(context, messages):
        for difference in found:
            _copy_into(context, difference, latest, messages)
        identity = fresh_identity(context)
        return Committer(context, ConflictCheck.PARTITION).commit(messages, identity, CommitKind.RESTORE)


def _copy_into(context: TableContext, found: BucketDifference, latest: Snapshot, messages: list[CommitMessage]) -> None:
    """Complete the message before the first byte is copied, so that copies can be deleted by their names after a failure."""
    partition, bucket = found.bucket_id
    stamp = context.random.uuid()
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
            read_snapshot_id=latest.id,
        )
    )
    for old, new in zip(found.missing, copies, strict=True):
        for old_name, new_name in zip((old.file_name, *old.extra_files), (new.file_name, *new.extra_files), strict=True):
            source, sink = (context.data_file_path_of(partition, bucket, name) for name in (old_name, new_name))
            _copy(context, source, sink, old.file_size if old_name == old.file_name else None)
    for index, copy in zip(found.missing_indexes, indexes, strict=True):
        _copy(context, context.layout.index(index.file_name), context.layout.index(copy.file_name), index.file_size)


def _copy(context: TableContext, source: str, sink: str, size: int | None) -> None:
    """Copy a file. Raises `DamagedFile` if its length differs from its metadata."""
    copied = 0
    with context.storage.open_input(source) as reader, context.storage.open_output(sink) as writer:
        while block := reader.read(PIECES.copied_bytes):
            copied += writer.write(block)
    if copied != (context.storage.file_size(source) if size is None else size):
        raise DamagedFile(f"{source} is damaged", f"{copied} bytes were read, but {size} were written", path=source)


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
