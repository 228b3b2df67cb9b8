"""`repair`: carries out the steps of a plan, as files that are set aside or written again and as new commits."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.bucket.hash_index import write_key_hashes
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.commit_messages import CommitKind, removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.errors import Conflict
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.hash_indexes import RebuiltIndex
from paimon_cli.invariants.lost_commits import LostCommit, set_aside
from paimon_cli.invariants.repair_steps import RepairPlan
from paimon_cli.invariants.version import Version
from paimon_cli.jobs.stale_buckets import move_stale_files
from paimon_cli.metadata.data_file import (
    BucketId,
    CommitMessage,
    DataFileMeta,
    EntryKind,
    FileChanges,
    IndexManifestEntry,
    ManifestEntry,
)
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot
from paimon_cli.options.choices import ConflictCheck

_USER = "paimon-cli-repair"


@dataclass(frozen=True)
class RepairSummary:
    """The steps carried out, and the snapshots that they created, oldest first."""

    steps: int = 0
    snapshots: tuple[Snapshot, ...] = ()


def apply_repair(context: TableContext, plan: RepairPlan) -> RepairSummary:
    """Carry out a repair: damaged snapshots, then missing snapshots, commits, and at last hints, which show what was lost.

    Raises the errors of `Committer.commit`; the remaining steps are then not carried out.
    """
    for damaged in plan.set_aside:
        set_aside(context, damaged)
    made = [restore_snapshot(context, number) for number in plan.missing_snapshots]
    if plan.messages:
        identity = CommitIdentity(f"{_USER}-{context.random.uuid()}", BATCH_IDENTIFIER)
        made += Committer(context).commit(list(plan.messages.values()), identity, CommitKind.REPAIR).snapshots
    if plan.hash_indexes:
        made += _rebuild_hash_indexes(context, plan.hash_indexes, plan.snapshot_id).snapshots
    for found in plan.stale:
        latest = context.snapshots.latest()
        if latest is None or latest.id != max([plan.snapshot_id or 0, *(snapshot.id for snapshot in made)]):
            raise Conflict("another job has committed since the plan", "it may have changed the files to move", "plan again")
        made += move_stale_files(context, latest, found).snapshots
    for lost in plan.lost:
        made += Committer(context).commit(_messages(lost), fresh_identity(context), CommitKind.REPAIR).snapshots
    for path, number in plan.hints.items():
        _correct_hint(context, path, number)
    return RepairSummary(plan.changes, tuple(made))


def _correct_hint(context: TableContext, path: str, number: int | None) -> None:
    """Write the hint; not LATEST if a newer snapshot has been committed since, which has written it."""
    if path == context.layout.latest_hint and max(context.snapshots.ids(), default=0) > (number or 0):
        return
    if number is None:
        context.storage.delete(path)
    else:
        context.storage.overwrite(path, str(number).encode())


def _rebuild_hash_indexes(context: TableContext, indexes: Sequence[RebuiltIndex], read_snapshot_id: int | None) -> CommitResult:
    """Write the indexes and commit them. Raises `Conflict` if an index or the files of a bucket changed since the plan."""
    messages: list[CommitMessage] = []
    with removed_on_refusal(context, messages):
        for index in indexes:
            new = write_key_hashes(context, index.bucket_id, index.hashes, new_stamp(context)) if len(index.hashes) else None
            messages.append(
                CommitMessage(
                    *index.bucket_id,
                    index.total_buckets,
                    append=FileChanges(
                        added_indexes=() if new is None else (new,), removed_indexes=() if index.old is None else (index.old,)
                    ),
                    read_snapshot_id=read_snapshot_id,
                )
            )
        identity = CommitIdentity(f"{_USER}-{context.random.uuid()}", BATCH_IDENTIFIER)
        return Committer(context, ConflictCheck.PARTITION).commit(messages, identity, CommitKind.REPAIR)


def restore_snapshot(context: TableContext, number: int) -> Snapshot:
    """Restore a missing snapshot from the difference between the previous snapshot and the base of the next one.

    Raises `Conflict` if there is no next snapshot any more, `StorageUnavailable` if another process created the snapshot.
    """
    before = Version(context, context.snapshots.get(number - 1))
    after_id = next((i for i in context.snapshots.ids() if i > number), None)
    if after_id is None:
        raise Conflict(f"snapshot {number} of {context.address} is no longer between two snapshots", hint="plan again")
    after = Version(context, context.snapshots.get(after_id))
    return Committer(context).fill_gap(functools.partial(_restored, before, after, number)).snapshots[0]


def _restored(before: Version, after: Version, number: int, writer: MetadataWriter) -> Snapshot:
    lost, added = after.base_differences(before)
    delta = [ManifestEntry(EntryKind.DELETE, e.partition, e.bucket, e.total_buckets, e.file) for e in lost] + added
    base_list, base_size = writer.manifest_list(before.context.manifests.manifests_of(before.snapshot), "base")
    delta_list, delta_size = writer.manifest_list(writer.manifests(delta), "delta")
    rows = sum(e.file.row_count if e.kind == EntryKind.ADD else -e.file.row_count for e in delta)
    indexes = _restored_indexes(before, after)
    rewrites = bool(lost) or _vector_files(indexes) != _vector_files(before.index_entries)
    return Snapshot(
        id=number,
        schema_id=before.snapshot.schema_id,
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        index_manifest=writer.index_manifest(indexes) if indexes else None,
        commit_user=_USER,
        commit_identifier=BATCH_IDENTIFIER,
        commit_kind=OVERWRITE if rewrites else APPEND,
        time_millis=before.snapshot.time_millis,
        total_record_count=before.snapshot.total_record_count + rows,
        delta_record_count=rows,
        watermark=before.snapshot.watermark,
        next_row_id=_next_row_id(before.snapshot, delta),
        uuid=before.context.random.uuid(),
    )


def _next_row_id(before: Snapshot, delta: Sequence[ManifestEntry]) -> int | None:
    """The id of the next row after these changes; None if the table tracks no rows."""
    files = [entry.file for entry in delta if entry.kind == EntryKind.ADD]
    ends = [file.first_row_id + file.row_count for file in files if file.first_row_id is not None]
    return max([*ends, *(() if before.next_row_id is None else (before.next_row_id,))], default=None)


def _restored_indexes(before: Version, after: Version) -> list[IndexManifestEntry]:
    """The index files between two snapshots, as far as these show them, without dangling vectors.

    They are those of the next snapshot in buckets where its commit changed none, so that rows that the missing commit marked as
    deleted stay so; in the others those of the previous one. An APPEND changes none. A compaction of an append table marks no
    rows, and only drops the vectors of files that it replaces.
    """
    kind, has_keys = after.snapshot.commit_kind, bool(after.context.schema.primary_keys)
    if kind == APPEND:
        source = after.index_entries
    elif kind == COMPACT and not has_keys:
        replaced = {(e.bucket_id, e.file.file_name) for e in after.delta if e.kind == EntryKind.DELETE}
        dropped = {e.bucket_id for e in before.index_entries for name in _marked(e) if (e.bucket_id, name) in replaced}
        source = [e for e in after.index_entries if e.bucket_id not in dropped]
        source += [e for e in before.index_entries if e.bucket_id in dropped]
    else:
        source = before.index_entries
    alive = {(e.bucket_id, e.file.file_name) for e in after.base}
    entries = []
    for entry in source:
        ranges = entry.index_file.deletion_vector_ranges
        if ranges is not None:
            ranges = tuple(r for r in ranges if (entry.bucket_id, r.data_file_name) in alive)
        file = replace(entry.index_file, deletion_vector_ranges=ranges)
        entries.append(replace(entry, index_file=file))
    return entries


def _marked(entry: IndexManifestEntry) -> Iterator[str]:
    """The names of the data files whose vectors an index file holds."""
    return (vector.data_file_name for vector in entry.index_file.deletion_vector_ranges or ())


def _vector_files(entries: Iterable[IndexManifestEntry]) -> set[tuple[BucketId, str]]:
    return {(e.bucket_id, e.index_file.file_name) for e in entries if e.index_file.deletion_vector_ranges is not None}


def _messages(lost: LostCommit) -> list[CommitMessage]:
    bucket_counts = {entry.bucket_id: entry.total_buckets for entry in (*lost.entries, *lost.changelog)}
    added, changelog = _by_bucket(lost.entries), _by_bucket(lost.changelog)
    return [
        CommitMessage(
            *bucket_id,
            count,
            append=FileChanges(added=tuple(added.get(bucket_id, ())), changelog=tuple(changelog.get(bucket_id, ()))),
        )
        for bucket_id, count in bucket_counts.items()
    ]


def _by_bucket(entries: Sequence[ManifestEntry]) -> dict[BucketId, list[DataFileMeta]]:
    found: dict[BucketId, list[DataFileMeta]] = {}
    for entry in entries:
        found.setdefault(entry.bucket_id, []).append(entry.file)
    return found
