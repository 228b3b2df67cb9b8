"""What a process has read of a table. All views of an opened table share it: other columns, options, branches, readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from paimon_cli.history.kept_files import KeptFiles, KnownFiles
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_place import TablePlace
from paimon_cli.history.tags_and_branches import BranchList, TagHistory
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.storage import Storage

if TYPE_CHECKING:
    from paimon_cli.history.manifest_cache import ManifestCache

Schemas = dict[int, TableSchema]


class BranchFiles:
    """The histories of one branch on one storage, and what they have read. `schemas`: those that are known already, by id."""

    def __init__(self, storage: Storage, place: TablePlace, schemas: Schemas) -> None:
        self.layout = layout = place.layout
        self.snapshots = SnapshotHistory(storage, layout)
        self.schemas = SchemaHistory(storage, layout, schemas)
        self.tags = TagHistory(storage, layout)
        self.branches = BranchList(storage, layout)
        self._storage = storage
        self._readers: dict[int, ManifestReader] = {}
        self._caches: dict[int, ManifestCache] = {}
        self._schema: TableSchema | None = None
        self._newest_listed: int | None = None

    def manifests(self, threads: int) -> ManifestReader:
        """The reader of manifests that fetches as many at once; each number of threads has its own."""
        if threads not in self._readers:
            self._readers[threads] = ManifestReader(self._storage, self.layout, threads)
        return self._readers[threads]

    def manifest_cache(self, threads: int) -> ManifestCache:
        if threads not in self._caches:
            from paimon_cli.history.manifest_cache import ManifestCache  # loads numpy, which commands on snapshots do not need

            self._caches[threads] = ManifestCache(self.manifests(threads))
        return self._caches[threads]

    def find_schema(self) -> bool:
        """Look for a schema when the table is opened, in as few requests as possible; returns whether there is one.

        Raises `UnfinishedCopy` if only a part of the table's schemas is copied, or those of a branch and not yet the table's.
        """
        self._schema, is_part = self.schemas.at_opening(), self.layout.branch != MAIN_BRANCH
        if self._schema is None:
            if not (ids := self.schemas.ids()):
                return False
            self._newest_listed, is_part = ids[-1], is_part or ids[0] > 0
        if is_part and (unfinished := self.schemas.unfinished_copy()) is not None:
            raise unfinished
        return True

    def schema(self) -> TableSchema:
        """The newest schema, which is read once: it stays that of the opened table. Raises like `SchemaHistory.latest`."""
        if self._schema is None:
            self._schema = self.schemas.get(self.schemas.newest_id(self._newest_listed))
        return self._schema


def _unheard(_: str) -> None:
    """Drops a warning, where no user sees any."""


class FileCache:
    """The files of a table that this process has read.

    `kept`: facts and copies of data files, which a service keeps from round to round; `index_files`: the content of index files.
    The histories belong to the storage that is used first: a view on another storage sees what that one has. Pickled with the
    schemas alone.
    """

    def __init__(self, kept: KeptFiles | None = None, schemas: dict[tuple[str, str], Schemas] | None = None) -> None:
        self.kept = KeptFiles() if kept is None else kept
        self.index_files = KnownFiles()
        self.names_of_partitions: dict[str, Any] = {}
        """What the schemas of a branch say about names of partitions (`moved_partitions`), by its root."""
        self.checked: dict[frozenset[tuple[str, str]], Storage] = {}
        """The options of calls that may commit, with the storage that was checked."""
        self.warn: Callable[[str], None] = _unheard
        """Receives warnings about what a call could not do beside its work; the library sets it, and tasks have none."""
        self._schemas: dict[tuple[str, str], Schemas] = schemas or {}
        self._storage: Storage | None = None
        self._branches: dict[tuple[str, str, str | None], BranchFiles] = {}
        self._paths: dict[tuple[Any, ...], dict[bytes, str]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return FileCache, (None, self._schemas)

    def renewed(self) -> FileCache:
        """A cache that has read nothing of the table's histories."""
        renewed = FileCache(self.kept)
        renewed.checked, renewed.warn = self.checked, self.warn
        return renewed

    def at(self, storage: Storage, place: TablePlace) -> BranchFiles:
        """The files of a branch."""
        if self._storage is None:
            self._storage = storage
        if storage is not self._storage:
            return BranchFiles(storage, place, {})
        key = (place.url, place.branch)
        known = self._schemas.setdefault(key, {})
        return self._branches.setdefault((*key, place.argument), BranchFiles(storage, place, known))

    def partition_paths(self, *of: Any) -> dict[bytes, str]:
        """The paths of partitions by their serialised values, where these (columns, their types, options) are the same."""
        return self._paths.setdefault(of, {})
