"""`repair`: carry out a plan, as new snapshots under the same checks as every commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, fresh_identity
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.commit.snapshot_publish import publish
from paimon_cli.errors import Conflict, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.lost_commits import LostCommit, set_aside
from paimon_cli.invariants.repair_plan import RepairPlan
from paimon_cli.invariants.version import Version
from paimon_cli.metadata.data_file import ADD, DELETE, BucketId, CommitMessage, DataFileMeta, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot

USER = "paimon-cli-repair"


@dataclass(frozen=True)
class RepairSummary:
    """Steps carried out, and the snapshots that came of them, the oldest first."""

    steps: int = 0
    snapshots: tuple[Snapshot, ...] = ()


def apply_repair(context: TableContext, plan: RepairPlan) -> RepairSummary:
    """Damaged versions first, then missing ones, hints, commits. Errors as `Committer.commit`: then the rest is not done."""
    for damaged in plan.set_aside:
        set_aside(context, damaged)
    for number in sorted({*plan.resurrected} & {*context.snapshots.resurrected_ids()}):
        context.storage.delete(context.layout.snapshot(number))
    made = [restore_snapshot(context, number) for number in plan.missing_snapshots]
    for path, number in plan.hints.items():
        context.storage.overwrite(path, str(number).encode())
    if plan.messages:
        identity = CommitIdentity(f"{USER}-{context.names.uuid()}", BATCH_IDENTIFIER)
        made += Committer(context).commit(list(plan.messages.values()), identity, check_append_files=True).snapshots
    for lost in plan.lost:
        made += Committer(context).commit(_messages(lost), fresh_identity(context), check_append_files=True).snapshots
    return RepairSummary(plan.changes, tuple(made))


def restore_snapshot(context: TableContext, number: int) -> Snapshot:
    """A snapshot between two others: it did what lies between the one before and the base of the next that there is."""
    before = Version(context, context.snapshots.get(number - 1))
    after_id = next((i for i in context.snapshots.ids() if i > number), None)
    if after_id is None:
        raise Conflict(f"snapshot {number} of {context.address} is no longer between two snapshots", hint="plan again")
    after = Version(context, context.snapshots.get(after_id))
    lost, added = after.base_differences(before)
    delta = [ManifestEntry(DELETE, e.partition, e.bucket, e.total_buckets, e.file) for e in lost] + added
    writer = MetadataWriter(context)
    base_list, base_size = writer.manifest_list(context.manifests.manifests_of(before.snapshot), "base")
    delta_list, delta_size = writer.manifest_list(writer.manifests(delta), "delta")
    rows = sum(e.file.row_count if e.kind == ADD else -e.file.row_count for e in delta)
    snapshot = Snapshot(
        id=number,
        schema_id=before.snapshot.schema_id,
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        index_manifest=_index_manifest(before, after, writer),
        commit_user=USER,
        commit_identifier=BATCH_IDENTIFIER,
        commit_kind=OVERWRITE if lost else APPEND,
        time_millis=before.snapshot.time_millis,
        total_record_count=before.snapshot.total_record_count + rows,
        delta_record_count=rows,
        watermark=before.snapshot.watermark,
        uuid=context.names.uuid(),
    )
    if not publish(context, snapshot):
        raise StorageUnavailable(f"snapshot {number} was not written", "another process created it meanwhile", "plan again")
    return snapshot


def _index_manifest(before: Version, after: Version, writer: MetadataWriter) -> str | None:
    """Index files of the next snapshot if its own commit changed none, else of the one before; never a dangling vector."""
    source = after if after.snapshot.commit_kind == APPEND else before
    if source.snapshot.index_manifest is None:
        return None
    alive = {(e.partition, e.bucket, e.file.file_name) for e in after.base}
    entries = []
    for entry in source.index_entries:
        ranges = entry.index_file.deletion_vector_ranges
        if ranges is not None:
            ranges = tuple(r for r in ranges if (entry.partition, entry.bucket, r.data_file_name) in alive)
        file = replace(entry.index_file, deletion_vector_ranges=ranges)
        entries.append(replace(entry, index_file=file))
    return writer.index_manifest(entries)


def _messages(lost: LostCommit) -> list[CommitMessage]:
    files: dict[BucketId, list[DataFileMeta]] = {}
    bucket_counts: dict[BucketId, int] = {}
    for entry in lost.entries:
        files.setdefault(entry.bucket_id, []).append(entry.file)
        bucket_counts[entry.bucket_id] = entry.total_buckets
    return [CommitMessage(*bucket_id, bucket_counts[bucket_id], new_files=tuple(found)) for bucket_id, found in files.items()]
