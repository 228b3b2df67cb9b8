"""Drops a table: deletes what Paimon created in its directory, in an order that can be repeated after a crash, and keeps the
rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from paimon_cli.errors import PartialSuccess, StorageUnavailable
from paimon_cli.maintain.needed_files import FileToDelete
from paimon_cli.metadata.table_layout import BRANCH_PREFIX, TableLayout, escape
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.guarded_storage import PROBE_PREFIX
from paimon_cli.storage.storage import Storage, remove_empty_directory

DATA_DIRECTORY = "data-file.path-directory"
ICEBERG_OPTION, ICEBERG_IN_TABLE, ICEBERG_DIRECTORY = "metadata.iceberg.storage", "table-location", "metadata"
"""Where this option has this value, Paimon keeps metadata for readers of Iceberg in that directory of the table."""
DAMAGED = "damaged"
"""Where `repair` sets version files aside that cannot be read."""

_OF_A_VERSION = ("snapshot", "tag", "changelog", "consumer", "schema", "lease")
_OF_A_TABLE = ("branch", *_OF_A_VERSION, "manifest", "index", "statistics", "service", DAMAGED)
_FIRST = ("branch", "tag", "changelog", "snapshot")
_BUCKET = re.compile(r"bucket-(-?[0-9]+|postpone)")
_ROOT, _BRANCHES, _BRANCH, _TEMPORARY = "table", "branch", "branch files", "temporary"
_DATA = "data"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAMES = {
    "snapshot": re.compile("snapshot-[0-9]+|LATEST|EARLIEST"),
    "changelog": re.compile("changelog-[0-9]+|LATEST|EARLIEST"),
    "schema": re.compile("schema-[0-9]+"),
    "tag": re.compile("tag-.+"),
    "consumer": re.compile("consumer-.+"),
    "lease": re.compile("compaction-[0-9]+"),
    "manifest": re.compile("(index-)?manifest-.+"),
    _DATA: re.compile(f".*{_UUID}.*", re.IGNORECASE),
}
"""Names of the files that Paimon makes, by the kind of their directory; elsewhere every file is the table's."""


class _Place(NamedTuple):
    """A directory of the table: the kind of its files, and the prefixes of data directories below it, level by level.

    `levels` is () if buckets come next, None if there is no data below.
    """

    kind: str
    levels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TableDrop:
    """Files to delete, and files to keep because Paimon did not create them. `directories`: of the table, parents first."""

    files: list[FileToDelete] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)


def plan_table_drop(storage: Storage, layout: TableLayout, schema: TableSchema) -> TableDrop:
    """List the directories of the table without entering foreign ones."""
    plan = TableDrop()
    places = [(layout.root, _Place(_ROOT, _levels_below_root(schema)))]
    while places:
        directory, place = places.pop()
        for entry in sorted(storage.list_directory(directory), key=lambda entry: entry.name):
            inside = _inside(place, entry.name, schema) if entry.is_directory else None
            if inside is not None:
                plan.directories.append(entry.path)
                places.append((entry.path, inside))
            elif entry.is_directory or not _is_of_the_table(place, entry.name):
                plan.stays.append(f"{entry.path}/" if entry.is_directory else entry.path)
            else:
                plan.files.append(FileToDelete(entry.path, place.kind, entry.size))
    return plan


def drop_table(storage: Storage, layout: TableLayout, schema: TableSchema, plan: TableDrop) -> None:
    """Delete versions first, so that a crash leaves an empty table and no dangling names; the schema goes last.

    What cannot be deleted is left for the next attempt, together with the schema: `PartialSuccess`, unless nothing could be
    deleted.
    """
    failures: list[StorageUnavailable] = []
    for directory in _in_order(layout, plan):
        if directory == layout.schema_directory and failures:
            continue
        try:
            _remove(storage, directory, plan)
        except StorageUnavailable as failure:
            failures.append(failure)
    if not failures:
        _remove_root(storage, layout.root)
        return
    left = plan_table_drop(storage, layout, schema).files
    if len(left) >= len(plan.files):
        raise failures[0]
    raise PartialSuccess(
        f"{len(left)} of {len(plan.files)} files of {layout.root} could not be deleted",
        str(failures[0]),
        "run the drop again once that is fixed: the other files are deleted",
        left=[file.path for file in left],
    )


def _levels_below_root(schema: TableSchema) -> tuple[str, ...]:
    above = [name for name in schema.options.get(DATA_DIRECTORY, "").split("/") if name]
    return (*above, *(f"{escape(key)}=" for key in schema.partition_keys))


def _inside(place: _Place, name: str, schema: TableSchema) -> _Place | None:
    """The contents of a directory of that name; None if it is not part of the table."""
    if place.kind == _TEMPORARY or (place.kind == _ROOT and name.startswith(PROBE_PREFIX)):
        return _Place(_TEMPORARY)
    if (place.kind == _ROOT and name in _OF_A_TABLE) or (place.kind == _BRANCH and name in _OF_A_VERSION):
        return _Place(name)
    if place.kind == _ROOT and name == ICEBERG_DIRECTORY and schema.options.get(ICEBERG_OPTION) == ICEBERG_IN_TABLE:
        return _Place("Iceberg metadata")
    if place.kind == _BRANCHES and name.startswith(BRANCH_PREFIX):
        return _Place(_BRANCH)
    if place.levels == () and _BUCKET.fullmatch(name):
        return _Place(_DATA)
    if place.levels and (name == place.levels[0] or (place.levels[0].endswith("=") and name.startswith(place.levels[0]))):
        return _Place(_DATA, place.levels[1:])
    return _Place(_TEMPORARY) if place.kind != _ROOT and name.startswith((".", "_")) else None


def _is_of_the_table(place: _Place, name: str) -> bool:
    """Whether Paimon created the file. Names that begin with a dot or underscore are temporary files and checksums."""
    if place.kind == _ROOT:
        return False
    known = _NAMES.get(place.kind)
    return known is None or name.startswith((".", "_")) or known.fullmatch(name) is not None


def _in_order(layout: TableLayout, plan: TableDrop) -> list[str]:
    """The order of deletion: schemas of branches, all versions, everything else, the schemas of the table."""
    top = [directory for directory in plan.directories if directory.rpartition("/")[0] == layout.root]
    branches = [d for d in plan.directories if d.startswith(f"{layout.branches_directory}/") and d.endswith("/schema")]
    rank = {f"{layout.root}/{name}": number - len(_FIRST) for number, name in enumerate(_FIRST)}
    return [*branches, *sorted(top, key=lambda directory: rank.get(directory, directory == layout.schema_directory))]


def _remove(storage: Storage, directory: str, plan: TableDrop) -> None:
    below = f"{directory}/"
    if not any(path.startswith(below) for path in plan.stays):
        storage.delete_directory(directory)
        return
    for file in plan.files:
        if file.path.startswith(below):
            storage.delete(file.path)
    for place in reversed([d for d in plan.directories if d == directory or d.startswith(below)]):
        remove_empty_directory(storage, place)


def _remove_root(storage: Storage, root: str) -> None:
    """Delete the empty directory or, on object stores, the object that stands for it."""
    if not storage.list_directory(root) and not remove_empty_directory(storage, root):
        storage.delete_directory(root)
