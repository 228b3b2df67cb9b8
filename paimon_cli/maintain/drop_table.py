"""Drops a table: deletes the files that Paimon created in its directory, and keeps all others. A crashed drop can be repeated."""

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
"""With this value of the option, Paimon writes metadata for Iceberg readers into this directory of the table."""
DAMAGED = "damaged"
"""The directory into which `repair` moves version files that cannot be read."""

_BRANCH_DIRECTORIES = ("snapshot", "tag", "changelog", "consumer", "schema", "lease")
_TABLE_DIRECTORIES = ("branch", *_BRANCH_DIRECTORIES, "manifest", "index", "statistics", "service", DAMAGED)
_DELETED_FIRST = ("branch", "tag", "changelog", "snapshot")
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
"""The names of the files that Paimon creates, by kind of directory. In other directories every file belongs to the table."""


class _Directory(NamedTuple):
    """A directory of the table: the kind of its files, and the names or prefixes of the data directories below it, by level.

    `levels` is () if bucket directories come next, None if there is no data below.
    """

    kind: str
    levels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TableDrop:
    """Files to delete, and the table's directories, parents first. `stays`: paths to keep, because Paimon did not create them."""

    files: list[FileToDelete] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)


def plan_table_drop(storage: Storage, layout: TableLayout, schema: TableSchema) -> TableDrop:
    """Find the files to delete. Directories that do not belong to the table are not listed."""
    plan = TableDrop()
    pending = [(layout.root, _Directory(_ROOT, _levels_below_root(schema)))]
    while pending:
        path, directory = pending.pop()
        for entry in sorted(storage.list_directory(path), key=lambda entry: entry.name):
            child = _child(directory, entry.name, schema) if entry.is_directory else None
            if child is not None:
                plan.directories.append(entry.path)
                pending.append((entry.path, child))
            elif entry.is_directory or not _belongs_to_table(directory, entry.name):
                plan.stays.append(f"{entry.path}/" if entry.is_directory else entry.path)
            else:
                plan.files.append(FileToDelete(entry.path, directory.kind, entry.size))
    return plan


def drop_table(storage: Storage, layout: TableLayout, schema: TableSchema, plan: TableDrop) -> None:
    """Carry out the plan: versions first, so that a crash leaves an empty table without dangling names, and the schema last.

    Files that cannot be deleted stay for the next attempt, together with the schema. Raises `PartialSuccess` then, or the error
    of the storage if nothing could be deleted.
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


def _child(parent: _Directory, name: str, schema: TableSchema) -> _Directory | None:
    """The directory of this name in `parent`; None if it does not belong to the table."""
    if parent.kind == _TEMPORARY or (parent.kind == _ROOT and name.startswith(PROBE_PREFIX)):
        return _Directory(_TEMPORARY)
    if (parent.kind == _ROOT and name in _TABLE_DIRECTORIES) or (parent.kind == _BRANCH and name in _BRANCH_DIRECTORIES):
        return _Directory(name)
    if parent.kind == _ROOT and name == ICEBERG_DIRECTORY and schema.options.get(ICEBERG_OPTION) == ICEBERG_IN_TABLE:
        return _Directory("Iceberg metadata")
    if parent.kind == _BRANCHES and name.startswith(BRANCH_PREFIX):
        return _Directory(_BRANCH)
    if parent.levels == () and _BUCKET.fullmatch(name):
        return _Directory(_DATA)
    if parent.levels and (name == parent.levels[0] or (parent.levels[0].endswith("=") and name.startswith(parent.levels[0]))):
        return _Directory(_DATA, parent.levels[1:])
    return _Directory(_TEMPORARY) if parent.kind != _ROOT and name.startswith((".", "_")) else None


def _belongs_to_table(directory: _Directory, name: str) -> bool:
    """Whether Paimon created the file. Names that begin with a dot or underscore are temporary files and checksums."""
    if directory.kind == _ROOT:
        return False
    pattern = _NAMES.get(directory.kind)
    return pattern is None or name.startswith((".", "_")) or pattern.fullmatch(name) is not None


def _in_order(layout: TableLayout, plan: TableDrop) -> list[str]:
    """Directories in the order of deletion: schemas of branches, versions, everything else, the schemas of the table."""
    top = [directory for directory in plan.directories if directory.rpartition("/")[0] == layout.root]
    branches = [d for d in plan.directories if d.startswith(f"{layout.branches_directory}/") and d.endswith("/schema")]
    rank = {f"{layout.root}/{name}": number - len(_DELETED_FIRST) for number, name in enumerate(_DELETED_FIRST)}
    return [*branches, *sorted(top, key=lambda directory: rank.get(directory, directory == layout.schema_directory))]


def _remove(storage: Storage, directory: str, plan: TableDrop) -> None:
    below = f"{directory}/"
    if not any(path.startswith(below) for path in plan.stays):
        storage.delete_directory(directory)
        return
    for file in plan.files:
        if file.path.startswith(below):
            storage.delete(file.path)
    for path in reversed([d for d in plan.directories if d == directory or d.startswith(below)]):
        remove_empty_directory(storage, path)


def _remove_root(storage: Storage, root: str) -> None:
    """Delete the table's directory if it is empty; on object stores, the object that marks it."""
    if not storage.list_directory(root) and not remove_empty_directory(storage, root):
        storage.delete_directory(root)
