"""Drops a table: deletes the files that Paimon created in its directory, and keeps all others.

The history is ended first (`end_of_history`), so that no commit is acknowledged in a table that is being deleted. A drop that was
interrupted can be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from paimon_cli.errors import PaimonError, PartialSuccess, StorageUnavailable
from paimon_cli.maintain.end_of_history import EndOfHistory
from paimon_cli.maintain.named_files import FileToDelete
from paimon_cli.metadata.table_layout import BRANCH_PREFIX, TableLayout, escape
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import counted
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.guarded_storage import PROBE_PREFIX
from paimon_cli.storage.injected import Clock, RandomSource, SystemClock, SystemRandom
from paimon_cli.storage.storage import Storage

DATA_DIRECTORY = "data-file.path-directory"
ICEBERG_OPTION, ICEBERG_IN_TABLE, ICEBERG_DIRECTORY = "metadata.iceberg.storage", "table-location", "metadata"
"""With this value of the option, Paimon writes metadata for Iceberg readers into this directory of the table."""
SUCCESS_FILES = "tag-success-file"
"""The directory beside the tags in which Java puts a file for each new tag, with `tag.create-success-file`."""
DAMAGED = "damaged"
"""The directory into which `repair` moves version files that cannot be read."""

_BRANCH_DIRECTORIES = ("snapshot", "tag", "changelog", "consumer", "schema", "lease", "removal", "commit-user")
_TABLE_DIRECTORIES = ("branch", *_BRANCH_DIRECTORIES, "manifest", "index", "statistics", "service", "backup", DAMAGED)
_ROUNDS = 5
"""How often files are looked for that other jobs have written meanwhile."""
_DELETED_FIRST = ("branch", "tag", "changelog", "snapshot")
_BUCKET = re.compile(r"bucket-(-?[0-9]+|postpone)")
_ROOT, _BRANCHES, _BRANCH, _TEMPORARY = "table", "branch", "branch files", "temporary"
_DATA = "data"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAMES = {
    **dict.fromkeys((_BRANCHES, _BRANCH), re.compile("(?!)")),
    "snapshot": re.compile("snapshot-[0-9]+|LATEST|EARLIEST"),
    "changelog": re.compile("changelog-[0-9]+|LATEST|EARLIEST"),
    "schema": re.compile("schema-[0-9]+"),
    "tag": re.compile("tag-.+"),
    "consumer": re.compile("consumer-.+"),
    "lease": re.compile("(compaction|backup)-[0-9]+"),
    "backup": re.compile("run-[0-9]+|identity|unfinished(-copy)?"),
    "removal": re.compile(f"removal-{_UUID}"),
    "commit-user": re.compile("commit-[0-9a-f]{64}-.+"),
    "manifest": re.compile("(index-)?manifest-.+"),
    _DATA: re.compile(f".*{_UUID}.*", re.IGNORECASE),
}
"""The names of the files that Paimon creates, by kind of directory; beside the directories of branches there are none. In other
directories every file belongs to the table.
"""


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


def plan_table_drop(storage: Storage, layout: TableLayout, schema: TableSchema | None) -> TableDrop:
    """Find the files to delete. Directories that do not belong to the table are not listed.

    `schema`: None if an earlier attempt has deleted the schemas, which it does after all data.
    """
    plan = TableDrop()
    pending = [(layout.root, _Directory(_ROOT, None if schema is None else _levels_below_root(schema)))]
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


def drop_table(
    storage: Storage,
    layout: TableLayout,
    schema: TableSchema | None,
    clock: Clock | None = None,
    random: RandomSource | None = None,
    elsewhere: Sequence[str] = (),
) -> None:
    """End the histories of the table and its branches, then delete the files: versions first, the schemas and the ends last.

    `elsewhere`: its files outside of its directory, which go first: nothing else names them.

    Files that appear meanwhile, of jobs whose commits will be refused, are deleted too. Files that cannot be deleted stay for the
    next attempt, together with the schema. Raises `PartialSuccess` then, or the error of the storage if nothing could be deleted.
    """
    TableRemoval(storage, layout, schema, clock or SystemClock(), random or SystemRandom()).run(elsewhere)


class TableRemoval:
    """One drop on its way."""

    def __init__(
        self, storage: Storage, layout: TableLayout, schema: TableSchema | None, clock: Clock, random: RandomSource
    ) -> None:
        self._storage = storage
        self._layout = layout
        self._schema = schema
        self._end = EndOfHistory(storage, layout, clock, random)
        self._clock = clock
        self._random = random

    def run(self, elsewhere: Sequence[str] = ()) -> None:
        self._end.begin()
        delete_all(self._storage, elsewhere)
        first, left = self._files(self._plan()), list[FileToDelete]()
        for _ in range(_ROUNDS):
            plan = self._plan()
            failures = self._delete(plan)
            if failures is None:
                return  # another drop has finished
            left = self._files(self._plan())
            if failures:
                raise self._incomplete(left, first, failures[0])
            if all(file.path.startswith(f"{self._layout.schema_directory}/") for file in left):
                self._delete_last(plan)
                return
        raise PartialSuccess(
            f"{counted(len(left), 'file')} of {self._layout.root} appeared while it was dropped",
            "another job is still writing; its commit will be refused",
            "run the drop again when that job has ended",
            left=[file.path for file in left],
        )

    def _plan(self) -> TableDrop:
        return plan_table_drop(self._storage, self._layout, self._schema)

    def _delete(self, plan: TableDrop) -> list[StorageUnavailable] | None:
        """Delete all but the schemas and the end; returns the failures, or None if the end has disappeared."""
        failures: list[StorageUnavailable] = []
        for directory in _in_order(self._layout, plan):
            if not self._end.is_in_place():
                return None
            try:
                if directory == self._layout.snapshot_directory:
                    self._end.remove_snapshots()
                elif directory == self._layout.branches_directory:
                    self._delete_branches(plan)
                elif directory != self._layout.schema_directory:
                    _remove(self._storage, directory, plan)
            except StorageUnavailable as failure:
                failures.append(failure)
        return failures

    def _delete_branches(self, plan: TableDrop) -> None:
        """End and delete all branches. Without schemas a branch does not exist."""
        above = f"{self._layout.branches_directory}/{BRANCH_PREFIX}"
        for directory in plan.directories:
            if directory.startswith(above) and "/" not in (name := directory.removeprefix(above)):
                end = EndOfHistory(self._storage, self._layout.of_branch(name), self._clock, self._random)
                end.begin()
                _remove(self._storage, f"{directory}/schema", plan)
                end.remove_snapshots()
        _remove(self._storage, self._layout.branches_directory, plan)

    def _files(self, plan: TableDrop) -> list[FileToDelete]:
        """The files of a plan outside of the directory of the end."""
        return [file for file in plan.files if not file.path.startswith(f"{self._layout.snapshot_directory}/")]

    def _delete_last(self, plan: TableDrop) -> None:
        """Delete the schemas, then the end. In between, the directory is neither a table nor free for a new one."""
        for directory in (self._layout.schema_directory, self._layout.snapshot_directory):
            _remove(self._storage, directory, plan)
        _remove_root(self._storage, self._layout.root)

    def _incomplete(self, left: list[FileToDelete], first: list[FileToDelete], failure: StorageUnavailable) -> PaimonError:
        """The error of a drop that was refused in part. The end stays, because another drop may have deleted files under it."""
        if len(left) >= len(first):
            failure.set_hint("the table can no longer be read or written; run the drop again once that is fixed")
            return failure
        return PartialSuccess(
            f"{len(left)} of {len(first)} files of {self._layout.root} could not be deleted",
            str(failure),
            "run the drop again once that is fixed: the other files are deleted",
            left=[file.path for file in left],
        )


def _levels_below_root(schema: TableSchema) -> tuple[str, ...]:
    above = [name for name in schema.options.get(DATA_DIRECTORY, "").split("/") if name]
    return (*above, *(f"{escape(key)}=" for key in schema.partition_keys))


def _child(parent: _Directory, name: str, schema: TableSchema | None) -> _Directory | None:
    """The directory of this name in `parent`; None if it does not belong to the table."""
    if parent.kind == _TEMPORARY or (parent.kind == _ROOT and name.startswith(PROBE_PREFIX)):
        return _Directory(_TEMPORARY)
    if (parent.kind == _ROOT and name in _TABLE_DIRECTORIES) or (parent.kind == _BRANCH and name in _BRANCH_DIRECTORIES):
        return _Directory(name)
    if parent.kind == _ROOT and name == ICEBERG_DIRECTORY and schema is not None:
        return _Directory("Iceberg metadata") if schema.options.get(ICEBERG_OPTION) == ICEBERG_IN_TABLE else None
    if parent.kind == "tag" and name == SUCCESS_FILES:
        return _Directory(SUCCESS_FILES)
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
    """Directories in the order of deletion: branches, versions, everything else."""
    top = [directory for directory in plan.directories if directory.rpartition("/")[0] == layout.root]
    rank = {f"{layout.root}/{name}": number for number, name in enumerate(_DELETED_FIRST)}
    return sorted(top, key=lambda directory: rank.get(directory, len(rank)))


def _remove(storage: Storage, directory: str, plan: TableDrop) -> None:
    below = f"{directory}/"
    if not any(path.startswith(below) for path in plan.stays):
        storage.delete_directory(directory)
        return
    delete_all(storage, [file.path for file in plan.files if file.path.startswith(below)])
    for path in reversed([d for d in plan.directories if d == directory or d.startswith(below)]):
        remove_empty_directory(storage, path)


def _remove_root(storage: Storage, root: str) -> None:
    """Delete the table's directory if it is empty; on object stores, the object that marks it."""
    if not storage.list_directory(root) and not remove_empty_directory(storage, root):
        storage.delete_directory(root)
