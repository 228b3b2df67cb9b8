"""The files conflict check: do the live files of the latest snapshot allow these changes? (FORMAT.md, section 10.3)

A contradiction raises `FilesConflict`: the job has to start again from the latest snapshot, since trying the commit again cannot
help.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from paimon_cli.commit.bucket_counts import check_newest_bucket_counts, check_remaining_bucket_counts
from paimon_cli.commit.removed_files import who_removed
from paimon_cli.commit.snapshot_changes import SnapshotChanges
from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_places import LiveBuckets, live_files_of_buckets
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, DELETE, FileIdentity, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot


def check_files(context: TableContext, latest: Snapshot | None, changes: SnapshotChanges) -> None:
    """Raise `FilesConflict` if the changes do not fit on top of `latest`. Plain appends get the cheap bucket count check only."""
    if not changes.check_files:
        # A writer checks the counts of the snapshot that it begins with; only what came later can differ.
        if latest is not None and latest.id != changes.read_snapshot_id:
            check_newest_bucket_counts(context, latest, changes.entries)
        return
    touched = _touched_files(context, latest, changes)
    base = touched.entries
    if not changes.replaces_partitions:
        check_remaining_bucket_counts(context, latest, touched.bucket_counts, changes.entries)
    added, deleted = _folded(context, changes.entries)
    survivors = {entry.identity: entry for entry in base}
    for identity, entry in deleted.items():
        if survivors.pop(identity, None) is None:
            raise _file_is_gone(context, latest, entry, changes.read_snapshot_id)
    for identity, entry in added.items():
        if identity in survivors:
            raise _conflict(context, entry, "is already in the table", "the same commit was probably already made")
    _check_levels(context, changes.entries, [*survivors.values(), *added.values()])


def _touched_files(context: TableContext, latest: Snapshot | None, changes: SnapshotChanges) -> LiveBuckets:
    """Live files of the buckets that change."""
    if changes.replaces_partitions:  # they were read from `latest` just now
        return LiveBuckets([entry for entry in changes.entries if entry.kind == DELETE])
    bucket_ids = {entry.bucket_id for entry in changes.entries}
    return live_files_of_buckets(context, latest, bucket_ids) if latest is not None and bucket_ids else LiveBuckets()


def _folded(
    context: TableContext, entries: Iterable[ManifestEntry]
) -> tuple[dict[FileIdentity, ManifestEntry], dict[FileIdentity, ManifestEntry]]:
    """What the changes add and delete; an identity may occur only once."""
    added: dict[FileIdentity, ManifestEntry] = {}
    deleted: dict[FileIdentity, ManifestEntry] = {}
    for entry in entries:
        if entry.identity in added or entry.identity in deleted:
            raise _conflict(context, entry, "occurs twice in this commit", "two tasks worked on the same bucket")
        (added if entry.kind == ADD else deleted)[entry.identity] = entry
    return added, deleted


def _check_levels(context: TableContext, delta: Sequence[ManifestEntry], survivors: Iterable[ManifestEntry]) -> None:
    """Key ranges of one level above 0 must stay disjoint in each bucket that gets files there."""
    if not context.schema.primary_keys:
        return
    filled = {_run(entry) for entry in delta if entry.kind == ADD and entry.file.level > 0}
    runs: dict[tuple[bytes, int, int], list[tuple[Any, Any, ManifestEntry]]] = {}
    for entry in survivors:
        if _run(entry) in filled:
            item = (context.key_of(entry.file.min_key), context.key_of(entry.file.max_key), entry)
            runs.setdefault(_run(entry), []).append(item)
    for run in runs.values():
        run.sort(key=lambda item: item[:2])
        for (_, reach, left), (low, _, right) in pairwise(run):
            if low <= reach:
                why = f"its keys overlap those of {left.file.file_name}, which another job put at the same level"
                raise _conflict(context, right, f"does not fit into level {right.file.level}", why)


def _run(entry: ManifestEntry) -> tuple[bytes, int, int]:
    return (entry.partition, entry.bucket, entry.file.level)


def _file_is_gone(
    context: TableContext, latest: Snapshot | None, entry: ManifestEntry, read_snapshot_id: int | None
) -> FilesConflict:
    remover = who_removed(context, latest, entry, read_snapshot_id)
    if remover is None:
        return _conflict(context, entry, "is no longer in the table", "a snapshot that has expired removed it")
    why = f"snapshot {remover.id} ({remover.commit_kind}, user {remover.commit_user}) removed it"
    return _conflict(context, entry, "is no longer in the table", why, snapshot_id=remover.id, commit_user=remover.commit_user)


def _conflict(context: TableContext, entry: ManifestEntry, what: str, why: str, **details: Any) -> FilesConflict:
    return FilesConflict(
        f"data file {entry.file.file_name} of {context.bucket_path(entry.partition, entry.bucket)} {what}",
        why,
        "run the job again: it will start from the latest snapshot",
        partition=context.partition_path_of(entry.partition).rstrip("/"),
        bucket=entry.bucket,
        file=entry.file.file_name,
        **details,
    )
