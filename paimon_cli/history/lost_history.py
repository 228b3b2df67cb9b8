"""Proves that a table without snapshots has had some, from its hints and manifest lists."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import (
    BRANCH_PREFIX,
    CHANGELOG_PREFIX,
    MAIN_BRANCH,
    SNAPSHOT_PREFIX,
    TAG_PREFIX,
    TableLayout,
    parse_hint,
    parse_numbered,
)
from paimon_cli.storage.storage import Storage

LIST_PREFIX = "manifest-list-"
_MOST_LISTS = 100
"""The most manifest lists that are read: any two successive commits are a proof."""


def hint_of_lost_snapshots(storage: Storage, layout: TableLayout) -> str | None:
    """The path of a hint that names a later snapshot than the first, if manifests prove that commits were built on each other;
    otherwise None. Only for a table that has no snapshot.

    Neither proves it alone. A late commit to a table that was dropped and created again may leave a hint, and first commits that
    were interrupted leave manifests; but no list of theirs names a manifest of another commit that still exists.
    """
    hint = next((path for path in (layout.latest_hint, layout.earliest_hint) if _names_a_later_one(storage, path)), None)
    return None if hint is None or not _commits_were_built_on_each_other(storage, layout) else hint


def _names_a_later_one(storage: Storage, path: str) -> bool:
    try:
        return (parse_hint(storage.read_bytes(path)) or 0) > 1
    except (FileNotFoundError, DamagedFile):
        return False


def _commits_were_built_on_each_other(storage: Storage, layout: TableLayout) -> bool:
    """Whether two lists that belong to no other branch name the same manifest, and it exists."""
    try:
        named = set(_lists_of_other_branches(storage, layout))
    except DamagedFile:  # all lists may be those of the branch
        return False
    found = [status for status in storage.list_directory(layout.manifest_directory) if status.name.startswith(LIST_PREFIX)]
    found = sorted((status for status in found if status.name not in named), key=lambda status: -status.modified_millis)
    manifests, seen = ManifestReader(storage, layout), set[str]()
    for status in found[:_MOST_LISTS]:
        try:
            names = {meta.file_name for meta in manifests.manifest_list(status.name)}
        except (DamagedFile, NotFound, NotSupported):
            continue
        if any(storage.exists(layout.manifest(name)) for name in names & seen):
            return True
        seen |= names
    return False


def _lists_of_other_branches(storage: Storage, layout: TableLayout) -> Iterator[str]:
    """All branches of a table keep their manifests in the same directory."""
    directories = storage.list_directory(layout.branches_directory)
    branches = [status.name.removeprefix(BRANCH_PREFIX) for status in directories if status.name.startswith(BRANCH_PREFIX)]
    for branch in {MAIN_BRANCH, *filter(None, branches)} - {layout.branch}:
        for path in version_files(storage, layout.of_branch(branch)):
            yield from lists_named_in(storage, path)


def version_files(storage: Storage, layout: TableLayout) -> Iterator[str]:
    """The paths of the snapshots, tags and changelogs of a branch, as listed. Foreign files are left out."""
    for status in storage.list_directory(layout.snapshot_directory):
        if parse_numbered(SNAPSHOT_PREFIX, status.name) is not None:
            yield status.path
    for status in storage.list_directory(layout.tag_directory):
        if status.name.startswith(TAG_PREFIX) and not status.is_directory:
            yield status.path
    for status in storage.list_directory(layout.changelog_directory):
        if parse_numbered(CHANGELOG_PREFIX, status.name) is not None:
            yield status.path


def lists_named_in(storage: Storage, path: str) -> list[str]:
    """The manifest lists that a version file names; none if it has expired. Raises `DamagedFile`."""
    try:
        snapshot = Snapshot.from_json(storage.read_bytes(path), path)
    except FileNotFoundError:
        return []
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
    return [name for name in lists if name is not None]
