"""A drop on a store without directories: a table's version files go into the trash and come back; its data stays in place."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.errors import Refused
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.tags_and_branches import BranchList
from paimon_cli.maintain.end_of_history import EndOfHistory
from paimon_cli.metadata.table_layout import MAIN_BRANCH, SNAPSHOT_PREFIX, TableLayout, parse_numbered
from paimon_cli.storage.injected import Clock, RandomSource
from paimon_cli.storage.storage import Storage


def _histories(storage: Storage, layout: TableLayout) -> list[str]:
    return [MAIN_BRANCH, *BranchList(storage, layout).directories()]


def _version_files(storage: Storage, layout: TableLayout) -> Iterator[str]:
    """The paths of the version files of all branches: snapshots oldest first, their hints, tags, changelogs, the schemas last.

    A hint that is out of date would hide the end from those who look while the snapshots after it are still missing.
    """
    for branch in reversed(_histories(storage, layout)):
        own = layout.of_branch(branch)
        snapshots = storage.list_directory(own.snapshot_directory)
        numbers = {status.path: parse_numbered(SNAPSHOT_PREFIX, status.name) for status in snapshots}
        yield from sorted(numbers, key=lambda path: (numbers[path] is None, numbers[path] or 0))
        for directory in (own.tag_directory, own.changelog_directory, own.schema_directory):
            yield from (status.path for status in storage.list_directory(directory) if not status.is_directory)


def move_versions(storage: Storage, layout: TableLayout, kept: TableLayout, clock: Clock, random: RandomSource) -> None:
    """End the histories, copy the version files, and only then delete them. The ends stay. Can be repeated."""
    ends = {branch: EndOfHistory(storage, layout.of_branch(branch), clock, random) for branch in _histories(storage, layout)}
    for end in ends.values():
        end.begin()
    staying = {end.path for end in ends.values()}
    paths = [path for path in _version_files(storage, layout) if path not in staying]
    for path in paths:
        storage.overwrite(kept.root + path.removeprefix(layout.root), storage.read_bytes(path))
    for path in paths:
        storage.delete(path)


def return_versions(storage: Storage, kept: TableLayout, layout: TableLayout) -> None:
    """Copy the version files back, the schemas last, then remove the ends, that of the table last: then it is a table again.

    Can be repeated until then. Later, what the trash still holds is only a copy.
    """
    if not SnapshotHistory(storage, layout).is_ended():
        if not _has_schemas(storage, kept, layout):
            raise Refused(f"{layout.root} cannot be brought back", "its data is not kept any more, or another table is there")
        storage.delete_directory(kept.root)  # an earlier attempt was killed when all was back
        return
    ends = [EndOfHistory(storage, layout.of_branch(branch)) for branch in _histories(storage, layout)]
    for end in ends:
        end.begin()
    for path in _version_files(storage, kept):
        storage.overwrite(layout.root + path.removeprefix(kept.root), storage.read_bytes(path))
    for end in reversed(ends):
        end.retract()
    storage.delete_directory(kept.root)


def _has_schemas(storage: Storage, kept: TableLayout, layout: TableLayout) -> bool:
    """Whether the table at `layout` has the schemas that are kept; a new table at the same place has others."""
    try:
        return all(
            storage.read_bytes(layout.schema(number)) == storage.read_bytes(kept.schema(number))
            for number in SchemaHistory(storage, kept).ids()
        )
    except FileNotFoundError:
        return False
