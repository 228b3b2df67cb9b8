"""Guesses where an orphan comes from: a lost commit, a writer that died, or an interrupted expiry."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.orphans import DATA, INDEX, MANIFEST, TEMPORARY, Candidate
from paimon_cli.maintain.used_names import UsedNames, stamp_of
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry
from paimon_cli.metadata.manifests import decode_manifest
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.redaction import shown_name

_COMMIT = re.compile(r"(?:index-)?manifest-(?:list-)?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:-\d+)?")
_TEMPORARY_SNAPSHOT = re.compile(r"\.snapshot-\d+\..*\.tmp")


@dataclass
class OrphanedCommit:
    """Orphans of one commit, whose manifest files share one UUID. `modified_millis`: when the last of them was written."""

    uuid: str
    modified_millis: int = 0
    added: list[ManifestEntry] = field(default_factory=list)
    snapshot: Snapshot | None = None

    def text(self, on_disk: set[str], used: UsedNames) -> str:
        """A one-line description."""
        moment = _moment(self.modified_millis)
        orphaned = [entry for entry in self.added if entry.file.file_name not in used.names]
        missing = [entry for entry in orphaned if entry.file.file_name not in on_disk]
        user = f"user {shown_name(self.snapshot.commit_user)}" if self.snapshot else "an unknown user"
        if not self.added or not orphaned:
            return f"metadata of a commit attempt of {user} at {moment} that was retried or given up"
        rows = sum(entry.file.row_count for entry in orphaned)
        what = f"{len(orphaned)} file{'s' if len(orphaned) > 1 else ''}, {rows} row{'s' if rows != 1 else ''}"
        if missing and len(missing) == len(orphaned):
            return f"metadata of a version that expired or was given up; its data files no longer exist (commit at {moment})"
        if missing:
            return f"looks like a lost commit of {user} at {moment}: {what}, {len(missing)} of them missing"
        return f"looks like a lost commit of {user} at {moment}: {what}, all present"


def origins(context: TableContext, files: Sequence[Candidate], used: UsedNames) -> dict[str, str]:
    """The probable origin of each file, by path."""
    commits = _commits(context, files)
    on_disk = {file.name for file in files}
    by_data = {entry.file.file_name: commit for commit in commits.values() for entry in commit.added}
    texts = {uuid: commit.text(on_disk, used) for uuid, commit in commits.items()}
    return {file.path: _origin(file, commits, by_data, texts, used) for file in files}


def _origin(
    file: Candidate,
    commits: Mapping[str, OrphanedCommit],
    by_data: Mapping[str, OrphanedCommit],
    texts: Mapping[str, str],
    used: UsedNames,
) -> str:
    if file.kind == TEMPORARY:
        return "temporary file of an interrupted write"
    if file.kind == MANIFEST:
        match = _COMMIT.fullmatch(file.name)
        return texts[match[1]] if match else "no version refers to it"
    if file.kind == DATA:
        if file.name in by_data:
            return texts[by_data[file.name].uuid]
        job = used.job_of.get(stamp_of(file.name))
        if job is not None:
            return f"left over from the job of user {shown_name(job.commit_user)} that made snapshot {job.id}"
        return f"written at {_moment(file.modified_millis)}, never committed (its writer died), or left by an expiry"
    return "an index file that no version refers to" if file.kind == INDEX else "statistics that no version refers to"


def _commits(context: TableContext, files: Sequence[Candidate]) -> dict[str, OrphanedCommit]:
    """Orphaned manifest files by the UUID of their commit, decoded as far as possible."""
    found: dict[str, OrphanedCommit] = {}
    for file in files:
        match = _COMMIT.fullmatch(file.name) if file.kind == MANIFEST else None
        if match is None:
            continue
        commit = found.setdefault(match[1], OrphanedCommit(match[1]))
        commit.modified_millis = max(commit.modified_millis, file.modified_millis)
        if file.name.startswith("manifest-") and not file.name.startswith("manifest-list-"):
            commit.added += [entry for entry in _entries(context, file) if entry.kind == EntryKind.ADD]
    for snapshot in _cut_off_snapshots(context, files):
        match = _COMMIT.fullmatch(snapshot.delta_manifest_list)
        if match is not None and match[1] in found:
            found[match[1]].snapshot = snapshot
    return found


def _entries(context: TableContext, file: Candidate) -> list[ManifestEntry]:
    """The entries; none for a manifest that was cut off."""
    try:
        return decode_manifest(context.storage.read_bytes(file.path), file.path)
    except (DamagedFile, NotSupported, FileNotFoundError):
        return []


def _cut_off_snapshots(context: TableContext, files: Sequence[Candidate]) -> list[Snapshot]:
    """Temporary snapshot files of commits that died during their publication; they name the user."""
    found = []
    for file in files:
        if file.kind == TEMPORARY and _TEMPORARY_SNAPSHOT.fullmatch(file.name):
            try:
                found.append(Snapshot.from_json(context.storage.read_bytes(file.path), file.path))
            except (DamagedFile, FileNotFoundError):
                continue
    return found


def _moment(millis: int) -> str:
    return datetime.fromtimestamp(millis // 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
