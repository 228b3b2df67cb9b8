"""Checks of what else points at snapshots: tags, branches, consumers, changelogs that outlived their snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterator

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.changelog_history import ChangelogHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.file_checks import StoredFiles, live_files_exist
from paimon_cli.invariants.snapshot_checks import metadata_is_readable
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.table_layout import CONSUMER_PREFIX, SNAPSHOT_PREFIX, parse_numbered


def tagged_versions(context: TableContext) -> Iterator[Version | Violation]:
    """PV050: the version of each tag, or why it cannot be read."""
    for name in context.tags.names():
        path = context.layout.tag(name)
        try:
            tag = context.tags.find(name)
        except DamagedFile as error:
            yield Violation("PV050", path, str(error))
            continue
        if tag is None:
            continue
        version = Version(context, tag.snapshot)
        broken = next(metadata_is_readable(version), None)
        yield version if broken is None else Violation("PV050", path, broken.message)


def tagged_files_exist(version: Version, stored: StoredFiles) -> Iterator[Violation]:
    """PV051."""
    for violation in live_files_exist(version, stored):
        yield Violation("PV051", violation.path, f"{violation.message} (a tag holds snapshot {version.snapshot.id})")


def manifests_have_a_version(context: TableContext) -> Iterator[Violation]:
    """PV057. What a first writer at work looks like, too; else the history is lost, and the table looks empty."""
    storage, layout = context.storage, context.layout
    branches = [layout.of_branch(name).snapshot_directory for name in context.branches.directories()]
    if any(_holds_versions(context, directory) for directory in (layout.snapshot_directory, *branches)):
        return
    manifests = [status for status in storage.list_directory(layout.manifest_directory) if not status.is_directory]
    if manifests:
        yield Violation("PV057", layout.snapshot_directory, f"there is no snapshot, but there are {len(manifests)} manifests")


def _holds_versions(context: TableContext, directory: str) -> bool:
    return any(parse_numbered(SNAPSHOT_PREFIX, s.name) is not None for s in context.storage.list_directory(directory))


def consumers_stand_somewhere(context: TableContext) -> Iterator[Violation]:
    """PV052. A consumer before the oldest snapshot has lost changes; one beyond the next snapshot protects nothing."""
    ids = context.snapshots.ids()
    for status in context.storage.list_directory(context.layout.consumer_directory):
        if not status.name.startswith(CONSUMER_PREFIX) or status.is_directory:
            continue
        try:
            following = json.loads(context.storage.read_bytes(status.path))["nextSnapshot"]
        except FileNotFoundError:
            continue
        except DamagedFile as error:
            yield Violation("PV052", status.path, f"cannot be read: {error.why}")
            continue
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            yield Violation("PV052", status.path, f"cannot be read: {type(error).__name__}")
            continue
        if not isinstance(following, int) or isinstance(following, bool):
            yield Violation("PV052", status.path, f"names {following!r}, no snapshot")
        elif ids and not ids[0] <= following <= ids[-1] + 1:
            yield Violation("PV052", status.path, f"points at snapshot {following}, the table has {ids[0]} to {ids[-1]}")


def branches_are_readable(context: TableContext) -> Iterator[Violation]:
    """PV053: schemas, snapshots and the newest version of each branch."""
    for name in context.branches.names():
        root = context.layout.of_branch(name).version_root
        try:
            branch = context.at_branch(name)
            snapshots = [branch.snapshots.find(number) for number in branch.snapshots.ids()]
        except (DamagedFile, NotFound, NotSupported) as error:
            yield Violation("PV053", str(error.details.get("path", root)), f"branch {name}: {error}")
            continue
        newest = next((snapshot for snapshot in reversed(snapshots) if snapshot is not None), None)
        if newest is not None:
            for broken in metadata_is_readable(Version(branch, newest)):
                yield Violation("PV053", broken.path, f"branch {name}: {broken.message}")


def changelogs_are_readable(context: TableContext) -> Iterator[Violation]:
    """PV054. Each parses and holds the id of its name."""
    history = ChangelogHistory(context.storage, context.layout)
    for number in history.ids():
        try:
            history.find(number)
        except DamagedFile as error:
            yield Violation("PV054", context.layout.changelog(number), f"{error}: {error.why}")
