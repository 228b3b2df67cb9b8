"""A staged commit as `stage show` tells it: what it would do to each bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.staged_commit import StagedCommit
from paimon_cli.table.partition_text import partition_text


@dataclass(frozen=True)
class StagedBucket:
    """One bucket's part. `rows`, `size` (bytes): of the data files to add."""

    partition: str
    bucket: int
    files_added: int
    files_deleted: int
    changelog_files: int
    index_files: int
    rows: int
    size: int


@dataclass(frozen=True)
class StagedDetails:
    """The commit and its sums."""

    file: str
    state: str
    commit_user: str
    commit_identifier: int
    schema_id: int
    read_snapshot_id: int | None
    data_conflict_check: str
    overwrite: bool
    rows: int
    files: int
    size: int
    snapshots: Sequence[int]
    buckets: Sequence[StagedBucket]


def staged_details(context: TableContext, file: str, staged: StagedCommit) -> StagedDetails:
    """Buckets by partition and number."""
    found = (_bucket(context, message) for message in staged.messages)
    buckets = sorted(found, key=lambda bucket: (bucket.partition, bucket.bucket))
    return StagedDetails(
        file=file,
        state=staged.state,
        commit_user=staged.commit_user,
        commit_identifier=staged.commit_identifier,
        schema_id=staged.schema_id,
        read_snapshot_id=staged.read_snapshot_id,
        data_conflict_check=staged.data_conflict_check,
        overwrite=staged.overwrite,
        rows=sum(bucket.rows for bucket in buckets),
        files=sum(bucket.files_added for bucket in buckets),
        size=sum(bucket.size for bucket in buckets),
        snapshots=staged.snapshot_ids,
        buckets=buckets,
    )


def _bucket(context: TableContext, message: CommitMessage) -> StagedBucket:
    added = message.new_files + message.compact_after
    return StagedBucket(
        partition=partition_text(context, message.partition),
        bucket=message.bucket,
        files_added=len(added),
        files_deleted=len(message.deleted_files + message.compact_before),
        changelog_files=len(message.changelog_files + message.compact_changelog_files),
        index_files=len(message.new_index_files + message.compact_new_index_files),
        rows=sum(file.row_count for file in added),
        size=sum(file.file_size for file in added),
    )
