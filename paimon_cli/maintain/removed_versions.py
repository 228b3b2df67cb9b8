"""Versions that a rollback, a fast-forward, `tags rm` or an expiry of changelogs removes, and what to delete with them.

Versions are removed first and their files last, so a crash in between leaves files that no version names. Nothing would tell
them from files of a commit in progress. So the versions are written into a record before they are removed, `removal/removal-UUID`
beside the snapshots, and the record is deleted after their files. A command that finds records of its own kind finishes them:

1. `rollback --to 6` records the snapshots 7 and 8 and deletes their files `snapshot-8` and `snapshot-7`. Then it is killed.
2. `rollback --to 6` again: nothing is newer than 6, but the record still names 7 and 8. The files that they added, and that no
   version of any branch needs now, are deleted, and the record last.

The record holds versions, not paths: it cannot lead outside of the table, and what a version needs that exists (again) is kept.
A record that was not written to its end names nothing, because nothing was removed yet. Files are deleted before the manifests
that name them, and these before their lists, so that what is left of them can still be found. A record is a day old as any other
orphan is when `orphans rm` deletes it, together with the files that it names.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.errors import Conflict, DamagedFile, NotFound, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.file_deletion import DeleteFiles
from paimon_cli.maintain.named_files import (
    FileToDelete,
    changelog_entries,
    data_files_to_delete,
    files_made_dead,
    files_of_lists,
    index_files,
    key_of_file,
    lean,
    manifest_lists,
    measured,
    metadata_files,
    rank_of,
    statistics_files,
)
from paimon_cli.maintain.needed_files import NeededFiles, SharedManifests, has_producer, needed_by_other_branches
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.capabilities import remove_empty_directory

ROLLBACK, FAST_FORWARD, TAGS, CHANGELOGS, ERASURE = "rollback", "fast-forward", "tags", "changelogs", "erasure"
"""Kinds of records: a command finishes only its own, since another one may still be at work."""


def delete_named_first(files: Iterable[FileToDelete], delete: DeleteFiles) -> int:
    """Delete files before the manifests, and manifests before the lists, that name them; returns how many.

    If the storage refuses some, what names them stays: by that a repetition finds them.
    """
    return sum(delete(paths) for paths in ranked(files))


def ranked(files: Iterable[FileToDelete]) -> list[list[str]]:
    """The paths in lists, in the order of their deletion; those of one list may go in any order."""
    by_rank: dict[int, list[str]] = {}
    for file in files:
        by_rank.setdefault(rank_of(file.kind), []).append(file.path)
    return [by_rank[rank] for rank in sorted(by_rank)]


@dataclass(frozen=True)
class DiscardedVersions:
    """Data files added by the versions, and their metadata; other versions may need them, too.

    `commits`: snapshots of which what their commits added goes; `states`: versions of which everything goes; `expired`:
    long-lived changelogs of snapshots that had expired before. `unfinished`: what earlier commands of the same kind have left.
    """

    data: tuple[ManifestEntry, ...] = ()
    changelogs: tuple[ManifestEntry, ...] = ()
    metadata: tuple[FileToDelete, ...] = ()
    commits: tuple[Snapshot, ...] = ()
    states: tuple[Snapshot, ...] = ()
    expired: tuple[Snapshot, ...] = ()
    unfinished: tuple[RemovalRecord, ...] = ()

    def files_to_delete(self, context: TableContext, needed: NeededFiles) -> list[FileToDelete]:
        """The files to delete, except those in `needed`, and of unfinished removals those that still exist."""
        own = list(self._files(context, needed))
        if not self.unfinished:
            return own
        seen = {file.path for file in own}
        left = {f.path: f for record in self.unfinished for f in record.versions._files(context, needed) if f.path not in seen}
        existing = measured(context, [replace(file, size=None) for file in left.values()])
        return [*own, *existing]

    def _files(self, context: TableContext, needed: NeededFiles) -> Iterator[FileToDelete]:
        for kind, entries in (("data", self.data), ("changelog", self.changelogs)):
            for entry in entries:
                if key_of_file(entry) not in needed.data:
                    yield from data_files_to_delete(context, entry, kind)
        yield from (file for file in self.metadata if file.path not in needed.metadata)


@dataclass(frozen=True)
class RemovalRecord:
    """A removal that was begun. `tags`: the names of the tags that it deletes."""

    path: str
    versions: DiscardedVersions = field(default_factory=DiscardedVersions)
    tags: tuple[str, ...] = ()

    def delete(self, context: TableContext) -> None:
        """Delete the record. Should it reappear after a power failure, it is finished again."""
        context.storage.delete(self.path)
        remove_empty_directory(context.storage, context.layout.removal_directory)


def discarded_versions(
    context: TableContext,
    kind: str,
    snapshots: Iterable[Snapshot],
    whole: Iterable[Snapshot],
    expired: Sequence[Snapshot] = (),
) -> DiscardedVersions:
    """Read what these snapshots added, and all files of those in `whole`: those without a predecessor, or held by tags; and what
    is left of the `expired` ones that long-lived changelogs hold.

    Unreadable parts of snapshots are left to orphan cleaning. `kind`: of the removal, whose unfinished ones are read, too.
    """
    data: dict[object, ManifestEntry] = {}
    changelogs: list[ManifestEntry] = []
    metadata: dict[str, FileToDelete] = {}
    commits, states = tuple(snapshots), tuple(whole)
    for snapshot in commits:
        try:
            added = _added(context, snapshot)
            found, files = changelog_entries(context, snapshot), metadata_files(context, snapshot)
        except (DamagedFile, NotFound):
            continue
        data.update((key_of_file(entry), entry) for entry in added)
        changelogs += found
        metadata.update((file.path, file) for file in files)
    manifests = SharedManifests(context)
    for snapshot in states:
        data.update((key_of_file(entry), lean(entry)) for entry in manifests.live(snapshot))
        metadata.update((file.path, file) for file in metadata_files(context, snapshot))
    of_changelogs = _what_is_left(context, (), (), expired)
    data.update((key_of_file(entry), entry) for entry in of_changelogs.data)
    changelogs += of_changelogs.changelogs
    existing = measured(context, [replace(file, size=None) for file in of_changelogs.metadata])  # much went with the snapshots
    metadata.update((file.path, file) for file in existing)
    unfinished = unfinished_removals(context, kind)
    return DiscardedVersions(
        tuple(data.values()),
        tuple({key_of_file(entry): entry for entry in changelogs}.values()),
        tuple(metadata.values()),
        commits,
        states,
        tuple(expired),
        tuple(unfinished),
    )


def _added(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    return [lean(entry) for entry in context.manifests.delta_entries(snapshot) if entry.kind == EntryKind.ADD]


def needed_up_to(context: TableContext, snapshot_id: int | None = None) -> NeededFiles:
    """The files that all branches need. With an id, snapshots, tags and changelogs of this branch count only up to it."""
    needed = needed_by_other_branches(context)
    needed.need_history(context, snapshot_id)
    return needed


# ---- records --------------------------------------------------------------------------------------------------------------


def record_removal(
    context: TableContext, kind: str, versions: DiscardedVersions, tags: Sequence[str] = ()
) -> RemovalRecord | None:
    """Write a record of the versions that are about to be removed; None if that leaves no files to delete."""
    if not (versions.commits or versions.states or versions.expired):
        return None
    content = {
        "kind": kind,
        "tags": list(tags),
        "commits": [json.loads(snapshot.to_json()) for snapshot in versions.commits],
        "states": [json.loads(snapshot.to_json()) for snapshot in versions.states],
        "expired": [json.loads(snapshot.to_json()) for snapshot in versions.expired],
    }
    record = RemovalRecord(context.layout.removal(context.random.uuid()), versions, tuple(tags))
    context.storage.write_new(record.path, json.dumps(content, ensure_ascii=False).encode())
    return record


@contextlib.contextmanager
def withdrawn_on_conflict(context: TableContext, record: RemovalRecord | None) -> Iterator[None]:
    """A context that removes snapshots. After a conflict that has left all of them in place there is nothing to finish."""
    try:
        yield
    except Conflict as conflict:
        with cleaning_up(conflict):
            if record is not None and all(context.snapshots.find(s.id) == s for s in record.versions.commits):
                record.delete(context)
        raise


def finish_removals(context: TableContext, record: RemovalRecord | None, versions: DiscardedVersions) -> None:
    """Delete the record of a removal whose files are gone, and those of the unfinished ones that went with it."""
    for done in (*([] if record is None else [record]), *versions.unfinished):
        done.delete(context)


def unfinished_removals(context: TableContext, kind: str) -> list[RemovalRecord]:
    """The records of this kind that earlier commands left behind."""
    paths = sorted(status.path for status in context.storage.list_directory(context.layout.removal_directory))
    found = (_read(context, kind, path) for path in paths if not path.rpartition("/")[2].startswith("."))
    return [record for record in found if record is not None]


def _read(context: TableContext, kind: str, path: str) -> RemovalRecord | None:
    """The record in this file; None if it is of another kind, or gone. One that is incomplete names nothing."""
    try:
        content = json.loads(context.storage.read_bytes(path))
        if content["kind"] != kind:
            return None
        commits, states, expired = (
            [Snapshot.from_json(json.dumps(c), path) for c in content.get(key, ())] for key in ("commits", "states", "expired")
        )
        tags = tuple(str(name) for name in content["tags"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, RecursionError, DamagedFile, NotFound):
        return RemovalRecord(path)
    left = _what_is_left(context, commits, states, expired)
    if kind == CHANGELOGS:
        left = replace(left, data=(*left.data, *_kept_by_changelogs(context, commits)))
    return RemovalRecord(path, left, tags)


def kept_by_changelog(context: TableContext, changelog: Snapshot) -> list[ManifestEntry]:
    """The files that an expired snapshot's commit removed from the table, and that changelogs keep. Beside a producer there are
    none: they went with the snapshot, although a tag may keep the manifests that name them.
    """
    return [] if has_producer(context, changelog) else files_made_dead(context, changelog)


def _kept_by_changelogs(context: TableContext, commits: Sequence[Snapshot]) -> Iterator[ManifestEntry]:
    for snapshot in commits:
        with contextlib.suppress(DamagedFile, NotFound):
            yield from kept_by_changelog(context, snapshot)


def _what_is_left(
    context: TableContext, commits: Sequence[Snapshot], states: Sequence[Snapshot], expired: Sequence[Snapshot] = ()
) -> DiscardedVersions:
    """What can still be found of versions whose files were deleted in part: what cannot be read named files that are gone."""
    data: list[ManifestEntry] = []
    changelogs: list[ManifestEntry] = []
    metadata: dict[str, FileToDelete] = {}
    manifests = SharedManifests(context)
    for snapshot in (*commits, *expired):
        with contextlib.suppress(DamagedFile, NotFound):
            data += _added(context, snapshot)
    data += _kept_by_changelogs(context, expired)
    for snapshot in states:
        with contextlib.suppress(DamagedFile, NotFound):
            data += manifests.live(snapshot)
    for snapshot in (*commits, *states, *expired):
        with contextlib.suppress(DamagedFile, NotFound):
            changelogs += changelog_entries(context, snapshot)
        metadata.update((file.path, file) for file in _metadata_left(context, snapshot))
    return DiscardedVersions(
        tuple(data), tuple(changelogs), tuple(metadata.values()), tuple(commits), tuple(states), tuple(expired)
    )


def _metadata_left(context: TableContext, snapshot: Snapshot) -> Iterator[FileToDelete]:
    with contextlib.suppress(DamagedFile, NotFound):
        yield from index_files(context, snapshot)
    yield from statistics_files(context, snapshot)
    for name, size in manifest_lists(snapshot):
        with contextlib.suppress(DamagedFile, NotFound):
            yield from files_of_lists(context, [(name, size)])
