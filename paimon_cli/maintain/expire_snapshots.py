"""Snapshot expiry: forget the oldest versions and delete the files that only they needed (format section 13.1).

The order makes a crash harmless at any point. First everything that must be known is read. Then the snapshot files go,
the oldest first, so that nobody can begin to read what is about to vanish. Only then are tags asked (one that was made
meanwhile is seen: whoever makes a tag looks afterwards whether its snapshot is still there) and files deleted. What a
crash leaves behind are files that nobody names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.protections import tagged_snapshots
from paimon_cli.maintain.retention import Retention, expiring_range
from paimon_cli.maintain.snapshot_files import (
    FileKey,
    changelog_entries,
    file_paths,
    files_made_dead,
    key_of_file,
    metadata_paths,
)
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class ExpirySummary:
    """Ids of the snapshots that went, and how many files were deleted with them."""

    snapshots: tuple[int, ...] = ()
    data_files: int = 0
    metadata_files: int = 0


@dataclass(frozen=True)
class _Doomed:
    """What may go with the expiring snapshots: `dead[i]` are data files that snapshot i made dead."""

    snapshots: tuple[Snapshot, ...]
    dead: dict[int, list[ManifestEntry]]
    changelogs: list[ManifestEntry]
    metadata: list[str]


def expire_snapshots(context: TableContext, retention: Retention | None = None) -> ExpirySummary:
    """Expire what the retention (default: the table's options) allows. May run beside writers and other expiries.

    Raises `NotSupported` for tables whose changelogs outlive their snapshots, `DamagedFile` if what stays cannot be read.
    """
    _refuse_decoupled_changelogs(context)
    expiring = expiring_range(context, retention or Retention.of(context.options))
    kept = context.snapshots.find(expiring.stop) if expiring else None
    if kept is None:  # nothing to do, or somebody else is expiring further than we would
        return ExpirySummary()
    doomed = _find_doomed(context, expiring, kept)
    for snapshot in doomed.snapshots:
        context.storage.delete(context.layout.snapshot(snapshot.id))
    context.storage.overwrite(context.layout.earliest_hint, str(kept.id).encode())
    tags = [tag for tag in tagged_snapshots(context) if tag.id < kept.id]
    data_files = _delete(context, _data_file_paths(context, doomed, tags))
    named = {path for tag in tags for path in metadata_paths(context, tag)}
    metadata_files = _delete(context, (path for path in doomed.metadata if path not in named))
    return ExpirySummary(tuple(snapshot.id for snapshot in doomed.snapshots), data_files, metadata_files)


def _find_doomed(context: TableContext, expiring: range, kept: Snapshot) -> _Doomed:
    """Read all that is needed before anything is deleted. What cannot be read is left to the cleaning of orphans."""
    snapshots = [snapshot for number in expiring if (snapshot := context.snapshots.find(number)) is not None]
    needed = set(metadata_paths(context, kept))
    dead: dict[int, list[ManifestEntry]] = {}
    changelogs: list[ManifestEntry] = []
    metadata: dict[str, None] = {}
    for snapshot in snapshots:
        try:
            changelogs += changelog_entries(context, snapshot)
            metadata.update(dict.fromkeys(path for path in metadata_paths(context, snapshot) if path not in needed))
        except (DamagedFile, NotFound):
            continue
    for snapshot in (*snapshots[1:], kept):
        try:
            dead[snapshot.id] = files_made_dead(context, snapshot)
        except (DamagedFile, NotFound):
            continue
    return _Doomed(tuple(snapshots), dead, changelogs, list(metadata))


def _data_file_paths(context: TableContext, doomed: _Doomed, tags: Sequence[Snapshot]) -> Iterable[str]:
    """Dead files, but for those that live in the nearest tag below: older tags hold no other of them."""
    tag_ids = [tag.id for tag in tags]
    alive: dict[int, set[FileKey]] = {}
    for number, entries in doomed.dead.items():
        place = bisect_left(tag_ids, number) - 1
        if place >= 0 and place not in alive:
            alive[place] = {key_of_file(entry) for entry in context.manifests.live_entries(tags[place])}
        for entry in entries:
            if place < 0 or key_of_file(entry) not in alive[place]:
                yield from file_paths(context, entry)
    for entry in doomed.changelogs:
        yield from file_paths(context, entry)


def _delete(context: TableContext, paths: Iterable[str]) -> int:
    count = 0
    for path in paths:
        context.storage.delete(path)
        count += 1
    return count


def _refuse_decoupled_changelogs(context: TableContext) -> None:
    for key in ("changelog.num-retained.min", "changelog.num-retained.max", "changelog.time-retained"):
        if key in context.options.raw:
            raise NotSupported(f"expiring snapshots of a table with {key}", "its changelogs may have to outlive their snapshots")
