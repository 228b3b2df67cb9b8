"""Commit messages, the result of the write phase and of compactions: plain, picklable values (FORMAT.md, section 10.1)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.metadata.data_file import BucketId, DataFileMeta, IndexFileMeta


@dataclass(frozen=True)
class CommitMessage:
    """All changes of one job to one (partition, bucket) (Java CommitMessageImpl).

    The append half (`new_files`, `deleted_files`, `changelog_files`, `new_index_files`, `deleted_index_files`) becomes an
    APPEND snapshot, the compact half a COMPACT snapshot after it. `read_snapshot_id` is the snapshot that the writer read.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    compact_changelog_files: tuple[DataFileMeta, ...] = ()
    compact_new_index_files: tuple[IndexFileMeta, ...] = ()
    compact_deleted_index_files: tuple[IndexFileMeta, ...] = ()
    read_snapshot_id: int | None = None

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def has_append(self) -> bool:
        return bool(
            self.new_files or self.deleted_files or self.changelog_files or self.new_index_files or self.deleted_index_files
        )

    @property
    def has_compact(self) -> bool:
        return bool(
            self.compact_before
            or self.compact_after
            or self.compact_changelog_files
            or self.compact_new_index_files
            or self.compact_deleted_index_files
        )

    def created_files(self) -> tuple[DataFileMeta, ...]:
        """Data files that exist only for this message: what an abort deletes (an upgraded file is not ours)."""
        before = {f.file_name for f in self.compact_before}
        rewritten = tuple(f for f in self.compact_after if f.file_name not in before)
        return self.new_files + self.changelog_files + rewritten + self.compact_changelog_files
