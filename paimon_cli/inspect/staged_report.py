"""What staged commits hold, alone or together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.staged_commit import StagedCommit
from paimon_cli.storage.redaction import shown_name


@dataclass(frozen=True)
class StagedBucket:
    """What staged commits do to one bucket. `rows`, `size` (bytes): the data files to add. `writers`: how many write to it."""

    partition: str
    bucket: int
    files_added: int
    files_deleted: int
    changelog_files: int
    index_files: int
    rows: int
    size: int
    writers: int = 1


@dataclass(frozen=True)
class StagedDetails:
    """A staged commit and its totals. `compacted`, `waiting_records`: of the command that committed it, otherwise 0."""

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
    compacted: int = 0
    waiting_records: int | None = 0


def staged_details(context: TableContext, file: str, staged: StagedCommit) -> StagedDetails:
    """Describe a staged commit, with its buckets by partition and number. `file`: the name of the stage file."""
    found = (_bucket(context, message) for message in staged.messages)
    buckets = sorted(found, key=lambda bucket: (bucket.partition, bucket.bucket))
    return StagedDetails(
        file=file,
        state=staged.state,
        commit_user=shown_name(staged.commit_user),
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


@dataclass(frozen=True)
class StagedWriter:
    """One of several staged commits, and its totals."""

    file: str
    state: str
    commit_user: str
    commit_identifier: int
    read_snapshot_id: int | None
    rows: int
    files: int
    size: int


@dataclass(frozen=True)
class JointDetails:
    """What one snapshot of several staged commits holds, and its totals. The other fields are those of `StagedDetails`."""

    rows: int
    files: int
    size: int
    snapshots: Sequence[int]
    writers: Sequence[StagedWriter]
    buckets: Sequence[StagedBucket]
    compacted: int = 0
    waiting_records: int | None = 0


def joint_details(context: TableContext, files: Sequence[str], staged: Sequence[StagedCommit]) -> JointDetails:
    """Describe staged commits that would be, or were, committed together. `files`: the names of their stage files."""
    details = [staged_details(context, file, one) for file, one in zip(files, staged, strict=True)]
    by_place: dict[tuple[str, int], list[StagedBucket]] = {}
    for one in details:
        for bucket in one.buckets:
            by_place.setdefault((bucket.partition, bucket.bucket), []).append(bucket)
    return JointDetails(
        rows=sum(one.rows for one in details),
        files=sum(one.files for one in details),
        size=sum(one.size for one in details),
        snapshots=sorted({number for one in details for number in one.snapshots}),
        writers=[
            StagedWriter(d.file, d.state, d.commit_user, d.commit_identifier, d.read_snapshot_id, d.rows, d.files, d.size)
            for d in details
        ],
        buckets=[_of_writers(by_place[place]) for place in sorted(by_place)],
    )


def _of_writers(parts: Sequence[StagedBucket]) -> StagedBucket:
    """What several writers do to one bucket."""
    return StagedBucket(
        partition=parts[0].partition,
        bucket=parts[0].bucket,
        files_added=sum(part.files_added for part in parts),
        files_deleted=sum(part.files_deleted for part in parts),
        changelog_files=sum(part.changelog_files for part in parts),
        index_files=sum(part.index_files for part in parts),
        rows=sum(part.rows for part in parts),
        size=sum(part.size for part in parts),
        writers=len(parts),
    )


def _bucket(context: TableContext, message: CommitMessage) -> StagedBucket:
    added = message.append.added + message.compact.added
    return StagedBucket(
        partition=partition_text(context, message.partition),
        bucket=message.bucket,
        files_added=len(added),
        files_deleted=len(message.append.removed + message.compact.removed),
        changelog_files=len(message.append.changelog + message.compact.changelog),
        index_files=len(message.append.added_indexes + message.compact.added_indexes),
        rows=sum(file.row_count for file in added),
        size=sum(file.file_size for file in added),
    )
