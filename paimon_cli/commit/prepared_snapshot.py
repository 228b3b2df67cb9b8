"""Prepares a snapshot up to its publication: manifests, lists, index manifest, totals (FORMAT.md, section 10.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_cli.commit.attempts import RetryPolicy
from paimon_cli.commit.identity import CommitIdentity
from paimon_cli.commit.index_changes import apply_index_changes
from paimon_cli.commit.manifest_merging import merge_manifests
from paimon_cli.commit.metadata_writer import MetadataWriter
from paimon_cli.commit.own_commits import users_behind
from paimon_cli.commit.snapshot_changes import SnapshotChanges
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.commit_users import PROPERTY as USERS_PROPERTY
from paimon_cli.metadata.commit_users import CommitUsers
from paimon_cli.metadata.data_file import ADD, ManifestEntry
from paimon_cli.metadata.snapshot import ATTEMPTS_PROPERTY, DURATION_PROPERTY, Snapshot

ListName = tuple[str, int]
"""Name and size of a manifest list."""


@dataclass(frozen=True)
class DeltaManifests:
    """Manifests and lists with the changes themselves: as long as the changes are the same, every attempt can use them."""

    changes: SnapshotChanges
    delta: ListName
    changelog: ListName | tuple[None, None]
    files: tuple[str, ...]

    @staticmethod
    def write(changes: SnapshotChanges, writer: MetadataWriter) -> DeltaManifests:
        already = len(writer.written)
        delta = writer.manifest_list(writer.manifests(changes.entries), "delta")
        changelog: ListName | tuple[None, None] = (None, None)
        if changes.changelog:
            changelog = writer.manifest_list(writer.manifests(changes.changelog), "changelog")
        return DeltaManifests(changes, delta, changelog, tuple(writer.written[already:]))


@dataclass(frozen=True)
class PreparedSnapshot:
    """A snapshot ready to be published, and the paths of the files that are of no use for another attempt."""

    snapshot: Snapshot
    files: tuple[str, ...]


def prepare_snapshot(
    context: TableContext,
    latest: Snapshot | None,
    delta: DeltaManifests,
    identity: CommitIdentity,
    watermark: int | None,
    writer: MetadataWriter,
    attempts: RetryPolicy,
) -> PreparedSnapshot:
    """Write base list and index manifest of the snapshot on top of `latest`, in the present one of these attempts."""
    already = len(writer.written)
    changes = delta.changes
    previous = context.manifests.manifests_of(latest) if latest else []
    base_list, base_size = writer.manifest_list(merge_manifests(context, previous, writer), "base")
    delta_list, delta_size = delta.delta
    changelog_list, changelog_size = delta.changelog
    schema_id = context.schemas.latest().id
    delta_count = _records(changes.entries)
    now = context.clock.now_millis()
    snapshot = Snapshot(
        id=latest.id + 1 if latest else 1,
        schema_id=schema_id,
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=changelog_list,
        changelog_manifest_list_size=changelog_size,
        index_manifest=_index_manifest(context, latest, changes, writer),
        commit_user=identity.user,
        commit_identifier=identity.identifier,
        commit_kind=changes.kind,
        # Never before its predecessor, even if the clocks of writers disagree: time travel searches by bisection.
        time_millis=max(now, latest.time_millis) if latest else now,
        total_record_count=delta_count + (latest.total_record_count if latest else 0),
        delta_record_count=delta_count,
        changelog_record_count=_records(changes.changelog) if changes.changelog else None,
        watermark=_latest_watermark(watermark, latest),
        statistics=latest.statistics if latest and latest.schema_id == schema_id else None,
        properties=_properties(users_behind(context, latest, identity), attempts),
        uuid=context.names.uuid(),
    )
    return PreparedSnapshot(snapshot, tuple(writer.written[already:]))


def _properties(users: CommitUsers | None, attempts: RetryPolicy) -> dict[str, str]:
    """What paimon-cli notes of a commit; others ignore it."""
    properties = {ATTEMPTS_PROPERTY: str(attempts.made), DURATION_PROPERTY: str(attempts.elapsed_millis)}
    return properties if users is None else {**properties, USERS_PROPERTY: users.to_text()}


def _records(entries: Iterable[ManifestEntry]) -> int:
    return sum(entry.file.row_count if entry.kind == ADD else -entry.file.row_count for entry in entries)


def _latest_watermark(given: int | None, latest: Snapshot | None) -> int | None:
    known = [mark for mark in (given, latest.watermark if latest else None) if mark is not None]
    return max(known, default=None)


def _index_manifest(
    context: TableContext, latest: Snapshot | None, changes: SnapshotChanges, writer: MetadataWriter
) -> str | None:
    """A new index manifest if the commit touches index files; else the previous one goes on."""
    if not (changes.new_indexes or changes.deleted_indexes):
        return latest.index_manifest if latest else None
    previous = context.manifests.index_entries(latest) if latest else []
    return writer.index_manifest(apply_index_changes(context, previous, changes))
